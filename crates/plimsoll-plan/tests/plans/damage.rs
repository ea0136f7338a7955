//! Kinds of damage to a plan. Each function returns a plan that must not be run, or none where the plan has nothing to damage in
//! this way.

use plimsoll_graph::{Op, Role, TensorId};
use plimsoll_plan::explain::spans;
use plimsoll_plan::{Block, Launch, Plan, ProgramPlan};

use crate::paper::ALIGNMENT;
use conformance::random::Random;

/// Makes a wrong plan of a right one.
pub type Damage = fn(&Plan, &mut Random) -> Option<Plan>;

/// All kinds, with their names.
pub const ALL: &[(&str, Damage)] = &[
    ("a value on another that is alive", value_on_another),
    ("a value beyond the arena", value_beyond_the_arena),
    ("a value at no address", value_at_no_address),
    ("a value that is not aligned", value_not_aligned),
    ("a place that is too small", place_too_small),
    ("no place", no_place),
    ("a place for nothing, beyond the arena", place_of_what_nobody_touches),
    ("scratch that is too small", scratch_too_small),
    ("scratch on an operand", scratch_on_an_operand),
    ("scratch beyond the arena", scratch_beyond_the_arena),
    ("scratch that is not aligned", scratch_not_aligned),
    ("another operand", another_operand),
    ("no such tensor", no_such_tensor),
    ("an operand too many", operand_too_many),
    ("another lowered node", another_node),
    ("a launch that is missing", launch_missing),
    ("a launch that is run twice", launch_twice),
    ("launches in the wrong order", launches_swapped),
    ("a parameter elsewhere in one program", parameter_elsewhere),
    ("a parameter on another", parameter_on_another),
    ("a parameter that is forgotten", parameter_forgotten),
    ("a parameter of another shape", parameter_of_another_shape),
    ("a parameter that stands twice", parameter_twice),
    ("a value on what its program does not declare", value_on_what_it_does_not_declare),
    ("scratch on a parameter", scratch_on_a_parameter),
    ("another attribute", another_attribute),
    ("another shape", another_shape),
    ("another name", another_name),
    ("lowered nodes that cover something else", covers_something_else),
    ("lowered nodes that work in place", works_in_place),
    ("other sizes", other_sizes),
    ("less scratch in the lowering", less_scratch_lowered),
    ("another lowering", lowered_otherwise),
    ("a copy of another tensor", copy_of_another),
    ("a copy of what is no value of the run", copy_of_an_input),
    ("a schedule too few or too many", number_of_schedules),
    ("places too few or too many", number_of_places),
    ("an arena that is too small", arena_too_small),
];

/// The index of the program.
type At = usize;

fn with(plan: &Plan, change: impl FnOnce(&mut Plan) -> Option<()>) -> Option<Plan> {
    let mut damaged = plan.clone();
    change(&mut damaged)?;
    Some(damaged)
}

/// A program with launches.
fn program(plan: &Plan, random: &mut Random) -> Option<At> {
    let all: Vec<At> =
        (0..plan.schedules.len()).filter(|at| !plan.schedules[*at].launches.is_empty()).collect();
    random.one_of(&all)
}

fn launch(plan: &Plan, random: &mut Random) -> Option<(At, usize)> {
    let at = program(plan, random)?;
    Some((at, random.below(plan.schedules[at].launches.len())))
}

fn launch_with_scratch(plan: &Plan, random: &mut Random) -> Option<(At, usize)> {
    let at = program(plan, random)?;
    let launches = &plan.schedules[at].launches;
    let all: Vec<usize> = (0..launches.len()).filter(|launch| launches[*launch].scratch.bytes > 0).collect();
    Some((at, random.one_of(&all)?))
}

fn touched(launch: &Launch) -> impl Iterator<Item = TensorId> {
    launch.inputs.iter().chain(&launch.outputs).copied()
}

/// A tensor that some launch touches.
fn value(plan: &Plan, random: &mut Random) -> Option<(At, TensorId)> {
    let (at, launch) = launch(plan, random)?;
    let all: Vec<TensorId> = touched(&plan.schedules[at].launches[launch]).collect();
    Some((at, random.one_of(&all)?))
}

fn is_persistent(plan: &Plan, at: At, id: TensorId) -> bool {
    plan.programs[at].tensors.get(id.index()).is_some_and(|tensor| tensor.role.is_persistent())
}

