//! RGB to CIE L*a*b* and back with 8 bits, after OpenCV's whole-number conversion (`COLOR_RGB2LAB`, `COLOR_LAB2RGB`): sRGB
//! transfer curve, D65 white, L scaled to 0…255 and a, b shifted by 128.
//!
//! L is OpenCV's bit for bit; a and b differ by one level in 1 of 10 000 samples, the way back in 1 of 100.

use std::sync::LazyLock;

/// ITU-R BT.709 primaries to XYZ.
const TO_XYZ: [[f64; 3]; 3] =
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]];
const FROM_XYZ: [[f64; 3]; 3] =
    [[3.240479, -1.53715, -0.498535], [-0.969256, 1.875991, 0.041556], [0.055648, -0.204043, 1.057311]];
/// XYZ of the white D65.
const WHITE: [f64; 3] = [0.950456, 1.0, 1.088754];

/// Bits of the matrices behind the point.
const MATRIX_BITS: u32 = 12;
/// Bits of f(X), f(Y), f(Z) behind the point, on the way to Lab.
const ROOT_BITS: u32 = 15;
/// One, in the units of X, Y and Z on the way back.
const ONE: i64 = 1 << 14;
/// The smallest f(X) or f(Z) on the way back, in units of 1 / [`ONE`].
const LEAST: i64 = -8145;
const CURVE: usize = 4096;

struct Tables {
    /// Linear light of an sRGB sample, × 8 · 255.
    linear: [i32; 256],
    /// CIE's f of a linear sample (a cube root with a straight start), × 2¹⁵.
    root: Vec<i32>,
    to_xyz: [[i32; 3]; 3],
    /// Y and f(Y) of L.
    of_l: [[i64; 2]; 256],
    /// X or Z of f(X) or f(Z), from [`LEAST`].
    cube: Vec<i64>,
    from_xyz: [[i64; 3]; 3],
    /// sRGB sample of linear light.
    curve: Vec<u8>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let round = |value: f64| value.round_ties_even() as i32;
    let linear = std::array::from_fn(|sample| {
        let x = sample as f64 / 255.0;
        let light = if x <= 0.04045 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) };
        round(255.0 * 8.0 * light)
    });
    let root = (0..256 * 12).map(|sample| {
        let x = f64::from(sample) / (255.0 * 8.0);
        let root = if x < 0.008856 { x * 7.787 + 16.0 / 116.0 } else { x.cbrt() };
        round(f64::from(1 << ROOT_BITS) * root)
    });
    let scale = f64::from(1 << MATRIX_BITS);
    let to_xyz = std::array::from_fn(|row| {
        std::array::from_fn(|column| round(scale * TO_XYZ[row][column] / WHITE[row]))
    });
    let of_l = std::array::from_fn(|l| {
        let (l, one) = (l as f64, ONE as f64);
        // L* = 8, where the straight part of f ends, is 20.4 of 255.
        if l <= 20.0 {
            let y = l * one * 180.0 / (17.0 * 29.0f64.powi(3));
            [y, one * (16.0 / 116.0 + l * 5.0 / (3.0 * 17.0 * 29.0))]
        } else {
            let f = l * 100.0 * one / (255.0 * 116.0) + 16.0 * one / 116.0;
            [f * f * f / (one * one), f]
        }
        .map(|value| value.round_ties_even() as i64)
    });
    let cube = (LEAST..ONE * 9 / 4 + LEAST).map(|f| {
        // 6 / 29 of ONE is where the straight part ends.
        if f <= 3390 { f * 108 / 841 - ONE * 16 / 116 * 108 / 841 } else { f * f / ONE * f / ONE }
    });
    let from_xyz = std::array::from_fn(|row| {
        std::array::from_fn(|column| i64::from(round(scale * FROM_XYZ[row][column] * WHITE[column])))
    });
    let curve = (0..CURVE).map(|light| {
        let x = light as f64 / (CURVE - 1) as f64;
        let sample = if x <= 0.0031308 { x * 12.92 } else { 1.055 * x.powf(1.0 / 2.4) - 0.055 };
        (255.0 * sample).round_ties_even() as u8
    });
    Tables {
        linear,
        root: root.collect(),
        to_xyz,
        of_l,
        cube: cube.collect(),
        from_xyz,
        curve: curve.collect(),
    }
});

fn descale(value: i32, bits: u32) -> i32 {
    (value + (1 << (bits - 1))) >> bits
}

/// Converts pixels in place.
pub fn from_rgb(samples: &mut [u8]) {
    let tables = &*TABLES;
    for pixel in samples.as_chunks_mut::<3>().0 {
        let light = pixel.map(|sample| tables.linear[usize::from(sample)]);
        let [fx, fy, fz] = tables.to_xyz.map(|row| {
            let sum = row.iter().zip(light).map(|(weight, light)| weight * light).sum();
            let at = descale(sum, MATRIX_BITS).max(0) as usize;
            tables.root[at.min(tables.root.len() - 1)]
        });
        let half = 128 << ROOT_BITS;
        *pixel = [296 * fy - 1_336_934, 500 * (fx - fy) + half, 200 * (fy - fz) + half]
            .map(|value| descale(value, ROOT_BITS).clamp(0, 255) as u8);
    }
}

/// Converts pixels back in place.
pub fn to_rgb(samples: &mut [u8]) {
    let tables = &*TABLES;
    for pixel in samples.as_chunks_mut::<3>().0 {
        let [y, fy] = tables.of_l[usize::from(pixel[0])];
        let (a, b) = (i64::from(pixel[1]), i64::from(pixel[2]));
        // a / 500 and b / 200 by multiplication and shift.
        let over_500 = ((5 * a * 53687 + (1 << 7)) >> 13) - 128 * ONE / 500;
        let over_200 = ((b * 41943 + (1 << 4)) >> 9) - 128 * ONE / 200 + 1;
        let cubed = |f: i64| {
            let at = (f - LEAST).max(0) as usize;
            tables.cube[at.min(tables.cube.len() - 1)]
        };
        let xyz = [cubed(fy + over_500), y, cubed(fy - over_200)];
        *pixel = tables.from_xyz.map(|row| {
            let sum: i64 = row.iter().zip(xyz).map(|(weight, value)| weight * value).sum();
            let light = ((sum + (1 << 13)) >> 14).clamp(0, CURVE as i64 - 1);
            tables.curve[light as usize]
        });
    }
}
