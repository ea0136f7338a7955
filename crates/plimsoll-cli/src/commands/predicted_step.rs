//! The predicted time of a step by kind of kernel and the resource that limits it.

use plimsoll_graph::Program;
use plimsoll_memory::Bytes;
use plimsoll_nn::Training;
use plimsoll_plan::{Backend, Bound, LoweredNode, Plan};
use serde::Serialize;

use super::bench_step::ONLY;
use crate::args::BenchedStep;
use crate::report::Table;

/// All nodes of one kind in a step that the same resource limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Kind {
    op: String,
    /// The resource that limits their speed; none on the processor, whose times are not divided by resource.
    bound: Option<Bound>,
    launches: usize,
    seconds: f64,
    gflop: f64,
    /// The bytes that they read and write, by their costs.
    bytes: Bytes,
}

/// One node of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    op: String,
    bound: Option<Bound>,
    seconds: f64,
    gflop: f64,
    bytes: Bytes,
}

/// A step as it is planned and predicted.
#[derive(Debug, Serialize)]
pub struct PredictedStep {
    net: String,
    patch_size: [usize; 3],
    batch_size: usize,
    precision: String,
    engine: String,
    predicted_seconds: f64,
    gflop: f64,
    arena_bytes: Bytes,
    /// With what the driver holds beside the arena; none on the processor.
    vram_bytes: Option<Bytes>,
    recompute_flops_fraction: f64,
    /// The longest first.
    kinds: Vec<Kind>,
    /// In the order in which they run.
    nodes: Vec<Node>,
}

impl PredictedStep {
    /// Predicts a step from the plan of its only program.
    pub fn new(
        step: &BenchedStep,
        training: &Training,
        program: &Program,
        plan: &Plan,
        backend: &dyn Backend,
    ) -> PredictedStep {
        let schedule = plan.schedule(ONLY);
        let nodes = nodes(plan);
        PredictedStep {
            net: step.what.net.to_string(),
            patch_size: training.patch,
            batch_size: step.what.batch,
            precision: step.what.precision.to_string(),
            engine: backend.identity(),
            predicted_seconds: schedule.predicted_seconds,
            gflop: program.flops() as f64 / 1e9,
            arena_bytes: Bytes::from_len(plan.arena_bytes),
            vram_bytes: backend.device_memory().map(|device| device.needed(plan.arena_bytes)),
            recompute_flops_fraction: schedule.recompute_flops_fraction,
            kinds: kinds(&nodes),
            nodes,
        }
    }

    /// Prints it as a table.
    pub fn print(&self) {
        let PredictedStep { net, patch_size: [d, h, w], batch_size, precision, engine, .. } = self;
        let held = match self.vram_bytes {
            Some(bytes) => format!("{bytes} of the device's memory"),
            None => format!("an arena of {}", self.arena_bytes),
        };
        println!(
            "{net} {d}×{h}×{w} × {batch_size}, {precision}, on {engine}: {:.1} ms per step predicted, {:.0} GFLOP, {held}, {:+.1} % \
             operations for recomputation",
            1e3 * self.predicted_seconds,
            self.gflop,
            100.0 * self.recompute_flops_fraction
        );
        let mut table = Table::new(["kernel", "limit", "launches", "predicted", "share", "GFLOP", "bytes"]);
        for kind in &self.kinds {
            table.row([
                kind.op.clone(),
                kind.bound.map_or_else(|| "–".into(), |bound| bound.to_string()),
                kind.launches.to_string(),
                format!("{:.3} ms", 1e3 * kind.seconds),
                format!("{:.1} %", 100.0 * kind.seconds / self.predicted_seconds.max(f64::MIN_POSITIVE)),
                format!("{:.1}", kind.gflop),
                kind.bytes.to_string(),
            ]);
        }
        table.print();
    }
}

/// The nodes that the only program runs.
fn nodes(plan: &Plan) -> Vec<Node> {
    let lowered: Vec<_> = plan.lowered.iter().flat_map(|lowered| &lowered.nodes).collect();
    let run = plan.schedule(ONLY).launches.iter().filter_map(|launch| lowered.get(launch.node));
    let node = |node: &&LoweredNode| Node {
        op: node.name.clone(),
        bound: node.bound,
        seconds: node.seconds,
        gflop: node.cost.flops as f64 / 1e9,
        bytes: Bytes(node.cost.bytes),
    };
    run.map(node).collect()
}

/// Nodes by kind and limit, the longest first.
fn kinds(nodes: &[Node]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for Node { op, bound, seconds, gflop, bytes } in nodes {
        let is_it = |kind: &Kind| kind.op == *op && kind.bound == *bound;
        let place = kinds.iter().position(is_it).unwrap_or(kinds.len());
        if place == kinds.len() {
            let (op, bound) = (op.clone(), *bound);
            kinds.push(Kind { op, bound, launches: 0, seconds: 0.0, gflop: 0.0, bytes: Bytes::ZERO });
        }
        let kind = &mut kinds[place];
        kind.launches += 1;
        kind.seconds += seconds;
        kind.gflop += gflop;
        kind.bytes += *bytes;
    }
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    kinds
}