/// Changes the place of a tensor that some launch touches.
fn moved(plan: &Plan, random: &mut Random, change: impl FnOnce(&mut Block)) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    with(plan, |plan| {
        change(plan.schedules[at].places[id.index()].as_mut()?);
        Some(())
    })
}

/// Two values that are live at one time, each read or needed after the other is written.
fn value_on_another(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let at = program(plan, random)?;
    let spans = spans(plan, plan.ids().nth(at)?);
    let held: Vec<usize> = (0..spans.len()).filter(|index| spans[*index].is_some()).collect();
    let first = random.one_of(&held)?;
    let is_met = |other: &usize| {
        let (Some(a), Some(b)) = (spans[first], spans[*other]) else { return false };
        first != *other && a.start.max(b.start) < a.end.min(b.end)
    };
    let second = random.one_of(&held.into_iter().filter(is_met).collect::<Vec<usize>>())?;
    with(plan, |plan| {
        let places = &mut plan.schedules[at].places;
        places[first].as_mut()?.offset = places[second]?.offset;
        Some(())
    })
}

fn value_beyond_the_arena(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let end = plan.arena_bytes.next_multiple_of(ALIGNMENT);
    moved(plan, random, |block| block.offset = end)
}

fn value_at_no_address(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let offset = [usize::MAX, usize::MAX - 63, 1 << 63, usize::MAX / 2 - 63][random.below(4)];
    moved(plan, random, |block| block.offset = offset)
}

fn value_not_aligned(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let by = [1, 4, 8, 32][random.below(4)];
    moved(plan, random, |block| {
        block.offset = (block.offset + by) - ALIGNMENT * usize::from(block.offset > 0)
    })
}

fn place_too_small(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    let schedule = &plan.schedules[at];
    let bytes = plan.lowered[at].bytes[schedule.origin(id)?.index()];
    with(plan, |plan| {
        plan.schedules[at].places[id.index()].as_mut()?.bytes = bytes - 1;
        Some(())
    })
}

fn no_place(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    with(plan, |plan| {
        plan.schedules[at].places[id.index()] = None;
        Some(())
    })
}

/// Nobody but the host would read or write there, but it must not either.
fn place_of_what_nobody_touches(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let at = random.below(plan.schedules.len().max(1));
    let places = &plan.schedules.get(at)?.places;
    let free: Vec<usize> = (0..places.len()).filter(|index| places[*index].is_none()).collect();
    let index = random.one_of(&free)?;
    let bad = [
        Block { offset: plan.arena_bytes.next_multiple_of(ALIGNMENT), bytes: 1 << 20 },
        Block { offset: usize::MAX - 63, bytes: usize::MAX },
        Block { offset: plan.persistent_bytes(), bytes: 0 },
        Block { offset: plan.persistent_bytes() + 4, bytes: 64 },
    ];
    with(plan, |plan| {
        plan.schedules[at].places[index] = Some(bad[random.below(4)]);
        Some(())
    })
}

fn scratch_too_small(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    with(plan, |plan| {
        let launch = &mut plan.schedules[at].launches[launch];
        launch.scratch.bytes = plan.lowered[at].nodes[launch.node].scratch - 1;
        Some(())
    })
}

fn scratch_on_an_operand(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    let schedule = &plan.schedules[at];
    let ids: Vec<TensorId> = touched(&schedule.launches[launch]).collect();
    let place = schedule.place(random.one_of(&ids)?)?;
    with(plan, |plan| {
        plan.schedules[at].launches[launch].scratch.offset = place.offset;
        Some(())
    })
}

fn scratch_beyond_the_arena(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    let end = plan.arena_bytes.next_multiple_of(ALIGNMENT);
    let offset = [end, usize::MAX - 63, 1 << 63][random.below(3)];
    with(plan, |plan| {
        plan.schedules[at].launches[launch].scratch.offset = offset;
        Some(())
    })
}

fn scratch_not_aligned(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    with(plan, |plan| {
        plan.schedules[at].launches[launch].scratch.offset += 8;
        Some(())
    })
}

/// Replaces an operand or result of a launch.
fn replaced(
    plan: &Plan,
    random: &mut Random,
    by: impl Fn(&ProgramPlan, TensorId) -> Vec<TensorId>,
) -> Option<Plan> {
    let (at, launch) = launch(plan, random)?;
    let count = touched(&plan.schedules[at].launches[launch]).count();
    let which = random.below(count);
    let schedule = &plan.schedules[at];
    let id = touched(&schedule.launches[launch]).nth(which)?;
    let new = random.one_of(&by(schedule, id))?;
    with(plan, |plan| {
        let launch = &mut plan.schedules[at].launches[launch];
        *launch.inputs.iter_mut().chain(&mut launch.outputs).nth(which)? = new;
        Some(())
    })
}

