//! Training beside the numbers of a script in `oracles/`: losses over twenty steps, gradients of the first.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use conformance::{engine_for, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions, Products};
use plimsoll_graph::ops::{Component, Loss, SoftDice};
use plimsoll_graph::{
    Array, DType, Kind, Program, Role, Shape, TensorId, TensorInfo, differentiate, interpret,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{SafetensorsFile, WeightFile};
use plimsoll_nn::{ForwardMode, Network, Optimizer, Term, Training, UNet, names, predict};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, Options, ProgramId};
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Record {
    net: Network,
    patch: [usize; 3],
    batch: usize,
    optimizer: Settings,
    loss: LossOptions,
    /// The file of the weights; by a formula if there is none.
    weights: Option<String>,
    /// The gain of the formula.
    #[serde(default = "usual_gain")]
    gain: f64,
    losses: Vec<f64>,
    /// The same in f64.
    exact_losses: Vec<f64>,
    /// The values in f32 with bf16 autocast; none if PyTorch's own are not finite.
    #[serde(default)]
    bf16_losses: Vec<f64>,
    /// The largest error of PyTorch's own gradients in f32 against those in f64, in relative norm per tensor.
    gradient_error: f64,
    gradient_norms: Vec<f64>,
    /// Parameters that a normalisation behind them cancels: their gradients are rounding errors.
    #[serde(default)]
    cancelled: Vec<String>,
    /// The norm of each gradient and its products with `noise(7 + k, …)`, if the gradients are in no file.
    #[serde(default)]
    gradients: HashMap<String, Vec<f64>>,
    /// Products of the logits of a prediction in f64 with `noise(7…9, …)`, if there are any.
    projections: Option<[f64; 3]>,
}

fn usual_gain() -> f64 {
    6.0
}

/// A network, with names and shapes of all that its `state_dict` holds.
#[derive(Deserialize)]
pub struct StateRecord {
    pub net: Network,
    pub state: BTreeMap<String, Vec<usize>>,
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

/// The largest allowed ratio of our error against f64 to the error of PyTorch in f32, which varies by chance.
const KINKS: f64 = 3.0;

pub fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data")
}

