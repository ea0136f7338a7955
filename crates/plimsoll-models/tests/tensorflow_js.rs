//! MeshNets of TensorFlow.js become models whose logits are those that PyTorch computes as brainchop does, and what is none is refused.
//! `oracles/meshnets.py` made the models and the numbers.
#![allow(clippy::expect_used, clippy::unwrap_used)] // Test helpers may panic as well.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_graph::{Array, DType, Kind, Program, Shape, interpret};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{ModelError, OpenOptions, OpenedModel, SegmentationModel, WindowLayout, tensorflow_js};
use plimsoll_nn::weights::SafetensorsFile;
use plimsoll_nn::{ForwardMode, names};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    /// Along the axes of the image: to the left, downwards, forwards.
    extent: [usize; 3],
    image: Vec<f64>,
    logits: Vec<f64>,
}

fn oracle(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/meshnets").join(case)
}

fn budget() -> Budget {
    Budget::new(Bytes(256 << 20))
}

/// Imports a model and opens it.
fn imported(from: &Path, to: &Path) -> Result<SegmentationModel, ModelError> {
    let file = tensorflow_js::find(from)?.expect("a model of TensorFlow.js");
    let imported = tensorflow_js::import(&file, to, &budget())?;
    OpenedModel::open(&imported.model, &OpenOptions::default(), &budget())?.into_segmentation()
}

/// The place in an image whose axes go to the right, forwards and upwards, of a voxel of one whose axes go to the left, downwards and forwards.
fn canonical([left, down, forwards]: [usize; 3], extent: [usize; 3]) -> [usize; 3] {
    [extent[0] - 1 - left, forwards, extent[1] - 1 - down]
}

/// A volume of some channels, turned to canonical axes or back.
fn turn(values: &[f64], extent: [usize; 3], is_back: bool) -> Vec<f64> {
    let voxels: usize = extent.iter().product();
    let mut turned = vec![0.0; values.len()];
    for (number, value) in (0..values.len()).map(|number| (number, values[number])) {
        let (channel, voxel) = (number / voxels, number % voxels);
        let from = [voxel / (extent[1] * extent[2]), voxel / extent[2] % extent[1], voxel % extent[2]];
        let [x, y, z] = canonical(from, extent);
        let to = channel * voxels + (x * extent[2] + y) * extent[1] + z;
        match is_back {
            false => turned[to] = value,
            true => turned[number] = values[to],
        }
    }
    turned
}

#[test]
fn logits_are_those_of_the_network_in_its_own_axes() {
    for (case, margin) in [("relu", Some(7)), ("elu", Some(5)), ("gelu", None)] {
        let expected = fs::read_to_string(oracle(case).join("expected.json")).unwrap();
        let Expected { extent, image, logits } = serde_json::from_str(&expected).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let model = imported(&oracle(case), &folder.path().join("model")).unwrap();
        let windows = margin.map_or(WindowLayout::Fixed { overlap: [0.0; 3], sigma_scale: None }, |margin| {
            WindowLayout::Interior { margin, extent: [256; 3] }
        });
        assert_eq!((model.windows, model.patch), (windows, [256; 3]), "{case}");
        assert_eq!(model.outputs, ["background", "white", "grey"]);
        let mut program = Program::new("forward");
        let shape = Shape::volume(1, 1, [extent[0], extent[2], extent[1]]);
        let input = program.input(names::IMAGE, shape.clone(), Kind::Volume);
        let mode = ForwardMode { training: false, precision: DType::F32 };
        let output = model.net.forward(&mut program, input, mode).unwrap()[0];
        let mut file = SafetensorsFile::open(&folder.path().join("model/model.safetensors")).unwrap();
        let parameters = program.ids().map(|id| program.tensor(id)).filter(|info| info.role.is_persistent());
        let mut held = HashMap::new();
        for info in parameters {
            let mut values = vec![0.0f32; info.shape.count()];
            file.read(&info.name, &info.shape, &mut values).unwrap();
            held.insert(info.name.clone(), Array::from_fn(info.shape.clone(), |i| values[i].into()));
        }
        let turned = turn(&image, extent, false);
        held.insert(names::IMAGE.into(), Array::from_fn(shape, |i| turned[i]));
        let results = interpret(&program, &held).unwrap();
        let found = turn(&results[output.index()].data, extent, true);
        let furthest =
            found.iter().zip(&logits).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
        assert!(found.len() == logits.len() && furthest < 1e-5, "{case}: off by {furthest:e}");
    }
}

/// A copy of a model, with a text of its description replaced.
fn changed(folder: &Path, from: &str, to: &str) -> PathBuf {
    let copy = folder.join("changed");
    fs::create_dir_all(&copy).unwrap();
    for name in ["model.bin", "colormap.json"] {
        fs::copy(oracle("relu").join(name), copy.join(name)).unwrap();
    }
    let text = fs::read_to_string(oracle("relu").join("model.json")).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(copy.join("model.json"), text.replacen(from, to, 1)).unwrap();
    copy
}

