//! Reading data sets from their descriptions.

use std::fs;
use std::path::Path;

use crate::support::{Raw, grid, write_image};
use plimsoll_data::{Channel, Dataset, DatasetError, Normalisation};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::ElementType;
use serde_json::{Value, json};

fn touch(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, b"").unwrap();
}

/// Two channels, and the files of these cases.
fn raw(cases: &[&str]) -> Raw {
    let raw = Raw::new(&["CT", "PET"], json!({"background": 0, "organ": 1, "tumour": 2}));
    raw.set("numTraining", Some(cases.len().into()));
    for id in cases {
        touch(&raw.image(id, 0));
        touch(&raw.image(id, 1));
        touch(&raw.label(id));
    }
    raw
}

/// The error, which must have a hint and contain this text.
fn error_of(raw: &Raw, named: &str) -> DatasetError {
    let error = Dataset::open(raw.path()).unwrap_err();
    assert!(error.to_string().contains(named), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error
}

fn with_labels(labels: Value) -> Raw {
    let raw = raw(&["a"]);
    raw.set("labels", Some(labels));
    raw
}

#[test]
fn nnu_nets_layout_is_read() {
    let raw = raw(&["b", "a"]);
    raw.set("name", Some("Tumours".into()));
    touch(&raw.path().join("imagesTs/t_0000.nii.gz"));
    touch(&raw.path().join("imagesTs/t_0001.nii.gz"));
    touch(&raw.path().join("imagesTr/._a_0000.nii.gz"));
    let dataset = raw.open();
    assert_eq!(dataset.name, "Tumours");
    assert_eq!(dataset.labels.names(), ["background", "organ", "tumour"]);
    assert_eq!((dataset.labels.classes(), dataset.labels.ignore()), (3, None));
    let normalisations: Vec<Normalisation> = dataset.channels.iter().map(|c| c.normalisation).collect();
    assert_eq!(normalisations, [Normalisation::Ct, Normalisation::ZScore]);
    assert_eq!(dataset.cases.iter().map(|case| &*case.id).collect::<Vec<_>>(), ["a", "b"]);
    let case = &dataset.cases[1];
    assert_eq!(case.images[1].path, raw.image("b", 1));
    assert_eq!((case.images[1].index, case.label.as_deref()), (0, Some(&*raw.label("b"))));
    assert_eq!(case.files().count(), 3);
    assert_eq!(dataset.test_cases.len(), 1);
    assert_eq!(dataset.test_cases[0].label, None);
    assert_eq!(dataset.warnings, Vec::<String>::new());
}

#[test]
fn the_decathlons_layout_gives_the_same_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let description = json!({
        "name": "PROSTATE", "modality": {"1": "ADC", "0": "T2"}, "numTraining": 2,
        "labels": {"0": "background", "1": "PZ", "2": "TZ"},
        "training": [
            {"image": "./imagesTr/p_2.nii.gz", "label": "./labelsTr/p_2.nii.gz"},
            {"image": "./imagesTr/p_1.nii.gz", "label": "./labelsTr/p_1.nii.gz"},
        ],
        "test": ["./imagesTs/p_3.nii.gz"],
    });
    fs::write(folder.path().join("dataset.json"), description.to_string()).unwrap();
    for name in ["imagesTr/p_1", "labelsTr/p_1", "imagesTr/p_2", "labelsTr/p_2", "imagesTs/p_3"] {
        touch(&folder.path().join(format!("{name}.nii.gz")));
    }
    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!(dataset.channels.iter().map(|c| &*c.name).collect::<Vec<_>>(), ["T2", "ADC"]);
    assert_eq!(dataset.labels.names(), ["background", "PZ", "TZ"]);
    assert_eq!(dataset.file_ending, ".nii.gz");
    let case = &dataset.cases[0];
    assert_eq!(case.id, "p_1");
    assert_eq!(case.images.iter().map(|file| file.index).collect::<Vec<_>>(), [0, 1]);
    assert!(case.images.iter().all(|file| file.path == folder.path().join("imagesTr/p_1.nii.gz")));
    assert_eq!(case.files().count(), 2);
    assert_eq!(dataset.test_cases[0].id, "p_3");
    assert!(dataset.warnings.is_empty());

    fs::remove_file(folder.path().join("labelsTr/p_2.nii.gz")).unwrap();
    let error = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("case p_2 has no label map") && error.contains("labelsTr/p_2.nii.gz"), "{error}");
    fs::remove_file(folder.path().join("imagesTr/p_1.nii.gz")).unwrap();
    let error = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("case p_1 has no file for channel 0 (T2)"), "{error}");
    // The first version of nnU-Net listed images that are stored channel by channel.
    for name in ["imagesTr/p_1_0000", "imagesTr/p_1_0001", "labelsTr/p_2"] {
        touch(&folder.path().join(format!("{name}.nii.gz")));
    }
    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!(dataset.cases[0].images[1].path, folder.path().join("imagesTr/p_1_0001.nii.gz"));
}

