//! Boxes that cover the changed voxels of a coarse segmentation, each of which is refined at full resolution.
//!
//! Candidates are changed voxels on a lattice of a quarter of their extent, and the candidate whose box covers the most voxels comes
//! first, as in nnInteractive. What candidates leave is covered by boxes around voxels elsewhere, which nnInteractive draws at random. Here they are evenly
//! spaced, so that a prediction can be repeated.

use std::sync::atomic::AtomicBool;

use plimsoll_volume::VoxelBox;

use crate::interactive::bits::BitMask;
use crate::interactive::error::InteractiveError;
use crate::interactive::session::check_going;

/// The times that the lattice is halved if no changed voxel lies on it.
const HALVINGS: usize = 3;
/// Candidates for each further box, and where no lattice meets a voxel.
const FURTHER: u64 = 10;
const WITHOUT_LATTICE: u64 = 25;

/// Boxes of one extent around voxels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boxes {
    /// The extents of a box.
    pub(crate) extents: [usize; 3],
    /// Voxels at each face that do not count as covered.
    pub(crate) margin: usize,
}

impl Boxes {
    /// The part of the box around a voxel that counts as covered, within a grid.
    fn covered(&self, centre: [usize; 3], shape: [usize; 3]) -> VoxelBox {
        let half = self.extents.map(|extent| extent / 2);
        let start = std::array::from_fn(|axis| (centre[axis] + self.margin).saturating_sub(half[axis]));
        let end = |axis: usize| {
            let past = centre[axis] + self.extents[axis] - half[axis];
            past.saturating_sub(self.margin).min(shape[axis])
        };
        VoxelBox::between(start, std::array::from_fn(end))
    }

    /// Covers all voxels of a mask, which is empty then. Returns the centres of boxes.
    ///
    /// # Errors
    /// Returns an error if `stop` is set.
    pub(crate) fn cover(
        &self,
        mask: &mut BitMask,
        stop: &AtomicBool,
    ) -> Result<Vec<[usize; 3]>, InteractiveError> {
        let mut centres = Vec::new();
        let Some(bounds) = mask.bounds() else { return Ok(centres) };
        let quarter = |axis: usize| ((bounds.shape[axis] - 1) as f64 / 4.0).round_ties_even() as usize;
        let mut stride: [usize; 3] = std::array::from_fn(|axis| quarter(axis).max(1));
        let mut candidates = on_lattice(mask, bounds, stride);
        for _ in 0..HALVINGS {
            if !candidates.is_empty() {
                break;
            }
            stride = stride.map(|step| (step / 2).max(1));
            candidates = on_lattice(mask, bounds, stride);
        }
        let further = if candidates.is_empty() { WITHOUT_LATTICE } else { FURTHER };
        while !candidates.is_empty() {
            check_going(stop)?;
            let Some(best) = self.best(mask, candidates.iter().copied()) else { break };
            centres.push(best);
            mask.erase(self.covered(best, mask.shape()));
            candidates.retain(|candidate| mask.get(*candidate));
        }
        loop {
            check_going(stop)?;
            let left = mask.count();
            let ranks = (0..further).map(|number| (2 * number + 1) * left / (2 * further));
            let candidates: Vec<[usize; 3]> = ranks.filter_map(|rank| mask.nth(rank)).collect();
            let Some(best) = self.best(mask, candidates.into_iter()) else { return Ok(centres) };
            centres.push(best);
            mask.erase(self.covered(best, mask.shape()));
        }
    }

    /// The first of the candidates whose boxes cover the most voxels; `None` if none covers any.
    fn best(&self, mask: &BitMask, candidates: impl Iterator<Item = [usize; 3]>) -> Option<[usize; 3]> {
        let mut best = None;
        let mut most = 0;
        for candidate in candidates {
            let count = mask.count_in(self.covered(candidate, mask.shape()));
            if count > most {
                (best, most) = (Some(candidate), count);
            }
        }
        best
    }
}

/// The voxels of a mask on a lattice that begins at the first voxel of a box.
fn on_lattice(mask: &BitMask, within: VoxelBox, stride: [usize; 3]) -> Vec<[usize; 3]> {
    let along =
        |axis: usize| (within.start[axis]..within.start[axis] + within.shape[axis]).step_by(stride[axis]);
    let all = along(0)
        .flat_map(|depth| along(1).flat_map(move |height| along(2).map(move |width| [depth, height, width])));
    all.filter(|voxel| mask.get(*voxel)).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Budget, Bytes};

    use super::*;

    #[test]
    fn every_voxel_is_covered_and_no_box_is_empty() {
        let boxes = Boxes { extents: [50, 52, 49], margin: 24 };
        let mut mask = BitMask::new([40, 41, 70], "test", &Budget::new(Bytes::mib(1))).unwrap();
        let voxels: Vec<[usize; 3]> = (0..200).map(|n| [n * 7 % 40, n * 13 % 41, n * 29 % 70]).collect();
        voxels.iter().for_each(|voxel| mask.set(*voxel, true));
        let centres = boxes.cover(&mut mask, &AtomicBool::new(false)).unwrap();
        assert_eq!(mask.count(), 0);
        let covers = |voxel: &[usize; 3]| {
            centres.iter().any(|centre| boxes.covered(*centre, [40, 41, 70]).contains_voxel(*voxel))
        };
        assert!(voxels.iter().all(covers));
        assert!(centres.len() <= voxels.len());
    }
}
