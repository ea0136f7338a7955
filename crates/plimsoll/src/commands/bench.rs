//! `plimsoll bench`

use std::time::Instant;

use plimsoll_cpu::{CpuEngine, CpuLayout, CpuOptions, fma_peak};
use plimsoll_graph::ops::Noise;
use plimsoll_graph::{DType, Program, Role};
use plimsoll_memory::{Budget, Bytes, System, limits, resident, watched_allocations};
use plimsoll_nn::{Objective, Optimizer, Training, UNet, initial_values, names};
use plimsoll_plan::{Engine, HostSlice, Options, plan};
use plimsoll_train::{Machine, rates};
use serde::Serialize;

use crate::args::{Bench, BenchNet, BenchStep, BenchedStep};
use crate::failure::{Failure, Outcome};
use crate::report::json;

/// Measures what was asked for.
pub fn run(bench: &Bench, as_json: bool) -> Outcome {
    match bench {
        Bench::Step(step) => bench_step(step, as_json),
        Bench::Curve(curve) => super::bench_curve::run(curve, as_json),
        Bench::Kernels(kernels) => super::bench_kernels::run(kernels, as_json),
    }
}

#[derive(Serialize)]
struct StepReport {
    net: String,
    patch_size: [usize; 3],
    batch_size: usize,
    precision: DType,
    engine: String,
    seconds_per_step: f64,
    gflops: f64,
    fma_peak_gflops: f64,
    fraction_of_peak: f64,
    arena_bytes: usize,
    arena_lower_bound_bytes: usize,
    recompute_flops_fraction: f64,
    predicted_seconds: f64,
    peak_rss_bytes: Bytes,
    heap_allocations_in_steps: u64,
}

impl BenchedStep {
    fn network(&self) -> UNet {
        let stages = match self.net {
            BenchNet::Dynunet => 5,
            BenchNet::Plain => 6,
        };
        let doubled = |stage: usize| (32 << stage).min(320);
        let features = self.features.clone().unwrap_or_else(|| (0..stages).map(doubled).collect());
        let stages = features.len();
        let mut strides = vec![[2; 3]; stages];
        strides.iter_mut().take(1).for_each(|first| *first = [1; 3]);
        match self.net {
            BenchNet::Dynunet => UNet::dynunet(1, 2, &features, &vec![[3; 3]; stages], &strides),
            BenchNet::Plain => UNet::plain_conv(1, 2, &features, &vec![[3; 3]; stages], &strides),
        }
    }

    /// The training whose steps these are, in so many micro-batches of the size asked for.
    pub(super) fn training(&self, micro_batches: usize) -> Training {
        Training {
            net: self.network(),
            loss: Objective::default(),
            spacing: [1.0; 3],
            optimizer: Optimizer::adamw(),
            max_grad_norm: None,
            patch: self.size,
            batch: self.batch * micro_batches,
            micro_batch: self.batch,
            precision: self.precision.into(),
        }
    }

    /// The machine that it is measured on.
    pub(super) fn machine(&self) -> Machine {
        let line = limits(&System::default(), self.ram.ram).line;
        Machine { line, threads: self.threads.count(), loader_threads: 0 }
    }
}

/// The layout of a machine whose rates are known.
pub(super) fn layout(machine: Machine, program: &Program) -> CpuLayout {
    CpuLayout { threads: machine.threads, rates: rates(machine, std::slice::from_ref(program)) }
}

