//! Cubic interpolation of intensities, by Keys' convolution.
//!
//! Keys (1981), "Cubic convolution interpolation for digital image processing", with a = −½: a weighted sum of the four voxels
//! around a sample along each axis, exact for polynomials up to the second degree. Unlike a cubic B-spline it needs no filter
//! over the whole image first, so a patch reads one voxel more on each side than with linear interpolation.

use crate::VoxelMap;
use crate::pull::sample::{Sampler, for_each_sample, linear_step};
use crate::pull::{Outside, PullError, SourceBlock, fill_rows, reads_source};

/// Interpolates `out`, of `out_shape`, by cubic convolution at the source indices that `map` gives. Beyond the source its
/// outermost voxels go on. A sample on the centre of a voxel reads only that voxel along that axis. Values may lie beyond those
/// of the voxels around.
///
/// # Errors
/// Returns an error if `out` does not have the shape, the block lacks voxels that are needed (take it from
/// [`VoxelMap::source_box`] with a margin of 1), or coordinates are not finite.
pub fn pull_cubic(
    source: &SourceBlock<'_, f32>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<f32>,
    out: &mut [f32],
) -> Result<(), PullError> {
    if !reads_source(source, map, out_shape, 1, &outside, out.len())? {
        fill_rows(out_shape, [0..0, 0..0, 0..0], outside, out, |_, _, _| {});
        return Ok(());
    }
    for_each_sample(source, map, out_shape, outside, out, &Cubic(source));
    Ok(())
}

pub(super) struct Cubic<'a>(pub(super) &'a SourceBlock<'a, f32>);

/// The offsets of the four voxels around a clamped coordinate, and their weights.
#[inline(always)]
fn taps(at: f64, voxels: usize, start: usize, stride: usize) -> ([usize; 4], [f32; 4]) {
    let (lower, upper, t) = linear_step(at);
    let offset = |voxel: usize| (voxel - start) * stride;
    if t == 0.0 {
        return ([offset(lower); 4], [0.0, 1.0, 0.0, 0.0]);
    }
    let offsets = [lower.saturating_sub(1), lower, upper, (upper + 1).min(voxels - 1)].map(offset);
    let weights = [
        ((-0.5 * t + 1.0) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1.0,
        ((-1.5 * t + 2.0) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    ];
    (offsets, weights)
}

impl Sampler<f32> for Cubic<'_> {
    #[inline(always)]
    fn sample(&self, at: [f64; 3]) -> f32 {
        let (start, volume) = (self.0.region.start, self.0.volume_shape);
        let strides = self.0.strides();
        let [(d, of_d), (h, of_h), (w, of_w)] =
            std::array::from_fn(|axis| taps(at[axis], volume[axis], start[axis], strides[axis]));
        let mut sum = 0.0;
        for (d, of_d) in d.into_iter().zip(of_d).filter(|(_, weight)| *weight != 0.0) {
            let mut plane = 0.0;
            for (h, of_h) in h.into_iter().zip(of_h).filter(|(_, weight)| *weight != 0.0) {
                let row = &self.0.voxels[d + h..];
                let line =
                    (row[w[0]] * of_w[0] + row[w[1]] * of_w[1]) + (row[w[2]] * of_w[2] + row[w[3]] * of_w[3]);
                plane += of_h * line;
            }
            sum += of_d * plane;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_of_the_second_degree_are_interpolated_exactly() {
        let polynomial =
            |[d, h, w]: [f64; 3]| 1.0 + d * d - 0.5 * d * h + 2.0 * h * h + 0.25 * w * w - 3.0 * w;
        let shape = [8, 9, 10];
        let mut voxels = Vec::new();
        for at in 0..720 {
            voxels.push(polynomial([at / 90, at / 10 % 9, at % 10].map(|at| at as f64)) as f32);
        }
        let source = SourceBlock::whole(&voxels, shape).unwrap();
        let map = VoxelMap::new([[0.4, 0.1, 0.05, 2.0], [-0.2, 0.5, 0.1, 2.5], [0.1, -0.1, 0.6, 3.0]]);
        let mut out = vec![0.0; 4 * 5 * 6];
        pull_cubic(&source, &map, [4, 5, 6], Outside::Clamp, &mut out).unwrap();
        for (at, value) in out.iter().enumerate() {
            let exact = polynomial(map.apply([at / 30, at / 6 % 5, at % 6].map(|at| at as f64)));
            assert!(
                (f64::from(*value) - exact).abs() < 1e-4 * exact.abs().max(1.0),
                "{value} against {exact}"
            );
        }
    }

    #[test]
    fn voxels_are_copied_where_samples_lie_on_them_and_steps_overshoot_by_a_known_share() {
        let voxels = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0f32];
        let source = SourceBlock::whole(&voxels, [1, 1, 6]).unwrap();
        let mut out = [0.0; 6];
        pull_cubic(&source, &VoxelMap::IDENTITY, [1, 1, 6], Outside::Clamp, &mut out).unwrap();
        assert_eq!(out, voxels);
        // Halfway the weights are −1/16, 9/16, 9/16, −1/16.
        let half = VoxelMap::translation([0.0, 0.0, 0.5]);
        pull_cubic(&source, &half, [1, 1, 5], Outside::Clamp, &mut out[..5]).unwrap();
        assert_eq!(out[..5], [0.0, -0.0625, 0.5, 1.0625, 1.0]);
    }
}
