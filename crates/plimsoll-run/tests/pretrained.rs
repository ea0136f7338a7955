//! Starts from pre-trained checkpoints, compared with nnU-Net's own code: see `oracles/pretrained.py`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::WeightFile;
use plimsoll_nn::{Decay, ForwardMode, Network, Schedule, names};
use plimsoll_run::{
    HeadRule, NewReason, PretrainedEncoder, RunError, StartRule, StartTable, TensorFate, UnusedReason,
    each_started, start_table,
};
use serde::Deserialize;

/// The record of the oracle.
#[derive(Deserialize)]
struct Record {
    cases: BTreeMap<String, Case>,
    nnunet: Case,
    schedules: Vec<Rates>,
    /// Epochs and epochs of the warm-up of nnU-Net's shortest schedule.
    #[expect(dead_code, reason = "compared where defaults are chosen")]
    shortest: [u64; 2],
}

/// A network that starts from a checkpoint.
#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    source: String,
    network: Network,
    /// Tensors that nnU-Net leaves as they are.
    new: Vec<String>,
}

/// The learning rates of a trainer.
#[derive(Deserialize)]
struct Rates {
    epochs: u64,
    warmup_epochs: u64,
    learning_rate: f64,
    rates: Vec<f64>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/pretrained")
}

fn record() -> Record {
    serde_json::from_slice(&std::fs::read(folder().join("pretrained.json")).unwrap()).unwrap()
}

fn program(net: &Network) -> Program {
    let mut program = Program::new("parameters");
    let image = Shape::volume(1, net.in_channels(), net.extents().next_larger([8; 3]));
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
    program
}

/// The rule of a checkpoint of the oracle.
fn rule(source: &str) -> StartRule {
    if source == "primus" {
        let (encoder, stem) = ("eva".into(), "down_projection".into());
        return StartRule::Encoder(PretrainedEncoder { encoder, stem, channels: 1, grid: Some([2, 3, 4]) });
    }
    let stem = if source == "plain" { "encoder.stages.0" } else { "encoder.stem" };
    StartRule::Encoder(PretrainedEncoder {
        encoder: "encoder.stages".into(),
        stem: stem.into(),
        channels: 1,
        grid: None,
    })
}

/// The parameters that a network has from a file, by name.
fn started(
    path: &Path,
    rule: &StartRule,
    net: &Network,
) -> Result<(BTreeMap<String, Vec<f32>>, StartTable), RunError> {
    let (program, budget) = (program(net), Budget::new(Bytes::mib(4)));
    let mut found = BTreeMap::new();
    let table = each_started(
        path,
        rule,
        net.as_architecture(),
        &program,
        &mut vec![0.0; 1 << 16],
        &budget,
        &mut |id, values| {
            found.insert(program.tensor(id).name.clone(), values.to_vec());
            Ok(())
        },
    )?;
    assert_eq!(table, start_table(path, rule, net.as_architecture(), &program, &budget).unwrap());
    Ok((found, table))
}

/// Compares all that a network has from a file with what nnU-Net has, bit by bit; interpolated positions up to roundings, whose order is the
/// library's.
fn expect_bits(name: &str, net: &Network, found: &BTreeMap<String, Vec<f32>>, new: &[String]) {
    let expected = folder().join(format!("{name}.safetensors"));
    let mut expected = WeightFile::open(&expected, &Budget::new(Bytes::mib(4))).unwrap();
    let program = program(net);
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        match found.get(&info.name) {
            Some(values) => {
                let mut theirs = vec![0.0; values.len()];
                expected.read(info, &mut theirs).unwrap();
                if info.name == "eva.pos_embed" {
                    let close = |(own, theirs): (&f32, &f32)| (own - theirs).abs() <= 4.0 * f32::EPSILON;
                    assert!(values.iter().zip(&theirs).all(close), "{name}: {}", info.name);
                    continue;
                }
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(values), bits(&theirs), "{name}: {}", info.name);
            }
            None => {
                let is_new = new.contains(&info.name) || !expected.contains(&info.name);
                assert!(is_new, "{name}: {} is nnU-Net's, but not here", info.name);
            }
        }
    }
}

