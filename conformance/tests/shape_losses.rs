//! Losses of distances and boundaries, and their gradients, against MONAI, SciPy and PyTorch in f64: on targets at random, empty,
//! full, of one voxel and of a block in a corner, and on predictions at random, empty and full. `oracles/shape_losses.py`
//! made the numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use conformance::{engine_for, noise, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::{
    BoundaryL1, DistanceLoss, DistanceTerm, DownsampleLabels, MeanPool, PredictedDistance, Probabilities,
};
use plimsoll_graph::{Array, Kind, Program, Shape, TensorId, differentiate, interpret};
use plimsoll_morphology::{Distance, EdtOptions, edt, scratch_bytes};
use plimsoll_plan::Options;
use serde::Deserialize;

const BATCH: usize = 2;
const CLASSES: usize = 3;
const EXTENT: [usize; 3] = [4, 4, 4];
const SPACING: [f64; 3] = [2.5, 0.8, 1.0];

#[derive(Deserialize)]
struct Case {
    name: String,
    mask: String,
    logits: f64,
    favoured: Option<usize>,
    term: Option<DistanceTerm>,
    unit: String,
    ignore: Option<u8>,
    scale: usize,
    value: f64,
    gradient: Vec<f64>,
}

/// A program with its loss and the gradient of the logits.
struct Written {
    program: Program,
    loss: TensorId,
    gradient: TensorId,
}

impl Case {
    fn all() -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/shape_losses.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn extent(&self) -> [usize; 3] {
        EXTENT.map(|n| n / self.scale)
    }

    fn spacing(&self) -> [f64; 3] {
        if self.unit == "mm" { SPACING.map(|step| step * self.scale as f64) } else { [1.0; 3] }
    }

    /// Logits and labels, by the same formulas as in the script.
    fn inputs(&self) -> [Array; 2] {
        let voxels: usize = EXTENT.iter().product();
        let logits = |i: usize| {
            let favoured = self.favoured == Some(i / voxels % CLASSES);
            (noise(1, i) * self.logits * 128.0).round() / 128.0 + if favoured { 8.0 } else { 0.0 }
        };
        let labels = |i: usize| match self.mask.as_str() {
            "random" => ((noise(2, i) + 1.0) / 2.0 * CLASSES as f64).floor(),
            "full" => 1.0,
            "one_voxel" => f64::from(u8::from(i == voxels / 2 + 3)),
            "corner" => {
                let (z, y, x) = (i % voxels / 16, i / 4 % 4, i % 4);
                f64::from(u8::from(z < 2 && y < 3 && x > 2))
            }
            _ => 0.0,
        };
        [
            Array::from_fn(Shape::volume(BATCH, CLASSES, EXTENT), logits),
            Array::from_fn(Shape::volume(BATCH, 1, EXTENT), labels),
        ]
    }

    /// Distances to the target, as a loader makes them.
    fn distances(&self, labels: &Array) -> Array {
        let extent = self.extent();
        let count = extent.iter().product();
        let options = EdtOptions { distance: Distance::Signed, squared: false };
        let mut scratch = vec![0; scratch_bytes(extent, &options, 1)];
        let mut data = Vec::new();
        for sample in 0..BATCH {
            let label = |at: usize| {
                let [d, h, w] = [at / extent[1] / extent[2], at / extent[2] % extent[1], at % extent[2]];
                let source = |axis: usize, at: usize| {
                    DownsampleLabels::source(at, extent[axis], EXTENT[axis]) as isize
                };
                labels.voxel(sample, 0, [source(0, d), source(1, h), source(2, w)])
            };
            for class in 1..CLASSES {
                let counts = self.ignore != Some(class as u8);
                let mask: Vec<u8> =
                    (0..count).map(|at| u8::from(counts && label(at) == class as f64)).collect();
                let mut out = vec![0.0f32; count];
                edt(&mask[..], extent, self.spacing(), &options, &mut out, &mut scratch, 1).unwrap();
                data.extend(out.into_iter().map(f64::from));
            }
        }
        Array { shape: Shape::volume(BATCH, CLASSES - 1, extent), data }
    }

