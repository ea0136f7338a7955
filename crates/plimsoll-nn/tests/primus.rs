//! nnU-Net's Primus: its number of parameters, the names and shapes of its state dict, its logits, and how it trains.
//! `oracles/primus_training.py` made the numbers.
//!
//! The bounds are the same as in `pytorch.rs`.

use std::collections::BTreeMap;

use crate::state_dict::{Parameters, forward_pass, parameters_agree, stored_shapes};
use crate::training::{Record, definitions_agree, gradients_agree, logits_agree, losses_agree, oracles};
use plimsoll_graph::{Op, Program};
use plimsoll_nn::{Architecture, Design, Network, NetworkName, NetworkSettings, NetworkSize, Primus};
use serde::Deserialize;

const ALL: [&str; 3] = ["primus_v1", "primus_v2", "primus_v3"];

/// A size of nnU-Net's trainers, with tokens of patches of 64³.
#[derive(Deserialize)]
struct Size {
    version: usize,
    size: NetworkSize,
    classes: usize,
    /// Numbers of parameters, and of those that a normalisation cancels.
    parameters: usize,
    cancelled: usize,
    /// Channels between the transposed convolutions.
    decoder: [usize; 2],
    hidden_size: usize,
    /// Channels of the hidden layer of a block.
    mlp: usize,
}

#[test]
fn all_sizes_of_all_versions_have_as_many_parameters_as_nnunets() {
    let text = std::fs::read_to_string(oracles().join("primus_sizes.json")).unwrap();
    let sizes: Vec<Size> = serde_json::from_str(&text).unwrap();
    assert_eq!(sizes.len(), 16);
    for Size { version, size, classes, parameters, cancelled, decoder, hidden_size, mlp } in sizes {
        let net = Primus::new(1, classes, size, version, [64; 3]);
        let expected = Parameters { all: parameters, idle: cancelled };
        parameters_agree(&net, &expected, &format!("version {version}, {size:?}, {classes}"));
        let program = forward_pass(&net, true);
        let shape = |name: &str| program.shape(program.find(name).unwrap()).0.clone();
        for (stage, features) in decoder.into_iter().enumerate() {
            assert_eq!(shape(&format!("up_projection.decode.{stage}.0.weight"))[1], features);
        }
        assert_eq!(shape("eva.blocks.11.mlp.fc2.weight")[..2], [hidden_size, mlp]);
    }
}

/// nnU-Net's network loads the file by `load_state_dict`: all names but second ones of the same tensors, no others, and these shapes.
#[test]
fn names_and_shapes_in_files_are_those_of_nnunets_state_dict() {
    for name in ALL {
        let record = Record::all(&oracles(), name).remove(0);
        let net = &record.net;
        let mut stored = stored_shapes(net.as_architecture());
        stored.extend(net.constants().into_iter().map(|constant| {
            let shape = constant.shape().0;
            (constant.name, shape)
        }));
        let listed = stored.iter().flat_map(|(name, shape)| {
            net.other_names(name).into_iter().map(move |other| (other, shape.clone()))
        });
        let listed: BTreeMap<String, Vec<usize>> = listed.collect();
        assert_eq!(listed.is_empty(), name == ALL[0]);
        stored.extend(listed);
        assert_eq!(stored, record.state, "{name}");
    }
}

#[test]
fn its_logits_are_nnunets() {
    ALL.iter().for_each(|name| logits_agree(&oracles(), name));
}

#[test]
fn the_first_version_trains_as_in_pytorch() {
    definitions_agree(&oracles(), ALL[0]);
    losses_agree(&oracles(), ALL[0]);
    gradients_agree(&oracles(), ALL[0]);
}

#[test]
fn the_second_version_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[1]);
    gradients_agree(&oracles(), ALL[1]);
}

#[test]
fn the_third_version_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[2]);
    gradients_agree(&oracles(), ALL[2]);
}

/// `numpy.linspace(0, 0.2, 12)` of the blocks, each of two branches; none for a block that is never skipped, and none in a prediction.
#[test]
fn branches_are_dropped_with_the_probabilities_of_nnunets_trainers() {
    let net = Primus::new(1, 2, NetworkSize::S, 1, [16; 3]);
    let dropped = |program: &Program| -> Vec<f32> {
        let of = |op: &Op| if let Op::SampleDrop(drop) = op { Some(drop.p) } else { None };
        program.nodes.iter().filter_map(|node| of(&node.op)).collect()
    };
    let found = dropped(&forward_pass(&net, true));
    assert_eq!(found.len(), 22);
    for (at, p) in found.iter().enumerate() {
        let expected = 0.2 * (at / 2 + 1) as f32 / 11.0;
        assert!((p - expected).abs() < 1e-7, "{p} is not {expected}");
    }
    assert!(dropped(&forward_pass(&net, false)).is_empty());
}