#[test]
fn a_case_that_is_listed_twice_is_an_error() {
    let raw = raw(&["a"]);
    raw.set("channel_names", None);
    raw.set("modality", Some(json!({"0": "CT"})));
    let pair = json!({"image": "imagesTr/a.nii.gz", "label": "labelsTr/a.nii.gz"});
    raw.set("training", Some(json!([pair, pair])));
    touch(&raw.path().join("imagesTr/a.nii.gz"));
    error_of(&raw, "lists the case a twice");
}

/// A Decathlon description that lists this pair.
fn listing(image: &str, label: &str) -> Raw {
    let raw = raw(&["a"]);
    raw.set("channel_names", None);
    raw.set("modality", Some(json!({"0": "CT"})));
    raw.set("training", Some(json!([{"image": image, "label": label}])));
    touch(&raw.path().join("imagesTr/a.nii.gz"));
    raw
}

#[test]
fn a_list_that_leads_out_of_the_data_set_is_refused_by_name_and_links_in_it_are_followed() {
    let (image, label) = ("imagesTr/a.nii.gz", "labelsTr/a.nii.gz");
    let above = "./imagesTr/../../elsewhere/a.nii.gz";
    for (image, label, named) in
        [(above, label, above), ("/etc/passwd", label, "/etc/passwd"), (image, above, above)]
    {
        let error = error_of(&listing(image, label), &format!("dataset.json lists {named:?}"));
        assert!(matches!(error, DatasetError::Outside { .. }), "{error}");
    }
    for nameless in ["", ".nii.gz", "./"] {
        let error = error_of(&listing(nameless, label), "not the name of an image");
        assert!(matches!(error, DatasetError::NoName { .. }), "{error}");
    }
    let raw = listing("./imagesTr/linked.nii.gz", label);
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), raw.path().join("imagesTr/linked.nii.gz")).unwrap();
    assert_eq!(Dataset::open(raw.path()).unwrap().cases[0].id, "linked");
}

#[test]
fn a_folder_that_is_not_a_data_set_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let error = Dataset::open(empty.path()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} has no dataset.json", empty.path().display()));
    assert!(error.remedy().unwrap().contains("(raw/ and seg/)"));
    let missing = empty.path().join("nowhere");
    assert!(matches!(Dataset::open(missing), Err(DatasetError::NotAFolder { .. })));
    error_of(&raw(&[]), "imagesTr has no images with the ending `.nii.gz`");
}

#[test]
fn a_description_that_is_not_json_is_an_error_with_the_line() {
    let raw = raw(&["a"]);
    fs::write(raw.path().join("dataset.json"), "{\n  \"labels\": {,\n").unwrap();
    error_of(&raw, "line 2");
    fs::write(raw.path().join("dataset.json"), "{\"labels\": [1, 2]}").unwrap();
    error_of(&raw, "dataset.json cannot be read");
}

#[test]
fn a_missing_entry_is_named() {
    for key in ["labels", "channel_names", "file_ending"] {
        let raw = raw(&["a"]);
        raw.set(key, None);
        error_of(&raw, &format!("dataset.json has no entry `{key}`"));
    }
}

#[test]
fn a_missing_channel_is_named_with_the_case_and_the_number_of_others() {
    let raw = raw(&["a", "b", "c"]);
    fs::remove_file(raw.image("b", 1)).unwrap();
    error_of(&raw, "case b has no file for channel 1 (PET): ");
    fs::remove_file(raw.image("c", 0)).unwrap();
    let error = error_of(&raw, "imagesTr/b_0001.nii.gz is missing (and 1 more)");
    assert!(matches!(error, DatasetError::MissingChannel { channel: 1, others: 1, .. }));
}

