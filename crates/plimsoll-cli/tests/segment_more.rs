//! Tasks of TotalSegmentator's whose images nnU-Net resamples, or whose labels are changed after networks have decided, come to its own
//! labels: `oracles/total_segmentator_more.py` has run it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::StoredVolume;

fn oracle(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles");
    let path = match name {
        "ct.nii.gz" => folder.join("total_segmentator").join(name),
        name => folder.join("total_segmentator_more").join(name),
    };
    path.canonicalize().unwrap().to_str().unwrap().into()
}

fn labels(path: impl AsRef<Path>) -> Vec<u8> {
    StoredVolume::read(path, &Budget::new(Bytes::mib(16)), "test").unwrap().bytes().to_vec()
}

/// At most one voxel in ten thousand differs, and there is something to be found.
fn expect_alike(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    assert!(expected.iter().any(|label| *label != 0));
    let differ = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    assert!(differ * 10_000 <= expected.len(), "{differ} of {} voxels differ", expected.len());
}

/// Segments an image of the oracle with its weights.
fn segment(task: &str, image: &str, out: &Path, rest: &[&str]) -> serde_json::Value {
    let (image, weights) = (oracle(image), oracle("weights"));
    let out = out.to_str().unwrap();
    let args = ["segment", task, "-i", &image, "-o", out, "--weights", &weights, "--ram", "400MiB"];
    run_json(&[&args, rest].concat())
}

/// The label map of a task equals the oracle's, and nothing else is left beside it. Returns its values.
fn expect_labels(task: &str, image: &str, expected: &str, rest: &[&str]) -> BTreeSet<u8> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("labels.nii.gz");
    segment(task, image, &out, &[&["--ml"], rest].concat());
    let found = labels(&out);
    expect_alike(&found, &labels(oracle(expected)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    found.into_iter().collect()
}

#[test]
fn images_that_nnu_net_resamples_are_cut_in_their_own_grid() {
    // All folds that are there, two here, whose logits are averaged.
    let found =
        expect_labels("pleural_pericard_effusion", "ct.nii.gz", "pleural_pericard_effusion.nii.gz", &[]);
    assert_eq!(found.len(), 4);
}

#[test]
fn an_image_with_statistics_of_its_own_and_other_axes_loses_its_small_components() {
    expect_labels("hip_implant", "ct.nii.gz", "hip_implant.nii.gz", &["--remove-small-blobs", "900"]);
}

#[test]
fn the_body_has_one_trunk_and_no_small_extremities() {
    expect_labels("body", "ct.nii.gz", "body.nii.gz", &[]);
    expect_labels("body", "ct.nii.gz", "body_fast.nii.gz", &["--fast"]);
}

#[test]
fn masks_of_the_body_have_the_skin_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    segment("body", "ct.nii.gz", dir.path(), &["--fast"]);
    for name in ["body", "skin"] {
        let mask = labels(dir.path().join(format!("{name}.nii.gz")));
        expect_alike(&mask, &labels(oracle(&format!("mask_{name}.nii.gz"))));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    // What is missing of them is made, and else they are kept.
    let again = segment("body", "ct.nii.gz", dir.path(), &["--fast"]);
    assert_eq!(again["kept"].as_array().unwrap().len(), 1);
    fs::remove_file(dir.path().join("skin.nii.gz")).unwrap();
    let again = segment("body", "ct.nii.gz", dir.path(), &["--fast"]);
    assert_eq!(again["images"].as_array().unwrap().len(), 1);
    assert!(dir.path().join("skin.nii.gz").exists());
    let other = tempfile::tempdir().unwrap();
    segment("body", "ct.nii.gz", other.path(), &["--fast", "--no-derived-masks"]);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 2);
}

#[test]
fn an_image_is_cut_to_the_body_where_that_is_asked_for() {
    expect_labels("total", "ct.nii.gz", "body_seg.nii.gz", &["--fast", "--body-seg"]);
}

#[test]
fn small_components_of_all_labels_are_removed() {
    expect_labels("total", "ct.nii.gz", "blobs.nii.gz", &["--fast", "--remove-small-blobs"]);
}

/// Labels are decided like nnU-Net's, by interpolating all logits everywhere. TotalSegmentator interpolates them in a box around each
/// label; for `body` these are as large as the image, for `total` they are not, so its oracle is nnU-Net's own export.
#[test]
fn labels_are_decided_on_the_grid_of_the_image_where_that_is_asked_for() {
    expect_labels("body", "ct.nii.gz", "higher_order_body.nii.gz", &["--higher-order-resampling"]);
    expect_labels(
        "total",
        "ct.nii.gz",
        "higher_order_total.nii.gz",
        &["--fast", "--higher-order-resampling"],
    );
}

#[test]
fn a_task_is_cut_to_what_another_finds_that_is_cut_itself() {
    expect_labels("craniofacial_structures", "small.nii.gz", "craniofacial_structures.nii.gz", &[]);
    expect_labels("teeth", "small.nii.gz", "teeth.nii.gz", &[]);
    expect_labels("abdominal_muscles", "small.nii.gz", "abdominal_muscles.nii.gz", &[]);
}

