//! Images whose pixels are classes.
//!
//! A class must come out as the number that was stored: the index of a palette, not its colour; a sample of less than 8 bits as it
//! is, not spread over 0 to 255. Formats that lose anything are refused.

use std::io::BufReader;
use std::path::Path;

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder};
use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use super::format::Format;
use super::{DecodeOptions, Decoded, ImageFile, guarded};
use crate::ImageError;
use crate::raster::{Extent, Image};

/// A label image whose header was read and checked: one channel of classes.
#[derive(Clone, Debug)]
pub struct LabelImage {
    file: ImageFile,
    /// The stored bits of a class: 1, 2, 4, 8 or 16.
    stored_bits: u8,
}

impl LabelImage {
    /// Reads the header of a PNG, TIFF or BMP file of grey levels or palette indices.
    ///
    /// # Errors
    /// As [`ImageFile::open`]; if the format is lossy, or pixels have several samples.
    pub fn open(path: impl AsRef<Path>, options: &DecodeOptions) -> Result<LabelImage, ImageError> {
        let file = ImageFile::open(path, options)?;
        let path = file.path();
        let header = file.header();
        let (channels, stored_bits) = match header.format {
            Format::Jpeg => {
                return Err(ImageError::LossyLabels { path: path.into(), format: header.format_name() });
            }
            Format::Png => {
                let reader = png_reader(&file)?;
                let info = reader.info();
                let channels = match info.color_type {
                    png::ColorType::Grayscale | png::ColorType::Indexed => 1,
                    png::ColorType::GrayscaleAlpha => 2,
                    png::ColorType::Rgb => 3,
                    png::ColorType::Rgba => 4,
                };
                (channels, info.bit_depth as u8)
            }
            Format::Bmp => match bmp_color(&file)? {
                ColorType::L8 => (1, 8),
                _ => (header.channels, header.bits),
            },
            Format::Tiff => (header.channels, header.bits),
        };
        if channels != 1 {
            return Err(ImageError::LabelSamples { path: path.into(), channels, bits: stored_bits });
        }
        Ok(LabelImage { stored_bits, file })
    }

    /// Rows and columns.
    pub fn extent(&self) -> Extent {
        self.file.header().extent
    }

    /// Bits of a decoded class: 8 or 16.
    pub fn bits(&self) -> u8 {
        if self.stored_bits > 8 { 16 } else { 8 }
    }

