//! Losses over a batch that goes through the network in parts, against the whole batch: the programs of both in f64.

use std::collections::HashMap;

use conformance::noise;
use plimsoll_graph::{Array, DType, Kind, Op, Program, Role, Shape, TensorId, interpret};
use plimsoll_nn::{DynUNet, Network, Objective, Optimizer, Training, UNetNorm, names};

/// Samples of the batch.
const BATCH: usize = 4;

fn objective(components: &str, ignore: Option<u8>) -> Objective {
    let mut objective: Objective =
        serde_json::from_str(&format!("{{\"components\": [{components}]}}")).unwrap();
    objective.ignore = ignore;
    objective
}

fn training(loss: &Objective, shards: usize, micro_batch: usize) -> Training {
    Training {
        net: DynUNet::new(1, 3, &[4, 6, 6], &[[3; 3]; 3], &[[1; 3], [1, 2, 2], [2; 3]]).into(),
        loss: loss.clone(),
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [4, 8, 8],
        spacing: [1.0; 3],
        batch: BATCH,
        shards,
        micro_batch,
        precision: DType::F32,
    }
}

/// Values of all tensors that a program reads, for the samples from `first` on.
fn values(training: &Training, program: &Program, first: usize) -> HashMap<String, Array> {
    let read = |role: &Role| *role == Role::Input || role.is_persistent();
    let read = program.ids().filter(|id| read(&program.tensor(*id).role));
    let value = |id: TensorId| {
        let tensor = program.tensor(id);
        let shape = tensor.shape.clone();
        // A number for each element of the whole batch.
        let whole = |of: usize, at: usize| noise(of, first * shape.count() / shape.0[0] + at);
        // Samples differ in the numbers of voxels of each class.
        let class = |at: usize| {
            let sample = first + at * shape.0[0] / shape.count();
            (whole(2, at) + 0.3 * sample as f64).rem_euclid(3.0).floor().min(3.0)
        };
        match (tensor.role, tensor.kind) {
            (Role::Parameter, _) => {
                let values = training.net.initial_values(tensor, 5);
                Array::from_fn(shape, |at| f64::from(values[at]))
            }
            (Role::Input, Kind::Volume) => Array::from_fn(shape.clone(), |at| whole(1, at)),
            (Role::Input, Kind::Labels) => Array::from_fn(shape.clone(), class),
            _ => Array::zeros(shape),
        }
    };
    read.map(|id| (program.tensor(id).name.clone(), value(id))).collect()
}

/// The loss, its parts by their numbers, and the gradient of each parameter.
struct Found {
    loss: f64,
    parts: Vec<(usize, f64)>,
    gradients: Vec<Vec<f64>>,
}

fn parts(program: &Program, arrays: &[Array], which: Vec<usize>) -> Vec<(usize, f64)> {
    let values = &arrays[program.find(names::LOSS_PARTS).unwrap().index()].data;
    let mut parts: Vec<(usize, f64)> = which.into_iter().zip(values.iter().copied()).collect();
    parts.sort_by_key(|(part, _)| *part);
    parts
}

/// Computes a step in one piece.
fn whole(training: &Training) -> Found {
    let program = training.programs().unwrap().gradients.swap_remove(0);
    let arrays = interpret(&program, &values(training, &program, 0)).unwrap();
    let norm = program.nodes.iter().find(|node| matches!(node.op, Op::GradNorm(_))).unwrap();
    Found {
        loss: arrays[program.find(names::LOSS).unwrap().index()].data[0],
        parts: parts(&program, &arrays, training.loss.parts(&training.loss.variants()[0])),
        gradients: norm.inputs[1..].iter().map(|gradient| arrays[gradient.index()].data.clone()).collect(),
    }
}

/// Computes a step in parts, whose losses and gradients are added.
fn in_parts(training: &Training) -> Found {
    let programs = training.programs().unwrap();
    let (sums, program) = (programs.sums.as_ref().unwrap(), &programs.gradients[0]);
    let firsts = || (0..BATCH).step_by(training.micro_batch);
    // The sums of the batch, head by head.
    let mut batch: Vec<Array> = Vec::new();
    for first in firsts() {
        let arrays = interpret(sums, &values(training, sums, first)).unwrap();
        let tables = (0..).map_while(|head| sums.find(&names::sums(head)));
        for (head, table) in tables.enumerate() {
            let table = &arrays[table.index()];
            if head == batch.len() {
                batch.push(Array::zeros(table.shape.clone()));
            }
            let of_sample = table.data.len() / training.micro_batch;
            for (at, value) in table.data.iter().enumerate() {
                batch[head].data[at % of_sample] += value;
            }
        }
    }
    let states: Vec<TensorId> = program.with_role(Role::State).collect();
    let mut found = Found { loss: 0.0, parts: Vec::new(), gradients: Vec::new() };
    for first in firsts() {
        let mut values = values(training, program, first);
        for (head, sums) in batch.iter().enumerate() {
            assert!(values.insert(names::batch_sums(head), sums.clone()).is_some(), "no input of sums");
        }
        for (state, gradient) in states.iter().zip(&found.gradients) {
            let Shape(shape) = program.shape(*state).clone();
            let sum = Array { shape: Shape(shape), data: gradient.clone() };
            values.insert(program.tensor(*state).name.clone(), sum);
        }
        let arrays = interpret(program, &values).unwrap();
        let share = training.micro_batch as f64 / BATCH as f64;
        found.loss += share * arrays[program.find(names::LOSS).unwrap().index()].data[0];
        let which = training.loss.parts_by_batch_sums(&training.loss.variants()[0]);
        let all = parts(program, &arrays, which).into_iter().map(|(part, value)| (part, share * value));
        found.parts = match found.parts.is_empty() {
            true => all.collect(),
            false => all.zip(found.parts).map(|((part, new), (_, sum))| (part, sum + new)).collect(),
        };
        found.gradients = states.iter().map(|state| arrays[state.index()].data.clone()).collect();
    }
    found
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-12, |scale: f64, value| scale.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        // Shares and weights are f32.
        assert!((found - expected).abs() <= 1e-6 * scale, "{what}: {found}, {expected}");
    }
}