impl Record {
    pub fn open(folder: &Path, name: &str) -> Record {
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Those of a file that holds one, or a list with nothing but networks and state dicts.
    pub fn all(folder: &Path, name: &str) -> Vec<StateRecord> {
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        match text.starts_with('[') {
            true => serde_json::from_str(&text).unwrap(),
            false => vec![serde_json::from_str(&text).unwrap()],
        }
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
            shards: 1,
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

/// The weights that `fill` of `oracles/residual_training.py` gives a parameter.
fn by_formula(parameter: &TensorInfo, gain: f64, values: &mut [f32]) {
    let name = &parameter.name;
    let seed = name.bytes().enumerate().map(|(i, byte)| (i + 1) * usize::from(byte)).sum();
    let shape = &parameter.shape;
    let scale = (gain / (shape.count() / shape.dim(0)) as f64).sqrt();
    for (i, value) in values.iter_mut().enumerate() {
        let x = noise(seed, i);
        *value = match (parameter.kind, name.ends_with(".weight")) {
            (Kind::Table, _) => 0.5 * x,
            (Kind::Weights, _) => x * scale,
            (_, true) => 1.0 + 0.2 * x,
            (_, false) => 0.1 * x,
        } as f32;
    }
}

/// An engine for some programs, with the weights of a record.
fn engine(programs: &[Program], record: &Record, folder: &Path, products: Products) -> Box<dyn Engine> {
    let backend = CpuBackend::new(CpuOptions { products, ..CpuOptions::new(2) }).unwrap();
    let mut engine = engine_for(&backend, programs, Options::default()).unwrap();
    let budget = Budget::new(Bytes::gib(1));
    let mut file = record.weights.as_ref().map(|name| WeightFile::open(&folder.join(name), &budget).unwrap());
    for id in programs[0].with_role(Role::Parameter) {
        let info = programs[0].tensor(id);
        let mut values = vec![0.0; info.shape.count()];
        match &mut file {
            Some(file) => file.read(info, &mut values).unwrap(),
            None => by_formula(info, record.gain, &mut values),
        }
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
fn losses(record: &Record, training: &Training, folder: &Path, products: Products) -> Vec<f64> {
    let step = training.programs().unwrap().gradients.swap_remove(0);
    let mut engine = engine(std::slice::from_ref(&step), record, folder, products);
    let input = |name| step.find(name).unwrap();
    let mut losses = Vec::new();
    for (i, expected_norm) in record.gradient_norms.iter().enumerate() {
        let (image, labels) = record.batch(i);
        let rates = training.optimizer.rates(record.optimizer.lr, i as u64 + 1, 1.0);
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

pub fn losses_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let losses = losses(&record, &record.training(), folder, Products::F32);
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

/// Checks that losses with features in bf16, and with products of bf16 as well, stay near PyTorch's under autocast.
pub fn bf16_losses_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let training = Training { precision: DType::Bf16, ..record.training() };
    let off = |losses: &[f64], from: &[f64]| {
        losses.iter().zip(from).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max)
    };
    let theirs = off(&record.bf16_losses, &record.losses);
    let mut found = Vec::new();
    for products in [Products::F32, Products::Bf16] {
        let losses = losses(&record, &training, folder, products);
        let (worst, from_f32) = (off(&losses, &record.bf16_losses), off(&losses, &record.losses));
        eprintln!(
            "{name}: losses with bf16 and products of {products:?} agree to {worst:.1e}; off f32 by {from_f32:.1e}, PyTorch \
             {theirs:.1e}"
        );
        assert_eq!(losses.len(), record.bf16_losses.len());
        assert!(worst <= 0.02, "{name}: losses with products of {products:?} are {worst:.1e} off PyTorch's");
        found.push(losses);
    }
    assert_ne!(found[0], found[1], "{name}: products of bf16 round");
}

/// Returns `true` if rounding is likely to move an activation across the kink.
fn large_with_kinks(training: &Training) -> bool {
    let UNet { slope, features, .. } = match &training.net {
        Network::DynUNet(net) => &net.shape,
        Network::PlainConvUNet(net) => &net.shape,
        Network::ResidualEncoderUNet(net) => &net.shape,
        _ => return false,
    };
    *slope < 1.0 && features.iter().sum::<usize>() > 500
}

/// A program that leaves half the gradients of its batch in states that can be read, as the first of the two micro-batches of a step.
fn program_of_gradients(record: &Record) -> (Training, Program) {
    let mut training = record.training();
    if training.net.couples_samples().is_some() {
        let program = program_of_one_batch(&training);
        return (training, program);
    }
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
    (training, program)
}

/// A program that gives half the gradients of a batch in one piece.
fn program_of_one_batch(training: &Training) -> Program {
    let Training { net, patch, batch, .. } = training;
    let mut program = Program::new("gradients");
    let image = Shape::volume(*batch, net.in_channels(), *patch);
    let image = program.input(names::IMAGE, image, Kind::Volume);
    let labels = program.input(names::LABELS, Shape::volume(*batch, 1, *patch), Kind::Labels);
    let mode = ForwardMode { training: true, precision: training.precision };
    let logits = net.forward(&mut program, image, mode).unwrap();
    let (loss, _) = training.loss.write(&mut program, logits[0], labels, training.spacing).unwrap();
    let is_trained = |id: &TensorId| net.is_trained(&program.tensor(*id).name);
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).filter(is_trained).collect();
    let gradients = differentiate(&mut program, loss, 0.5, &parameters).unwrap();
    for (parameter, gradient) in parameters.into_iter().zip(gradients) {
        let name = format!("{}/grad", program.tensor(parameter).name);
        program.mark_output(gradient.unwrap(), name);
    }
    program
}

pub fn gradients_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let (training, program) = program_of_gradients(&record);
    let mut engine = engine(std::slice::from_ref(&program), &record, folder, Products::F32);
    let (image, labels) = record.batch(0);
    engine.write(FIRST, program.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
    engine.write(FIRST, program.find(names::LABELS).unwrap(), HostSlice::U8(&labels)).unwrap();
    engine.run(FIRST).unwrap();
    let mut told = RecordedGradients::read(&record, folder, name);
    let bound = if large_with_kinks(&training) { 2e-2 } else { 1e-3 };
    let (mut compared, mut worst) = (0, 0.0f64);
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        let gradient = format!("{}/grad", info.name);
        let found = program.find(&gradient).map(|_| read(&*engine, &program, &gradient));
        if record.cancelled.contains(&info.name) {
            let found = found.unwrap();
            assert!(found.iter().all(|x| x.abs() < 1e-5), "{}: {found:?}", info.name);
            continue;
        }
        let Some(error) = told.error(info, found) else { continue };
        let allowed = (KINKS * record.gradient_error).max(bound);
        assert!(error <= allowed, "{name}: the gradient of {} is off by {error:.1e}", info.name);
        worst = worst.max(error);
        compared += 1;
    }
    let theirs = record.gradient_error;
    eprintln!("{name}: {compared} gradients are off f64 by at most {worst:.1e}, PyTorch's by {theirs:.1e}");
    assert!(compared > 10);
}

/// The recorded form of the reference gradients.
enum RecordedGradients<'a> {
    /// They themselves; of large ones, every n-th element.
    File(SafetensorsFile),
    /// See [`Record`].
    Numbers(&'a HashMap<String, Vec<f64>>),
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

impl RecordedGradients<'_> {
    fn read<'a>(record: &'a Record, folder: &Path, name: &str) -> RecordedGradients<'a> {
        if !record.gradients.is_empty() {
            return RecordedGradients::Numbers(&record.gradients);
        }
        RecordedGradients::File(
            SafetensorsFile::open(&folder.join(format!("{name}_gradients.safetensors"))).unwrap(),
        )
    }

    /// Returns the error of half the gradient of a parameter, relative to the norm of the whole; none if there is no
    /// gradient, in which case none may be found either.
    fn error(&mut self, info: &TensorInfo, found: Option<Vec<f32>>) -> Option<f64> {
        match self {
            RecordedGradients::File(file) => {
                let stored = file.shape(&info.name).unwrap_or_else(|| info.shape.clone());
                let step = info.shape.count().div_ceil(stored.count());
                let mut expected = vec![0.0; stored.count()];
                let has_none = file.read(&info.name, &stored, &mut expected).is_err();
                if has_none || expected.iter().all(|x| *x == 0.0) {
                    assert!(found.is_none(), "{} has no gradient", info.name);
                    return None;
                }
                let found = found.unwrap();
                let scale = norm(expected.iter().map(|x| f64::from(*x)));
                let pairs = expected.iter().zip(found.iter().step_by(step));
                Some(norm(pairs.map(|(e, f)| f64::from(*e) - 2.0 * f64::from(*f))) / scale)
            }
            RecordedGradients::Numbers(all) => {
                let [scale, products @ ..] = &all[&info.name][..] else { panic!("no norm") };
                let found: Vec<f64> = found.unwrap().iter().map(|x| 2.0 * f64::from(*x)).collect();
                let of_norm = (norm(found.iter().copied()) - scale).abs();
                Some(products_off(products, &found).fold(of_norm, f64::max) / scale)
            }
        }
    }
}

/// Returns the errors of the products of a gradient with numbers of the formula.
fn products_off<'a>(products: &'a [f64], gradient: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    products.iter().enumerate().map(|(k, expected)| {
        let product: f64 = gradient.iter().enumerate().map(|(i, x)| x * noise(7 + k, i)).sum();
        (product - expected).abs()
    })
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

/// Compares the logits of a prediction by the f64 definitions of the ops with PyTorch's in f64.
pub fn logits_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let program = predict(record.net.as_architecture(), record.patch, 1, DType::F32).unwrap();
    let mut values = HashMap::new();
    for info in program.with_role(Role::Parameter).map(|id| program.tensor(id)) {
        let mut weights = vec![0.0; info.shape.count()];
        by_formula(info, record.gain, &mut weights);
        let data = weights.into_iter().map(f64::from).collect();
        values.insert(info.name.clone(), Array { shape: info.shape.clone(), data });
    }
    let image = Shape::volume(1, record.net.in_channels(), record.patch);
    values.insert(names::IMAGE.into(), Array::from_fn(image, |i| noise(1, i)));
    let arrays = interpret(&program, &values).unwrap();
    let logits = &arrays[program.find(names::LOGITS).unwrap().index()].data;
    let expected = record.projections.unwrap();
    let scale = norm(expected.iter().copied());
    for (seed, expected) in [7, 8, 9].into_iter().zip(expected) {
        let found: f64 = logits.iter().enumerate().map(|(i, logit)| logit * noise(seed, i)).sum();
        assert!((found - expected).abs() <= 1e-6 * scale, "{name}: {found} instead of {expected}");
    }
}