    /// Bytes that [`decode`](Self::decode) reserves while it runs: for the image, the decoder and packed rows.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn decoding_bytes(&self) -> Result<Bytes, MapError> {
        let image = match self.bits() {
            16 => Image::<u16>::reserves(self.extent(), 1)?,
            _ => Image::<u8>::reserves(self.extent(), 1)?,
        };
        let packed = if self.stored_bits < 8 { Mapped::<u8>::bytes(self.packed())? } else { Bytes::ZERO };
        Ok(image + packed + self.file.header().decoder_bytes())
    }

    /// Bytes of all rows, several pixels a byte where classes have less than 8 bits.
    fn packed(&self) -> usize {
        let Extent { height, width } = self.extent();
        width.saturating_mul(usize::from(self.stored_bits)).div_ceil(8).saturating_mul(height)
    }

    /// Decodes the classes: one channel, as it is stored.
    ///
    /// # Errors
    /// If the budget has no room, or the file is damaged or ends early.
    pub fn decode(&self, budget: &Budget) -> Result<Decoded, ImageError> {
        let (extent, path) = (self.extent(), self.file.path());
        let Extent { height, width } = extent;
        let memory = |source: MapError| ImageError::Memory { path: path.into(), height, width, source };
        let format = self.file.header().format;
        if format == Format::Tiff {
            return self.file.decode(budget);
        }
        let decoder_bytes = self.file.header().decoder_bytes();
        let _decoder =
            budget.reserve("decoder of images", decoder_bytes).map_err(|error| memory(error.into()))?;
        if self.stored_bits > 8 {
            let mut image = Image::<u16>::zeroed(extent, 1, budget).map_err(memory)?;
            self.read_png(bytemuck::cast_slice_mut(image.samples_mut()))?;
            // PNG has the high byte first.
            image.samples_mut().iter_mut().for_each(|class| *class = u16::from_be(*class));
            return Ok(Decoded::Sixteen(image));
        }
        let mut image = Image::<u8>::zeroed(extent, 1, budget).map_err(memory)?;
        match (format, self.stored_bits) {
            (Format::Bmp, _) => self.read_bmp(image.samples_mut())?,
            (_, 8) => self.read_png(image.samples_mut())?,
            (_, bits) => {
                let mut packed = Mapped::<u8>::zeroed(budget, "image", self.packed()).map_err(memory)?;
                self.read_png(&mut packed)?;
                unpack(&packed, usize::from(bits), width, image.samples_mut());
            }
        }
        Ok(Decoded::Eight(image))
    }

    fn read_png(&self, to: &mut [u8]) -> Result<(), ImageError> {
        let mut reader = png_reader(&self.file)?;
        guarded(self.file.path(), Format::Png, || {
            // The file may have changed since its header was read.
            if reader.output_buffer_size() != Some(to.len()) {
                return Err(super::changed());
            }
            reader.next_frame(to).map_err(png_error)?;
            reader.finish().map_err(png_error)
        })
    }

    fn read_bmp(&self, to: &mut [u8]) -> Result<(), ImageError> {
        let decoder = bmp_decoder(&self.file)?;
        guarded(self.file.path(), Format::Bmp, || match decoder.total_bytes() == to.len() as u64 {
            true => decoder.read_image(to),
            false => Err(super::changed()),
        })
    }
}

/// Spreads rows of classes of `bits` bits, the first in the highest, over bytes.
fn unpack(packed: &[u8], bits: usize, width: usize, to: &mut [u8]) {
    let (row_bytes, mask) = ((width * bits).div_ceil(8).max(1), (1u16 << bits) as u8 - 1);
    for (row, to) in packed.chunks_exact(row_bytes).zip(to.chunks_exact_mut(width.max(1))) {
        for (column, class) in to.iter_mut().enumerate() {
            let first = column * bits;
            *class = row[first / 8] >> (8 - bits - first % 8) & mask;
        }
    }
}

fn png_error(problem: png::DecodingError) -> image::ImageError {
    let hint = image::error::ImageFormatHint::Exact(image::ImageFormat::Png);
    image::ImageError::Decoding(image::error::DecodingError::new(hint, problem))
}

fn open(file: &ImageFile) -> Result<BufReader<File>, ImageError> {
    let path = file.path();
    Ok(BufReader::new(File::open(path).map_err(|source| ImageError::io(path, source))?))
}

/// A reader of samples as they are stored.
fn png_reader(file: &ImageFile) -> Result<png::Reader<BufReader<File>>, ImageError> {
    let source = open(file)?;
    let most = usize::try_from(file.header().decoder_limit()).unwrap_or(usize::MAX);
    guarded(file.path(), Format::Png, || {
        let mut decoder = png::Decoder::new_with_limits(source, png::Limits { bytes: most });
        decoder.set_transformations(png::Transformations::IDENTITY);
        decoder.read_info().map_err(png_error)
    })
}

/// A decoder of indices, where there is a palette.
fn bmp_decoder(file: &ImageFile) -> Result<BmpDecoder<BufReader<File>>, ImageError> {
    let source = open(file)?;
    guarded(file.path(), Format::Bmp, || {
        let mut decoder = BmpDecoder::new(source)?;
        if decoder.get_palette().is_some() {
            decoder.set_indexed_color(true);
        }
        Ok(decoder)
    })
}

