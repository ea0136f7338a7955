//! MONAI's UNETR: its number of parameters, the names and shapes of its state dict, its logits, and how it trains.
//! `oracles/unetr_training.py` made the numbers.
//!
//! The bounds are the same as in `pytorch.rs`.

use crate::state_dict::{Parameters, parameters_agree, stored_shapes};
use crate::training::{Record, definitions_agree, gradients_agree, logits_agree, losses_agree, oracles};
use plimsoll_nn::{Architecture, Design, Network, NetworkName, NetworkSettings, Unetr};
use serde::Deserialize;

const ALL: [&str; 3] = ["unetr_volume", "unetr_biased", "unetr_flat"];

/// MONAI's defaults for a size of patches.
#[derive(Deserialize)]
struct Size {
    image_size: [usize; 3],
    /// Numbers of parameters, and the number that nothing depends on.
    parameters: usize,
    unused: usize,
}

#[test]
fn it_has_as_many_parameters_as_monais() {
    let text = std::fs::read_to_string(oracles().join("unetr_sizes.json")).unwrap();
    let sizes: Vec<Size> = serde_json::from_str(&text).unwrap();
    assert_eq!(sizes.len(), 2);
    for Size { image_size, parameters, unused } in sizes {
        let expected = Parameters { all: parameters, idle: unused };
        parameters_agree(&Unetr::new(1, 2, image_size), &expected, &format!("{image_size:?}"));
    }
}

/// MONAI's network loads the file by `load_state_dict` with `strict=True`: all names, no others, and these shapes.
#[test]
fn names_and_shapes_in_files_are_those_of_monais_state_dict() {
    for name in ALL {
        let record = Record::all(&oracles(), name).remove(0);
        assert_eq!(stored_shapes(record.net.as_architecture()), record.state, "{name}");
    }
}

#[test]
fn its_logits_are_monais() {
    ALL.iter().for_each(|name| logits_agree(&oracles(), name));
}

#[test]
fn it_trains_as_in_pytorch() {
    definitions_agree(&oracles(), ALL[0]);
    losses_agree(&oracles(), ALL[0]);
    gradients_agree(&oracles(), ALL[0]);
}

#[test]
fn with_biases_and_other_heads_it_trains_as_in_pytorch() {
    definitions_agree(&oracles(), ALL[1]);
    losses_agree(&oracles(), ALL[1]);
    gradients_agree(&oracles(), ALL[1]);
}

#[test]
fn in_two_dimensions_it_trains_as_in_pytorch() {
    definitions_agree(&oracles(), ALL[2]);
    losses_agree(&oracles(), ALL[2]);
    gradients_agree(&oracles(), ALL[2]);
}

#[test]
fn settings_make_it_for_one_size_of_patches_and_wrong_ones_are_refused_by_name() {
    let design = Design {
        in_channels: 1,
        classes: 3,
        patch: [40, 64, 33],
        strides: vec![[1; 3]],
        kernels: vec![[3; 3]],
        features: vec![32],
    };
    let settings = NetworkSettings {
        net: Some(NetworkName::Unetr),
        feature_size: Some(8),
        hidden_size: Some(48),
        num_heads: Some(vec![4]),
        ..NetworkSettings::default()
    };
    let network = Network::design(&design, &settings).unwrap();
    let expected =
        Unetr { feature_size: 8, hidden_size: 48, num_heads: vec![4], ..Unetr::new(1, 3, [48, 64, 48]) };
    assert_eq!(network, Network::from(expected));
    let kept = network.settings().unwrap();
    assert_eq!(Network::design(&design, &kept).unwrap(), network);
    let slices = Network::design(&Design { patch: [1, 40, 64], ..design.clone() }, &settings).unwrap();
    assert_eq!(slices.extents().next_larger([1; 3]), [1, 48, 64]);
    let refused = |settings: NetworkSettings| Network::design(&design, &settings).unwrap_err().to_string();
    let heads = refused(NetworkSettings { num_heads: Some(vec![5]), ..settings.clone() });
    assert!(heads.contains("`num_heads` is 5") && heads.contains("48 channels"), "{heads}");
    let several = refused(NetworkSettings { num_heads: Some(vec![4, 4]), ..settings.clone() });
    assert!(several.contains("`num_heads`") && several.contains("one number"), "{several}");
    let wide = refused(NetworkSettings { mlp_ratio: Some(17.0), ..settings.clone() });
    assert!(wide.contains("`mlp_ratio` is 17"), "{wide}");
    let large =
        Network::design(&Design { patch: [272; 3], ..design.clone() }, &settings).unwrap_err().to_string();
    assert!(large.contains("4913 tokens") && large.contains("4096"), "{large}");
}

#[test]
fn it_takes_the_patches_that_it_has_positions_for() {
    let net = Unetr::new(1, 2, [32, 48, 16]);
    assert!(net.check_patch([32, 48, 16]).is_ok());
    let other = net.check_patch([64, 48, 16]).unwrap_err().to_string();
    assert!(other.contains("[32, 48, 16]") && other.contains("positions"), "{other}");
    let odd = net.check_patch([32, 40, 16]).unwrap_err().to_string();
    assert!(odd.contains("a multiple of [16, 16, 16]"), "{odd}");
    assert!(net.extents().smaller([32, 48, 16]).is_empty());
}
