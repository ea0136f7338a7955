//! Runs that begin before the last one has ended.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::PoisonError;

use plimsoll_graph::{DType, TensorId};
use plimsoll_plan::{Engine, EngineError, HostSlice, ProgramId, RunsAhead, ahead_places};

use crate::copies::write_values_ahead;
use crate::device::{KEPT, KEPT_BYTES};
use crate::engine::{BoundProgram, CudaEngine, Part};

/// Inputs that were copied ahead, and runs that are under way.
#[derive(Default)]
pub(crate) struct Ahead {
    written: Vec<Written>,
    /// The program whose first part has begun.
    open: Option<ProgramId>,
    /// The number under which the results of each are kept, and their bytes; the first began first.
    begun: VecDeque<(usize, usize)>,
    /// The number for the next results.
    next: usize,
    /// Room for the addresses of results, so that a run allocates nothing.
    places: Vec<Range<u64>>,
}

/// An input that waits beside the arena.
struct Written {
    program: ProgramId,
    tensor: TensorId,
    from: usize,
    /// Bytes from the start of the arena.
    to: usize,
    bytes: usize,
}

fn internal(fault: &str) -> EngineError {
    EngineError::Internal(fault.into())
}

impl CudaEngine {
    fn ahead(&mut self) -> Result<&mut Ahead, EngineError> {
        self.ahead.as_mut().ok_or_else(|| internal("there is no memory to copy ahead to"))
    }

    fn program(&self, program: ProgramId) -> Result<&BoundProgram, EngineError> {
        self.programs.get(program.index()).ok_or_else(|| EngineError::missing("the program"))
    }

    /// Moves the inputs of a program that were written ahead to their places.
    fn take(&mut self, program: ProgramId) -> Result<(), EngineError> {
        let mut written = std::mem::take(&mut self.ahead()?.written);
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let base = device.base();
        for Written { from, to, bytes, .. } in written.iter().filter(|of| of.program == program) {
            device.take_ahead(*from, base + *to as u64, *bytes)?;
        }
        written.clear();
        self.ahead()?.written = written;
        Ok(())
    }

    /// Returns the addresses of an f32 tensor of a program in an arena that begins at `base`.
    fn result(&self, program: ProgramId, of: TensorId, base: u64) -> Result<Range<u64>, EngineError> {
        let (info, place) = self.plan.stored(program, of)?;
        let start = base + place.offset as u64;
        match info.dtype {
            DType::F32 => Ok(start..start + 4 * info.shape.count() as u64),
            _ => Err(internal("a result is not f32")),
        }
    }
}

impl RunsAhead for CudaEngine {
    fn write_ahead(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        let (info, place) = self.plan.stored_whole(program, tensor, values.extent())?;
        let to = place.offset;
        let place = ahead_places(self.plan.program(program)).find(|(id, _)| *id == tensor);
        let (_, from) = place.ok_or_else(|| internal("a tensor that is no input is written ahead"))?;
        let bytes = info.shape.count() * info.dtype.bytes();
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        write_values_ahead(device, info, from, values)?;
        let written = &mut self.ahead()?.written;
        written.retain(|other| (other.program, other.tensor) != (program, tensor));
        written.push(Written { program, tensor, from, to, bytes });
        Ok(())
    }

    fn begin(&mut self, program: ProgramId) -> Result<(), EngineError> {
        if self.ahead()?.open.is_some() {
            return Err(internal("a run begins before the one before it has done all"));
        }
        // A run that is measured waits for each of its launches, and so is done as a whole later.
        if !self.program(program)?.is_measured() {
            self.take(program)?;
            let bound = self.programs.get(program.index());
            let bound = bound.ok_or_else(|| EngineError::missing("the program"))?;
            let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
            bound.begin(device, Part::First, self.poison)?;
        }
        self.ahead()?.open = Some(program);
        Ok(())
    }

    fn commit(&mut self, results: &[TensorId]) -> Result<(), EngineError> {
        let base = self.device.get_mut().unwrap_or_else(PoisonError::into_inner).base();
        let program = self.ahead()?.open.take().ok_or_else(|| internal("no run has begun"))?;
        let mut places = std::mem::take(&mut self.ahead()?.places);
        places.clear();
        for tensor in results {
            places.push(self.result(program, *tensor, base)?);
        }
        let bytes = places.iter().map(|place| (place.end - place.start) as usize).sum();
        let ahead = self.ahead()?;
        if ahead.begun.len() == KEPT || bytes > KEPT_BYTES {
            return Err(internal("a run begins too early, or has too many results"));
        }
        let number = ahead.next;
        match self.program(program)?.is_measured() {
            // The marks of a run are read before another one sets them.
            true => {
                self.take(program)?;
                self.run(program)?;
            }
            false => {
                let bound = self.programs.get_mut(program.index());
                let bound = bound.ok_or_else(|| EngineError::missing("the program"))?;
                let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
                bound.begin(device, Part::Second, self.poison)?;
                bound.runs += 1;
                self.timings.add_unmeasured(program);
            }
        }
        self.device.get_mut().unwrap_or_else(PoisonError::into_inner).keep(number, &places)?;
        let ahead = self.ahead()?;
        (ahead.places, ahead.next) = (places, (number + 1) % KEPT);
        ahead.begun.push_back((number, bytes));
        Ok(())
    }

    fn finish(&mut self, results: &mut [f32]) -> Result<(), EngineError> {
        let first = self.ahead()?.begun.pop_front();
        let (number, bytes) = first.ok_or_else(|| internal("no run is under way"))?;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let kept = device.kept(number)?.get(..bytes).unwrap_or(&[]);
        let (kept, _) = kept.as_chunks::<4>();
        if kept.len() != results.len() {
            return Err(internal("a run has other results"));
        }
        results.iter_mut().zip(kept).for_each(|(result, bytes)| *result = f32::from_le_bytes(*bytes));
        Ok(())
    }

    fn abandon(&mut self) -> Result<(), EngineError> {
        let ahead = self.ahead()?;
        ahead.written.clear();
        ahead.open = None;
        let begun = std::mem::take(&mut ahead.begun);
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        begun.into_iter().try_for_each(|(number, _)| device.kept(number).map(|_| ()))?;
        Ok(())
    }
}
