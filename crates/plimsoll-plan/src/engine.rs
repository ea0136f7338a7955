//! The seam between plans and devices.

use plimsoll_graph::TensorId;
use serde::Serialize;

/// Values on their way to a tensor, in the logical order of its shape, whatever the backend's layout is.
#[derive(Clone, Copy, Debug)]
pub enum HostSlice<'a> {
    /// For tensors of numbers, also where they are stored as bf16.
    F32(&'a [f32]),
    /// For labels.
    U8(&'a [u8]),
}

/// Room for values on their way from a tensor.
#[derive(Debug)]
pub enum HostSliceMut<'a> {
    /// For tensors of numbers.
    F32(&'a mut [f32]),
    /// For labels.
    U8(&'a mut [u8]),
}

/// What all nodes of one kind have taken.
#[derive(Clone, Debug, Serialize)]
pub struct OpTime {
    /// The kind, as [`Rule::name`](plimsoll_graph::Rule::name) has it.
    pub op: &'static str,
    /// How often one was run.
    pub runs: u64,
    /// How long they took together.
    pub seconds: f64,
}

/// A plan on a device, ready to run: the arena is allocated and every kernel is prepared. Offsets and pointers stay inside.
pub trait Engine: Send {
    /// What runs it, for people: the device, its instruction set, threads.
    fn describe(&self) -> String;

    /// Copies values into a tensor of a program of the plan. Parameters and states are shared by all programs.
    ///
    /// # Panics
    /// If the slice does not have the tensor's number of elements or its type: both come from the same plan.
    fn write(&mut self, program: usize, tensor: TensorId, values: HostSlice<'_>);

    /// Copies values out of a tensor of a program of the plan; of an intermediate, what the last run left there.
    ///
    /// # Panics
    /// As [`Engine::write`].
    fn read(&self, program: usize, tensor: TensorId, values: HostSliceMut<'_>);

    /// Runs a program. Allocates nothing.
    fn run(&mut self, program: usize);

    /// Bytes of the arena, from its start, that the nodes run so far were given.
    fn used_bytes(&self) -> usize;

    /// What the nodes of all runs so far took, by kind, the longest first.
    fn times(&self) -> Vec<OpTime>;
}
