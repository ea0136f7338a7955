//! The arena, and the engine that runs planned programs over it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_graph::{DType, TensorId, TensorInfo};
use plimsoll_memory::{Mapped, Reservation};
use plimsoll_parallel::{Pool, TaskLog};
use plimsoll_plan::{
    Block, Engine, EngineError, HostSlice, HostSliceMut, HostView, Launch, ProgramId, ProgramPlan, Timings,
    VerifiedPlan,
};

use crate::kernel::{Machine, Ptr};
use crate::layout::{Layout, Run};
use crate::lower::{ALIGNMENT, BoundNode, Places};
use crate::lowered::{CpuNode, CpuProgram};
use crate::options::CpuOptions;
use crate::simd::Bf16;

/// A plan over an arena.
pub(crate) struct CpuEngine {
    /// Dropped before the arena that they point into.
    programs: Vec<BoundProgram>,
    machine: Machine,
    timings: Timings,
    plan: VerifiedPlan,
    arena: Mapped<u8>,
    base: Ptr<u8>,
    used: usize,
    poison: bool,
    /// The log of the tasks of launches, if they are logged.
    log: Option<Arc<TaskLog>>,
}

/// A program whose kernels are bound to the arena.
struct BoundProgram {
    layouts: Vec<Layout>,
    launches: Vec<BoundLaunch>,
}

/// All bits set is a NaN in every float format.
const POISON: u8 = 0xff;

struct BoundLaunch {
    node: Box<dyn BoundNode>,
    /// The end of the highest place that it is given.
    end: usize,
    /// The places that no later launch reads, for the poison mode.
    dead: Vec<Block>,
}

impl CpuEngine {
    /// Allocates the arena inside a reservation, zeroed, and binds every kernel of the plan's lowered programs. With a log all
    /// runs on one thread, and what each task takes is logged.
    pub(crate) fn new(
        options: CpuOptions,
        lowered: Vec<CpuProgram>,
        plan: VerifiedPlan,
        reservation: Reservation,
        log: Option<Arc<TaskLog>>,
    ) -> Result<CpuEngine, EngineError> {
        let mut arena = Mapped::<u8>::within(reservation, plan.arena_bytes)?;
        if options.poison {
            arena[plan.persistent_bytes()..].fill(POISON);
        }
        let pool = match &log {
            Some(log) => Pool::logged(Arc::clone(log)),
            None => Pool::new(options.threads)?,
        };
        let machine = Machine { pool, level: options.level };
        let base = Ptr(arena.start());
        let mut programs = Vec::with_capacity(lowered.len());
        for (program, lowered) in plan.ids().zip(lowered) {
            let schedule = plan.schedule(program);
            let mut launches = Vec::with_capacity(schedule.launches.len());
            for (at, launch) in schedule.launches.iter().enumerate() {
                let node =
                    lowered.nodes.get(launch.node).ok_or_else(|| EngineError::missing("a lowered node"))?;
                let dead = if options.poison { plan.dead_after(program, at) } else { Vec::new() };
                launches.push(bind(schedule, launch, node, base, dead)?);
            }
            programs.push(BoundProgram { layouts: lowered.layouts, launches });
        }
        let timings = Timings::new(&plan);
        let poison = options.poison;
        Ok(CpuEngine { programs, machine, timings, plan, arena, base, used: 0, poison, log })
    }

    /// A tensor of a program, its layout, and its bytes in the arena.
    ///
    /// # Errors
    /// Returns an error if the tensor has no memory, or lacks some of these values of this type from `first` on.
    fn tensor(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        count: usize,
        dtype: DType,
    ) -> Result<(&TensorInfo, &Layout, Range<usize>), EngineError> {
        let (info, place) = self.plan.stored(program, tensor)?;
        let fits = dtype == info.dtype || (dtype, info.dtype) == (DType::F32, DType::Bf16);
        if !fits || first.saturating_add(count) > info.shape.count() {
            return Err(EngineError::values(self.plan.program(program), info, count, dtype));
        }
        let bound = self.programs.get(program.index()).ok_or_else(|| EngineError::missing("the program"))?;
        let layout = bound.layouts.get(tensor.index()).ok_or_else(|| EngineError::missing("the layout"))?;
        Ok((info, layout, place.offset..place.offset + layout.bytes(info)))
    }
}

/// Binds the kernels of a launch to its places.
fn bind(
    schedule: &ProgramPlan,
    launch: &Launch,
    node: &CpuNode,
    base: Ptr<u8>,
    dead: Vec<Block>,
) -> Result<BoundLaunch, EngineError> {
    let place =
        |id: &TensorId| schedule.place(*id).ok_or_else(|| EngineError::missing("the place of a tensor"));
    let blocks = |ids: &[TensorId]| ids.iter().map(place).collect::<Result<Vec<Block>, EngineError>>();
    let (inputs, outputs) = (blocks(&launch.inputs)?, blocks(&launch.outputs)?);
    let mut offset = launch.scratch.offset;
    let scratch = node.scratch.iter().map(|bytes| {
        let piece = offset;
        offset += bytes.next_multiple_of(ALIGNMENT);
        piece
    });
    let scratch = scratch.collect();
    if offset > launch.scratch.end() {
        return Err(EngineError::Internal(format!("the scratch of {} does not fit", node.lowered.name)));
    }
    let ends = inputs.iter().chain(&outputs).map(Block::end);
    let end = ends.fold(launch.scratch.end(), usize::max);
    let offsets = |blocks: &[Block]| blocks.iter().map(|block| block.offset).collect();
    let places = Places { base, inputs: offsets(&inputs), outputs: offsets(&outputs), scratch };
    let node = (node.bind)(&places);
    Ok(BoundLaunch { node, end, dead })
}