/// Compares the gradients of the first step by the f64 definitions of the ops with PyTorch's in f64, where no kink is in doubt.
pub fn definitions_agree(folder: &Path, name: &str) {
    let record = Record::open(folder, name);
    let (_, program) = program_of_gradients(&record);
    let (image, labels) = record.batch(0);
    let mut values = HashMap::new();
    for id in program.ids() {
        let info = program.tensor(id);
        let data: Vec<f64> = match info.role {
            Role::Parameter => {
                let mut weights = vec![0.0; info.shape.count()];
                by_formula(info, record.gain, &mut weights);
                weights.into_iter().map(f64::from).collect()
            }
            Role::Input if info.name == names::IMAGE => image.iter().map(|x| f64::from(*x)).collect(),
            Role::Input if info.name == names::LABELS => labels.iter().map(|x| f64::from(*x)).collect(),
            role if role == Role::Input || role.is_persistent() => vec![0.0; info.shape.count()],
            _ => continue,
        };
        values.insert(info.name.clone(), Array { shape: info.shape.clone(), data });
    }
    let arrays = interpret(&program, &values).unwrap();
    let mut worst = 0.0f64;
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        let gradient = &arrays[program.find(&format!("{}/grad", info.name)).unwrap().index()].data;
        let gradient: Vec<f64> = gradient.iter().map(|x| 2.0 * x).collect();
        let [scale, products @ ..] = &record.gradients[&info.name][..] else { panic!("no norm") };
        worst = products_off(products, &gradient).fold(worst, |worst, off| worst.max(off / scale));
    }
    eprintln!("{name}: the gradients of the definitions are off PyTorch's in f64 by {worst:.1e}");
    assert!(worst <= 1e-6, "{name}: {worst:e}");
}
