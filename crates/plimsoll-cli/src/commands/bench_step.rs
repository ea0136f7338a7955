//! `plimsoll bench step`, and what the other measurements share with it.

use std::sync::Arc;
use std::time::Instant;

use plimsoll::backend::{DeviceName, multiply_add_peak};
use plimsoll_graph::ops::Noise;
use plimsoll_graph::{Program, Role};
use plimsoll_memory::{Budget, Bytes, resident, watch_this_thread, watched_allocations};
use plimsoll_nn::{Network, Objective, Optimizer, Training, names, predict};
use plimsoll_plan::{
    Backend, DeviceMemory, Engine, EngineError, Goal, HostSlice, Options, Planner, ProgramId, open_engine,
};
use plimsoll_run::Machine;
use plimsoll_train::{SPARING, fastest_products, measured};
use serde::Serialize;

use super::predicted_step::PredictedStep;
use crate::args::{BenchStep, BenchedNet, BenchedStep, Compute, Precision};
use crate::failure::{Failure, Outcome};
use crate::report::{json, or_dash};
use crate::terminal::{cache_folder, observed};

/// The program of a plan that has one.
pub(super) const ONLY: ProgramId = ProgramId::new(0);

#[derive(Serialize)]
struct StepReport {
    net: String,
    patch_size: [usize; 3],
    batch_size: usize,
    /// The requested precision.
    precision: String,
    engine: String,
    seconds_per_step: f64,
    gflops: f64,
    /// The processor's peak, if the step ran on it.
    fma_peak_gflops: Option<f64>,
    fraction_of_peak: Option<f64>,
    arena_bytes: usize,
    arena_lower_bound_bytes: usize,
    recompute_flops_fraction: f64,
    predicted_seconds: f64,
    /// The memory of a device: planned with the driver's context, and used as the device reports.
    vram_planned_bytes: Option<Bytes>,
    vram_used_bytes: Option<Bytes>,
    peak_rss_bytes: Bytes,
    heap_allocations_in_steps: u64,
}

impl BenchedNet {
    /// The training of these steps, in `micro_batches` micro-batches of the requested size.
    pub(super) fn training(&self, micro_batches: usize) -> Outcome<Training> {
        Ok(Training {
            net: Network::reference(self.net, self.features.as_deref())?,
            loss: Objective::default(),
            spacing: [1.0; 3],
            optimizer: Optimizer::adamw(),
            max_grad_norm: None,
            ema: None,
            groups: Vec::new(),
            frozen: Vec::new(),
            patch: self.size,
            batch: self.batch * micro_batches,
            shards: 1,
            micro_batch: self.batch,
            precision: self.precision.into(),
        })
    }
}

impl BenchedStep {
    /// The training of these steps, in `micro_batches` micro-batches of the requested size.
    pub(super) fn training(&self, micro_batches: usize) -> Outcome<Training> {
        self.what.training(micro_batches)
    }

    /// The machine that it is measured on.
    pub(super) fn machine(&self) -> Machine {
        let limit = observed(true).limits(self.ram.ram).limit;
        Machine { limit, threads: self.compute.threads.count(), loader_threads: 0 }
    }
}

/// The backend of a machine with measured rates. For bf16 products, convolutions that are faster with them use them, as in a training; a
/// `forward` pass uses them everywhere, as in a prediction.
pub(super) fn backend(step: &BenchedStep, program: &Program, forward: bool) -> Outcome<Arc<dyn Backend>> {
    let (machine, programs) = (step.machine(), std::slice::from_ref(program));
    let mut backend = step.compute.open()?;
    if step.what.precision == Precision::Bf16Dot && !forward {
        let chosen = fastest_products(machine, &*backend, programs, cache_folder().as_ref())?;
        backend = backend.with_bf16_products(&chosen)?;
    } else {
        backend = step.what.precision.on(backend)?;
    }
    Ok(measured(machine, &*backend, programs, cache_folder().as_ref()))
}

