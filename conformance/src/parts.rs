//! The definition of a lowered node: the composition of the nodes that it covers.

use std::collections::{BTreeSet, HashMap, HashSet};

use plimsoll_graph::{Array, Node, TensorId};
use plimsoll_plan::{Backend, LoweredNode, Options, plan};

use crate::{Case, assert_close, read, start};

/// A lowered node's name, and the different ops that it covers.
pub type Part = (String, BTreeSet<&'static str>);

/// Returns the groups of nodes that the lowered nodes of a case cover, if a group has more than one node.
pub fn parts(backend: &dyn Backend, case: &Case) -> BTreeSet<Part> {
    let plan = plan(std::slice::from_ref(&case.program), backend, Options::default())
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    plan.lowered[0].nodes.iter().filter(|node| node.covers.len() > 1).map(|node| part(case, node)).collect()
}

fn part(case: &Case, node: &LoweredNode) -> Part {
    let ops = node.covers.iter().map(|covered| case.program.nodes[*covered].op.rule().name());
    (node.name.clone(), ops.collect())
}

/// Compares every lowered node of a case that covers more than one node with the definitions of those, one after the other, on
/// the numbers that the backend has found for its operands.
///
/// # Panics
/// Panics if a node is not within the tolerance.
pub fn check_parts(backend: &dyn Backend, case: &Case, tolerance: f64) {
    // Everything has a place of its own, so all that is stored is still there in the end.
    let (engine, id) = start(backend, case, Options { reuse: false, ..Options::default() });
    let program = &case.program;
    let of =
        |node: &Node| node.outputs.iter().copied().take(node.op.rule().updates().len()).collect::<Vec<_>>();
    let updated: HashSet<TensorId> = program.nodes.iter().flat_map(of).collect();
    for node in &engine.plan().lowered[0].nodes {
        // Of what changes within a run, the value that the node has read is gone.
        if node.covers.len() == 1 || node.inputs.iter().any(|id| updated.contains(id)) {
            continue;
        }
        let mut known: HashMap<TensorId, Array> = HashMap::new();
        for tensor in &node.inputs {
            let array = Array { shape: program.shape(*tensor).clone(), data: read(&*engine, id, *tensor) };
            known.insert(*tensor, array);
        }
        for covered in &node.covers {
            let of = &program.nodes[*covered];
            let operands: Vec<&Array> = of.inputs.iter().map(|id| &known[id]).collect();
            let shapes: Vec<_> = of.outputs.iter().map(|id| program.shape(*id).clone()).collect();
            let made = of.op.rule().evaluate(&operands, &shapes);
            known.extend(of.outputs.iter().copied().zip(made));
        }
        for output in &node.outputs {
            let found = read(&*engine, id, *output);
            let what = || format!("{}: {:?}, {}", case.name, part(case, node), program.tensor(*output).name);
            assert_close(what, &known[output].data, &found, tolerance);
        }
    }
}
