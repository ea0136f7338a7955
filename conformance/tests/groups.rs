//! Convolutions in groups against PyTorch in f64, forward and both gradients. `oracles/grouped_convolutions.py` made the
//! numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use conformance::{Case, run, values};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{DType, Kind, Program, Shape, Window, interpret};
use plimsoll_plan::Options;
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
        let Reference { inputs, outputs, groups, extent, kernel, stride, padding, .. } = *self;
        let window = Window::new(kernel, stride, padding);
        let [d, h, w] = kernel;
        let mut program = Program::new("groups");
        let x = program.input("x", Shape::volume(2, inputs, extent), Kind::Volume);
        let weights = program.input("w", Shape(vec![outputs, inputs / groups, d, h, w]), Kind::Weights);
        let output = window.output(extent).unwrap();
        let dy = program.input("dy", Shape::volume(2, outputs, output), Kind::Volume);
        let conv = Conv::new(window, false, DType::F32).grouped(groups);
        let y = program.push_one(conv, &[x, weights]).unwrap();
        let grad = ConvWeightGrad { window, groups };
        let dw = program.push_one(grad, &[x, dy]).unwrap();
        let back = ConvTranspose {
            window,
            groups,
            first_channel: 0,
            channels: inputs,
            output: extent,
            dtype: DType::F32,
            bias: false,
        };
        let dx = program.push_one(back, &[dy, weights]).unwrap();
        for (id, name) in [(y, "y"), (dx, "dx"), (dw, "dw")] {
            program.mark_output(id, name);
        }
        Case::new(format!("{inputs}→{outputs} in {groups} groups"), program, 0)
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
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    for reference in Reference::all() {
        let case = reference.case();
        let found = run(&backend, &case, Options::default());
        for (name, expected) in reference.expected() {
            assert_close(&case, name, expected, &found[name], 1e-5);
        }
    }
}
