//! The memory of engines and of the process around them.

use std::sync::OnceLock;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Bytes, Mapped, Overhead};
use plimsoll_nn::names;
use plimsoll_plan::{Backend, DeviceMemory, Options, Planner, VerifiedPlan, engine_bytes};

use crate::error::InferError;
use crate::options::PredictOptions;
use crate::summing::buffers::Buffers;
use crate::summing::forward::{find, forward_program};
use crate::summing::sliding_window::SlidingWindow;

/// Returns the bytes of the process itself, and of the driver of a device within it.
pub(crate) fn overhead(threads: usize, backend: &dyn Backend) -> Bytes {
    let driver = backend.device_memory().map_or(Bytes::ZERO, |memory| memory.driver().host);
    Overhead::new(threads).total() + driver
}

/// A change that reduces the needs of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Features in 16 bits.
    Halved,
    /// One window at a time.
    OneWindow,
}

/// The least needs of a program with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastWith {
    pub(crate) arena: Bytes,
    /// The bytes that windows in flight save.
    pub(crate) saved: Bytes,
    /// The bytes that a device has left beside its arena.
    pub(crate) left_there: Bytes,
}

/// The engine of a program that takes least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeastEngine {
    /// The bytes of this process: the smallest arena found, or the buffers through which a device is accessed.
    pub(crate) arena: Bytes,
    /// The bytes that a device has left beside its arena, 0 without a device; `None` if it has no room for the arena.
    pub(crate) left_there: Option<Bytes>,
}

/// The least needs of a network with changes. Each is planned once, when the first case needs to know it.
#[derive(Default)]
pub(crate) struct Alternatives {
    /// `None` inside if the network does not fit with the change either.
    halved: OnceLock<Option<LeastWith>>,
    one_window: OnceLock<Option<LeastWith>>,
}

impl Alternatives {
    /// Returns the least needs of a network with a change; `None` if the change is in effect already, or the backend has no room for it.
    ///
    /// # Errors
    /// Returns an error if the network cannot be planned.
    pub(crate) fn least_with(
        &self,
        otherwise: Otherwise,
        network: &SlidingWindow,
    ) -> Result<Option<LeastWith>, InferError> {
        let options = network.options;
        let (known, options) = match otherwise {
            Otherwise::Halved if matches!(options.precision, Some(DType::Bf16 | DType::F16)) => {
                return Ok(None);
            }
            Otherwise::OneWindow if options.window_batch == 1 => return Ok(None),
            Otherwise::Halved => (&self.halved, PredictOptions { precision: Some(DType::Bf16), ..options }),
            Otherwise::OneWindow => (&self.one_window, PredictOptions { window_batch: 1, ..options }),
        };
        if let Some(known) = known.get() {
            return Ok(*known);
        }
        let program = forward_program(&network.model, &options, &*network.backend)?;
        let engine = least_engine(&program, &*network.backend)?;
        let mut saved = Bytes::ZERO;
        if otherwise == Otherwise::OneWindow {
            let now = Buffers::numbers(&network.forward.program, network.forward.image);
            let then = Buffers::numbers(&program, find(&program, names::IMAGE)?);
            saved = Mapped::<f32>::bytes(now)? - Mapped::<f32>::bytes(then)?;
        }
        let least = engine.left_there.map(|left_there| LeastWith { arena: engine.arena, saved, left_there });
        Ok(*known.get_or_init(|| least))
    }
}

/// Plans the engine of a program that takes least.
///
/// # Errors
/// Returns an error if the program cannot be planned.
pub(crate) fn least_engine(program: &Program, backend: &dyn Backend) -> Result<LeastEngine, InferError> {
    // Of a device it is the limit of its own memory that decides; a processor's limit may be as low as it can be.
    let room = backend.device_memory().map_or(0, DeviceMemory::room);
    let planned =
        Planner::new(std::slice::from_ref(program), backend, Options::default())?.plan(Some(room))?;
    Ok(LeastEngine { arena: engine_bytes(backend, &planned), left_there: left_there(backend, &planned) })
}

/// The largest arena of an engine where this process's limit has so much left. An arena takes whole pages, so one that goes up to the last byte of the limit
/// would take more.
pub(crate) fn arena_room(backend: &dyn Backend, left: Bytes) -> usize {
    const PAGE: usize = 4096;
    let here = usize::try_from(left.0).unwrap_or(usize::MAX) / PAGE * PAGE;
    backend.device_memory().map_or(here, DeviceMemory::room)
}

/// Returns the bytes that a device has left beside the arena of a plan, 0 without a device, or `None` if it has no room for the arena.
pub(crate) fn left_there(backend: &dyn Backend, plan: &VerifiedPlan) -> Option<Bytes> {
    let Some(device) = backend.device_memory() else { return Some(Bytes::ZERO) };
    let (needed, limit) = (device.needed(plan.arena_bytes), device.limit());
    (needed <= limit).then(|| limit - needed)
}
