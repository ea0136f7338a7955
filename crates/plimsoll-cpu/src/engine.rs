//! The arena, and the engine that runs planned programs over it.

use std::time::{Duration, Instant};

use plimsoll_graph::{DType, Role, TensorId};
use plimsoll_memory::{MapError, Mapped, Reservation, watch_this_thread};
use plimsoll_plan::{Block, Engine, HostSlice, HostSliceMut, OpTime, Plan};

use crate::blocks::{is_stored_as_given, stored_bytes, stored_places};
use crate::kernel::{Machine, Ptr};
use crate::nodes::{self, Context, Memory, Step};
use crate::pool::Pool;
use crate::simd::{Bf16, Level};

/// Why a plan cannot be made ready to run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The arena does not fit its reservation, or the system refuses it.
    #[error("the arena cannot be allocated")]
    Arena(#[from] MapError),
    /// The system refuses a thread.
    #[error("a thread for kernels cannot be started")]
    Thread(#[from] std::io::Error),
}

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads, the caller's among them; the plan must be made for as many.
    pub threads: usize,
    /// The instruction set.
    pub level: Level,
    /// For tests: what no node has written yet, and after each node what nobody will read again, is NaN.
    pub poison: bool,
}

impl CpuOptions {
    /// As many threads, and the machine's best instruction set.
    pub fn new(threads: usize) -> CpuOptions {
        CpuOptions { threads, level: Level::from_environment(), poison: false }
    }
}

/// A plan over an arena.
pub struct CpuEngine {
    /// Dropped before the arena that they point into.
    programs: Vec<Vec<Prepared>>,
    machine: Machine,
    plan: Plan,
    arena: Mapped<u8>,
    base: Ptr<u8>,
    used: usize,
    poison: bool,
}

/// All bits set is a NaN in every float format.
const POISON: u8 = 0xff;

struct Prepared {
    step: Box<dyn Step>,
    /// The end of the highest place that the node is given.
    end: usize,
    /// What nobody reads after the node, for the poison mode.
    dead: Vec<Block>,
    /// How often it was run, how long that took, and the least that one run took.
    runs: u64,
    time: Duration,
    least: Duration,
}

impl CpuEngine {
    /// Allocates the arena inside a reservation, zeroed, and prepares every kernel.
    ///
    /// # Errors
    /// If the reservation is too small, or the system refuses memory or threads.
    pub fn new(plan: Plan, reservation: Reservation, options: CpuOptions) -> Result<CpuEngine, EngineError> {
        let mut arena = Mapped::<u8>::within(reservation, plan.arena_bytes)?;
        if options.poison {
            arena[plan.persistent_bytes()..].fill(POISON);
        }
        let machine = Machine { pool: Pool::new(options.threads)?, level: options.level };
        let base = Ptr(arena.as_mut_ptr());
        let programs = (0..plan.programs.len())
            .map(|program| prepare(&plan, program, base, &machine, options.poison))
            .collect();
        Ok(CpuEngine { programs, machine, plan, arena, base, used: 0, poison: options.poison })
    }

    /// What each node of a program is, and the seconds that it took when it was fastest; a program that was never run took
    /// for ever.
    pub fn least_times(&self, program: usize) -> impl Iterator<Item = (String, f64)> {
        let nodes = &self.plan.programs[program].program;
        self.programs[program].iter().zip(&nodes.nodes).map(|(prepared, node)| {
            let result = node.outputs.first().map(|id| nodes.tensor(*id));
            let what = result.map(|tensor| format!("{} {}", tensor.name, tensor.shape)).unwrap_or_default();
            (format!("{} {what}", node.op.rule().name()), prepared.least.as_secs_f64())
        })
    }

    /// The plan that this runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

fn prepare(plan: &Plan, program: usize, base: Ptr<u8>, machine: &Machine, poison: bool) -> Vec<Prepared> {
    let plan = &plan.programs[program];
    let threads = machine.pool.threads();
    plan.program
        .nodes
        .iter()
        .zip(&plan.scratch)
        .enumerate()
        .map(|(at, (node, scratch))| {
            let cx = Context { program: &plan.program, node, threads };
            let memory = Memory { base, plan, scratch: *scratch };
            let places = node.inputs.iter().chain(&node.outputs).filter_map(|id| plan.places[id.index()]);
            let end = places.map(|place| place.end()).chain([scratch.end()]).max().unwrap_or(0);
            let dead = if poison { dead_after(plan, at) } else { Vec::new() };
            let step = nodes::bind(&cx, &memory);
            Prepared { step, end, dead, runs: 0, time: Duration::ZERO, least: Duration::MAX }
        })
        .collect()
}

/// The places of what node `at` is the last to touch, less what is alive in the same bytes.
fn dead_after(plan: &plimsoll_plan::ProgramPlan, at: usize) -> Vec<Block> {
    let program = &plan.program;
    let node = &program.nodes[at];
    let touched_later = |id: &TensorId| {
        let role = program.tensor(*id).role;
        role.is_persistent()
            || role == Role::Output
            || program.nodes[at + 1..]
                .iter()
                .any(|node| node.inputs.contains(id) || node.outputs.contains(id))
    };
    let alive: Vec<Block> = node
        .inputs
        .iter()
        .chain(&node.outputs)
        .filter(|id| touched_later(id))
        .filter_map(|id| plan.places[id.index()])
        .collect();
    let ended = node.inputs.iter().chain(&node.outputs).filter(|id| !touched_later(id));
    ended
        .filter_map(|id| plan.places[id.index()])
        .chain([plan.scratch[at]])
        .filter(|block| !alive.iter().any(|alive| alive.meets(block)))
        .collect()
}

#[allow(clippy::panic, reason = "the trait asks for it: a caller that mixes up tensors of one plan")]
impl Engine for CpuEngine {
    fn describe(&self) -> String {
        format!("CPU, {}, {} threads", self.machine.level, self.machine.pool.threads())
    }