/// The losses whose denominators are over the batch, with ignored labels.
const LOSSES: [(&str, Option<u8>); 7] = [
    (r#"{"name": "soft_dice", "batch": true}, {"name": "cross_entropy"}"#, None),
    (r#"{"name": "tversky", "batch": true}, {"name": "focal_tversky", "batch": true, "weight": 0.5}"#, None),
    (r#"{"name": "generalized_dice", "batch": true}, {"name": "log_cosh_dice", "batch": true}"#, None),
    (r#"{"name": "cross_entropy", "class_weights": [1.0, 2.0, 3.0], "label_smoothing": 0.1}"#, None),
    (r#"{"name": "cross_entropy"}, {"name": "focal"}"#, Some(1)),
    // Sums of the batch, sums of samples, and shapes.
    (
        r#"{"name": "tversky"}, {"name": "soft_dice", "batch": true, "squared": true}, {"name": "cldice"},
           {"name": "soft_dice"}, {"name": "weighted_bce"}"#,
        None,
    ),
    (r#"{"name": "soft_dice"}, {"name": "cross_entropy"}"#, Some(2)),
];

#[test]
fn gradients_of_parts_by_the_sums_of_the_batch_add_up_to_the_gradient_of_the_batch() {
    for (components, ignore) in LOSSES {
        let loss = objective(components, ignore);
        let expected = whole(&training(&loss, 1, BATCH));
        assert!(expected.gradients.iter().flatten().any(|value| value.abs() > 1e-4), "{components}");
        for (shards, micro_batch) in [(2, 2), (4, 1), (2, 1)] {
            let what = format!("{components}, {shards} shards");
            let found = in_parts(&training(&loss, shards, micro_batch));
            close(&[found.loss], &[expected.loss], &what);
            for ((part, found), (place, expected)) in found.parts.iter().zip(&expected.parts) {
                assert_eq!(part, place);
                close(&[*found], &[*expected], &what);
            }
            assert_eq!(found.parts.len(), expected.parts.len());
            let gradients = found.gradients.iter().zip(&expected.gradients);
            gradients.for_each(|(found, expected)| close(found, expected, &what));
            assert_eq!(found.gradients.len(), expected.gradients.len());
        }
    }
}

#[test]
fn regions_over_a_batch_have_the_gradient_of_the_batch() {
    let regions = serde_json::json!({"labels": 4, "sets": [[1, 2], [2], [2, 3]]});
    let mut loss = Objective::for_regions(3, true, Some(3));
    loss.regions = Some(serde_json::from_value(regions).unwrap());
    let (expected, found) = (whole(&training(&loss, 1, BATCH)), in_parts(&training(&loss, 2, 1)));
    close(&[found.loss], &[expected.loss], "regions");
    found
        .gradients
        .iter()
        .zip(&expected.gradients)
        .for_each(|(found, expected)| close(found, expected, "regions"));
}

#[test]
fn only_losses_over_the_batch_have_a_program_of_sums_and_only_in_shards() {
    let dice = objective(r#"{"name": "soft_dice", "batch": true}"#, None);
    let of_samples = objective(r#"{"name": "soft_dice"}, {"name": "cross_entropy"}"#, None);
    for (loss, shards, is_needed) in [(&dice, 1, false), (&dice, 2, true), (&of_samples, 2, false)] {
        let training = training(loss, shards, BATCH / shards);
        assert_eq!(training.programs().unwrap().sums.is_some(), is_needed);
        assert_eq!(training.exchanges_sums(), is_needed);
    }
    // Running statistics follow the batch of the pass of the gradients alone.
    let mut normalised = training(&dice, 2, BATCH / 2);
    let Network::DynUNet(net) = &mut normalised.net else { panic!("another network") };
    net.shape.norm = UNetNorm::Batch { conv_bias: false };
    let programs = normalised.programs().unwrap();
    let moves = |program: &Program| program.nodes.iter().any(|node| matches!(node.op, Op::RunningUpdate(_)));
    assert_eq!([&programs.gradients[0], programs.sums.as_ref().unwrap()].map(moves), [true, false]);
    // One shard is not divided, and the error names the setting that divides.
    let error = training(&dice, 1, 2).programs().unwrap_err().to_string();
    assert!(error.contains("`micro_batch` is 2") && error.contains("`shards`"), "{error}");
}
