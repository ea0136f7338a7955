//! A plan.

use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

/// A stretch of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Block {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.offset + self.bytes
    }

    /// Whether two stretches share a byte.
    pub fn meets(&self, other: &Block) -> bool {
        self.offset.max(other.offset) < self.end().min(other.end())
    }
}

/// Where everything of a set of programs lies, in one arena.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Parameters and states with their places, in the order in which programs first name them.
    pub persistent: Vec<(TensorInfo, Block)>,
    /// One plan per program, in the order given.
    pub programs: Vec<ProgramPlan>,
    /// The size of the arena: what is persistent, and above it the most that a program needs.
    pub arena_bytes: usize,
    /// What no placement of the same schedules could do without.
    pub lower_bound_bytes: usize,
}

/// The schedule of one program, and where its values lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramPlan {
    /// What is run: the given program after folding, with what is made again.
    pub program: Program,
    /// Of which of the given program's tensors each tensor beyond them is a copy.
    pub copies: Vec<TensorId>,
    /// The place of each tensor, by its id; none for those that no node touches.
    pub places: Vec<Option<Block>>,
    /// The place of each node's scratch.
    pub scratch: Vec<Block>,
    /// The end of the highest place.
    pub arena_bytes: usize,
    /// What no placement of the same schedule could do without.
    pub lower_bound_bytes: usize,
    /// Floating-point operations beyond those of the given program after folding, as a fraction of them.
    pub recompute_flops_fraction: f64,
    /// Predicted time of a run.
    pub predicted_seconds: f64,
}

/// What a planner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether normalised and activated maps are rebuilt by their readers instead of held.
    pub fold: bool,
    /// Whether places are used again. Without, everything has a place of its own: a second opinion in tests.
    pub reuse: bool,
    /// Bytes that the arena should not exceed. The plan is the fastest that was found within; where there is none,
    /// the one with the least arena.
    pub budget: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { fold: true, reuse: true, budget: None }
    }
}

impl ProgramPlan {
    /// The names of the values that are made again instead of held, without repeats.
    pub fn recomputed(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .copies
            .iter()
            .filter_map(|id| self.program.tensors.get(id.index()))
            .map(|tensor| tensor.name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The tensor of the given program that a tensor is, or is a copy of.
    pub fn origin(&self, tensor: TensorId) -> TensorId {
        let own = self.program.tensors.len().saturating_sub(self.copies.len());
        tensor.index().checked_sub(own).and_then(|copy| self.copies.get(copy)).copied().unwrap_or(tensor)
    }
}

impl Plan {
    /// The place of a tensor of a program.
    pub fn place(&self, program: usize, tensor: TensorId) -> Option<Block> {
        self.programs.get(program)?.places.get(tensor.index()).copied().flatten()
    }

    /// Bytes of parameters and states.
    pub fn persistent_bytes(&self) -> usize {
        self.persistent.iter().map(|(_, block)| block.end()).max().unwrap_or(0)
    }
}
