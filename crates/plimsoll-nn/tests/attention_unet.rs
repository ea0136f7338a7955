//! MONAI's AttentionUnet: the names and shapes of its state dict, and how it trains. `oracles/attention_training.py` made the numbers.
//!
//! The bounds are the same as in `pytorch.rs`.

use crate::state_dict::{Parameters, parameters_agree, stored_shapes};
use crate::training::{Record, gradients_agree, losses_agree, oracles};
use plimsoll_nn::{Architecture, AttentionUnet, Design, Network, NetworkName, NetworkSettings};
use serde::Deserialize;

const ALL: [&str; 3] = ["attention_three_stages", "attention_anisotropic", "attention_flat"];

/// Numbers of MONAI's parameters, and the number that a normalisation of each map by itself cancels.
#[derive(Deserialize)]
struct Size {
    parameters: usize,
    cancelled: usize,
}

#[test]
fn it_has_as_many_parameters_as_monais() {
    let text = std::fs::read_to_string(oracles().join("attention_sizes.json")).unwrap();
    let Size { parameters, cancelled } = serde_json::from_str(&text).unwrap();
    let net = AttentionUnet::new(1, 2, &[16, 32, 64, 128, 256]);
    parameters_agree(&net, &Parameters { all: parameters, idle: cancelled }, "the defaults");
}

/// MONAI's network loads the file by `load_state_dict` with `strict=True`: all names, no others, and these shapes. PyTorch reads a count of
/// batches from one number, too.
#[test]
fn names_and_shapes_in_files_are_those_of_monais_state_dict() {
    for name in ALL {
        let mut record = Record::all(&oracles(), name).remove(0);
        let counts = record.state.iter_mut().filter(|(name, _)| name.ends_with(".num_batches_tracked"));
        counts.for_each(|(_, shape)| shape.push(1));
        assert_eq!(stored_shapes(record.net.as_architecture()), record.state, "{name}");
    }
}

#[test]
fn with_three_stages_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[0]);
    gradients_agree(&oracles(), ALL[0]);
}

#[test]
fn with_other_strides_along_each_axis_and_kernels_of_five_voxels_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[1]);
    gradients_agree(&oracles(), ALL[1]);
}

#[test]
fn in_two_dimensions_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[2]);
    gradients_agree(&oracles(), ALL[2]);
}

#[test]
fn settings_make_it_and_are_kept_and_wrong_ones_are_refused_by_name() {
    let design = Design {
        in_channels: 1,
        classes: 3,
        patch: [32; 3],
        strides: vec![[1; 3]],
        kernels: vec![[3; 3]],
        features: vec![32],
    };
    let settings = NetworkSettings {
        net: Some(NetworkName::AttentionUnet),
        features: Some(vec![8, 16, 24]),
        kernel_size: Some(5),
        dropout: Some(0.1),
        ..NetworkSettings::default()
    };
    let network = Network::design(&design, &settings).unwrap();
    let expected = AttentionUnet { kernel_size: 5, dropout: 0.1, ..AttentionUnet::new(1, 3, &[8, 16, 24]) };
    assert_eq!(network, Network::from(expected));
    let kept = network.settings().unwrap();
    assert_eq!(kept.strides, Some(vec![[1; 3], [2; 3], [2; 3]]));
    assert_eq!(Network::design(&design, &kept).unwrap(), network);
    let slices = Network::design(&Design { patch: [1, 32, 32], ..design.clone() }, &settings).unwrap();
    assert_eq!(slices.settings().unwrap().strides, Some(vec![[1; 3], [1, 2, 2], [1, 2, 2]]));
    let refused = |settings: NetworkSettings| Network::design(&design, &settings).unwrap_err().to_string();
    let even = refused(NetworkSettings { kernel_size: Some(4), ..settings.clone() });
    assert!(even.contains("`kernel_size` is 4") && even.contains("odd"), "{even}");
    let narrow = refused(NetworkSettings { features: Some(vec![1, 2]), ..settings.clone() });
    assert!(narrow.contains("`features`") && narrow.contains("two channels"), "{narrow}");
    let short = refused(NetworkSettings { strides: Some(vec![[1; 3]; 2]), ..settings.clone() });
    assert!(short.contains("`strides`") && short.contains('3'), "{short}");
    let long = refused(NetworkSettings { strides: Some(vec![[1; 3], [2; 3], [4; 3]]), ..settings.clone() });
    assert!(long.contains("`strides`") && long.contains("kernels of 3"), "{long}");
    let first = refused(NetworkSettings { strides: Some(vec![[2; 3]; 3]), ..settings.clone() });
    assert!(first.contains("the first must be 1"), "{first}");
    let other = refused(NetworkSettings { deep_supervision: Some(1), ..settings });
    assert!(other.contains("`deep_supervision`"), "{other}");
}

#[test]
fn its_result_for_a_sample_depends_on_the_batch() {
    let net = AttentionUnet::new(1, 2, &[8, 16]);
    assert_eq!(net.couples_samples(), Some("batch normalisation"));
    assert!(net.check_patch([2, 4, 2]).is_ok());
    assert!(net.check_patch([2; 3]).unwrap_err().to_string().contains("[1, 1, 1]"));
    assert!(net.check_patch([3, 4, 2]).unwrap_err().to_string().contains("a multiple of [2, 2, 2]"));
}
