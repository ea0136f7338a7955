//! Work that was recorded: a CUDA graph, which the processor launches as one.
//!
//! It is captured from a stream: what is launched meanwhile is noted and not run. Nothing of it changes afterwards; kernels read what
//! differs from run to run from the arena.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use super::Card;
use crate::device::DeviceError;

/// A recording, ready to be replayed on the stream that it was captured from.
pub(super) struct Recording {
    graph: CudaGraph,
    /// The number of its launches.
    pub(super) launches: usize,
}

// SAFETY: handles of graphs belong to a context, not to a thread, and are to be used by one thread at a time: a recording is part of a
// device, which has one owner, and every call binds the context to its thread first.
unsafe impl Send for Recording {}

impl Recording {
    /// Records what is launched on a stream of a card by `work`. Returns it with the bytes by which the card's free memory became less; the
    /// card is locked by the caller.
    ///
    /// # Errors
    /// Returns an error if the driver refuses any of it. Capturing has ended then.
    pub(super) fn record(
        card: &Card,
        stream: &Arc<CudaStream>,
        launches: usize,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(Recording, usize), DeviceError> {
        let failed = |error: DriverError| card.failed("record launches", error);
        let before = card.memory()?.free;
        // Calls of other threads, which open devices of their own meanwhile, are neither captured nor refused.
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed)?;
        let launched = work();
        let ended = stream.end_capture(CUgraphInstantiate_flags(0));
        // Why a launch was refused says more than that the capture is not valid.
        launched?;
        let nothing = DriverError(CUresult::CUDA_ERROR_INVALID_VALUE);
        let graph = ended.and_then(|graph| graph.ok_or(nothing)).map_err(failed)?;
        // What it takes of the card is allocated now, and not with the first replay.
        graph.upload().and_then(|()| stream.synchronize()).map_err(failed)?;
        let taken = before.saturating_sub(card.memory()?.free);
        Ok((Recording { graph, launches }, taken))
    }

    /// Launches all of it.
    ///
    /// # Errors
    /// Returns an error if the driver refuses it, or an earlier launch has failed.
    pub(super) fn replay(&self, card: &Card) -> Result<(), DeviceError> {
        self.graph.launch().map_err(|error| card.failed("launch the recording", error))
    }
}
