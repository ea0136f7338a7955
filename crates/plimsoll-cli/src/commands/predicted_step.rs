//! The predicted time of a step by kind of kernel.

use plimsoll_graph::{Cost, Program};
use plimsoll_memory::Bytes;
use plimsoll_nn::Training;
use plimsoll_plan::{Backend, Plan};
use serde::Serialize;

use super::bench_step::ONLY;
use crate::args::BenchedStep;
use crate::report::Table;

/// All launches of one kind in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Kind {
    op: String,
    launches: usize,
    seconds: f64,
    gflop: f64,
    /// The bytes that they read and write, by their costs.
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
            kinds: kinds(plan),
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
        let mut table = Table::new(["kernel", "launches", "predicted", "share", "GFLOP", "bytes"]);
        for kind in &self.kinds {
            table.row([
                kind.op.clone(),
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

/// The launches of the only program by kind, the longest first.
fn kinds(plan: &Plan) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    let nodes = plan.lowered.iter().flat_map(|lowered| &lowered.nodes);
    let nodes: Vec<_> = nodes.collect();
    for node in plan.schedule(ONLY).launches.iter().filter_map(|launch| nodes.get(launch.node)) {
        let Cost { flops, bytes } = node.cost;
        let place = kinds.iter().position(|kind| kind.op == node.name).unwrap_or(kinds.len());
        if place == kinds.len() {
            let op = node.name.clone();
            kinds.push(Kind { op, launches: 0, seconds: 0.0, gflop: 0.0, bytes: Bytes::ZERO });
        }
        let kind = &mut kinds[place];
        kind.launches += 1;
        kind.seconds += node.seconds;
        kind.gflop += flops as f64 / 1e9;
        kind.bytes += Bytes(bytes);
    }
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    kinds
}
