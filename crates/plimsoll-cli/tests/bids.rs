//! Predictions of a data set of BIDS are a derivative data set of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use serde_json::Value;

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A data set with images of these names, which are two different ones in turn.
fn data_set(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("dataset_description.json"),
        r#"{"Name": "Scans", "BIDSVersion": "1.9.0", "DatasetDOI": "doi:10.0/x"}"#,
    )
    .unwrap();
    for (number, name) in names.iter().enumerate() {
        let to = dir.path().join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let from = ["first", "second"][number % 2];
        fs::copy(oracles().join(format!("nnunet/flat/images/{from}_0000.nii.gz")), to).unwrap();
    }
    dir
}

fn model() -> PathBuf {
    oracles().join("nnunet/flat/results/Dataset103_Flat/nnUNetTrainer__nnUNetPlans__2d")
}

fn arguments<'a>(model: &'a Path, input: &'a Path, output: &'a Path, bids: &'a str) -> [&'a str; 10] {
    ["predict", "-m", text(model), "-i", text(input), "-o", text(output), "--ram", "1GiB", bids]
}

#[test]
fn labels_of_subjects_and_sessions_are_a_derivative_data_set() {
    let dir = data_set(&[
        "sub-01/ses-a/anat/sub-01_ses-a_T1w.nii.gz",
        "sub-01/ses-b/anat/sub-01_ses-b_run-2_T1w.nii.gz",
        "sub-02/anat/sub-02_T1w.nii.gz",
        "sub-02/anat/sub-02_FLAIR.nii.gz",
    ]);
    let (model, out) = (model(), dir.path().join("derivatives/plimsoll"));
    let flat = dir.path().join("flat");
    let first = dir.path().join("sub-01/ses-a/anat/sub-01_ses-a_T1w.nii.gz");
    run_json(&["predict", "-m", text(&model), "-i", text(&first), "-o", text(&flat), "--ram", "1GiB"]);
    let report = run_json(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    assert_eq!(report["cases"].as_array().unwrap().len(), 3);

    let labels = [
        "sub-01/ses-a/anat/sub-01_ses-a_desc-plimsoll_dseg.nii.gz",
        "sub-01/ses-b/anat/sub-01_ses-b_run-2_desc-plimsoll_dseg.nii.gz",
        "sub-02/anat/sub-02_desc-plimsoll_dseg.nii.gz",
    ];
    assert!(labels.iter().all(|name| out.join(name).is_file()), "{report}");
    let scores = run_json(&[
        "evaluate",
        text(&out.join(labels[0])),
        text(&flat.join("sub-01_ses-a_T1w.nii.gz")),
        "--labels",
        "1,2",
    ]);
    assert!(scores.to_string().contains("1.0"), "{scores}");

    // What BIDS requires of derivatives: a name, a version, what made them; and a table of labels, which names the same files.
    let described = json_of(&out.join("dataset_description.json"));
    assert_eq!(described["DatasetType"], "derivative");
    assert_eq!(described["Name"], "Labels of Scans");
    assert!(described["BIDSVersion"].is_string());
    assert_eq!(described["GeneratedBy"][0]["Name"], "Plimsoll");
    assert_eq!(described["SourceDatasets"][0]["DOI"], "doi:10.0/x");
    let table = fs::read_to_string(out.join("desc-plimsoll_dseg.tsv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(&lines[..2], ["index\tname", "0\tbackground"]);
    assert!(lines[2].starts_with("1\t") && lines.len() > 2, "{table}");
    assert_eq!(json_of(&out.join("desc-plimsoll_dseg.json"))["Manual"], false);

    // What is there is kept, and is no reference of the data set.
    let again = run_json(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    assert_eq!(again["kept"].as_array().unwrap().len(), 3);
    let error = run_error(&["inspect", text(dir.path())]);
    assert!(error.contains("no label maps are among its derivatives"), "{error}");
}

#[test]
fn a_source_may_have_no_description_but_none_that_cannot_be_read() {
    let dir = data_set(&["sub-01/anat/sub-01_T1w.nii.gz"]);
    let (model, out) = (model(), dir.path().join("derivatives/plimsoll"));
    let description = dir.path().join("dataset_description.json");
    for text in [&b"{\"Name\": \"Scans\""[..], b"", b"{\"Name\": \"\xff\"}"] {
        fs::write(&description, text).unwrap();
        let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T1w"));
        assert!(error.contains(&format!("{} is not valid JSON: ", description.display())), "{error}");
        assert!(error.contains("hint: correct it: it gives the name and the DOI"), "{error}");
        assert!(!out.exists(), "nothing is written before");
    }
    fs::remove_file(&description).unwrap();
    fs::create_dir(&description).unwrap();
    let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    assert!(error.contains(&format!("error: {}: ", description.display())) && !out.exists(), "{error}");
    // Its folder has a name as well.
    fs::remove_dir(&description).unwrap();
    run_json(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    let described = json_of(&out.join("dataset_description.json"));
    let folder = dir.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(described["Name"], format!("Labels of {folder}"));
    assert!(described.get("SourceDatasets").is_none(), "{described}");
}

#[test]
fn a_cascade_finds_the_labels_of_its_earlier_stage_by_their_names() {
    let dir = data_set(&["sub-01/anat/sub-01_T1w.nii.gz"]);
    let image = dir.path().join("sub-01/anat/sub-01_T1w.nii.gz");
    fs::copy(oracles().join("nnunet/cascade/images/first_0000.nii.gz"), &image).unwrap();
    let results = oracles().join("nnunet/cascade/results/Dataset105_Cascade");
    let model = results.join("nnUNetTrainer__nnUNetPlans__3d_cascade_fullres");
    let (flat, out) = (dir.path().join("flat"), dir.path().join("derivatives/plimsoll"));
    run_json(&["predict", "-m", text(&model), "-i", text(&image), "-o", text(&flat), "--ram", "1GiB"]);
    run_json(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    let name = "sub-01/anat/sub-01_desc-plimsoll_dseg.nii.gz";
    let expected = fs::read(flat.join("sub-01_T1w.nii.gz")).unwrap();
    assert!(fs::read(out.join(name)).unwrap() == expected);
    assert!(out.join("3d_lowres").join(name).is_file());
    assert!(fs::read_to_string(out.join(".bidsignore")).unwrap().contains("3d_lowres/"));
    // Labels that are given have such names, too.
    let (earlier, again) = (out.join("3d_lowres"), dir.path().join("derivatives/again"));
    let mut args = arguments(&model, dir.path(), &again, "--bids=T1w").to_vec();
    args.extend(["-prev_stage_predictions", text(&earlier)]);
    run_json(&args);
    assert!(fs::read(again.join(name)).unwrap() == expected);
}

#[test]
fn images_whose_labels_would_be_one_file_are_refused() {
    let model = model();
    for [one, other] in [
        ["sub-01/anat/sub-01_desc-a_T1w.nii.gz", "sub-01/anat/sub-01_desc-b_T1w.nii.gz"],
        ["sub-01/anat/sub-01_T1w.nii", "sub-01/anat/sub-01_T1w.nii.gz"],
    ] {
        let dir = data_set(&[one, other]);
        let out = dir.path().join("derivatives/plimsoll");
        let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T1w"));
        assert!(error.contains(one) && error.contains(other), "{error}");
        assert!(error.contains("in one file, sub-01/anat/sub-01_desc-plimsoll_dseg"), "{error}");
        assert!(!out.exists());
    }
}

#[test]
fn steps_on_labels_leave_those_before_in_a_folder_that_validators_pass_over() {
    let dir = data_set(&["sub-01/anat/sub-01_T1w.nii.gz"]);
    let steps = dir.path().join("steps.toml");
    fs::write(&steps, "[[steps]]\nstep = \"keep_largest\"\nlabels = [1]\n").unwrap();
    let out = dir.path().join("derivatives/plimsoll");
    let model = model();
    let mut args = arguments(&model, dir.path(), &out, "--bids=T1w").to_vec();
    args.extend(["--postprocessing", text(&steps)]);
    run_json(&args);
    let name = "sub-01/anat/sub-01_desc-plimsoll_dseg.nii.gz";
    assert!(out.join(name).is_file() && out.join("unprocessed").join(name).is_file());
    assert!(fs::read_to_string(out.join(".bidsignore")).unwrap().contains("unprocessed/"));
}

#[test]
fn what_is_not_there_or_of_another_program_is_refused() {
    let dir = data_set(&["sub-01/anat/sub-01_T1w.nii.gz"]);
    let (model, out) = (model(), dir.path().join("derivatives/other"));
    let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T2w"));
    assert!(error.contains("sub-*_T2w") && error.contains("--bids"), "{error}");
    let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T1w,T2w"));
    assert!(error.contains("2 suffixes") && error.contains("1 channels"), "{error}");
    fs::create_dir_all(&out).unwrap();
    let theirs = r#"{"Name": "x", "BIDSVersion": "1.9.0", "GeneratedBy": [{"Name": "fMRIPrep"}]}"#;
    fs::write(out.join("dataset_description.json"), theirs).unwrap();
    let error = run_error(&arguments(&model, dir.path(), &out, "--bids=T1w"));
    assert!(error.contains("a data set written by another program"), "{error}");
}
