//! Marks of the caller, one byte for each voxel, as masks of bits.

use plimsoll_memory::Budget;
use plimsoll_volume::VoxelBox;

use crate::interactive::bits::BitMask;
use crate::interactive::error::InteractiveError;

/// A mask of a scribble or a lasso: a part of the image.
#[derive(Clone, Copy, Debug)]
pub struct PromptMask<'a> {
    /// Its first voxel in the image: depth, height, width.
    pub start: [usize; 3],
    /// Its extents.
    pub shape: [usize; 3],
    /// Its voxels `[depth][height][width]`: marked where they are not 0.
    pub voxels: &'a [u8],
}

/// The marked voxels of a prompt, and the first voxel of the box around them.
pub(crate) struct Marks {
    pub(crate) start: [usize; 3],
    pub(crate) mask: BitMask,
}

impl PromptMask<'_> {
    /// Copies the box around the marked voxels.
    ///
    /// # Errors
    /// Returns an error if the mask has another length than its shape, is not within the image, marks no voxel, or the budget has no room.
    pub(crate) fn marks(
        &self,
        prompt: &'static str,
        image: [usize; 3],
        budget: &Budget,
    ) -> Result<Marks, InteractiveError> {
        let PromptMask { start, shape, voxels } = *self;
        expect_length(prompt, voxels, shape)?;
        let bounds = if shape.contains(&0) { None } else { bounds(voxels, shape) };
        if !(VoxelBox { start, shape }).is_within(image) {
            let from = start.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
            return Err(InteractiveError::Outside { prompt, from, shape: image });
        }
        let bounds = bounds.ok_or(InteractiveError::NoMarks { prompt })?;
        let mut mask = BitMask::new(bounds.shape, "prompts", budget)?;
        for depth in 0..bounds.shape[0] {
            for height in 0..bounds.shape[1] {
                let row = (bounds.start[0] + depth) * shape[1] + bounds.start[1] + height;
                let marked = &voxels[row * shape[2] + bounds.start[2]..][..bounds.shape[2]];
                for (width, _) in marked.iter().enumerate().filter(|(_, voxel)| **voxel != 0) {
                    mask.set([depth, height, width], true);
                }
            }
        }
        Ok(Marks { start: std::array::from_fn(|axis| start[axis] + bounds.start[axis]), mask })
    }
}

/// Sets the voxels of an empty mask where bytes are not 0.
pub(crate) fn fill(mask: &mut BitMask, voxels: &[u8]) {
    let [_, height, width] = mask.shape();
    for (place, _) in voxels.iter().enumerate().filter(|(_, voxel)| **voxel != 0) {
        mask.set([place / width / height, place / width % height, place % width], true);
    }
}

/// The box around the voxels that are not 0; `None` if all are.
fn bounds(voxels: &[u8], shape: [usize; 3]) -> Option<VoxelBox> {
    let (mut first, mut end) = (shape, [0; 3]);
    for (number, row) in voxels.chunks_exact(shape[2]).enumerate() {
        let Some(from) = row.iter().position(|voxel| *voxel != 0) else { continue };
        let to = row.iter().rposition(|voxel| *voxel != 0).map_or(from, |last| last + 1);
        let (depth, height) = (number / shape[1], number % shape[1]);
        first = [first[0].min(depth), first[1].min(height), first[2].min(from)];
        end = [end[0].max(depth + 1), end[1].max(height + 1), end[2].max(to)];
    }
    (end[0] > 0).then(|| VoxelBox::between(first, end))
}

/// Checks that bytes are as many as the voxels of a shape.
pub(crate) fn expect_length(
    prompt: &'static str,
    voxels: &[u8],
    shape: [usize; 3],
) -> Result<(), InteractiveError> {
    let expected = shape.iter().fold(1usize, |count, extent| count.saturating_mul(*extent));
    match voxels.len() == expected {
        true => Ok(()),
        false => Err(InteractiveError::Length { prompt, found: voxels.len(), shape, expected }),
    }
}