fn another_operand(plan: &Plan, random: &mut Random) -> Option<Plan> {
    replaced(plan, random, |schedule, id| {
        let all = (0..schedule.places.len()).map(|index| TensorId(index as u32));
        all.filter(|other| schedule.origin(*other) != schedule.origin(id)).collect()
    })
}

fn no_such_tensor(plan: &Plan, random: &mut Random) -> Option<Plan> {
    replaced(plan, random, |schedule, _| vec![TensorId(u32::MAX), TensorId(schedule.places.len() as u32)])
}

fn operand_too_many(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch(plan, random)?;
    with(plan, |plan| {
        let launch = &mut plan.schedules[at].launches[launch];
        let ids = [&mut launch.inputs, &mut launch.outputs];
        let ids = ids.into_iter().nth(random.below(2))?;
        match random.below(2) {
            0 => ids.push(TensorId(0)),
            _ => drop(ids.pop()?),
        }
        Some(())
    })
}

fn another_node(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch(plan, random)?;
    let nodes = &plan.lowered[at].nodes;
    let old = plan.schedules[at].launches[launch].node;
    let differs = |node: &usize| {
        nodes
            .get(*node)
            .is_none_or(|node| (&node.inputs, &node.outputs) != (&nodes[old].inputs, &nodes[old].outputs))
    };
    let all: Vec<usize> = (0..nodes.len()).chain([nodes.len(), usize::MAX]).filter(differs).collect();
    let node = random.one_of(&all)?;
    with(plan, |plan| {
        plan.schedules[at].launches[launch].node = node;
        Some(())
    })
}

/// Returns `true` if the results of a launch are read later, or kept.
fn is_useful(plan: &Plan, at: At, launch: usize) -> bool {
    let schedule = &plan.schedules[at];
    schedule.launches[launch].outputs.iter().any(|id| {
        let role = plan.programs[at].tensors.get(id.index()).map(|tensor| tensor.role);
        role.is_some_and(|role| role.is_persistent() || role == Role::Output)
            || schedule.launches[launch + 1..].iter().any(|later| later.inputs.contains(id))
    })
}

fn launch_missing(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch(plan, random)?;
    let plan = Some(plan).filter(|plan| is_useful(plan, at, launch))?;
    with(plan, |plan| {
        plan.schedules[at].launches.remove(launch);
        Some(())
    })
}

/// A launch that updates a parameter or state must not run twice.
fn launch_twice(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch(plan, random)?;
    let updates = |launch: &Launch| launch.outputs.iter().any(|id| is_persistent(plan, at, *id));
    let plan = Some(plan).filter(|plan| updates(&plan.schedules[at].launches[launch]))?;
    with(plan, |plan| {
        let launches = &mut plan.schedules[at].launches;
        launches.insert(launch, launches[launch].clone());
        Some(())
    })
}

/// Swaps two launches, one of which needs the other.
fn launches_swapped(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, second) = launch(plan, random)?;
    let first = random.below(second.max(1));
    let launches = &plan.schedules[at].launches;
    let (a, b) = (&launches[first], &launches[second]);
    let is_read = a.outputs.iter().any(|id| b.inputs.contains(id)) && is_useful(plan, at, second);
    let plan = Some(plan).filter(|_| first != second && is_read)?;
    with(plan, |plan| {
        plan.schedules[at].launches.swap(first, second);
        Some(())
    })
}

/// A parameter or state of a program.
fn persistent(plan: &Plan, random: &mut Random) -> Option<(At, TensorId)> {
    let at = program(plan, random)?;
    let all: Vec<TensorId> = plan.programs[at].ids().filter(|id| is_persistent(plan, at, *id)).collect();
    Some((at, random.one_of(&all)?))
}

fn parameter_elsewhere(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = persistent(plan, random)?;
    with(plan, |plan| {
        let place = plan.schedules[at].places[id.index()].as_mut()?;
        let old = *place;
        match random.below(3) {
            0 => place.offset = plan.arena_bytes.saturating_sub(place.bytes) / ALIGNMENT * ALIGNMENT,
            1 => place.offset += ALIGNMENT,
            _ => place.bytes += ALIGNMENT,
        }
        (*place != old).then_some(())
    })
}

