//! The parameters and states that all programs of a plan share.

use std::collections::HashMap;

use plimsoll_graph::{TensorId, TensorInfo};

use crate::{Block, Plan, PlanError};

/// Checks that parameters and states have sound places apart from each other, that each program has them there and as they are
/// described, and that no program has anything of its own in the same bytes.
pub(super) fn check(plan: &Plan, alignment: usize) -> Result<(), PlanError> {
    let Known { by_name: blocks, by_offset } = known(plan, alignment)?;
    for ((program, lowered), schedule) in plan.programs.iter().zip(&plan.lowered).zip(&plan.schedules) {
        let wrong = |fault: String| PlanError::WrongPlan { fault: format!("in `{}`, {fault}", program.name) };
        for (index, tensor) in program.tensors.iter().enumerate() {
            if !tensor.role.is_persistent() {
                continue;
            }
            let Some((info, block)) = blocks.get(tensor.name.as_str()) else {
                return Err(wrong(format!("`{}` has no place for good", tensor.name)));
            };
            if *info != tensor {
                let (here, there) = (tensor.describe(), info.describe());
                return Err(wrong(format!("`{}` is {here}, but {there} for all programs", tensor.name)));
            }
            if lowered.bytes.get(index).is_none_or(|bytes| *bytes > block.bytes) {
                let (name, bytes) = (&tensor.name, lowered.bytes.get(index));
                return Err(wrong(format!("`{name}` needs {bytes:?} bytes, its place is {block:?}")));
            }
            if schedule.place(TensorId(index as u32)) != Some(*block) {
                return Err(wrong(format!("`{}` does not have its place {block:?}", tensor.name)));
            }
        }
        // What is not persistent must lie apart from all that is, also from what this program does not declare.
        let own = schedule.places.iter().enumerate().filter(|(index, _)| {
            program.tensors.get(*index).is_none_or(|tensor| !tensor.role.is_persistent())
        });
        let places = own.filter_map(|(index, place)| Some((Some(index), (*place)?)));
        let scratch = schedule.launches.iter().map(|launch| (None, launch.scratch));
        for (index, place) in places.chain(scratch) {
            // They lie apart from each other, so only the first that ends behind the start of this place can meet it.
            let first = by_offset.partition_point(|(block, _)| block.end() <= place.offset);
            if let Some((block, name)) = by_offset.get(first).filter(|(block, _)| block.meets(&place)) {
                let what = match index.and_then(|index| program.tensors.get(index)) {
                    Some(tensor) => format!("`{}`", tensor.name),
                    None => "a copy or scratch".into(),
                };
                return Err(wrong(format!("{what} at {place:?} overlaps `{name}` at {block:?}")));
            }
        }
    }
    Ok(())
}

/// Parameters and states.
struct Known<'a> {
    by_name: HashMap<&'a str, (&'a TensorInfo, Block)>,
    /// Those that take any bytes, in the order of the arena.
    by_offset: Vec<(Block, &'a str)>,
}

fn known(plan: &Plan, alignment: usize) -> Result<Known<'_>, PlanError> {
    let wrong = |fault: String| Err(PlanError::WrongPlan { fault });
    let mut by_name = HashMap::new();
    let mut by_offset: Vec<(Block, &str)> = Vec::with_capacity(plan.persistent.len());
    for (tensor, block) in &plan.persistent {
        let name = tensor.name.as_str();
        if !block.offset.is_multiple_of(alignment) {
            return wrong(format!("`{name}` is not aligned: {block:?}"));
        }
        if block.offset.checked_add(block.bytes).is_none_or(|end| end > plan.arena_bytes) {
            return wrong(format!("`{name}` is not in the arena of {} bytes: {block:?}", plan.arena_bytes));
        }
        if by_name.insert(name, (tensor, *block)).is_some() {
            return wrong(format!("`{name}` has two places"));
        }
        if block.bytes > 0 {
            by_offset.push((*block, name));
        }
    }
    by_offset.sort_by_key(|(block, _)| (block.offset, block.end()));
    for pair in by_offset.windows(2) {
        if pair[0].0.meets(&pair[1].0) {
            return wrong(format!("`{}` overlaps `{}`", pair[0].1, pair[1].1));
        }
    }
    Ok(Known { by_name, by_offset })
}
