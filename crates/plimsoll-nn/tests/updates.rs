//! The effects of steps on parameters beside learning: no update after overflow, averages, rates of groups, and frozen
//! parameters.

use std::collections::BTreeMap;

use conformance::{engine_for, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::SoftDice;
use plimsoll_graph::{DType, Op, Program, Role, TensorId};
use plimsoll_nn::{DynUNet, Optimizer, ParameterGroup, Training, averages, names};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, Options, ProgramId};

const PATCH: [usize; 3] = [8, 8, 16];
const BATCH: usize = 2;

fn training(optimizer: Optimizer) -> Training {
    let dice = SoftDice { include_background: false, ..SoftDice::default() };
    Training {
        net: DynUNet::new(1, 3, &[4, 6, 20], &[[3; 3]; 3], &[[1; 3], [1, 2, 2], [2; 3]]).into(),
        loss: plimsoll_graph::ops::Loss::dice_ce(dice, 1.0).into(),
        optimizer,
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: PATCH,
        spacing: [1.0; 3],
        batch: BATCH,
        shards: 1,
        micro_batch: BATCH,
        precision: DType::F32,
    }
}

fn sgd(momentum: f32) -> Optimizer {
    Optimizer::Sgd { momentum, weight_decay: 0.0 }
}

/// The programs of a training on an engine.
struct Run {
    training: Training,
    all: Vec<Program>,
    engine: Box<dyn Engine>,
    steps: u64,
}

/// Loss and gradients, and where a step is one micro-batch the update.
const GRADIENT: ProgramId = ProgramId::new(0);

impl Run {
    /// With initial parameters, which are the averages too.
    fn start(training: Training) -> Run {
        let programs = training.programs().unwrap();
        assert_eq!(programs.gradients.len(), 1);
        let all: Vec<Program> =
            programs.gradients.into_iter().chain(programs.update).chain([programs.validate]).collect();
        let backend = CpuBackend::new(CpuOptions { poison: true, ..CpuOptions::new(2) }).unwrap();
        let engine = engine_for(&backend, &all, Options::default()).unwrap();
        let mut run = Run { training, all, engine, steps: 0 };
        let (id, updating) = (run.updating(), run.all[run.updating().index()].clone());
        for tensor in updating.ids().filter(|tensor| updating.tensor(*tensor).role.is_persistent()) {
            let info = updating.tensor(tensor);
            let values = match info.role {
                Role::Parameter => run.training.net.initial_values(info, 7),
                _ => vec![0.0; info.shape.count()],
            };
            run.engine.write(id, tensor, HostSlice::F32(&values)).unwrap();
        }
        for (parameter, average) in averages(&updating) {
            let values = run.read(id, parameter);
            run.engine.write(id, average, HostSlice::F32(&values)).unwrap();
        }
        run
    }

    fn updating(&self) -> ProgramId {
        ProgramId::new(self.all.len() - 2)
    }

    fn validate(&self) -> ProgramId {
        ProgramId::new(self.all.len() - 1)
    }

    fn read(&self, id: ProgramId, tensor: TensorId) -> Vec<f32> {
        let mut values = vec![0.0; self.all[id.index()].shape(tensor).count()];
        self.engine.read(id, tensor, HostSliceMut::F32(&mut values)).unwrap();
        values
    }

    fn output(&self, id: ProgramId, name: &str) -> f32 {
        self.read(id, self.all[id.index()].find(name).unwrap())[0]
    }

    fn write(&mut self, id: ProgramId, name: &str, values: &[f32]) {
        let tensor = self.all[id.index()].find(name).unwrap();
        self.engine.write(id, tensor, HostSlice::F32(values)).unwrap();
    }

    /// Runs a program with loss on as many samples as it takes, with something added to one voxel of its image; the loss.
    fn run(&mut self, id: ProgramId, seed: usize, added: f32) -> f32 {
        let tensor = self.all[id.index()].find(names::IMAGE).unwrap();
        let voxels = self.all[id.index()].shape(tensor).count();
        let mut image: Vec<f32> = (0..voxels).map(|i| noise(seed, i) as f32).collect();
        let labels: Vec<u8> = image.iter().map(|x| ((x + 1.0) * 1.49) as u8).collect();
        image[voxels / 3] += added;
        self.write(id, names::IMAGE, &image);
        let tensor = self.all[id.index()].find(names::LABELS).unwrap();
        self.engine.write(id, tensor, HostSlice::U8(&labels)).unwrap();
        self.engine.run(id).unwrap();
        self.output(id, names::LOSS)
    }

