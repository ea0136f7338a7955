//! A plan, and how it is made.

use std::collections::HashMap;

use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::liveness::{Span, buffers};
use crate::place::{Item, lower_bound, place};
use crate::{Layout, PlanError, fold, verify};

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
    /// What is run: the given program after folding.
    pub program: Program,
    /// The place of each tensor, by its id; none for those that no node touches.
    pub places: Vec<Option<Block>>,
    /// The place of each node's scratch.
    pub scratch: Vec<Block>,
    /// The end of the highest place.
    pub arena_bytes: usize,
    /// What no placement of the same schedule could do without.
    pub lower_bound_bytes: usize,
    /// Floating-point operations beyond those of the given program, as a fraction of them.
    pub recompute_flops_fraction: f64,
}

/// What a planner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether normalised and activated maps are rebuilt by their readers instead of held.
    pub fold: bool,
    /// Whether places are used again. Without, everything has a place of its own: a second opinion in tests.
    pub reuse: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { fold: true, reuse: true }
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

/// Plans a set of programs: parameters and states of one name are one tensor, at the bottom of the arena; above them each
/// program lays out its own values, in the same space as the others.
///
/// # Errors
/// If a program is not well formed, a node has no kernel, two programs disagree about a name, or — which would be an error
/// in the planner — the verifier rejects the plan.
pub fn plan(programs: &[Program], layout: &dyn Layout, options: Options) -> Result<Plan, PlanError> {
    let align = |bytes: usize| bytes.next_multiple_of(layout.alignment());
    let mut persistent: Vec<(TensorInfo, Block)> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut top = 0;
    for program in programs {
        for tensor in program.tensors.iter().filter(|tensor| tensor.role.is_persistent()) {
            match by_name.get(&tensor.name) {
                Some(known) if persistent[*known].0 != *tensor => {
                    let describe = |tensor: &TensorInfo| format!("{:?} {}", tensor.kind, tensor.shape);
                    return Err(PlanError::Conflict {
                        name: tensor.name.clone(),
                        program: program.name.clone(),
                        first: describe(tensor),
                        second: describe(&persistent[*known].0),
                    });
                }
                Some(_) => {}
                None => {
                    let bytes = align(layout.bytes(tensor));
                    by_name.insert(tensor.name.clone(), persistent.len());
                    persistent.push((tensor.clone(), Block { offset: top, bytes }));
                    top += bytes;
                }
            }
        }
    }
    let place_of = |tensor: &TensorInfo| by_name.get(&tensor.name).map(|known| persistent[*known].1);
    let mut planned = Vec::with_capacity(programs.len());
    for program in programs {
        let plan = plan_program(program, layout, options, top, place_of)?;
        verify::verify(program, &plan, layout)?;
        planned.push(plan);
    }
    let most = |of: fn(&ProgramPlan) -> usize| planned.iter().map(of).max().unwrap_or(top);
    let (arena_bytes, lower_bound_bytes) = (most(|p| p.arena_bytes), most(|p| p.lower_bound_bytes));
    Ok(Plan { persistent, programs: planned, arena_bytes, lower_bound_bytes })
}

fn plan_program(
    given: &Program,
    layout: &dyn Layout,
    options: Options,
    bottom: usize,
    place_of: impl Fn(&TensorInfo) -> Option<Block>,
) -> Result<ProgramPlan, PlanError> {
    given.validate()?;
    let program = if options.fold { fold::fold(given) } else { given.clone() };
    let align = |bytes: usize| bytes.next_multiple_of(layout.alignment());
    for node in &program.nodes {
        layout.supports(&program, node)?;
    }
    let buffers = buffers(&program, |id| align(layout.bytes(program.tensor(id))), options.reuse);
    let held = |span: Span| match options.reuse {
        true => span,
        false => Span { start: 0, end: program.nodes.len() },
    };
    let mut items: Vec<Item> =
        buffers.iter().map(|buffer| Item { bytes: buffer.bytes, span: held(buffer.span) }).collect();
    items.extend(program.nodes.iter().enumerate().map(|(place, node)| Item {
        bytes: align(layout.scratch(&program, node)),
        span: held(Span { start: place, end: place }),
    }));
    let placement = place(&items);
    let block = |item: usize| Block { offset: bottom + placement.offsets[item], bytes: items[item].bytes };
    let mut places: Vec<Option<Block>> = program
        .tensors
        .iter()
        .map(|tensor| tensor.role.is_persistent().then(|| place_of(tensor)).flatten())
        .collect();
    for (item, buffer) in buffers.iter().enumerate() {
        for id in &buffer.tensors {
            places[id.index()] = Some(block(item));
        }
    }
    let scratch = (buffers.len()..items.len()).map(block).collect();
    let (before, after) = (given.flops() as f64, program.flops() as f64);
    Ok(ProgramPlan {
        places,
        scratch,
        arena_bytes: bottom + placement.bytes,
        lower_bound_bytes: bottom + lower_bound(&items),
        recompute_flops_fraction: if before > 0.0 { (after - before) / before } else { 0.0 },
        program,
    })
}
