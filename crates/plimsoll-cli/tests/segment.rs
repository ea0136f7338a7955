//! TotalSegmentator's tasks come to its own labels, with its own weights' format: `oracles/total_segmentator.py` has run it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::StoredVolume;

fn oracle(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/total_segmentator");
    folder.join(name).canonicalize().unwrap().to_str().unwrap().into()
}

fn labels(path: impl AsRef<Path>) -> Vec<u8> {
    let volume = StoredVolume::read(path, &Budget::new(Bytes::mib(16)), "test").unwrap();
    volume.bytes().to_vec()
}

/// At most one voxel in ten thousand differs.
fn expect_alike(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    let differ = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    assert!(differ * 10_000 <= expected.len(), "{differ} of {} voxels differ", expected.len());
}

/// Segments the image of the oracle with its weights.
fn segment<'a>(out: &'a str, rest: &[&'a str]) -> serde_json::Value {
    let (ct, weights) = (oracle("ct.nii.gz"), oracle("weights"));
    let args = ["segment", "total", "-i", &ct, "-o", out, "--weights", &weights, "--ram", "400MiB"];
    run_json(&[&args, rest].concat())
}

#[test]
fn labels_of_five_models_are_total_segmentators() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("total.nii.gz");
    let report = segment(out.to_str().unwrap(), &["--ml"]);
    let expected = labels(oracle("total.nii.gz"));
    expect_alike(&labels(&out), &expected);
    // The background, and labels of each of the five.
    assert!(expected.iter().collect::<std::collections::BTreeSet<_>>().len() > 15);
    // Memory was planned, and kept.
    let planned = report["images"][0]["planned_bytes"].as_u64().unwrap();
    assert!(planned <= 400 << 20 && report["peak_rss_bytes"].as_u64().unwrap() <= planned.max(64 << 20));
    // Nothing else is left, and what is there is kept.
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["total.nii.gz"]);
    let before = fs::metadata(&out).unwrap().modified().unwrap();
    let again = segment(out.to_str().unwrap(), &["--ml"]);
    assert_eq!(again["kept"][0].as_str().unwrap(), out.to_str().unwrap());
    assert_eq!(fs::metadata(&out).unwrap().modified().unwrap(), before);
}

#[test]
fn the_fast_model_and_masks_of_its_labels() {
    let dir = tempfile::tempdir().unwrap();
    segment(dir.path().to_str().unwrap(), &["--fast"]);
    let mut whole = vec![0u8; labels(oracle("fast.nii.gz")).len()];
    let names: Vec<String> = named_labels();
    for (value, name) in (1u8..).zip(&names) {
        let mask = labels(dir.path().join(format!("{name}.nii.gz")));
        for (label, voxel) in whole.iter_mut().zip(mask) {
            assert!(voxel <= 1);
            if voxel == 1 {
                assert_eq!(*label, 0, "{name} is where another label is");
                *label = value;
            }
        }
    }
    assert_eq!(names.len(), 117);
    expect_alike(&whole, &labels(oracle("fast.nii.gz")));
}

#[test]
fn a_subset_is_looked_for_where_a_coarse_model_finds_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("subset.nii.gz");
    segment(out.to_str().unwrap(), &["--ml", "--roi-subset", "liver,rib_left_1"]);
    expect_alike(&labels(&out), &labels(oracle("subset.nii.gz")));
}

/// The labels of the task, as they are listed.
fn named_labels() -> Vec<String> {
    let listed = run_json(&["segment", "--list", "--weights", &oracle("weights")]);
    let tasks = listed.as_array().unwrap();
    let total = tasks.iter().find(|task| task["task"] == "total").unwrap();
    assert_eq!(total["missing"].as_array().unwrap().len(), 0);
    assert!(tasks.iter().any(|task| task["missing"].as_array().unwrap().len() == 1));
    total["labels"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

#[test]
fn what_cannot_be_segmented_is_told_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.nii.gz");
    let (ct, weights, out_name) = (oracle("ct.nii.gz"), oracle("weights"), out.to_str().unwrap());
    let on = |task: &'static str, rest: &[&str]| {
        let args = ["segment", task, "-i", &ct, "-o", out_name, "--ml"];
        run_error(&[&args[..], rest].concat())
    };
    let with = ["--weights", weights.as_str()];
    let none = on("heart", &with);
    assert!(none.contains("`heart` is not a supported task"), "{none}");
    let missing = on("breasts", &with);
    assert!(
        missing.contains("Dataset527_*/nnUNetTrainer_DASegOrd0_NoMirroring__nnUNetPlans__3d_fullres"),
        "{missing}"
    );
    let nowhere = on("total", &["--weights", "/nowhere"]);
    assert!(nowhere.contains("/nowhere") && nowhere.contains("--weights"), "{nowhere}");
    let unknown = on("total", &[&with[..], &["--roi-subset", "livre"]].concat());
    assert!(unknown.contains("`livre` is not a label of total"), "{unknown}");
    let no_effect = on("breasts", &[&with[..], &["--roi-subset", "liver"]].concat());
    assert!(no_effect.contains("--roi-subset has no effect"), "{no_effect}");
    let only = on("lung_vessels", &[&with[..], &["--fast"]].concat());
    assert!(only.contains("has no fast models"), "{only}");
    let low = on("total", &[&with[..], &["--ram", "30MiB"]].concat());
    assert!(low.contains("hint: raise"), "{low}");
    let nowhere = on("total_v3", &[&with[..], &["--roi-subset", "vertebrae_L6"]].concat());
    assert!(nowhere.contains("`vertebrae_L6` cannot be selected"), "{nowhere}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // The image itself is no place for its labels, under whatever name.
    let scan = dir.path().join("scan.nii.gz");
    fs::copy(&ct, &scan).unwrap();
    fs::create_dir(dir.path().join("other")).unwrap();
    let by_another_name = dir.path().join("other/../scan.nii.gz");
    let args = [
        "segment",
        "total",
        "-i",
        scan.to_str().unwrap(),
        "-o",
        by_another_name.to_str().unwrap(),
        "--ml",
        "--overwrite",
    ];
    let refused = run_error(&[&args[..], &with].concat());
    assert!(refused.contains("would replace"), "{refused}");
    // A plan refuses what could not be done, in the same words.
    assert_eq!(run_error(&[&args[..], &with, &["--plan"]].concat()), refused);
    assert_eq!(on("total", &[&with[..], &["--roi-subset", "livre", "--plan"]].concat()), unknown);
    assert_eq!(fs::read(&scan).unwrap(), fs::read(&ct).unwrap());
}

#[test]
fn the_weights_are_found_where_total_segmentator_keeps_them() {
    let home = tempfile::tempdir().unwrap();
    let results: PathBuf = home.path().join("nnunet/results");
    fs::create_dir_all(results.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(oracle("weights"), &results).unwrap();
    let listed = |name: &str, value: &Path| {
        let mut command = plimsoll();
        for other in ["TOTALSEG_WEIGHTS_PATH", "TOTALSEG_HOME_DIR"] {
            command.env_remove(other);
        }
        let output = command.env(name, value).args(["segment", "--list"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let hidden = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(home.path(), hidden.path().join(".totalsegmentator")).unwrap();
    for (name, value) in
        [("TOTALSEG_WEIGHTS_PATH", &*results), ("TOTALSEG_HOME_DIR", home.path()), ("HOME", hidden.path())]
    {
        let text = listed(name, value);
        assert!(text.contains("total (Apache-2.0, 117 labels; all there)"), "{text}");
    }
}