#[test]
fn an_extra_channel_is_an_error() {
    let raw = raw(&["a"]);
    touch(&raw.image("a", 2));
    error_of(&raw, "a_0002.nii.gz is for channel 2, but there are only 2 channels");
}

#[test]
fn a_missing_label_map_is_named() {
    let raw = raw(&["a", "b"]);
    fs::remove_file(raw.label("b")).unwrap();
    error_of(&raw, "case b has no label map: ");
}

#[test]
fn harmless_irregularities_are_warnings() {
    let raw = raw(&["a"]);
    raw.set("numTraining", Some(7.into()));
    touch(&raw.path().join("imagesTr/overview.nii.gz"));
    touch(&raw.label("z"));
    let warnings = raw.open().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("`numTraining` is 7, but there are 1 cases")));
    assert!(warnings.iter().any(|text| text.contains("overview.nii.gz is left out")));
    assert!(warnings.iter().any(|text| text.contains("z.nii.gz is left out: there is no image")));
}

#[test]
fn channels_are_numbered_from_zero_without_gaps() {
    let raw = raw(&["a"]);
    raw.set("channel_names", Some(json!({"0": "CT", "2": "PET"})));
    error_of(&raw, "the channels are numbered 0, 2");
    raw.set("channel_names", Some(json!({"first": "CT"})));
    error_of(&raw, "numbered first");
}

#[test]
fn unsupported_endings_are_an_error() {
    let raw = raw(&["a"]);
    raw.set("file_ending", Some(".mnc".into()));
    error_of(&raw, "images with the ending `.mnc` are not supported");
}

#[test]
fn labels_may_be_written_in_several_ways() {
    let ways = [
        json!({"background": 0, "a": 1, "b": 2}),
        json!({"a": 1, "b": 2, "background": 0}),
        json!({"background": "0", "a": "1", "b": "2"}),
        json!({"background": [0], "a": [1], "b": [2]}),
        json!({"0": "background", "1": "a", "2": "b"}),
    ];
    for labels in ways {
        assert_eq!(with_labels(labels.clone()).open().labels.names(), ["background", "a", "b"], "{labels}");
    }
}

#[test]
fn the_ignore_label_is_numbered_last_and_is_not_a_class() {
    let labels = with_labels(json!({"background": 0, "a": 1, "ignore": 2})).open().labels;
    assert_eq!((labels.classes(), labels.ignore()), (2, Some(2)));
    assert!(labels.contains(2) && !labels.contains(3) && !labels.is_foreground(2) && labels.is_foreground(1));
    assert!(labels.file_values().is_none());
    let labels = with_labels(json!({"background": 0, "ignore": 1, "a": 200})).open().labels;
    assert_eq!((labels.classes(), labels.ignore()), (2, Some(2)));
    assert_eq!(labels.in_files(), [("background".into(), 0), ("a".into(), 200), ("ignore".into(), 1)]);
}

#[test]
fn labels_that_cannot_be_trained_on_are_an_error() {
    error_of(&with_labels(json!({"background": 0, "a": 1, "b": 1})), "`a` and `b` both have the value 1");
    error_of(&with_labels(json!({"background": 0, "a": 1, "2": "a"})), "the label `a` has the values");
    error_of(&with_labels(json!({"background": 0, "a": 256})), "the label `a` has the value 256");
    error_of(&with_labels(json!({"a": 1})), "no label has the value 0");
    error_of(&with_labels(json!({"background": 0, "a": 1.5})), "the label `a` is 1.5");
    error_of(&with_labels(json!({"background": 0, "a": -1})), "the label `a` is -1");
    error_of(&with_labels(json!({"background": 0, "a": null})), "the label `a` is null");
    let many = |count: usize| {
        let labels =
            (0..count).map(|i| (if i == 0 { "background".into() } else { i.to_string() + "x" }, i.into()));
        Value::Object(labels.collect())
    };
    assert_eq!(with_labels(many(255)).open().labels.classes(), 255);
    error_of(&with_labels(many(256)), "has 256 classes; at most 255 are supported");
}

fn channels(count: usize) -> Vec<Channel> {
    (0..count).map(|i| Channel { name: format!("c{i}"), normalisation: Normalisation::ZScore }).collect()
}

