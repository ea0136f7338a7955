//! The rewriting shared by backends that run several nodes of a program as one.
//!
//! A backend has its own ops, one for each composition that it has kernels of, and its own rewrites that find them. All ask the same
//! of a program: who reads a value, what changes in between, and which nodes several fused ones cover together.

use plimsoll_graph::{NodeId, Program, Role, TensorId};

/// Nodes of a program that are run as one, by the op `O` of a backend.
#[derive(Clone, Debug)]
pub struct FusedNode<O> {
    /// The operation.
    pub op: O,
    /// The node in whose place it is run.
    pub at: NodeId,
    /// The nodes that it replaces, in ascending order.
    pub covers: Vec<NodeId>,
    /// The operands, in the order of the op.
    pub inputs: Vec<TensorId>,
    /// The tensors it writes.
    pub outputs: Vec<TensorId>,
}

/// The places, in a list of fused nodes, of those that read each tensor, once for each operand.
pub struct Readers {
    of: Vec<Vec<usize>>,
}

impl Readers {
    /// Those of a program's tensors.
    pub fn new<O>(program: &Program, nodes: &[FusedNode<O>]) -> Readers {
        let mut of = vec![Vec::new(); program.tensors.len()];
        for (at, node) in nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| of[id.index()].push(at));
        }
        Readers { of }
    }

    /// Those of a tensor.
    pub fn get(&self, tensor: TensorId) -> &[usize] {
        &self.of[tensor.index()]
    }

    /// Those of a value that nobody outside the program sees.
    pub fn inside(&self, program: &Program, tensor: TensorId) -> Option<&[usize]> {
        (program.tensor(tensor).role == Role::Intermediate).then(|| self.get(tensor))
    }

    /// The only one of a value that nobody outside the program sees.
    pub fn only(&self, program: &Program, tensor: TensorId) -> Option<usize> {
        match self.inside(program, tensor)? {
            [reader] => Some(*reader),
            _ => None,
        }
    }
}

/// The nodes at which a program changes parameters and states.
pub struct Updates {
    of: Vec<(NodeId, TensorId)>,
}

impl Updates {
    /// Those of a program.
    pub fn new(program: &Program) -> Updates {
        let updates = program.nodes.iter().enumerate().flat_map(|(at, node)| {
            let updated = node.op.rule().updates();
            node.outputs.iter().take(updated.len()).map(move |id| (at, *id))
        });
        Updates { of: updates.collect() }
    }

    /// Returns `true` if some nodes may be run as one in the place of the node `at`: nothing that one of them reads changes between its own
    /// place and that.
    pub fn allow(&self, program: &Program, covers: &[NodeId], at: NodeId) -> bool {
        covers.iter().all(|covered| {
            let between = at.min(*covered)..at.max(*covered);
            let mut changed = self.of.iter().filter(|(update, _)| between.contains(update));
            changed.all(|(_, id)| !program.nodes[*covered].inputs.contains(id))
        })
    }
}

/// The nodes that several fused ones cover together, in ascending order.
pub fn union<'n, O: 'n>(nodes: impl IntoIterator<Item = &'n FusedNode<O>>) -> Vec<NodeId> {
    let mut covers: Vec<NodeId> = nodes.into_iter().flat_map(|node| node.covers.iter().copied()).collect();
    covers.sort_unstable();
    covers.dedup();
    covers
}
