//! SE-ResNeXt50 against timm: logits of evaluation and of training, gradients of the first step in f64, losses over ten steps, running
//! statistics after three and evaluation with them, for both max pools. `oracles/seresnext_training.py` made the numbers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use conformance::{engine_for, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::{Component, CrossEntropy, Loss};
use plimsoll_graph::{DType, Kind, Op, Program, Role, Shape, TensorId, differentiate};
use plimsoll_nn::weights::{SafetensorsFile, safetensors};
use plimsoll_nn::{
    Architecture, ForwardMode, Head, Objective, Optimizer, SEResNeXt50, StemPool, Training, names, predict,
};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, Options, ProgramId, plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Record {
    pool: StemPool,
    #[serde(default)]
    head: Head,
    size: usize,
    batch: usize,
    classes: usize,
    /// Logits before any step, with running statistics; how far PyTorch in f32 is off, as all that is called an error.
    evaluated: Vec<Vec<f64>>,
    evaluated_error: f64,
    /// Logits of the first step.
    logits: Vec<Vec<f64>>,
    logits_error: f64,
    losses: Vec<f64>,
    exact_losses: Vec<f64>,
    batches_tracked: Vec<f32>,
    running: BTreeMap<String, Sample>,
    running_error: f64,
    gradients: BTreeMap<String, Sample>,
    gradient_error: f64,
    /// Logits after all steps, with running statistics.
    trained: Vec<Vec<f64>>,
    trained_error: f64,
}

/// The norm of a tensor, and some of its numbers.
#[derive(Deserialize)]
struct Sample {
    norm: f64,
    some: Vec<f64>,
}

const PLACES: usize = 8;
const STEPS: usize = 10;

/// The largest allowed ratio of our error against f64 to the error of PyTorch in f32, which varies by chance.
const KINKS: f64 = 3.0;

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles")
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn relative(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let difference = found.iter().zip(expected).map(|(f, e)| f64::from(*f) - e);
    norm(difference) / norm(expected.iter().copied())
}

impl Sample {
    /// Returns the error of a tensor's numbers, relative to their mean magnitude.
    fn error(&self, found: &[f32]) -> f64 {
        let of_norm = (norm(found.iter().map(|x| f64::from(*x))) / self.norm - 1.0).abs();
        let step = (found.len() / PLACES).max(1);
        let some = found.iter().step_by(step).take(PLACES);
        let difference =
            norm(some.zip(&self.some).map(|(f, e)| f64::from(*f) - e)) / (self.some.len() as f64).sqrt();
        of_norm.max(difference / (self.norm / (found.len() as f64).sqrt()))
    }
}

impl Record {
    fn open(folder: &Path, pool: &str) -> Record {
        serde_json::from_str(&fs::read_to_string(folder.join(format!("seresnext_{pool}.json"))).unwrap())
            .unwrap()
    }

    fn net(&self) -> SEResNeXt50 {
        SEResNeXt50 { pool: self.pool, head: self.head, ..SEResNeXt50::new(3, self.classes) }
    }

    fn patch(&self) -> [usize; 3] {
        [1, self.size, self.size]
    }

    fn training(&self) -> Training {
        Training {
            net: self.net().into(),
            loss: cross_entropy().into(),
            optimizer: Optimizer::adamw(),
            max_grad_norm: Some(f32::INFINITY),
            ema: None,
            groups: Vec::new(),
            frozen: Vec::new(),
            patch: self.patch(),
            spacing: [1.0; 3],
            batch: self.batch,
            shards: 1,
            micro_batch: self.batch,
            precision: DType::F32,
        }
    }

    /// Image and labels of a step, by the same formula as in the script.
    fn batch(&self, step: usize) -> (Vec<f32>, Vec<u8>) {
        let label = |sample: usize| ((noise(2 * step + 2, sample) + 1.0) / 2.0 * self.classes as f64).floor();
        let count = 3 * self.size * self.size;
        let image = (0..self.batch * count).map(|i| noise(2 * step + 1, i) + 0.25 * (label(i / count) - 1.0));
        (image.map(|x| x as f32).collect(), (0..self.batch).map(|sample| label(sample) as u8).collect())
    }
}