fn parameter_on_another(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (first, second) =
        (random.below(plan.persistent.len().max(1)), random.below(plan.persistent.len().max(1)));
    let plan = Some(plan).filter(|plan| first != second && !plan.persistent.is_empty())?;
    with(plan, |plan| {
        let (old, new) = (plan.persistent[first].1.offset, plan.persistent[second].1.offset);
        let name = plan.persistent[first].0.name.clone();
        plan.persistent[first].1.offset = new;
        // All programs agree about it.
        for (program, schedule) in plan.programs.iter().zip(&mut plan.schedules) {
            if let Some(id) = program.find(&name) {
                let place = schedule.places[id.index()].as_mut()?;
                assert_eq!(place.offset, old);
                place.offset = new;
            }
        }
        Some(())
    })
}

fn parameter_forgotten(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let index = random.below(plan.persistent.len().max(1));
    with(plan, |plan| {
        plan.persistent.get(index)?;
        plan.persistent.remove(index);
        Some(())
    })
}

fn parameter_of_another_shape(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let index = random.below(plan.persistent.len().max(1));
    with(plan, |plan| {
        let shape = &mut plan.persistent.get_mut(index)?.0.shape;
        let axis = random.below(shape.0.len());
        shape.0[axis] += 1;
        Some(())
    })
}

fn parameter_twice(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let index = random.below(plan.persistent.len().max(1));
    with(plan, |plan| {
        let twice = plan.persistent.get(index)?.clone();
        plan.persistent.push(twice);
        Some(())
    })
}

/// A program's own value in bytes that belong to the parameters or states of others.
fn value_on_what_it_does_not_declare(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    let foreign = plan.persistent.iter().filter(|(tensor, _)| plan.programs[at].find(&tensor.name).is_none());
    let blocks: Vec<Block> = foreign.map(|(_, block)| *block).collect();
    let block = random.one_of(&blocks)?;
    let plan = Some(plan).filter(|_| !is_persistent(plan, at, id))?;
    with(plan, |plan| {
        plan.schedules[at].places[id.index()].as_mut()?.offset = block.offset;
        Some(())
    })
}

fn scratch_on_a_parameter(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    let (_, block) = random.one_of(&plan.persistent)?;
    with(plan, |plan| {
        plan.schedules[at].launches[launch].scratch.offset = block.offset;
        Some(())
    })
}

/// An attribute that shapes follow from. Others make another program, of which this is a right plan.
fn another_attribute(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let at = program(plan, random)?;
    let is_conv = |node: &usize| {
        matches!(
            plan.programs[at].nodes[*node].op,
            Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvWeightGrad(_)
        )
    };
    let all: Vec<usize> = (0..plan.programs[at].nodes.len()).filter(is_conv).collect();
    let node = random.one_of(&all)?;
    let change = [1, 7, usize::MAX / 2, usize::MAX][random.below(4)];
    let which = random.below(3);
    with(plan, |plan| {
        let (window, groups) = match &mut plan.programs[at].nodes[node].op {
            Op::Conv(op) => (&mut op.window, &mut op.groups),
            Op::ConvTranspose(op) => (&mut op.window, &mut op.groups),
            Op::ConvWeightGrad(op) => (&mut op.window, &mut op.groups),
            _ => return None,
        };
        match which {
            0 => window.kernel[1] = window.kernel[1].wrapping_add(change),
            1 => window.padding[1] = window.padding[1].wrapping_add(change),
            _ => *groups = groups.wrapping_sub(change),
        }
        Some(())
    })
}

fn another_shape(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    let id = plan.schedules[at].origin(id)?;
    let axis = random.below(plan.programs[at].shape(id).0.len());
    let extent = [0, 1000, usize::MAX][random.below(3)];
    with(plan, |plan| {
        plan.programs[at].tensors[id.index()].shape.0[axis] = extent;
        Some(())
    })
}

fn another_name(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = persistent(plan, random)?;
    with(plan, |plan| {
        plan.programs[at].rename(id, "unheard of");
        Some(())
    })
}

fn lowered_node(plan: &Plan, random: &mut Random) -> Option<(At, usize)> {
    let at = program(plan, random)?;
    Some((at, random.below(plan.lowered[at].nodes.len())))
}

fn covers_something_else(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, node) = lowered_node(plan, random)?;
    with(plan, |plan| {
        let covers = &mut plan.lowered[at].nodes[node].covers;
        match random.below(4) {
            0 => covers.push(usize::MAX),
            1 => covers.clear(),
            2 => covers.insert(0, covers.first()?.wrapping_sub(1)),
            _ => covers[0] = covers[0].wrapping_add(1),
        }
        Some(())
    })
}

