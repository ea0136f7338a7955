//! Why a value is where it is: kept, never stored, or made again.

use plimsoll_graph::{Op, Program, TensorId};
use serde::{Deserialize, Serialize};

use crate::liveness::Span;
use crate::{Layout, ProgramPlan};

/// What a plan does with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// A parameter or a state: it has its place for good.
    Persistent,
    /// Held from the node that makes it to the last that reads it.
    Kept,
    /// Never stored: its readers make it of what it is made from while they load.
    Folded,
    /// Let go of, and made again.
    Recomputed,
    /// No node of the plan makes or reads it.
    Unused,
}

/// What a plan does with a value, with the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its name.
    pub tensor: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// What it takes.
    pub bytes: usize,
    /// What becomes of it.
    pub fate: Fate,
    /// The first and the last node of each stretch for which it is held; nodes are counted from 0.
    pub held: Vec<(usize, usize)>,
    /// Nodes of the plan.
    pub nodes: usize,
    /// The node at which the most is held, and whether this is held then.
    pub peak: usize,
    /// Whether it is held at the peak.
    pub is_held_at_peak: bool,
    /// The op that makes it.
    pub made_by: Option<String>,
    /// Operations to make it once from its operands.
    pub flops: u64,
    /// Predicted time to make it once from its operands.
    pub seconds: f64,
}

/// Explains every tensor of a name in the program that a plan is for.
pub fn explain(given: &Program, plan: &ProgramPlan, layout: &dyn Layout, name: &str) -> Vec<Explanation> {
    let spans = spans(&plan.program);
    let peak = held_bytes(plan).into_iter().enumerate().max_by_key(|(at, held)| (*held, usize::MAX - at));
    let peak = peak.map_or(0, |(at, _)| at);
    let one = |id: TensorId| {
        let tensor = given.tensor(id);
        let is_it = |other: &TensorId| plan.origin(*other) == id;
        let held: Vec<Span> = plan.program.ids().filter(is_it).filter_map(|id| spans[id.index()]).collect();
        let maker = given.nodes.iter().find(|node| node.outputs.contains(&id));
        let is_copied = plan.copies.contains(&id);
        let fate = match maker.map(|node| &node.op) {
            _ if tensor.role.is_persistent() => Fate::Persistent,
            _ if is_copied => Fate::Recomputed,
            _ if !held.is_empty() => Fate::Kept,
            Some(Op::NormAct(_)) => Fate::Folded,
            _ => Fate::Unused,
        };
        let cost = maker.map(|node| given.cost(node)).unwrap_or_default();
        Explanation {
            tensor: tensor.name.clone(),
            shape: tensor.shape.0.clone(),
            bytes: layout.bytes(tensor),
            fate,
            held: held.iter().map(|span| (span.start, span.end)).collect(),
            nodes: plan.program.nodes.len(),
            peak,
            is_held_at_peak: fate == Fate::Persistent
                || held.iter().any(|span| (span.start..=span.end).contains(&peak)),
            made_by: maker.map(|node| node.op.rule().name().into()),
            flops: cost.flops,
            seconds: maker.map_or(0.0, |node| layout.seconds(given, node)),
        }
    };
    given.ids().filter(|id| given.tensor(*id).name == name).map(one).collect()
}

/// From which node to which each tensor is held; none for parameters and states, and for tensors that no node touches.
pub fn spans(program: &Program) -> Vec<Option<Span>> {
    let none = vec![Vec::new(); program.nodes.len()];
    crate::liveness::Flow::of(program, |_| 0, &none).spans()
}

/// Bytes held at each node of a plan, parameters and states left out. What shares a place is counted once.
pub fn held_bytes(plan: &ProgramPlan) -> Vec<usize> {
    let spans = spans(&plan.program);
    let mut held: Vec<usize> = plan.scratch.iter().map(|block| block.bytes).collect();
    for (at, held) in held.iter_mut().enumerate() {
        let is_there = |span: &Option<Span>| span.is_some_and(|span| (span.start..=span.end).contains(&at));
        let mut blocks: Vec<_> = spans
            .iter()
            .zip(&plan.places)
            .filter_map(|(span, place)| place.filter(|_| is_there(span)))
            .map(|block| (block.offset, block.bytes))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        *held += blocks.iter().map(|(_, bytes)| bytes).sum::<usize>();
    }
    held
}
