//! Labels of an earlier network as channels: one for each label above 0, which is 1 where the label is, and else 0.
//!
//! Each label is resized as an image of 0 and 1, and the largest of them wins; what wins where several are as large depends on the
//! function that plans name ([`LabelTies`]). A voxel is made of eight others at most, so no more than eight labels are compared, and no
//! image of any is made.

use plimsoll_memory::Bytes;

use crate::mask::Mask;
use crate::patch::LabelMap;
use crate::prepare::PrepareError;
use crate::prepare::rule::ResizeRule;
use crate::prepare::window::{Part, Samples};
use crate::{Interpolation, LabelTies, PatchError, TargetGrid};

/// The label of background outside of the mask while labels are resized.
const OUTSIDE: i16 = -1;

/// The labels of an earlier network.
pub(crate) struct Earlier<'a> {
    pub(crate) grid: &'a TargetGrid,
    pub(crate) rule: &'a ResizeRule,
    pub(crate) mask: &'a Mask,
    /// The number of channels.
    pub(crate) labels: usize,
    pub(crate) ties: LabelTies,
}

/// The two samples around a place along an axis.
struct Between {
    /// Their offsets in the region.
    offsets: [usize; 2],
    weights: [f64; 2],
    /// The nearer of them.
    nearest: usize,
}

impl Earlier<'_> {
    /// Sets the voxels of a part of a window in the channels `[label][d][h][w]`, each of shape `window` and zero before.
    ///
    /// # Errors
    /// If the labels cannot be read, or the memory is too small for one voxel.
    pub(crate) fn pull(
        &self,
        part: Part,
        out: &mut [f32],
        window: [usize; 3],
        memory: &mut [u8],
        image: &mut LabelMap,
    ) -> Result<(), PrepareError> {
        let samples = Samples::new(self.grid, self.rule, part.of_grid);
        let stored = samples.region.voxel_count();
        let Some(stored) = stored.filter(|stored| *stored <= memory.len()) else {
            let Some(halves) = part.halves() else {
                return Err(PrepareError::Patch(PatchError::ScratchTooSmall {
                    path: image.path().into(),
                    needed: Bytes::from_len(stored.unwrap_or(usize::MAX)),
                    found: Bytes::from_len(memory.len()),
                }));
            };
            return halves.into_iter().try_for_each(|half| self.pull(half, &mut *out, window, memory, image));
        };
        let labels = &mut memory[..stored];
        image.read(samples.region, labels)?;
        let axes = [0, 1, 2].map(|axis| self.between(&samples, part, axis));
        let voxels: usize = window.iter().product();
        let [depth, height, width] = samples.region.shape;
        debug_assert_eq!(depth * height * width, labels.len());
        let label = |offset: usize| {
            let found = i16::from(labels[offset]);
            let place = [offset / (height * width), offset / width % height, offset % width];
            let at = [0, 1, 2].map(|axis| samples.region.start[axis] + place[axis]);
            if found == 0 && !self.mask.has_stored(at) { OUTSIDE } else { found }
        };
        for (d, plane) in axes[0].iter().enumerate() {
            for (h, row) in axes[1].iter().enumerate() {
                for (w, column) in axes[2].iter().enumerate() {
                    let at = [d, h, w];
                    let place = [0, 1, 2].map(|axis| part.in_window[axis] + at[axis]);
                    let voxel = (place[0] * window[1] + place[1]) * window[2] + place[2];
                    // Values outside are below 0, and not labels.
                    let winner = usize::try_from(winner([plane, row, column], label, self.ties));
                    if let Ok(winner) = winner
                        && (1..=self.labels).contains(&winner)
                    {
                        out[(winner - 1) * voxels + voxel] = 1.0;
                    }
                }
            }
        }
        Ok(())
    }

    fn between(&self, samples: &Samples, part: Part, axis: usize) -> Vec<Between> {
        let offsets = samples.offsets(self.grid, self.rule, axis);
        let (rule, last) = (self.rule, (self.rule.from[axis] - 1) as f64);
        let offset = |voxel: usize| {
            // Within the samples, as the span has both neighbours.
            let at = (voxel as i64 - samples.first(axis)).clamp(0, offsets.len() as i64 - 1);
            offsets[at as usize]
        };
        let start = part.of_grid.start[axis];
        let between = |index: usize| {
            let nearest = if rule.along[axis].is_none() { index } else { rule.nearest(axis, index) };
            if rule.along[axis] != Some(Interpolation::Linear) {
                return Between { offsets: [offset(nearest); 2], weights: [1.0, 0.0], nearest: 0 };
            }
            let at = rule.source(axis, index).clamp(0.0, last);
            let lower = at.floor();
            let share = at - lower;
            let lower = lower as usize;
            Between {
                offsets: [offset(lower), offset(lower + 1)],
                weights: [1.0 - share, share],
                nearest: nearest - lower,
            }
        };
        (start..start + part.of_grid.shape[axis]).map(between).collect()
    }
}