    fn program(&self) -> Written {
        let mut p = Program::new("loss");
        let logits = p.input("logits", Shape::volume(BATCH, CLASSES, EXTENT), Kind::Volume);
        let labels = p.input("labels", Shape::volume(BATCH, 1, EXTENT), Kind::Labels);
        let output = self.extent();
        let mut operands = vec![p.push_one(Probabilities, &[logits]).unwrap(), labels];
        if self.scale > 1 {
            operands[0] = p.push_one(MeanPool { output }, &operands[..1]).unwrap();
            operands[1] = p.push_one(DownsampleLabels { output }, &[labels]).unwrap();
        }
        let ignore = self.ignore;
        let target = p.input("distances", p.shape(operands[0]).clone(), Kind::Volume);
        let loss = match self.term {
            None => p.push(BoundaryL1 { ignore }, &operands).unwrap()[0],
            Some(term) => {
                operands.push(target);
                if term.uses_prediction() {
                    let (spacing, signed) = (self.spacing(), term.is_signed());
                    let op = PredictedDistance { spacing, signed, ignore };
                    operands.push(p.push_one(op, &operands[..2]).unwrap());
                }
                p.push(DistanceLoss { term, ignore }, &operands).unwrap()[0]
            }
        };
        let gradient = differentiate(&mut p, loss, 1.0, &[logits]).unwrap()[0].unwrap();
        p.mark_output(loss, "loss");
        p.mark_output(gradient, "gradient");
        Written { program: p, loss, gradient }
    }

    /// Checks a value, and a gradient relative to its largest element, against a tolerance; returns their errors.
    fn within(&self, tolerance: f64, value: f64, gradient: impl Iterator<Item = f64>) -> [f64; 2] {
        let scale = self.gradient.iter().fold(1e-4, |scale: f64, g| scale.max(g.abs()));
        let off = self.gradient.iter().zip(gradient).map(|(expected, found)| (expected - found).abs());
        let errors =
            [(value - self.value).abs() / self.value.abs().max(1e-2), off.fold(0.0, f64::max) / scale];
        let Case { name, mask, logits, favoured, .. } = self;
        assert!(
            errors.iter().all(|error| *error <= tolerance),
            "{name} on {mask}, logits to {logits}, {favoured:?} favoured: off by {:.1e}, the gradient by {:.1e}",
            errors[0],
            errors[1]
        );
        errors
    }
}

/// The loss and the gradient that the kernels make.
fn run(written: &Written, [logits, labels, distances]: [&Array; 3]) -> (f64, Vec<f64>) {
    let program = &written.program;
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let mut engine = engine_for(&backend, std::slice::from_ref(program), Options::default()).unwrap();
    let id = engine.plan().find("loss").unwrap();
    for (name, array) in [("logits", logits), ("labels", labels), ("distances", distances)] {
        write(&mut *engine, id, program.find(name).unwrap(), &array.data);
    }
    engine.run(id).unwrap();
    (read(&*engine, id, written.loss)[0], read(&*engine, id, written.gradient))
}

fn worst(errors: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    errors.fold([0.0; 2], |worst, errors| [worst[0].max(errors[0]), worst[1].max(errors[1])])
}

#[test]
fn definitions_are_those_of_monai_scipy_and_pytorch() {
    let errors = Case::all().into_iter().map(|case| {
        let written = case.program();
        let [logits, labels] = case.inputs();
        let distances = case.distances(&labels);
        let values = [("logits", logits), ("labels", labels), ("distances", distances)];
        let values: HashMap<String, Array> = values.map(|(name, value)| (name.to_string(), value)).into();
        let run = interpret(&written.program, &values).unwrap();
        let gradient = run[written.gradient.index()].data.iter().copied();
        // Distances to the target are f32.
        case.within(1e-6, run[written.loss.index()].data[0], gradient)
    });
    let [value, gradient] = worst(errors);
    eprintln!("definitions are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn kernels_agree_with_monai_scipy_and_pytorch() {
    let errors = Case::all().into_iter().map(|case| {
        let [logits, labels] = case.inputs();
        let distances = case.distances(&labels);
        let (value, slopes) = run(&case.program(), [&logits, &labels, &distances]);
        case.within(1e-5, value, slopes.into_iter())
    });
    let [value, gradient] = worst(errors);
    eprintln!("kernels are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn all_is_finite_for_logits_of_any_size_and_where_every_voxel_is_ignored() {
    for case in Case::all().into_iter().filter(|case| case.logits < 10.0) {
        let written = case.program();
        let [logits, labels] = case.inputs();
        for scale in [0.0, 1e3, 1e30] {
            let large = Array::from_fn(logits.shape.clone(), |i| logits.data[i] * scale);
            for labels in [labels.clone(), Array::from_fn(labels.shape.clone(), |_| 255.0)] {
                let distances = case.distances(&labels);
                let (value, slopes) = run(&written, [&large, &labels, &distances]);
                assert!(value.is_finite(), "{} on {} times {scale}: {value}", case.name, case.mask);
                assert!(slopes.iter().all(|x| x.is_finite()), "{} on {} times {scale}", case.name, case.mask);
            }
        }
    }
}
