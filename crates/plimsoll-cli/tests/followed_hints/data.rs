//! Hints about data sets, splits, pictures and predictions.

use std::fs;
use std::path::Path;

use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, StoredVolume, VolumeWriter};
use serde_json::{Value, json};

use super::{ended, expect_accepted, flags, hint, with, words};
use crate::support::Tiny;

pub(super) fn inspect(data: &Path) -> Vec<String> {
    words(&["inspect", data.to_str().unwrap(), "--config", "/dev/null", "--threads", "1"])
}

/// Breaks a data set, expects an error whose hint says something, does that, and expects that the data set is accepted.
pub(super) fn expect_mended(what: &str, args: &[String], says: &[&str], mend: impl FnOnce()) {
    let said = hint(args);
    assert!(says.iter().all(|part| said.contains(part)), "{what}: {said}");
    mend();
    expect_accepted(args, &format!("{what}: {said}"));
}

#[test]
fn what_is_proposed_for_a_description_is_accepted() {
    let tiny = Tiny::new();
    let path = tiny.data.join("dataset.json");
    let original: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let args = inspect(&tiny.data);
    let write = |key: &str, value: Value| {
        let mut changed = original.clone();
        match value {
            Value::Null => drop(changed.as_object_mut().unwrap().remove(key)),
            value => changed[key] = value,
        }
        fs::write(&path, changed.to_string()).unwrap();
    };
    let labels = |text: &str| write("labels", serde_json::from_str(text).unwrap());
    // What is written, what the hint says, and what that means here.
    for (what, key, wrong, says, right) in [
        (
            "no background",
            "labels",
            json!({"vessel": 1}),
            &["add \"background\": 0"][..],
            json!({"background": 0, "vessel": 1}),
        ),
        (
            "a text",
            "labels",
            json!({"background": 0, "vessel": "one"}),
            &["{\"background\": 0, \"vessel\": 1}"],
            json!({"background": 0, "vessel": 1}),
        ),
        (
            "one value twice",
            "labels",
            json!({"background": 0, "vessel": 1, "other": 1}),
            &["its own name and value"],
            json!({"background": 0, "vessel": 1, "other": 2}),
        ),
        ("a channel 1", "channel_names", json!({"1": "CT"}), &["{\"0\": \"T1\""], json!({"0": "CT"})),
        ("another ending", "file_ending", json!(".jpg2"), &[".nii.gz"], json!(".nii.gz")),
        ("no channels", "channel_names", Value::Null, &["`channel_names`"], json!({"0": "CT"})),
        (
            "regions without an order",
            "labels",
            json!({"background": 0, "organ": [1, 2], "tumour": 2}),
            &["\"organ\": [1, 2], \"tumour\": 2", "\"regions_class_order\": [1, 2]"],
            Value::Null,
        ),
    ] {
        write(key, wrong.clone());
        expect_mended(what, &args, says, || match right {
            Value::Null => {
                let mut changed = original.clone();
                changed["labels"] = wrong;
                changed["regions_class_order"] = json!([1, 2]);
                fs::write(&path, changed.to_string()).unwrap();
            }
            right => write(key, right),
        });
    }
    // A value that no label can have: in the description, and in a label map.
    labels("{\"background\": 0, \"vessel\": 300}");
    expect_mended("300 in the description", &args, &["renumber 300 as a number from 1 to 255"], || {
        labels("{\"background\": 0, \"vessel\": 1}");
    });
}

/// Gives the last voxel of a label map a value, as 16 bits.
fn set_last_voxel(path: &Path, value: u16) {
    let volume = StoredVolume::read(path, &Budget::new(Bytes::mib(8)), "test").unwrap();
    let mut labels: Vec<u8> = match volume.element_type() {
        ElementType::U8 => volume.bytes().iter().flat_map(|label| u16::from(*label).to_le_bytes()).collect(),
        _ => volume.bytes().to_vec(),
    };
    let end = labels.len() - 2;
    labels[end..].copy_from_slice(&value.to_le_bytes());
    let mut writer = VolumeWriter::create(path, volume.geometry(), 1, ElementType::U16, None).unwrap();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
}

