//! Losses over twenty steps against PyTorch in f32, and gradients of the first step against PyTorch in f64: MONAI's DynUNet
//! (plain, with deep supervision, with flat kernels) and nnU-Net's PlainConvUNet. `oracles/unet_training.py` made the numbers.
//!
//! Losses are to agree within 1e-4, gradients within 1e-3. Large networks with kinks are the exception: an
//! activation that rounding puts on the other side of the leaky ReLU's kink changes gradients by far more than rounding does. So
//! there is a run of each without the kink, which is held to the strict bounds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use conformance::{engine_for, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::{Component, Loss, SoftDice};
use plimsoll_graph::{DType, Program, Role};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{SafetensorsFile, WeightFile};
use plimsoll_nn::{Network, Optimizer, Term, Training, UNet, names};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, Options, ProgramId};
use serde::Deserialize;

#[derive(Deserialize)]
struct Record {
    net: Network,
    patch: [usize; 3],
    batch: usize,
    optimizer: Settings,
    loss: LossOptions,
    weights: String,
    losses: Vec<f64>,
    /// The same in f64.
    exact_losses: Vec<f64>,
    /// In f32 with bf16 autocast; none where PyTorch itself does not come to finite numbers.
    #[serde(default)]
    bf16_losses: Vec<f64>,
    /// How far PyTorch's own gradients in f32 are off those in f64, at most, in relative norm per tensor.
    gradient_error: f64,
    gradient_norms: Vec<f64>,
}

#[derive(Deserialize)]
struct Settings {
    name: String,
    lr: f64,
    weight_decay: f32,
    max_norm: Option<f32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LossOptions {
    include_background: Option<bool>,
    batch: bool,
    squared_pred: bool,
}

/// How much further off f64 we may be than PyTorch is in f32, as chance has it.
const KINKS: f64 = 3.0;

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data")
}

