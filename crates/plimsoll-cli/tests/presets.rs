//! Presets of nnU-Net, by name.

use std::fs;

use serde_json::{Value, json};

use crate::support::{dataset, run_error, run_json};

#[test]
fn a_preset_chooses_network_patch_and_batch_and_settings_take_precedence() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let plan = |more: &[&str]| {
        let start = ["plan", data.to_str().unwrap(), "--ram", "8GiB", "--config", "/dev/null"];
        run_json(&[&start[..], more].concat())
    };
    let own = plan(&["--preset", "resenc-m"]);
    let asked = &own["preset"];
    assert_eq!((&asked["preset"], &asked["configuration"]), (&json!("resenc-m"), &json!("3d_fullres")));
    assert_eq!((&own["patch_size"], &own["batch_size"]), (&asked["patch_size"], &asked["batch_size"]));
    let plain = plan(&["--preset", "nnunet"]);
    let parameters = |plan: &Value| plan["parameters"].as_u64().unwrap();
    assert!(parameters(&own) > parameters(&plain), "{own} {plain}");
    // What the preset asks for is reported beside what runs.
    let more = ["--preset", "resenc-m", "--patch-size", "16,16,16", "--features", "8,16", "--net", "resenc"];
    let changed = plan(&more);
    assert_eq!((&changed["preset"], &changed["patch_size"]), (asked, &json!([16, 16, 16])));
    assert!(parameters(&changed) < parameters(&own), "{changed}");
    let slices = plan(&["--preset", "resenc-m", "--dimensions", "2", "--batch-size", "2"]);
    assert_eq!((&slices["preset"]["configuration"], &slices["batch_size"]), (&json!("2d"), &json!(2)));
    assert_eq!(plan(&["--patch-size", "16,16,16"])["preset"], Value::Null);
}

#[test]
fn settings_that_contradict_a_preset_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let refused = |more: &[&str]| {
        let start = ["plan", data.to_str().unwrap(), "--ram", "8GiB", "--config", "/dev/null"];
        run_error(&[&start[..], more].concat())
    };
    for (more, says) in [
        (&["--preset", "resenc-s"][..], "[possible values: nnunet, resenc-m, resenc-l, resenc-xl]"),
        (
            &["--preset", "resenc-l", "--net", "plain"],
            "`net` is plain, but the preset `resenc-l` is of `resenc`",
        ),
        (&["--lowres"], "`lowres` is true, but only a `preset` has a low resolution"),
        (&["--preset", "nnunet", "--lowres"], "nnunet has no 3d_lowres for this data set"),
        (&["--preset", "nnunet", "--lowres", "--dimensions", "2"], "no low resolution of slices"),
        (&["--preset", "nnunet", "--lowres", "--spacing", "2,2,2"], "the preset chooses the spacing"),
    ] {
        let error = refused(more);
        assert!(error.contains(says), "{more:?}: {error}");
    }
    let settings = dir.path().join("settings.toml");
    fs::write(&settings, "preset = \"resenc-s\"\n").unwrap();
    let error = run_error(&["plan", data.to_str().unwrap(), "--config", settings.to_str().unwrap()]);
    assert!(error.contains("unknown variant `resenc-s`, expected one of `nnunet`"), "{error}");
    // Images with one label each have no patches.
    let classes = dir.path().join("classes");
    let images = plimsoll_data::pictures::phantom::PhantomImages { images: [2, 1, 1], side: 40, seed: 2 };
    plimsoll_data::pictures::phantom::write(&classes, &images).unwrap();
    let error = run_error(&["plan", classes.to_str().unwrap(), "--ram", "1GiB", "--preset", "resenc-m"]);
    assert!(error.contains("`preset` is set, but it has no effect here"), "{error}");
}
