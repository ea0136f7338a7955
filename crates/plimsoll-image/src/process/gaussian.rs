//! Gaussian blur: OpenCV's on 8 bits, in fixed point and bit for bit the same, and torchvision's; Ben Graham's filter on top of
//! the first. Borders are reflected without repeating the last pixel.

use crate::raster::{Raster, reflect};

/// OpenCV's weights of `GaussianBlur(image, (0, 0), sigma)` on 8 bits: whole numbers whose sum is 256. The rounding error of each
/// is carried to the next, towards the centre.
pub fn opencv_kernel(sigma: f64) -> Vec<u32> {
    let half = opencv_radius(sigma);
    let density = |at: usize| (-0.5 / (sigma * sigma) * (half - at) as f64 * (half - at) as f64).exp();
    let sum = 2.0 * (0..half).map(density).sum::<f64>() + 1.0;
    let mut kernel = vec![0; 2 * half + 1];
    let (mut carried, mut used) = (0.0, 0);
    for at in 0..half {
        let exact = density(at) / sum * 256.0 + carried;
        let whole = exact.round_ties_even();
        carried = exact - whole;
        used += 2 * whole as u32;
        kernel[at] = whole as u32;
        kernel[2 * half - at] = whole as u32;
    }
    kernel[half] = 256u32.saturating_sub(used);
    kernel
}

/// Pixels to each side that the weights reach.
pub fn opencv_radius(sigma: f64) -> usize {
    ((sigma * 6.0 + 1.0).round_ties_even() as usize | 1) / 2
}

/// Blurs with a kernel of [`opencv_kernel`] and runs `with` for each sample of the output: the sample of `from`, and the blurred
/// one. `row` is scratch for width × channels numbers. Columns are summed before rows, which makes no difference in whole numbers.
fn opencv(from: Raster<'_>, kernel: &[u32], row: &mut [u32], out: &mut [u8], with: impl Fn(u8, u8) -> u8) {
    let (channels, half) = (from.channels, kernel.len() / 2);
    let length = (from.extent.width * channels).max(1);
    for (y, line) in out.chunks_exact_mut(length).take(from.extent.height).enumerate() {
        row.fill(0);
        for (tap, weight) in kernel.iter().enumerate() {
            let source = from.row(reflect((y + tap) as isize - half as isize, from.extent.height));
            for (sum, sample) in row.iter_mut().zip(source) {
                *sum += weight * u32::from(*sample);
            }
        }
        for ((at, to), own) in line.iter_mut().enumerate().zip(from.row(y)) {
            let (x, channel) = (at / channels, at % channels);
            let sum = kernel.iter().enumerate().fold(1 << 15, |sum, (tap, weight)| {
                let x = reflect((x + tap) as isize - half as isize, from.extent.width);
                sum + weight * row[x * channels + channel]
            });
            *to = with(*own, (sum >> 16).min(255) as u8);
        }
    }
}

/// OpenCV's `GaussianBlur(image, (0, 0), sigma)`.
pub fn opencv_blur(from: Raster<'_>, kernel: &[u32], row: &mut [u32], out: &mut [u8]) {
    opencv(from, kernel, row, out, |_, blurred| blurred);
}

/// Ben Graham's filter for images of the retina (Diabetic Retinopathy Detection, 2015): 4 · image − 4 · blurred + 128, clipped,
/// which removes what illumination changes slowly.
pub fn ben_graham(from: Raster<'_>, kernel: &[u32], row: &mut [u32], out: &mut [u8]) {
    opencv(from, kernel, row, out, |own, blurred| {
        (4 * (i32::from(own) - i32::from(blurred)) + 128).clamp(0, 255) as u8
    });
}

/// torchvision's `gaussian_blur(image, size, sigma)`: `size` weights in single precision, results rounded to even. `row` is
/// scratch for width × channels numbers, and `kernel` for `size`.
pub fn torchvision_blur(from: Raster<'_>, sigma: f64, kernel: &mut [f32], row: &mut [f32], out: &mut [u8]) {
    let half = kernel.len() / 2;
    for (at, weight) in kernel.iter_mut().enumerate() {
        *weight = (-0.5 * ((at as f32 - half as f32) / sigma as f32).powi(2)).exp();
    }
    let sum: f32 = kernel.iter().sum();
    kernel.iter_mut().for_each(|weight| *weight /= sum);
    let channels = from.channels;
    let length = (from.extent.width * channels).max(1);
    for (y, line) in out.chunks_exact_mut(length).take(from.extent.height).enumerate() {
        row.fill(0.0);
        for (tap, weight) in kernel.iter().enumerate() {
            let source = from.row(reflect((y + tap) as isize - half as isize, from.extent.height));
            for (sum, sample) in row.iter_mut().zip(source) {
                *sum += weight * f32::from(*sample);
            }
        }
        for (at, to) in line.iter_mut().enumerate() {
            let (x, channel) = (at / channels, at % channels);
            let sum: f32 = kernel
                .iter()
                .enumerate()
                .map(|(tap, weight)| {
                    let x = reflect((x + tap) as isize - half as isize, from.extent.width);
                    weight * row[x * channels + channel]
                })
                .sum();
            *to = sum.round_ties_even() as u8;
        }
    }
}