impl Record {
    fn open(folder: &Path, name: &str) -> Record {
        let text = fs::read_to_string(folder.join(format!("unet_{name}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn training(&self) -> Training {
        let optimizer = match self.optimizer.name.as_str() {
            "adamw" => Optimizer::AdamW {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: self.optimizer.weight_decay,
            },
            _ => Optimizer::Sgd { momentum: 0.99, weight_decay: self.optimizer.weight_decay },
        };
        Training {
            net: self.net.clone(),
            loss: Loss::dice_ce(
                SoftDice {
                    batch: self.loss.batch,
                    include_background: self.loss.include_background.unwrap_or(true),
                    squared: self.loss.squared_pred,
                    ..SoftDice::default()
                },
                1.0,
            )
            .into(),
            spacing: [1.0; 3],
            optimizer,
            max_grad_norm: self.optimizer.max_norm,
            ema: None,
            groups: Vec::new(),
            frozen: Vec::new(),
            patch: self.patch,
            batch: self.batch,
            micro_batch: self.batch,
            precision: DType::F32,
        }
    }

    /// Image and labels of a step, by the same formula as in the script.
    fn batch(&self, step: usize) -> (Vec<f32>, Vec<u8>) {
        let voxels: usize = self.patch.iter().product();
        let channels = self.net.in_channels();
        let image = |i: usize| noise(2 * step + 1, i);
        let labels = (0..self.batch * voxels).map(|i| {
            let (sample, voxel) = (i / voxels, i % voxels);
            let level = noise(2 * step + 2, i) * 0.5 + image(sample * channels * voxels + voxel);
            let classes = self.net.classes() as f64;
            ((level + 1.5) / 3.0 * classes).floor().clamp(0.0, classes - 1.0) as u8
        });
        let count = self.batch * channels * voxels;
        ((0..count).map(|i| image(i) as f32).collect(), labels.collect())
    }
}

/// The first program of a plan.
const FIRST: ProgramId = ProgramId::new(0);

/// An engine for some programs, with the weights of a file.
fn engine(programs: &[Program], weights: &Path) -> Box<dyn Engine> {
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let mut engine = engine_for(&backend, programs, Options::default()).unwrap();
    let mut file = WeightFile::open(weights, &Budget::new(Bytes::gib(1))).unwrap();
    for id in programs[0].with_role(Role::Parameter) {
        let info = programs[0].tensor(id);
        let mut values = vec![0.0; info.shape.count()];
        file.read(info, &mut values).unwrap();
        engine.write(FIRST, id, HostSlice::F32(&values)).unwrap();
    }
    engine
}

fn read(engine: &dyn Engine, program: &Program, name: &str) -> Vec<f32> {
    let id = program.find(name).unwrap_or_else(|| panic!("there is no `{name}`"));
    let mut values = vec![0.0; program.shape(id).count()];
    engine.read(FIRST, id, HostSliceMut::F32(&mut values)).unwrap();
    values
}

/// The losses of all steps; gradients' norms are compared on the way, where the step takes them.
fn losses(record: &Record, training: &Training, folder: &Path) -> Vec<f64> {
    let step = training.programs().unwrap().gradients.swap_remove(0);
    let mut engine = engine(std::slice::from_ref(&step), &folder.join(&record.weights));
    let input = |name| step.find(name).unwrap();
    let mut losses = Vec::new();
    for (i, expected_norm) in record.gradient_norms.iter().enumerate() {
        let (image, labels) = record.batch(i);
        let rates = training.optimizer.rates(record.optimizer.lr, i as u64 + 1);
        engine.write(FIRST, input(names::IMAGE), HostSlice::F32(&image)).unwrap();
        engine.write(FIRST, input(names::LABELS), HostSlice::U8(&labels)).unwrap();
        engine.write(FIRST, input(names::RATES), HostSlice::F32(&rates)).unwrap();
        engine.run(FIRST).unwrap();
        losses.push(f64::from(read(&*engine, &step, names::LOSS)[0]));
        if training.precision == DType::F32 && step.find(names::GRAD_NORM).is_some() {
            let norm = f64::from(read(&*engine, &step, names::GRAD_NORM)[0]);
            let error = (norm - expected_norm).abs() / expected_norm;
            assert!(error <= 1e-2, "step {i}: the gradient's norm is {norm}, PyTorch's {expected_norm}");
        }
    }
    losses
}

fn losses_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let losses = losses(&record, &record.training(), folder);
    let off = |losses: &[f64], from: &[f64]| {
        losses.iter().zip(from).map(|(loss, from)| (loss / from - 1.0).abs()).fold(0.0, f64::max)
    };
    // Where PyTorch in f32 is nearly as far off PyTorch in f64, more cannot be asked.
    let theirs = off(&record.losses, &record.exact_losses);
    let (worst, ours) = (off(&losses, &record.losses), off(&losses, &record.exact_losses));
    eprintln!(
        "{name}: losses agree to {worst:.1e} over {} steps; off f64 by {ours:.1e}, PyTorch {theirs:.1e}",
        losses.len()
    );
    let bound = if large_with_kinks(&record.training()) { 1e-3 } else { 1e-4 };
    assert!(worst <= (KINKS * theirs).max(bound), "{name}: losses are {worst:.1e} off PyTorch's");
}

/// That losses with features in bf16 stay near PyTorch's under autocast.
fn bf16_losses_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let training = Training { precision: DType::Bf16, ..record.training() };
    let losses = losses(&record, &training, folder);
    let worst = losses.iter().zip(&record.bf16_losses).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
    eprintln!("{name}: losses with bf16 agree to {worst:.1e}");
    assert_eq!(losses.len(), record.bf16_losses.len());
    assert!(worst <= 0.02, "{name}: losses with bf16 are {worst:.1e} off PyTorch's");
}

/// Whether an activation on the other side of the kink is to be expected.
fn large_with_kinks(training: &Training) -> bool {
    let UNet { slope, features, .. } = match &training.net {
        Network::DynUNet(net) => &net.shape,
        Network::PlainConvUNet(net) => &net.shape,
    };
    *slope < 1.0 && features.iter().sum::<usize>() > 500
}

fn gradients_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    // With two micro-batches to a step, one program leaves half the gradients of its batch in states that can be read.
    let mut training = record.training();
    training.batch *= 2;
    let with_batch_dice = set_batch_dice(
        training.loss.components.iter_mut().filter_map(|term| match term {
            Term::Sums(component) => Some(component),
            Term::Structure(_) => None,
        }),
        false,
    );
    let mut program = training.programs().unwrap().gradients.swap_remove(0);
    if with_batch_dice {
        force_batch_dice(&mut program);
    }
    let mut engine = engine(std::slice::from_ref(&program), &folder.join(&record.weights));
    let (image, labels) = record.batch(0);
    engine.write(FIRST, program.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
    engine.write(FIRST, program.find(names::LABELS).unwrap(), HostSlice::U8(&labels)).unwrap();
    engine.run(FIRST).unwrap();
    let mut file = SafetensorsFile::open(&folder.join(format!("unet_{name}_gradients.safetensors"))).unwrap();
    let bound = if large_with_kinks(&training) { 2e-2 } else { 1e-3 };
    let (mut compared, mut worst) = (0, 0.0f64);
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        let mut expected = vec![0.0; info.shape.count()];
        let has_none = file.read(&info.name, &info.shape, &mut expected).is_err();
        if has_none || expected.iter().all(|x| *x == 0.0) {
            assert!(program.find(&format!("{}/grad", info.name)).is_none(), "{} has no gradient", info.name);
            continue;
        }
        let found = read(&*engine, &program, &format!("{}/grad", info.name));
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let scale = norm(&mut expected.iter().map(|x| f64::from(*x)));
        let pairs = expected.iter().zip(&found);
        let error = norm(&mut pairs.map(|(e, f)| f64::from(*e) - 2.0 * f64::from(*f))) / scale;
        let allowed = (KINKS * record.gradient_error).max(bound);
        assert!(error <= allowed, "{name}: the gradient of {} is off by {error:.1e}", info.name);
        worst = worst.max(error);
        compared += 1;
    }
    let theirs = record.gradient_error;
    eprintln!("{name}: {compared} gradients are off f64 by at most {worst:.1e}, PyTorch's by {theirs:.1e}");
    assert!(compared > 10);
}