#[test]
fn other_topologies_and_files_are_refused_by_what_is_wrong_and_leave_nothing() {
    for (from, to, expected) in [
        (r#""class_name": "Activation""#, r#""class_name": "Dropout""#, "is a Dropout"),
        (r#""activation": "relu""#, r#""activation": "selu""#, "`selu` is not relu, elu or gelu"),
        (r#""activation": "relu""#, r#""activation": "elu""#, "differs from the first layer's"),
        (r#""strides": [1, 1, 1]"#, r#""strides": [2, 1, 1]"#, "only 1 is supported"),
        (r#""dilation_rate": [4, 4, 4]"#, r#""dilation_rate": [4, 4, 2]"#, "must be alike"),
        (r#""dilation_rate": [4, 4, 4]"#, r#""dilation_rate": [0, 0, 0]"#, "at least 1"),
        (r#""dilation_rate": [4, 4, 4]"#, r#""dilation_rate": [9999, 9999, 9999]"#, "`dilations` is 9999"),
        (r#""filters": 5"#, r#""filters": 6"#, "but its layer needs"),
        (r#""filters": 5"#, r#""filters": 18446744073709551615"#, "`features`"),
        (r#""kernel_size": [3, 3, 3]"#, r#""kernel_size": [5, 5, 5]"#, "a kernel of 5×5×5, but 3×3×3"),
        (r#""padding": "same""#, r#""padding": "valid""#, "padding valid"),
        (r#"[["input", 0, 0, {}]]"#, r#"[["input", 0, 0, {}], ["output", 0, 0, {}]]"#, "no chain"),
        (r#""use_bias": true"#, r#""use_bias": false"#, "have no biases"),
        (r#""name": "conv3d_0/kernel", "#, r#""name": "other/kernel", "#, "no tensor `conv3d_0/kernel`"),
        (r#""dtype": "float32"}"#, r#""dtype": "float16"}"#, "is of float16"),
        (r#""dtype": "float32"}"#, r#""dtype": "float32", "quantization": {}}"#, "quantization"),
        (
            r#""shape": [3, 3, 3, 1, 5]"#,
            r#""shape": [3, 3, 3, 1, 6]"#,
            "bytes of weights, but its description says",
        ),
        (
            r#""shape": [3, 3, 3, 1, 5]"#,
            r#""shape": [9223372036854775807, 9, 1, 1, 1]"#,
            "more numbers than can be counted",
        ),
        (r#""paths": ["model.bin"]"#, r#""paths": ["../model.bin"]"#, "which is no file beside it"),
        (r#""paths": ["model.bin"]"#, r#""paths": ["missing.bin"]"#, "missing.bin"),
        (r#""weightsManifest""#, r#""manifest""#, "weightsManifest"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = changed(folder.path(), from, to);
        let error = imported(&model, &folder.path().join("to")).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
        assert!(!folder.path().join("to").exists(), "{to}");
    }
}

#[test]
fn weights_that_are_cut_off_or_no_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = changed(folder.path(), "relu", "relu");
    let weights = model.join("model.bin");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() - 1]).unwrap();
    let error = imported(&model, &folder.path().join("to")).unwrap_err();
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("download")), "{error}");
    let mut infinite = whole;
    infinite[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    fs::write(&weights, infinite).unwrap();
    let error = imported(&model, &folder.path().join("to")).unwrap_err();
    assert!(error.to_string().contains("has the number inf"), "{error}");
}

#[test]
fn licences_are_copied_and_existing_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let model = changed(folder.path(), "relu", "relu");
    fs::write(folder.path().join("LICENSE"), "Permission is granted").unwrap();
    let to = folder.path().join("to");
    let file = tensorflow_js::find(&model).unwrap().unwrap();
    let first = tensorflow_js::import(&file, &to, &budget()).unwrap();
    assert_eq!(fs::read_to_string(first.licence.unwrap()).unwrap(), "Permission is granted");
    // sha256sum oracles/meshnets/relu/model.bin
    assert_eq!(first.sha256, "2851a899e1fb3a7c364d25203ab09cf2f7877e581752d501a48d1f6e594dc602");
    let before = fs::read(&first.model).unwrap();
    let error = tensorflow_js::import(&file, &to, &budget()).unwrap_err();
    assert!(error.to_string().ends_with("already exists"), "{error}");
    assert_eq!(fs::read(&first.model).unwrap(), before);
    // Other files are none of these.
    assert_eq!(tensorflow_js::find(&model.join("model.bin")).unwrap(), None);
    assert_eq!(tensorflow_js::find(&to).unwrap(), None);
}

#[test]
fn a_budget_without_room_is_an_error() {
    let file = tensorflow_js::find(&oracle("elu")).unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error =
        tensorflow_js::import(&file, &folder.path().join("to"), &Budget::new(Bytes(1000))).unwrap_err();
    assert!(error.to_string().contains("model.json"), "{error}");
    assert!(!folder.path().join("to").exists());
}
