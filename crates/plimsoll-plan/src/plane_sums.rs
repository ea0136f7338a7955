//! Sums over planes of a case, held by a device beside the arena: what a program makes of one window after the other is added there, and only
//! planes that no window will touch again leave it.

use std::ops::Range;

use plimsoll_graph::{DType, TensorId};
use plimsoll_memory::Reservation;

use crate::{EngineError, ProgramId};

/// Planes of sums, `[plane][channel][voxel]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneSums {
    /// The number of planes that are in memory at a time.
    pub planes: usize,
    /// Numbers of each voxel: logits, or the features that a head makes logits of.
    pub channels: usize,
    /// The extent of the part of a plane that is in memory.
    pub plane: [usize; 2],
    /// Depth, height and width of a window.
    pub window: [usize; 3],
    /// The storage of a sum: f32 or f16, to which it is rounded after each addition in single precision.
    pub storage: DType,
}

impl PlaneSums {
    /// Bytes of a plane.
    pub fn plane_bytes(&self) -> usize {
        let [first, second] = self.plane;
        [first, second, self.channels, self.storage.bytes()].into_iter().fold(1, usize::saturating_mul)
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> usize {
        self.plane_bytes().saturating_mul(self.planes)
    }
}

/// The logits or features of one window of a batch.
#[derive(Clone, Copy, Debug)]
pub struct SampleLogits {
    /// The program that computed them.
    pub program: ProgramId,
    /// Their tensor, of all windows of the batch.
    pub tensor: TensorId,
    /// The number of the window in the batch.
    pub sample: usize,
}

/// The location of a window, and its shares of the mean. Its planes pass along one of its axes; the first and the
/// second axis of a plane are the other two, in their order.
#[derive(Clone, Debug)]
pub struct SummedWindow<'a> {
    /// The weight of a voxel in the mean is the product of the shares of its depth, its height and its width.
    pub shares: [&'a [f32]; 3],
    /// Along which of depth, height and width it was mirrored.
    pub mirrored: [bool; 3],
    /// The axis along which planes pass.
    pub axis: usize,
    /// The places along depth, height and width that are in memory; all along that axis.
    pub held: [Range<usize>; 3],
    /// The held plane of its first place along that axis.
    pub slot: usize,
    /// `true` if the next place comes a plane earlier.
    pub reversed: bool,
    /// The position of its first place along the axes of the held part of a plane; below 0 if it is not held.
    pub origin: [isize; 2],
    /// Numbers from here on cannot be summed.
    pub limit: f32,
}

/// A device that sums, beside the arena of its engine.
pub trait SumsPlanes {
    /// Allocates planes, all zero, inside a reservation of the device's memory, in place of those that there were.
    ///
    /// # Errors
    /// Returns an error if the device refuses, there are no kernels for the sums, or the reservation is too small.
    fn open_sums(&mut self, of: PlaneSums, memory: Reservation) -> Result<(), EngineError>;

    /// Frees them.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    fn close_sums(&mut self) -> Result<(), EngineError>;

    /// Adds the logits or features that the last run of a program computed of a window. Returns `false` if some of them cannot be summed;
    /// the sums are of no use then.
    ///
    /// # Errors
    /// Returns an error if there are no planes, they are not of such windows, or the device fails.
    fn add_window(&mut self, logits: SampleLogits, window: &SummedWindow<'_>) -> Result<bool, EngineError>;

    /// Copies a plane out, as it is stored.
    ///
    /// # Errors
    /// Returns an error if there is no such plane, it has another size, or the device fails.
    fn read_plane(&mut self, slot: usize, to: &mut [u8]) -> Result<(), EngineError>;

    /// Sets a plane to zero.
    ///
    /// # Errors
    /// Returns an error if there is no such plane, or the device fails.
    fn clear_plane(&mut self, slot: usize) -> Result<(), EngineError>;
}
