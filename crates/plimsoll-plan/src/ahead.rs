//! Runs that begin before the last one has ended, on a device that copies while it computes.
//!
//! The inputs of the next run are copied to memory beside the arena while the last run still computes, since their places in the arena are
//! used by it. When the next run begins, the device moves them to their places. Results are copied by the device when a run ends, so that the next
//! run may begin before anyone has read them.

use plimsoll_graph::{Program, Role, TensorId};

use crate::{EngineError, HostSlice, ProgramId};

/// Inputs begin at multiples of this, as tensors of an arena do on every device.
const ALIGNMENT: usize = 256;

/// Runs of programs that the caller does not wait for. At most two are under way at a time, and they run in their order. A run has two parts: all that changes nothing but
/// values of its own, and the rest from the first launch on that changes what outlives it. The second part may depend on results of the run before.
pub trait RunsAhead {
    /// Copies values of an input for the next run of a program, while earlier runs may still compute.
    ///
    /// # Errors
    /// Returns an error if the tensor is no input of the program, or the values are not all of it or of another type.
    fn write_ahead(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError>;

    /// Begins to run a program with the inputs that were written ahead: its first part.
    ///
    /// # Errors
    /// Returns an error if another run has begun whose second part has not, or the device fails.
    fn begin(&mut self, program: ProgramId) -> Result<(), EngineError>;

    /// Begins the second part of the run that has begun. At its end the f32 tensors `results` are copied, to be read by
    /// [`finish`](RunsAhead::finish).
    ///
    /// # Errors
    /// Returns an error if none has begun, two whole runs are under way, the results are too many, or the device fails.
    fn commit(&mut self, results: &[TensorId]) -> Result<(), EngineError>;

    /// Waits for the end of the first of the whole runs that are under way, and reads its results one behind the other.
    ///
    /// # Errors
    /// Returns an error if none is under way, there are other numbers of results, or a kernel of the run has failed.
    fn finish(&mut self, results: &mut [f32]) -> Result<(), EngineError>;

    /// Ends all runs that are under way and drops their results, and what was written ahead. A run of which only the first part has begun has changed nothing.
    ///
    /// # Errors
    /// Returns an error if a kernel of them has failed.
    fn abandon(&mut self) -> Result<(), EngineError>;
}

/// The inputs of a program, each with the offset at which its next values wait beside the arena; in the order of the program's tensors.
pub fn ahead_places(program: &Program) -> impl Iterator<Item = (TensorId, usize)> + '_ {
    let mut end = 0usize;
    program.with_role(Role::Input).map(move |id| {
        let tensor = program.tensor(id);
        let bytes = tensor.shape.count().saturating_mul(tensor.dtype.bytes());
        let begins = end;
        end = end.saturating_add(bytes).saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        (id, begins)
    })
}

/// The bytes that the next inputs of one of some programs take beside an arena.
pub fn ahead_bytes<'a>(programs: impl IntoIterator<Item = &'a Program>) -> usize {
    let of_program = |program: &Program| {
        let last = ahead_places(program).last();
        last.map_or(0, |(id, begins)| {
            let tensor = program.tensor(id);
            begins.saturating_add(tensor.shape.count().saturating_mul(tensor.dtype.bytes()))
        })
    };
    programs.into_iter().map(of_program).max().unwrap_or(0)
}
