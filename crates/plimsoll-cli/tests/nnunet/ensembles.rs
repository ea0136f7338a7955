//! Several models, and the mean of their probabilities.

use std::fs;
use std::path::{Path, PathBuf};

use super::{SAME, agreement, model, oracles, text};
use crate::support::{plimsoll, run_error, run_json};

/// The folders below a folder, in order.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Copies a model's first fold into a folder, with other labels in its description.
fn copied(from: &Path, copy: PathBuf, labels: &str) -> PathBuf {
    fs::create_dir_all(copy.join("fold_0")).unwrap();
    for file in ["plans.json", "fold_0/checkpoint_final.pth"] {
        fs::copy(from.join(file), copy.join(file)).unwrap();
    }
    let description = fs::read_to_string(from.join("dataset.json")).unwrap();
    let start = description.find("\"labels\"").unwrap();
    let end = start + description[start..].find('}').unwrap() + 1;
    let changed = [&description[..start], "\"labels\": ", labels, &description[end..]].concat();
    fs::write(copy.join("dataset.json"), changed).unwrap();
    copy
}

#[test]
fn several_models_label_by_the_mean_of_their_probabilities_as_nnu_net_does() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (oracles().join("cascade/images"), dir.path().join("out"));
    let (low, full) = (model("cascade", "3d_lowres"), model("cascade", "3d_fullres"));
    let args = ["predict", "-m", text(&low), "-m", text(&full), "-i", text(&images), "-o", text(&out)];
    let predict = |more: &[&str]| run_json(&[&args[..], &["--ram", "1GiB"], more].concat());
    let report = predict(&[]);
    assert_eq!((report["folds"].as_u64(), report["cases"].as_array().unwrap().len()), (Some(2), 1));
    let expected = oracles().join("cascade/expected");
    let shares = agreement(&out, &expected.join("ensemble"));
    println!("cascade ensemble: {shares:?} of voxels as nnU-Net");
    assert!(shares.iter().all(|share| *share >= SAME), "{shares:?}");
    // Neither of the two alone has these labels.
    for alone in ["3d_lowres", "3d_fullres"] {
        assert!(agreement(&out, &expected.join(alone))[0] < SAME, "{alone}");
    }
    // Each model has left its labels, and no probabilities.
    let own = folders_in(&out);
    let names: Vec<&str> = own.iter().map(|folder| folder.file_name().unwrap().to_str().unwrap()).collect();
    assert!(own.len() == 2 && names[0].starts_with("nnUNetTrainer__nnUNetPlans__3d_fullres."), "{names:?}");
    let file = |number: usize, name: &str| own[number].join(name);
    assert!(agreement(&own[0], &expected.join("3d_fullres_f32"))[0] >= SAME);
    assert!(!file(0, "first.npz").exists() && !file(1, "first.npz").exists());

    // What is there is kept, and nothing is predicted for it.
    let first = fs::read(out.join("first.nii.gz")).unwrap();
    let report = predict(&[]);
    assert_eq!((report["kept"].as_array().unwrap().len(), &report["cases"]), (1, &serde_json::json!([])));
    assert!(!file(0, "first.npz").exists());
    // Probabilities that are asked for and are not there are predicted; with them alone the mean is made again, in whichever order.
    let report = predict(&["--save_probabilities"]);
    assert!(
        report["cases"][0]["plan"].is_object()
            && file(0, "first.npz").exists()
            && file(1, "first.npz").exists()
    );
    fs::remove_file(out.join("first.nii.gz")).unwrap();
    let turned = ["predict", "-m", text(&full), "-m", text(&low), "-i", text(&images), "-o", text(&out)];
    let report = run_json(&[&turned[..], &["--save_probabilities"]].concat());
    assert!(report["cases"][0]["plan"].is_null(), "{report}");
    assert_eq!(fs::read(out.join("first.nii.gz")).unwrap(), first);
    // Of one model they are missing: it alone predicts again.
    fs::remove_file(out.join("first.nii.gz")).unwrap();
    fs::remove_file(file(1, "first.npz")).unwrap();
    let report = predict(&[]);
    assert!(report["cases"][0]["plan"].is_object(), "{report}");
    assert_eq!(fs::read(out.join("first.nii.gz")).unwrap(), first);
    assert!(!file(0, "first.npz").exists() && !file(1, "first.npz").exists());
    let report = predict(&["--overwrite"]);
    assert_eq!(report["cases"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read(out.join("first.nii.gz")).unwrap(), first);
}