    /// One step, with something added to one voxel; the norm of the gradients, where it is taken.
    fn step(&mut self, learning_rate: f64, added: f32) -> Option<f32> {
        self.steps += 1;
        let rates = self.training.optimizer.rates(learning_rate, self.steps, 1.0);
        let (updating, parts) = (self.updating(), self.training.accumulation());
        if parts == 1 {
            self.write(updating, names::RATES, &rates);
        }
        let mut loss = 0.0;
        for part in 0..parts {
            loss += self.run(GRADIENT, part + 1, if part == 0 { added } else { 0.0 }) / parts as f32;
        }
        let guarded = self.training.max_grad_norm.is_some();
        if parts > 1 {
            self.write(updating, names::RATES, &rates);
            if guarded {
                self.write(updating, names::STEP_LOSS, &[loss]);
            }
            self.engine.run(updating).unwrap();
        }
        guarded.then(|| self.output(updating, names::GRAD_NORM))
    }

    /// The bits of all parameters, moments, averages and accumulated gradients.
    fn bits(&self) -> BTreeMap<String, Vec<u32>> {
        let id = self.updating();
        let program = &self.all[id.index()];
        let persistent = program.ids().filter(|tensor| program.tensor(*tensor).role.is_persistent());
        let bits = |tensor| self.read(id, tensor).into_iter().map(f32::to_bits).collect();
        persistent.map(|tensor| (program.tensor(tensor).name.clone(), bits(tensor))).collect()
    }

    fn parameters(&self) -> BTreeMap<String, Vec<f32>> {
        let id = self.updating();
        let program = &self.all[id.index()];
        let parameters = program.with_role(Role::Parameter);
        parameters.map(|tensor| (program.tensor(tensor).name.clone(), self.read(id, tensor))).collect()
    }
}

#[test]
fn a_step_on_a_voxel_that_is_no_number_changes_no_bit() {
    for optimizer in [Optimizer::adamw(), Optimizer::nnunet()] {
        for (max_grad_norm, micro_batch) in [(12.0, 2), (12.0, 1), (f32::INFINITY, 2), (f32::INFINITY, 1)] {
            let what = format!("{optimizer:?}, {max_grad_norm}, micro-batches of {micro_batch}");
            let max_grad_norm = Some(max_grad_norm);
            let mut run =
                Run::start(Training { max_grad_norm, micro_batch, ema: Some(0.9), ..training(optimizer) });
            let norm = run.step(1e-2, 0.0).unwrap();
            assert!(norm > 0.0 && !names::was_refused(norm), "{what}: {norm}");
            let before = run.bits();
            for added in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let norm = run.step(1e-2, added).unwrap();
                assert!(names::was_refused(norm), "{what}: {norm} with {added}");
                assert!(run.bits() == before, "{what}: {added} has changed something");
            }
            let norm = run.step(1e-2, 0.0).unwrap();
            assert!(!names::was_refused(norm), "{what}: {norm} afterwards");
            let after = run.bits();
            for (name, values) in &before {
                let zero = name.ends_with("/grad");
                assert_eq!(values == &after[name], zero, "{what}: {name}");
            }
        }
    }
}

#[test]
fn the_loss_alone_can_refuse_a_step() {
    // The gradient of the last bias does not pass through any map that is no number.
    for micro_batch in [1, 2] {
        let frozen =
            ["input_block", "downsamples", "bottleneck", "upsamples", "output_block.conv.conv.weight"];
        let frozen = frozen.map(String::from).to_vec();
        let mut run = Run::start(Training { frozen, micro_batch, ..training(Optimizer::adamw()) });
        let before = run.bits();
        let norm = run.step(1e-2, f32::NAN).unwrap();
        assert!(names::was_refused(norm), "{norm}");
        assert!(run.bits() == before);
    }
    // Whatever the gradients are, a loss that is handed to the update counts.
    let mut run = Run::start(Training { micro_batch: 1, ..training(Optimizer::adamw()) });
    let before = run.bits();
    let (updating, rates) = (run.updating(), Optimizer::adamw().rates(1e-2, 1, 1.0));
    let update = |run: &mut Run, loss| {
        run.run(GRADIENT, 1, 0.0);
        run.write(updating, names::RATES, &rates);
        run.write(updating, names::STEP_LOSS, &[loss]);
        run.engine.run(updating).unwrap();
        names::was_refused(run.output(updating, names::GRAD_NORM))
    };
    assert!(update(&mut run, f32::INFINITY) && run.bits() == before);
    assert!(!update(&mut run, 1.0) && run.bits() != before);
}

