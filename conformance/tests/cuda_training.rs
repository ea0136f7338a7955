//! A small U-Net trained for some steps with the kernels for GPUs, on an emulator, beside the CPU backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod emulator;

use std::sync::Arc;

use conformance::{engine_for, noise};
use emulator::{Blocks, backend};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_cuda::{Architecture, CudaBackend, Nowhere};
use plimsoll_graph::ops::Noise;
use plimsoll_graph::{DType, Kind, Program, Role};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::{
    Classifies, DynUNet, Network, NetworkName, Objective, Optimizer, Training, names, predict,
};
use plimsoll_plan::{Backend, HostSlice, HostSliceMut, Options, PlanError, ProgramId, plan};

const STEPS: usize = 4;

/// Steps are of one micro-batch: one program.
const STEP: ProgramId = ProgramId::new(0);

/// Dice and cross-entropy of two heads, dropout, gradients scaled down, averages of parameters.
fn training(net: impl Into<Network>, patch: [usize; 3], precision: DType) -> Training {
    Training {
        net: net.into(),
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(1.0),
        ema: Some(0.9),
        groups: Vec::new(),
        frozen: Vec::new(),
        patch,
        batch: 2,
        micro_batch: 2,
        precision,
    }
}

fn small() -> DynUNet {
    let mut net = DynUNet::new(1, 3, &[4, 6, 8], &[[3; 3]; 3], &[[1; 3], [1, 2, 2], [2; 3]]);
    net.shape.deep_supervision = 1;
    net.shape.dropout = 0.1;
    net
}

/// Losses of some steps, and the bits of all parameters and states after them.
fn train(backend: &dyn Backend, training: &Training) -> (Vec<f64>, Vec<Vec<u32>>) {
    let programs = training.programs().unwrap();
    let step = &programs.gradients[0];
    let mut engine = engine_for(backend, std::slice::from_ref(step), Options::default()).unwrap();
    let persistent: Vec<_> = step.ids().filter(|id| step.tensor(*id).role.is_persistent()).collect();
    for id in &persistent {
        let tensor = step.tensor(*id);
        let values: Vec<f32> = (0..tensor.shape.count())
            .map(|i| match (tensor.role, tensor.kind) {
                (Role::State, _) => 0.0,
                (_, Kind::Weights) => 0.4 * noise(id.index(), i) as f32,
                _ => 1.0 + 0.2 * noise(id.index(), i) as f32,
            })
            .collect();
        engine.write(STEP, *id, HostSlice::F32(&values)).unwrap();
    }
    let read = |engine: &dyn plimsoll_plan::Engine, id| {
        let mut values = vec![0.0f32; step.shape(id).count()];
        engine.read(STEP, id, HostSliceMut::F32(&mut values)).unwrap();
        values
    };
    let mut losses = Vec::new();
    for number in 0..STEPS {
        for id in step.with_role(Role::Input) {
            let (tensor, seed) = (step.tensor(id), 100 * number + id.index());
            let count = tensor.shape.count();
            if tensor.kind == Kind::Labels {
                let labels: Vec<u8> = (0..count).map(|i| (1.5 + 1.5 * noise(seed, i)) as u8).collect();
                engine.write(STEP, id, HostSlice::U8(&labels)).unwrap();
                continue;
            }
            let values: Vec<f32> = match tensor.name.as_str() {
                names::RATES => training.optimizer.rates(1e-2, number as u64 + 1).to_vec(),
                names::NOISE => Noise::of_step(5, number as u64, 0).to_table().to_vec(),
                _ => (0..count).map(|i| noise(seed, i) as f32).collect(),
            };
            engine.write(STEP, id, HostSlice::F32(&values)).unwrap();
        }
        engine.run(STEP).unwrap();
        losses.push(f64::from(read(&*engine, step.find(names::LOSS).unwrap())[0]));
    }
    let bits = persistent.iter().map(|id| read(&*engine, *id).into_iter().map(f32::to_bits).collect());
    (losses, bits.collect())
}

#[test]
fn a_small_unet_trains_as_on_the_cpu_with_the_same_bits_whatever_the_order_of_blocks() {
    let cpu = CpuBackend::new(CpuOptions::new(2)).unwrap();
    for (precision, tolerance) in [(DType::F32, 1e-4), (DType::Bf16, 2e-2)] {
        let training = training(small(), [4, 8, 8], precision);
        let (expected, _) = train(&cpu, &training);
        let (losses, bits) = train(&backend(Blocks::Ascending), &training);
        let off = losses.iter().zip(&expected).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        eprintln!("{precision:?}: losses {losses:.6?}, off the CPU's by {off:.1e}");
        assert!(off <= tolerance, "{precision:?}: {losses:?}, on the CPU {expected:?}");
        assert!(losses[STEPS - 1] != losses[0], "{precision:?}: nothing is learned");
        let (again, shuffled) = train(&backend(Blocks::Shuffled(3)), &training);
        assert!(losses == again && bits == shuffled, "{precision:?}: the order of blocks changes bits");
    }
}

/// All programs of a run, of every network that there is.
#[test]
fn networks_of_full_size_can_be_planned_without_a_card() {
    let card = CudaBackend::new(Arc::new(Nowhere(Architecture::new(8, 0).unwrap())));
    for name in NetworkName::ALL {
        let net = Network::reference(*name, None).unwrap();
        let patch = if net.classifies() == Classifies::Images { [1, 224, 224] } else { [64; 3] };
        let training = training(net, patch, DType::Bf16);
        let written = training.programs().unwrap();
        let predict = predict(&*training.net, patch, 1, DType::Bf16).unwrap();
        let mut programs: Vec<Program> = written.gradients;
        programs.extend(written.update);
        programs.extend([written.validate, predict]);
        match plan(&programs, &card, Options::default()) {
            Ok(plan) => assert!(plan.arena_bytes > 1 << 28, "{name}: {}", plan.arena_bytes),
            // Transformers have no kernels yet.
            Err(PlanError::Unsupported(missing)) => assert_eq!(name.as_str(), "swinunetr", "{missing}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn a_plan_for_a_card_that_is_not_there_cannot_be_run() {
    let card = CudaBackend::new(Arc::new(Nowhere(Architecture::new(9, 0).unwrap())));
    let step = training(small(), [4, 8, 8], DType::F32).programs().unwrap().gradients;
    let plan = plan(&step, &card, Options::default()).unwrap();
    let bytes = Bytes::of(plan.arena_bytes);
    let refused = card.engine(plan, Budget::new(bytes).reserve("arena", bytes).unwrap()).err().unwrap();
    assert!(refused.to_string().contains("sm_90 without a card"), "{refused}");
}
