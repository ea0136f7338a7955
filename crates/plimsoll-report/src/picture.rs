//! Pixels as PNG files.

use std::collections::HashMap;
use std::io::{self, Write};

/// The program that wrote a picture, as its `Software`.
pub const SOFTWARE: &str = "plimsoll";

/// Writes red, green and blue of each pixel, `[row][column][channel]`, as a PNG: with a palette where there are at most 256 colours,
/// as in a grey picture with a few lines, which is a third of the size.
pub fn write_png(to: &mut dyn Write, [height, width]: [usize; 2], samples: &[u8]) -> io::Result<()> {
    let side =
        |pixels: usize| u32::try_from(pixels).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let mut encoder = png::Encoder::new(to, side(width)?, side(height)?);
    encoder.set_compression(png::Compression::Balanced);
    encoder.add_text_chunk("Software".into(), SOFTWARE.into())?;
    match Indexed::new(samples) {
        Some(Indexed { palette, pixels }) => {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&pixels)?;
            Ok(writer.finish()?)
        }
        None => {
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(samples)?;
            Ok(writer.finish()?)
        }
    }
}

/// A picture of few colours.
struct Indexed {
    /// Red, green and blue of each colour.
    palette: Vec<u8>,
    /// The colour of each pixel.
    pixels: Vec<u8>,
}

impl Indexed {
    /// None of a picture of more than 256 colours.
    fn new(samples: &[u8]) -> Option<Indexed> {
        let mut places: HashMap<[u8; 3], u8> = HashMap::new();
        let mut found = Indexed { palette: Vec::new(), pixels: Vec::with_capacity(samples.len() / 3) };
        for pixel in samples.as_chunks::<3>().0 {
            let next = places.len();
            let place = match places.get(pixel) {
                Some(place) => *place,
                None => {
                    let place = u8::try_from(next).ok()?;
                    places.insert(*pixel, place);
                    found.palette.extend(pixel);
                    place
                }
            };
            found.pixels.push(place);
        }
        Some(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn decoded(png: &[u8]) -> Vec<u8> {
        let mut decoder = png::Decoder::new(io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels
    }

    #[test]
    fn few_colours_and_many_are_written_as_they_are() {
        let few: Vec<u8> = (0..=255).flat_map(|grey| [grey, grey, 7]).collect();
        let many: Vec<u8> = (0..3 * 257 * 2).map(|at| (at * at % 251) as u8).collect();
        for (samples, size) in [(few, [16, 16]), (many, [2, 257])] {
            let mut file = Vec::new();
            write_png(&mut file, size, &samples).unwrap();
            assert_eq!(decoded(&file), samples);
        }
    }
}
