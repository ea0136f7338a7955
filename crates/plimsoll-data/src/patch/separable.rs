//! Changes of an image that are computed along one axis after the other: blurring, and a lower resolution.
//!
//! Along an axis, each voxel becomes a weighted sum of a few voxels of its line ([`Taps`]). Lines are copied to scratch, one
//! plane of them at a time, and written back from there.

/// For each voxel along an axis, which voxels of its line are summed, each with its weight.
pub(super) struct Taps {
    /// The number of weights of each voxel.
    of_each: usize,
    entries: Vec<(usize, f32)>,
}

impl Taps {
    /// A Gaussian of standard deviation `sigma` in voxels, cut off and normalised to a sum of 1 as batchgeneratorsv2's
    /// `blur_dimension` does it: as many voxels as the odd number nearest to 6 σ + ½. Beyond the ends of a line it is continued
    /// by reflection about its outermost voxels. None for a line of one voxel, which stays as it is.
    pub(super) fn gaussian(voxels: usize, sigma: f64) -> Option<Taps> {
        if voxels < 2 {
            return None;
        }
        let reach = ((6.0 * sigma + 0.5) / 2.0).floor() as i64;
        let weight = |offset: i64| (-0.5 * (offset as f64 / sigma).powi(2)).exp();
        let sum: f64 = (-reach..=reach).map(weight).sum();
        let entries = (0..voxels as i64).flat_map(|at| {
            (-reach..=reach)
                .map(move |offset| (reflected(at + offset, voxels), (weight(offset) / sum) as f32))
        });
        Some(Taps { of_each: (2 * reach + 1) as usize, entries: entries.collect() })
    }

    /// A lower resolution, `factor` of that along the line, as batchgeneratorsv2's `SimulateLowResolutionTransform`: the nearest
    /// voxels (PyTorch's `nearest-exact`) of a line of ⌊n · factor⌉ ones are kept, and between these is interpolated linearly
    /// (without aligned corners). None where all are kept.
    pub(super) fn low_resolution(voxels: usize, factor: f64) -> Option<Taps> {
        let kept = ((voxels as f64 * factor).round_ties_even() as usize).clamp(1, voxels);
        if kept == voxels {
            return None;
        }
        let nearest = |number: usize| (2 * number + 1) * voxels / (2 * kept);
        let step = kept as f64 / voxels as f64;
        let entries = (0..voxels).flat_map(|at| {
            let place = ((at as f64 + 0.5) * step - 0.5).max(0.0);
            let lower = (place as usize).min(kept - 1);
            let upper = (lower + 1).min(kept - 1);
            let fraction = (place - lower as f64) as f32;
            [(nearest(lower), 1.0 - fraction), (nearest(upper), fraction)]
        });
        Some(Taps { of_each: 2, entries: entries.collect() })
    }

    fn at(&self, voxel: usize) -> &[(usize, f32)] {
        &self.entries[voxel * self.of_each..][..self.of_each]
    }
}

/// Voxel `at` of a line that is reflected about its outermost voxels.
fn reflected(at: i64, voxels: usize) -> usize {
    let period = 2 * (voxels as i64 - 1);
    let at = at.rem_euclid(period);
    at.min(period - at) as usize
}

/// The values of scratch that [`apply`] needs for patches of a shape.
pub(super) fn slab_length([depth, height, width]: [usize; 3]) -> usize {
    depth.max(height).saturating_mul(width)
}

/// Replaces each voxel of `values`, `[depth][height][width]`, by the weighted sum of voxels of its line along an axis. `slab` has
/// [`slab_length`] values at least.
pub(super) fn apply(taps: &Taps, axis: usize, values: &mut [f32], shape: [usize; 3], slab: &mut [f32]) {
    let [depth, height, width] = shape;
    match axis {
        // Lines that run along the depth, for one height at a time.
        0 => {
            let slab = &mut slab[..depth * width];
            for h in 0..height {
                let row = |d: usize| (d * height + h) * width;
                for (d, saved) in slab.chunks_exact_mut(width).enumerate() {
                    saved.copy_from_slice(&values[row(d)..][..width]);
                }
                for d in 0..depth {
                    sum_rows(taps.at(d), slab, &mut values[row(d)..][..width]);
                }
            }
        }
        1 => {
            let slab = &mut slab[..height * width];
            for plane in values.chunks_exact_mut(height * width) {
                slab.copy_from_slice(plane);
                for (h, row) in plane.chunks_exact_mut(width).enumerate() {
                    sum_rows(taps.at(h), slab, row);
                }
            }
        }
        _ => {
            let saved = &mut slab[..width];
            for row in values.chunks_exact_mut(width) {
                saved.copy_from_slice(row);
                for (w, value) in row.iter_mut().enumerate() {
                    *value = taps.at(w).iter().map(|(at, weight)| weight * saved[*at]).sum();
                }
            }
        }
    }
}

/// The weighted sum of rows of a slab, each as long as the result.
fn sum_rows(taps: &[(usize, f32)], slab: &[f32], row: &mut [f32]) {
    let width = row.len();
    row.fill(0.0);
    for (at, weight) in taps {
        for (value, from) in row.iter_mut().zip(&slab[at * width..][..width]) {
            *value += weight * from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gaussian_has_as_many_taps_as_batchgenerators_gives_it() {
        // `_compute_kernel_size(sigma, truncate=6)` of batchgeneratorsv2 0.3.6.
        for (sigma, expected) in [(0.5, 3), (0.58, 3), (0.6, 5), (0.7, 5), (0.9, 5), (0.95, 7), (1.0, 7)] {
            assert_eq!(Taps::gaussian(20, sigma).unwrap().of_each, expected, "{sigma}");
        }
    }

    #[test]
    fn lines_are_reflected_about_their_outermost_voxels() {
        let along: Vec<usize> = (-4..8).map(|at| reflected(at, 3)).collect();
        assert_eq!(along, [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
    }

    #[test]
    fn every_axis_is_treated_alike_and_constants_stay() {
        let shape = [3, 4, 5];
        let mut slab = vec![0.0; slab_length(shape)];
        for axis in 0..3 {
            let blur = Taps::gaussian(shape[axis], 0.8).unwrap();
            let coarse = Taps::low_resolution(shape[axis], 0.6).unwrap();
            for taps in [blur, coarse] {
                // A value that depends on the place along the axis alone.
                let place = |at: usize| [at / 20, at / 5 % 4, at % 5][axis];
                let line: Vec<f32> = (0..shape[axis]).map(|at| (at * at) as f32).collect();
                let mut values: Vec<f32> = (0..60).map(|at| line[place(at)]).collect();
                apply(&taps, axis, &mut values, shape, &mut slab);
                for (at, value) in values.iter().enumerate() {
                    let expected: f32 =
                        taps.at(place(at)).iter().map(|(from, weight)| weight * line[*from]).sum();
                    assert!((value - expected).abs() < 1e-5);
                }
                let mut constant = vec![2.5; 60];
                apply(&taps, axis, &mut constant, shape, &mut slab);
                assert!(constant.iter().all(|value| (value - 2.5).abs() < 1e-6));
            }
        }
    }
}
