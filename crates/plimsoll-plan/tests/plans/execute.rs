//! Runs a plan of the backend on paper, over an arena of f64: what the verifier accepts must compute what its programs say.

use std::collections::HashMap;
use std::ops::Range;

use plimsoll_graph::{Array, Program, Role, TensorId, interpret};
use plimsoll_plan::{Block, LoweredNode, Plan, ProgramPlan};

use crate::paper::ELEMENT;
use conformance::random::complete;

/// Arenas above this many bytes are not run.
const MOST: usize = 1 << 24;

/// Runs all programs of a plan, twice, one after the other, and says where a result is not what the definitions say. The plan
/// must be one that the verifier accepts: all places are taken to be sound.
pub fn fault(plan: &Plan) -> Option<String> {
    if plan.arena_bytes > MOST {
        return None;
    }
    let mut arena = vec![f64::NAN; plan.arena_bytes / ELEMENT];
    // Parameters and states as they should be by now.
    let mut kept: HashMap<String, Array> = HashMap::new();
    for _ in 0..2 {
        let programs = plan.programs.iter().zip(&plan.lowered).zip(&plan.schedules);
        for ((program, lowered), schedule) in programs {
            let mut values = kept.clone();
            complete(program, &mut values);
            let expected = match interpret(program, &values) {
                Ok(expected) => expected,
                Err(problem) => return Some(problem.to_string()),
            };
            for id in program.ids() {
                let tensor = program.tensor(id);
                let is_new = tensor.role.is_persistent() && !kept.contains_key(&tensor.name);
                if is_new || tensor.role == Role::Input {
                    store(&mut arena, schedule.place(id)?, &values[&tensor.name]);
                }
            }
            for launch in &schedule.launches {
                let node = &lowered.nodes[launch.node];
                launch_node(program, schedule, node, launch, &mut arena);
            }
            for (id, expected) in program.ids().zip(expected) {
                let tensor = program.tensor(id);
                if !tensor.role.is_persistent() && tensor.role != Role::Output {
                    continue;
                }
                let Some(place) = schedule.place(id) else { return Some(format!("{} is lost", tensor.name)) };
                let found = &arena[elements(place, expected.data.len())];
                let alike = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
                if !found.iter().zip(&expected.data).all(alike) {
                    return Some(format!("{} of {} is wrong", tensor.name, program.name));
                }
                if tensor.role.is_persistent() {
                    kept.insert(tensor.name.clone(), expected);
                }
            }
        }
    }
    None
}

fn elements(place: Block, count: usize) -> Range<usize> {
    let first = place.offset / ELEMENT;
    first..first + count
}

fn store(arena: &mut [f64], place: Block, value: &Array) {
    arena[elements(place, value.data.len())].copy_from_slice(&value.data);
}

/// Computes what a lowered node covers, fills its scratch with something, and writes the results.
fn launch_node(
    program: &Program,
    schedule: &ProgramPlan,
    node: &LoweredNode,
    launch: &plimsoll_plan::Launch,
    arena: &mut [f64],
) {
    let place = |id: &TensorId| schedule.place(*id).unwrap();
    let mut own: HashMap<TensorId, Array> = HashMap::new();
    for (origin, id) in node.inputs.iter().zip(&launch.inputs) {
        let shape = program.shape(*origin).clone();
        let data = arena[elements(place(id), shape.count())].to_vec();
        own.insert(*origin, Array { shape, data });
    }
    for covered in &node.covers {
        let of = &program.nodes[*covered];
        let operands: Vec<&Array> = of.inputs.iter().map(|id| &own[id]).collect();
        let shapes: Vec<_> = of.outputs.iter().map(|id| program.shape(*id).clone()).collect();
        let results = of.op.rule().evaluate(&operands, &shapes);
        own.extend(of.outputs.iter().copied().zip(results));
    }
    let garbage = elements(launch.scratch, node.scratch / ELEMENT);
    arena[garbage].fill(f64::NAN);
    for (origin, id) in node.outputs.iter().zip(&launch.outputs) {
        store(arena, place(id), &own[origin]);
    }
}
