//! Interpolating an output grid out of the part of a source that it touches.
//!
//! Every output voxel is sampled where the map puts it. Two ways lead there. Where the map only exchanges, stretches
//! and shifts axes, what is to be read along each axis is worked out once ([`tables`]); otherwise for each voxel
//! ([`sample`]). Both take the same coordinates and do the same arithmetic in the same order, so the result does not
//! depend on the way, nor on how much of the source was given.

mod linear;
mod nearest;
mod sample;
mod tables;

use std::ops::Range;

pub use linear::pull_linear;
pub use nearest::pull_nearest;

use crate::{VoxelBox, VoxelMap};

/// What samples outside of the source are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outside<T> {
    /// The nearest voxel of the source.
    Clamp,
    /// This value, for samples more than half a voxel beyond the centres of the outermost voxels along any axis,
    /// which is outside of the box that the voxels fill. Nearer samples are clamped.
    Constant(T),
}

/// A part of a source image that is in memory.
#[derive(Clone, Copy, Debug)]
pub struct SourceBlock<'a, T> {
    voxels: &'a [T],
    region: VoxelBox,
    volume_shape: [usize; 3],
}

/// Why an output could not be interpolated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PullError {
    /// A buffer has not as many elements as its shape says.
    #[error("a buffer of {found} elements does not have the shape {shape:?}")]
    Length {
        /// The shape that was given.
        shape: [usize; 3],
        /// The elements that there are.
        found: usize,
    },
    /// The block is not a part of its volume.
    #[error("the block {region:?} is not within a volume of shape {volume_shape:?}")]
    BlockOutside {
        /// The block.
        region: VoxelBox,
        /// The volume's shape.
        volume_shape: [usize; 3],
    },
    /// The block has not all that the output reads.
    #[error("the output reads {needed:?} of the source, but the block is {given:?}")]
    BlockTooSmall {
        /// What is read.
        needed: VoxelBox,
        /// What there is.
        given: VoxelBox,
    },
    /// The map sends voxels to places that are not numbers.
    #[error("the voxel map leads to coordinates that are not finite")]
    NotFinite,
}

impl PullError {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        match self {
            PullError::BlockTooSmall { .. } => {
                Some("take the block from VoxelMap::source_box (clamped_source_box to clamp)".into())
            }
            _ => None,
        }
    }
}

impl<'a, T> SourceBlock<'a, T> {
    /// The voxels (depth, height, width) of `region` of a volume of `volume_shape`.
    ///
    /// # Errors
    /// If the region is not within the volume, or `voxels` does not have just its voxels.
    pub fn new(
        voxels: &'a [T],
        region: VoxelBox,
        volume_shape: [usize; 3],
    ) -> Result<SourceBlock<'a, T>, PullError> {
        if !region.is_within(volume_shape) {
            return Err(PullError::BlockOutside { region, volume_shape });
        }
        if region.voxel_count() != Some(voxels.len()) {
            return Err(PullError::Length { shape: region.shape, found: voxels.len() });
        }
        Ok(SourceBlock { voxels, region, volume_shape })
    }

    /// A volume that is in memory as a whole.
    ///
    /// # Errors
    /// If `voxels` does not have the volume's voxels.
    pub fn whole(voxels: &'a [T], volume_shape: [usize; 3]) -> Result<SourceBlock<'a, T>, PullError> {
        SourceBlock::new(voxels, VoxelBox::whole(volume_shape), volume_shape)
    }

    /// Elements from one voxel to the next along each axis.
    fn strides(&self) -> [usize; 3] {
        let [_, height, width] = self.region.shape;
        [height * width, width, 1]
    }
}

/// Checks everything that could go wrong, so that what follows reads only what is there. Says whether anything is to
/// be read at all: not if the output is empty, nor if all of it is outside and becomes a constant.
fn reads_source<T>(
    source: &SourceBlock<'_, T>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: &Outside<T>,
    out_length: usize,
) -> Result<bool, PullError> {
    if VoxelBox::whole(out_shape).voxel_count() != Some(out_length) {
        return Err(PullError::Length { shape: out_shape, found: out_length });
    }
    let finite = map.extent(out_shape).iter().all(|(low, high)| low.is_finite() && high.is_finite());
    if !finite {
        return Err(PullError::NotFinite);
    }
    let needed = match outside {
        Outside::Clamp => map.clamped_source_box(out_shape, source.volume_shape, 0),
        Outside::Constant(_) => map.source_box(out_shape, source.volume_shape, 0),
    };
    match needed {
        None => Ok(false),
        Some(needed) if source.region.contains(&needed) => Ok(true),
        Some(needed) => Err(PullError::BlockTooSmall { needed, given: source.region }),
    }
}

/// Fills the output row by row: outside of the box `inside` with the constant, inside by `sample(depth, height,
/// row)`, where the row has the voxels `inside[2]`.
fn fill_rows<T: Copy>(
    out_shape: [usize; 3],
    inside: [Range<usize>; 3],
    outside: Outside<T>,
    out: &mut [T],
    mut sample: impl FnMut(usize, usize, &mut [T]),
) {
    let [_, height, width] = out_shape;
    let [depths, heights, widths] = inside;
    // Of an empty output there are no rows, whatever their width.
    for (index, row) in out.chunks_exact_mut(width.max(1)).enumerate() {
        let (d, h) = (index / height, index % height);
        let sampled = if depths.contains(&d) && heights.contains(&h) { widths.clone() } else { 0..0 };
        if let Outside::Constant(value) = outside {
            row[..sampled.start].fill(value);
            row[sampled.end..].fill(value);
        }
        if !sampled.is_empty() {
            sample(d, h, &mut row[sampled]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tables_and_single_samples_agree_bit_by_bit(
            factors in prop::array::uniform3(-2.5..2.5f64),
            offset in prop::array::uniform3(-6.0..12.0f64),
            order in Just([0usize, 1, 2]).prop_shuffle(),
            shape in prop::array::uniform3(1usize..9),
            out_shape in prop::array::uniform3(1usize..9),
            constant: bool,
        ) {
            let voxels: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i as f32 * 1.7).sin()).collect();
            let source = SourceBlock::whole(&voxels, shape).unwrap();
            let mut rows = [[0.0; 4]; 3];
            for axis in 0..3 {
                rows[axis][order[axis]] = factors[axis];
                rows[axis][3] = offset[axis];
            }
            let map = VoxelMap::new(rows);
            let outside = if constant { Outside::Constant(9.0) } else { Outside::Clamp };
            let mut by_tables = vec![0.0; out_shape.iter().product()];
            let mut by_samples = vec![1.0; by_tables.len()];
            prop_assert!(tables::Tables::new(&source, &map, out_shape, &outside, tables::Kind::Linear).is_some());
            pull_linear(&source, &map, out_shape, outside, &mut by_tables).unwrap();
            linear::pull_each(&source, &map, out_shape, outside, &mut by_samples);
            prop_assert_eq!(&by_tables, &by_samples);
            pull_nearest(&source, &map, out_shape, outside, &mut by_tables).unwrap();
            nearest::pull_each(&source, &map, out_shape, outside, &mut by_samples);
            prop_assert_eq!(by_tables, by_samples);
        }
    }
}
