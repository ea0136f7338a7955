//! A coarse segmentation, scaled back to the voxels of the image.

use std::sync::atomic::AtomicBool;

use plimsoll_memory::Budget;
use plimsoll_volume::VoxelBox;

use crate::interactive::bits::BitMask;
use crate::interactive::error::InteractiveError;
use crate::interactive::network::PatchNetwork;
use crate::interactive::session::check_going;
use crate::interactive::sight::Zoomed;
use crate::interactive::zoom::{Tap, trilinear};

/// The holder of masks of a prediction.
pub(crate) const REFINEMENT: &str = "refinement";

/// A segmentation of the part of the image that a patch shows.
pub(crate) struct Coarse {
    /// The part of the image.
    pub(crate) seen: VoxelBox,
    /// The object in it.
    pub(crate) mask: BitMask,
}

impl Coarse {
    /// Scales the object that a network predicted in a patch: a voxel belongs to it if the interpolated share of the object is one half at least.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for the mask, or `stop` is set.
    pub(crate) fn new(
        network: &PatchNetwork,
        at: Zoomed,
        image: [usize; 3],
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<Option<Coarse>, InteractiveError> {
        let Some(seen) = clipped(at.start, at.scaled, image) else { return Ok(None) };
        let mut mask = BitMask::new(seen.shape, REFINEMENT, budget)?;
        let patch = network.patch();
        let taps: [Vec<Tap>; 3] = std::array::from_fn(|axis| Tap::all(patch[axis], at.scaled[axis]));
        // Seen voxels are those of the patch from this one on.
        let first: [usize; 3] = std::array::from_fn(|axis| usize::try_from(-at.start[axis]).unwrap_or(0));
        let value = |voxel: [usize; 3]| f32::from(u8::from(network.is_object(voxel)));
        for depth in 0..seen.shape[0] {
            check_going(stop)?;
            for height in 0..seen.shape[1] {
                let (one, other) = (taps[0][first[0] + depth], taps[1][first[1] + height]);
                for width in 0..seen.shape[2] {
                    let last = taps[2][first[2] + width];
                    let mut corners =
                        corners([one, other, last]).map(|voxel| network.is_object(voxel)).into_iter();
                    let is_object = match corners.next() {
                        Some(all) if corners.all(|corner| corner == all) => all,
                        _ => trilinear([one, other, last], value) >= 0.5,
                    };
                    if is_object {
                        mask.set([depth, height, width], true);
                    }
                }
            }
        }
        Ok(Some(Coarse { seen, mask }))
    }
}

fn corners([depth, height, width]: [Tap; 3]) -> [[usize; 3]; 8] {
    std::array::from_fn(|corner| {
        [depth.voxels[corner >> 2 & 1], height.voxels[corner >> 1 & 1], width.voxels[corner & 1]]
    })
}

/// The part of a box that is in the image.
pub(crate) fn clipped(start: [i64; 3], extents: [usize; 3], image: [usize; 3]) -> Option<VoxelBox> {
    let end = |axis: usize| usize::try_from(start[axis] + extents[axis] as i64).unwrap_or(0);
    let within = VoxelBox::between(
        start.map(|first| usize::try_from(first).unwrap_or(0)),
        std::array::from_fn(|axis| end(axis).min(image[axis])),
    );
    (!within.is_empty()).then_some(within)
}
