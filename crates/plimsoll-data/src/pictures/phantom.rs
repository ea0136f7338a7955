//! Made-up photographs of the retina in five grades, to try classification on.
//!
//! Each shows the exposed disc, the bright head of the optic nerve and vessels that branch from it; grades differ by what is added:
//! nothing, few small dark dots, more of them, bright deposits as well, and large dark patches. They look like fundus photographs
//! from far away and are good for nothing else.

use std::io;
use std::path::Path;

use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use plimsoll_disk::atomic;
use plimsoll_random::{Draws, Purpose};

use super::Split;

/// The names of the grades.
pub const GRADES: [&str; 5] = ["0_none", "1_mild", "2_moderate", "3_severe", "4_proliferative"];

/// The number of lesions in the images of each grade: dots, deposits, patches.
const LESIONS: [[usize; 3]; 5] = [[0, 0, 0], [8, 0, 0], [20, 4, 0], [24, 16, 0], [24, 16, 5]];

/// The number and the size of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhantomImages {
    /// The number of images of each grade: to train on, to validate with, to be scored on.
    pub images: [usize; 3],
    /// Height and width in pixels.
    pub side: usize,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Default for PhantomImages {
    fn default() -> PhantomImages {
        PhantomImages { images: [48, 12, 24], side: 96, seed: 1 }
    }
}

/// Writes images to `folder/SPLIT/GRADE/NUMBER.png`.
///
/// # Errors
/// If the disk refuses.
pub fn write(folder: &Path, config: &PhantomImages) -> io::Result<()> {
    let mut pixels = vec![0u8; config.side * config.side * 3];
    for (split, count) in [Split::Train, Split::Val, Split::Test].into_iter().zip(config.images) {
        for (grade, name) in GRADES.iter().enumerate() {
            let of_grade = folder.join(split.name()).join(name);
            plimsoll_disk::create_dir_all(&of_grade)?;
            for number in 0..count {
                let sample = (split as u64) << 32 | number as u64;
                draw(
                    &mut Draws::new(config.seed, Purpose::Phantom, grade as u32, 0, sample),
                    grade,
                    config.side,
                    &mut pixels,
                );
                atomic::write(&of_grade.join(format!("{number:03}.png")), |file| {
                    let side = config.side as u32;
                    PngEncoder::new(file)
                        .write_image(&pixels, side, side, ExtendedColorType::Rgb8)
                        .map_err(io::Error::other)
                })?;
            }
        }
    }
    Ok(())
}

/// Draws one image: `[row][column][colour]`.
fn draw(draws: &mut Draws, grade: usize, side: usize, pixels: &mut [u8]) {
    let centre = side as f64 / 2.0;
    let radius = centre * 0.96;
    let tint = draws.between([0.85, 1.15]);
    let mut canvas = Canvas { side, colours: vec![[0.0; 3]; side * side] };
    canvas.paint(|y, x| {
        let distance = (y - centre).hypot(x - centre) / radius;
        (distance < 1.0)
            .then(|| [178.0, 88.0, 46.0].map(|colour| colour * tint * (1.0 - 0.35 * distance * distance)))
    });
    let from_nerve = if draws.chance(0.5) { 0.45 } else { -0.45 };
    let nerve = [centre + draws.between([-0.05, 0.05]) * side as f64, centre + from_nerve * centre];
    canvas.blob(nerve, side as f64 * 0.07, [238.0, 205.0, 140.0]);
    for _ in 0..6 {
        let (mut at, mut angle) = (nerve, draws.between([0.0, std::f64::consts::TAU]));
        for _ in 0..side {
            angle += draws.between([-0.12, 0.12]);
            at = [at[0] + angle.sin(), at[1] + angle.cos()];
            if (at[0] - centre).hypot(at[1] - centre) > radius {
                break;
            }
            canvas.blob(at, side as f64 * 0.009, [118.0, 36.0, 26.0]);
        }
    }
    let [dots, deposits, patches] = LESIONS[grade];
    let mut scatter = |count: usize, size: [f64; 2], colour: [f64; 3]| {
        for _ in 0..count {
            let (far, angle) =
                (draws.unit().sqrt() * 0.85 * radius, draws.between([0.0, std::f64::consts::TAU]));
            let place = [centre + far * angle.sin(), centre + far * angle.cos()];
            canvas.blob(place, draws.between(size) * side as f64, colour);
        }
    };
    scatter(dots, [0.012, 0.022], [92.0, 14.0, 12.0]);
    scatter(deposits, [0.016, 0.03], [246.0, 226.0, 132.0]);
    scatter(patches, [0.06, 0.1], [74.0, 8.0, 8.0]);
    for (pixel, colour) in pixels.chunks_exact_mut(3).zip(&canvas.colours) {
        let noise = f64::from(draws.normal()) * 4.0;
        for (to, from) in pixel.iter_mut().zip(colour) {
            *to = (from + noise).round().clamp(0.0, 255.0) as u8;
        }
    }
}

struct Canvas {
    side: usize,
    colours: Vec<[f64; 3]>,
}

impl Canvas {
    fn paint(&mut self, colour: impl Fn(f64, f64) -> Option<[f64; 3]>) {
        for (at, pixel) in self.colours.iter_mut().enumerate() {
            if let Some(colour) = colour((at / self.side) as f64, (at % self.side) as f64) {
                *pixel = colour;
            }
        }
    }

    /// A disc with a soft edge.
    fn blob(&mut self, [y, x]: [f64; 2], radius: f64, colour: [f64; 3]) {
        let reach = radius + 1.0;
        let rows = |centre: f64| {
            let low = (centre - reach).floor().max(0.0) as usize;
            low..((centre + reach).ceil().max(0.0) as usize + 1).min(self.side)
        };
        let (rows, columns) = (rows(y), rows(x));
        for row in rows {
            for column in columns.clone() {
                let distance = (row as f64 - y).hypot(column as f64 - x);
                let share = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let pixel = &mut self.colours[row * self.side + column];
                for (to, from) in pixel.iter_mut().zip(colour) {
                    *to += share * (from - *to);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::pictures::ImageDataset;
    use plimsoll_memory::{Budget, Bytes};

    #[test]
    fn images_are_a_data_set_in_five_grades_and_the_same_each_time() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = PhantomImages { images: [2, 1, 1], side: 32, seed: 3 };
        write(one.path(), &config).unwrap();
        write(two.path(), &config).unwrap();
        let dataset = ImageDataset::from_folders(one.path(), &Budget::new(Bytes::mib(1))).unwrap();
        assert_eq!(dataset.classes, GRADES);
        assert_eq!(dataset.class_counts(&dataset.in_split(Some(Split::Train))), [2; 5]);
        for case in &dataset.cases {
            let other = std::fs::read(two.path().join(&case.name)).unwrap();
            assert_eq!(std::fs::read(&case.path).unwrap(), other, "{}", case.name);
        }
    }
}
