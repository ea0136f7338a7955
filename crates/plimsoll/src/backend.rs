//! The backends that there are: the one place that names them.

use std::sync::Arc;

use clap::ValueEnum;
use plimsoll_cpu::{CpuBackend, CpuOptions, Level, fma_peak};
pub use plimsoll_cuda::Architecture as CardArchitecture;
use plimsoll_cuda::{CudaBackend, DeviceSource, Driver, Nowhere};
use plimsoll_memory::Bytes;
use plimsoll_plan::{Backend, EngineError};
use plimsoll_reference::ReferenceBackend;

use crate::failure::{Failure, Outcome};

/// What runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// The processor, with kernels for its instruction set.
    #[default]
    Cpu,
    /// The definitions of all ops in f64: slow, to check other backends against.
    Reference,
}

impl BackendName {
    /// The backend of this name with so many threads, where it has any.
    pub fn open(self, threads: usize) -> Outcome<Arc<dyn Backend>> {
        Ok(match self {
            BackendName::Cpu => Arc::new(CpuBackend::new(CpuOptions::new(threads))?),
            BackendName::Reference => Arc::new(ReferenceBackend::new()),
        })
    }
}

/// A kind of NVIDIA GPU to plan for, whether there is one or not.
pub fn card(architecture: CardArchitecture) -> Arc<dyn Backend> {
    Arc::new(CudaBackend::new(Arc::new(Nowhere(architecture))))
}

/// The first GPU, or why there is none.
pub fn first_gpu() -> Result<String, String> {
    let driver = Driver::find(0).map_err(|error| error.to_string())?;
    let (name, architecture, bytes) = (driver.name(), driver.architecture(), Bytes::of(driver.bytes()));
    Ok(format!("{name}, {architecture}, {bytes}"))
}

/// The instruction set that kernels are chosen for on this machine.
pub fn instruction_set() -> String {
    Level::from_environment().to_string()
}

/// Floating-point operations per second of the processor with all operands in registers.
pub fn multiply_add_peak(threads: usize) -> Result<f64, EngineError> {
    fma_peak(threads)
}

/// That the instruction set which the environment asks for is one.
pub fn check_environment() -> Outcome {
    let asked = std::env::var(Level::VARIABLE).ok();
    match asked.filter(|name| Level::from_name(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let message = format!("{} is `{name}`, which is no instruction set", Level::VARIABLE);
            Err(Failure::new(message, "avx512, avx2 or portable; the machine's best if it is not set"))
        }
    }
}
