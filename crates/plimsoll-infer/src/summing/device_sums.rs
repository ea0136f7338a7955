//! Sums of windows that a device holds beside its arena: what of a ring lies there, and how windows are given to it.
//!
//! The device adds with the same roundings in the same order as the processor does. So means have the same bits, and which of the two adds
//! is a matter of room alone. Planes come back once, when no window will touch them again, instead of what the network says of every window.

use plimsoll_graph::DType;
use plimsoll_memory::Bytes;
use plimsoll_plan::{Backend, DeviceMemory, EngineError, PlaneSums, SummedWindow};
use serde::Serialize;

use crate::error::internal_engine;
use crate::options::RingStorage;
use crate::summing::ring_shape::RingShape;
use crate::summing::shares::WindowShares;
use crate::summing::summands::Summands;

/// Why what is said of windows is summed by this process, where programs run on a device with memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum HostSums {
    /// The limit of the device's memory has no room for them beside the arena.
    NoRoom {
        /// The limit there that has room for them beside the arena of this plan; an arena that recomputes may grow with the limit.
        vram_bytes: Bytes,
    },
    /// A voxel's weight is not the product of one for each axis, which is what devices sum.
    Weights,
}

/// The planes of a ring on a device.
pub(crate) fn plane_sums(shape: &RingShape, summands: &Summands, storage: RingStorage) -> PlaneSums {
    PlaneSums {
        planes: shape.planes(),
        channels: summands.channels(),
        plane: shape.tile.extent,
        window: shape.window,
        storage: match storage {
            RingStorage::F32 => DType::F32,
            RingStorage::F16 => DType::F16,
        },
    }
}

/// Returns the bytes of a device's memory for the sums of a ring, or `None` if it holds none.
pub(crate) fn device_bytes(
    backend: &dyn Backend,
    shape: &RingShape,
    summands: &Summands,
    storage: RingStorage,
) -> Option<Bytes> {
    backend.device_memory()?;
    Some(DeviceMemory::arena_bytes(backend.plane_sums(&plane_sums(shape, summands, storage))?))
}

/// A window at `start` of a ring, mirrored along some axes, as a device adds it, which refuses numbers from `limit` on.
///
/// # Errors
/// Returns an error if its shares are no products, which is planned for otherwise.
pub(crate) fn summed_window<'a>(
    shape: &RingShape,
    start: [usize; 3],
    mirrored: [bool; 3],
    shares: &'a WindowShares<'_>,
    limit: f32,
) -> Result<SummedWindow<'a>, EngineError> {
    let WindowShares::Product(along) = shares else {
        return Err(internal_engine("weights that are no products are summed by a device"));
    };
    let axis = shape.axis;
    let [first, second] = shape.plane_axes();
    let origin = |axis: usize, held: usize| start[axis] as isize - held as isize;
    Ok(SummedWindow {
        shares: [&along[0], &along[1], &along[2]],
        mirrored,
        axis,
        held: [0, 1, 2].map(|axis| shape.held_of(axis, start[axis])),
        slot: shape.slot(shape.turn(start[axis])),
        reversed: shape.reversed,
        origin: [origin(first, shape.tile.start[0]), origin(second, shape.tile.start[1])],
        limit,
    })
}