#[test]
fn a_cascade_among_several_models_has_its_earlier_stage_in_a_folder_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (oracles().join("cascade/images"), dir.path().join("out"));
    let (full, later) = (model("cascade", "3d_fullres"), model("cascade", "3d_cascade_fullres"));
    let args = ["predict", "-m", text(&full), "-m", text(&later), "-i", text(&images), "-o", text(&out)];
    // They are planned as they are predicted: the earlier stage before the model that takes its labels.
    let plans = run_json(&[&args[..], &["--ram", "1GiB", "--plan"]].concat());
    let planned: Vec<&str> =
        plans.as_array().unwrap().iter().map(|plan| plan["model"].as_str().unwrap()).collect();
    assert_eq!(planned.len(), 3, "{planned:?}");
    for (name, ending) in planned.iter().zip(["__3d_fullres", "__3d_lowres", "__3d_cascade_fullres"]) {
        assert!(name.ends_with(ending), "{planned:?}");
    }
    assert!(!out.exists());
    run_json(&[&args[..], &["--ram", "1GiB"]].concat());
    let expected = oracles().join("cascade/expected");
    let of_later =
        folders_in(&out).into_iter().find(|folder| text(folder).contains("3d_cascade_fullres")).unwrap();
    assert!(agreement(&of_later, &expected.join("3d_cascade_fullres_f32"))[0] >= SAME);
    assert!(agreement(&of_later.join("3d_lowres"), &expected.join("3d_lowres_f32"))[0] >= SAME);
    assert!(out.join("first.nii.gz").is_file());
}

#[test]
fn models_of_other_channels_labels_or_regions_are_not_averaged() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (oracles().join("cascade/images"), dir.path().join("out"));
    let low = model("cascade", "3d_lowres");
    let refused = |one: &Path, other: &Path, more: &[&str]| {
        let args = ["predict", "-m", text(one), "-m", text(other), "-i", text(&images), "-o", text(&out)];
        let error = run_error(&[&args[..], more].concat());
        assert!(!out.exists(), "{error}");
        assert!(error.contains(text(one)) && error.contains(text(other)), "{error}");
        error
    };
    let error = refused(&low, &model("fullres", "3d_fullres"), &[]);
    assert!(error.contains("channels are T1 and CT, T1"), "{error}");
    // The same number of labels, but not in the same order.
    let other = copied(&low, dir.path().join("other"), r#"{"background": 0, "core": 1, "shell": 2}"#);
    let error = refused(&low, &other, &[]);
    assert!(
        error.contains("background, shell, core") && error.contains("background, core, shell"),
        "{error}"
    );
    // Outputs of regions are in the order of the file.
    let regions = model("resenc_regions", "3d_fullres");
    let other = copied(
        &regions,
        dir.path().join("regions"),
        r#"{"background": 0, "core": [2, 3], "whole": [1, 2, 3], "seed": 3}"#,
    );
    let error = refused(&regions, &other, &[]);
    assert!(
        error.contains("whole [1, 2, 3], core [2, 3]") && error.contains("core [2, 3], whole"),
        "{error}"
    );
    assert!(refused(&low, &low, &[]).contains("named twice"));
    let full = model("cascade", "3d_fullres");
    let error = refused(&low, &full, &["-prev_stage_predictions", text(&images)]);
    assert!(error.contains("has no effect"), "{error}");
}

#[test]
fn the_mean_of_equal_region_models_has_the_labels_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (oracles().join("resenc_regions/images"), dir.path().join("out"));
    let one = model("resenc_regions", "3d_fullres");
    let labels = r#"{"background": 0, "whole": [1, 2, 3], "core": [2, 3], "seed": 3}"#;
    let other = copied(&one, dir.path().join("other"), labels);
    let args = ["predict", "-m", text(&one), "-m", text(&other), "-i", text(&images), "-o", text(&out)];
    run_json(&[&args[..], &["--ram", "1GiB"]].concat());
    let shares = agreement(&out, &oracles().join("resenc_regions/expected/3d_fullres_f32"));
    assert!(shares.len() == 2 && shares.iter().all(|share| *share >= SAME), "{shares:?}");
}

#[test]
fn probabilities_that_cannot_be_read_are_an_error_of_their_case() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (dir.path().join("images"), dir.path().join("out"));
    fs::create_dir(&images).unwrap();
    for case in ["damaged", "sound"] {
        let to = images.join(format!("{case}_0000.nii.gz"));
        fs::copy(oracles().join("cascade/images/first_0000.nii.gz"), to).unwrap();
    }
    let (low, full) = (model("cascade", "3d_lowres"), model("cascade", "3d_fullres"));
    let args = ["predict", "-m", text(&low), "-m", text(&full), "-i", text(&images), "-o", text(&out)];
    run_json(&[&args[..], &["--save_probabilities"]].concat());
    for case in ["damaged", "sound"] {
        fs::remove_file(out.join(format!("{case}.nii.gz"))).unwrap();
    }
    let file = folders_in(&out)[0].join("damaged.npz");
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1000).unwrap();
    let output = plimsoll().args(args).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && errors.contains("1 of 2 cases") && errors.contains(text(&file)),
        "{errors}"
    );
    assert!(errors.contains("hint: remove this file"), "{errors}");
    assert!(out.join("sound.nii.gz").is_file() && !out.join("damaged.nii.gz").exists());
    fs::remove_file(&file).unwrap();
    let report = run_json(&args);
    assert_eq!(report["cases"][0]["case"], "damaged");
    assert_eq!(fs::read(out.join("sound.nii.gz")).unwrap(), fs::read(out.join("damaged.nii.gz")).unwrap());
}
