//! The arena, and the engine that evaluates nodes over it.

use std::ops::Range;
use std::time::Instant;

use plimsoll_graph::{Array, DType, Shape, TensorId};
use plimsoll_memory::{Mapped, Reservation};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId, Timings, VerifiedPlan};

use crate::bind::{BoundLaunch, Stored, bind, elements};
use crate::lower::ELEMENT;

/// A plan over an arena of f64.
pub(crate) struct ReferenceEngine {
    plan: VerifiedPlan,
    arena: Mapped<f64>,
    programs: Vec<Vec<BoundLaunch>>,
    timings: Timings,
    poison: bool,
    /// The end of the highest place that was used, in bytes.
    used: usize,
}

impl ReferenceEngine {
    /// Allocates the arena inside a reservation, zeroed.
    pub(crate) fn new(
        plan: VerifiedPlan,
        reservation: Reservation,
        poison: bool,
    ) -> Result<ReferenceEngine, EngineError> {
        let programs = plan.ids().map(|id| bind(&plan, id)).collect::<Result<_, EngineError>>()?;
        let mut arena = Mapped::<f64>::within(reservation, plan.arena_bytes.div_ceil(ELEMENT))?;
        if poison && let Some(above) = arena.get_mut(plan.persistent_bytes() / ELEMENT..) {
            above.fill(f64::NAN);
        }
        let timings = Timings::new(&plan);
        Ok(ReferenceEngine { programs, timings, plan, arena, poison, used: 0 })
    }

    /// The elements of a tensor of a program in the arena.
    ///
    /// # Errors
    /// If it has none, or so many values of this type from `first` on are not within it. All floats are stored as f64, and can be given so.
    fn tensor(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        count: usize,
        dtype: DType,
    ) -> Result<Range<usize>, EngineError> {
        let (info, place) = self.plan.stored(program, tensor)?;
        let fits = match info.dtype {
            DType::F32 | DType::Bf16 | DType::F16 => dtype == DType::F32 || dtype == DType::F64,
            DType::F64 | DType::U8 => dtype == info.dtype,
        };
        let end = first.saturating_add(count);
        if !fits || end > info.shape.count() {
            return Err(EngineError::values(self.plan.program(program), info, count, dtype));
        }
        let all = elements(place, end);
        Ok(all.start + first..all.end)
    }
}

/// The place of an element or of several is beyond the arena, which the verifier has excluded.
fn outside() -> EngineError {
    EngineError::Internal("a place is outside of the arena".into())
}

impl BoundLaunch {
    /// Evaluates the node on what is in the arena.
    fn run(&self, arena: &mut [f64]) -> Result<(), EngineError> {
        let load = |stored: &Stored| {
            let data = arena.get(stored.elements.clone()).ok_or_else(outside)?.to_vec();
            Ok(Array { shape: stored.shape.clone(), data })
        };
        let operands = self.inputs.iter().map(load).collect::<Result<Vec<Array>, EngineError>>()?;
        let operands: Vec<&Array> = operands.iter().collect();
        let shapes: Vec<Shape> = self.outputs.iter().map(|stored| stored.shape.clone()).collect();
        let results = self.op.rule().evaluate(&operands, &shapes);
        if results.len() != self.outputs.len() {
            let (op, found) = (self.op.rule().name(), results.len());
            return Err(EngineError::Internal(format!("{op} has made {found} results")));
        }
        for (stored, result) in self.outputs.iter().zip(results) {
            let place = arena.get_mut(stored.elements.clone()).ok_or_else(outside)?;
            if place.len() != result.data.len() {
                let (op, found) = (self.op.rule().name(), result.shape);
                return Err(EngineError::Internal(format!("{op} has made {found} of {}", stored.shape)));
            }
            place.copy_from_slice(&result.data);
        }
        Ok(())
    }
}

impl Engine for ReferenceEngine {
    fn plan(&self) -> &VerifiedPlan {
        &self.plan
    }

    fn write_at(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        let (count, dtype) = values.extent();
        let range = self.tensor(program, tensor, first, count, dtype)?;
        let stored = self.arena.get_mut(range).ok_or_else(outside)?.iter_mut();
        match values {
            HostSlice::F32(values) => stored.zip(values).for_each(|(to, from)| *to = f64::from(*from)),
            HostSlice::F64(values) => stored.zip(values).for_each(|(to, from)| *to = *from),
            HostSlice::U8(values) => stored.zip(values).for_each(|(to, from)| *to = f64::from(*from)),
        }
        Ok(())
    }

    fn clear(&mut self, program: ProgramId, tensor: TensorId) -> Result<(), EngineError> {
        let (info, place) = self.plan.stored(program, tensor)?;
        let range = elements(place, info.shape.count());
        self.arena.get_mut(range).ok_or_else(outside)?.fill(0.0);
        Ok(())
    }

    fn read_from(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSliceMut<'_>,
    ) -> Result<(), EngineError> {
        let (count, dtype) = values.extent();
        let range = self.tensor(program, tensor, first, count, dtype)?;
        let stored = self.arena.get(range).ok_or_else(outside)?;
        match values {
            HostSliceMut::F32(values) => {
                values.iter_mut().zip(stored).for_each(|(to, from)| *to = *from as f32);
            }
            HostSliceMut::F64(values) => values.copy_from_slice(stored),
            HostSliceMut::U8(values) => {
                values.iter_mut().zip(stored).for_each(|(to, from)| *to = *from as u8);
            }
        }
        Ok(())
    }

    fn run_launches(&mut self, program: ProgramId, launches: Range<usize>) -> Result<(), EngineError> {
        let bound = self.programs.get(program.index()).ok_or_else(|| EngineError::missing("the program"))?;
        let bound = bound.get(launches.clone()).ok_or_else(|| EngineError::missing("a launch"))?;
        for (at, launch) in launches.zip(bound) {
            let start = Instant::now();
            launch.run(&mut self.arena)?;
            self.timings.add(program, at, start.elapsed());
            self.used = self.used.max(launch.end);
            for dead in launch.dead.iter().filter(|_| self.poison) {
                self.arena.get_mut(dead.clone()).ok_or_else(outside)?.fill(f64::NAN);
            }
        }
        Ok(())
    }

    fn used_bytes(&self) -> usize {
        self.used
    }

    fn timings(&self) -> &Timings {
        &self.timings
    }
}
