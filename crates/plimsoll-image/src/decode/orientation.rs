//! The orientation that cameras write beside an image.

use serde::{Deserialize, Serialize};

use super::format::Format;
use crate::raster::Extent;

/// The handling of the orientation in the metadata of a file (TIFF 6.0 and Exif, tag 274).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Orientation {
    /// Applied where PIL applies it when it opens an image: in TIFF files only. Data loaders of torchvision do
    /// the same.
    #[default]
    AsPil,
    /// In all formats.
    Apply,
    /// In none.
    Ignore,
}

impl Orientation {
    pub(crate) fn turn(self, format: Format, turn: Turn) -> Turn {
        let applies = match self {
            Orientation::AsPil => format == Format::Tiff,
            Orientation::Apply => true,
            Orientation::Ignore => false,
        };
        if applies { turn } else { Turn::NONE }
    }
}

/// One of the eight ways to turn and mirror an image: axes are exchanged first, then the result is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    transposed: bool,
    mirrored_rows: bool,
    mirrored_columns: bool,
}

impl Turn {
    pub(crate) const NONE: Turn = Turn { transposed: false, mirrored_rows: false, mirrored_columns: false };

    pub(crate) fn swaps_axes(self) -> bool {
        self.transposed
    }

    /// The stored row and column of the turned image's pixel; `stored` is the extent as stored.
    pub(crate) fn source(self, row: usize, column: usize, stored: Extent) -> (usize, usize) {
        let turned = if self.transposed { stored.transposed() } else { stored };
        let row = if self.mirrored_rows { turned.height - 1 - row } else { row };
        let column = if self.mirrored_columns { turned.width - 1 - column } else { column };
        if self.transposed { (column, row) } else { (row, column) }
    }
}

impl From<image::metadata::Orientation> for Turn {
    fn from(found: image::metadata::Orientation) -> Turn {
        use image::metadata::Orientation as Found;
        let (transposed, mirrored_rows, mirrored_columns) = match found {
            Found::NoTransforms => (false, false, false),
            Found::FlipHorizontal => (false, false, true),
            Found::Rotate180 => (false, true, true),
            Found::FlipVertical => (false, true, false),
            Found::Rotate90FlipH => (true, false, false),
            Found::Rotate90 => (true, false, true),
            Found::Rotate270FlipH => (true, true, true),
            Found::Rotate270 => (true, true, false),
        };
        Turn { transposed, mirrored_rows, mirrored_columns }
    }
}