    fn write(&mut self, program: usize, tensor: TensorId, values: HostSlice<'_>) {
        let info = self.plan.programs[program].program.tensor(tensor);
        let place = self.plan.place(program, tensor).unwrap_or_default();
        let bytes = &mut self.arena[place.offset..place.offset + stored_bytes(info)];
        match (values, info.dtype) {
            (HostSlice::U8(values), DType::U8) => bytes.copy_from_slice(values),
            (HostSlice::F32(values), DType::F32) => {
                assert_eq!(values.len(), info.shape.count(), "values for another tensor");
                let stored = bytemuck::cast_slice_mut::<u8, f32>(bytes);
                if is_stored_as_given(info) {
                    stored.copy_from_slice(values);
                    return;
                }
                stored.fill(0.0);
                for (place, value) in stored_places(info).zip(values) {
                    stored[place] = *value;
                }
            }
            (HostSlice::F32(values), DType::Bf16) => {
                assert_eq!(values.len(), info.shape.count(), "values for another tensor");
                let stored = bytemuck::cast_slice_mut::<u8, u16>(bytes);
                stored.fill(0);
                for (place, value) in stored_places(info).zip(values) {
                    stored[place] = Bf16::from_f32(*value).0;
                }
            }
            _ => panic!("values of another type than the tensor's"),
        }
    }

    fn read(&self, program: usize, tensor: TensorId, values: HostSliceMut<'_>) {
        let info = self.plan.programs[program].program.tensor(tensor);
        let place = self.plan.place(program, tensor).unwrap_or_default();
        let bytes = &self.arena[place.offset..place.offset + stored_bytes(info)];
        match (values, info.dtype) {
            (HostSliceMut::U8(values), DType::U8) => values.copy_from_slice(bytes),
            (HostSliceMut::F32(values), DType::F32) => {
                assert_eq!(values.len(), info.shape.count(), "room for another tensor");
                let stored = bytemuck::cast_slice::<u8, f32>(bytes);
                if is_stored_as_given(info) {
                    values.copy_from_slice(stored);
                    return;
                }
                for (place, value) in stored_places(info).zip(values) {
                    *value = stored[place];
                }
            }
            (HostSliceMut::F32(values), DType::Bf16) => {
                assert_eq!(values.len(), info.shape.count(), "room for another tensor");
                let stored = bytemuck::cast_slice::<u8, u16>(bytes);
                for (place, value) in stored_places(info).zip(values) {
                    *value = Bf16(stored[place]).to_f32();
                }
            }
            _ => panic!("values of another type than the tensor's"),
        }
    }

    fn run(&mut self, program: usize) {
        let _watch = watch_this_thread();
        for prepared in &mut self.programs[program] {
            let start = Instant::now();
            // SAFETY: steps point into `arena`, which lives as long as `self` and is mapped at one address; `&mut self` keeps
            // everybody else out of it. The plan was verified, so a node's kernels overwrite nothing that is still needed.
            unsafe { prepared.step.run(&self.machine) };
            prepared.runs += 1;
            let time = start.elapsed();
            prepared.time += time;
            prepared.least = prepared.least.min(time);
            self.used = self.used.max(prepared.end);
            if self.poison {
                for block in &prepared.dead {
                    // SAFETY: places are inside the arena.
                    unsafe { std::ptr::write_bytes(self.base.0.add(block.offset), POISON, block.bytes) };
                }
            }
        }
    }

    fn used_bytes(&self) -> usize {
        self.used
    }

    fn times(&self) -> Vec<OpTime> {
        let mut times: Vec<OpTime> = Vec::new();
        for (nodes, plan) in self.programs.iter().zip(&self.plan.programs) {
            for (prepared, node) in nodes.iter().zip(&plan.program.nodes) {
                let (op, runs, seconds) = (node.op.rule().name(), prepared.runs, prepared.time.as_secs_f64());
                match times.iter_mut().find(|known| known.op == op) {
                    Some(known) => (known.runs, known.seconds) = (known.runs + runs, known.seconds + seconds),
                    None => times.push(OpTime { op, runs, seconds }),
                }
            }
        }
        times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        times
    }
}
