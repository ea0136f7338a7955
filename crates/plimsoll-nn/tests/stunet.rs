//! STU-Net: its sizes, the names and shapes of its state dict, its logits, and how it trains. `oracles/stunet_training.py` made the numbers
//! with its authors' code.
//!
//! The bounds are the same as in `pytorch.rs`.

use crate::state_dict::{Parameters, parameters_agree, stored_shapes};
use crate::training::{Record, gradients_agree, logits_agree, losses_agree, oracles};
use plimsoll_nn::{Design, Network, NetworkName, NetworkSettings, NetworkSize, StuNet};
use serde::Deserialize;

const ALL: [&str; 3] = ["stunet_supervised", "stunet_anisotropic", "stunet_flat"];

/// A size of the authors.
#[derive(Deserialize)]
struct Size {
    size: NetworkSize,
    /// Numbers of their parameters, and the number that a normalisation cancels.
    parameters: usize,
    cancelled: usize,
}

#[test]
fn its_sizes_have_as_many_parameters_as_its_authors() {
    let text = std::fs::read_to_string(oracles().join("stunet_sizes.json")).unwrap();
    let sizes: Vec<Size> = serde_json::from_str(&text).unwrap();
    assert_eq!(sizes.len(), 3);
    for Size { size, parameters, cancelled } in sizes {
        let expected = Parameters { all: parameters, idle: cancelled };
        parameters_agree(&StuNet::new(1, 2, size), &expected, &format!("{size:?}"));
    }
}

/// The authors' network loads the file by `load_state_dict` with `strict=True`: all names, no others, and these shapes.
#[test]
fn names_and_shapes_in_files_are_those_of_its_authors_state_dict() {
    for name in ALL {
        let record = Record::all(&oracles(), name).remove(0);
        assert_eq!(stored_shapes(&supervised(&record.net)), record.state, "{name}");
    }
}

/// A network with all the heads that its authors' has, whether they are used or not.
fn supervised(net: &Network) -> StuNet {
    let Network::StuNet(net) = net else { panic!("{net:?}") };
    StuNet { deep_supervision: net.features.len() - 2, ..net.clone() }
}

#[test]
fn its_logits_are_its_authors() {
    ALL.iter().for_each(|name| logits_agree(&oracles(), name));
}

#[test]
fn with_coarser_heads_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[0]);
    gradients_agree(&oracles(), ALL[0]);
}

#[test]
fn with_several_blocks_and_stages_of_equal_extent_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[1]);
    gradients_agree(&oracles(), ALL[1]);
}

#[test]
fn on_slices_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), ALL[2]);
    gradients_agree(&oracles(), ALL[2]);
}

#[test]
fn settings_make_it_from_a_size_and_a_plan_and_wrong_ones_are_refused_by_name() {
    let design = Design {
        in_channels: 1,
        classes: 3,
        patch: [32; 3],
        strides: vec![[1; 3], [2; 3], [1, 2, 2]],
        kernels: vec![[3; 3]; 3],
        features: vec![32, 64, 128],
    };
    let settings = NetworkSettings {
        net: Some(NetworkName::StuNet),
        size: Some(NetworkSize::L),
        ..NetworkSettings::default()
    };
    let network = Network::design(&design, &settings).unwrap();
    // The trainers of its authors fill a plan up to six stages, without a stride.
    let strides = vec![[1; 3], [2; 3], [1, 2, 2], [1; 3], [1; 3], [1; 3]];
    assert_eq!(network, Network::from(StuNet { strides, ..StuNet::new(1, 3, NetworkSize::L) }));
    let kept = network.settings().unwrap();
    assert_eq!(kept.size, None);
    assert_eq!(kept.encoder_blocks, Some(vec![2; 6]));
    assert_eq!(Network::design(&design, &kept).unwrap(), network);
    let refused = |settings: NetworkSettings| Network::design(&design, &settings).unwrap_err().to_string();
    let medium = refused(NetworkSettings { size: Some(NetworkSize::M), ..settings.clone() });
    assert!(medium.contains("`size` is m") && medium.contains("s, b, l"), "{medium}");
    let strides = Some(vec![[1; 3], [3; 3]]);
    let long = refused(NetworkSettings { strides, ..settings.clone() });
    assert!(long.contains("`strides`") && long.contains("doubles"), "{long}");
    let short = refused(NetworkSettings { encoder_blocks: Some(vec![1; 5]), ..settings.clone() });
    assert!(short.contains("`encoder_blocks`") && short.contains('6'), "{short}");
    let many = refused(NetworkSettings { deep_supervision: Some(5), ..settings });
    assert!(many.contains("`deep_supervision` is 5") && many.contains("at most 4"), "{many}");
}
