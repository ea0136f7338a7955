//! MONAI's MedNeXt: its sizes, the names and shapes of its state dict, and how it trains. `oracles/mednext_training.py` made the numbers.
//!
//! The bounds are the same as in `pytorch.rs`. GELU has no kink, so gradients agree closely.

use crate::state_dict::{Parameters, parameters_agree, stored_shapes};
use crate::training::{Record, gradients_agree, losses_agree, oracles};
use plimsoll_nn::{Architecture, Design, MedNeXt, Network, NetworkName, NetworkSettings, NetworkSize};
use serde::Deserialize;

const ALL: [&str; 3] = ["mednext_supervised", "mednext_large_kernels", "mednext_flat"];

/// A size of the paper.
#[derive(Deserialize)]
struct Size {
    size: NetworkSize,
    kernel_size: usize,
    /// Numbers of MONAI's parameters, and those of them that a normalisation cancels.
    parameters: usize,
    cancelled: usize,
}

#[test]
fn its_sizes_have_as_many_parameters_as_monais() {
    let text = std::fs::read_to_string(oracles().join("mednext_sizes.json")).unwrap();
    let sizes: Vec<Size> = serde_json::from_str(&text).unwrap();
    assert_eq!(sizes.len(), 8);
    for Size { size, kernel_size, parameters, cancelled } in sizes {
        let net = MedNeXt::new(1, 2, size, kernel_size);
        let expected = Parameters { all: parameters, idle: cancelled };
        parameters_agree(&net, &expected, &format!("{size:?}, {kernel_size}"));
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
fn with_response_normalisation_and_coarser_heads_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[0]);
    gradients_agree(&oracles(), ALL[0]);
}

#[test]
fn with_kernels_of_five_voxels_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[1]);
    gradients_agree(&oracles(), ALL[1]);
}

#[test]
fn in_two_dimensions_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[2]);
    gradients_agree(&oracles(), ALL[2]);
}

#[test]
fn settings_make_it_from_a_size_and_keep_the_lists_alone() {
    let design = Design {
        in_channels: 1,
        classes: 3,
        patch: [32; 3],
        strides: vec![[1; 3]],
        kernels: vec![[3; 3]],
        features: vec![32],
    };
    let settings = NetworkSettings {
        net: Some(NetworkName::MedNeXt),
        size: Some(NetworkSize::M),
        kernel_size: Some(5),
        grn: Some(true),
        ..NetworkSettings::default()
    };
    let network = Network::design(&design, &settings).unwrap();
    let expected = MedNeXt { grn: true, ..MedNeXt::new(1, 3, NetworkSize::M, 5) };
    assert_eq!(network, Network::from(expected));
    let kept = network.settings().unwrap();
    assert_eq!(kept.size, None);
    assert_eq!(kept.encoder_blocks, Some(vec![3, 4, 4, 4, 4]));
    assert_eq!(Network::design(&design, &kept).unwrap(), network);
    let refused = |settings: NetworkSettings| Network::design(&design, &settings).unwrap_err().to_string();
    let even = refused(NetworkSettings { kernel_size: Some(4), ..settings.clone() });
    assert!(even.contains("`kernel_size` is 4") && even.contains("odd"), "{even}");
    let short = refused(NetworkSettings { decoder_expansion: Some(vec![2]), ..settings.clone() });
    assert!(short.contains("`decoder_expansion`") && short.contains('4'), "{short}");
    let other = refused(NetworkSettings { strides: Some(vec![[1; 3]]), ..settings });
    assert!(other.contains("`strides`"), "{other}");
}

#[test]
fn patches_are_multiples_of_sixteen_and_end_in_more_than_one_voxel() {
    let net = MedNeXt::new(1, 2, NetworkSize::S, 3);
    assert!(net.check_patch([16, 32, 16]).is_ok());
    let error = net.check_patch([24, 32, 16]).unwrap_err().to_string();
    assert!(error.contains("a multiple of [16, 16, 16]"), "{error}");
    assert!(net.check_patch([16; 3]).unwrap_err().to_string().contains("[1, 1, 1]"));
}
