//! The nearest voxel, for labels.

use crate::VoxelMap;
use crate::pull::sample::{Sampler, for_each_sample, nearest_step};
use crate::pull::tables::{Interpolation, Tables};
use crate::pull::{Outside, PullError, SourceBlock, fill_rows, reads_source};

/// Copies to `out`, of `out_shape`, the source voxels nearest to the source indices that `map` gives. Halfway between
/// two voxels it is the one with the larger index.
///
/// # Errors
/// Returns an error if `out` does not have the shape, the block lacks voxels that are needed (take it from
/// [`VoxelMap::source_box`]), or coordinates are not finite.
pub fn pull_nearest<T: Copy>(
    source: &SourceBlock<'_, T>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<T>,
    out: &mut [T],
) -> Result<(), PullError> {
    if !reads_source(source, map, out_shape, 0, &outside, out.len())? {
        fill_rows(out_shape, [0..0, 0..0, 0..0], outside, out, |_, _, _| {});
        return Ok(());
    }
    match Tables::new(source, map, out_shape, &outside, Interpolation::Nearest) {
        Some(tables) => fill_rows(out_shape, tables.inside.clone(), outside, out, |d, h, row| {
            tables.gather_row(source.voxels, d, h, row);
        }),
        None => pull_each(source, map, out_shape, outside, out),
    }
    Ok(())
}

/// Any map, voxel by voxel.
pub(super) fn pull_each<T: Copy>(
    source: &SourceBlock<'_, T>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<T>,
    out: &mut [T],
) {
    for_each_sample(source, map, out_shape, outside, out, &Nearest(source));
}

struct Nearest<'a, T>(&'a SourceBlock<'a, T>);

impl<T: Copy> Sampler<T> for Nearest<'_, T> {
    #[inline(always)]
    fn sample(&self, at: [f64; 3]) -> T {
        let start = self.0.region.start;
        let [plane, line, _] = self.0.strides();
        let [d, h, w] = std::array::from_fn(|axis| nearest_step(at[axis]) - start[axis]);
        self.0.voxels[d * plane + h * line + w]
    }
}
