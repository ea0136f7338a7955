//! Convolutions in groups against PyTorch in f64, forward and both gradients. `oracles/grouped_convolutions.py` made the
//! numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use conformance::{Backend, Case, run, values};
use plimsoll_cpu::{CpuEngine, CpuLayout, CpuOptions};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad, Load};
use plimsoll_graph::{DType, Kind, Program, Shape, Side, Window, interpret};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Engine, Options, Plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    inputs: usize,
    outputs: usize,
    groups: usize,
    extent: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    y: Vec<f64>,
    dx: Vec<f64>,
    dw: Vec<f64>,
}

impl Reference {
    fn all() -> Vec<Reference> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/grouped_convolutions.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn case(&self) -> Case {
        use Side::Features;
        let Reference { inputs, outputs, groups, extent, kernel, stride, padding, .. } = *self;
        let window = Window { kernel, stride, padding };
        let [d, h, w] = kernel;
        let mut program = Program::new("groups", DType::F32);
        let x = program.input("x", Shape::volume(2, inputs, extent), Kind::Features);
        let kind = Kind::Weights { sources: vec![inputs], from: Features, to: Features };
        let weights = program.input("w", Shape(vec![outputs, inputs / groups, d, h, w]), kind);
        let output = window.output(extent).unwrap();
        let dy = program.input("dy", Shape::volume(2, outputs, output), Kind::Features);
        let conv = Conv::new(window, 1, false, Features).grouped(groups);
        let y = program.push_one(conv, &[x, weights]).unwrap();
        let (loads, result_load) = (vec![Load::Plain], Load::Plain);
        let grad = ConvWeightGrad { window, groups, loads, result_load, from: Features, to: Features };
        let dw = program.push_one(grad, &[x, dy]).unwrap();
        let back = ConvTranspose {
            window,
            groups,
            load: Load::Plain,
            first_channel: 0,
            channels: inputs,
            output: extent,
            to: Features,
            bias: false,
            accumulate: false,
        };
        let dx = program.push_one(back, &[dy, weights]).unwrap();
        for (id, name) in [(y, "y"), (dx, "dx"), (dw, "dw")] {
            program.mark_output(id, name);
        }
        Case { name: format!("{inputs}→{outputs} in {groups} groups"), program, classes: 0 }
    }

    fn expected(&self) -> [(&'static str, &[f64]); 3] {
        [("y", &self.y), ("dx", &self.dx), ("dw", &self.dw)]
    }
}

fn assert_close(case: &Case, name: &str, expected: &[f64], found: &[f64], tolerance: f64) {
    assert_eq!(expected.len(), found.len(), "{}: {name}", case.name);
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        let off = (expected - found).abs();
        assert!(off <= tolerance, "{}: {name}[{i}] is {found}, not {expected}", case.name);
    }
}

#[test]
fn definitions_agree_with_pytorch() {
    for reference in Reference::all() {
        let case = reference.case();
        let found = interpret(&case.program, &values(&case)).unwrap();
        for (name, expected) in reference.expected() {
            let id = case.program.find(name).unwrap();
            assert_close(&case, name, expected, &found[id.index()].data, 1e-8);
        }
    }
}

#[test]
fn kernels_agree_with_pytorch() {
    let engine = |plan: Plan| -> Box<dyn Engine> {
        let bytes = Bytes::of(plan.arena_bytes.next_multiple_of(4096));
        let reservation = Budget::new(Bytes::gib(1)).reserve("arena", bytes).unwrap();
        Box::new(CpuEngine::new(plan, reservation, CpuOptions::new(2)).unwrap())
    };
    let backend = Backend { layout: &CpuLayout::new(2), engine: &engine };
    for reference in Reference::all() {
        let case = reference.case();
        let found = run(&backend, &case, Options::default());
        for (name, expected) in reference.expected() {
            let found: Vec<f64> = found[name].iter().map(|x| f64::from(*x)).collect();
            assert_close(&case, name, expected, &found, 1e-5);
        }
    }
}

#[test]
fn a_program_that_says_nothing_of_groups_has_one() {
    let mut written = serde_json::to_value(Conv::new(Window::point(), 1, true, Side::Features)).unwrap();
    assert_eq!(written.as_object_mut().unwrap().remove("groups"), Some(1.into()));
    assert_eq!(serde_json::from_value::<Conv>(written).unwrap().groups, 1);
}
