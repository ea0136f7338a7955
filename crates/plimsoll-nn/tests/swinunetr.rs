//! MONAI's SwinUNETR: its size, the names of its parameters, and how it trains. `oracles/swin_training.py` made the numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::training::{Record, definitions_agree, gradients_agree, losses_agree, oracles};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{
    Architecture, ConfigError, Design, ForwardMode, Merging, Network, NetworkName, NetworkSettings,
    Objective, Optimizer, SwinUnetr, Training, names,
};
use plimsoll_plan::{Options, plan};

/// The forward pass for a patch.
fn program(net: &SwinUnetr, patch: [usize; 3], training: bool) -> Result<Program, ConfigError> {
    let mut program = Program::new("forward");
    let image = Shape::volume(1, net.in_channels, patch);
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training, precision: DType::F32 })?;
    program.validate().unwrap();
    Ok(program)
}

fn least(net: &SwinUnetr) -> Program {
    program(net, net.extents().next_larger([1; 3]), false).unwrap()
}

fn count(program: &Program, of: impl Fn(&str) -> bool) -> usize {
    let parameters = program.with_role(Role::Parameter).map(|id| program.tensor(id));
    parameters.filter(|info| of(&info.name)).map(|info| info.shape.count()).sum()
}

/// The numbers are from `sum(p.numel() for p in net.parameters())`; the first two sizes of MONAI's paper are 62.2 M and
/// 72.8 M.
#[test]
fn it_has_as_many_parameters_as_monais() {
    for (size, all, of_encoder, v2) in [
        (12, 4_078_064, 694_998, 4_739_024),
        (24, 15_703_004, 2_171_466, 18_346_844),
        (36, 35_072_552, 4_627_134, 41_021_192),
        (48, 62_186_708, 8_062_002, 72_762_068),
        (60, 97_045_472, 12_476_070, 113_569_472),
    ] {
        let net = SwinUnetr::new(1, 2, size);
        let own = least(&net);
        assert_eq!(count(&own, |_| true), all, "{size}");
        assert_eq!(count(&own, |name| name.starts_with("swinViT.")), of_encoder, "{size}");
        assert_eq!(count(&least(&SwinUnetr { use_v2: true, ..net }), |_| true), v2, "{size}, v2");
    }
    for (channels, classes, size, expected) in
        [(1, 14, 48, 62_187_296), (4, 3, 48, 62_191_941), (4, 3, 24, 15_705_621)]
    {
        assert_eq!(count(&least(&SwinUnetr::new(channels, classes, size)), |_| true), expected);
    }
    let flat = SwinUnetr { dimensions: 2, ..SwinUnetr::new(1, 2, 24) };
    assert_eq!(count(&least(&flat), |_| true), 6_302_228);
}

#[test]
fn it_takes_any_feature_size_that_its_heads_divide_and_refuses_others_by_name() {
    for (size, all, of_encoder) in [(32, 27_689_614, 3_633_868), (16, 7_026_622, 1_012_444)] {
        let net = SwinUnetr { num_heads: vec![2, 4, 8, 16], ..SwinUnetr::new(1, 2, size) };
        let own = least(&net);
        assert_eq!(count(&own, |_| true), all, "{size}");
        assert_eq!(count(&own, |name| name.starts_with("swinViT.")), of_encoder, "{size}");
    }
    let said = SwinUnetr::new(1, 2, 32).check().unwrap_err().to_string();
    assert!(said.contains("`feature_size` is 32") && said.contains("3 heads"), "{said}");
    let without = SwinUnetr { attention: false, ..SwinUnetr::new(1, 2, 32) };
    assert!(without.check().is_ok());
    assert_eq!(count(&least(&without), |name| name.contains(".blocks.")), 0);
}

#[test]
fn patches_are_multiples_of_32_and_end_in_more_than_one_voxel() {
    let net = SwinUnetr::new(1, 2, 12);
    let error = program(&net, [48; 3], false).unwrap_err();
    assert!(error.to_string().contains("a multiple of [32, 32, 32]"), "{error}");
    assert_eq!(error.remedy().unwrap(), "the next larger patch that fits is 64 × 64 × 64");
    let error = program(&net, [32; 3], false).unwrap_err();
    assert!(error.to_string().contains("[1, 1, 1] at the coarsest stage"), "{error}");
    let flat = SwinUnetr { dimensions: 2, ..net };
    assert!(program(&flat, [1, 64, 32], false).is_ok());
    let error = program(&flat, [4, 64, 32], false).unwrap_err();
    assert!(error.to_string().contains("`dimensions`"), "{error}");
}

