//! Weights as a file that the networks' authors load.

use std::fs;
use std::path::Path;

use crate::support::{Tiny, dataset, run_error, run_json, small_run};
use plimsoll_nn::weights::SafetensorsFile;

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
    args.extend(["--start", &out]);
    run_json(&args);

    let error = run_error(&["export", &run, "-o", &out]);
    assert!(error.contains("weights.safetensors already exists") && error.contains("--overwrite"), "{error}");
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
    assert!(error.contains("already exists"), "{error}");
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
    assert!(error.contains("already exists"), "{error}");

    // A fold by its number is that fold by its folder; weights of graphs that are replaced go with them.
    let whole = fs::read(tiny.path("model.onnx")).unwrap();
    let again = ["export", &run, "--fold", "0", "-o", &graph, "--format", "onnx", "--overwrite"];
    run_json(&again);
    assert_eq!(fs::read(tiny.path("model.onnx")).unwrap(), whole);
    let report = run_json(&[&again[..], &["--external-data"]].concat());
    let data = report["data"].as_str().unwrap().to_string();
    assert!(
        fs::metadata(&data).unwrap().len() > 1000 && fs::metadata(&graph).unwrap().len() < whole.len() as u64
    );
    run_json(&again);
    assert!(!Path::new(&data).exists());
    assert_eq!(fs::read(tiny.path("model.onnx")).unwrap(), whole);
    let error = run_error(&["export", &fold, "-o", &path("model.safetensors"), "--external-data"]);
    assert!(error.contains("--external-data has no effect"), "{error}");

    // DynUNet is none of nnU-Net's networks.
    tiny.trained(&tiny.path("dynunet"), &["--skip-validation"]);
    let error = run_error(&["export", &path("dynunet"), "-o", &path("no"), "--format", "nnunet"]);
    assert!(error.contains("dynunet is a network that nnU-Net does not have"), "{error}");
    assert!(!tiny.path("no").exists());
}

#[test]
fn models_of_others_leave_as_graphs_too() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name).to_str().unwrap().to_string()
    };
    let to = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let onnx = |model: &str, name: &str, rest: &[&str]| {
        let args = ["export", model, "-o", &to(name), "--format", "onnx"];
        [&args[..], rest].concat().into_iter().map(String::from).collect::<Vec<String>>()
    };
    let run = |args: Vec<String>| run_json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |args: Vec<String>| run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let nnunet = oracle("nnunet/fullres/results/Dataset101_Fullres/nnUNetTrainer__nnUNetPlans__3d_fullres");
    let error = refused(onnx(&nnunet, "nnunet.onnx", &[]));
    assert!(error.contains("has 2 folds") && error.contains("--fold"), "{error}");
    let report = run(onnx(&nnunet, "nnunet.onnx", &["--fold", "1"]));
    // Two channels, and a window of three axes.
    assert_eq!((report["image"][0].as_u64(), report["image"].as_array().unwrap().len()), (Some(2), 4));
    for model in ["swinunetr/model.toml", "unet/model.toml", "bundle"] {
        let report = run(onnx(&oracle(&format!("monai/{model}")), "monai.onnx", &["--overwrite"]));
        assert!(report["nodes"].as_u64().unwrap() > 10, "{model}: {report}");
    }
    let error = refused(onnx(&oracle("monai/unet/model.toml"), "no.onnx", &["--fold", "0"]));
    assert!(error.contains("models of MONAI have no folds"), "{error}");
    let mut left: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["monai.onnx", "nnunet.onnx"]);
}
