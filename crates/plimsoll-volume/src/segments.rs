//! Names that a label map gives its values.
//!
//! A value means what its own file says, not what the same value means in another file: 3D Slicer numbers segments in the order in which
//! they were drawn. Whoever reads such a file maps values by name, with [`LabelValues`](crate::LabelValues).

/// The most segments of a file that are read: codes are bytes, and 0 is the background.
pub(crate) const MOST_SEGMENTS: usize = 255;

/// The most segments of several layers that may overlap: a byte has a bit for each.
pub(crate) const MOST_OVERLAPPING: usize = 8;

/// A value of a label map and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedValue {
    /// The value that voxels are read as.
    pub value: u8,
    /// The name that the file gives it.
    pub name: String,
}

/// The meaning of the values that voxels of a file with named segments are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentCoding {
    /// By the values that the file stores.
    Values,
    /// By the number of the segment in the file, from 1, as values are larger than 255 or the same in two layers.
    Numbers,
    /// By a bit for each segment, as segments of different layers may overlap.
    Sets,
}

/// The segments of a label map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Each segment. Two may have one name.
    pub named: Vec<NamedValue>,
    /// The meaning of the values of voxels.
    pub coding: SegmentCoding,
}

impl Segments {
    /// Segments of a table of names, whose values are the voxels' values. Of a value that is listed twice the first name is kept.
    pub fn from_table(table: impl IntoIterator<Item = (u8, String)>) -> Segments {
        let mut named: Vec<NamedValue> = Vec::new();
        for (value, name) in table {
            if !named.iter().any(|known| known.value == value) {
                named.push(NamedValue { value, name });
            }
        }
        Segments { named, coding: SegmentCoding::Values }
    }

    /// The names of the segments that a voxel read as `code` is in: none of the background and of a value without a segment, several where
    /// segments overlap.
    pub fn names_of(&self, code: u8) -> Vec<&str> {
        let is_in = |segment: &&NamedValue| match self.coding {
            SegmentCoding::Values | SegmentCoding::Numbers => segment.value == code,
            SegmentCoding::Sets => segment.value & code != 0,
        };
        let mut names: Vec<&str> = self.named.iter().filter(is_in).map(|segment| &*segment.name).collect();
        names.dedup();
        names
    }

    /// All codes that voxels can have beside 0.
    pub fn codes(&self) -> Vec<u8> {
        match self.coding {
            SegmentCoding::Values | SegmentCoding::Numbers => {
                self.named.iter().map(|segment| segment.value).collect()
            }
            SegmentCoding::Sets => {
                let all = self.named.iter().fold(0, |all, segment| all | segment.value);
                (1..=u8::MAX).filter(|code| code & !all == 0).collect()
            }
        }
    }
}
