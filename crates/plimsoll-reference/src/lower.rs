//! Programs as they are: each node by itself.

use plimsoll_graph::{Cost, Node, Program, TensorInfo};
use plimsoll_plan::{LoweredNode, LoweredProgram};

/// The alignment of every offset in the arena.
pub(crate) const ALIGNMENT: usize = 64;

/// Bytes of an element.
pub(crate) const ELEMENT: usize = size_of::<f64>();

/// Nominal operations and bytes per second, for the planner to compare schedules with. The ratio describes a machine whose
/// convolutions are bound by arithmetic and whose other ops are bound by memory.
const FLOPS: f64 = 1e11;
const BYTES: f64 = 1e10;

/// Bytes of a tensor in the arena. The most elements that a tensor of a program may have are far from overflowing it.
fn bytes(tensor: &TensorInfo) -> usize {
    tensor.shape.count() * ELEMENT
}

fn seconds(cost: Cost) -> f64 {
    (cost.flops as f64 / FLOPS).max(cost.bytes as f64 / BYTES)
}

/// Lowers a program that is known to be sound.
pub(crate) fn lower(program: &Program) -> LoweredProgram {
    let node = |(place, node): (usize, &Node)| {
        let rule = node.op.rule();
        let cost = program.cost(node);
        LoweredNode {
            name: rule.name().into(),
            covers: vec![place],
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
            scratch: 0,
            in_place: Vec::new(),
            may_be_recomputed: rule.may_be_recomputed(),
            cost,
            seconds: seconds(cost),
            bound: None,
        }
    };
    LoweredProgram {
        bytes: program.tensors.iter().map(bytes).collect(),
        nodes: program.nodes.iter().enumerate().map(node).collect(),
    }
}