fn bmp_color(file: &ImageFile) -> Result<ColorType, ImageError> {
    Ok(bmp_decoder(file)?.color_type())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn png_file(path: &Path, color: png::ColorType, depth: png::BitDepth, size: [u32; 2], rows: &[u8]) {
        let file = std::fs::File::create(path).unwrap();
        let mut encoder = png::Encoder::new(file, size[1], size[0]);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == png::ColorType::Indexed {
            // Colours that say nothing of the index: the last is white, the first red.
            encoder.set_palette(vec![255, 0, 0, 9, 9, 9, 0, 0, 255, 255, 255, 255]);
        }
        encoder.write_header().unwrap().write_image_data(rows).unwrap();
    }

    fn labels(path: &Path) -> Vec<u16> {
        let image = LabelImage::open(path, &DecodeOptions::default()).unwrap();
        let budget = Budget::new(image.decoding_bytes().unwrap());
        match image.decode(&budget).unwrap() {
            Decoded::Eight(image) => image.iter().map(|class| u16::from(*class)).collect(),
            Decoded::Sixteen(image) => image.to_vec(),
        }
    }

    #[test]
    fn classes_are_indices_and_levels_as_they_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        use png::{BitDepth, ColorType};
        let two_bits = [0b00_01_10_11, 0b11_00_00_00, 0b10_10_01_00, 0b01_00_00_00];
        for color in [ColorType::Indexed, ColorType::Grayscale] {
            png_file(&path, color, BitDepth::Two, [2, 5], &two_bits);
            assert_eq!(labels(&path), [0, 1, 2, 3, 3, 2, 2, 1, 0, 1], "{color:?}");
        }
        png_file(&path, ColorType::Indexed, BitDepth::Eight, [1, 4], &[3, 0, 2, 1]);
        assert_eq!(labels(&path), [3, 0, 2, 1]);
        png_file(&path, ColorType::Grayscale, BitDepth::One, [2, 3], &[0b1010_0000, 0b0110_0000]);
        assert_eq!(labels(&path), [1, 0, 1, 0, 1, 1]);
        png_file(&path, ColorType::Grayscale, BitDepth::Sixteen, [1, 2], &[1, 2, 0, 7]);
        assert_eq!(labels(&path), [0x102, 7]);
        let grey = image::GrayImage::from_raw(3, 2, vec![0, 1, 2, 3, 4, 5]).unwrap();
        for name in ["a.bmp", "a.tif"] {
            let path = dir.path().join(name);
            grey.save(&path).unwrap();
            assert_eq!(labels(&path), [0, 1, 2, 3, 4, 5], "{name}");
        }
    }

    #[test]
    fn colours_and_lossy_formats_are_no_labels() {
        let dir = tempfile::tempdir().unwrap();
        let error = |name: &str| {
            let error = LabelImage::open(dir.path().join(name), &DecodeOptions::default()).unwrap_err();
            assert!(error.remedy().is_some() && error.to_string().contains(name), "{error}");
            error
        };
        for name in ["rgb.png", "rgb.bmp", "rgb.tif"] {
            image::RgbImage::new(4, 3).save(dir.path().join(name)).unwrap();
            assert!(matches!(error(name), ImageError::LabelSamples { channels: 3, .. }), "{name}");
        }
        // A JPEG is one under any name.
        image::GrayImage::new(4, 3).save(dir.path().join("grey.jpg")).unwrap();
        std::fs::rename(dir.path().join("grey.jpg"), dir.path().join("grey.png")).unwrap();
        assert!(error("grey.png").to_string().contains("JPEG"));
        let mut cut = std::fs::File::create(dir.path().join("cut.png")).unwrap();
        png_file(
            &dir.path().join("whole.png"),
            png::ColorType::Grayscale,
            png::BitDepth::Eight,
            [9, 9],
            &[1; 81],
        );
        let whole = std::fs::read(dir.path().join("whole.png")).unwrap();
        cut.write_all(&whole[..whole.len() - 20]).unwrap();
        let opened = LabelImage::open(dir.path().join("cut.png"), &DecodeOptions::default());
        let decoded = opened.and_then(|image| image.decode(&Budget::new(Bytes::mib(4))));
        assert!(decoded.unwrap_err().to_string().contains("cut.png"));
    }
}
