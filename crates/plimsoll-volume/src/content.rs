//! The kind of values that the voxels of a file are.

use crate::Geometry;

/// The kind of values that voxels are: in pictures, colours and classes are stored in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a value is made for each file that is opened, and none is stored"
)]
pub enum Content {
    /// Intensities: the colours of a palette are looked up.
    #[default]
    Intensities,
    /// Classes: indices of a palette are what they are, and formats that change numbers are refused.
    Labels,
    /// Classes whose values mean what their own file says: [`segments`](crate::VolumeFile::segments) has the names, by which values are to be
    /// mapped. Layers are read as one label map.
    Segments {
        /// The grid of the image, on which a file that has a part of it is placed; none if that is not known.
        on: Option<Geometry>,
    },
}

impl Content {
    /// Returns `true` if voxels are classes.
    pub fn is_labels(&self) -> bool {
        !matches!(self, Content::Intensities)
    }
}