#[test]
fn gradients_that_are_not_to_be_scaled_take_the_step_that_an_unreachable_norm_gives() {
    let parameters = |max_grad_norm| {
        let mut run = Run::start(Training { max_grad_norm, ..training(Optimizer::adamw()) });
        (0..3).for_each(|_| {
            run.step(1e-2, 0.0);
        });
        run.parameters()
    };
    let unscaled = parameters(Some(f32::INFINITY));
    assert_eq!(unscaled, parameters(Some(1e9)));
    assert_eq!(unscaled, parameters(None));
}

#[test]
fn averages_follow_their_definition_and_validation_takes_them() {
    const DECAY: f32 = 0.75;
    for (max_grad_norm, micro_batch) in [(Some(12.0), 2), (Some(12.0), 1), (None, 2), (None, 1)] {
        let optimizer = sgd(0.9);
        let plain = Training { max_grad_norm, micro_batch, ..training(optimizer) };
        let mut run = Run::start(Training { ema: Some(DECAY), ..plain.clone() });
        let mut expected = run.parameters();
        for _ in 0..4 {
            run.step(0.05, 0.0);
            for (name, now) in run.parameters() {
                let average = expected.get_mut(&name).unwrap();
                for (average, now) in average.iter_mut().zip(now) {
                    *average = DECAY * *average + (1.0 - DECAY) * now;
                }
            }
        }
        let (id, updating) = (run.updating(), &run.all[run.updating().index()]);
        let pairs = averages(updating);
        assert_eq!(pairs.len(), expected.len());
        for (parameter, average) in pairs {
            let name = &updating.tensor(parameter).name;
            assert_eq!(updating.tensor(average).name, format!("{name}/ema"));
            for (found, expected) in run.read(id, average).iter().zip(&expected[name]) {
                assert!((found - expected).abs() <= 1e-6, "{name}: {found}, not {expected}");
            }
        }
        // A run without averages, whose parameters are these averages.
        let mut other = Run::start(plain);
        let parameters: Vec<(TensorId, String)> = other.all[id.index()]
            .with_role(Role::Parameter)
            .map(|tensor| (tensor, other.all[id.index()].tensor(tensor).name.clone()))
            .collect();
        let steps = run.parameters();
        for (tensor, name) in parameters {
            let average = run.read(id, updating.find(&names::average(&name)).unwrap());
            assert_ne!(average, steps[&name]);
            other.engine.write(id, tensor, HostSlice::F32(&average)).unwrap();
        }
        let validate = run.validate();
        assert_eq!(run.run(validate, 5, 0.0), other.run(validate, 5, 0.0));
    }
}

fn group(prefix: &str, rate: f32) -> ParameterGroup {
    ParameterGroup { prefix: prefix.into(), rate }
}

#[test]
fn a_group_learns_at_its_rate_as_if_that_were_the_learning_rate() {
    // With weight decay, which both take in proportion to the rate: a group decays by its own rate.
    for optimizer in [Optimizer::adamw(), Optimizer::nnunet()] {
        for micro_batch in [1, 2] {
            let run = |groups: Vec<ParameterGroup>, rate: f64| {
                let mut run = Run::start(Training { groups, micro_batch, ..training(optimizer) });
                run.step(rate, 0.0);
                run.parameters()
            };
            let (full, quarter) = (run(Vec::new(), 1e-2), run(Vec::new(), 0.25e-2));
            let groups = vec![group("upsamples", 0.25), group("upsamples.1", 1.0)];
            let grouped = run(groups, 1e-2);
            let mut found = [0, 0];
            for (name, values) in &grouped {
                let slow = name.starts_with("upsamples") && !name.starts_with("upsamples.1.");
                found[usize::from(slow)] += 1;
                assert_eq!(values, if slow { &quarter[name] } else { &full[name] }, "{name}");
                assert_ne!(full[name], quarter[name], "{name}");
            }
            assert!(found[0] > 0 && found[1] > 0, "{found:?}");
        }
    }
}

