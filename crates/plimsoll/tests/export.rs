//! Weights as a file that the networks' authors load.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;

use plimsoll_nn::weights::SafetensorsFile;
use support::{Tiny, dataset, run_error, run_json, small_run};

/// A residual U-Net, whose authors' state dict lists most tensors two or four times.
#[test]
fn a_file_has_every_name_of_the_authors_and_trains_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (data, run, out) = (data.to_str().unwrap().to_string(), path("run"), path("weights.safetensors"));
    let mut args = small_run(&data, &run);
    args.retain(|arg| !["--dropout", "0.1"].contains(arg));
    let net = args.iter().position(|arg| *arg == "dynunet").unwrap();
    args[net] = "resenc";
    run_json(&args);
    let report = run_json(&["export", &run, "-o", &out]);
    let mut own =
        SafetensorsFile::open(&dir.path().join("run/fold_all/checkpoint_final.safetensors")).unwrap();
    let mut file = SafetensorsFile::open(&dir.path().join("weights.safetensors")).unwrap();
    let tensors: Vec<_> = file.tensors().map(|(name, shape)| (name.to_string(), shape)).collect();
    let (count, duplicates) = (report["tensors"].as_u64().unwrap(), report["duplicates"].as_u64().unwrap());
    assert_eq!(tensors.len() as u64, count + duplicates);
    assert!(count > 20 && duplicates > count, "{report}");
    for (name, of) in [
        ("encoder.stem.convs.0.conv.weight", "encoder.stem.convs.0.conv.weight"),
        ("encoder.stem.convs.0.all_modules.0.weight", "encoder.stem.convs.0.conv.weight"),
        ("decoder.encoder.stem.convs.0.conv.weight", "encoder.stem.convs.0.conv.weight"),
        ("decoder.encoder.stem.convs.0.all_modules.1.bias", "encoder.stem.convs.0.norm.bias"),
        ("decoder.stages.0.convs.0.all_modules.0.weight", "decoder.stages.0.convs.0.conv.weight"),
    ] {
        let shape = own.shape(of).unwrap_or_else(|| panic!("no {of}"));
        let (mut found, mut expected) = (vec![0.0; shape.count()], vec![0.0; shape.count()]);
        file.read(name, &shape, &mut found).unwrap();
        own.read(of, &shape, &mut expected).unwrap();
        assert_eq!(found, expected, "{name}");
    }
    assert!(tensors.iter().all(|(name, _)| !name.contains('/')));
    // What is written can be trained on, and nothing in it is left over.
    let again = path("again");
    let mut args: Vec<&str> =
        args.iter().map(|arg| if *arg == run { again.as_str() } else { *arg }).collect();
    args.extend(["--weights", &out]);
    run_json(&args);

    let error = run_error(&["export", &run, "-o", &out]);
    assert!(
        error.contains("weights.safetensors is there already") && error.contains("--overwrite"),
        "{error}"
    );
    run_json(&["export", &run, "-o", &out, "--overwrite"]);
    let error = run_error(&["export", &run, "-o", &path("weights.pth")]);
    assert!(error.contains("does not end in .safetensors"), "{error}");
    let latest = dir.path().join("run/fold_all/checkpoint_final.safetensors");
    let length = fs::metadata(&latest).unwrap().len();
    let mut bytes = fs::read(&latest).unwrap();
    bytes[length as usize - 5] ^= 1;
    fs::write(&latest, bytes).unwrap();
    let error = run_error(&["export", &run, "-o", &path("other.safetensors")]);
    assert!(
        error.contains("checkpoint_final.safetensors") && !dir.path().join("other.safetensors").exists(),
        "{error}"
    );
}

#[test]
fn a_run_leaves_as_a_folder_of_nnunet_and_as_a_graph() {
    let tiny = Tiny::new();
    let path = |name: &str| tiny.path(name).to_str().unwrap().to_string();
    let (run, images) = (path("run"), tiny.data.join("imagesTs").to_str().unwrap().to_string());
    tiny.trained(&tiny.path("run"), &["--net", "plain", "--folds", "0,1", "--skip-validation"]);
    let (folder, graph) = (path("made/model"), path("model.onnx"));
    let report = run_json(&["export", &run, "-o", &folder, "--format", "nnunet"]);
    assert_eq!(
        (report["folds"].as_array().unwrap().len(), &report["configuration"]),
        (2, &"3d_fullres".into())
    );
    let readme = fs::read_to_string(tiny.path("made/model/README.md")).unwrap();
    assert!(readme.contains(" -o LABELS -f 0 1\n") && readme.contains("-p nnUNetPlans -f 0 1`"), "{readme}");
    for difference in report["differences"].as_array().unwrap() {
        assert!(readme.contains(difference.as_str().unwrap()), "{difference}");
    }
    // Both predict images of the data set; the folder as nnU-Net does it.
    let report = run_json(&["predict", &folder, "-i", &images, "-o", &path("labels"), "--ram", "512MiB"]);
    assert_eq!(report["folds"], 2);
    let error = run_error(&["export", &run, "-o", &folder, "--format", "nnunet"]);
    assert!(error.contains("is there already"), "{error}");
    let error = run_error(&["export", &run, "-o", &path("other"), "--format", "nnunet", "--overwrite"]);
    assert!(error.contains("--overwrite has no effect"), "{error}");

    let error = run_error(&["export", &run, "-o", &graph, "--format", "onnx"]);
    assert!(error.contains("has 2 folds"), "{error}");
    let fold = path("run/fold_0");
    let report = run_json(&["export", &fold, "-o", &graph, "--format", "onnx"]);
    assert!(
        report["nodes"].as_u64().unwrap() > 10 && report["image"].as_array().unwrap().len() == 4,
        "{report}"
    );
    let error = run_error(&["export", &fold, "-o", &path("model.safetensors"), "--format", "onnx"]);
    assert!(error.contains("does not end in .onnx"), "{error}");
    let error = run_error(&["export", &fold, "-o", &graph, "--format", "onnx"]);
    assert!(error.contains("is there already"), "{error}");

    // DynUNet is none of nnU-Net's networks.
    tiny.trained(&tiny.path("dynunet"), &["--skip-validation"]);
    let error = run_error(&["export", &path("dynunet"), "-o", &path("no"), "--format", "nnunet"]);
    assert!(error.contains("dynunet is a network that nnU-Net does not have"), "{error}");
    assert!(!tiny.path("no").exists());
}
