//! A specification may come with a model from anywhere.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use plimsoll_run::{FoldName, RunFolder, Specification};
use serde_json::{Value, json};

/// Reads the valid specification with other values at some places.
fn read_with(changes: &[(&str, Value)]) -> Result<Specification, String> {
    let mut text: Value =
        serde_json::from_slice(include_bytes!("../seeds/specification/sound.json")).unwrap();
    for (place, value) in changes {
        *text.pointer_mut(place).unwrap() = value.clone();
    }
    let folder = tempfile::tempdir().unwrap();
    let fold = RunFolder::new(folder.path()).fold(FoldName::Number(0));
    std::fs::create_dir(fold.path()).unwrap();
    std::fs::write(fold.specification(), serde_json::to_vec(&text).unwrap()).unwrap();
    Specification::read(&fold).map_err(|error| error.to_string())
}

#[test]
fn a_specification_beyond_what_settings_may_say_is_refused_by_file_and_setting() {
    read_with(&[]).unwrap();
    let cases: [(&[(&str, Value)], &str); 9] = [
        (&[("/config/task/segmentation/dataset/file_ending", json!("/../../.bashrc"))], "`file_ending`"),
        (&[("/config/task/segmentation/dataset/labels/names", json!(["background"]))], "`classes`"),
        (&[("/config/task/segmentation/dataset/labels/ignore", json!(7))], "must be 2"),
        (&[("/config/task/segmentation/dataset/channels", json!([]))], "`channels`"),
        (&[("/config/training/patch", json!([4_000_000_000u64, 32, 32]))], "`patch_size`"),
        (&[("/config/training/batch", json!(0))], "`batch_size`"),
        (&[("/config/training/net/strides/1", json!([0, 2, 2]))], "`strides`"),
        (&[("/config/task/segmentation/spacing", json!([0.0, 1.5, 1.5]))], "`spacing`"),
        (&[("/cases/train/0", json!("../../elsewhere"))], "is not the name of a case"),
    ];
    for (changes, says) in cases {
        let said = read_with(changes).unwrap_err();
        assert!(said.contains("specification.json") && said.contains(says), "{changes:?}: {said}");
    }
}
