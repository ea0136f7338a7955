//! Images that are read at another spacing, in windows or in blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

use crate::patch::zoom::Zoom;
use crate::prepare::kept_image::FoundImage;
use crate::prepare::window::{Part, cleared};
use crate::prepare::{PrepareError, check_shapes};
use crate::{Case, CaseSource, Intensity, Scratch, VolumeCache};

/// Voxels of an edge of the blocks in which a whole image is read.
const BLOCK: usize = 48;

/// The images of a case at another spacing.
pub(super) enum ZoomedSource {
    /// They are resampled when they are read.
    Stored {
        zoom: Zoom,
        source: CaseSource,
        /// `true` if stored values are truncated to whole numbers.
        is_truncated: bool,
    },
    /// They were resampled before.
    Kept(FoundImage),
}

/// The place of a window.
#[derive(Clone, Copy)]
pub(super) struct WindowPlace {
    /// The shape of the grid of windows.
    pub(super) grid: [usize; 3],
    /// The first voxel of that grid in the zoomed image.
    pub(super) first: [usize; 3],
    /// The first voxel of the window in the grid, which may be out of bounds.
    pub(super) from: [i64; 3],
    /// The shape of the window.
    pub(super) shape: [usize; 3],
}

impl ZoomedSource {
    /// Opens the images of a case.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or has another shape, or `stop` is set.
    pub(super) fn open(
        case: &Case,
        zoom: Zoom,
        stored: [usize; 3],
        is_truncated: bool,
        cache: &VolumeCache,
        stop: &AtomicBool,
    ) -> Result<ZoomedSource, PrepareError> {
        let unchanged = vec![Intensity::UNCHANGED; case.images.len()];
        let source = CaseSource::open_unless(case, &unchanged, false, cache, stop)?;
        check_shapes(&source, stored, None)?;
        Ok(ZoomedSource::Stored { zoom, source, is_truncated })
    }

    /// Bytes of a block.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(super) fn block_bytes() -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(BLOCK.pow(3))
    }

    /// Reserves a block.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(super) fn block(budget: &Budget) -> Result<Mapped<f32>, MapError> {
        Mapped::zeroed(budget, "a block of an image", BLOCK.pow(3))
    }

    /// Reads a box of a channel in blocks of equal edges, and passes each block with its place to `see`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, the scratch has no room for eight voxels, or `stop` is set.
    pub(super) fn each_block(
        &mut self,
        channel: usize,
        within: VoxelBox,
        block: &mut [f32],
        scratch: &mut Scratch,
        stop: &AtomicBool,
        see: impl FnMut(VoxelBox, &[f32]),
    ) -> Result<(), PrepareError> {
        self.each_part(channel, blocks(within), block, scratch, stop, see)
    }

    /// Reads a box of a channel in blocks of whole rows, as voxels lie in a file, and passes each block with its place to `see`.
    ///
    /// # Errors
    /// Returns the errors of [`each_block`](Self::each_block).
    pub(super) fn each_run(
        &mut self,
        channel: usize,
        within: VoxelBox,
        block: &mut [f32],
        scratch: &mut Scratch,
        stop: &AtomicBool,
        see: impl FnMut(VoxelBox, &[f32]),
    ) -> Result<(), PrepareError> {
        self.each_part(channel, runs(within), block, scratch, stop, see)
    }

    fn each_part(
        &mut self,
        channel: usize,
        parts: impl Iterator<Item = VoxelBox>,
        block: &mut [f32],
        scratch: &mut Scratch,
        stop: &AtomicBool,
        mut see: impl FnMut(VoxelBox, &[f32]),
    ) -> Result<(), PrepareError> {
        for part in parts {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Stopped);
            }
            let voxels = &mut block[..part.shape.iter().product()];
            self.pull(channel, Part { of_grid: part, in_window: [0; 3] }, voxels, part.shape, scratch)?;
            see(part, voxels);
        }
        Ok(())
    }

    /// Fills `out` with a window of some channels, whose voxels within the image go through `transform`. Voxels beyond it are zero.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, `out` has another length, or the scratch has no room for eight voxels.
    pub(super) fn window(
        &mut self,
        place: WindowPlace,
        channels: usize,
        out: &mut [f32],
        scratch: &mut Scratch,
        transform: impl Fn(usize, &mut [f32]),
    ) -> Result<(), PrepareError> {
        let WindowPlace { grid, first, from, shape } = place;
        let voxels = cleared(out, channels, shape)?;
        let Some(mut part) = Part::within_window(grid, from, shape) else { return Ok(()) };
        part.of_grid.start.iter_mut().zip(first).for_each(|(start, first)| *start += first);
        for (channel, out) in out.chunks_exact_mut(voxels.max(1)).enumerate() {
            self.pull(channel, part, &mut *out, shape, scratch)?;
            part.rows(shape).for_each(|row| transform(channel, &mut out[row]));
        }
        Ok(())
    }

    /// Fills a part of a window with zoomed voxels of a channel.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or the scratch has no room for eight voxels.
    pub(super) fn pull(
        &mut self,
        channel: usize,
        part: Part,
        out: &mut [f32],
        window: [usize; 3],
        scratch: &mut Scratch,
    ) -> Result<(), PrepareError> {
        let (zoom, source, is_truncated) = match self {
            ZoomedSource::Kept(image) => return image.pull(channel, part, out, window, scratch.memory()),
            ZoomedSource::Stored { zoom, source, is_truncated } => (zoom, source, *is_truncated),
        };
        let (image, found) = source.channel(channel);
        zoom.pull(part, out, window, scratch.memory(), &mut |region, values| {
            image.read_f32(found.index, region, values)?;
            if is_truncated {
                values.iter_mut().for_each(|value| *value = value.trunc());
            }
            Ok(())
        })
    }
}

