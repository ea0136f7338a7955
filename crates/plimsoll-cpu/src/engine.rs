//! The arena, and the engine that runs planned programs over it.

use std::cell::Cell;

use plimsoll_graph::{DType, Role, TensorId, TensorInfo};
use plimsoll_memory::{MapError, Mapped, Reservation, watch_this_thread};
use plimsoll_plan::{Block, Engine, HostSlice, HostSliceMut, Plan};

use crate::blocks::{stored_bytes, stored_places};
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
    used: Cell<usize>,
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
        Ok(CpuEngine { programs, machine, plan, arena, base, used: Cell::new(0), poison: options.poison })
    }

    /// The plan that this runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn info(&self, program: usize, tensor: TensorId) -> (&TensorInfo, Block) {
        let info = self.plan.programs[program].program.tensor(tensor);
        let place = self.plan.place(program, tensor).unwrap_or_default();
        (info, Block { bytes: stored_bytes(info).min(place.bytes), ..place })
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
            Prepared { step: nodes::bind(&cx, &memory), end, dead }
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

impl Engine for CpuEngine {
    fn describe(&self) -> String {
        format!("CPU, {}, {} threads", self.machine.level, self.machine.pool.threads())
    }

    fn write(&mut self, program: usize, tensor: TensorId, values: HostSlice<'_>) {
        let (info, place) = self.info(program, tensor);
        let (places, dtype, count) = (stored_places(info), info.dtype, info.shape.count());
        let bytes = &mut self.arena[place.offset..place.end()];
        match values {
            HostSlice::U8(values) => {
                assert!(values.len() == count && dtype == DType::U8, "values for another tensor");
                bytes.copy_from_slice(values);
            }
            HostSlice::F32(values) => {
                assert!(values.len() == count && dtype != DType::U8, "values for another tensor");
                bytes.fill(0);
                for (place, value) in places.zip(values) {
                    match dtype {
                        DType::Bf16 => {
                            let half = Bf16::from_f32(*value).0.to_ne_bytes();
                            bytes[2 * place..][..2].copy_from_slice(&half);
                        }
                        _ => bytes[4 * place..][..4].copy_from_slice(&value.to_ne_bytes()),
                    }
                }
            }
        }
    }

    fn read(&self, program: usize, tensor: TensorId, values: HostSliceMut<'_>) {
        let (info, place) = self.info(program, tensor);
        let bytes = &self.arena[place.offset..place.end()];
        match values {
            HostSliceMut::U8(values) => {
                assert!(values.len() == info.shape.count() && info.dtype == DType::U8, "another tensor");
                values.copy_from_slice(bytes);
            }
            HostSliceMut::F32(values) => {
                assert!(values.len() == info.shape.count() && info.dtype != DType::U8, "another tensor");
                for (place, value) in stored_places(info).zip(values) {
                    *value = match info.dtype {
                        DType::Bf16 => {
                            Bf16(u16::from_ne_bytes([bytes[2 * place], bytes[2 * place + 1]])).to_f32()
                        }
                        _ => {
                            let mut word = [0; 4];
                            word.copy_from_slice(&bytes[4 * place..][..4]);
                            f32::from_ne_bytes(word)
                        }
                    };
                }
            }
        }
    }

    fn run(&mut self, program: usize) {
        let _watch = watch_this_thread();
        for prepared in &self.programs[program] {
            // SAFETY: steps point into `arena`, which lives as long as `self` and is mapped at one address; `&mut self` keeps
            // everybody else out of it. The plan was verified, so a node's kernels overwrite nothing that is still needed.
            unsafe { prepared.step.run(&self.machine) };
            self.used.set(self.used.get().max(prepared.end));
            if self.poison {
                for block in &prepared.dead {
                    // SAFETY: places are inside the arena.
                    unsafe { std::ptr::write_bytes(self.base.0.add(block.offset), POISON, block.bytes) };
                }
            }
        }
    }

    fn used_bytes(&self) -> usize {
        self.used.get()
    }
}