#[test]
fn what_is_proposed_for_files_of_a_data_set_is_accepted() {
    let tiny = Tiny::new();
    let args = inspect(&tiny.data);
    let (image, label) = (
        |name: &str| tiny.data.join("imagesTr").join(name),
        |name: &str| tiny.data.join("labelsTr").join(name),
    );
    let problem = |hint: &str| {
        let ended = ended(&args);
        assert!(ended.status != Some(0) && ended.printed.contains(hint), "{ended:?}");
    };
    let description = tiny.data.join("dataset.json");
    let text = fs::read_to_string(&description).unwrap();
    let add_label =
        || fs::write(&description, text.replace("\"vessel\": 1", "\"vessel\": 1, \"more\": 2")).unwrap();
    // A value that dataset.json lacks: it is added.
    set_last_voxel(&label("vessel_000.nii.gz"), 2);
    problem("or add the label to dataset.json");
    add_label();
    expect_accepted(&args, "the label is added");
    // One above 255 cannot be added: it is renumbered.
    set_last_voxel(&label("vessel_000.nii.gz"), 300);
    problem("renumber 300 as a number from 1 to 255 in the label map");
    set_last_voxel(&label("vessel_000.nii.gz"), 2);
    expect_accepted(&args, "300 is renumbered as 2");
    // An image more, of a channel that is not described.
    fs::copy(image("vessel_000_0000.nii.gz"), image("vessel_000_0001.nii.gz")).unwrap();
    expect_mended("a channel more", &args, &["or remove the file"], || {
        fs::remove_file(image("vessel_000_0001.nii.gz")).unwrap();
    });
    // A label map that is not there.
    fs::remove_file(label("vessel_002.nii.gz")).unwrap();
    expect_mended("no label map", &args, &["remove the case's images to leave it out"], || {
        fs::remove_file(image("vessel_002_0000.nii.gz")).unwrap();
    });
}

#[test]
fn what_is_proposed_for_folds_is_accepted() {
    let tiny = Tiny::new();
    let splits = tiny.path("splits.json");
    let train = |run: &str, more: &[&str]| -> Vec<String> {
        let command = tiny.train(&tiny.path(run), &[&["--epochs", "1", "--skip-validation"], more].concat());
        command.get_args().map(|arg| arg.to_str().unwrap().to_string()).collect()
    };
    let given = ["--splits", splits.to_str().unwrap()];
    let write = |train: &[&str], val: &[&str]| {
        fs::write(&splits, json!([{ "train": train, "val": val }]).to_string()).unwrap();
    };
    let right = || write(&["vessel_000", "vessel_001"], &["vessel_002"]);
    for (run, train_cases, val_cases, says) in [
        ("unknown", &["vessel_000", "vessel_009"][..], &["vessel_002"][..], "correct the name"),
        ("twice", &["vessel_000", "vessel_000"], &["vessel_002"], "remove one of the two"),
        ("both", &["vessel_000", "vessel_002"], &["vessel_002"], "remove it from one of the two"),
    ] {
        write(train_cases, val_cases);
        expect_mended(run, &train(run, &given), &[says], right);
    }
    let said = hint(&train("far", &["--fold", "9"]));
    assert!(said.contains("choose one of them, or `all`"), "{said}");
    expect_accepted(&train("far", &["--fold", "all"]), &said);
    // A fold without validation cases.
    write(&["vessel_000", "vessel_001"], &[]);
    let said = hint(&train("empty", &given));
    assert!(said.contains("use fold `all`"), "{said}");
    expect_accepted(&train("empty", &["--fold", "all"]), &said);
    // Folds as some editors of Windows save them.
    right();
    let marked = format!("\u{feff}{}", fs::read_to_string(&splits).unwrap());
    fs::write(&splits, marked).unwrap();
    expect_accepted(&train("marked", &given), "a byte order mark");
    // A file that is no list of folds: without it, folds are made.
    fs::write(&splits, "{").unwrap();
    let said = hint(&train("no", &given));
    assert!(said.contains("remove the file to have the folds created again"), "{said}");
    fs::remove_file(&splits).unwrap();
    expect_accepted(&train("no", &[]), &said);
}