/// The blocks of a box, one after the other.
fn blocks(within: VoxelBox) -> impl Iterator<Item = VoxelBox> {
    divided(within, [BLOCK; 3])
}

/// The blocks of a box that have as many whole rows of a plane as a block has room for.
fn runs(within: VoxelBox) -> impl Iterator<Item = VoxelBox> {
    let columns = within.shape[2].clamp(1, BLOCK.pow(3));
    divided(within, [1, BLOCK.pow(3) / columns, columns])
}

/// The parts of a box that have at most these extents.
fn divided(within: VoxelBox, most: [usize; 3]) -> impl Iterator<Item = VoxelBox> {
    let counts = [0, 1, 2].map(|axis| within.shape[axis].div_ceil(most[axis]));
    (0..counts.iter().product()).map(move |number: usize| {
        let at = [number / (counts[1] * counts[2]), number / counts[2] % counts[1], number % counts[2]];
        let start = [0, 1, 2].map(|axis| within.start[axis] + at[axis] * most[axis]);
        let end = [0, 1, 2]
            .map(|axis| within.start[axis] + (at[axis] * most[axis] + most[axis]).min(within.shape[axis]));
        VoxelBox::between(start, end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_runs_cover_a_box_once() {
        let within = VoxelBox { start: [3, 0, 10], shape: [50, 48, 97] };
        expect_once(within, blocks(within));
        expect_once(within, runs(within));
        assert!(runs(within).all(|run| run.shape == [1, 48, 97]));
        let wide = VoxelBox { start: [0; 3], shape: [1, 2, BLOCK.pow(3) + 1] };
        assert_eq!(runs(wide).map(|run| run.shape[2]).collect::<Vec<_>>(), [BLOCK.pow(3), 1].repeat(2));
    }

    fn expect_once(within: VoxelBox, blocks: impl Iterator<Item = VoxelBox>) {
        let mut seen = vec![0; within.voxel_count().unwrap()];
        for block in blocks {
            assert!(block.voxel_count().unwrap() <= BLOCK.pow(3));
            for index in 0..block.voxel_count().unwrap() {
                let [_, height, width] = block.shape;
                let at = [index / (height * width), index / width % height, index % width];
                let [d, h, w] = [0, 1, 2].map(|axis| block.start[axis] - within.start[axis] + at[axis]);
                seen[(d * 48 + h) * 97 + w] += 1;
            }
        }
        assert!(seen.iter().all(|times| *times == 1));
    }
}
