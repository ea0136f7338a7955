//! Launches of a verified plan, with the elements of the arena that each reads and writes.

use std::ops::Range;

use plimsoll_graph::{Op, Shape, TensorId};
use plimsoll_plan::{Block, EngineError, ProgramId, VerifiedPlan};

use crate::lower::ELEMENT;

/// A launch, ready to run.
pub(crate) struct BoundLaunch {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Stored>,
    pub(crate) outputs: Vec<Stored>,
    /// The places that no later node reads.
    pub(crate) dead: Vec<Range<usize>>,
    /// The end of the highest place that it is given, in bytes.
    pub(crate) end: usize,
}

/// A tensor in the arena.
pub(crate) struct Stored {
    pub(crate) shape: Shape,
    /// Its elements in the arena.
    pub(crate) elements: Range<usize>,
}

/// The elements of a tensor that has a place.
pub(crate) fn elements(place: Block, count: usize) -> Range<usize> {
    let first = place.offset / ELEMENT;
    first..first.saturating_add(count)
}

/// Binds all launches of a program of a plan.
pub(crate) fn bind(plan: &VerifiedPlan, id: ProgramId) -> Result<Vec<BoundLaunch>, EngineError> {
    let (program, schedule) = (plan.program(id), plan.schedule(id));
    let lowered = plan.lowered.get(id.index()).ok_or_else(|| EngineError::missing("a lowered program"))?;
    let stored = |id: &TensorId| {
        let place = schedule.place(*id).ok_or_else(|| EngineError::missing("the place of a tensor"))?;
        let origin = schedule.origin(*id).and_then(|origin| program.tensors.get(origin.index()));
        let shape = origin.ok_or_else(|| EngineError::missing("a tensor"))?.shape.clone();
        Ok(Stored { elements: elements(place, shape.count()), shape })
    };
    let all = |ids: &[TensorId]| ids.iter().map(stored).collect::<Result<Vec<Stored>, EngineError>>();
    let mut launches = Vec::with_capacity(schedule.launches.len());
    for (at, launch) in schedule.launches.iter().enumerate() {
        let covered = lowered.nodes.get(launch.node).and_then(|node| node.covers.first());
        let node = covered
            .and_then(|node| program.nodes.get(*node))
            .ok_or_else(|| EngineError::missing("a node"))?;
        let places = launch.inputs.iter().chain(&launch.outputs).filter_map(|id| schedule.place(*id));
        launches.push(BoundLaunch {
            op: node.op.clone(),
            inputs: all(&launch.inputs)?,
            outputs: all(&launch.outputs)?,
            dead: plan.dead_after(id, at).into_iter().map(|b| elements(b, b.bytes / ELEMENT)).collect(),
            end: places.map(|place| place.end()).max().unwrap_or(0),
        });
    }
    Ok(launches)
}
