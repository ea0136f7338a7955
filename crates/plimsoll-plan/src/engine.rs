//! A plan on a device, ready to run.

use std::ops::Range;

use plimsoll_graph::{DType, Program, TensorId, TensorInfo};
use plimsoll_memory::{Bytes, MapError, OverBudget};

use crate::{DeviceState, NodeTime, OpTime, ProgramId, RunsAhead, SumsPlanes, Timings, VerifiedPlan};

/// Values on their way to a tensor, in the logical order of its shape, whatever the backend's layout is.
#[derive(Clone, Copy, Debug)]
pub enum HostSlice<'a> {
    /// For f32 tensors, and those that are stored as bf16 or f16.
    F32(&'a [f32]),
    /// For f64 tables.
    F64(&'a [f64]),
    /// For labels.
    U8(&'a [u8]),
}

/// Room for values on their way from a tensor.
#[derive(Debug)]
pub enum HostSliceMut<'a> {
    /// For f32 tensors, and those that are stored as bf16 or f16.
    F32(&'a mut [f32]),
    /// For f64 tables.
    F64(&'a mut [f64]),
    /// For labels.
    U8(&'a mut [u8]),
}

/// The values of a tensor where they lie, in the logical order of its shape.
#[derive(Clone, Copy, Debug)]
pub enum HostView<'a> {
    /// Values of an f32 tensor.
    F32(&'a [f32]),
    /// Values of a bf16 tensor: the upper halves of f32.
    Bf16(&'a [u16]),
}

impl HostSlice<'_> {
    /// The number and the type of the values.
    pub fn extent(&self) -> (usize, DType) {
        match self {
            HostSlice::F32(values) => (values.len(), DType::F32),
            HostSlice::F64(values) => (values.len(), DType::F64),
            HostSlice::U8(values) => (values.len(), DType::U8),
        }
    }
}

impl HostSliceMut<'_> {
    /// The number and the type of the values.
    pub fn extent(&self) -> (usize, DType) {
        match self {
            HostSliceMut::F32(values) => (values.len(), DType::F32),
            HostSliceMut::F64(values) => (values.len(), DType::F64),
            HostSliceMut::U8(values) => (values.len(), DType::U8),
        }
    }
}

/// Why a plan cannot be run, or a tensor not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The arena does not fit its reservation, or the system refuses it.
    #[error("the arena cannot be allocated")]
    Arena(#[from] MapError),
    /// The limit of a device has no room for the arena.
    #[error("the memory limit of the device: {0}")]
    DeviceLine(OverBudget),
    /// The system refuses a thread.
    #[error("a thread for kernels cannot be started")]
    Thread(#[from] std::io::Error),
    /// A plan was verified for another backend.
    #[error("the plan was verified for {planned}, but would run on {found}")]
    OtherBackend {
        /// The backend of the plan.
        planned: String,
        /// This one.
        found: String,
    },
    /// The backend cannot have such options.
    #[error("{option} is {found}, but {expected}")]
    Options {
        /// The name of the option.
        option: &'static str,
        /// Its value.
        found: String,
        /// The possible values.
        expected: String,
    },
    /// Values for a tensor do not have its number of elements or its type.
    #[error("the tensor `{tensor}` of the program `{program}` is {expected}, but the values are {found}")]
    Values {
        /// The program.
        program: String,
        /// The tensor.
        tensor: String,
        /// The tensor as declared.
        expected: String,
        /// The values given.
        found: String,
    },
    /// A tensor has no place in the arena: kernels that need it compute it for themselves.
    #[error("the tensor `{tensor}` of the program `{program}` is never stored")]
    NeverStored {
        /// The program.
        program: String,
        /// The tensor.
        tensor: String,
    },
    /// The device that the backend runs on is not there, or fails.
    #[error("{problem}")]
    Device {
        /// The fault.
        #[source]
        problem: Box<dyn std::error::Error + Send + Sync>,
        /// A remedy.
        hint: String,
    },
    /// A node or tensor of a verified plan is not where it must be: a fault of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl EngineError {
    /// A remedy.
    pub fn remedy(&self) -> Option<String> {
        match self {
            EngineError::Arena(error) => Some(error.remedy()),
            EngineError::DeviceLine(refused) => Some(refused.remedy_for("‹vram›")),
            EngineError::Device { hint, .. } => Some(hint.clone()),
            _ => None,
        }
    }

    /// An error for `count` values of a type that do not fit a tensor of a program.
    pub fn values(program: &Program, tensor: &TensorInfo, count: usize, dtype: DType) -> EngineError {
        EngineError::Values {
            program: program.name.clone(),
            tensor: tensor.name.clone(),
            expected: tensor.describe(),
            found: format!("{count} of {dtype}"),
        }
    }

    /// An error for a part that a verified plan must have and does not.
    pub fn missing(what: &str) -> EngineError {
        EngineError::Internal(format!("{what} is not in the plan"))
    }
}

/// A plan on a device, ready to run: the arena is allocated and every kernel is prepared. Offsets and pointers stay inside. Several
/// threads may read at a time.
pub trait Engine: Send + Sync {
    /// The plan. Its [`backend`](VerifiedPlan::backend) is what runs it, as reports say it.
    fn plan(&self) -> &VerifiedPlan;

    /// Copies values into a tensor of a program of the plan. Parameters and states are shared by all programs.
    ///
    /// # Errors
    /// Returns an error if the slice does not have the tensor's number of elements or its type, or the tensor has no
    /// memory.
    fn write(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        self.plan().stored_whole(program, tensor, values.extent())?;
        self.write_at(program, tensor, 0, values)
    }

    /// Copies values into some elements of a tensor, from `first` on in the logical order of its shape. The others keep their values.
    ///
    /// # Errors
    /// Returns an error if the tensor has fewer elements, is not of the values' type, or has no memory.
    fn write_at(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError>;

    /// Sets all elements of a tensor to zero.
    ///
    /// # Errors
    /// Returns an error if the tensor has no memory.
    fn clear(&mut self, program: ProgramId, tensor: TensorId) -> Result<(), EngineError>;

    /// Copies values out of a tensor of a program of the plan; of an intermediate, what the last run left there.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::write`].
    fn read(
        &self,
        program: ProgramId,
        tensor: TensorId,
        values: HostSliceMut<'_>,
    ) -> Result<(), EngineError> {
        self.plan().stored_whole(program, tensor, values.extent())?;
        self.read_from(program, tensor, 0, values)
    }

    /// The same of as many elements as there is room for, from one on: in the logical order of the tensor's shape.
    ///
    /// # Errors
    /// Returns an error if the tensor has fewer elements, is not of the values' type, or has no memory.
    fn read_from(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSliceMut<'_>,
    ) -> Result<(), EngineError>;

    /// The values of a tensor without a copy, where they lie in memory of this process and in the logical order of its shape; none
    /// where they have to be read.
    ///
    /// # Errors
    /// Returns an error if the tensor has no memory.
    fn view(&self, program: ProgramId, tensor: TensorId) -> Result<Option<HostView<'_>>, EngineError> {
        self.plan().stored(program, tensor).map(|_| None)
    }

    /// Runs a program. Allocates nothing but what a device records of its launches, in memory that [`DriverUse`](crate::DriverUse) counts.
    ///
    /// # Errors
    /// Returns an error if the plan has no such program.
    fn run(&mut self, program: ProgramId) -> Result<(), EngineError> {
        let schedule = self.plan().schedules.get(program.index());
        let launches = schedule.ok_or_else(|| EngineError::missing("the program"))?.launches.len();
        self.run_launches(program, 0..launches)
    }

    /// Runs consecutive launches of a program's schedule. A program has run after all of them, in their order; between two calls its parameters and
    /// states can be read and written.
    ///
    /// # Errors
    /// Returns an error if the plan has no such program, or the schedule no such launches.
    fn run_launches(&mut self, program: ProgramId, launches: Range<usize>) -> Result<(), EngineError>;

    /// The device, where it has [memory of its own](crate::Backend::device_memory) in which it can sum what programs make; else none.
    fn sums_planes(&mut self) -> Option<&mut dyn SumsPlanes> {
        None
    }

    /// The device, if it can begin a run before the last one has ended: it has memory for the next inputs beside its arena
    /// ([`EngineMemory::ahead`](crate::EngineMemory)).
    fn runs_ahead(&mut self) -> Option<&mut dyn RunsAhead> {
        None
    }

    /// Bytes of the arena, from its start, that the launches so far were given.
    fn used_bytes(&self) -> usize;

    /// Returns the decrease of the device's free memory while this engine was created and its programs were recorded,
    /// as the device reports it; memory that other processes took meanwhile is counted too. Returns none if the arena
    /// is memory of this process, or the device reports nothing.
    fn device_bytes(&self) -> Option<Bytes> {
        None
    }

    /// The state the device reports now; `None` if it reports nothing, or the engine runs on the processor.
    fn device_state(&self) -> Option<DeviceState> {
        None
    }

    /// The times of the launches of all runs so far.
    fn timings(&self) -> &Timings;

    /// The same by kind, the longest first.
    fn times(&self) -> Vec<OpTime> {
        self.timings().by_kind(self.plan())
    }

    /// The least time of each launch of a program, in order.
    fn least_times(&self, program: ProgramId) -> Vec<NodeTime> {
        self.timings().least(self.plan(), program)
    }
}