#[test]
fn initial_values_are_drawn_as_by_nnunet() {
    let net = Primus::new(1, 3, NetworkSize::S, 3, [16; 3]);
    let program = forward_pass(&net, true);
    let values = |name: &str| net.initial_values(program.tensor(program.find(name).unwrap()), 7);
    let deviation = |values: &[f32]| (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt();
    let is_near = |found: f32, expected: f32| (found / expected - 1.0).abs() < 0.05;
    assert!(is_near(deviation(&values("eva.pos_embed")), 0.02));
    assert!(is_near(deviation(&values("eva.blocks.3.attn.q_proj.weight")), 0.02));
    assert!(is_near(deviation(&values("eva.blocks.3.mlp.fc2.weight")), 0.02 / 8.0f32.sqrt()));
    assert!(is_near(deviation(&values("eva.blocks.0.attn.proj.weight")), 0.02 / 2.0f32.sqrt()));
    // `kaiming_normal_` counts the second axis of a transposed convolution, 3 classes, times 8 voxels.
    assert!(is_near(deviation(&values("up_projection.decode.2.weight")), (2.0f32 / 24.0).sqrt()));
    assert!(values("eva.blocks.5.gamma_2").iter().all(|x| *x == 0.1));
    assert_eq!(values("down_projection.scale_proj_to_tokens.2"), [1e-5]);
    assert!(values("eva.blocks.5.mlp.norm.weight").iter().all(|x| *x == 1.0));
    assert!(values("eva.blocks.5.mlp.fc1_g.bias").iter().all(|x| *x == 0.0));
}

fn design(patch: [usize; 3]) -> Design {
    Design {
        in_channels: 1,
        classes: 3,
        patch,
        strides: vec![[1; 3]],
        kernels: vec![[3; 3]],
        features: vec![32],
    }
}

#[test]
fn settings_make_a_size_and_version_for_one_size_of_patches() {
    let primus = NetworkSettings { net: Some(NetworkName::Primus), ..NetworkSettings::default() };
    let sized = NetworkSettings { size: Some(NetworkSize::M), version: Some(3), ..primus.clone() };
    let network = Network::design(&design([40, 64, 33]), &sized).unwrap();
    assert_eq!(network, Network::from(Primus::new(1, 3, NetworkSize::M, 3, [40, 64, 40])));
    let kept = network.settings().unwrap();
    assert_eq!(Network::design(&design([40, 64, 33]), &kept).unwrap(), network);
    let deeper = NetworkSettings { depths: Some(vec![2]), path_dropout: Some(0.0), ..primus.clone() };
    let network = Network::design(&design([16; 3]), &deeper).unwrap();
    let expected =
        Primus { depths: vec![2], path_dropout: 0.0, ..Primus::new(1, 3, NetworkSize::S, 1, [16; 3]) };
    assert_eq!(network, Network::from(expected));
}

#[test]
fn settings_that_it_cannot_have_are_refused_by_name() {
    let primus = NetworkSettings { net: Some(NetworkName::Primus), ..NetworkSettings::default() };
    let refused = |patch: [usize; 3], settings: NetworkSettings| {
        Network::design(&design(patch), &settings).unwrap_err().to_string()
    };
    let patch = [32; 3];
    let heads = refused(patch, NetworkSettings { num_heads: Some(vec![5]), ..primus.clone() });
    assert!(heads.contains("`num_heads` is 5") && heads.contains("396 channels"), "{heads}");
    let narrow = refused(patch, NetworkSettings { num_heads: Some(vec![36]), ..primus.clone() });
    assert!(narrow.contains("`num_heads` is 36") && narrow.contains("multiples of six"), "{narrow}");
    let several = refused(patch, NetworkSettings { depths: Some(vec![2, 2]), ..primus.clone() });
    assert!(several.contains("`depths`") && several.contains("one number"), "{several}");
    let version = refused(patch, NetworkSettings { version: Some(4), ..primus.clone() });
    assert!(version.contains("`version` is 4"), "{version}");
    let slices = refused([1, 64, 64], primus.clone());
    assert!(slices.contains("slices"), "{slices}");
    let large = refused([272; 3], primus.clone());
    assert!(large.contains("39304 tokens") && large.contains("32768"), "{large}");
    let grn = refused(patch, NetworkSettings { grn: Some(true), ..primus });
    assert!(grn.contains("grn") && grn.contains("primus"), "{grn}");
}

#[test]
fn it_takes_the_patches_that_it_has_positions_for() {
    let net = Primus::new(1, 2, NetworkSize::S, 1, [32, 48, 16]);
    assert!(net.check_patch([32, 48, 16]).is_ok());
    let other = net.check_patch([64, 48, 16]).unwrap_err().to_string();
    assert!(other.contains("[32, 48, 16]") && other.contains("positions"), "{other}");
    let odd = net.check_patch([32, 44, 16]).unwrap_err().to_string();
    assert!(odd.contains("a multiple of [8, 8, 8]"), "{odd}");
    assert!(net.extents().smaller([32, 48, 16]).is_empty());
    // Maps of one voxel cannot be normalised.
    assert!(Primus::new(1, 2, NetworkSize::S, 1, [8; 3]).check().is_ok());
    assert!(Primus::new(1, 2, NetworkSize::S, 2, [8; 3]).check().is_err());
}