#[test]
fn what_is_proposed_for_predictions_is_accepted() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0", "--skip-validation"]);
    let images = tiny.data.join("imagesTs");
    let predict = |out: &Path, more: &[&str]| {
        let place =
            ["predict", run.to_str().unwrap(), "-i", images.to_str().unwrap(), "-o", out.to_str().unwrap()];
        words(&[&place[..], &["--threads", "1"], more].concat())
    };
    // Labels in the folder of the images.
    let said = hint(&predict(&images, &["--ram", "512MiB"]));
    assert!(said.contains("name a folder outside of all inputs with --output"), "{said}");
    expect_accepted(&predict(&tiny.path("labels"), &["--ram", "512MiB"]), &said);
    // Something that is no model.
    let mut args = predict(&tiny.path("again"), &["--ram", "512MiB"]);
    args[1] = images.to_str().unwrap().into();
    let said = hint(&args);
    assert!(said.contains("name the folder of a run"), "{said}");
    args[1] = run.to_str().unwrap().into();
    expect_accepted(&args, &said);
}

#[test]
fn what_is_proposed_for_pictures_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("images");
    phantom::write(&data, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    let args = inspect(&data);
    // A folder beside the splits.
    fs::create_dir(data.join("other")).unwrap();
    expect_mended("a folder more", &args, &["move the folder elsewhere"], || {
        fs::rename(data.join("other"), dir.path().join("elsewhere")).unwrap();
    });
    // A picture that is none.
    let grade = data.join("train").join(phantom::GRADES[0]);
    fs::write(grade.join("text.png"), "no picture").unwrap();
    let said = ended(&args).printed;
    assert!(said.contains("or leave the file out"), "{said}");
    fs::remove_file(grade.join("text.png")).unwrap();
    expect_accepted(&args, &said);
    // Tables: a name twice, a cell without a label, a column of another name.
    let table = dir.path().join("table.csv");
    let config = dir.path().join("table.toml");
    fs::write(&config, "[images.table]\nimage = \"image\"\nlabel = { one = \"label\" }\n").unwrap();
    let names: Vec<String> = fs::read_dir(&grade)
        .unwrap()
        .map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            format!("images/train/{}/{name}", phantom::GRADES[0])
        })
        .collect();
    let lines = |header: &str| {
        let rows =
            names.iter().enumerate().map(|(number, name)| format!("{name},{}\n", ["a", "b"][number % 2]));
        format!("{header}\n{}", rows.collect::<String>())
    };
    let args = with(&inspect(&table), &words(&["--config", config.to_str().unwrap()]));
    let right = || fs::write(&table, lines("image,label")).unwrap();
    fs::write(&table, format!("{}{},a\n", lines("image,label"), names[0])).unwrap();
    expect_mended("twice", &args, &["remove one of the two rows"], right);
    fs::write(&table, format!("{}images/x.png,\n", lines("image,label"))).unwrap();
    expect_mended("no label", &args, &["correct the cell, or remove the row"], right);
    fs::write(&table, format!("{}images/x.png\n", lines("image,label"))).unwrap();
    expect_mended("a line too short", &args, &["the same number of cells in each row"], right);
    fs::write(&table, lines("image,grade")).unwrap();
    expect_mended("another column", &args, &["give the names of the columns in the settings"], || {
        fs::write(&config, "[images.table]\nimage = \"image\"\nlabel = { one = \"grade\" }\n").unwrap();
    });
}

#[test]
fn files_outside_of_a_data_set_are_read_with_the_flag_that_is_proposed() {
    let tiny = Tiny::new();
    let folder = tiny.path("list");
    fs::create_dir(&folder).unwrap();
    let case = |number: usize| {
        json!({
            "image": format!("../dataset/imagesTr/vessel_00{number}_0000.nii.gz"),
            "label": format!("../dataset/labelsTr/vessel_00{number}.nii.gz"),
        })
    };
    let description = json!({
        "modality": {"0": "CT"}, "labels": {"0": "background", "1": "vessel"}, "training": [case(0), case(1), case(2)],
    });
    fs::write(folder.join("dataset.json"), description.to_string()).unwrap();
    let args = inspect(&folder);
    let said = hint(&args);
    assert_eq!(flags(&said), ["--allow-outside"], "{said}");
    expect_accepted(&with(&args, &words(&["--allow-outside"])), &said);
}
