//! The box around a mark, grown and brought to the grid of the image.

use plimsoll_data::LocatedSteps;
use plimsoll_volume::VoxelBox;

use crate::located::fault::LocatedFault;

/// The box of an image around what is marked on a coarse grid, along the axes of the network. It reaches to the outermost planes of which
/// more than a share is marked, and grows by a share of itself to each side. Numbers are rounded as deepbet's `get_bbox_with_margin` rounds them
/// in f32.
///
/// # Errors
/// Returns an error if there is no such plane along an axis.
pub(super) fn box_of(mark: &[u8], steps: &LocatedSteps, shape: [usize; 3]) -> Result<VoxelBox, LocatedFault> {
    let extent = steps.coarse;
    let counts = counts(mark, extent);
    let (mut first, mut end) = ([0; 3], [0; 3]);
    for axis in 0..3 {
        let plane = extent.iter().product::<usize>() / extent[axis].max(1);
        let is_within = |count: &u32| (*count as f32 / plane as f32) > steps.least_share as f32;
        let inner = counts[axis].iter().position(is_within).zip(counts[axis].iter().rposition(is_within));
        let percent = (steps.least_share * 100.0).round() as u32;
        let (from, last) = inner.ok_or(LocatedFault::NoBox { percent })?;
        let scale = shape[axis] as f32 / extent[axis] as f32;
        let centre = scale * ((last + 1 + from) as f32 / 2.0);
        let size = (1.0 + 2.0 * steps.margin as f32) * (scale * (last + 1 - from) as f32);
        let (centre, half) = (centre.round_ties_even(), size.round_ties_even() / 2.0);
        // As conversions to whole numbers, towards 0.
        first[axis] = (centre - half).max(0.0) as usize;
        end[axis] = ((centre + half) as usize).min(shape[axis]);
        if first[axis] >= end[axis] {
            return Err(LocatedFault::NoBox { percent });
        }
    }
    Ok(VoxelBox::between(first, end))
}

/// The number of marked voxels of each plane across each axis.
fn counts(mark: &[u8], [depth, height, width]: [usize; 3]) -> [Vec<u32>; 3] {
    let mut counts = [vec![0; depth], vec![0; height], vec![0; width]];
    for (place, _) in mark.iter().enumerate().filter(|(_, voxel)| **voxel != 0) {
        counts[0][place / (height * width)] += 1;
        counts[1][place / width % height] += 1;
        counts[2][place % width] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> LocatedSteps {
        LocatedSteps {
            coarse: [10, 8, 6],
            fine: [16; 3],
            margin: 0.1,
            least_share: 0.02,
            quantiles: [0.0, 1.0],
            mean: 0.0,
            deviation: 1.0,
        }
    }

    fn marked(from: [usize; 3], end: [usize; 3]) -> Vec<u8> {
        let [depth, height, width] = steps().coarse;
        let inside =
            |at: [usize; 3]| -> bool { (0..3).all(|axis| (from[axis]..end[axis]).contains(&at[axis])) };
        let voxels = 0..depth * height * width;
        voxels.map(|v| inside([v / (height * width), v / width % height, v % width]).into()).collect()
    }

    /// `BrainExtraction.get_bbox_with_margin(mask, (90, 18, 33), 0.1)` of deepbet 1.0.2, for a mask of 10 × 8 × 6 of which `[2:5, 1:5, 2:5]` is 1:
    /// `(slice(16, 48, 1), slice(1, 12, 1), slice(9, 29, 1))`; and for a mask of ones.
    #[test]
    fn boxes_are_those_of_deepbet() {
        let found = box_of(&marked([2, 1, 2], [5, 5, 5]), &steps(), [90, 18, 33]).unwrap();
        assert_eq!(found, VoxelBox::between([16, 1, 9], [48, 12, 29]));
        let found = box_of(&marked([0; 3], steps().coarse), &steps(), [90, 18, 33]).unwrap();
        assert_eq!(found, VoxelBox::whole([90, 18, 33]));
    }

    #[test]
    fn what_is_not_marked_has_no_box() {
        let error = box_of(&marked([0; 3], [0; 3]), &steps(), [9; 3]).unwrap_err();
        assert_eq!(error, LocatedFault::NoBox { percent: 2 });
    }
}
