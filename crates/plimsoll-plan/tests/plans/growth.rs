//! The cost of planning grows with a program as counted here, in operations.

use std::sync::Arc;

use plimsoll_graph::ops::{Add, LeakyRelu, LeakyReluGrad};
use plimsoll_graph::{Cost, Kind, Program, Shape, TensorId};
use plimsoll_memory::Reservation;
use plimsoll_plan::{
    Backend, Engine, EngineError, LoweredNode, LoweredProgram, Options, PlanError, Planner, Rates,
    VerifiedPlan, agree,
};

/// Each node is a kernel. One value in 16 is much larger than the others.
struct Nodes;

/// Bytes of the smallest value.
const UNIT: usize = 4096;

fn bytes(tensor: usize) -> usize {
    UNIT * if tensor % 16 == 5 { 64 } else { 1 + tensor % 5 }
}

impl Backend for Nodes {
    fn identity(&self) -> String {
        "nodes".into()
    }

    fn alignment(&self) -> usize {
        64
    }

    fn lower(&self, programs: &[Program], _inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        let lowered = |program: &Program| {
            let sizes: Vec<usize> = (0..program.tensors.len()).map(bytes).collect();
            let node = |(place, node): (usize, &plimsoll_graph::Node)| LoweredNode {
                name: "node".into(),
                covers: vec![place],
                inputs: node.inputs.clone(),
                outputs: node.outputs.clone(),
                scratch: if place % 7 == 0 { 3 * UNIT } else { 0 },
                in_place: vec![(0, 0)],
                may_be_recomputed: true,
                cost: Cost::default(),
                seconds: 1e-9 * node.outputs.iter().map(|id| sizes[id.index()]).sum::<usize>() as f64,
                bound: None,
            };
            let nodes = program.nodes.iter().enumerate().map(node).collect();
            LoweredProgram { bytes: sizes.clone(), nodes }
        };
        Ok(programs.iter().map(lowered).collect())
    }

    fn engine(&self, _plan: VerifiedPlan, _arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        Err(EngineError::Internal("these nodes do not run".into()))
    }

    fn with_rates(&self, _rates: Option<Rates>) -> Arc<dyn Backend> {
        Arc::new(Nodes)
    }
}

/// A forward pass with skip connections and its backward pass, of `nodes` nodes.
fn training_step(nodes: usize) -> Program {
    let mut program = Program::new("step");
    let mut values: Vec<TensorId> =
        vec![program.input("image", Shape::volume(1, 1, [2, 2, 2]), Kind::Volume)];
    let depth = nodes / 2;
    for place in 0..depth {
        let last = values[place];
        let next = match place % 3 {
            2 => program.push_one(Add, &[last, values[place - 2]]),
            _ => program.push_one(LeakyRelu { slope: 0.01 }, &[last]),
        };
        values.push(next.unwrap());
    }
    let mut gradient = values[depth];
    for value in values[..depth].iter().rev() {
        gradient = program.push_one(LeakyReluGrad { slope: 0.01 }, &[gradient, *value]).unwrap();
    }
    program.mark_output(gradient, "gradient");
    program
}

/// Operations of planning with everything held, with two thirds of that, and for a limit that is too low. The search for the least memory
/// within half a percent of the least time takes no more than the last.
fn work(nodes: usize) -> [u64; 3] {
    let given = [training_step(nodes)];
    let kept = Planner::new(&given, &Nodes, Options::default()).unwrap();
    let arena = kept.plan(None).unwrap().arena_bytes;
    let tight = Planner::new(&given, &Nodes, Options::default()).unwrap();
    let budget = arena * 2 / 3;
    assert!(tight.plan(Some(budget)).unwrap().arena_bytes <= budget, "{nodes} nodes in {budget} bytes");
    let impossible = Planner::new(&given, &Nodes, Options::default()).unwrap();
    let bound = impossible.least_bound();
    let least = impossible.plan(Some(bound - 1)).unwrap().arena_bytes;
    assert!(bound <= least && least <= budget, "{nodes} nodes: {bound} ≤ {least} ≤ {budget}");
    let sparing = Planner::new(&given, &Nodes, Options::default()).unwrap();
    assert!(sparing.sparing_plan(None, 0.005).unwrap().arena_bytes <= arena, "{nodes} nodes");
    let (spared, whole) = (sparing.work(), impossible.work());
    assert!(spared <= whole, "{nodes} nodes: {spared} operations, {whole} for the whole curve");
    [kept.work(), tight.work(), impossible.work()]
}

#[test]
fn planning_grows_nearly_linearly_up_to_twenty_thousand_nodes() {
    let all = [1000, 4000, 20_000].map(|nodes| (nodes as u64, work(nodes)));
    for pair in all.windows(2) {
        let [(fewer, before), (more, after)] = [pair[0], pair[1]];
        for (what, before, after) in [
            ("everything fits", before[0], after[0]),
            ("a tight limit", before[1], after[1]),
            ("an impossible limit", before[2], after[2]),
        ] {
            // n log n, and half as much again for other numbers of rounds: n² would be 16 and 25 times as much.
            let logarithms = f64::ln(more as f64) / f64::ln(fewer as f64);
            let most = 1.5 * logarithms * (more / fewer) as f64 * before as f64;
            assert!(
                after as f64 <= most,
                "{what}: {before} operations for {fewer} nodes, {after} for {more}"
            );
        }
    }
}