/// MONAI's network loads the file by `load_state_dict` with `strict=True`: all names, no others, and these shapes.
#[test]
fn names_and_shapes_in_files_are_those_of_monais_state_dict() {
    for record in ["swin_flat", "swin_v2", "swin_old"].map(|name| Record::all(&oracles(), name).remove(0)) {
        let net = &record.net;
        let mut own = Program::new("forward");
        let image = Shape::volume(1, net.in_channels(), net.extents().next_larger([1; 3]));
        let image = own.input(names::IMAGE, image, Kind::Volume);
        net.forward(&mut own, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
        let parameters = own.with_role(Role::Parameter).map(|id| own.tensor(id));
        let mut stored: BTreeMap<String, Vec<usize>> =
            parameters.map(|info| (info.name.clone(), net.stored_shape(&info.name, &info.shape).0)).collect();
        stored.extend(net.constants().into_iter().map(|constant| {
            let shape = constant.shape().0;
            (constant.name, shape)
        }));
        assert_eq!(stored, record.state);
    }
    let constants = SwinUnetr::new(1, 14, 48).constants();
    assert_eq!(constants.len(), 8);
    let mut indexes = vec![f32::NAN; constants[0].shape().count()];
    constants[0].fill(&mut indexes);
    // `net.swinViT.layers1[0].blocks[0].attn.relative_position_index[[0, 0, 342, 8], [0, 342, 0, 50]]`
    let at = |query: usize, key: usize| indexes[query * 343 + key];
    assert_eq!([at(0, 0), at(0, 342), at(342, 0), at(8, 50)], [1098.0, 0.0, 2196.0, 942.0]);
}

#[test]
fn settings_make_it_and_those_of_other_networks_are_errors() {
    let design = Design {
        in_channels: 1,
        classes: 3,
        patch: [1, 64, 64],
        strides: vec![[1; 3]],
        kernels: vec![[3; 3]],
        features: vec![32],
    };
    let settings = NetworkSettings {
        net: Some(NetworkName::SwinUnetr),
        feature_size: Some(36),
        merging: Some(Merging::Merging14),
        ..NetworkSettings::default()
    };
    let network = Network::design(&design, &settings).unwrap();
    let expected = SwinUnetr { dimensions: 2, merging: Merging::Merging14, ..SwinUnetr::new(1, 3, 36) };
    assert_eq!(network, Network::from(expected));
    assert_eq!(Network::design(&design, &network.settings().unwrap()).unwrap(), network);
    assert!(serde_json::to_string(&network).unwrap().contains("merging-1.4"));
    let settings = NetworkSettings { features: Some(vec![32]), ..settings };
    let error = Network::design(&design, &settings).unwrap_err();
    assert!(error.to_string().contains("`features`"), "{error}");
    let narrower: Vec<Vec<usize>> = network.narrower().iter().map(|net| net.features()).collect();
    assert_eq!(narrower, [[36], [24], [12]].map(|size| size.to_vec())[1..].to_vec());
}

#[test]
fn dropout_of_all_kinds_is_of_training_alone() {
    let net =
        SwinUnetr { dropout: 0.1, attention_dropout: 0.2, path_dropout: 0.3, ..SwinUnetr::new(1, 2, 12) };
    let count =
        |program: &Program, op: &str| program.nodes.iter().filter(|node| node.op.variant() == op).count();
    let training = program(&net, [32, 32, 64], true).unwrap();
    // Behind the embedding; three linear layers of each of eight blocks.
    assert_eq!(count(&training, "Dropout"), 1 + 3 * 8);
    // Two branches of each block but the first, whose share is 0.
    assert_eq!(count(&training, "SampleDrop"), 2 * 7);
    assert!(training.find(names::NOISE).is_some());
    let inference = program(&net, [32, 32, 64], false).unwrap();
    assert_eq!(count(&inference, "Dropout") + count(&inference, "SampleDrop"), 0);
    assert!(inference.find(names::NOISE).is_none());
}

/// 48 features at 96³ in f32, two samples one after the other, with AdamW: MONAI's takes more than 13 GB.
#[test]
fn steps_at_96_cubed_with_48_features_are_planned_within_4_gib() {
    let training = Training {
        net: SwinUnetr::new(1, 2, 48).into(),
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: None,
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [96; 3],
        batch: 2,
        shards: 1,
        micro_batch: 1,
        precision: DType::F32,
    };
    let programs = training.programs().unwrap();
    let programs: Vec<Program> =
        programs.gradients.into_iter().chain(programs.update).chain([programs.validate]).collect();
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let limit = 4 << 30;
    let plan = plan(&programs, &backend, Options { budget: Some(limit), ..Options::default() }).unwrap();
    let persistent = plan.persistent_bytes();
    eprintln!("{} bytes, {persistent} of them parameters, moments and gradients", plan.arena_bytes);
    assert!(plan.arena_bytes <= limit, "{}", plan.arena_bytes);
    // Parameters, two moments and summed gradients alone are 4 × 249 MB.
    assert!(persistent > 990_000_000);
}

#[test]
fn in_two_dimensions_it_trains_as_in_pytorch() {
    losses_agree(&oracles(), "swin_flat");
    gradients_agree(&oracles(), "swin_flat");
}

#[test]
fn the_second_version_trains_as_in_pytorch() {
    losses_agree(&oracles(), "swin_v2");
    gradients_agree(&oracles(), "swin_v2");
}

#[test]
fn with_the_merging_of_older_versions_it_trains_as_in_pytorch() {
    definitions_agree(&oracles(), "swin_old");
    losses_agree(&oracles(), "swin_old");
    gradients_agree(&oracles(), "swin_old");
}

/// `python oracles/swin_training.py full DIR` makes the numbers, then
/// `PLIMSOLL_ORACLE=DIR cargo test --release -p plimsoll-nn --test all swinunetr:: -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes, most of them in PyTorch"]
fn larger_patches_train_as_in_pytorch() {
    let folder = PathBuf::from(std::env::var("PLIMSOLL_ORACLE").unwrap());
    for name in ["swin_clipped", "swin_cube", "swin_v2_cube", "swin_old_clipped"] {
        definitions_agree(&folder, name);
        losses_agree(&folder, name);
        gradients_agree(&folder, name);
    }
}
