//! Resampling: interpolating an output grid from the part of a source that it touches.
//!
//! Every output voxel is sampled at the source index that the map gives. There are two paths. If the map only permutes,
//! scales and shifts axes, the indices and weights along each axis are computed once ([`tables`]); otherwise for each
//! voxel ([`sample`]). Both compute the same coordinates with the same arithmetic in the same order, so the result
//! depends neither on the path nor on how much of the source is given.

mod cubic;
mod labels;
mod linear;
mod nearest;
mod points;
mod sample;
mod tables;

use std::ops::Range;

pub use cubic::pull_cubic;
pub use labels::pull_labels;
pub use linear::pull_linear;
pub use nearest::pull_nearest;
pub use points::{box_of_points, sample_cubic, sample_labels, sample_linear};

use crate::{VoxelBox, VoxelMap};

/// The values of samples outside of the source.
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
    /// A buffer's length does not match its shape.
    #[error("a buffer of {found} elements does not have the shape {shape:?}")]
    Length {
        /// The shape that was given.
        shape: [usize; 3],
        /// The elements of the buffer.
        found: usize,
    },
    /// The block is not a part of its volume.
    #[error("the block {region:?} is outside a volume of shape {volume_shape:?}")]
    BlockOutside {
        /// The block.
        region: VoxelBox,
        /// The volume's shape.
        volume_shape: [usize; 3],
    },
    /// The block lacks voxels that the output reads.
    #[error("the output needs {needed:?} of the source, but the block is {given:?}")]
    BlockTooSmall {
        /// The box that is read.
        needed: VoxelBox,
        /// The box of the block.
        given: VoxelBox,
    },
    /// The map yields coordinates that are not finite.
    #[error("the voxel map gives coordinates that are not finite")]
    NotFinite,
}

impl PullError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PullError::BlockTooSmall { .. } => {
                Some("read the block given by VoxelMap::source_box (clamped_source_box to clamp)".into())
            }
            _ => None,
        }
    }
}

impl<'a, T> SourceBlock<'a, T> {
    /// The voxels (depth, height, width) of `region` of a volume of `volume_shape`.
    ///
    /// # Errors
    /// Returns an error if the region is not within the volume, or the length of `voxels` does not match the region.
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

    /// A whole volume in memory.
    ///
    /// # Errors
    /// Returns an error if the length of `voxels` does not match the volume.
    pub fn whole(voxels: &'a [T], volume_shape: [usize; 3]) -> Result<SourceBlock<'a, T>, PullError> {
        SourceBlock::new(voxels, VoxelBox::whole(volume_shape), volume_shape)
    }

    /// Elements from one voxel to the next along each axis.
    fn strides(&self) -> [usize; 3] {
        let [_, height, width] = self.region.shape;
        [height * width, width, 1]
    }

    /// The cell of voxels around clamped coordinates: along each axis the offsets of its lower and its upper voxels, and the
    /// fraction of the way from one to the other.
    #[inline(always)]
    fn cell(&self, at: [f64; 3]) -> ([[usize; 2]; 3], [f32; 3]) {
        let start = self.region.start;
        let [plane, line, _] = self.strides();
        let [(d0, d1, fd), (h0, h1, fh), (w0, w1, fw)] = at.map(sample::linear_step);
        let depth = [(d0 - start[0]) * plane, (d1 - start[0]) * plane];
        let height = [(h0 - start[1]) * line, (h1 - start[1]) * line];
        let width = [w0 - start[2], w1 - start[2]];
        ([depth, height, width], [fd, fh, fw])
    }
}

/// Checks all arguments, so that the sampling loops stay in bounds; they read `margin` voxels beyond the neighbours of linear
/// interpolation. Returns whether anything is read at all: false if
/// the output is empty, or lies outside of the source and becomes the constant.
fn reads_source<T>(
    source: &SourceBlock<'_, T>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    margin: usize,
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
        Outside::Clamp => map.clamped_source_box(out_shape, source.volume_shape, margin),
        Outside::Constant(_) => map.source_box(out_shape, source.volume_shape, margin),
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
    // An empty output has no rows, whatever their width; `max(1)` avoids a chunk size of 0.
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
        fn tables_and_single_samples_agree_bitwise(
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
            prop_assert!(tables::Tables::new(&source, &map, out_shape, &outside, tables::Interpolation::Linear).is_some());
            pull_linear(&source, &map, out_shape, outside, &mut by_tables).unwrap();
            linear::pull_each(&source, &map, out_shape, outside, &mut by_samples);
            prop_assert_eq!(&by_tables, &by_samples);
            pull_nearest(&source, &map, out_shape, outside, &mut by_tables).unwrap();
            nearest::pull_each(&source, &map, out_shape, outside, &mut by_samples);
            prop_assert_eq!(by_tables, by_samples);
        }
    }
}
