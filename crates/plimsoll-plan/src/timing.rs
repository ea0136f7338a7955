//! The times of the launches of an engine.

use std::time::Duration;

use serde::Serialize;

use crate::{Launch, Plan, ProgramId};

/// The time of all launches of one kind of kernel.
#[derive(Clone, Debug, Serialize)]
pub struct OpTime {
    /// The kind, as [`LoweredNode::name`](crate::LoweredNode::name) has it.
    pub op: String,
    /// The number of runs.
    pub runs: u64,
    /// Their total time. Runs of a program that were not measured launch by launch count as the measured ones.
    pub seconds: f64,
}

/// The time of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTime {
    /// The kind of kernel.
    pub op: String,
    /// Name and shape of its first result.
    pub result: String,
    /// The shortest time of all runs so far; infinite before the first.
    pub seconds: f64,
}

/// The times of the launches of a plan's programs so far.
#[derive(Clone, Debug)]
pub struct Timings {
    /// The timing of each launch of each program.
    programs: Vec<Vec<Timing>>,
    /// Runs of each program whose launches were not measured one by one.
    unmeasured: Vec<u64>,
}

/// The number of runs of a launch, their total time, and the least time of one run.
#[derive(Clone, Copy, Debug)]
struct Timing {
    runs: u64,
    all: Duration,
    least: Duration,
}

impl Timings {
    /// Nothing was run yet.
    pub fn new(plan: &Plan) -> Timings {
        let none = Timing { runs: 0, all: Duration::ZERO, least: Duration::MAX };
        let programs: Vec<_> = plan.schedules.iter().map(|of| vec![none; of.launches.len()]).collect();
        Timings { unmeasured: vec![0; programs.len()], programs }
    }

    /// A launch of a program was run. Both must be of the plan.
    pub fn add(&mut self, program: ProgramId, launch: usize, time: Duration) {
        let timing = &mut self.programs[program.index()][launch];
        timing.runs += 1;
        timing.all += time;
        timing.least = timing.least.min(time);
    }

    /// A program of the plan was run, and its launches were not measured one by one.
    pub fn add_unmeasured(&mut self, program: ProgramId) {
        self.unmeasured[program.index()] += 1;
    }

    /// By kind, the longest first.
    pub fn by_kind(&self, plan: &Plan) -> Vec<OpTime> {
        let mut times: Vec<OpTime> = Vec::new();
        for ((id, timings), unmeasured) in plan.ids().zip(&self.programs).zip(&self.unmeasured) {
            let lowered = &plan.lowered[id.index()];
            for (timing, launch) in timings.iter().zip(&plan.schedule(id).launches) {
                let op = &lowered.nodes[launch.node].name;
                let runs = timing.runs + unmeasured;
                let seconds = timing.all.as_secs_f64() * (runs as f64 / timing.runs.max(1) as f64);
                match times.iter_mut().find(|known| known.op == *op) {
                    Some(known) => {
                        known.runs += runs;
                        known.seconds += seconds;
                    }
                    None => times.push(OpTime { op: op.clone(), runs, seconds }),
                }
            }
        }
        times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        times
    }

    /// The least of each launch of a program, in order; nothing if the plan has no such program.
    pub fn least(&self, plan: &Plan, id: ProgramId) -> Vec<NodeTime> {
        let Some(timings) = self.programs.get(id.index()) else { return Vec::new() };
        let (program, schedule) = (plan.program(id), plan.schedule(id));
        let time = |(timing, launch): (&Timing, &Launch)| {
            let origin = launch.outputs.first().and_then(|id| schedule.origin(*id));
            let result = origin.map(|id| program.tensor(id));
            NodeTime {
                op: plan.lowered[id.index()].nodes[launch.node].name.clone(),
                result: result.map_or(String::new(), |tensor| format!("{} {}", tensor.name, tensor.shape)),
                seconds: if timing.runs == 0 { f64::INFINITY } else { timing.least.as_secs_f64() },
            }
        };
        timings.iter().zip(&schedule.launches).map(time).collect()
    }
}
