//! Networks over the range of their kernels, strides, blocks and spacings: logits equal the originals', in f64, and what these
//! refuse is refused. `oracles/network_geometry.py` made the numbers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use conformance::noise;
use plimsoll_graph::{Array, DType, Kind, Program, Shape, TensorInfo, Window, interpret};
use plimsoll_nn::{ConfigError, DynUNet, ForwardMode, Network, names};
use serde::Deserialize;

#[derive(Deserialize)]
struct Record {
    /// None of a network that is given by MONAI's arguments, which `plimsoll-run` compares.
    net: Option<Network>,
    patch: [usize; 3],
    /// Products of the logits with `noise(7…9)`; none where the original refuses the settings or the patch.
    projections: Option<[f64; 3]>,
}

/// The values that `fill` of the script gives a parameter.
fn values(parameter: &TensorInfo) -> Array {
    let name = &parameter.name;
    let seed = name.bytes().enumerate().map(|(i, byte)| (i + 1) * usize::from(byte)).sum();
    let shape = &parameter.shape;
    let scale = (6.0 / (shape.count() / shape.dim(0)) as f64).sqrt();
    Array::from_fn(shape.clone(), |i| match (parameter.kind, name.ends_with(".weight")) {
        (Kind::Weights, _) => scale * noise(seed, i),
        (_, true) => 1.0 + 0.2 * noise(seed, i),
        (_, false) => 0.1 * noise(seed, i),
    })
}

fn projections(net: &Network, patch: [usize; 3]) -> Result<[f64; 3], ConfigError> {
    net.check()?;
    net.check_patch(patch)?;
    let mut program = Program::new("forward");
    let shape = Shape::volume(1, net.in_channels(), patch);
    let image = program.input(names::IMAGE, shape.clone(), Kind::Volume);
    let logits = net.forward(&mut program, image, ForwardMode { training: false, precision: DType::F32 })?[0];
    let parameters = program.ids().map(|id| program.tensor(id)).filter(|info| info.role.is_persistent());
    let mut held: HashMap<String, Array> = parameters.map(|info| (info.name.clone(), values(info))).collect();
    held.insert(names::IMAGE.into(), Array::from_fn(shape, |i| noise(1, i)));
    let results = interpret(&program, &held)?;
    let logits = &results[logits.index()].data;
    Ok([7, 8, 9].map(|seed| logits.iter().enumerate().map(|(i, logit)| logit * noise(seed, i)).sum()))
}

#[test]
fn logits_are_those_of_the_originals_over_the_range_of_settings() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/network_geometry.json");
    let records: Vec<Record> = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let (mut computed, mut refused) = (0, 0);
    for (number, record) in records.iter().enumerate() {
        let Some(net) = &record.net else { continue };
        match (projections(net, record.patch), record.projections) {
            (Ok(found), Some(expected)) => {
                computed += 1;
                let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
                let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / norm).fold(0.0, f64::max);
                assert!(worst <= 1e-5, "{number}: {worst:.1e} off: {found:?}, {expected:?}: {net:?}");
            }
            (Err(_), None) => refused += 1,
            (found, expected) => panic!("{number}: {found:?}, but {expected:?}: {net:?}"),
        }
    }
    assert!(computed > 40 && refused > 20, "{computed} computed, {refused} refused");
}

#[test]
fn a_dynunet_whose_kernel_is_shorter_than_its_stride_by_more_than_one_is_refused_by_name() {
    let net = |kernel, stride| DynUNet::new(1, 2, &[4, 8], &[[3; 3], [kernel; 3]], &[[1; 3], [stride; 3]]);
    let said = Network::from(net(1, 3)).check().unwrap_err().to_string();
    assert!(said.contains("`kernels`") && said.contains("[1, 1, 1] with a stride of [3, 3, 3]"), "{said}");
    for (kernel, stride) in [(1, 2), (3, 4)] {
        Network::from(net(kernel, stride)).check().unwrap();
    }
}

#[test]
fn odd_kernels_divide_extents_by_their_stride() {
    for (kernel, stride) in (1..=9).step_by(2).flat_map(|kernel| (1..=9).map(move |stride| (kernel, stride)))
    {
        let Some(window) = Window::dividing([kernel; 3], [stride; 3]) else {
            assert!(kernel + 1 < stride, "{kernel} and {stride}");
            continue;
        };
        for quotient in 1..5 {
            let padded = quotient * stride + 2 * window.padding[0];
            let expected = (padded >= kernel).then_some([quotient; 3]);
            assert_eq!(window.output([quotient * stride; 3]), expected, "{window:?} of {quotient} strides");
        }
    }
}