fn cross_entropy() -> Loss {
    Loss::new(vec![Component::CrossEntropy(CrossEntropy::default())])
}

const FIRST: ProgramId = ProgramId::new(0);

/// An engine for some programs, with weights by the same formula as in the script; the first must have all parameters.
fn engine(programs: &[Program]) -> Box<dyn Engine> {
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let mut engine = engine_for(&backend, programs, Options::default()).unwrap();
    let parameters: Vec<TensorId> = programs[0].with_role(Role::Parameter).collect();
    let name = |id: &TensorId| programs[0].tensor(*id).name.clone();
    let is_count = |name: &str| name.ends_with("num_batches_tracked");
    let mut names: Vec<String> = parameters.iter().map(name).filter(|name| !is_count(name)).collect();
    names.sort();
    for id in parameters {
        let info = programs[0].tensor(id);
        let seed = 1000 + names.binary_search(&info.name).unwrap_or(0);
        let last = info.name.rsplit('.').next().unwrap();
        let fan_in = (info.shape.count() / info.shape.dim(0)) as f64;
        let value = |i: usize| match (info.kind, last) {
            (Kind::Weights, _) => noise(seed, i) * (6.0 / fan_in).sqrt(),
            (_, "num_batches_tracked") => 0.0,
            (_, "weight") if info.name.ends_with("bn3.weight") => 0.25 + 0.125 * noise(seed, i),
            (_, "weight" | "running_var") => 1.0 + 0.25 * noise(seed, i),
            _ => 0.125 * noise(seed, i),
        };
        let values: Vec<f32> = (0..info.shape.count()).map(|i| value(i) as f32).collect();
        engine.write(FIRST, id, HostSlice::F32(&values)).unwrap();
    }
    engine
}

fn read(engine: &dyn Engine, of: (ProgramId, &Program), name: &str) -> Vec<f32> {
    let (id, program) = of;
    let tensor = program.find(name).unwrap_or_else(|| panic!("there is no `{name}`"));
    let mut values = vec![0.0; program.shape(tensor).count()];
    engine.read(id, tensor, HostSliceMut::F32(&mut values)).unwrap();
    values
}

/// Logits and all gradients of the first step.
fn gradients(record: &Record) -> Program {
    let mut program = Program::new("gradients");
    let image = program.input(names::IMAGE, Shape::volume(record.batch, 3, record.patch()), Kind::Volume);
    let labels = program.input(names::LABELS, Shape::volume(record.batch, 1, [1; 3]), Kind::Labels);
    let net = record.net();
    let mode = ForwardMode { training: true, precision: DType::F32 };
    let logits = net.forward(&mut program, image, mode).unwrap()[0];
    let objective: Objective = cross_entropy().into();
    let (loss, _) = objective.write(&mut program, logits, labels, [1.0; 3]).unwrap();
    let is_trained = |id: &TensorId| net.is_trained(&program.tensor(*id).name);
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).filter(is_trained).collect();
    let gradients = differentiate(&mut program, loss, 1.0, &parameters).unwrap();
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        let name = format!("{}/grad", program.tensor(*parameter).name);
        program.mark_output(gradient.unwrap(), name);
    }
    program.mark_output(logits, names::LOGITS);
    program
}

