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
    let programs = plan.programs.iter().map(program_bytes).sum::<usize>();
    let lowered = plan.lowered.iter().map(|lowered| {
        lowered.bytes.capacity() * size_of::<usize>()
            + lowered.nodes.capacity() * size_of::<LoweredNode>()
            + lowered.nodes.iter().map(lowered_bytes).sum::<usize>()
    });
    let persistent = plan.persistent.iter().map(|(info, _)| tensor_bytes(info)).sum::<usize>();
    programs
        + lowered.sum::<usize>()
        + plan.persistent.capacity() * size_of::<(TensorInfo, Block)>()
        + persistent
        + plan.schedules.iter().map(schedule_bytes).sum::<usize>()
}

/// The average bytes that the allocator adds to a list, rounding included.
const PER_LIST: usize = 16;

fn list_bytes<T>(list: &Vec<T>) -> usize {
    if list.capacity() == 0 { 0 } else { list.capacity() * size_of::<T>() + PER_LIST }
}

fn tensor_bytes(info: &TensorInfo) -> usize {
    info.name.capacity() + PER_LIST + list_bytes(&info.shape.0)
}

fn program_bytes(program: &Program) -> usize {
    let nodes = program.nodes.iter().map(|node| list_bytes(&node.inputs) + list_bytes(&node.outputs));
    program.tensors.capacity() * size_of::<TensorInfo>()
        + program.tensors.iter().map(tensor_bytes).sum::<usize>()
        + program.nodes.capacity() * size_of::<Node>()
        + nodes.sum::<usize>()
}

fn lowered_bytes(node: &LoweredNode) -> usize {
    node.name.capacity()
        + PER_LIST
        + list_bytes(&node.covers)
        + list_bytes(&node.inputs)
        + list_bytes(&node.outputs)
        + list_bytes(&node.in_place)
}

fn schedule_bytes(schedule: &ProgramPlan) -> usize {
    let launches =
        schedule.launches.iter().map(|launch| list_bytes(&launch.inputs) + list_bytes(&launch.outputs));
    schedule.launches.capacity() * size_of::<Launch>()
        + launches.sum::<usize>()
        + schedule.copies.capacity() * size_of::<TensorId>()
        + schedule.places.capacity() * size_of::<Option<Block>>()
}
