//! Names of labels in a header extension, where TotalSegmentator and Connectome Workbench look for them.

use std::fmt::Write;

/// What stands before the bytes of an extension: its size and its code, of four bytes each.
const PREFIX: usize = 8;

/// Sizes of extensions are multiples of it.
const UNIT: usize = 16;

/// The code of an extension of no registered kind. Workbench's own code, 30, promises a whole CIFTI description; readers of label tables
/// take the first extension, whatever its code is.
const CODE: i32 = 0;

/// Names of labels in a label map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelTable {
    /// The value and the name of each label.
    pub labels: Vec<(u16, String)>,
}

impl LabelTable {
    /// What follows a NIfTI header of this table: four bytes that announce extensions, and one extension, little-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let xml = self.xml();
        let size = (PREFIX + xml.len()).next_multiple_of(UNIT);
        let mut bytes = vec![1, 0, 0, 0];
        // Of a few hundred labels: no size that overflows.
        bytes.extend((size as i32).to_le_bytes());
        bytes.extend(CODE.to_le_bytes());
        bytes.extend(xml.as_bytes());
        bytes.resize(4 + size, 0);
        bytes
    }

    /// The table as a `CaretExtension`, whose labels have colours that differ from their neighbours' in the list.
    fn xml(&self) -> String {
        let mut xml = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CaretExtension>\n<VolumeInformation Index=\"0\">\n<LabelTable>\n",
        );
        for (place, (value, name)) in self.labels.iter().enumerate() {
            let [red, green, blue] = colour(place);
            let name = name.replace("]]>", "]]]]><![CDATA[>");
            // Writing to a string cannot fail.
            let _ = writeln!(
                xml,
                "<Label Key=\"{value}\" Red=\"{red:.3}\" Green=\"{green:.3}\" Blue=\"{blue:.3}\" Alpha=\"1\"><![CDATA[{name}]]></Label>"
            );
        }
        xml.push_str(
            "</LabelTable>\n<VolumeType><![CDATA[Label]]></VolumeType>\n</VolumeInformation>\n</CaretExtension>\n",
        );
        xml
    }
}

/// A bright colour: hues that are a golden section of the circle apart are far from those before and after.
fn colour(place: usize) -> [f64; 3] {
    let hue = place as f64 * 0.618_033_988_75;
    [0.0, 1.0 / 3.0, 2.0 / 3.0].map(|shift| {
        let around = (hue + shift).fract();
        (2.0 - (6.0 * around - 3.0).abs()).clamp(0.0, 1.0)
    })
}
