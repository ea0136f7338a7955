//! Brightness, contrast, saturation and hue, as torchvision's `ColorJitter` changes PIL images with 8 bits, in place.

use crate::raster::luma;

/// One change of colours, with its factor; a factor of 1 changes nothing, for hue 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColourChange {
    /// Blends with black.
    Brightness(f64),
    /// Blends with the mean grey.
    Contrast(f64),
    /// Blends with the grey image. Grey images do not change.
    Saturation(f64),
    /// Turns the hue by this share of the circle, −½ to ½. Grey images do not change.
    Hue(f64),
}

impl ColourChange {
    /// Changes `[pixel][channel]` samples with 1 or 3 channels.
    pub fn apply(self, channels: usize, samples: &mut [u8]) {
        match self {
            ColourChange::Brightness(factor) => {
                samples.iter_mut().for_each(|sample| *sample = blend(0, *sample, factor as f32));
            }
            ColourChange::Contrast(factor) => {
                let mean = mean_grey(channels, samples);
                samples.iter_mut().for_each(|sample| *sample = blend(mean, *sample, factor as f32));
            }
            ColourChange::Saturation(factor) => for_each_colour(channels, samples, |[red, green, blue]| {
                let grey = luma(red, green, blue);
                [red, green, blue].map(|sample| blend(grey, sample, factor as f32))
            }),
            ColourChange::Hue(factor) => {
                // The hue has 256 steps; the turn is cut off to whole ones and wraps around.
                let turn = (factor * 255.0) as i32 as u8;
                for_each_colour(channels, samples, |colour| {
                    let [hue, saturation, value] = to_hsv(colour);
                    to_rgb([hue.wrapping_add(turn), saturation, value])
                });
            }
        }
    }
}

fn for_each_colour(channels: usize, samples: &mut [u8], change: impl Fn([u8; 3]) -> [u8; 3]) {
    if channels == 3 {
        for pixel in samples.as_chunks_mut::<3>().0 {
            *pixel = change(*pixel);
        }
    }
}

/// PIL's `blend`: `from` at 0, `to` at 1, extrapolated and clipped beyond. Cut off, not rounded.
fn blend(from: u8, to: u8, share: f32) -> u8 {
    // Conversion to 8 bits saturates.
    (f32::from(from) + share * (f32::from(to) - f32::from(from))) as u8
}

/// The mean of the grey image, rounded.
fn mean_grey(channels: usize, samples: &[u8]) -> u8 {
    let (sum, count) = if channels == 3 {
        let pixels = samples.as_chunks::<3>().0;
        (
            pixels.iter().map(|[red, green, blue]| u64::from(luma(*red, *green, *blue))).sum::<u64>(),
            pixels.len(),
        )
    } else {
        (samples.iter().map(|sample| u64::from(*sample)).sum(), samples.len())
    };
    (sum as f64 / count.max(1) as f64 + 0.5) as u8
}

/// PIL's conversion to hue, saturation and value with 8 bits each (Smith 1978), in single precision as there.
fn to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let saturation = range / f32::from(most);
    let below = |sample: u8| f32::from(most - sample) / range;
    let (below_red, below_green, below_blue) = (below(red), below(green), below(blue));
    let sixths = if red == most {
        below_blue - below_green
    } else if green == most {
        (2.0 + f64::from(below_red) - f64::from(below_blue)) as f32
    } else {
        (4.0 + f64::from(below_green) - f64::from(below_red)) as f32
    };
    let hue = ((f64::from(sixths) / 6.0 + 1.0) % 1.0) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

/// Back, as PIL does.
fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = (f64::from(hue) * 6.0 / 255.0) as f32;
    let sector = sixths.floor();
    let rest = f64::from(sixths - sector);
    let saturation = f64::from((f64::from(saturation) / 255.0) as f32);
    let whole = f64::from(value);
    let low = (whole * (1.0 - saturation)).round() as u8;
    let falling = (whole * (1.0 - saturation * rest)).round() as u8;
    let rising = (whole * (1.0 - saturation * (1.0 - rest))).round() as u8;
    match sector as u8 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}