#[test]
fn images_to_predict_are_found_by_channels_or_file_by_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["x_0000.nii.gz", "x_0001.nii.gz", "y_0000.nii.gz", "y_0001.nii.gz", "notes.txt"] {
        touch(&at(name));
    }
    let cases = Dataset::images(folder.path(), &channels(2), ".nii.gz").unwrap();
    assert_eq!(cases.iter().map(|case| &*case.id).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(cases[1].images[1].path, at("y_0001.nii.gz"));

    touch(&at("z.nii.gz"));
    let error = Dataset::images(folder.path(), &channels(2), ".nii.gz").unwrap_err();
    assert!(error.to_string().contains("z.nii.gz is not named like a channel"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    touch(&folder.path().join("patient_1.nii"));
    touch(&folder.path().join("patient_0001.nii"));
    let cases = Dataset::images(folder.path(), &channels(1), ".nii").unwrap();
    assert_eq!(cases.iter().map(|case| &*case.id).collect::<Vec<_>>(), ["patient_0001", "patient_1"]);

    let one = folder.path().join("lung_0000.nii");
    touch(&one);
    let cases = Dataset::images(&one, &channels(1), ".nii").unwrap();
    assert_eq!((cases.len(), &*cases[0].id, &cases[0].images[0].path), (1, "lung", &one));
    let error = Dataset::images(folder.path().join("none"), &channels(1), ".nii").unwrap_err();
    assert!(matches!(error, DatasetError::Io { .. }) && error.remedy().is_some());
    let empty = tempfile::tempdir().unwrap();
    let error = Dataset::images(empty.path(), &channels(1), ".nii").unwrap_err();
    assert!(matches!(error, DatasetError::NoCases { .. }));
}

#[test]
fn a_fault_in_the_files_of_one_image_does_not_refuse_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a_0000", "a_0001", "b_0000", "c_0000", "c_0001", "c_0002", "d", "e_0000", "e_0001"];
    names.iter().for_each(|name| touch(&folder.path().join(format!("{name}.nii.gz"))));
    let found =
        Dataset::find_images(folder.path(), &channels(2), ".nii.gz", &Budget::new(Bytes::mib(64))).unwrap();
    assert_eq!(found.cases.iter().map(|case| &*case.id).collect::<Vec<_>>(), ["a", "e"]);
    let refused: Vec<(&str, String)> =
        found.refused.iter().map(|image| (&*image.case, image.error.to_string())).collect();
    assert_eq!(refused.iter().map(|(case, _)| *case).collect::<Vec<_>>(), ["d", "b", "c"]);
    for ((_, error), said) in
        refused.iter().zip(["not named like a channel", "b_0001.nii.gz is missing", "is for channel 2"])
    {
        assert!(error.contains(said), "{error}");
    }
    // Of pictures, one that lacks nothing does not say how the others are stored.
    let folder = tempfile::tempdir().unwrap();
    ["a_0000", "b_0000", "b_0001"].iter().for_each(|name| touch(&folder.path().join(format!("{name}.png"))));
    let found =
        Dataset::find_images(folder.path(), &channels(2), ".png", &Budget::new(Bytes::mib(64))).unwrap();
    let files: Vec<usize> = found.cases.iter().map(|case| case.image_files().count()).collect();
    assert!(files == [1, 2] && found.refused.is_empty(), "{found:?}");
    // Where none is left, the fault is the error.
    let folder = tempfile::tempdir().unwrap();
    touch(&folder.path().join("b_0000.nii.gz"));
    let error = Dataset::find_images(folder.path(), &channels(2), ".nii.gz", &Budget::new(Bytes::mib(64)))
        .unwrap_err();
    assert!(matches!(error, DatasetError::MissingChannel { .. }), "{error}");
}

#[test]
fn an_image_that_should_hold_all_channels_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.nii.gz");
    write_image(&path, &grid([2, 2, 2], [1.0; 3]), 2, ElementType::U8, &[0.0; 16]);
    let cases = Dataset::images(folder.path(), &channels(2), ".nii.gz").unwrap();
    assert_eq!(cases[0].images.iter().map(|file| file.index).collect::<Vec<_>>(), [0, 1]);
    let error = Dataset::images(folder.path(), &channels(3), ".nii.gz").unwrap_err();
    assert!(error.to_string().ends_with("p.nii.gz has 2 channels, but 3 are needed"), "{error}");
}
