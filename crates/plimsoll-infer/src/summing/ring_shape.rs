//! The shape of a ring of planes, and the activation of its means.

use std::ops::Range;

use plimsoll_memory::{Bytes, MapError, Mapped};

use crate::options::RingStorage;
use crate::summing::summands::Summands;
use crate::summing::sums::Sum;

/// The shape of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// The extent of the grid that windows stand on.
    pub grid: [usize; 3],
    /// The axis along which planes pass through the ring.
    pub axis: usize,
    /// `true` if they pass from the end of the axis to its beginning.
    pub reversed: bool,
    /// The extent of a window.
    pub window: [usize; 3],
    /// The activation that is applied to means of logits before they are interpolated.
    pub activation: Option<Activation>,
    /// `true` if an image that is smaller than the grid is at its beginning, rather than in its middle.
    pub begins_with_image: bool,
    /// The part of a plane that is held.
    pub tile: Tile,
}

/// A part of a plane: from where on, and how many voxels, along each of its two axes. What windows have beside it is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its start.
    pub start: [usize; 2],
    /// Its extent.
    pub extent: [usize; 2],
}

impl Tile {
    /// All of a plane.
    pub fn whole(plane: [usize; 2]) -> Tile {
        Tile { start: [0; 2], extent: plane }
    }
}

/// An activation that is applied to logits before they are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The probabilities of classes of which a voxel has one.
    Softmax,
    /// The probability of each output by itself.
    Sigmoid,
    /// None, as means are of probabilities.
    Done,
}

impl Activation {
    /// Applies it to the logits `[class][voxel]` of a plane of so many voxels.
    pub(crate) fn apply<S: Sum>(self, logits: &mut [S], voxels: usize) {
        match self {
            Activation::Done => {}
            Activation::Sigmoid => {
                logits.iter_mut().for_each(|logit| *logit = S::narrow(1.0 / (1.0 + (-logit.wide()).exp())));
            }
            Activation::Softmax => {
                for first in (0..voxels).step_by(VOXELS_TOGETHER) {
                    let count = VOXELS_TOGETHER.min(voxels - first);
                    softmax(logits, voxels, first..first + count);
                }
            }
        }
    }
}

/// Voxels whose classes are looked at together: of a class they lie next to each other.
const VOXELS_TOGETHER: usize = 64;

/// Makes probabilities of the logits `[class][voxel]` of some voxels, at most [`VOXELS_TOGETHER`].
fn softmax<S: Sum>(logits: &mut [S], voxels: usize, of: Range<usize>) {
    let (mut largest, mut sums) = ([f32::NEG_INFINITY; VOXELS_TOGETHER], [0.0f32; VOXELS_TOGETHER]);
    for class in logits.chunks_exact(voxels) {
        for (largest, logit) in largest.iter_mut().zip(&class[of.clone()]) {
            *largest = largest.max(logit.wide());
        }
    }
    for class in logits.chunks_exact(voxels) {
        for ((sum, largest), logit) in sums.iter_mut().zip(&largest).zip(&class[of.clone()]) {
            *sum += (logit.wide() - largest).exp();
        }
    }
    for class in logits.chunks_exact_mut(voxels) {
        for ((sum, largest), logit) in sums.iter().zip(&largest).zip(&mut class[of.clone()]) {
            *logit = S::narrow((logit.wide() - largest).exp() / sum);
        }
    }
}

impl RingShape {
    /// The two axes of a plane.
    pub fn plane_axes(&self) -> [usize; 2] {
        match self.axis {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        }
    }

    /// Voxels of a plane that are held.
    pub fn plane(&self) -> usize {
        let [first, second] = self.tile.extent;
        first.saturating_mul(second)
    }

    /// Returns the index of a voxel of the grid in the tile of its plane. The tile must contain it.
    pub(crate) fn in_plane(&self, at: [usize; 3]) -> usize {
        let [first, second] = self.plane_axes();
        let Tile { start, extent } = self.tile;
        debug_assert!(
            (start[0]..start[0] + extent[0]).contains(&at[first])
                && (start[1]..start[1] + extent[1]).contains(&at[second]),
            "voxel {at:?} is not held of {:?}",
            (start, extent)
        );
        (at[first] - start[0]) * extent[1] + at[second] - start[1]
    }

    /// The voxels along an axis of a window that begins at `start` there that are held.
    pub(crate) fn held_of(&self, axis: usize, start: usize) -> Range<usize> {
        let window = self.window[axis];
        let Some(which) = self.plane_axes().iter().position(|of_plane| *of_plane == axis) else {
            return 0..window;
        };
        let (first, end) = (self.tile.start[which], self.tile.start[which] + self.tile.extent[which]);
        let from = first.saturating_sub(start).min(window);
        from..end.saturating_sub(start).clamp(from, window)
    }

    /// Planes in memory: the planes of a window, and the last finished one, if the case has as many.
    pub(crate) fn planes(&self) -> usize {
        (self.window[self.axis] + 1).min(self.grid[self.axis])
    }

    /// Planes of which this process holds sums: all, or of those that a device sums the two around a slice.
    pub(crate) fn host_planes(&self, on_device: bool) -> usize {
        if on_device { self.planes().min(2) } else { self.planes() }
    }

    /// Numbers of some planes: one of each channel for each voxel. More than can be counted are refused when they are reserved.
    pub(super) fn count(&self, summands: &Summands, planes: usize) -> usize {
        planes.saturating_mul(self.plane()).saturating_mul(summands.channels())
    }

    /// Bytes that a ring of this shape reserves, of whose planes so many are held.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(
        &self,
        summands: &Summands,
        storage: RingStorage,
        planes: usize,
    ) -> Result<Bytes, MapError> {
        match storage {
            RingStorage::F32 => Mapped::<f32>::bytes(self.count(summands, planes)),
            RingStorage::F16 => Mapped::<half::f16>::bytes(self.count(summands, planes)),
        }
    }

    /// The place in the order of passing of a place along the axis.
    pub(crate) fn turn(&self, place: usize) -> usize {
        if self.reversed { self.grid[self.axis] - 1 - place } else { place }
    }

    /// The planes of a window at `start`, in the order of passing.
    pub(crate) fn turns_of(&self, start: [usize; 3]) -> Range<usize> {
        let (first, extent) = (start[self.axis], self.window[self.axis]);
        let from = if self.reversed { self.turn(first + extent - 1) } else { first };
        from..from + extent
    }

    /// Returns the slot of a plane of this turn in the ring.
    pub(crate) fn slot(&self, turn: usize) -> usize {
        turn % self.planes()
    }
}
