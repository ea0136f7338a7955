//! `plimsoll bench scaling`: the time of a step on many threads, and the nodes that share their work badly.
//!
//! Tasks of kernels are divided by shape alone, so one thread runs the same tasks as many threads do. Each task is timed on one thread,
//! and the tasks are divided among simulated threads as the pool would divide them. Competition of threads for memory and shared caches is
//! not simulated. For as many threads as the machine has cores the step is measured instead.

use plimsoll::backend::{CpuBackend, LaunchTasks, barrier_seconds, processor};
use plimsoll_graph::Program;
use plimsoll_memory::{Budget, MapError};
use plimsoll_nn::{Training, predict};
use plimsoll_plan::{Engine, EngineError, NodeTime, Options, VerifiedPlan, engine_bytes, open_engine, plan};
use serde::Serialize;

use super::bench_step::{ONLY, fill};
use crate::args::{BenchScaling, Precision};
use crate::failure::Outcome;
use crate::report::{Table, json};
use crate::terminal::observed;

#[derive(Serialize)]
struct ScalingReport {
    net: String,
    patch_size: [usize; 3],
    batch_size: usize,
    precision: String,
    forward: bool,
    cores: usize,
    /// The processor time.
    seconds_on_one_thread: f64,
    barrier: Barrier,
    threads: Vec<Scaled>,
}

/// The time of a kernel beyond its tasks.
#[derive(Serialize)]
struct Barrier {
    /// On how many threads it was measured; simulated ones are given the same.
    measured_with_threads: usize,
    seconds: f64,
    /// With a millisecond of rest before, after which threads sleep.
    seconds_after_rest: f64,
}

/// The step on a number of threads.
#[derive(Serialize)]
struct Scaled {
    threads: usize,
    /// Else simulated.
    measured: bool,
    seconds: f64,
    /// Seconds on one thread, over threads times the seconds on all.
    efficiency: f64,
    /// The one that loses most first.
    kinds: Vec<Kind>,
    nodes: Vec<Node>,
}

/// All nodes of a kind.
#[derive(Serialize)]
struct Kind {
    kind: String,
    seconds_on_one_thread: f64,
    seconds: f64,
    efficiency: f64,
}

/// One node.
#[derive(Serialize)]
struct Node {
    kind: String,
    result: String,
    /// The number of tasks of its kernels, in order.
    tasks: Vec<usize>,
    seconds_on_one_thread: f64,
    seconds: f64,
    efficiency: f64,
    /// Beyond an equal share of what one thread takes.
    lost_seconds: f64,
}

/// The nodes of a program with their tasks on one thread.
struct Timed {
    nodes: Vec<(NodeTime, LaunchTasks)>,
}

/// A program, and what it is filled with.
struct Step<'a> {
    program: &'a Program,
    training: &'a Training,
    budget: Budget,
    rounds: u16,
    precision: Precision,
}

impl Step<'_> {
    fn plan(&self, threads: usize) -> Outcome<(CpuBackend, VerifiedPlan)> {
        let backend = processor(threads, self.precision.into())?;
        let plan = plan(std::slice::from_ref(self.program), &backend, Options::default())?;
        Ok((backend, plan))
    }

    /// Runs it on one thread, planned for `threads`.
    fn time(&self, backend: &CpuBackend, plan: VerifiedPlan) -> Outcome<Timed> {
        let arena = self.budget.reserve("arena", engine_bytes(backend, &plan));
        let (mut engine, log) =
            backend.logged_engine(plan, arena.map_err(|full| EngineError::from(MapError::from(full)))?)?;
        self.run(&mut *engine)?;
        Ok(Timed { nodes: engine.least_times(ONLY).into_iter().zip(log.launches()).collect() })
    }

    /// One run to touch all pages, and those that count.
    fn run(&self, engine: &mut dyn Engine) -> Outcome {
        fill(engine, self.program, self.training)?;
        for _ in 0..=self.rounds {
            engine.run(ONLY)?;
        }
        Ok(())
    }

    /// The step on threads that the machine has cores for.
    fn measured(&self, threads: usize, nodes: usize) -> Outcome<Scaled> {
        let (backend, plan) = self.plan(threads)?;
        let timed = self.time(&backend, plan.clone())?;
        let mut engine = open_engine(&backend, plan, &self.budget)?;
        self.run(&mut *engine)?;
        let seconds: Vec<f64> = engine.least_times(ONLY).iter().map(|node| node.seconds).collect();
        Ok(Scaled::new(&timed, &seconds, threads, true, nodes))
    }
}

impl Timed {
    fn seconds(&self) -> f64 {
        self.nodes.iter().map(|(_, tasks)| tasks.seconds()).sum()
    }

    fn simulated(&self, threads: usize, barrier: f64, nodes: usize) -> Scaled {
        let seconds: Vec<f64> =
            self.nodes.iter().map(|(_, tasks)| tasks.seconds_on(threads, barrier)).collect();
        Scaled::new(self, &seconds, threads, false, nodes)
    }
}

