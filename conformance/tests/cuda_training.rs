//! A small U-Net trained for some steps with the kernels for GPUs, on an emulator, beside the CPU backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use conformance::emulator::{Blocks, backend};
use conformance::{engine_for, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_cuda::{Architecture, CudaBackend, Nowhere};
use plimsoll_graph::ops::{Noise, Regions};
use plimsoll_graph::{DType, Kind, Program, Role};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::{
    Classifies, Design, DynUNet, Network, NetworkName, NetworkSettings, Objective, Optimizer, Training,
    names, predict,
};
use plimsoll_plan::{Backend, HostSlice, HostSliceMut, Options, ProgramId, plan};

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
        shards: 1,
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

/// The factor of the losses of steps whose features are stored in 16-bit floats: the one at the beginning of runs.
const LOSS_SCALE: f32 = 65536.0;

/// Losses of some steps, and the bits of all parameters and states after them.
fn train(backend: &dyn Backend, training: &Training) -> (Vec<f64>, Vec<Vec<u32>>) {
    let scale = if training.precision.needs_loss_scale() { LOSS_SCALE } else { 1.0 };
    let (losses, _, bits) = train_scaled(backend, training, [scale; STEPS]);
    (losses, bits)
}

/// The same with the scales of the losses, with the norms of the scaled gradients.
fn train_scaled(
    backend: &dyn Backend,
    training: &Training,
    scales: [f32; STEPS],
) -> (Vec<f64>, Vec<f32>, Vec<Vec<u32>>) {
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
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for (number, scale) in scales.into_iter().enumerate() {
        for id in step.with_role(Role::Input) {
            let (tensor, seed) = (step.tensor(id), 100 * number + id.index());
            let count = tensor.shape.count();
            if tensor.kind == Kind::Labels {
                let labels: Vec<u8> = (0..count).map(|i| (1.5 + 1.5 * noise(seed, i)) as u8).collect();
                engine.write(STEP, id, HostSlice::U8(&labels)).unwrap();
                continue;
            }
            let values: Vec<f32> = match tensor.name.as_str() {
                names::RATES => training.optimizer.rates(1e-2, number as u64 + 1, scale).to_vec(),
                names::LOSS_SCALE => vec![scale],
                names::NOISE => Noise::for_step(5, number as u64, 0).to_table().to_vec(),
                _ => (0..count).map(|i| noise(seed, i) as f32).collect(),
            };
            engine.write(STEP, id, HostSlice::F32(&values)).unwrap();
        }
        engine.run(STEP).unwrap();
        losses.push(f64::from(read(&*engine, step.find(names::LOSS).unwrap())[0]));
        norms.push(read(&*engine, step.find(names::GRAD_NORM).unwrap())[0]);
    }
    let bits = persistent.iter().map(|id| read(&*engine, *id).into_iter().map(f32::to_bits).collect());
    (losses, norms, bits.collect())
}

/// Checks the losses of some steps beside the CPU's, in each precision, and that the order of blocks changes no bit.
fn check_training(of: impl Fn(DType) -> Training) {
    let cpu = CpuBackend::new(CpuOptions::new(2)).unwrap();
    for (precision, tolerance) in [(DType::F32, 1e-4), (DType::Bf16, 2e-2), (DType::F16, 2e-3)] {
        let training = of(precision);
        let (expected, _) = match precision {
            // For which the processor has no kernels.
            DType::F16 => train(&cpu, &Training { precision: DType::F32, ..training.clone() }),
            _ => train(&cpu, &training),
        };
        let (losses, bits) = train(&backend(Blocks::Ascending), &training);
        let off = losses.iter().zip(&expected).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        eprintln!("{precision:?}: losses {losses:.6?}, off the CPU's by {off:.1e}");
        assert!(off <= tolerance, "{precision:?}: {losses:?}, on the CPU {expected:?}");
        assert!(losses[STEPS - 1] != losses[0], "{precision:?}: nothing is learned");
        let (again, shuffled) = train(&backend(Blocks::Shuffled(3)), &training);
        assert!(losses == again && bits == shuffled, "{precision:?}: the order of blocks changes bits");
    }
}

#[test]
fn a_small_unet_trains_as_on_the_cpu_with_the_same_bits_whatever_the_order_of_blocks() {
    check_training(|precision| training(small(), [4, 8, 8], precision));
}

/// Three regions of four labels, one of which is ignored: nested, and one that overlaps them.
#[test]
fn a_small_unet_trains_on_regions_as_on_the_cpu() {
    let regions = Regions { labels: 4, sets: vec![vec![1, 2, 3], vec![2, 3], vec![1, 3]] };
    check_training(|precision| {
        let loss = Objective::for_regions(regions.sets.len(), true, Some(0));
        let loss = Objective { regions: Some(regions.clone()), ..loss };
        Training { loss, ..training(small(), [4, 8, 8], precision) }
    });
}

/// MedNeXt with response normalisation, an attention U-Net, and Primus.
#[test]
fn networks_with_gates_positions_and_attention_train_as_on_the_cpu() {
    let of = |net, settings: NetworkSettings, patch| {
        let (strides, kernels, features) = (vec![[1; 3], [2; 3]], vec![[3; 3]; 2], vec![4, 6]);
        let design = Design { in_channels: 1, classes: 3, patch, strides, kernels, features };
        let network = Network::design(&design, &NetworkSettings { net: Some(net), ..settings }).unwrap();
        check_training(|precision| training(network.clone(), patch, precision));
    };
    let settings = NetworkSettings::default;
    let mednext = NetworkSettings {
        init_filters: Some(4),
        encoder_blocks: Some(vec![1, 1]),
        decoder_blocks: Some(vec![1]),
        encoder_expansion: Some(vec![2, 2]),
        decoder_expansion: Some(vec![2]),
        grn: Some(true),
        ..settings()
    };
    of(NetworkName::MedNeXt, mednext, [4; 3]);
    of(NetworkName::AttentionUnet, NetworkSettings { features: Some(vec![4, 6]), ..settings() }, [4; 3]);
    let primus = NetworkSettings {
        hidden_size: Some(12),
        depths: Some(vec![1]),
        num_heads: Some(vec![2]),
        path_dropout: Some(0.5),
        ..settings()
    };
    of(NetworkName::Primus, primus, [8, 8, 16]);
}

#[test]
fn a_scale_of_the_loss_that_fits_scales_the_norm_and_one_that_is_too_large_refuses_the_step_without_a_trace()
{
    let card = backend(Blocks::Ascending);
    let halves = training(small(), [4, 8, 8], DType::F16);
    let (_, norms, trained) = train_scaled(&card, &halves, [LOSS_SCALE; STEPS]);
    let (_, other_norms, other) = train_scaled(&card, &halves, [LOSS_SCALE / 4.0; STEPS]);
    // Nothing overflows or is lost with either: norms differ by the factor, and rounding of numbers below 2⁻¹⁴ alone.
    for (norm, quarter) in norms.iter().zip(&other_norms) {
        assert!((norm / quarter / 4.0 - 1.0).abs() < 1e-2, "{norms:?}, {other_norms:?}");
    }
    assert_eq!(trained.len(), other.len());
    // The step after two that were refused is the first, but for its number: with the same number of refused steps before it, the bits are
    // those of any other scale that is too large.
    let too_large = [2.0_f32.powi(60), 2.0_f32.powi(70)];
    let after = too_large.map(|scale| {
        let (losses, norms, bits) = train_scaled(&card, &halves, [scale, scale, LOSS_SCALE, LOSS_SCALE]);
        assert!(names::was_refused(norms[0]) && names::was_refused(norms[1]), "{norms:?}");
        assert!(norms[2].is_finite() && losses.iter().all(|loss| loss.is_finite()), "{norms:?}, {losses:?}");
        bits
    });
    assert!(after[0] == after[1], "refused steps leave something behind");
    let (_, norms, nothing) = train_scaled(&card, &halves, [2.0_f32.powi(60); STEPS]);
    assert!(norms.iter().all(|norm| names::was_refused(*norm)), "{norms:?}");
    let (_, _, again) = train_scaled(&card, &halves, [2.0_f32.powi(70); STEPS]);
    assert!(nothing == again && nothing != after[0]);
}

/// All programs of a run, of every network that there is.
#[test]
fn networks_of_full_size_can_be_planned_without_a_card() {
    let card = |name: &str| CudaBackend::new(Arc::new(Nowhere(name.parse().unwrap())));
    let cards = [(card("sm_80"), DType::Bf16), (card("sm_75"), DType::F16), (card("sm_70"), DType::F16)];
    let all = NetworkName::ALL.iter().flat_map(|name| cards.iter().map(move |card| (name, card)));
    for (name, (card, precision)) in all {
        let net = Network::reference(*name, None).unwrap();
        if net.untrainable().is_some() {
            continue;
        }
        let patch = match net.classifies() {
            Classifies::Images => [1, 224, 224],
            Classifies::Voxels => net.extents().next_larger([64; 3]),
        };
        let training = training(net, patch, *precision);
        let written = training.programs().unwrap();
        let predict = predict(&*training.net, patch, 1, *precision).unwrap();
        let mut programs: Vec<Program> = written.gradients;
        programs.extend(written.update);
        programs.extend([written.validate, predict]);
        let plan = plan(&programs, card, Options::default());
        let arena_bytes = plan.unwrap_or_else(|error| panic!("{name}: {error}")).arena_bytes;
        assert!(arena_bytes > 1 << 27, "{name}: {arena_bytes}");
    }
}

/// The convolutions of features that are stored so, of a step: their operations, and the seconds that are predicted for them; of f32 with products of tf32.
fn convolutions(architecture: &str, stored: DType) -> (f64, f64) {
    let card = CudaBackend::new(Arc::new(Nowhere(architecture.parse().unwrap())));
    let card: Arc<dyn Backend> =
        if stored == DType::F32 { card.with_tf32_products().unwrap() } else { Arc::new(card) };
    let net = Network::reference(NetworkName::ALL[0], None).unwrap();
    let step = training(net, [128; 3], stored).programs().unwrap().gradients;
    let plan = plan(&step, &*card, Options::default()).unwrap();
    let mut sums = (0.0, 0.0);
    for (program, lowered) in step.iter().zip(&plan.lowered) {
        let halves = |id: &plimsoll_graph::TensorId| program.tensor(*id).dtype == stored;
        let nodes = lowered.nodes.iter().filter(|node| node.name.starts_with("conv"));
        for node in nodes.filter(|node| node.inputs.iter().filter(|id| halves(id)).count() > 0) {
            sums = (sums.0 + node.cost.flops as f64, sums.1 + node.seconds);
        }
    }
    sums
}

/// Nothing is predicted to be faster than the card can be, nor is much lost to tiles that are not filled.
#[test]
fn convolutions_are_predicted_at_the_pace_of_what_they_run_on() {
    for (architecture, stored, peak, least, most) in [
        ("sm_70", DType::Bf16, 15.7e12, 0.15, 0.5),
        ("sm_70", DType::F16, 125e12, 0.3, 0.5),
        ("sm_75", DType::F16, 65e12, 0.3, 0.5),
        ("sm_80", DType::Bf16, 312e12, 0.4, 0.7),
        ("sm_80", DType::F16, 312e12, 0.4, 0.7),
        ("sm_80", DType::F32, 156e12, 0.3, 0.7),
        ("sm_90", DType::Bf16, 989e12, 0.25, 0.6),
    ] {
        let (flops, seconds) = convolutions(architecture, stored);
        let reached = flops / seconds / peak;
        println!(
            "{architecture}: {:.3e} operations in {:.1} ms, {reached:.3} of the peak",
            flops,
            1e3 * seconds
        );
        assert!((least..most).contains(&reached), "{architecture}: {reached}");
    }
}

#[test]
fn a_plan_for_a_card_that_is_not_there_cannot_be_run() {
    let card = CudaBackend::new(Arc::new(Nowhere(Architecture::new(9, 0).unwrap())));
    let step = training(small(), [4, 8, 8], DType::F32).programs().unwrap().gradients;
    let plan = plan(&step, &card, Options::default()).unwrap();
    let bytes = Bytes::from_len(plan.arena_bytes);
    let refused = card.engine(plan, Budget::new(bytes).reserve("arena", bytes).unwrap()).err().unwrap();
    assert!(refused.to_string().contains("sm_90 is an architecture, not a device"), "{refused}");
}
