//! MeshNets of TensorFlow.js: labels of an imported model equal PyTorch's, in the axes of brainchop's images.
//! `oracles/meshnets.py` made models, images and logits.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeError, VolumeFile, VolumeWriter};
use serde_json::Value;

fn oracle(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/meshnets").join(case)
}

/// Writes an image whose axes go to the left, downwards and forwards, the first of them the fastest.
fn write_image(path: &Path, values: &[f64], [left, down, forwards]: [usize; 3]) {
    let affine = Affine([[0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]]);
    let geometry = Geometry::new([forwards, down, left], affine).unwrap();
    let mut file = VolumeWriter::create(path, &geometry, 1, ElementType::F32, None).unwrap();
    let at = |l: usize, d: usize, f: usize| values[(l * down + d) * forwards + f] as f32;
    let voxels = (0..forwards).flat_map(|f| (0..down).flat_map(move |d| (0..left).map(move |l| at(l, d, f))));
    file.write_planes(&voxels.flat_map(f32::to_ne_bytes).collect::<Vec<u8>>()).unwrap();
    file.finish().unwrap();
}

#[test]
fn labels_of_an_imported_model_are_the_largest_logits_of_pytorch() {
    let expected = fs::read_to_string(oracle("gelu").join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let numbers = |key: &str| {
        expected[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (image, logits) = (numbers("image"), numbers("logits"));
    let extent = [0, 1, 2].map(|axis| expected["extent"][axis].as_u64().unwrap() as usize);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let imported = run_json(&["models", "import", oracle("gelu").to_str().unwrap(), "-o", &path("model")]);
    assert_eq!(imported["files"], 2);
    let lines = imported["models"][0]["lines"].to_string();
    // sha256sum oracles/meshnets/gelu/model.bin
    assert!(lines.contains("cef12d3ee2bf3c47c0eff30be782187d2d4ef3c6defbcb25f83bc6074f24605b"), "{lines}");
    // The oracle's image is not scaled, and no larger than its network's window is.
    let file = folder.path().join("model/model.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("ScaleIntensity", "none").replace("[256, 256, 256]", "[9, 10, 12]");
    fs::write(&file, text).unwrap();
    fs::create_dir(path("images")).unwrap();
    write_image(&folder.path().join("images/head_0000.nii.gz"), &image, extent);
    run_json(&[
        "predict",
        "-m",
        &path("model/model.toml"),
        "-i",
        &path("images"),
        "-o",
        &path("labels"),
        "--ram",
        "256MiB",
    ]);
    let mut written = VolumeFile::open(folder.path().join("labels/head.nii.gz")).unwrap();
    let mut labels = Vec::new();
    let visit = |_, plane: &[u8]| {
        labels.extend_from_slice(plane);
        Ok::<(), VolumeError>(())
    };
    written.for_each_plane(0, &Budget::new(Bytes::mib(4)), visit).unwrap();
    let [left, down, forwards] = extent;
    let voxels = left * down * forwards;
    let mut counts = [0; 3];
    for (place, label) in labels.iter().enumerate() {
        let (f, d, l) = (place / (down * left), place / left % down, place % left);
        let voxel = (l * down + d) * forwards + f;
        let largest =
            (0..3).max_by(|a, b| logits[a * voxels + voxel].total_cmp(&logits[b * voxels + voxel])).unwrap();
        assert_eq!(usize::from(*label), largest, "at {l} to the left, {d} down, {f} forwards");
        counts[largest] += 1;
    }
    assert!(labels.len() == voxels && counts.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn what_is_no_meshnet_is_refused_with_a_hint_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    fs::create_dir(path("changed")).unwrap();
    fs::copy(oracle("relu").join("model.bin"), path("changed/model.bin")).unwrap();
    let text = fs::read_to_string(oracle("relu").join("model.json")).unwrap();
    fs::write(path("changed/model.json"), text.replacen("Activation", "LSTM", 1)).unwrap();
    let error = run_error(&["models", "import", &path("changed"), "-o", &path("model")]);
    assert!(
        error.contains(
            "changed/model.json: layer `activation_0` is a LSTM; MeshNets have Conv3D and Activation"
        ),
        "{error}"
    );
    assert!(error.contains("hint: only MeshNets can be imported from TensorFlow.js"), "{error}");
    assert!(!folder.path().join("model").exists());
}
