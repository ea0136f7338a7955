//! Plans that were made before: each set of programs is planned once for a goal.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::{Mutex, PoisonError};

use plimsoll_graph::{Node, Program, TensorId, TensorInfo};

use crate::{Block, Goal, Launch, LoweredNode, Plan, PlanError, Planner, ProgramPlan, VerifiedPlan};

/// The most plans that are remembered: more than planning one run takes.
const MOST: usize = 8;
/// Heap memory that remembered plans may take for each node of the programs that were planned last. The allowance of a process for a
/// node, of which it is a part, is [`Overhead::with_nodes`](plimsoll_memory::Overhead::with_nodes).
const BYTES_PER_NODE: usize = 2048;
/// Nodes that the allowance of any process covers.
const FEW_NODES: usize = 600;

/// The plans that were made last, each with its goal. They take at most [`most_bytes`](Plans::most_bytes) of the heap.
#[derive(Debug, Default)]
pub struct Plans {
    known: Mutex<VecDeque<Known>>,
}

#[derive(Debug)]
struct Known {
    goal: Goal,
    plan: VerifiedPlan,
    bytes: usize,
}

impl Plans {
    /// The plan that a planner makes for a goal; see [`Planner::plan_for`]. One that was made before for the same programs,
    /// lowered in the same way, is returned again.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects the plan.
    pub fn plan(&self, planner: &Planner<'_>, goal: Goal) -> Result<VerifiedPlan, PlanError> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&Known| known.goal == goal && planner.made(&known.plan);
        let known = lock().iter().find(is_it).map(|known| known.plan.clone());
        let (plan, is_new) = match known {
            Some(plan) => (plan, false),
            None => (planner.plan_for(goal)?, true),
        };
        let most = Plans::most_bytes(&plan.programs);
        let mut known = lock();
        if is_new {
            known.push_back(Known { goal, bytes: heap_bytes(&plan), plan: plan.clone() });
        }
        // A run of a small network is not to hold plans of a large one.
        while known.len() > MOST || known.iter().map(|known| known.bytes).sum::<usize>() > most {
            known.pop_front();
        }
        Ok(plan)
    }

    /// The most bytes of the heap that remembered plans take after one of these programs was planned.
    pub fn most_bytes(programs: &[Program]) -> usize {
        let nodes: usize = programs.iter().map(|program| program.nodes.len()).sum();
        BYTES_PER_NODE * nodes.max(FEW_NODES)
    }

    /// The bytes of the heap that remembered plans take.
    pub fn bytes(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|known| known.bytes).sum()
    }
}

/// Bytes of the heap that a plan takes, by its lists.
fn heap_bytes(plan: &Plan) -> usize {
    let programs = plan.programs.iter().map(of_program).sum::<usize>();
    let lowered = plan.lowered.iter().map(|lowered| {
        lowered.bytes.capacity() * size_of::<usize>()
            + lowered.nodes.capacity() * size_of::<LoweredNode>()
            + lowered.nodes.iter().map(of_lowered).sum::<usize>()
    });
    let persistent = plan.persistent.iter().map(|(info, _)| of_tensor(info)).sum::<usize>();
    programs
        + lowered.sum::<usize>()
        + plan.persistent.capacity() * size_of::<(TensorInfo, Block)>()
        + persistent
        + plan.schedules.iter().map(of_schedule).sum::<usize>()
}

/// The average bytes that the allocator adds to a list, rounding included.
const PER_LIST: usize = 16;

fn of_list<T>(list: &Vec<T>) -> usize {
    if list.capacity() == 0 { 0 } else { list.capacity() * size_of::<T>() + PER_LIST }
}

fn of_tensor(info: &TensorInfo) -> usize {
    info.name.capacity() + PER_LIST + of_list(&info.shape.0)
}

fn of_program(program: &Program) -> usize {
    let nodes = program.nodes.iter().map(|node| of_list(&node.inputs) + of_list(&node.outputs));
    program.tensors.capacity() * size_of::<TensorInfo>()
        + program.tensors.iter().map(of_tensor).sum::<usize>()
        + program.nodes.capacity() * size_of::<Node>()
        + nodes.sum::<usize>()
}

fn of_lowered(node: &LoweredNode) -> usize {
    node.name.capacity()
        + PER_LIST
        + of_list(&node.covers)
        + of_list(&node.inputs)
        + of_list(&node.outputs)
        + of_list(&node.in_place)
}

fn of_schedule(schedule: &ProgramPlan) -> usize {
    let launches = schedule.launches.iter().map(|launch| of_list(&launch.inputs) + of_list(&launch.outputs));
    schedule.launches.capacity() * size_of::<Launch>()
        + launches.sum::<usize>()
        + schedule.copies.capacity() * size_of::<TensorId>()
        + schedule.places.capacity() * size_of::<Option<Block>>()
}
