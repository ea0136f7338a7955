//! Why a value is where it is: kept, never stored, or recomputed.

use plimsoll_graph::TensorId;
use serde::{Deserialize, Serialize};

use crate::liveness::{Flow, Span};
use crate::{LoweredNode, Plan, ProgramId};

/// The fate of a value in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// A parameter or a state: it has its place for good.
    Persistent,
    /// Held from the launch that makes it to the last that reads it.
    Kept,
    /// Never stored as a whole: kernels that need it compute it for themselves, while they load or in tiles.
    Fused,
    /// Freed, and recomputed.
    Recomputed,
    /// No kernel of the plan makes or reads it.
    Unused,
}

/// A kernel that computes a value, perhaps with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Maker {
    /// The kind of kernel.
    pub kernel: String,
    /// Its operations.
    pub flops: u64,
    /// Its predicted time.
    pub seconds: f64,
}

/// The fate of a value in a plan, with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its name.
    pub tensor: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The bytes it takes if it is stored.
    pub bytes: usize,
    /// Its fate.
    pub fate: Fate,
    /// The first and the last launch of each stretch during which it is in memory; launches are counted from 0.
    pub held: Vec<(usize, usize)>,
    /// Launches of the plan.
    pub launches: usize,
    /// The launch with the peak of memory.
    pub peak: usize,
    /// `true` if it is in memory at the peak.
    pub is_held_at_peak: bool,
    /// The kernels that compute it; none of what is given.
    pub made_by: Vec<Maker>,
}

/// Explains every tensor of a name in a program of a plan.
pub fn explain(plan: &Plan, program: ProgramId, name: &str) -> Vec<Explanation> {
    let (given, schedule) = (plan.program(program), plan.schedule(program));
    let lowered = &plan.lowered[program.index()];
    let spans = spans(plan, program);
    let peak =
        held_bytes(plan, program).into_iter().enumerate().max_by_key(|(at, held)| (*held, usize::MAX - at));
    let peak = peak.map_or(0, |(at, _)| at);
    let one = |id: TensorId| {
        let tensor = given.tensor(id);
        let all = (0..schedule.places.len()).map(|index| TensorId(index as u32));
        let its = all.filter(|other| schedule.origin(*other) == Some(id));
        let held: Vec<Span> = its.filter_map(|id| spans[id.index()]).collect();
        let makers: Vec<usize> =
            (0..given.nodes.len()).filter(|node| given.nodes[*node].outputs.contains(&id)).collect();
        let kernels: Vec<_> = lowered
            .nodes
            .iter()
            .filter(|node| node.covers.iter().any(|covered| makers.contains(covered)))
            .collect();
        let fate = match () {
            () if tensor.role.is_persistent() => Fate::Persistent,
            () if schedule.copies.contains(&id) => Fate::Recomputed,
            () if !held.is_empty() => Fate::Kept,
            () if !kernels.is_empty() => Fate::Fused,
            () => Fate::Unused,
        };
        let maker = |node: &&LoweredNode| Maker {
            kernel: node.name.clone(),
            flops: node.cost.flops,
            seconds: node.seconds,
        };
        Explanation {
            tensor: tensor.name.clone(),
            shape: tensor.shape.0.clone(),
            bytes: lowered.bytes[id.index()],
            fate,
            held: held.iter().map(|span| (span.start, span.end)).collect(),
            launches: schedule.launches.len(),
            peak,
            is_held_at_peak: fate == Fate::Persistent
                || held.iter().any(|span| (span.start..=span.end).contains(&peak)),
            made_by: kernels.iter().map(maker).collect(),
        }
    };
    given.ids().filter(|id| given.tensor(*id).name == name).map(one).collect()
}

/// The live range of each tensor and copy, in launches; none for parameters and states, and for tensors that no launch
/// touches.
pub fn spans(plan: &Plan, program: ProgramId) -> Vec<Option<Span>> {
    Flow::new(plan.program(program), plan.schedule(program)).spans()
}

/// Bytes held at each launch of a program, parameters and states left out. What shares a place is counted once.
pub fn held_bytes(plan: &Plan, program: ProgramId) -> Vec<usize> {
    let (spans, schedule) = (spans(plan, program), plan.schedule(program));
    let mut held: Vec<usize> = schedule.launches.iter().map(|launch| launch.scratch.bytes).collect();
    for (at, held) in held.iter_mut().enumerate() {
        let is_there = |span: &Option<Span>| span.is_some_and(|span| (span.start..=span.end).contains(&at));
        let mut blocks: Vec<_> = spans
            .iter()
            .zip(&schedule.places)
            .filter_map(|(span, place)| place.filter(|_| is_there(span)))
            .map(|block| (block.offset, block.bytes))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        *held += blocks.iter().map(|(_, bytes)| bytes).sum::<usize>();
    }
    held
}