/// A weight as PyTorch compares it: times a thousand, in half precision.
fn in_half(weight: f64) -> f64 {
    f64::from(half::f16::from_f32((weight * 1000.0) as f32))
}

/// The label with the most weight around a place.
fn winner(axes: [&Between; 3], label: impl Fn(usize) -> i16, ties: LabelTies) -> i16 {
    let nearest: usize = axes.iter().map(|axis| axis.offsets[axis.nearest]).sum();
    let nearest = label(nearest);
    // Labels and weights so far.
    let mut found = [(0i16, 0.0f64); 8];
    let mut count = 0;
    for corner in 0..8usize {
        let side = [corner >> 2 & 1, corner >> 1 & 1, corner & 1];
        let weight = (0..3).map(|axis| axes[axis].weights[side[axis]]).product::<f64>();
        if weight == 0.0 {
            continue;
        }
        let here = label((0..3).map(|axis| axes[axis].offsets[side[axis]]).sum());
        match found[..count].iter_mut().find(|(label, _)| *label == here) {
            Some((_, sum)) => *sum += weight,
            None => {
                found[count] = (here, weight);
                count += 1;
            }
        }
    }
    let found = &mut found[..count];
    if ties == LabelTies::Lowest {
        found.iter_mut().for_each(|(_, weight)| *weight = in_half(*weight));
    }
    let most = found.iter().fold(0.0, |most: f64, (_, weight)| most.max(*weight));
    let tied = || found.iter().filter(|(_, weight)| *weight == most).map(|(label, _)| *label);
    match ties {
        LabelTies::Nearest if tied().any(|label| label == nearest) => nearest,
        // The largest of weights is one of them.
        LabelTies::Nearest | LabelTies::Lowest => tied().min().unwrap_or(nearest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two voxels along one axis, the second with a given share.
    fn between_two(share: f64, labels: [i16; 2], ties: LabelTies) -> i16 {
        let alone = || Between { offsets: [0, 0], weights: [1.0, 0.0], nearest: 0 };
        let between =
            Between { offsets: [0, 1], weights: [1.0 - share, share], nearest: usize::from(share >= 0.5) };
        winner([&alone(), &alone(), &between], |offset| labels[offset], ties)
    }

    #[test]
    fn labels_of_equal_weight_give_the_nearest_or_the_lowest() {
        assert_eq!(between_two(0.5, [1, 3], LabelTies::Nearest), 3);
        assert_eq!(between_two(0.5, [3, 1], LabelTies::Lowest), 1);
        // torch.tensor([500.05, 499.95]).half() are both 500; of [500.3, 499.7] they are 500.25 and 499.75.
        assert_eq!(between_two(0.50005, [1, 3], LabelTies::Nearest), 3);
        assert_eq!(between_two(0.50005, [1, 3], LabelTies::Lowest), 1);
        assert_eq!(between_two(0.5003, [1, 3], LabelTies::Lowest), 3);
    }
}
