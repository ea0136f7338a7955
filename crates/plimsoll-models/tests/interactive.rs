//! Model folders of nnInteractive, and what is refused of them by name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::ModelError;
use plimsoll_models::nnunet::{ChannelPair, InteractiveModel, is_interactive};
use serde_json::{Value, json};

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nninteractive/model")
}

fn open(folder: &Path) -> Result<InteractiveModel, ModelError> {
    InteractiveModel::open(folder, None, &Budget::new(Bytes::mib(64)))
}

/// A copy of the oracle's model.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("fold_0")).unwrap();
    for file in
        ["plans.json", "dataset.json", "inference_info.json", "LICENSE", "fold_0/checkpoint_final.pth"]
    {
        fs::copy(oracle().join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// Changes a value of a JSON file, by its pointer.
fn change(folder: &Path, file: &str, pointer: &str, value: Value) {
    let mut json: Value = serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    json.pointer_mut(parent).unwrap()[key] = value;
    fs::write(folder.join(file), json.to_string()).unwrap();
}

/// The error of a folder, which has a remedy.
fn refused(folder: &Path) -> String {
    let error = open(folder).map(|_| ()).unwrap_err();
    assert!(error.remedy().is_some(), "{error}");
    error.to_string()
}

#[test]
fn a_folder_is_the_model_that_its_files_describe() {
    assert!(is_interactive(&oracle()) && !is_interactive(oracle().parent().unwrap()));
    let model = open(&oracle()).unwrap();
    assert_eq!(model.patch(), [72, 80, 76]);
    assert_eq!((model.channels.count, model.channels.previous), (7, 0));
    assert_eq!(model.channels.flat_box, Some(ChannelPair { include: 1, exclude: 2 }));
    assert_eq!(model.channels.point, Some(ChannelPair { include: 3, exclude: 4 }));
    // Written as -2 and -1.
    assert_eq!(model.channels.scribble, Some(ChannelPair { include: 5, exclude: 6 }));
    assert_eq!(model.channels.solid_box, None);
    assert_eq!((model.prompts.point_radius, model.prompts.decay), (4, 0.9));
    assert_eq!(model.license.as_deref(), Some("CC0 1.0"));
    assert_eq!(model.network.channels.len(), 8);
}

#[test]
fn folders_from_before_the_second_version_have_its_defaults() {
    let folder = copy();
    fs::remove_file(folder.path().join("inference_info.json")).unwrap();
    fs::remove_file(folder.path().join("LICENSE")).unwrap();
    fs::write(folder.path().join("inference_session_class.json"), "\"nnInteractiveInferenceSessionV3\"")
        .unwrap();
    let model = open(folder.path()).unwrap();
    assert_eq!((model.prompts.decay, model.prompts.point_radius, model.license), (0.9, 4, None));
    let text = r#"{"point_radius": 3, "preferred_scribble_thickness": 1.5, "interaction_decay": 0.5}"#;
    fs::write(folder.path().join("inference_session_class.json"), text).unwrap();
    let model = open(folder.path()).unwrap();
    assert_eq!((model.prompts.decay, model.prompts.point_radius), (0.5, 3));
    assert_eq!(model.prompts.scribble_thickness, [1.5; 3]);
    assert_eq!(model.channels.scribble, Some(ChannelPair { include: 5, exclude: 6 }));
    // The official model had no file of its licence.
    change(folder.path(), "plans.json", "/dataset_name", json!("Dataset225_nnInteractiveV2"));
    assert_eq!(open(folder.path()).unwrap().license, None);
}

#[test]
fn missing_and_truncated_files_are_named() {
    let folder = copy();
    let checkpoint = folder.path().join("fold_0/checkpoint_final.pth");
    let weights = fs::read(&checkpoint).unwrap();
    fs::write(&checkpoint, &weights[..weights.len() / 2]).unwrap();
    assert!(refused(folder.path()).contains("checkpoint_final.pth"));
    fs::remove_file(&checkpoint).unwrap();
    assert!(refused(folder.path()).contains("has no checkpoint_final.pth"));
    fs::remove_file(folder.path().join("inference_info.json")).unwrap();
    assert!(refused(folder.path()).contains("it has no inference_info.json"));
    let folder = copy();
    fs::create_dir(folder.path().join("fold_1")).unwrap();
    fs::copy(oracle().join("fold_0/checkpoint_final.pth"), folder.path().join("fold_1/checkpoint_final.pth"))
        .unwrap();
    assert!(refused(folder.path()).contains("has several folds: fold_0, fold_1"));
    let one = "1".parse().ok();
    assert!(InteractiveModel::open(folder.path(), one, &Budget::new(Bytes::mib(64))).is_ok());
}

#[test]
fn descriptions_that_no_session_follows_are_refused_by_name() {
    let cases = [
        ("inference_info.json", "/inference_class", json!("OtherSession"), "inference_class"),
        (
            "inference_info.json",
            "/inference_class_min_version",
            json!("2.6.1"),
            "newest supported version is 2.6.0",
        ),
        ("inference_info.json", "/pad_mode_image", json!("reflect"), "pad_mode_image"),
        ("inference_info.json", "/interaction_decay", json!(0.0), "above 0 and at most 1"),
        ("inference_info.json", "/point_radius", json!(1000), "point_radius"),
        ("inference_info.json", "/interaction_channels", json!(3), "the model has 4 channels of prompts"),
        ("inference_info.json", "/channel_mapping/points", json!([1]), "points"),
        (
            "inference_info.json",
            "/channel_mapping/hearing",
            json!([1, 2]),
            "unknown channel of prompts `hearing`",
        ),
        ("inference_info.json", "/supported_interactions/hearing", json!(true), "unknown prompt `hearing`"),
        ("dataset.json", "/channel_names/1", json!("T2"), "takes images of 2 channels"),
        (
            "plans.json",
            "/configurations/3d_fullres_small/patch_size",
            json!([48, 80, 76]),
            "three extents of 49 at least",
        ),
    ];
    for (file, pointer, value, says) in cases {
        let folder = copy();
        change(folder.path(), file, pointer, value);
        let error = refused(folder.path());
        assert!(error.contains(says), "{error}");
    }
}
