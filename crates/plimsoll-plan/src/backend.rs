//! The seam between programs and devices.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::Reservation;
use serde::{Deserialize, Serialize};

use crate::{
    Bf16Products, DeviceMemory, Engine, EngineError, EngineMemory, LoweredProgram, PlanError, PlaneSums,
    VerifiedPlan,
};

/// The rates of a device, per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Floating-point operations on registers, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes read and written in memory.
    pub bytes: f64,
    /// Floating-point operations of single kernels that were measured, by a name that the backend gives them.
    pub kernels: BTreeMap<String, f64>,
}

impl Rates {
    /// Returns `true` if all are numbers above zero: the values of a file are not trusted.
    pub fn are_sound(&self) -> bool {
        let mut all = [self.flops, self.bytes].into_iter().chain(self.kernels.values().copied());
        all.all(|rate| rate.is_finite() && rate > 0.0)
    }
}

/// A device with a number of threads, an instruction set, and rates: everything that determines the layout and the
/// execution of programs.
pub trait Backend: Any + Send + Sync {
    /// Tells it from every other that would lay out or run programs differently: the device, its instruction set, threads.
    /// Measured rates, which change neither, are left out.
    fn identity(&self) -> String;

    /// Tells it from every other that may round differently. Threads do not: they change no bit.
    fn arithmetic(&self) -> String {
        self.identity()
    }

    /// Returns the type in which this backend stores feature maps of a precision, if the program was not built for it
    /// with gradients: the precision itself, or a type that holds all its numbers if the backend has no kernels for it.
    fn storage(&self, precision: DType) -> DType {
        precision
    }

    /// The type in which a training stores features if it sets none: the one in which networks train the fastest on this backend.
    fn usual_storage(&self) -> DType {
        DType::F32
    }

    /// Every offset in the arena is a multiple of this power of two.
    fn alignment(&self) -> usize;

    /// Lowers a set of programs that share parameters and states, which must have one layout in all of them. With `inline`,
    /// what is cheap to compute is computed by its readers instead of stored, where the backend can. The same programs give the
    /// same lowering, but for predicted times.
    ///
    /// # Errors
    /// Returns an error if the programs are not well formed or do not [`agree`](crate::agree), or there is no kernel
    /// for a node of them.
    fn lower(&self, programs: &[Program], inline: bool) -> Result<Vec<LoweredProgram>, PlanError>;

    /// Allocates the arena of a plan inside a reservation, zeroed, and prepares every kernel.
    ///
    /// # Errors
    /// Returns an error if the plan was verified for another backend ([`VerifiedPlan::expect_for`]), the reservation is
    /// too small, or the system refuses memory or threads.
    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError>;

    /// The memory in which arenas lie, where that is not memory of this process; its limit is set already.
    fn device_memory(&self) -> Option<&DeviceMemory> {
        None
    }

    /// Bytes of the device's memory that sums over planes take beside an arena, where engines of this backend can hold such
    /// ([`Engine::sums_planes`]).
    fn plane_sums(&self, _of: &PlaneSums) -> Option<usize> {
        None
    }

    /// The same with all memory of an engine: of a backend with [memory of its own](Backend::device_memory).
    /// [`open_engine`](crate::open_engine) reserves it.
    ///
    /// # Errors
    /// Returns the errors of [`Backend::engine`].
    fn staged_engine(
        &self,
        plan: VerifiedPlan,
        memory: EngineMemory,
    ) -> Result<Box<dyn Engine>, EngineError> {
        self.engine(plan, memory.arena)
    }

    /// The same backend for one of several engines at once, each with an equal part of the device's memory; none where arenas lie in
    /// memory of this process.
    fn shared_by(&self, _engines: usize) -> Option<Arc<dyn Backend>> {
        None
    }

    /// The same backend, predicting times from `rates`, or from nominal ones.
    fn with_rates(&self, rates: Option<Rates>) -> Arc<dyn Backend>;

    /// The same backend, where some convolutions between features that are stored as bf16 multiply bf16 as well, and sum in f32.
    ///
    /// # Errors
    /// Returns an error if it has no kernels for them.
    fn with_bf16_products(&self, _which: &Bf16Products) -> Result<Arc<dyn Backend>, PlanError> {
        Err(PlanError::Products { backend: self.identity() })
    }

    /// The same backend, where convolutions of features that are stored as f32 round them and the weights to tf32 (11 bits of mantissa), and
    /// sum products of these in f32.
    ///
    /// # Errors
    /// Returns an error if it has no kernels for them.
    fn with_tf32_products(&self) -> Result<Arc<dyn Backend>, PlanError> {
        Err(PlanError::Tf32Products { backend: self.identity() })
    }

    /// Returns the convolutions of some programs that should multiply bf16: those that are faster by the measured rates.
    ///
    /// # Errors
    /// Returns an error if the programs cannot be lowered, or there are no kernels for a node.
    fn fastest_products(&self, _programs: &[Program]) -> Result<Bf16Products, PlanError> {
        Err(PlanError::Products { backend: self.identity() })
    }

    /// Tells the device, its instruction set and threads from every other whose rates differ.
    fn rated(&self) -> String {
        self.identity()
    }

    /// Measures what is not `known` yet of the rates that some programs depend on, each within `memory` bytes and a fraction of a
    /// second. None where nothing is to be learned; a backend that predicts times without measuring keeps to that.
    ///
    /// # Errors
    /// Returns an error if the system refuses memory or threads.
    fn measure(
        &self,
        _known: Option<&Rates>,
        _programs: &[Program],
        _memory: usize,
    ) -> Result<Option<Rates>, EngineError> {
        Ok(None)
    }
}