/// Sets whether the Dice is over the whole batch, and says whether it was.
fn set_batch_dice<'a>(components: impl IntoIterator<Item = &'a mut Component>, batch: bool) -> bool {
    let mut was = false;
    for component in components {
        if let Component::SoftDice(dice) = component {
            was |= std::mem::replace(&mut dice.batch, batch);
        }
    }
    was
}

/// Sets the Dice over the whole batch, which [`Training`] refuses to take in parts.
fn force_batch_dice(program: &mut Program) {
    use plimsoll_graph::Op;
    for node in &mut program.nodes {
        match &mut node.op {
            Op::CompositeLoss(op) => set_batch_dice(&mut op.loss.components, true),
            Op::CompositeLossGrad(op) => set_batch_dice(&mut op.loss.components, true),
            _ => false,
        };
    }
}

#[test]
fn dynunet_trains_as_in_pytorch() {
    losses_agree(&oracles(), "plain");
    bf16_losses_agree(&oracles(), "plain");
    gradients_agree(&oracles(), "plain");
}

#[test]
fn dynunet_with_deep_supervision_trains_as_in_pytorch() {
    losses_agree(&oracles(), "supervised");
    gradients_agree(&oracles(), "supervised");
}

#[test]
fn dynunet_with_flat_kernels_and_nesterov_momentum_trains_as_in_pytorch() {
    losses_agree(&oracles(), "anisotropic");
    bf16_losses_agree(&oracles(), "anisotropic");
    gradients_agree(&oracles(), "anisotropic");
}

#[test]
fn the_plain_unet_of_nnunet_trains_as_in_pytorch_from_its_checkpoint() {
    losses_agree(&oracles(), "nnunet");
    bf16_losses_agree(&oracles(), "nnunet");
    gradients_agree(&oracles(), "nnunet");
}

/// The networks of the documentation, 32 to 320 features: `python oracles/unet_training.py full DIR` makes the numbers, then
/// `PLIMSOLL_ORACLE=DIR cargo test --release -p plimsoll-nn --test pytorch -- --ignored --nocapture`.
#[test]
#[ignore = "needs numbers that are too large to commit"]
fn full_size_networks_train_as_in_pytorch() {
    let folder = PathBuf::from(std::env::var("PLIMSOLL_ORACLE").unwrap());
    for net in ["full", "full_supervised", "full_anisotropic"] {
        for run in ["smooth", "sgd", "adamw"] {
            let name = format!("{net}_{run}");
            losses_agree(&folder, &name);
            gradients_agree(&folder, &name);
        }
    }
}
