//! Oracles of ONNX graphs: the graph that they read, and the logits of ONNX Runtime for two samples of a window.

use std::collections::HashMap;

use plimsoll_graph::{Array, Program, interpret};
use plimsoll_memory::Fnv1a;
use plimsoll_models::onnx::proto::ModelProto;
use plimsoll_nn::names;
use serde_json::Value;

/// The checksum of nodes and tensors, like `checksum` of the scripts in `oracles/`.
pub fn checksum(model: &ModelProto) -> String {
    let (mut sum, graph) = (Fnv1a::default(), model.graph.as_ref().unwrap());
    for node in &graph.node {
        let text = format!("{}({})->{};", node.op_type, node.input.join(","), node.output.join(","));
        sum.update(text.as_bytes());
    }
    for tensor in &graph.initializer {
        sum.update(format!("{}{:?}", tensor.name, tensor.dims).as_bytes());
        sum.update(&tensor.raw_data);
    }
    format!("{:016x}", sum.finish())
}

/// The largest logit by the definitions of all ops in f64, and the largest difference of ONNX Runtime's logits, of which every `step`-th
/// is known. The program has two samples and runs on the image of the scripts.
pub fn largest_and_off(
    program: &Program,
    mut parameters: HashMap<String, Array>,
    of_runtime: &Value,
    step: usize,
) -> (f64, f64) {
    let shape = program.shape(program.find(names::IMAGE).unwrap()).clone();
    let wave = |i: usize| f64::from((0.37 * i as f64 + 0.11 * (i % 7) as f64).sin() as f32);
    parameters.insert(names::IMAGE.into(), Array::from_fn(shape, wave));
    let logits = program.find(names::LOGITS).unwrap();
    let found = interpret(program, &parameters).unwrap().swap_remove(logits.index());
    let of_runtime = of_runtime.as_array().unwrap();
    assert_eq!(of_runtime.len(), found.data.len().div_ceil(step));
    let largest = found.data.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let pairs = found.data.iter().step_by(step).zip(of_runtime);
    let off = pairs.map(|(found, expected)| (found - expected.as_f64().unwrap()).abs()).fold(0.0, f64::max);
    (largest, off)
}
