//! Losses and their gradients against MONAI and PyTorch in f64, on labels at random, without any foreground, of nothing
//! else, and of one voxel. `oracles/losses.py` made the numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use conformance::{engine_for, noise, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::{CompositeLoss, CompositeLossGrad, Fill, Loss};
use plimsoll_graph::{Array, Kind, Program, Shape, TensorId, interpret};
use plimsoll_plan::Options;
use serde::Deserialize;

const BATCH: usize = 2;
const CLASSES: usize = 3;
const EXTENT: [usize; 3] = [1, 3, 2];

#[derive(Deserialize)]
struct Case {
    name: String,
    mask: String,
    scale: f64,
    loss: Loss,
    value: f64,
    gradient: Vec<f64>,
}

impl Case {
    fn all() -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/losses.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Logits and labels, by the same formulas as in the script.
    fn inputs(&self) -> [Array; 2] {
        let logits = |i: usize| (noise(1, i) * self.scale * 128.0).round() / 128.0;
        let labels = |i: usize| match self.mask.as_str() {
            "random" => ((noise(2, i) + 1.0) / 2.0 * CLASSES as f64).floor(),
            "full" => 1.0,
            "one_voxel" => f64::from(u8::from(i == 4)),
            _ => 0.0,
        };
        [
            Array::from_fn(Shape::volume(BATCH, CLASSES, EXTENT), logits),
            Array::from_fn(Shape::volume(BATCH, 1, EXTENT), labels),
        ]
    }

    /// The program, its loss and the gradient.
    fn program(&self) -> (Program, [TensorId; 2]) {
        let mut program = Program::new("loss");
        let logits = program.input("logits", Shape::volume(BATCH, CLASSES, EXTENT), Kind::Volume);
        let labels = program.input("labels", Shape::volume(BATCH, 1, EXTENT), Kind::Labels);
        let sums = program.push_one(self.loss.stats(), &[logits, labels]).unwrap();
        let op = CompositeLoss { loss: self.loss.clone() };
        let loss = program.push(op, &[sums]).unwrap()[0];
        let one = program.push_one(Fill { value: 1.0, shape: Shape(vec![1]) }, &[]).unwrap();
        let op = CompositeLossGrad { loss: self.loss.clone() };
        let gradient = program.push_one(op, &[logits, labels, sums, one]).unwrap();
        program.mark_output(loss, "loss");
        program.mark_output(gradient, "gradient");
        (program, [loss, gradient])
    }

    /// Returns the error of a value, and that of a gradient relative to its largest element.
    fn errors(&self, value: f64, gradient: impl Iterator<Item = f64>) -> [f64; 2] {
        let scale = self.gradient.iter().fold(1e-3, |scale: f64, g| scale.max(g.abs()));
        let off = self.gradient.iter().zip(gradient).map(|(expected, found)| (expected - found).abs());
        let worst = off.fold(0.0, f64::max) / scale;
        [(value - self.value).abs() / self.value.abs().max(1e-2), worst]
    }

    fn assert_within(&self, tolerance: f64, errors: [f64; 2]) {
        let Case { name, mask, scale, .. } = self;
        let [value, gradient] = errors;
        assert!(
            value <= tolerance && gradient <= tolerance,
            "{name} on {mask}, logits to {scale}: the value is off by {value:.1e}, the gradient by {gradient:.1e}"
        );
    }
}

/// The loss and the gradient that the kernels make of logits and labels.
fn run(program: &Program, [loss, gradient]: [TensorId; 2], [logits, labels]: &[Array; 2]) -> (f64, Vec<f64>) {
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let mut engine = engine_for(&backend, std::slice::from_ref(program), Options::default()).unwrap();
    let id = engine.plan().find("loss").unwrap();
    for (name, array) in [("logits", logits), ("labels", labels)] {
        write(&mut *engine, id, program.find(name).unwrap(), &array.data);
    }
    engine.run(id).unwrap();
    (read(&*engine, id, loss)[0], read(&*engine, id, gradient))
}

fn worst(errors: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    errors.fold([0.0; 2], |worst, errors| [worst[0].max(errors[0]), worst[1].max(errors[1])])
}

#[test]
fn definitions_are_those_of_monai_and_pytorch() {
    let errors = Case::all().into_iter().map(|case| {
        let (program, [loss, gradient]) = case.program();
        let [logits, labels] = case.inputs();
        let values = HashMap::from([("logits".to_string(), logits), ("labels".to_string(), labels)]);
        let run = interpret(&program, &values).unwrap();
        let errors = case.errors(run[loss.index()].data[0], run[gradient.index()].data.iter().copied());
        case.assert_within(1e-6, errors);
        errors
    });
    let [value, gradient] = worst(errors);
    eprintln!("definitions are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn kernels_agree_with_monai_and_pytorch() {
    let errors = Case::all().into_iter().map(|case| {
        let (program, results) = case.program();
        let (value, slopes) = run(&program, results, &case.inputs());
        let errors = case.errors(value, slopes.into_iter());
        case.assert_within(1e-5, errors);
        errors
    });
    let [value, gradient] = worst(errors);
    eprintln!("kernels are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn all_is_finite_for_logits_of_any_size_and_where_every_voxel_is_ignored() {
    for case in Case::all() {
        let (program, results) = case.program();
        let [logits, labels] = case.inputs();
        for scale in [0.0, 10.0, 1e3, 1e30] {
            let large = Array::from_fn(logits.shape.clone(), |i| logits.data[i] * scale);
            for labels in [labels.clone(), Array::from_fn(labels.shape.clone(), |_| 255.0)] {
                let (value, slopes) = run(&program, results, &[large.clone(), labels]);
                assert!(value.is_finite(), "{} on {} times {scale}: {value}", case.name, case.mask);
                assert!(slopes.iter().all(|x| x.is_finite()), "{} on {} times {scale}", case.name, case.mask);
            }
        }
    }
}
