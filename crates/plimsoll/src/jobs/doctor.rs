//! Describing the machine: cores, instruction sets, and the limits of memory.

use plimsoll_memory::host::{self, Cores};
use plimsoll_memory::{Bytes, Limits, System, limits};
use serde::Serialize;

use crate::backend::{Card, CardReport, default_threads, instruction_set, multiplies_bf16};

/// A machine, as jobs of this process see it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The version of this library.
    pub version: &'static str,
    /// Cores that this process may use, where the system describes them.
    pub cores: Option<Cores>,
    /// The threads of kernels by default.
    pub threads: usize,
    /// The processor's name, where the system tells it.
    pub processor: Option<String>,
    /// The instruction set that kernels are chosen for.
    pub simd: String,
    /// `true` if products of bf16 have an instruction of their own.
    pub multiplies_bf16: bool,
    /// The first GPU that the driver finds.
    pub gpu: Option<CardReport>,
    /// The reason why there is none.
    pub no_gpu: Option<String>,
    /// The limits of memory, and the least of them.
    pub limits: Limits,
}

/// Describes the machine under a memory limit, or under what the machine leaves.
pub fn doctor(ram: Option<Bytes>) -> Machine {
    let gpu = Card::find(0).map(|card| card.report()).map_err(|error| format!("{error}; {}", error.remedy()));
    Machine {
        version: env!("CARGO_PKG_VERSION"),
        cores: host::cores().ok(),
        threads: default_threads(),
        processor: host::processor_model(),
        simd: instruction_set(),
        multiplies_bf16: multiplies_bf16(),
        no_gpu: gpu.as_ref().err().cloned(),
        gpu: gpu.ok(),
        limits: limits(&System::default(), ram),
    }
}