fn bench_step(args: &BenchStep, as_json: bool) -> Outcome {
    let training = args.step.training(1);
    let program = training.programs()?.gradients.swap_remove(0);
    let machine = args.step.machine();
    let layout = layout(machine, &program);
    let arena = args.arena.map(|arena| usize::try_from(arena.0).unwrap_or(usize::MAX));
    let options = Options { budget: arena, ..Options::default() };
    let plan = plan(std::slice::from_ref(&program), &layout, options)?;
    let budget = Budget::new(machine.line);
    let arena_bytes = plan.arena_bytes;
    if let Some(asked) = args.arena.filter(|asked| Bytes::of(arena_bytes) > *asked) {
        let needed = Bytes::of(arena_bytes);
        let message = format!("an arena of {asked} is not enough: the least that was found is {needed}");
        return Err(Failure::new(message, format!("--arena {arena_bytes}")));
    }
    let recompute_flops_fraction = plan.programs[0].recompute_flops_fraction;
    let predicted_seconds = plan.programs[0].predicted_seconds;
    let arena_lower_bound_bytes = plan.lower_bound_bytes;
    let reservation = budget.reserve("arena", Bytes::of(arena_bytes.next_multiple_of(4096)))?;
    let mut engine = CpuEngine::new(plan, reservation, CpuOptions::new(layout.threads))?;
    fill(&mut engine, &program, &training);
    let mut seconds = Vec::with_capacity(args.steps);
    engine.run(0);
    let allocations = watched_allocations();
    for _ in 0..args.steps.max(1) {
        let start = Instant::now();
        engine.run(0);
        seconds.push(start.elapsed().as_secs_f64());
    }
    let heap_allocations_in_steps = watched_allocations() - allocations;
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let gflops = program.flops() as f64 / median / 1e9;
    let fma_peak_gflops = fma_peak(layout.threads)? / 1e9;
    let report = StepReport {
        net: format!("{:?}", args.step.net).to_lowercase(),
        patch_size: training.patch,
        batch_size: args.step.batch,
        precision: training.precision,
        engine: engine.describe(),
        seconds_per_step: median,
        gflops,
        fma_peak_gflops,
        fraction_of_peak: gflops / fma_peak_gflops,
        arena_bytes,
        arena_lower_bound_bytes,
        recompute_flops_fraction,
        predicted_seconds,
        peak_rss_bytes: resident()?.peak,
        heap_allocations_in_steps,
    };
    if args.profile {
        for (name, seconds) in engine.least_times(0) {
            eprintln!("{name:60} {:8.2} ms", seconds * 1e3);
        }
    }
    if as_json {
        return json(&report);
    }
    println!(
        "{} {:?} × {}: {median:.3} s per step ({predicted_seconds:.3} predicted), {:.0} GFLOP/s ({:.0} % of the multiply-add \
         peak), {}; arena {} (lower bound {}, {:+.1} % operations for recomputation), peak RSS {}",
        report.net,
        report.patch_size,
        report.batch_size,
        report.gflops,
        100.0 * report.fraction_of_peak,
        report.engine,
        Bytes::of(arena_bytes),
        Bytes::of(arena_lower_bound_bytes),
        100.0 * recompute_flops_fraction,
        report.peak_rss_bytes
    );
    Ok(())
}

/// Writes initial weights, a made-up image and labels that have to do with it.
pub(super) fn fill(engine: &mut CpuEngine, program: &Program, training: &Training) {
    for id in program.with_role(Role::Parameter) {
        let values = initial_values(program.tensor(id), training.net.slope, 0);
        engine.write(0, id, HostSlice::F32(&values));
    }
    for id in program.with_role(Role::Input) {
        let tensor = program.tensor(id);
        let wave = |i: usize| (i as f32 * 0.37).sin() + (i as f32 * 0.0113).cos();
        match tensor.name.as_str() {
            names::LABELS => {
                let labels: Vec<u8> = (0..tensor.shape.count()).map(|i| u8::from(wave(i) > 0.8)).collect();
                engine.write(0, id, HostSlice::U8(&labels));
            }
            names::RATES => engine.write(0, id, HostSlice::F32(&training.optimizer.rates(1e-3, 10))),
            names::NOISE => engine.write(0, id, HostSlice::F32(&Noise::of_step(0, 0, 0).to_table())),
            _ => {
                let image: Vec<f32> = (0..tensor.shape.count()).map(wave).collect();
                engine.write(0, id, HostSlice::F32(&image));
            }
        }
    }
}
