//! Plain images as volumes of one slice.
//!
//! A picture has no place in the world: its pixels are a millimetre apart, and rows run along the height. Its formats are decoded as
//! a whole, within a budget, before any region is read; the header is enough for the grid.

use std::path::Path;

use plimsoll_image::{DecodeOptions, Decoded, ImageError, ImageFile, LabelImage};
use plimsoll_memory::{Budget, Bytes};

use crate::nifti::{HeaderError, Layout};
use crate::{Affine, ByteOrder, ElementType, Geometry, Scaling, Spacing, VolumeError};

/// What the names of pictures end in, with the dot, in lower case.
pub const ENDINGS: [&str; 6] = [".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"];

/// What the voxels of a file are: of pictures, colours and classes are stored in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Intensities: the colours of a palette are looked up.
    #[default]
    Intensities,
    /// Classes: indices of a palette are what they are, and formats that change numbers are refused.
    Labels,
}

/// A picture whose header was read, and its pixels once they are decoded.
pub(crate) struct Picture {
    file: File,
    decoded: Option<Decoded>,
}

enum File {
    Intensities(ImageFile),
    Labels(LabelImage),
}

/// Whether a path has the name of a picture.
pub fn is_picture(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a path has the name of a TIFF file.
pub(crate) fn is_tiff(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["tif", "tiff"].iter().any(|tiff| ending.eq_ignore_ascii_case(tiff)))
}

fn refused(problem: ImageError) -> VolumeError {
    VolumeError::Picture { problem: Box::new(problem) }
}

impl Picture {
    /// Reads the header.
    pub(crate) fn open(path: &Path, content: Content) -> Result<(Picture, Layout), VolumeError> {
        let options = DecodeOptions::default();
        let (file, extent, channels, bits) = match content {
            Content::Intensities => {
                let file = ImageFile::open(path, &options).map_err(refused)?;
                let header = *file.header();
                (File::Intensities(file), header.extent, header.channels, header.bits)
            }
            Content::Labels => {
                let file = LabelImage::open(path, &options).map_err(refused)?;
                let (extent, bits) = (file.extent(), file.bits());
                (File::Labels(file), extent, 1, bits)
            }
        };
        let element_type = if bits > 8 { ElementType::U16 } else { ElementType::U8 };
        let shape = [1, extent.height, extent.width];
        let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.0; 3]))).map_err(|problem| {
            VolumeError::Header {
                path: path.into(),
                problem: HeaderError::Geometry { problem, source_field: "pixels" },
            }
        })?;
        // The extent was checked against the most pixels that are read, so the product is far from any limit.
        let bytes = extent.pixels() as u64 * channels as u64 * element_type.size() as u64;
        let byte_order = ByteOrder::NATIVE;
        let layout =
            Layout { geometry, channels, element_type, byte_order, scaling: Scaling::NONE, start: 0, bytes };
        Ok((Picture { file, decoded: None }, layout))
    }

    /// Bytes that decoding reserves while it runs.
    pub(crate) fn decoding_bytes(&self) -> Bytes {
        let bytes = match &self.file {
            File::Intensities(file) => file.decoding_bytes(),
            File::Labels(file) => file.decoding_bytes(),
        };
        bytes.unwrap_or(Bytes(u64::MAX))
    }

    /// Decodes the pixels, once.
    pub(crate) fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.decoded.is_none() {
            let decoded = match &self.file {
                File::Intensities(file) => file.decode(budget),
                File::Labels(file) => file.decode(budget),
            };
            self.decoded = Some(decoded.map_err(refused)?);
        }
        Ok(())
    }

    pub(crate) fn is_decoded(&self) -> bool {
        self.decoded.is_some()
    }

    /// Copies consecutive pixels of a channel, from pixel `first` on; pixels are stored with their channels together.
    pub(crate) fn read(
        &self,
        channel: usize,
        first: usize,
        bytes: &mut [u8],
        path: &Path,
    ) -> Result<(), VolumeError> {
        fn copy<T: bytemuck::Pod>(image: &[T], channels: usize, from: (usize, usize), bytes: &mut [u8]) {
            let (channel, first) = from;
            let samples = image.iter().skip(first * channels + channel).step_by(channels.max(1));
            for (to, sample) in bytes.chunks_exact_mut(size_of::<T>()).zip(samples) {
                to.copy_from_slice(bytemuck::bytes_of(sample));
            }
        }
        let from = (channel, first);
        match &self.decoded {
            Some(Decoded::Eight(image)) => copy(image, image.channels(), from, bytes),
            Some(Decoded::Sixteen(image)) => copy(image, image.channels(), from, bytes),
            None => return Err(VolumeError::NotDecoded { path: path.into() }),
        }
        Ok(())
    }
}