#[test]
fn the_encoder_has_the_bits_that_nnu_net_gives_it_whatever_its_channels_kernels_and_depth() {
    let Record { cases, .. } = record();
    assert_eq!(cases.len(), 16);
    for (name, Case { source, network, new }) in cases {
        let path = folder().join(&source).join("checkpoint_final.pth");
        let (found, table) = started(&path, &rule(&source), &network).unwrap();
        assert!(found.keys().all(|own| !own.starts_with("up_projection")), "{name}");
        expect_bits(&name, &network, &found, &new);
        for tensor in &table.tensors {
            let is_taken = matches!(tensor.fate, TensorFate::Taken | TensorFate::Adapted { .. });
            assert_eq!(is_taken, found.contains_key(&tensor.name), "{name}: {}", tensor.name);
            // nnU-Net leaves the same parameters of the encoder new.
            let is_new = matches!(tensor.fate, TensorFate::New { .. });
            if is_new && tensor.name.starts_with("encoder.") {
                assert!(new.contains(&tensor.name), "{name}: {}", tensor.name);
            }
        }
    }
}

#[test]
fn a_table_names_what_was_adapted_what_is_new_and_what_is_unused() {
    let Record { cases, .. } = record();
    let fates = |name: &str| {
        let Case { source, network, .. } = &cases[name];
        let path = folder().join(source).join("checkpoint_final.pth");
        let (_, table) = started(&path, &rule(source), network).unwrap();
        // A name may be of a new parameter and of an unused tensor.
        let rows = table.tensors.into_iter().rev();
        rows.map(|tensor| (tensor.name, tensor.fate)).collect::<BTreeMap<_, _>>()
    };
    let flat = fates("flat_and_channels");
    assert_eq!(
        flat["encoder.stem.convs.0.conv.weight"].note(),
        "repeated over 2 channels, then mean of kernel 3×3×3 to 1×3×3"
    );
    assert_eq!(flat["encoder.stages.2.blocks.0.conv1.conv.weight"].note(), "mean of kernel 3×3×3 to 3×1×1");
    assert_eq!(flat["encoder.stages.1.blocks.0.conv1.conv.weight"], TensorFate::Taken);
    assert_eq!(flat["decoder.stages.0.convs.0.conv.weight"], TensorFate::New { why: NewReason::Decoder });
    assert_eq!(flat["decoder.seg_layers.0.weight"], TensorFate::Unused { why: UnusedReason::NotEncoder });
    let deeper = fates("deeper");
    assert_eq!(
        deeper["encoder.stages.3.blocks.0.conv1.conv.weight"],
        TensorFate::New { why: NewReason::Missing }
    );
    assert_eq!(deeper["decoder.seg_layers.2.weight"], TensorFate::New { why: NewReason::Head });
    let shallower = fates("shallower");
    assert_eq!(
        shallower["encoder.stages.2.blocks.0.conv1.conv.weight"],
        TensorFate::Unused { why: UnusedReason::NoPlace }
    );
    let other = fates("other_features");
    let found = vec![8, 6, 3, 3, 3];
    assert_eq!(
        other["encoder.stages.2.blocks.0.conv1.conv.weight"],
        TensorFate::New { why: NewReason::OtherShape { found } }
    );
}

#[test]
fn positions_of_another_patch_are_interpolated_and_those_of_another_grid_refused() {
    let Record { cases, .. } = record();
    let path = folder().join("primus/checkpoint_final.pth");
    let fates = |name: &str| {
        let (_, table) = started(&path, &rule("primus"), &cases[name].network).unwrap();
        // A name may be of a new parameter and of an unused tensor.
        let rows = table.tensors.into_iter().rev();
        rows.map(|tensor| (tensor.name, tensor.fate)).collect::<BTreeMap<_, _>>()
    };
    let same = fates("primus_same");
    assert_eq!(same["eva.pos_embed"], TensorFate::Taken);
    assert_eq!(same["up_projection.decode.0.0.weight"], TensorFate::New { why: NewReason::Head });
    assert_eq!(same["decoder.blocks.0.mlp.fc2.bias"], TensorFate::Unused { why: UnusedReason::NotEncoder });
    assert!(!same.contains_key("mask_token"));
    let smaller = fates("primus_smaller");
    assert_eq!(smaller["eva.pos_embed"].note(), "positions interpolated from 2×3×4 to 3×2×2 tokens");
    assert_eq!(smaller["down_projection.proj.weight"].note(), "repeated over 2 channels");
    assert_eq!(smaller["eva.blocks.1.attn.q_proj.weight"], TensorFate::Taken);
    let encoder = |grid| {
        let (encoder, stem) = ("eva".into(), "down_projection".into());
        StartRule::Encoder(PretrainedEncoder { encoder, stem, channels: 1, grid })
    };
    for grid in [None, Some([2, 3, 3])] {
        let error = started(&path, &encoder(grid), &cases["primus_same"].network).unwrap_err().to_string();
        assert!(error.contains("`eva.pos_embed` is of shape [1×24×12], which cannot be adapted"), "{error}");
    }
    // A convolutional encoder is none of a transformer, and the other way round.
    let error = started(&path, &rule("primus"), &cases["same"].network).unwrap_err().to_string();
    assert!(error.contains("`down_projection.convs.0.conv.weight` is missing"), "{error}");
    let plain = folder().join("resenc/checkpoint_final.pth");
    let error = started(&plain, &rule("resenc"), &cases["primus_same"].network).unwrap_err().to_string();
    assert!(error.contains("which cannot be adapted"), "{error}");
}