impl Scaled {
    /// The step on several threads, from the seconds of each node there. At most `most` nodes are listed.
    fn new(one: &Timed, seconds: &[f64], threads: usize, measured: bool, most: usize) -> Scaled {
        let efficiency = |one: f64, all: f64| one / (threads as f64 * all);
        let lost = |one: f64, all: f64| all - one / threads as f64;
        let mut kinds: Vec<Kind> = Vec::new();
        let mut nodes = Vec::with_capacity(seconds.len());
        for ((node, tasks), all) in one.nodes.iter().zip(seconds) {
            let on_one = tasks.seconds();
            match kinds.iter_mut().find(|kind| kind.kind == node.op) {
                Some(kind) => {
                    kind.seconds_on_one_thread += on_one;
                    kind.seconds += all;
                }
                None => kinds.push(Kind {
                    kind: node.op.clone(),
                    seconds_on_one_thread: on_one,
                    seconds: *all,
                    efficiency: 0.0,
                }),
            }
            nodes.push(Node {
                kind: node.op.clone(),
                result: node.result.clone(),
                tasks: tasks.kernels.iter().map(Vec::len).collect(),
                seconds_on_one_thread: on_one,
                seconds: *all,
                efficiency: efficiency(on_one, *all),
                lost_seconds: lost(on_one, *all),
            });
        }
        for kind in &mut kinds {
            kind.efficiency = efficiency(kind.seconds_on_one_thread, kind.seconds);
        }
        let lost_by = |kind: &Kind| lost(kind.seconds_on_one_thread, kind.seconds);
        kinds.sort_by(|a, b| lost_by(b).total_cmp(&lost_by(a)));
        nodes.sort_by(|a, b| b.lost_seconds.total_cmp(&a.lost_seconds));
        nodes.truncate(most);
        let seconds = seconds.iter().sum();
        Scaled { threads, measured, seconds, efficiency: efficiency(one.seconds(), seconds), kinds, nodes }
    }
}

/// Times the tasks, and prints what comes of them on each number of threads.
pub fn run(args: &BenchScaling, as_json: bool) -> Outcome {
    let training = args.what.training(1)?;
    let program = match args.forward {
        true => predict(training.net.as_architecture(), training.patch, training.batch, training.precision)?,
        false => training.programs()?.gradients.swap_remove(0),
    };
    let budget = Budget::new(observed(as_json).limits(args.ram.ram).limit);
    let step = Step {
        program: &program,
        training: &training,
        budget,
        rounds: args.rounds,
        precision: args.what.precision,
    };
    let cores = std::thread::available_parallelism()?.get();
    // One thread never waits. No more threads are started than requested.
    let most = args.threads.iter().fold(2, |most, threads| most.max(*threads));
    let measured_with_threads = cores.clamp(2, most);
    let [seconds, seconds_after_rest] = barrier_seconds(measured_with_threads)?;
    let barrier = Barrier { measured_with_threads, seconds, seconds_after_rest };
    let (backend, plan) = step.plan(1)?;
    let one = step.time(&backend, plan)?;
    let scaled = args.threads.iter().map(|threads| match *threads <= cores {
        true => step.measured(*threads, args.nodes),
        false => Ok(one.simulated(*threads, barrier.seconds, args.nodes)),
    });
    let threads = scaled.collect::<Outcome<Vec<Scaled>>>()?;
    let report = ScalingReport {
        net: args.what.net.to_string(),
        patch_size: training.patch,
        batch_size: training.batch,
        precision: args.what.precision.to_string(),
        forward: args.forward,
        cores,
        seconds_on_one_thread: one.seconds(),
        barrier,
        threads,
    };
    if as_json {
        return json(&report);
    }
    report.print();
    Ok(())
}

impl ScalingReport {
    fn print(&self) {
        println!(
            "{} {:?} × {}, {}: {:.3} s of processor time on one thread; a kernel's barrier {:.1} µs, {:.1} µs after a rest \
             (measured with {} threads)",
            self.net,
            self.patch_size,
            self.batch_size,
            if self.forward { "forward pass" } else { "step" },
            self.seconds_on_one_thread,
            1e6 * self.barrier.seconds,
            1e6 * self.barrier.seconds_after_rest,
            self.barrier.measured_with_threads,
        );
        let percent = |fraction: f64| format!("{:.1} %", 100.0 * fraction);
        let mut table = Table::new(["threads", "", "seconds", "efficiency"]);
        for scaled in &self.threads {
            let how = if scaled.measured { "measured" } else { "simulated" };
            table.row([
                scaled.threads.to_string(),
                how.into(),
                format!("{:.4}", scaled.seconds),
                percent(scaled.efficiency),
            ]);
        }
        table.print();
        for scaled in &self.threads {
            println!("on {} threads, what loses most first:", scaled.threads);
            let mut table = Table::new(["kind of node", "ms on one", "ms", "efficiency"]);
            for kind in &scaled.kinds {
                table.row([
                    kind.kind.clone(),
                    format!("{:.2}", 1e3 * kind.seconds_on_one_thread),
                    format!("{:.2}", 1e3 * kind.seconds),
                    percent(kind.efficiency),
                ]);
            }
            table.print();
            let mut table = Table::new(["node", "tasks", "ms on one", "ms", "ms lost", "efficiency"]);
            for node in &scaled.nodes {
                let tasks: Vec<String> = node.tasks.iter().map(usize::to_string).collect();
                table.row([
                    format!("{} → {}", node.kind, node.result),
                    tasks.join(" + "),
                    format!("{:.2}", 1e3 * node.seconds_on_one_thread),
                    format!("{:.2}", 1e3 * node.seconds),
                    format!("{:.2}", 1e3 * node.lost_seconds),
                    percent(node.efficiency),
                ]);
            }
            table.print();
        }
    }
}
