//! A plan.

use plimsoll_graph::{DType, Program, Role, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::{EngineError, LoweredProgram};

/// A stretch of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

impl Block {
    /// The first byte behind it, or `usize::MAX` if that is beyond all addresses.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes)
    }

    /// Returns `true` if two stretches share a byte.
    pub fn meets(&self, other: &Block) -> bool {
        self.offset.max(other.offset) < self.end().min(other.end())
    }
}

/// A program of a plan. It is found by its name: [`Plan::find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProgramId(pub(crate) usize);

impl ProgramId {
    /// The program at a place among those that a plan is made for.
    pub const fn new(index: usize) -> ProgramId {
        ProgramId(index)
    }

    /// Its place among the programs that the plan was made for.
    pub fn index(self) -> usize {
        self.0
    }
}

/// The places of all tensors of a set of programs in one arena.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The programs.
    pub programs: Vec<Program>,
    /// `true` if the backend computed cheap values in their readers.
    pub inline: bool,
    /// The kernels of each program.
    pub lowered: Vec<LoweredProgram>,
    /// Parameters and states with their places, in the order in which programs first name them.
    pub persistent: Vec<(TensorInfo, Block)>,
    /// The schedule and the places of each program.
    pub schedules: Vec<ProgramPlan>,
    /// The size of the arena: what is persistent, and above it the most that a program needs.
    pub arena_bytes: usize,
    /// A lower bound of the arena of any placement of the same schedules.
    pub lower_bound_bytes: usize,
}

/// One run of a lowered node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The lowered node.
    pub node: usize,
    /// The tensors that it reads: the operands of the lowered node, or copies of them.
    pub inputs: Vec<TensorId>,
    /// The tensors that it writes.
    pub outputs: Vec<TensorId>,
    /// The place of its scratch.
    pub scratch: Block,
}

/// The schedule of one program, and where its values lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramPlan {
    /// The launches, in order; some lowered nodes are launched more than once.
    pub launches: Vec<Launch>,
    /// The program's tensor that each tensor beyond them is a copy of.
    pub copies: Vec<TensorId>,
    /// The place of each tensor, then of each copy, by its id; none for those that no launch touches.
    pub places: Vec<Option<Block>>,
    /// The end of the highest place.
    pub arena_bytes: usize,
    /// A lower bound of the arena of any placement of the same schedule.
    pub lower_bound_bytes: usize,
    /// Floating-point operations beyond the lowered program's, as a fraction of these.
    pub recompute_flops_fraction: f64,
    /// Predicted time of a run.
    pub predicted_seconds: f64,
}

/// The freedom a planner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `true` if cheap values are computed by their readers instead of stored, where the backend can.
    pub inline: bool,
    /// `true` if places are reused. Otherwise every tensor has a place of its own, as a reference in tests.
    pub reuse: bool,
    /// Bytes that the arena should not exceed. The plan is the fastest that was found within; where there is none,
    /// the one with the least arena.
    pub budget: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { inline: true, reuse: true, budget: None }
    }
}

impl ProgramPlan {
    /// The tensor of the program that a tensor is, or is a copy of; none if there is no such tensor.
    pub fn origin(&self, tensor: TensorId) -> Option<TensorId> {
        let own = self.places.len().checked_sub(self.copies.len())?;
        match tensor.index().checked_sub(own) {
            None => Some(tensor),
            Some(copy) => self.copies.get(copy).copied(),
        }
    }

    /// The place of a tensor, if it has one.
    pub fn place(&self, tensor: TensorId) -> Option<Block> {
        self.places.get(tensor.index()).copied().flatten()
    }

    /// The names of the values that are recomputed instead of held, without repeats.
    pub fn recomputed(&self, program: &Program) -> Vec<String> {
        let names = self.copies.iter().filter_map(|id| program.tensors.get(id.index()));
        let mut names: Vec<String> = names.map(|tensor| tensor.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Plan {
    /// The program of a name.
    pub fn find(&self, name: &str) -> Option<ProgramId> {
        self.programs.iter().position(|program| program.name == name).map(ProgramId)
    }

    /// All programs.
    pub fn ids(&self) -> impl Iterator<Item = ProgramId> + use<> {
        (0..self.programs.len()).map(ProgramId)
    }

    /// A program. It must be one of this plan.
    pub fn program(&self, id: ProgramId) -> &Program {
        &self.programs[id.0]
    }

    /// The schedule of a program of this plan.
    pub fn schedule(&self, id: ProgramId) -> &ProgramPlan {
        &self.schedules[id.0]
    }

    /// A tensor of a program, and its place.
    ///
    /// # Errors
    /// Returns an error if there is no such program or tensor, or it is never stored.
    pub fn stored(&self, id: ProgramId, tensor: TensorId) -> Result<(&TensorInfo, Block), EngineError> {
        let program = self.programs.get(id.0).ok_or_else(|| EngineError::missing("the program"))?;
        let info = program.tensors.get(tensor.index()).ok_or_else(|| EngineError::missing("the tensor"))?;
        let never = || EngineError::NeverStored { program: program.name.clone(), tensor: info.name.clone() };
        Ok((info, self.schedule(id).place(tensor).ok_or_else(never)?))
    }

    /// The same of a tensor that values of a number and type are to be all elements of.
    ///
    /// # Errors
    /// Returns the errors of [`stored`](Plan::stored), and an error if there are fewer or more values.
    pub fn stored_whole(
        &self,
        id: ProgramId,
        tensor: TensorId,
        extent: (usize, DType),
    ) -> Result<(&TensorInfo, Block), EngineError> {
        let (info, place) = self.stored(id, tensor)?;
        let (count, dtype) = extent;
        match count == info.shape.count() {
            true => Ok((info, place)),
            false => Err(EngineError::values(self.program(id), info, count, dtype)),
        }
    }

    /// The places of what a launch of a program of this plan is the last to touch, its scratch among them, less those where something
    /// lives on: what an engine may overwrite with NaN to find reads that should not be.
    pub fn dead_after(&self, id: ProgramId, launch: usize) -> Vec<Block> {
        let (tensors, schedule) = (&self.program(id).tensors, self.schedule(id));
        let (until, after) = schedule.launches.split_at(launch + 1);
        let launch = &until[launch];
        let lives_on = |tensor: &TensorId| {
            let role = tensors.get(tensor.index()).map(|tensor| tensor.role);
            role.is_some_and(|role| role.is_persistent() || role == Role::Output)
                || after.iter().any(|later| later.inputs.contains(tensor) || later.outputs.contains(tensor))
        };
        let touched = launch.inputs.iter().chain(&launch.outputs);
        let (alive, ended): (Vec<TensorId>, Vec<TensorId>) = touched.partition(|tensor| lives_on(tensor));
        let places = |tensors: Vec<TensorId>| tensors.into_iter().filter_map(|tensor| schedule.place(tensor));
        let alive: Vec<Block> = places(alive).collect();
        let ended = places(ended).chain([launch.scratch]);
        ended.filter(|block| !alive.iter().any(|alive| alive.meets(block))).collect()
    }

    /// Bytes of parameters and states.
    pub fn persistent_bytes(&self) -> usize {
        self.persistent.iter().map(|(_, block)| block.end()).max().unwrap_or(0)
    }
}
