//! Sampling single voxels: the indices and weights of one sample.

use std::ops::Range;

use crate::VoxelMap;
use crate::matrix::Matrix;
use crate::pull::{Outside, SourceBlock};

/// The coordinate clamped to `0..=voxels-1`.
#[inline(always)]
pub(super) fn clamp(coordinate: f64, voxels: usize) -> f64 {
    coordinate.max(0.0).min((voxels - 1) as f64)
}

/// The two voxels around a clamped coordinate, and how far it lies from the first to the second. On the centre of a
/// voxel both are that voxel, so the second is never out of bounds.
#[inline(always)]
pub(super) fn linear_step(clamped: f64) -> (usize, usize, f32) {
    // Via a signed integer, whose conversion is one instruction on most machines; a clamped coordinate is not negative.
    let lower = clamped as i64;
    let fraction = clamped - lower as f64;
    let lower = lower as usize;
    (lower, lower + usize::from(fraction > 0.0), fraction as f32)
}

/// The voxel nearest to a clamped coordinate; of two, the later.
#[inline(always)]
pub(super) fn nearest_step(clamped: f64) -> usize {
    (clamped + 0.5) as i64 as usize
}

/// The coordinates within the box that the voxels fill, which reaches half a voxel beyond the outermost centres.
#[inline(always)]
pub(super) fn filled(voxels: usize) -> (f64, f64) {
    (-0.5, voxels as f64 - 0.5)
}

/// Linear interpolation from `a` to `b`. Two equal values give exactly that value, so a constant image stays constant.
#[inline(always)]
pub(super) fn mix(a: f32, b: f32, fraction: f32) -> f32 {
    a + (b - a) * fraction
}

/// The part of `range` where a monotone coordinate is within `low..=high`, which is contiguous.
pub(super) fn part_within(
    range: Range<usize>,
    low: f64,
    high: f64,
    coordinate: impl Fn(usize) -> f64,
) -> Range<usize> {
    // The first index of `range` from which on `later` holds.
    let first = |range: &Range<usize>, later: &dyn Fn(f64) -> bool| {
        let (mut start, mut end) = (range.start, range.end);
        while start < end {
            let middle = start + (end - start) / 2;
            if later(coordinate(middle)) { end = middle } else { start = middle + 1 }
        }
        start
    };
    if range.is_empty() {
        return range;
    }
    if coordinate(range.start) <= coordinate(range.end - 1) {
        first(&range, &|at| at >= low)..first(&range, &|at| at > high)
    } else {
        first(&range, &|at| at <= high)..first(&range, &|at| at < low)
    }
}

/// The coordinates along one row of the output.
struct RowCoordinates {
    /// The contribution of the row's depth and height.
    base: [f64; 3],
    step: [f64; 3],
    shift: [f64; 3],
}

impl RowCoordinates {
    fn new(matrix: &Matrix, d: usize, h: usize) -> RowCoordinates {
        RowCoordinates {
            base: matrix.map(|row| row[0] * d as f64 + row[1] * h as f64),
            step: matrix.map(|row| row[2]),
            shift: matrix.map(|row| row[3]),
        }
    }

    /// The source coordinate of voxel `w`: the same sum in the same order as [`coordinate`](crate::matrix::coordinate),
    /// which guarantees that no voxel outside of the checked box is read.
    #[inline(always)]
    fn at(&self, axis: usize, w: usize) -> f64 {
        (self.base[axis] + self.step[axis] * w as f64) + self.shift[axis]
    }

    /// The part of the row whose coordinates are within these bounds along every axis.
    fn part_within(&self, mut range: Range<usize>, bounds: [(f64, f64); 3]) -> Range<usize> {
        for (axis, (low, high)) in bounds.into_iter().enumerate() {
            range = part_within(range, low, high, |w| self.at(axis, w));
        }
        range
    }
}

/// A way to sample a block. It is a trait, so that the method is inlined into both loops below.
pub(super) trait Sampler<T> {
    /// The sample at clamped coordinates.
    fn sample(&self, at: [f64; 3]) -> T;
}

/// Samples every output voxel individually.
pub(super) fn for_each_sample<T: Copy>(
    source: &SourceBlock<'_, T>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<T>,
    out: &mut [T],
    sampler: &impl Sampler<T>,
) {
    let volume = source.volume_shape;
    let between_centres = volume.map(|voxels| (0.0, (voxels - 1) as f64));
    super::fill_rows(out_shape, out_shape.map(|count| 0..count), outside, out, |d, h, row| {
        let coordinates = RowCoordinates::new(map.matrix(), d, h);
        let mut sampled = 0..row.len();
        if let Outside::Constant(value) = outside {
            sampled = coordinates.part_within(sampled, volume.map(filled));
            row[..sampled.start].fill(value);
            row[sampled.end..].fill(value);
        }
        // Most of a row needs no clamping; finding that part once is cheaper than clamping every sample.
        let interior = coordinates.part_within(sampled.clone(), between_centres);
        for w in (sampled.start..interior.start).chain(interior.end..sampled.end) {
            row[w] = sampler.sample(std::array::from_fn(|axis| clamp(coordinates.at(axis, w), volume[axis])));
        }
        for (voxel, w) in row[interior.clone()].iter_mut().zip(interior) {
            *voxel = sampler.sample(std::array::from_fn(|axis| coordinates.at(axis, w)));
        }
    });
}