fn agrees(folder: &Path, pool: &str) {
    let record = Record::open(folder, pool);
    let program = gradients(&record);
    let mut first = engine(std::slice::from_ref(&program));
    let (image, labels) = record.batch(0);
    first.write(FIRST, program.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
    first.write(FIRST, program.find(names::LABELS).unwrap(), HostSlice::U8(&labels)).unwrap();
    first.run(FIRST).unwrap();
    let of_logits = relative(&read(&*first, (FIRST, &program), names::LOGITS), &record.logits.concat());
    assert!(
        of_logits <= (KINKS * record.logits_error).max(1e-5),
        "{pool}: logits are off by {of_logits:.1e}"
    );
    let whole = SafetensorsFile::open(&folder.join(format!("seresnext_{pool}.safetensors")));
    let mut whole = whole.ok();
    let mut worst = (0.0, "");
    for (name, expected) in &record.gradients {
        let found = read(&*first, (FIRST, &program), &format!("{name}/grad"));
        let mut error = expected.error(&found);
        if let Some(file) = &mut whole {
            let mut all = vec![0.0; found.len()];
            file.read(name, program.shape(program.find(name).unwrap()), &mut all).unwrap();
            error = relative(&found, &all.into_iter().map(f64::from).collect::<Vec<_>>());
        }
        if error > worst.0 {
            worst = (error, name);
        }
    }
    let (of_gradients, name) = worst;
    assert_eq!(
        record.gradients.len(),
        program.ids().filter(|id| program.tensor(*id).name.ends_with("/grad")).count()
    );
    // A kink of the ReLU that rounding flips changes gradients by more than rounding does, PyTorch's too.
    assert!(record.gradient_error < 5e-2 && record.logits_error < 1e-4, "PyTorch in f32 is no measure");
    let bound = (KINKS * record.gradient_error).max(1e-3);
    assert!(of_gradients <= bound, "{pool}: the gradient of {name} is off by {of_gradients:.1e}");
    drop(first);

    let step = record.training().programs().unwrap().gradients.swap_remove(0);
    let forward = predict(&record.net(), record.patch(), record.batch, DType::F32).unwrap();
    let mut engine = engine(&[step.clone(), forward.clone()]);
    let predict = engine.plan().find(&forward.name).unwrap();
    let evaluate = |engine: &mut dyn Engine, batch: usize| {
        let (image, _) = record.batch(batch);
        engine.write(predict, forward.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
        engine.run(predict).unwrap();
        read(engine, (predict, &forward), names::LOGITS)
    };
    let evaluated = relative(&evaluate(&mut *engine, 0), &record.evaluated.concat());
    assert!(
        evaluated <= (KINKS * record.evaluated_error).max(1e-5),
        "{pool}: evaluation is off by {evaluated:.1e}"
    );
    let (mut losses, mut of_running) = (Vec::new(), 0.0f64);
    for i in 0..STEPS {
        let (image, labels) = record.batch(i);
        let rates = Optimizer::adamw().rates(1e-4, i as u64 + 1, 1.0);
        engine.write(FIRST, step.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
        engine.write(FIRST, step.find(names::LABELS).unwrap(), HostSlice::U8(&labels)).unwrap();
        engine.write(FIRST, step.find(names::RATES).unwrap(), HostSlice::F32(&rates)).unwrap();
        engine.run(FIRST).unwrap();
        losses.push(f64::from(read(&*engine, (FIRST, &step), names::LOSS)[0]));
        if i == 2 {
            for (name, expected) in &record.running {
                of_running = of_running.max(expected.error(&read(&*engine, (FIRST, &step), name)));
                let count = name
                    .replace("running_mean", "num_batches_tracked")
                    .replace("running_var", "num_batches_tracked");
                assert_eq!(read(&*engine, (FIRST, &step), &count), record.batches_tracked, "{count}");
            }
        }
    }
    // What is off grows from step to step, so each has a bound of its own: the most that PyTorch was off up to the next, as a
    // kink may come a step earlier.
    let off = |losses: &[f64]| -> Vec<f64> {
        let mut most = 0.0;
        let pairs = losses.iter().zip(&record.exact_losses);
        let errors = pairs.map(|(loss, exact)| (loss / exact - 1.0).abs());
        errors
            .map(|error| {
                most = f64::max(most, error);
                most
            })
            .collect()
    };
    let (all_ours, all_theirs) = (off(&losses), off(&record.losses));
    let (ours, theirs) = (all_ours[STEPS - 1], all_theirs[STEPS - 1]);
    let trained = relative(&evaluate(&mut *engine, STEPS), &record.trained.concat());
    eprintln!(
        "{pool}: off f64 by (PyTorch in f32 by) {evaluated:.1e} ({:.1e}) in evaluation, {of_logits:.1e} ({:.1e}) in training, \
         {of_gradients:.1e} ({:.1e}) in the gradient of {name}, {ours:.1e} ({theirs:.1e}) in losses over {STEPS} steps, \
         {of_running:.1e} ({:.1e}) in running statistics after three, {trained:.1e} ({:.1e}) in evaluation after all",
        record.evaluated_error,
        record.logits_error,
        record.gradient_error,
        record.running_error,
        record.trained_error
    );
    for (step, ours) in all_ours.iter().enumerate() {
        let theirs = all_theirs[(step + 1).min(STEPS - 1)];
        let bound = (KINKS * theirs).max(1e-4);
        assert!(
            *ours <= bound,
            "{pool}: the loss of step {step} is off by {ours:.1e}, PyTorch's by {theirs:.1e}"
        );
    }
    assert!(
        of_running <= (KINKS * record.running_error).max(1e-4),
        "{pool}: {of_running:.1e} in running statistics"
    );
    assert!(
        trained <= (KINKS * record.trained_error).max(1e-3),
        "{pool}: evaluation is off by {trained:.1e} in the end"
    );
}

#[test]
fn it_trains_and_evaluates_as_timms() {
    agrees(&oracles(), "padded");
}

#[test]
fn with_a_max_pool_that_is_rounded_up_it_trains_and_evaluates_as_pretrainedmodels() {
    agrees(&oracles(), "ceil");
}

/// Linear layers with ReLU and batch normalisation behind, over the six samples of a batch.
#[test]
fn with_a_head_of_three_linear_layers_it_trains_and_evaluates_as_in_pytorch() {
    agrees(&oracles(), "mlp");
}

/// All numbers of all gradients: `python oracles/seresnext_training.py full DIR`, then `PLIMSOLL_ORACLE=DIR cargo test --release -p
/// plimsoll-nn --test seresnext whole -- --ignored --nocapture`.
#[test]
#[ignore = "needs numbers that are too large to commit"]
fn whole_gradients_are_those_of_timm() {
    let folder = PathBuf::from(std::env::var("PLIMSOLL_ORACLE").unwrap());
    agrees(&folder, "padded");
    agrees(&folder, "ceil");
    agrees(&folder, "mlp");
}

#[test]
fn running_statistics_are_updated_once_however_much_is_recomputed() {
    let record = Record { size: 160, ..Record::open(&oracles(), "padded") };
    let programs = record.training().programs().unwrap();
    let updates = |program: &Program| {
        program.nodes.iter().filter(|node| matches!(node.op, Op::RunningUpdate(_))).count()
    };
    assert_eq!((updates(&programs.gradients[0]), updates(&programs.validate)), (53, 0));
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let with =
        |budget| plan(&programs.gradients, &backend, Options { budget, ..Options::default() }).unwrap();
    let free = with(None);
    // Half of what lies above parameters, moments and the room that the program has for gradients.
    let persistent: usize = free.persistent.iter().map(|(_, block)| block.bytes).sum();
    let least = persistent * 4 / 3;
    let small = with(Some(least + (free.arena_bytes - least) / 2));
    let schedule = small.schedule(FIRST);
    eprintln!(
        "{} MB become {} MB with {:.1} % more operations",
        free.arena_bytes / 1_000_000,
        small.arena_bytes / 1_000_000,
        100.0 * schedule.recompute_flops_fraction
    );
    assert!(small.arena_bytes < free.arena_bytes && schedule.recompute_flops_fraction > 0.0);
    let is_update = |node: usize| {
        let covers = &small.lowered[0].nodes[node].covers;
        covers.iter().any(|at| matches!(programs.gradients[0].nodes[*at].op, Op::RunningUpdate(_)))
    };
    assert_eq!(schedule.launches.iter().filter(|launch| is_update(launch.node)).count(), 53);
}

#[test]
fn a_step_that_is_refused_leaves_running_statistics_as_they_are() {
    let record = Record::open(&oracles(), "padded");
    let step = record.training().programs().unwrap().gradients.swap_remove(0);
    let mut engine = engine(std::slice::from_ref(&step));
    let running: Vec<String> = step
        .with_role(Role::Parameter)
        .map(|id| step.tensor(id).name.clone())
        .filter(|name| name.contains("running_") || name.ends_with("num_batches_tracked"))
        .collect();
    assert_eq!(running.len(), 3 * 53);
    let all = |engine: &dyn Engine| {
        running.iter().map(|name| read(engine, (FIRST, &step), name)).collect::<Vec<_>>()
    };
    let before = all(&*engine);
    let (mut image, labels) = record.batch(0);
    for value in [f32::NAN, 0.5] {
        image[17] = value;
        engine.write(FIRST, step.find(names::IMAGE).unwrap(), HostSlice::F32(&image)).unwrap();
        engine.write(FIRST, step.find(names::LABELS).unwrap(), HostSlice::U8(&labels)).unwrap();
        engine
            .write(FIRST, step.find(names::RATES).unwrap(), HostSlice::F32(&[1e-4, 0.1, 0.001, 1.0]))
            .unwrap();
        engine.run(FIRST).unwrap();
        assert_eq!(before == all(&*engine), value.is_nan());
    }
}

/// Writes files under the names of timm, pretrainedmodels and MONAI, and the logits of a batch: `PLIMSOLL_ORACLE=DIR cargo test
/// --release -p plimsoll-nn --test all seresnext::exports -- --ignored`, then `python oracles/seresnext_training.py load DIR`.
#[test]
#[ignore = "needs a folder that Python then reads from"]
fn exports_for_other_programs() {
    let folder = PathBuf::from(std::env::var("PLIMSOLL_ORACLE").unwrap());
    fs::create_dir_all(&folder).unwrap();
    for (pool, count) in [("padded", 1), ("ceil", 2)] {
        let record = Record { size: 64, ..Record::open(&oracles(), pool) };
        let step = record.training().programs().unwrap().gradients.swap_remove(0);
        let forward = predict(&record.net(), record.patch(), record.batch, DType::F32).unwrap();
        let mut engine = engine(&[step.clone(), forward.clone()]);
        let program = engine.plan().find(&forward.name).unwrap();
        engine
            .write(program, forward.find(names::IMAGE).unwrap(), HostSlice::F32(&record.batch(0).0))
            .unwrap();
        engine.run(program).unwrap();
        let logits = read(&*engine, (program, &forward), names::LOGITS);
        for scheme in record.net().naming_schemes().iter().take(count) {
            let infos: Vec<_> = step.with_role(Role::Parameter).map(|id| (id, step.tensor(id))).collect();
            let tensors: Vec<(String, Shape)> = infos
                .iter()
                .map(|(_, info)| {
                    (scheme.weight_name(&info.name), scheme.weight_shape(&info.name, &info.shape))
                })
                .collect();
            let mut file = File::create(folder.join(format!("{}.safetensors", scheme.name))).unwrap();
            let fill = |i: usize, values: &mut [f32]| {
                engine.read(FIRST, infos[i].0, HostSliceMut::F32(values)).map_err(std::io::Error::other)
            };
            safetensors::write(&mut file, &tensors, &BTreeMap::new(), &mut vec![0.0; 1 << 22], fill).unwrap();
            let json = serde_json::to_string(&logits).unwrap();
            fs::write(folder.join(format!("{}.json", scheme.name)), json).unwrap();
        }
    }
}
