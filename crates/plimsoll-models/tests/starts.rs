//! Starts from pre-trained encoders: settings that follow from them are nnU-Net's (`oracles/pretrained.py`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{Adoption, NormalisationOf, Start, StartOptions};
use plimsoll_nn::{NetworkName, Optimizer, RateInterval};
use plimsoll_run::{ChannelNormalisation, HeadRule, Preset, Settings, StartRule};
use serde_json::{Value, json};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/pretrained").join(name)
}

fn open(path: &Path) -> Start {
    let budget = Budget::new(Bytes::mib(8));
    let start = Start::open(path, &budget).unwrap();
    assert_eq!(budget.used(), Bytes::ZERO);
    start
}

fn record() -> Value {
    serde_json::from_slice(&std::fs::read(oracle("pretrained.json")).unwrap()).unwrap()
}

#[test]
fn rates_batch_and_heads_of_a_pre_trained_encoder_are_those_of_nnu_nets_trainers() {
    let start = open(&oracle("resenc"));
    let record = record();
    for trainer in record["schedules"].as_array().unwrap() {
        let number = |key: &str| trainer[key].as_u64().unwrap();
        let own = Settings { epochs: Some(number("epochs")), ..Settings::default() };
        let settings = start.complete(own, &BTreeSet::new()).unwrap();
        assert_eq!(settings.learning_rate, trainer["learning_rate"].as_f64());
        assert_eq!(settings.warmup_steps, Some(250 * number("warmup_epochs")));
        assert_eq!(settings.learning_rate_interval, Some(RateInterval::Epoch));
        assert_eq!(settings.batch_size.map(|size| size as u64), trainer["batch_size"].as_u64());
        let heads = settings.network.deep_supervision.unwrap();
        assert_eq!(json!(heads > 0), trainer["deep_supervision"]);
        // The optimizer is not set, and nnU-Net's by default.
        assert_eq!(settings.optimizer, None);
        let Optimizer::Sgd { momentum, weight_decay } = Optimizer::nnunet() else {
            panic!("nnU-Net has SGD")
        };
        let decimal = |number: f32| number.to_string().parse::<f64>().ok();
        assert_eq!(decimal(momentum), trainer["momentum"].as_f64());
        assert_eq!(decimal(weight_decay), trainer["weight_decay"].as_f64());
    }
    let [epochs, warmup] = [0, 1].map(|place| record["shortest"][place].as_u64());
    let short = Settings { epochs, iterations_per_epoch: Some(1), ..Settings::default() };
    assert_eq!(start.complete(short, &BTreeSet::new()).unwrap().warmup_steps, warmup);
}

#[test]
fn settings_take_precedence_over_those_of_a_start() {
    let start = open(&oracle("resenc"));
    let all: BTreeSet<Adoption> = Adoption::ALL.into_iter().collect();
    let own = Settings {
        learning_rate: Some(0.5),
        warmup_steps: Some(0),
        patch_size: Some([32; 3]),
        batch_size: Some(3),
        ..Settings::default()
    };
    let settings = start.complete(own.clone(), &all).unwrap();
    assert_eq!((settings.learning_rate, settings.warmup_steps), (own.learning_rate, own.warmup_steps));
    assert_eq!((settings.patch_size, settings.batch_size), (own.patch_size, own.batch_size));
    let network = &settings.network;
    assert_eq!(
        (network.net, network.features.as_deref()),
        (Some(NetworkName::ResidualEncoderUNet), Some(&[4, 6, 8][..]))
    );
    assert_eq!(network.encoder_blocks.as_deref(), Some(&[1, 2, 1][..]));
    // A preset chooses the network, where it is not adopted.
    let preset = Settings { preset: Some(Preset::Nnunet), ..Settings::default() };
    assert_eq!(start.complete(preset, &BTreeSet::new()).unwrap().network.net, None);
}

#[test]
fn a_checkpoint_has_the_plan_of_its_folder_and_the_rule_follows_from_the_origin() {
    for kind in ["resenc", "plain"] {
        let [folder, file] =
            [oracle(kind), oracle(kind).join("checkpoint_final.pth")].map(|path| open(&path));
        let rule = folder.rule(StartOptions::default());
        assert_eq!(file.rule(StartOptions::default()), rule);
        let StartRule::Encoder(encoder) = rule else { panic!("{rule:?}") };
        let stem = if kind == "plain" { "encoder.stages.0" } else { "encoder.stem" };
        assert_eq!(
            (encoder.stem.as_str(), encoder.encoder.as_str(), encoder.channels),
            (stem, "encoder.stages", 1)
        );
    }
    let heads = |name: &str, new_head| match open(&oracle(name))
        .rule(StartOptions { new_head, ..StartOptions::default() })
    {
        StartRule::Names { heads, .. } => heads,
        other => panic!("{other:?}"),
    };
    assert_eq!(heads("nnunet.pth", false), HeadRule::New);
    assert_eq!(heads("same.safetensors", false), HeadRule::Taken);
    assert_eq!(heads("same.safetensors", true), HeadRule::NewUnlessFitting);
}

#[test]
fn a_model_of_total_segmentator_gives_its_settings_and_one_with_exchanged_axes_or_several_folds_is_refused() {
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name);
    let model = folder("total_segmentator/weights/Dataset297_TotalSegmentator_total_3mm_1559subj");
    let start = open(&model);
    let all: BTreeSet<Adoption> = Adoption::ALL.into_iter().collect();
    let plans = model.join("nnUNetTrainer_4000epochs_NoMirroring__nnUNetPlans__3d_fullres/plans.json");
    let plans: Value = serde_json::from_slice(&std::fs::read(plans).unwrap()).unwrap();
    let configuration = &plans["configurations"]["3d_fullres"];
    let settings = start.complete(Settings::default(), &all).unwrap();
    assert_eq!(json!(settings.patch_size), configuration["patch_size"]);
    assert_eq!(json!(settings.spacing), configuration["spacing"]);
    assert_eq!(settings.network.net, Some(NetworkName::PlainConvUNet));
    assert_eq!(json!(settings.network.kernels), configuration["conv_kernel_sizes"]);
    assert_eq!((settings.learning_rate, settings.warmup_steps), (None, None), "its schedule is not a plan's");
    let NormalisationOf::Channels(ChannelNormalisation::Each { channels, foreground }) =
        start.normalisation(&all).unwrap().unwrap()
    else {
        panic!("the normalisation of each channel")
    };
    assert_eq!(json!(channels), configuration["normalization_schemes"]);
    assert_eq!(foreground.len(), channels.len());
    assert!(matches!(start.rule(StartOptions::default()), StartRule::Names { heads: HeadRule::New, .. }));
    let exchanged = open(&folder("nnunet/resenc_regions/results/Dataset102_Regions"));
    let error = exchanged.complete(Settings::default(), &BTreeSet::from([Adoption::Patch])).unwrap_err();
    assert!(error.to_string().contains("its plans exchange the axes of images"), "{error}");
    let folds = folder("nnunet/fullres/results/Dataset101_Fullres");
    let error = Start::open(&folds, &Budget::new(Bytes::mib(8))).unwrap_err().to_string();
    assert!(error.contains("it has 2 folds"), "{error}");
}
