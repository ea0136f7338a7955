//! The loss of regions and its gradient against nnU-Net's `DC_and_BCE_loss` in f64: nested and overlapping regions, with and without a
//! label that is ignored, by sample and over the batch. `oracles/region_losses.py` made the numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use conformance::emulator::{Blocks, backend};
use conformance::{engine_for, noise, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::Regions;
use plimsoll_graph::{Array, Kind, Program, Shape, TensorId, differentiate, interpret};
use plimsoll_nn::Objective;
use plimsoll_plan::{Backend, Options};
use serde::Deserialize;

const BATCH: usize = 2;
const EXTENT: [usize; 3] = [3, 4, 3];
const LABELS: usize = 5;
const IGNORED: u8 = 4;

#[derive(Deserialize)]
struct Case {
    mask: String,
    regions: Vec<Vec<u8>>,
    scale: f64,
    batch: bool,
    ignore: Option<u8>,
    value: f64,
    gradient: Vec<f64>,
}

impl Case {
    fn all() -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/region_losses.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn logits(&self) -> Shape {
        Shape::volume(BATCH, self.regions.len(), EXTENT)
    }

    /// Logits and labels, by the same formulas as in the script.
    fn inputs(&self) -> [Array; 2] {
        let logits = |i: usize| (noise(1, i) * self.scale * 128.0).round() / 128.0;
        let labels = |i: usize| match self.mask.as_str() {
            "random" => ((noise(2, i) + 1.0) / 2.0 * LABELS as f64).floor(),
            "one_voxel" => f64::from(3 * u8::from(i == 4)),
            "full" => 3.0,
            "ignored" => f64::from(IGNORED),
            _ => 0.0,
        };
        let of_labels = Shape::volume(BATCH, 1, EXTENT);
        [Array::from_fn(self.logits(), logits), Array::from_fn(of_labels, labels)]
    }

    /// The program that training has of one head, its loss and the gradient.
    fn program(&self) -> (Program, [TensorId; 2]) {
        let mut program = Program::new("loss");
        // A parameter, so that there is a gradient.
        let logits = program.parameter("logits", self.logits(), Kind::Volume);
        let labels = program.input("labels", Shape::volume(BATCH, 1, EXTENT), Kind::Labels);
        let mut objective = Objective::for_regions(self.regions.len(), self.batch, self.ignore);
        objective.regions = Some(Regions { labels: LABELS, sets: self.regions.clone() });
        let (loss, targets) = objective.write(&mut program, logits, labels, [1.0; 3]).unwrap();
        assert!(targets.is_empty() && objective.fault(self.regions.len()).is_none());
        let gradient = differentiate(&mut program, loss, 1.0, &[logits]).unwrap()[0].unwrap();
        program.mark_output(loss, "loss");
        program.mark_output(gradient, "gradient");
        (program, [loss, gradient])
    }

    /// Returns the error of a value, and that of a gradient relative to its largest element.
    fn errors(&self, value: f64, gradient: &[f64]) -> [f64; 2] {
        let scale = self.gradient.iter().fold(1e-3, |scale: f64, g| scale.max(g.abs()));
        let off = self.gradient.iter().zip(gradient).map(|(expected, found)| (expected - found).abs());
        [(value - self.value).abs() / self.value.abs().max(1e-2), off.fold(0.0, f64::max) / scale]
    }
}

/// The worst errors of all cases, which `run` computes.
fn worst(run: impl Fn(&Program, [TensorId; 2], &[Array; 2]) -> (f64, Vec<f64>)) -> [f64; 2] {
    let all = Case::all();
    assert_eq!(all.len(), 80);
    all.iter().fold([0.0; 2], |worst: [f64; 2], case| {
        let (program, results) = case.program();
        let (value, gradient) = run(&program, results, &case.inputs());
        let errors = case.errors(value, &gradient);
        [worst[0].max(errors[0]), worst[1].max(errors[1])]
    })
}

#[test]
fn the_definition_is_nnunets_loss_of_regions() {
    let [value, gradient] = worst(|program, [loss, gradient], [logits, labels]| {
        let values =
            HashMap::from([("logits".to_string(), logits.clone()), ("labels".to_string(), labels.clone())]);
        let run = interpret(program, &values).unwrap();
        (run[loss.index()].data[0], run[gradient.index()].data.clone())
    });
    eprintln!("the definition is off by {value:.1e}, its gradient by {gradient:.1e}");
    assert!(value <= 1e-8 && gradient <= 1e-8, "{value:.1e}, {gradient:.1e}");
}

/// The value and the gradient that the kernels of a backend compute.
fn on(
    backend: &dyn Backend,
    program: &Program,
    [loss, gradient]: [TensorId; 2],
    [logits, labels]: &[Array; 2],
) -> (f64, Vec<f64>) {
    let mut engine = engine_for(backend, std::slice::from_ref(program), Options::default()).unwrap();
    let id = engine.plan().find("loss").unwrap();
    for (name, array) in [("logits", logits), ("labels", labels)] {
        write(&mut *engine, id, program.find(name).unwrap(), &array.data);
    }
    engine.run(id).unwrap();
    (read(&*engine, id, loss)[0], read(&*engine, id, gradient))
}

#[test]
fn kernels_agree_with_nnunets_loss_of_regions() {
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let [value, gradient] = worst(|program, results, inputs| on(&backend, program, results, inputs));
    eprintln!("kernels are off by {value:.1e}, their gradients by {gradient:.1e}");
    assert!(value <= 2e-6 && gradient <= 2e-7, "{value:.1e}, {gradient:.1e}");
}

#[test]
fn kernels_for_gpus_agree_with_nnunets_loss_of_regions_with_the_same_bits_whatever_the_order_of_blocks() {
    let bits = |(value, gradient): &(f64, Vec<f64>)| -> Vec<u64> {
        gradient.iter().chain([value]).map(|x| x.to_bits()).collect()
    };
    let (ascending, shuffled) = (backend(Blocks::Ascending), backend(Blocks::Shuffled(11)));
    let [value, gradient] = worst(|program, results, inputs| {
        let found = on(&ascending, program, results, inputs);
        let other = on(&shuffled, program, results, inputs);
        assert!(bits(&found) == bits(&other), "the order of blocks changes bits");
        found
    });
    eprintln!("kernels for GPUs are off by {value:.1e}, their gradients by {gradient:.1e}");
    assert!(value <= 2e-6 && gradient <= 5e-7, "{value:.1e}, {gradient:.1e}");
}
