//! Trilinear interpolation of intensities.
//!
//! The eight voxels around a sample are interpolated along depth first, then height, then width, each in f32 with
//! weights computed in f64.

use crate::VoxelMap;
use crate::pull::sample::{Sampler, for_each_sample, mix};
use crate::pull::tables::{AxisTable, Interpolation, Tables};
use crate::pull::{Outside, PullError, SourceBlock, fill_rows, reads_source};

/// Interpolates `out`, of `out_shape`, linearly at the source indices that `map` gives. A sample on the centre of a
/// voxel reads only that voxel along that axis; where all samples are, as with a crop or a reorientation, voxels are
/// copied exactly.
///
/// # Errors
/// Returns an error if `out` does not have the shape, the block lacks voxels that are needed (take it from
/// [`VoxelMap::source_box`]), or coordinates are not finite.
pub fn pull_linear(
    source: &SourceBlock<'_, f32>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<f32>,
    out: &mut [f32],
) -> Result<(), PullError> {
    if !reads_source(source, map, out_shape, 0, &outside, out.len())? {
        fill_rows(out_shape, [0..0, 0..0, 0..0], outside, out, |_, _, _| {});
        return Ok(());
    }
    match Tables::new(source, map, out_shape, &outside, Interpolation::Linear) {
        Some(tables) => pull_aligned(source.voxels, &tables, out_shape, outside, out),
        None => pull_each(source, map, out_shape, outside, out),
    }
    Ok(())
}

/// Any map, voxel by voxel.
pub(super) fn pull_each(
    source: &SourceBlock<'_, f32>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<f32>,
    out: &mut [f32],
) {
    for_each_sample(source, map, out_shape, outside, out, &Linear(source));
}

pub(super) struct Linear<'a>(pub(super) &'a SourceBlock<'a, f32>);

impl Sampler<f32> for Linear<'_> {
    #[inline(always)]
    fn sample(&self, at: [f64; 3]) -> f32 {
        let ([depth, height, width], fractions) = self.0.cell(at);
        mix_eight(self.0.voxels, [depth, height, width], fractions)
    }
}

/// Interpolates the eight voxels whose offsets are the sums of one offset from each pair.
#[inline(always)]
fn mix_eight(voxels: &[f32], offsets: [[usize; 2]; 3], fractions: [f32; 3]) -> f32 {
    let [depth, height, width] = offsets;
    let along_depth = |h: usize, w: usize| {
        let at = height[h] + width[w];
        mix(voxels[depth[0] + at], voxels[depth[1] + at], fractions[0])
    };
    let along_height = |w: usize| mix(along_depth(0, w), along_depth(1, w), fractions[1]);
    mix(along_height(0), along_height(1), fractions[2])
}

fn pull_aligned(
    voxels: &[f32],
    tables: &Tables,
    out_shape: [usize; 3],
    outside: Outside<f32>,
    out: &mut [f32],
) {
    let inside = &tables.inside;
    if tables.are_whole() {
        return fill_rows(out_shape, inside.clone(), outside, out, |d, h, row| {
            tables.gather_row(voxels, d, h, row);
        });
    }
    let width = &tables.axes[tables.driven_by_width()];
    if tables.driven_by_width() != 2 {
        return fill_rows(out_shape, inside.clone(), outside, out, |d, h, row| {
            pull_across(voxels, tables, width, d, h, row);
        });
    }
    let sampled = inside[2].clone();
    let (lower, upper) = (&width.lower[sampled.clone()], &width.upper[sampled.clone()]);
    let fraction = &width.fraction[sampled];
    // The map may reverse the axis, so the smallest index can be at either end.
    let first = lower.iter().min().copied().unwrap_or(0);
    let end = upper.iter().max().map_or(first, |last| last + 1);
    let mut mixed = vec![0.0; end - first];
    fill_rows(out_shape, inside.clone(), outside, out, |d, h, row| {
        mix_rows(voxels, tables, d, h, first, &mut mixed);
        for (((voxel, lower), upper), fraction) in row.iter_mut().zip(lower).zip(upper).zip(fraction) {
            *voxel = mix(mixed[lower - first], mixed[upper - first], *fraction);
        }
    });
}

/// The source row of output row (d, h): the four rows around it, interpolated along depth and height, from source width
/// `first` on.
fn mix_rows(voxels: &[f32], tables: &Tables, d: usize, h: usize, first: usize, mixed: &mut [f32]) {
    let (d0, d1, fraction_d) = tables.at_row(0, d, h);
    let (h0, h1, fraction_h) = tables.at_row(1, d, h);
    let row = |depth: usize, height: usize| {
        let from = depth + height + first;
        &voxels[from..from + mixed.len()]
    };
    let (near, far) = ([row(d0, h0), row(d1, h0)], [row(d0, h1), row(d1, h1)]);
    for (w, voxel) in mixed.iter_mut().enumerate() {
        let at_near = mix(near[0][w], near[1][w], fraction_d);
        let at_far = mix(far[0][w], far[1][w], fraction_d);
        *voxel = mix(at_near, at_far, fraction_h);
    }
}

/// An output row that runs along the source's depth or height.
fn pull_across(voxels: &[f32], tables: &Tables, width: &AxisTable, d: usize, h: usize, row: &mut [f32]) {
    let along = tables.driven_by_width();
    let mut offsets = [[0; 2]; 3];
    let mut fractions = [0.0; 3];
    for axis in tables.driven_by_rows() {
        let (lower, upper, fraction) = tables.at_row(axis, d, h);
        offsets[axis] = [lower, upper];
        fractions[axis] = fraction;
    }
    for (voxel, w) in row.iter_mut().zip(tables.inside[2].clone()) {
        offsets[along] = [width.lower[w], width.upper[w]];
        fractions[along] = width.fraction[w];
        *voxel = mix_eight(voxels, offsets, fractions);
    }
}