#[test]
fn several_tasks_have_the_labels_of_each_alone_and_run_what_they_share_once() {
    let tasks = ["teeth", "craniofacial_structures", "body"];
    let dir = tempfile::tempdir().unwrap();
    let (all, alone) = (dir.path().join("all"), dir.path().join("alone"));
    let report = segment(&tasks.join(","), "small.nii.gz", &all, &["--ml"]);
    assert_eq!(report["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(
        report["images"].as_array().unwrap().iter().map(|image| &image["task"]).collect::<Vec<_>>(),
        tasks
    );
    // Nothing else is left.
    assert_eq!(fs::read_dir(&all).unwrap().count(), 3);
    for task in tasks {
        let name = format!("{task}.nii.gz");
        segment(task, "small.nii.gz", &alone.join(&name), &["--ml"]);
        assert_eq!(fs::read(all.join(&name)).unwrap(), fs::read(alone.join(&name)).unwrap(), "{task}");
    }
    // What exists is kept, and what is missing is made.
    fs::remove_file(all.join("body.nii.gz")).unwrap();
    let again = segment(&tasks.join(","), "small.nii.gz", &all, &["--ml"]);
    assert_eq!(
        (again["kept"].as_array().unwrap().len(), again["images"][0]["task"].as_str()),
        (2, Some("body"))
    );
    // Masks go into a folder of each.
    let masks = dir.path().join("masks");
    segment("teeth,body", "small.nii.gz", &masks, &[]);
    assert!(masks.join("body/skin.nii.gz").exists() && masks.join("teeth").is_dir());

    let (image, weights) = (oracle("small.nii.gz"), oracle("weights"));
    let args = ["-i", &image, "--ml", "--weights", &weights, "--ram", "400MiB"];
    let plan = run_json(&[&["segment", &tasks.join(","), "-o", "none", "--plan"], &args[..]].concat());
    let models: Vec<&str> =
        plan.as_array().unwrap().iter().map(|plan| plan["model"].as_str().unwrap()).collect();
    let expected = [
        "total, data set 298",
        "craniofacial_structures, data set 115",
        "teeth, data set 113",
        "body, data set 299",
    ];
    assert_eq!(models, expected);
    let refused = |task: &str, out: &str, rest: &[&str], expected: &str| {
        let error = run_error(&[&["segment", task, "-o", out], &args[..], rest].concat());
        assert!(error.contains(expected) && error.contains("hint: "), "{error}");
    };
    refused("body,body", "none", &[], "the task body is named twice");
    refused("total,total_mr", "none", &["--roi-subset", "liver"], "--roi-subset selects labels of one task");
    refused("total,body", "labels.nii.gz", &[], "several tasks write into a folder");
    refused("body,nothing", "none", &[], "`nothing`");
    refused("total_v3,body", "none", &["-ms", "small"], "--model-size has no effect with body");
    assert!(!Path::new("none").exists());
}

#[test]
fn vertebrae_are_numbered_and_refined() {
    let numbered = expect_labels("vertebrae_pp", "ct.nii.gz", "vertebrae_pp.nii.gz", &[]);
    assert!(numbered.len() > 3, "{numbered:?}");
    expect_labels("vertebrae_pp_refined", "ct.nii.gz", "vertebrae_pp_refined.nii.gz", &[]);
}

#[test]
fn all_stages_of_a_task_are_planned() {
    let (image, weights) = (oracle("small.nii.gz"), oracle("weights"));
    let plan = |task: &str, ram: &str| {
        let args = ["segment", task, "-i", &image, "-o", "none.nii.gz", "--ml", "--weights", &weights];
        run_json(&[&args[..], &["--ram", ram, "--plan"]].concat())
    };
    let models = |plan: &serde_json::Value| -> Vec<String> {
        let plans = plan.as_array().unwrap().iter();
        plans.map(|plan| plan["model"].as_str().unwrap().to_string()).collect()
    };
    let teeth = plan("teeth", "400MiB");
    assert_eq!(
        models(&teeth),
        ["total, data set 298", "craniofacial_structures, data set 115", "teeth, data set 113"]
    );
    let refined = plan("vertebrae_pp_refined", "400MiB");
    assert_eq!(models(&refined), ["vertebrae_pp_refined, data set 803", "vertebrae_body, data set 305"]);
    assert!(refined[0]["cases"][0]["least_ram_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn options_without_effect_and_licensed_tasks_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.nii.gz");
    let (image, weights, out) = (oracle("ct.nii.gz"), oracle("weights"), out.to_str().unwrap());
    let refused = |task: &str, rest: &[&str], expected: &str| {
        let args = ["segment", task, "-i", &image, "-o", out, "--ml", "--weights", &weights];
        let error = run_error(&[&args[..], rest].concat());
        assert!(error.contains(expected) && error.contains("hint: "), "{error}");
    };
    refused("heartchambers_highres", &[], "the weights of heartchambers_highres need a licence");
    refused("total", &["--force-split"], "--force-split has no effect");
    refused("total", &["-ro", "3"], "-ro is not supported: images are resampled linearly");
    refused("total", &["-ot", "dicom_rtstruct"], "-ot is not needed: the name of the output says");
    refused("body", &["-ms", "small"], "--model-size has no effect with body");
    refused("hip_implant", &["-ho"], "--higher-order-resampling has no effect with hip_implant");
    refused("breasts", &["-rsr", "liver"], "--roi-subset-robust has no effect with breasts");
    refused("hip_implant", &["--body-seg"], "--body-seg has no effect with hip_implant");
    refused("total_mr", &["--body-seg"], "--body-seg has no effect with total_mr");
    refused("body", &["--robust-crop"], "--robust-crop has no effect with body: the image is not cropped");
    refused("teeth", &["--robust-crop"], "craniofacial_structures finds the region of interest");
    refused("body", &["--remove-small-blobs", "0"], "a volume in mm³ above 0");
    refused("body", &["--ram", "30MiB"], "hint: raise");
    // The smaller networks of total_v3 are looked for under their own name, and those that find where to look under the usual one.
    refused(
        "total_v3",
        &["-ms", "small"],
        "Dataset831_*/nnUNetTrainerNoMirroring__nnUNetResEncUNetLPlans_8__3d_fullres",
    );
    refused("total_v3", &["-ms", "small", "--fast", "-rs", "spleen"], "nnUNetResEncUNetLPlans_8");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