/// Stores values, which follow each other in the logical order of a tensor's shape, in its layout.
fn store<T: Copy>(
    layout: &Layout,
    info: &TensorInfo,
    elements: Range<usize>,
    values: &[f32],
    stored: &mut [T],
    convert: impl Fn(f32) -> T,
) {
    layout.each_run(info, elements, |Run { first, place, stride, count }| {
        let to = stored[place..].iter_mut().step_by(stride);
        to.zip(&values[first..first + count]).for_each(|(to, value)| *to = convert(*value));
    });
}

/// Loads values, which follow each other in the logical order of a tensor's shape, from its layout.
fn load<T: Copy>(
    layout: &Layout,
    info: &TensorInfo,
    elements: Range<usize>,
    values: &mut [f32],
    stored: &[T],
    convert: impl Fn(T) -> f32,
) {
    layout.each_run(info, elements, |Run { first, place, stride, count }| {
        let from = stored[place..].iter().step_by(stride);
        values[first..first + count].iter_mut().zip(from).for_each(|(value, from)| *value = convert(*from));
    });
}

impl Engine for CpuEngine {
    fn plan(&self) -> &VerifiedPlan {
        &self.plan
    }

    fn write(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        self.plan.stored_whole(program, tensor, values.extent())?;
        // Padding is zero.
        self.clear(program, tensor)?;
        self.write_at(program, tensor, 0, values)
    }

    fn write_at(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        let (count, dtype) = values.extent();
        let (_, _, range) = self.tensor(program, tensor, first, count, dtype)?;
        // The layouts are borrowed beside the arena.
        let info = &self.plan.program(program).tensors[tensor.index()];
        let layout = &self.programs[program.index()].layouts[tensor.index()];
        let bytes = &mut self.arena[range];
        let wanted = first..first + count;
        match values {
            HostSlice::U8(values) => bytes[wanted].copy_from_slice(values),
            HostSlice::F64(values) => {
                bytemuck::cast_slice_mut::<u8, f64>(bytes)[wanted].copy_from_slice(values);
            }
            HostSlice::F32(values) if info.dtype == DType::F32 => {
                let stored = bytemuck::cast_slice_mut(bytes);
                store(layout, info, wanted, values, stored, |value| value);
            }
            HostSlice::F32(values) => {
                let stored = bytemuck::cast_slice_mut(bytes);
                store(layout, info, wanted, values, stored, |value| Bf16::from_f32(value).0);
            }
        }
        Ok(())
    }

    fn clear(&mut self, program: ProgramId, tensor: TensorId) -> Result<(), EngineError> {
        let (stored, _) = self.plan.stored(program, tensor)?;
        let (_, _, range) = self.tensor(program, tensor, 0, 0, stored.dtype)?;
        self.arena[range].fill(0);
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
        let (info, layout, range) = self.tensor(program, tensor, first, count, dtype)?;
        let bytes = &self.arena[range];
        let wanted = first..first + count;
        match values {
            HostSliceMut::U8(values) => values.copy_from_slice(&bytes[wanted]),
            HostSliceMut::F64(values) => values.copy_from_slice(&bytemuck::cast_slice(bytes)[wanted]),
            HostSliceMut::F32(values) if info.dtype == DType::F32 => {
                load(layout, info, wanted, values, bytemuck::cast_slice(bytes), |value| value);
            }
            HostSliceMut::F32(values) => {
                let stored = bytemuck::cast_slice(bytes);
                load(layout, info, wanted, values, stored, |value| Bf16(value).to_f32());
            }
        }
        Ok(())
    }

    fn view(&self, program: ProgramId, tensor: TensorId) -> Result<Option<HostView<'_>>, EngineError> {
        let (stored, _) = self.plan.stored(program, tensor)?;
        let (info, layout, range) = self.tensor(program, tensor, 0, 0, stored.dtype)?;
        let bytes = &self.arena[range];
        Ok(match (layout, info.dtype) {
            (Layout::Given, DType::F32) => Some(HostView::F32(bytemuck::cast_slice(bytes))),
            (Layout::Given, DType::Bf16) => Some(HostView::Bf16(bytemuck::cast_slice(bytes))),
            _ => None,
        })
    }

    fn run_launches(&mut self, program: ProgramId, launches: Range<usize>) -> Result<(), EngineError> {
        let bound =
            self.programs.get_mut(program.index()).ok_or_else(|| EngineError::missing("the program"))?;
        let bound = bound.launches.get_mut(launches.clone());
        let bound = bound.ok_or_else(|| EngineError::missing("a launch"))?;
        for (at, launch) in launches.zip(bound) {
            if let Some(log) = &self.log {
                log.begin(at);
            }
            let start = Instant::now();
            // SAFETY: nodes point into `arena`, which lives as long as `self` and is mapped at one address; `&mut self` keeps
            // everybody else out of it. The plan was verified, so a node's kernels overwrite nothing that is still needed.
            unsafe { launch.node.run(&self.machine) };
            self.timings.add(program, at, start.elapsed());
            if let Some(log) = &self.log {
                log.end();
            }
            self.used = self.used.max(launch.end);
            if self.poison {
                for block in &launch.dead {
                    // SAFETY: the verifier has found all places to be inside the arena.
                    unsafe { std::ptr::write_bytes(self.base.0.add(block.offset), POISON, block.bytes) };
                }
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
