//! A program as lowered by a backend: the kernels to run.

use plimsoll_graph::{Cost, NodeId, Program, TensorId};
use serde::{Deserialize, Serialize};

use crate::Bound;

/// A program as a backend will run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoweredProgram {
    /// Bytes of each tensor of the program in the backend's layout, by its id.
    pub bytes: Vec<usize>,
    /// The nodes to run, in order.
    pub nodes: Vec<LoweredNode>,
}

/// One kernel, or a few that always follow one another.
///
/// It computes what the nodes that it covers compute, one after the other, from its inputs alone: that is its meaning, and what
/// the [verifier](crate::verify) holds it to. A node may be covered by several lowered nodes, where each reader computes a cheap
/// value for itself instead of having it stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoweredNode {
    /// The kind of kernel, as reports name it.
    pub name: String,
    /// The nodes of the program that it covers, in ascending order.
    pub covers: Vec<NodeId>,
    /// The tensors that it reads from memory.
    pub inputs: Vec<TensorId>,
    /// The tensors that it writes to memory; one that it updates in place is among the inputs too.
    pub outputs: Vec<TensorId>,
    /// Bytes that it needs beside them while it runs.
    pub scratch: usize,
    /// Pairs (place among outputs, place among inputs) that may share one place if the input is not needed afterwards: each
    /// element of the output depends on no element of the input that is read after it is written.
    pub in_place: Vec<(usize, usize)>,
    /// `true` if it has the same results whenever it is run, and running it twice is worth considering.
    pub may_be_recomputed: bool,
    /// Operations, and bytes moved.
    pub cost: Cost,
    /// Predicted time in seconds. It decides what is worth recomputing, never what is computed.
    pub seconds: f64,
    /// The resource that the time follows from; `None` if the backend does not tell.
    pub bound: Option<Bound>,
}

impl LoweredProgram {
    /// Returns `true` if two lowerings are the same in everything that memory and results depend on: everything except
    /// predicted times.
    pub fn agrees_with(&self, other: &LoweredProgram) -> bool {
        let alike = |(a, b): (&LoweredNode, &LoweredNode)| {
            (&a.name, &a.covers, &a.inputs, &a.outputs) == (&b.name, &b.covers, &b.inputs, &b.outputs)
                && (a.scratch, &a.in_place, a.may_be_recomputed)
                    == (b.scratch, &b.in_place, b.may_be_recomputed)
        };
        self.bytes == other.bytes
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(alike)
    }

    /// Why it cannot be what a backend makes of a program, whatever the program computes: there are sizes for all tensors, no others
    /// are named, and all together would fit the address space, even if every one was recomputed many times.
    pub(crate) fn fault(&self, program: &Program) -> Option<String> {
        const MOST_BYTES: usize = 1 << 48;
        let (sizes, tensors) = (self.bytes.len(), program.tensors.len());
        if sizes != tensors {
            return Some(format!("it has sizes of {sizes} tensors, not of {tensors}"));
        }
        let named = self.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
        if let Some(id) = named.into_iter().find(|id| id.index() >= tensors) {
            return Some(format!("it names {id} of {tensors} tensors"));
        }
        let sizes = self.bytes.iter().copied().chain(self.nodes.iter().map(|node| node.scratch));
        let all = sizes.fold(0, usize::saturating_add);
        (all > MOST_BYTES).then(|| format!("it needs {all} bytes, more than any machine has"))
    }

    /// Floating-point operations of one run; `u64::MAX` where there are more.
    pub fn flops(&self) -> u64 {
        self.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.cost.flops))
    }
}
