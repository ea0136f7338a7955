//! Why an image cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::Substitute;
use plimsoll_memory::{Bytes, MapError};

/// Why an image cannot be read. Each error names the file.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The operating system reported an error.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The image.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("{} is empty", path.display())]
    Empty {
        /// The image.
        path: PathBuf,
    },
    /// The file is of another kind.
    #[error("{} is not a PNG, JPEG, TIFF or BMP file: it starts with {start}", path.display())]
    Foreign {
        /// The image.
        path: PathBuf,
        /// The first bytes, hexadecimal.
        start: String,
    },
    /// The file has more bytes than are read.
    #[error("{} has {found}; at most {most} are supported", path.display())]
    TooLong {
        /// The image.
        path: PathBuf,
        /// The length of the file.
        found: Bytes,
        /// The limit.
        most: Bytes,
    },
    /// The header claims more pixels than are accepted, or none.
    #[error("{} claims {height} × {width} pixels; from 1 to {most} are supported", path.display())]
    Pixels {
        /// The image.
        path: PathBuf,
        /// Rows.
        height: u64,
        /// Columns.
        width: u64,
        /// The limit on their product.
        most: u64,
    },
    /// The image ends early.
    #[error("{} is cut off: its {length} have no end marker", path.display())]
    CutOff {
        /// The image.
        path: PathBuf,
        /// The length of the file.
        length: Bytes,
    },
    /// The contents are not as the format demands, or end early.
    #[error("{} is a damaged {format}: {problem}", path.display())]
    Damaged {
        /// The image.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// The decoder's message.
        problem: String,
    },
    /// The format allows it, but it is not read.
    #[error("{} is a {format} with {feature}, which is not supported", path.display())]
    Unsupported {
        /// The image.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// The unsupported feature.
        feature: String,
    },
    /// Samples have 16 bits, but the range that they use is not known.
    #[error("{} has 16 bits per sample, but the training images have 8", path.display())]
    NoRange {
        /// The image.
        path: PathBuf,
    },
    /// The budget has no room to decode it.
    #[error("{}, {height} × {width} pixels: {source}", path.display())]
    Memory {
        /// The image.
        path: PathBuf,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// The refused reservation.
        source: MapError,
    },
    /// The image is larger than those that the pipeline was made for.
    #[error(
        "{} has {height} × {width} pixels, but the pipeline has memory for {most} pixels and a side of {longest}",
        path.display()
    )]
    LargerThanPlanned {
        /// The image.
        path: PathBuf,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// The most pixels.
        most: usize,
        /// The longest side.
        longest: usize,
    },
    /// A mask does not lie on the grid of its image.
    #[error("{} has {found_height} × {found_width} pixels, but its image has {height} × {width}", path.display())]
    MaskExtent {
        /// The mask.
        path: PathBuf,
        /// Rows of the mask.
        found_height: usize,
        /// Columns of the mask.
        found_width: usize,
        /// Rows of the image.
        height: usize,
        /// Columns of the image.
        width: usize,
    },
    /// A label image is of a format that does not keep classes as they are.
    #[error("{} is a {format}, which changes the classes of a label image", path.display())]
    LossyLabels {
        /// The label image.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
    },
    /// A label image has colours.
    #[error("{} has {channels} channels of {bits} bits, but a label image has one: grey levels or palette indices", path.display())]
    LabelSamples {
        /// The label image.
        path: PathBuf,
        /// Its channels.
        channels: usize,
        /// Bits of each sample.
        bits: u8,
    },
    /// The output buffer has another length than an image of the pipeline.
    #[error("{}: the buffer has {found} elements, but an image of the pipeline has {expected}", path.display())]
    Length {
        /// The image.
        path: PathBuf,
        /// The length of the buffer.
        found: usize,
        /// Channels × height × width.
        expected: usize,
    },
}

impl ImageError {
    pub(crate) fn io(path: &Path, source: io::Error) -> ImageError {
        ImageError::Io { path: path.into(), source }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            ImageError::Io { path, .. }
            | ImageError::Empty { path }
            | ImageError::Foreign { path, .. }
            | ImageError::TooLong { path, .. }
            | ImageError::Pixels { path, .. }
            | ImageError::CutOff { path, .. }
            | ImageError::Damaged { path, .. }
            | ImageError::Unsupported { path, .. }
            | ImageError::NoRange { path }
            | ImageError::Memory { path, .. }
            | ImageError::LargerThanPlanned { path, .. }
            | ImageError::MaskExtent { path, .. }
            | ImageError::LossyLabels { path, .. }
            | ImageError::LabelSamples { path, .. }
            | ImageError::Length { path, .. } => path,
        }
    }

    /// Returns `true` if more memory would avoid the error.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, ImageError::Memory { .. })
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            ImageError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path, and the ending that is appended to names".into()
            }
            ImageError::Io { source, .. } => {
                return Substitute::find(source).map(|found| found.remedy().into());
            }
            ImageError::Length { .. } => return None,
            ImageError::Empty { .. } | ImageError::CutOff { .. } | ImageError::Damaged { .. } => {
                "copy the file again from its source, or leave the case out".into()
            }
            ImageError::Foreign { .. } => {
                "convert it to PNG, JPEG, TIFF or BMP, or leave the file out".into()
            }
            ImageError::TooLong { .. } | ImageError::Pixels { .. } => {
                "make the image smaller, or raise the limits on pixels and bytes".into()
            }
            ImageError::Unsupported { .. } => {
                "convert it to PNG with 8 bits, grey or RGB, one file for each page".into()
            }
            ImageError::NoRange { .. } => "convert it to 8 bits as the other images were".into(),
            ImageError::Memory { source, .. } => format!("{}, or make the image smaller", source.remedy()),
            ImageError::MaskExtent { .. } => {
                "save the mask on the grid of the image that it was drawn on".into()
            }
            ImageError::LossyLabels { .. } => {
                "export the label image again as a PNG from the program that it was drawn with".into()
            }
            ImageError::LabelSamples { .. } => {
                "save the labels as a PNG whose grey levels, or palette indices, are the classes".into()
            }
            ImageError::LargerThanPlanned { .. } => {
                "the file has changed since the data set was listed: list it again".into()
            }
        })
    }
}