/// More than any card has: a kind of card has as much memory as a step takes.
const UNBOUNDED: Bytes = Bytes::gib(1 << 20);

/// The same, to plan with alone.
fn backend_to_plan(step: &BenchedStep, program: &Program, forward: bool) -> Outcome<Arc<dyn Backend>> {
    let kind = match step.compute {
        Compute { device: DeviceName::Kind(_), vram: None, threads } => {
            DeviceName::open_to_plan(step.compute.device, threads.count(), Some(UNBOUNDED))?
        }
        Compute { device: DeviceName::Kind(_), .. } => step.compute.open_to_plan()?,
        _ => return backend(step, program, forward),
    };
    step.what.precision.on(kind)
}

/// Measures steps, and prints their median; or what they are predicted to take.
pub fn run(args: &BenchStep, as_json: bool) -> Outcome {
    let training = args.step.training(1)?;
    let program = match args.forward {
        true => predict(training.net.as_architecture(), training.patch, training.batch, training.precision)?,
        false => training.programs()?.gradients.swap_remove(0),
    };
    let machine = args.step.machine();
    let backend = match args.predict {
        true => backend_to_plan(&args.step, &program, args.forward)?,
        false => backend(&args.step, &program, args.forward)?,
    };
    let planner = Planner::new(std::slice::from_ref(&program), &*backend, Options::default())?;
    let plan = planner.plan_for(goal(args, &*backend))?;
    let arena_bytes = plan.arena_bytes;
    expect_fits(args, &*backend, arena_bytes)?;
    if args.predict {
        let predicted = PredictedStep::new(&args.step, &training, &program, &plan, &*backend);
        if as_json {
            return json(&predicted);
        }
        predicted.print();
        return Ok(());
    }
    let recompute_flops_fraction = plan.schedules[0].recompute_flops_fraction;
    let predicted_seconds = plan.schedules[0].predicted_seconds;
    let arena_lower_bound_bytes = plan.lower_bound_bytes;
    let budget = Budget::new(machine.limit);
    let mut engine = open_engine(&*backend, plan, &budget)?;
    fill(&mut *engine, &program, &training)?;
    let mut seconds = Vec::with_capacity(usize::from(args.steps));
    engine.run(ONLY)?;
    let watch = watch_this_thread();
    let allocations = watched_allocations();
    for _ in 0..args.steps {
        let start = Instant::now();
        engine.run(ONLY)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let heap_allocations_in_steps = watched_allocations() - allocations;
    drop(watch);
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let gflops = program.flops() as f64 / median / 1e9;
    let device = backend.device_memory();
    let fma_peak_gflops = match device {
        Some(_) => None,
        None => Some(multiply_add_peak(machine.threads)? / 1e9),
    };
    let context = device.map_or(Bytes::ZERO, |device| device.driver().context);
    let report = StepReport {
        net: args.step.what.net.to_string(),
        patch_size: training.patch,
        batch_size: args.step.what.batch,
        precision: args.step.what.precision.to_string(),
        engine: engine.plan().backend().into(),
        seconds_per_step: median,
        gflops,
        fma_peak_gflops,
        fraction_of_peak: fma_peak_gflops.map(|peak| gflops / peak),
        arena_bytes,
        arena_lower_bound_bytes,
        recompute_flops_fraction,
        predicted_seconds,
        vram_planned_bytes: device.map(|device| device.needed(arena_bytes)),
        vram_used_bytes: engine.device_bytes().map(|bytes| context + bytes),
        peak_rss_bytes: resident()?.peak,
        heap_allocations_in_steps,
    };
    if args.profile {
        for node in engine.least_times(ONLY) {
            let name = format!("{} → {}", node.op, node.result);
            eprintln!("{name:60} {:8.2} ms", node.seconds * 1e3);
        }
    }
    if as_json {
        return json(&report);
    }
    report.print();
    Ok(())
}

/// The goal of planning: the fastest plan for the requested arena or the memory of the device; without a limit a plan like a run's
/// on the processor.
fn goal(args: &BenchStep, backend: &dyn Backend) -> Goal {
    let requested = args.arena.map(|arena| usize::try_from(arena.0).unwrap_or(usize::MAX));
    let room = backend.device_memory().map(DeviceMemory::room);
    match requested.or(room) {
        None => Goal::Sparing { budget: None, share: SPARING },
        budget => Goal::Fastest { budget },
    }
}

/// Refuses a plan whose arena exceeds the requested one, or the memory of the device.
fn expect_fits(args: &BenchStep, backend: &dyn Backend, arena_bytes: usize) -> Outcome {
    if let Some(asked) = args.arena.filter(|asked| Bytes::from_len(arena_bytes) > *asked) {
        let needed = Bytes::from_len(arena_bytes);
        let message = format!("an arena of {asked} is not enough: the smallest found is {needed}");
        return Err(Failure::new(message, format!("--arena {arena_bytes}")));
    }
    if let Some(device) = backend.device_memory().filter(|device| device.needed(arena_bytes) > device.limit())
    {
        let (needed, limit) = (device.needed(arena_bytes), device.limit());
        let message = format!("the step needs {needed} of the device's memory, but its limit is {limit}");
        return Err(Failure::new(message, format!("--vram {}MiB", needed.0.div_ceil(1 << 20))));
    }
    Ok(())
}

impl StepReport {
    fn print(&self) {
        let of_peak = self.fraction_of_peak.map_or(String::new(), |fraction| {
            format!(" ({:.0} % of the multiply-add peak)", 100.0 * fraction)
        });
        let of_device = self.vram_planned_bytes.map_or(String::new(), |planned| {
            format!(", of the device's memory {planned} planned and {} used", or_dash(self.vram_used_bytes))
        });
        println!(
            "{} {:?} × {}: {:.3} s per step ({:.3} predicted), {:.0} GFLOP/s{of_peak}, {}; arena {} (lower bound \
             {}, {:+.1} % operations for recomputation){of_device}, peak RSS {}",
            self.net,
            self.patch_size,
            self.batch_size,
            self.seconds_per_step,
            self.predicted_seconds,
            self.gflops,
            self.engine,
            Bytes::from_len(self.arena_bytes),
            Bytes::from_len(self.arena_lower_bound_bytes),
            100.0 * self.recompute_flops_fraction,
            self.peak_rss_bytes
        );
    }
}

/// Small enough that no gradient overflows where features are stored in halves.
const LOSS_SCALE: f32 = 1.0;

/// Writes initial weights, a made-up image and labels that have to do with it.
pub(super) fn fill(
    engine: &mut dyn Engine,
    program: &Program,
    training: &Training,
) -> Result<(), EngineError> {
    for id in program.with_role(Role::Parameter) {
        let values = training.net.initial_values(program.tensor(id), 0);
        engine.write(ONLY, id, HostSlice::F32(&values))?;
    }
    for id in program.with_role(Role::Input) {
        let tensor = program.tensor(id);
        let wave = |i: usize| (i as f32 * 0.37).sin() + (i as f32 * 0.0113).cos();
        match tensor.name.as_str() {
            names::LABELS => {
                let labels: Vec<u8> = (0..tensor.shape.count()).map(|i| u8::from(wave(i) > 0.8)).collect();
                engine.write(ONLY, id, HostSlice::U8(&labels))?;
            }
            names::RATES => {
                engine.write(ONLY, id, HostSlice::F32(&training.optimizer.rates(1e-3, 10, LOSS_SCALE)))?;
            }
            names::LOSS_SCALE => engine.write(ONLY, id, HostSlice::F32(&[LOSS_SCALE]))?,
            names::NOISE => engine.write(ONLY, id, HostSlice::F32(&Noise::for_step(0, 0, 0).to_table()))?,
            _ => {
                let image: Vec<f32> = (0..tensor.shape.count()).map(wave).collect();
                engine.write(ONLY, id, HostSlice::F32(&image))?;
            }
        }
    }
    Ok(())
}