#[test]
fn a_checkpoint_of_nnu_net_gives_all_but_its_heads() {
    let Record { nnunet: Case { network, new, .. }, .. } = record();
    let rule = StartRule::Names { allow_extra: false, heads: HeadRule::New, sum_stem: false, upkern: false };
    let (found, table) = started(&folder().join("nnunet.pth"), &rule, &network).unwrap();
    expect_bits("nnunet", &network, &found, &new);
    assert!(found.keys().all(|name| !name.contains("seg_layers")));
    let of_head = |kind: &str| {
        let all = table.tensors.iter().filter(|tensor| tensor.name.contains("seg_layers"));
        all.filter(|tensor| tensor.fate.kind() == kind).count()
    };
    // Weight and bias of the heads of the network, and of the file.
    assert_eq!((of_head("new"), of_head("unused")), (2, 4));
}

#[test]
fn another_topology_and_other_channels_are_refused_by_name() {
    let Record { cases, .. } = record();
    let path = folder().join("resenc/checkpoint_final.pth");
    let said =
        |net: &Network, rule: &StartRule| started(&path, rule, net).map(|_| ()).unwrap_err().to_string();
    let own = &cases["channels"].network;
    let mut two = PretrainedEncoder {
        encoder: "encoder.stages".into(),
        stem: "encoder.stem".into(),
        channels: 2,
        grid: None,
    };
    let error = said(own, &StartRule::Encoder(two.clone()));
    assert!(error.contains("pre-trained on 2 image channels, but the images have 3"), "{error}");
    two.channels = 1;
    two.stem = "encoder.entry".into();
    let error = said(own, &StartRule::Encoder(two));
    assert!(error.contains("`encoder.entry.convs.0.conv.weight` is missing"), "{error}");
    let error = said(&cases["plain_same"].network, &rule("resenc"));
    assert!(error.contains("which cannot be adapted to"), "{error}");
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = serde_json::to_value(own).unwrap();
        change(&mut json);
        serde_json::from_value::<Network>(json).unwrap()
    };
    let longer = with(&|json| json["kernels"][1] = serde_json::json!([5, 3, 3]));
    let error = said(&longer, &rule("resenc"));
    assert!(error.contains("of shape [6×4×3×3×3], which cannot be adapted to [6×4×5×3×3]"), "{error}");
    let wider = with(&|json| json["features"] = serde_json::json!([8, 8, 8]));
    let error = said(&wider, &rule("resenc"));
    assert!(error.contains("`encoder.stem.convs.0.conv.weight`"), "{error}");
    let other = Network::from(plimsoll_nn::DynUNet::new(1, 2, &[4, 8], &[[3; 3]; 2], &[[1; 3], [2; 3]]));
    let error = started(&path, &rule("resenc"), &other).unwrap_err();
    assert!(
        matches!(error, RunError::NoEncoder { .. }) && error.remedy().unwrap().contains("‹adopt=topology›")
    );
}

#[test]
fn learning_rates_of_a_start_are_those_of_nnu_nets_trainers_in_every_epoch() {
    const STEPS: u64 = 250;
    let Record { schedules, .. } = record();
    assert_eq!(schedules.len(), 3);
    for Rates { epochs, warmup_epochs, learning_rate, rates } in schedules {
        let schedule = Schedule {
            learning_rate,
            min_learning_rate: 0.0,
            warmup_steps: warmup_epochs * STEPS,
            decay: Decay::Poly { power: 0.9 },
            total_steps: epochs * STEPS,
            interval: STEPS,
        };
        schedule.check().unwrap();
        assert_eq!(rates.len() as u64, epochs);
        for (epoch, rate) in (0..).zip(rates) {
            for step in [0, 1, STEPS - 1] {
                let own = schedule.at(epoch * STEPS + step);
                // The last bit of a power is the library's.
                assert!(
                    (own - rate).abs() <= rate * f64::EPSILON,
                    "epoch {epoch} of {epochs}: {own} for {rate}"
                );
                assert_eq!(own as f32, rate as f32, "as steps read it");
            }
        }
    }
}
