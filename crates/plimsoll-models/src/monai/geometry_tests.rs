//! Networks by the arguments of MONAI's constructors over the range of their geometry: logits agree with `oracles/network_geometry.py`, in
//! f64.

use std::collections::HashMap;
use std::path::Path;

use conformance::noise;
use plimsoll_graph::{Array, DType, Kind, Program, Shape, TensorInfo, interpret};
use plimsoll_nn::{ForwardMode, MonaiUNet, Network, names};
use serde::Deserialize;
use serde_json::Value;

use super::network::{NetworkArguments, UnetActivation};

#[derive(Deserialize)]
struct Record {
    /// Arguments of MONAI's constructor; none of a network that no description makes.
    monai: Option<Value>,
    patch: [usize; 3],
    /// Products of the logits with `noise(7…9)`; `None` if MONAI refuses the arguments or the patch.
    projections: Option<[f64; 3]>,
}

fn seed(name: &str) -> usize {
    name.bytes().enumerate().map(|(i, byte)| (i + 1) * usize::from(byte)).sum()
}

/// The values that `fill` of the script gives a parameter.
fn values(net: &Network, parameter: &TensorInfo) -> Array {
    let schemes = net.naming_schemes();
    let scheme = if matches!(net, Network::MonaiUNet(_)) { schemes.last() } else { schemes.first() };
    let name = scheme.unwrap().weight_name(&parameter.name);
    let shape = &parameter.shape;
    // The axes that a parameter has in files, in their order.
    let stored = net.stored_shape(&parameter.name, shape);
    let is_exchanged = net.is_exchanged(&parameter.name);
    let fan = stored.count() / stored.dim(0);
    // MONAI's UNet has one tensor of weights over a stage's map and the map from below, the rows of the first before the rows of the second.
    let is_below = parameter.name.contains(".below.");
    let stage = parameter.name.matches("submodule").count();
    let first = if is_below { net.features()[stage] * fan } else { 0 };
    let (rows, columns) = (shape.dim(0), shape.count() / shape.dim(0));
    Array::from_fn(shape.clone(), |i| {
        let i = if is_exchanged { i % columns * rows + i / columns } else { i };
        let x = noise(seed(&name), first + i);
        let has_axes = stored.0.len() > 1 || parameter.kind == Kind::Weights;
        // A learned slope.
        if name.ends_with(".A.weight") {
            return f64::from((0.25 + 0.2 * x) as f32);
        }
        match (parameter.kind, name.ends_with(".weight") || name.ends_with(".running_var")) {
            (Kind::Table, _) => 0.5 * x,
            _ if has_axes => (6.0 / fan as f64).sqrt() * x,
            (_, true) => 1.0 + 0.2 * x,
            (_, false) => 0.1 * x,
        }
    })
}

/// The slopes of the arguments, or of the script.
fn slopes(net: &MonaiUNet, activation: UnetActivation) -> Vec<f32> {
    let learned = |name: String| (0.25 + 0.2 * noise(seed(&format!("{name}.weight")), 0)) as f32;
    match activation {
        UnetActivation::Leaky(slope) => vec![slope; net.activations().len()],
        UnetActivation::Learned => net.activations().into_iter().map(learned).collect(),
    }
}

/// The projections of a network's logits, or why there are none.
fn projections(record: &Record, arguments: &Value) -> Result<[f64; 3], String> {
    let arguments = NetworkArguments::deserialize(arguments).map_err(|fault| fault.to_string())?;
    let built = arguments.network(Some("1.5.0"))?;
    let mut net = built.net;
    if let (Network::MonaiUNet(unet), Some(activation)) = (&mut net, built.activation) {
        unet.slopes = slopes(unet, activation);
    }
    net.check().map_err(|fault| fault.to_string())?;
    net.check_patch(record.patch).map_err(|fault| fault.to_string())?;
    let mut program = Program::new("forward");
    let shape = Shape::volume(1, net.in_channels(), record.patch);
    let image = program.input(names::IMAGE, shape.clone(), Kind::Volume);
    let mode = ForwardMode { training: false, precision: DType::F32 };
    let logits = net.forward(&mut program, image, mode).map_err(|fault| fault.to_string())?[0];
    let parameters = program.ids().map(|id| program.tensor(id)).filter(|info| info.role.is_persistent());
    let mut held: HashMap<String, Array> =
        parameters.map(|info| (info.name.clone(), values(&net, info))).collect();
    held.insert(names::IMAGE.into(), Array::from_fn(shape, |i| noise(1, i)));
    let results = interpret(&program, &held).map_err(|fault| fault.to_string())?;
    let logits = &results[logits.index()].data;
    Ok([7, 8, 9].map(|seed| logits.iter().enumerate().map(|(i, logit)| logit * noise(seed, i)).sum()))
}

/// Settings that MONAI computes and this program refuses, by the name that the refusal must have.
fn is_refused_here(arguments: &Value) -> Option<&'static str> {
    let each = |list: &str| arguments[list].as_array().cloned().unwrap_or_default();
    let longest = |value: &Value| match value.as_array() {
        Some(axes) => axes.iter().filter_map(Value::as_u64).max(),
        None => value.as_u64(),
    };
    match arguments["name"].as_str() {
        Some("DynUNet") if longest(&each("strides")[0]) > Some(1) => Some("`strides`"),
        // A transposed convolution whose kernel is shorter than its stride leaves voxels that no tap reaches.
        Some("MedNeXt") if arguments["use_residual_connection"] == false => Some("use_residual_connection"),
        Some("UNETR") if arguments["res_block"] == false => Some("res_block"),
        Some("AttentionUnet") if arguments["up_kernel_size"].as_u64() == Some(5) => Some("up_kernel_size"),
        Some("UNet") if arguments["up_kernel_size"].as_u64() == Some(1) => Some("`strides`"),
        _ => None,
    }
}

#[test]
fn logits_are_those_of_monai_over_the_range_of_its_settings() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/network_geometry.json");
    let records: Vec<Record> =
        serde_json::from_str(&plimsoll_disk::read_to_string(&file, 1 << 20).unwrap()).unwrap();
    let (mut computed, mut refused, mut faults) = (0, 0, Vec::new());
    for record in &records {
        let Some(arguments) = &record.monai else { continue };
        match (projections(record, arguments), record.projections, is_refused_here(arguments)) {
            (Ok(found), Some(expected), None) => {
                computed += 1;
                let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
                if found.iter().zip(expected).any(|(found, expected)| (found - expected).abs() > 1e-5 * norm)
                {
                    faults.push(format!("{found:?} instead of {expected:?}: {arguments}"));
                }
            }
            (Err(_), None, None) => refused += 1,
            (Err(fault), Some(_), Some(setting)) if fault.contains(setting) => refused += 1,
            (found, expected, _) => faults.push(format!("{found:?} instead of {expected:?}: {arguments}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(computed > 50 && refused > 20, "{computed} computed, {refused} refused");
}
