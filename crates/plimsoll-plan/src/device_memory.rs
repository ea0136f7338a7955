//! Arenas in memory of a device: a second limit beside the one of this process.

use std::sync::Arc;

use plimsoll_graph::{Program, Role};
use plimsoll_memory::{Budget, Bytes, MapError, OverBudget, Reservation};
use serde::{Deserialize, Serialize};

use crate::{Backend, Engine, EngineError, Plan, VerifiedPlan};

/// Devices map memory in pieces of this size, so arenas are reserved in multiples of it: CUDA's granularity since Volta.
const PIECE: usize = 2 << 20;

/// Copies to and from a device go through at most so much memory of this process, in pieces: at 25 GB/s, what PCIe 4.0 carries, one
/// takes two thirds of a millisecond, against which starting it is nothing.
const MOST_STAGED: usize = 16 << 20;

/// The memory a driver holds for this process before an arena is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverUse {
    /// Device memory of the context and the kernels.
    pub context: Bytes,
    /// The device memory that the driver allocates once programs run, for the threads of kernels, and to record
    /// launches.
    pub recordings: Bytes,
    /// The device memory of channels to other ranks; 0 if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ranks: Bytes,
    /// Memory of this process, beside its libraries.
    pub host: Bytes,
    /// `true` if both were measured on this device, `false` if they are the usual values.
    pub is_measured: bool,
}

impl DriverUse {
    /// The reservation if no device can be queried: as much as the 300 to 450 MiB of device memory, and more than the
    /// 100 to 150 MiB of the process, that CUDA's contexts are known to take; and for each of 1024 recorded launches
    /// the 64 KiB that drivers before 550 took.
    pub const USUAL: DriverUse = DriverUse {
        context: Bytes::mib(448),
        recordings: Bytes::mib(64),
        ranks: Bytes::ZERO,
        host: Bytes::mib(192),
        is_measured: false,
    };

    /// The device memory it holds.
    pub fn device_bytes(&self) -> Bytes {
        self.context + self.recordings + self.ranks
    }
}

fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// The memory of a device under a limit, in which arenas lie.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    budget: Budget,
    driver: DriverUse,
    /// The number of arenas that share the memory the driver leaves.
    arenas: usize,
    _driver: Arc<[Reservation; 3]>,
}

impl DeviceMemory {
    /// Sets a limit, and reserves from it the driver's context and recordings, and channels to other ranks.
    ///
    /// # Errors
    /// Returns an error if these alone exceed the limit.
    pub fn new(limit: Bytes, driver: DriverUse) -> Result<DeviceMemory, OverBudget> {
        let budget = Budget::new(limit);
        let context = budget.reserve("context", driver.context)?;
        let recordings = budget.reserve("recordings", driver.recordings)?;
        let ranks = budget.reserve("ranks", driver.ranks)?;
        Ok(DeviceMemory { budget, driver, arenas: 1, _driver: Arc::new([context, recordings, ranks]) })
    }

    /// The same memory for one of several engines at once, each with an equal part of what the driver leaves.
    #[must_use]
    pub fn shared_by(self, arenas: usize) -> DeviceMemory {
        DeviceMemory { arenas: arenas.max(1), ..self }
    }

    /// Returns the limit of the device's memory, for all holders. If there are several engines, it is the limit that
    /// one of them would have if it were alone with its part.
    pub fn limit(&self) -> Bytes {
        let driver = self.driver.device_bytes();
        driver + Bytes((self.budget.limit() - driver).0 / self.arenas as u64)
    }

    /// The memory the driver holds.
    pub fn driver(&self) -> DriverUse {
        self.driver
    }

    /// Bytes that an arena may have, in whole pieces.
    pub fn room(&self) -> usize {
        let room = usize::try_from((self.limit() - self.driver.device_bytes()).0).unwrap_or(usize::MAX);
        room / PIECE * PIECE
    }

    /// The device memory that an arena of `bytes` bytes takes.
    pub fn arena_bytes(bytes: usize) -> Bytes {
        Bytes::from_len(bytes.saturating_add(PIECE - 1) / PIECE * PIECE)
    }

    /// The device memory needed in all for an arena of `arena` bytes.
    pub fn needed(&self, arena: usize) -> Bytes {
        self.driver.device_bytes() + DeviceMemory::arena_bytes(arena)
    }

    /// The device memory for the next inputs beside an arena of `arena` bytes, in whole pieces; none if the limit has no room for it, or there is
    /// nothing to copy ahead.
    pub fn ahead(&self, arena: usize, inputs: usize) -> Option<Bytes> {
        let bytes = DeviceMemory::arena_bytes(inputs);
        let room = Bytes::from_len(self.room()) - DeviceMemory::arena_bytes(arena);
        Some(bytes).filter(|bytes| *bytes > Bytes::ZERO && *bytes <= room)
    }

    /// Reserves memory of the device.
    ///
    /// # Errors
    /// Returns an error if the limit has no room.
    pub fn reserve(&self, holder: &str, bytes: Bytes) -> Result<Reservation, EngineError> {
        self.budget.reserve(holder, bytes).map_err(EngineError::DeviceLine)
    }