fn count(program: &Program, is: impl Fn(&Op) -> bool) -> usize {
    program.nodes.iter().filter(|node| is(&node.op)).count()
}

#[test]
fn what_is_frozen_costs_no_gradient_and_keeps_its_bits() {
    for (micro_batch, max_grad_norm) in [(1, Some(12.0)), (2, Some(12.0)), (2, None)] {
        for frozen in
            [vec!["input_block", "downsamples"], vec!["output_block"], vec!["upsamples.0.transp_conv"]]
        {
            let is_frozen = |name: &str| frozen.iter().any(|prefix| name.starts_with(prefix));
            let list = frozen.iter().map(|prefix| prefix.to_string()).collect();
            let usual =
                Training { micro_batch, max_grad_norm, ema: Some(0.9), ..training(Optimizer::adamw()) };
            let mut run = Run::start(Training { frozen: list, ..usual.clone() });
            let usual = usual.programs().unwrap();
            let weight_grads = |program: &Program| count(program, |op| matches!(op, Op::ConvWeightGrad(_)));
            let spared = weight_grads(&usual.gradients[0]) - weight_grads(&run.all[0]);
            let convolutions = run.all[0]
                .with_role(Role::Parameter)
                .filter(|id| run.all[0].shape(*id).0.len() == 5 && is_frozen(&run.all[0].tensor(*id).name));
            assert_eq!(spared, convolutions.count(), "{frozen:?}");
            let before = run.bits();
            run.step(1e-2, 0.0);
            let after = run.bits();
            let mut kept = 0;
            for (name, values) in &before {
                if is_frozen(name) {
                    assert!(!name.contains('/'), "{name} is of no use");
                    assert_eq!(values, &after[name], "{name}");
                    kept += 1;
                } else if !name.contains('/') {
                    assert_ne!(values, &after[name], "{name}");
                }
            }
            assert!(kept > 0, "{frozen:?}");
            // Validation takes frozen parameters as they are, beside averages of the others.
            assert!(run.run(run.validate(), 3, 0.0).is_finite());
        }
    }
}

#[test]
fn impossible_settings_are_refused_by_their_names() {
    let usual = training(Optimizer::adamw());
    let said = |training: Training| training.programs().unwrap_err().to_string();
    for max in [0.0, -1.0, f32::NAN, f32::NEG_INFINITY] {
        let said = said(Training { max_grad_norm: Some(max), ..usual.clone() });
        assert!(said.starts_with(&format!("`max_grad_norm` is {max}, but")), "{said}");
    }
    for decay in [0.0, 1.0, -0.5, 1.5, f32::NAN] {
        let said = said(Training { ema: Some(decay), ..usual.clone() });
        assert_eq!(said, format!("`ema` is {decay}, but it must be above 0 and below 1"));
    }
    let found = said(Training { frozen: vec!["encoder".into()], ..usual.clone() });
    assert_eq!(
        found,
        "`frozen` is \"encoder\", but no parameter's name begins with it; the names are bottleneck, downsamples.0, input_block, output_block, upsamples.0, upsamples.1"
    );
    let all = ["bottleneck", "downsamples", "input_block", "output_block", "upsamples"].map(String::from);
    assert!(said(Training { frozen: all.to_vec(), ..usual.clone() }).contains("nothing would be trained"));
    let groups = vec![group("bottleneck", 0.0)];
    assert!(said(Training { groups, ..usual }).starts_with("`groups` is \"bottleneck\" with rate 0, but"));
}

#[test]
fn what_a_run_was_started_with_is_read_back() {
    let training = Training {
        max_grad_norm: Some(f32::INFINITY),
        ema: Some(0.999),
        groups: vec![group("bottleneck", 0.1)],
        frozen: vec!["upsamples.0".into()],
        ..training(Optimizer::adamw())
    };
    let json = serde_json::to_string(&training).unwrap();
    assert_eq!(serde_json::from_str::<Training>(&json).unwrap(), training, "{json}");
}