fn works_in_place(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, node) = lowered_node(plan, random)?;
    let pair = [(0, 0), (0, 1), (1, 0), (usize::MAX, usize::MAX)][random.below(4)];
    with(plan, |plan| {
        let pairs = &mut plan.lowered[at].nodes[node].in_place;
        (!pairs.contains(&pair)).then(|| pairs.push(pair))
    })
}

fn other_sizes(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, id) = value(plan, random)?;
    let id = plan.schedules[at].origin(id)?;
    let bytes = [0, 8, usize::MAX][random.below(3)];
    with(plan, |plan| {
        let old = &mut plan.lowered[at].bytes[id.index()];
        (*old != bytes).then(|| *old = bytes)
    })
}

fn less_scratch_lowered(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, launch) = launch_with_scratch(plan, random)?;
    with(plan, |plan| {
        let launch = &mut plan.schedules[at].launches[launch];
        plan.lowered[at].nodes[launch.node].scratch = 0;
        launch.scratch.bytes = 0;
        Some(())
    })
}

fn lowered_otherwise(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, node) = lowered_node(plan, random)?;
    with(plan, |plan| {
        let lowered = &mut plan.lowered[at];
        match random.below(6) {
            0 => drop(lowered.nodes.remove(node)),
            1 => lowered.nodes.push(lowered.nodes[node].clone()),
            2 => lowered.nodes[node].name.push('!'),
            3 => lowered.nodes[node].inputs.push(TensorId(u32::MAX)),
            4 => lowered.nodes[node].outputs.push(TensorId(0)),
            _ => drop(lowered.bytes.pop()?),
        }
        Some(())
    })
}

/// A copy that some launch makes.
fn copy(plan: &Plan, random: &mut Random) -> Option<(At, usize)> {
    let at = program(plan, random)?;
    let schedule = &plan.schedules[at];
    let own = plan.programs[at].tensors.len();
    let made = schedule.launches.iter().flat_map(|launch| &launch.outputs);
    let copies: Vec<usize> = made.filter_map(|id| id.index().checked_sub(own)).collect();
    Some((at, random.one_of(&copies)?))
}

fn copy_of_another(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let (at, copy) = copy(plan, random)?;
    let old = plan.schedules[at].copies[copy];
    let others: Vec<TensorId> = plan.programs[at].ids().filter(|id| *id != old).collect();
    let other = random.one_of(&others)?;
    with(plan, |plan| {
        plan.schedules[at].copies[copy] = other;
        Some(())
    })
}

fn copy_of_an_input(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let at = program(plan, random)?;
    let program = &plan.programs[at];
    let others: Vec<TensorId> =
        program.ids().filter(|id| program.tensor(*id).role != Role::Intermediate).collect();
    let other = [random.one_of(&others)?, TensorId(u32::MAX)][random.below(2)];
    with(plan, |plan| {
        plan.schedules[at].copies.push(other);
        plan.schedules[at].places.push(None);
        Some(())
    })
}

fn number_of_schedules(plan: &Plan, random: &mut Random) -> Option<Plan> {
    with(plan, |plan| {
        match random.below(6) {
            0 => drop(plan.schedules.pop()?),
            1 => plan.schedules.push(plan.schedules.first()?.clone()),
            2 => drop(plan.lowered.pop()?),
            3 => plan.lowered.push(plan.lowered.first()?.clone()),
            4 => drop(plan.programs.pop()?),
            _ => {
                plan.schedules.push(plan.schedules.first()?.clone());
                plan.lowered.push(plan.lowered.first()?.clone());
                plan.programs.push(plan.programs.first()?.clone());
            }
        }
        Some(())
    })
}

fn number_of_places(plan: &Plan, random: &mut Random) -> Option<Plan> {
    let at = program(plan, random)?;
    with(plan, |plan| {
        let schedule = &mut plan.schedules[at];
        match random.below(4) {
            0 => drop(schedule.places.pop()?),
            1 => schedule.places.push(None),
            2 => schedule.places.clear(),
            _ => schedule.copies.push(TensorId(0)),
        }
        Some(())
    })
}

fn arena_too_small(plan: &Plan, random: &mut Random) -> Option<Plan> {
    with(plan, |plan| {
        let less = [1, ALIGNMENT, plan.arena_bytes][random.below(3)];
        plan.arena_bytes = plan.arena_bytes.checked_sub(less)?;
        Some(())
    })
}