    /// The memory of this process through which programs' values are copied to the device and back: as large as the
    /// largest tensor that is read or written from outside, up to 16 MiB.
    pub fn staging_bytes(programs: &[Program]) -> Bytes {
        let tensors = programs.iter().flat_map(|program| &program.tensors);
        let outside = tensors.filter(|tensor| tensor.role != Role::Intermediate);
        let bytes = outside.map(|tensor| tensor.shape.count().saturating_mul(tensor.dtype.bytes()));
        let largest = bytes.max().unwrap_or(0).min(MOST_STAGED);
        Bytes::from_len(largest.next_multiple_of(4096))
    }
}

/// Returns the size of an arena in its memory: whole pages of this process, or whole pieces of a device's memory.
pub fn arena_memory(backend: &dyn Backend, bytes: usize) -> Bytes {
    match backend.device_memory() {
        Some(_) => DeviceMemory::arena_bytes(bytes),
        None => Bytes::from_len(bytes.next_multiple_of(4096)),
    }
}

/// The memory of this process that an engine of a plan needs: the arena, or the staging buffer of a device.
pub fn engine_bytes(backend: &dyn Backend, plan: &Plan) -> Bytes {
    match backend.device_memory() {
        Some(_) => DeviceMemory::staging_bytes(&plan.programs),
        None => arena_memory(backend, plan.arena_bytes),
    }
}

/// The reservations of an engine whose arena is memory of a device.
#[derive(Debug)]
pub struct EngineMemory {
    /// The arena, memory of the device.
    pub arena: Reservation,
    /// The buffer for transfers, memory of this process.
    pub staging: Reservation,
    /// Memory of the device for the inputs of the next run; `None` if every run is waited for.
    pub ahead: Option<Reservation>,
}

/// An engine of a plan, all of whose memory is reserved: from the limit of the backend's device, and from the `host`'s.
///
/// # Errors
/// Returns the errors of [`Backend::engine`], and an error if a limit has no room.
pub fn open_engine(
    backend: &dyn Backend,
    plan: VerifiedPlan,
    host: &Budget,
) -> Result<Box<dyn Engine>, EngineError> {
    open_engine_ahead(backend, plan, host, Bytes::ZERO)
}

/// The same with memory of the device for the inputs of the next run, as [`DeviceMemory::ahead`] computes it; 0 for none.
///
/// # Errors
/// Returns the errors of [`open_engine`].
pub fn open_engine_ahead(
    backend: &dyn Backend,
    plan: VerifiedPlan,
    host: &Budget,
    ahead: Bytes,
) -> Result<Box<dyn Engine>, EngineError> {
    let of_host = |holder| host.reserve(holder, engine_bytes(backend, &plan)).map_err(MapError::from);
    let Some(device) = backend.device_memory() else {
        let arena = of_host("arena")?;
        return backend.engine(plan, arena);
    };
    let staging = of_host("staging")?;
    let arena = DeviceMemory::arena_bytes(plan.arena_bytes);
    let arena = device.reserve("arena", arena)?;
    let is_ahead = ahead > Bytes::ZERO;
    let ahead = is_ahead.then(|| device.reserve("next batch", ahead)).transpose()?;
    backend.staged_engine(plan, EngineMemory { arena, staging, ahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_holds_is_part_of_the_limit_and_arenas_share_the_rest() {
        let driver = DriverUse { context: Bytes::mib(90), recordings: Bytes::mib(10), ..DriverUse::USUAL };
        let memory = DeviceMemory::new(Bytes::mib(511), driver).unwrap();
        assert_eq!(memory.room(), 410 << 20, "whole pieces of 2 MiB");
        assert_eq!(memory.needed(1), Bytes::mib(102));
        let half = memory.clone().shared_by(2);
        assert_eq!(half.room(), 204 << 20);
        assert!(half.needed(half.room()) <= half.limit());
        // Both arenas and the one context are within the limit.
        assert!(half.needed(half.room()) + Bytes::from_len(half.room()) <= memory.limit());
        // So is what channels to other ranks take.
        let ranked =
            DeviceMemory::new(Bytes::mib(511), DriverUse { ranks: Bytes::mib(11), ..driver }).unwrap();
        assert_eq!((ranked.room(), ranked.needed(1)), (400 << 20, Bytes::mib(113)));
        // Next inputs take what an arena leaves.
        assert_eq!(memory.ahead(300 << 20, 3 << 20), Some(Bytes::mib(4)));
        assert_eq!(memory.ahead(406 << 20, 3 << 20), Some(Bytes::mib(4)));
        assert_eq!((memory.ahead(407 << 20, 3 << 20), memory.ahead(300 << 20, 0)), (None, None));
        let refused = DeviceMemory::new(Bytes::mib(99), driver).unwrap_err();
        assert!(refused.to_string().contains("recordings needs 10.0 MiB"), "{refused}");
    }
}
