//! Residual networks against PyTorch: losses over twenty steps, gradients of the first step, and all names and shapes of their state
//! dicts. `oracles/residual_training.py` made the numbers.
//!
//! The bounds are the same as in `pytorch.rs`. ReLUs have kinks that rounding may cross: gradients are then held to three times PyTorch's own
//! distance from f64.

use std::collections::BTreeMap;

use crate::training::{Record, gradients_agree, losses_agree, oracles};
use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{ForwardMode, Network, names};

const RESENC: [&str; 2] = ["residual_resenc", "residual_resenc_2d"];
const SEGRESNET: [&str; 4] = [
    "residual_segresnet_nontrainable",
    "residual_segresnet_deconv",
    "residual_segresnet_pixelshuffle",
    "residual_segresnet_2d",
];
const SEGRESNET_DS: [&str; 4] = [
    "residual_segresnetds",
    "residual_segresnetds_anisotropic",
    "residual_segresnetds_2d",
    "residual_segresnetds_pixelshuffle",
];

fn trains(names: &[&str]) {
    for name in names {
        losses_agree(&oracles(), name);
        gradients_agree(&oracles(), name);
    }
}

#[test]
fn residual_encoders_train_as_in_pytorch() {
    trains(&RESENC);
}

#[test]
fn segresnet_trains_as_in_pytorch_in_all_upsample_modes() {
    trains(&SEGRESNET);
}

#[test]
fn segresnet_ds_trains_as_in_pytorch() {
    trains(&SEGRESNET_DS);
}

/// All that a weight file of a network holds if it is to be loaded strictly.
fn state(net: &Network) -> BTreeMap<String, Vec<usize>> {
    let mut program = Program::new("parameters");
    let image = Shape::volume(1, net.in_channels(), net.extents().next_larger([1; 3]));
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
    let own = program.with_role(Role::Parameter).map(|id| program.tensor(id));
    let own = own.map(|info| (info.name.clone(), net.stored_shape(&info.name, &info.shape).0));
    let idle = net.idle_biases().into_iter().map(|(name, count)| (name, vec![count]));
    let mut state: BTreeMap<String, Vec<usize>> = own.chain(idle).collect();
    let others: Vec<(String, Vec<usize>)> = state
        .iter()
        .flat_map(|(name, shape)| net.other_names(name).into_iter().map(|other| (other, shape.clone())))
        .collect();
    state.extend(others);
    state
}

#[test]
fn names_and_shapes_are_those_of_the_originals_with_all_that_is_there_twice() {
    let all = RESENC.iter().chain(&SEGRESNET).chain(&SEGRESNET_DS).chain(&["residual_states"]);
    for name in all {
        for record in Record::all(&oracles(), name) {
            assert!(!record.state.is_empty(), "{name}");
            let own = state(&record.net);
            let lost: Vec<_> = record.state.iter().filter(|(name, _)| !own.contains_key(*name)).collect();
            let new: Vec<_> = own.iter().filter(|(name, _)| !record.state.contains_key(*name)).collect();
            assert!(lost.is_empty() && new.is_empty(), "{name}: without {lost:?}, but with {new:?}");
            assert_eq!(own, record.state, "{name}");
            let schemes = record.net.naming_schemes();
            for other in own.keys().flat_map(|name| record.net.other_names(name)) {
                assert!(schemes[0].is_duplicate(&other), "{other} is a duplicate");
            }
        }
    }
}
