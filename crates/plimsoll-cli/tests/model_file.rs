//! A run in one file: what it predicts is what the run predicts, and no byte of it can be changed without being noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Tiny, run_error, run_json};
use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_graph::Shape;
use plimsoll_nn::weights::{SafetensorsFile, safetensors};

fn text(path: &Path) -> String {
    path.to_str().unwrap().into()
}

/// Two folds of a run, and the file of both.
fn exported(tiny: &Tiny) -> (String, String) {
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0"]);
    tiny.trained(&run, &["--fold", "1"]);
    let file = text(&tiny.path("vessels.plimsoll"));
    let written = run_json(&["models", "export", &text(&run), &file]);
    assert_eq!(written["folds"], 2);
    (text(&run), file)
}

#[test]
fn a_file_predicts_as_its_run_does_byte_for_byte_and_says_where_it_comes_from() {
    let tiny = Tiny::new();
    let (run, file) = exported(&tiny);
    let images = text(&tiny.data.join("imagesTs"));
    let [one, other] = [&run, &file].map(|model| {
        let labels = tiny.path(if *model == run { "of_run" } else { "of_file" });
        run_json(&[
            "predict",
            model,
            "-i",
            &images,
            "-o",
            &text(&labels),
            "--save_probabilities",
            "--ram",
            "512MiB",
        ]);
        labels
    });
    let all = fs::read_dir(&one).unwrap().map(|entry| entry.unwrap().file_name());
    // What the time was spent on is in a third.
    let names: Vec<_> = all.filter(|name| name != "run.json").collect();
    assert_eq!(names.len(), 2, "labels and probabilities: {names:?}");
    for name in names {
        assert!(
            fs::read(one.join(&name)).unwrap() == fs::read(other.join(&name)).unwrap(),
            "{name:?} differs"
        );
    }
    // Of several models, whatever they are kept in.
    let mean = text(&tiny.path("mean"));
    run_json(&["predict", "-m", &run, "-m", &file, "-i", &images, "-o", &mean, "--ram", "512MiB"]);

    let shown = run_json(&["models", "show", &file]);
    let lines: Vec<&str> =
        shown[0]["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let has = |what: &str| assert!(lines.iter().any(|line| line.contains(what)), "no {what}: {lines:#?}");
    for what in [
        "DynUNet",
        "windows   8 × 8 × 8",
        "fold 0    4 steps (final), 2 cases",
        "fold 1",
        "data set  Vessels",
    ] {
        has(what);
    }
    let specification = fs::read_to_string(Path::new(&run).join("fold_1/specification.json")).unwrap();
    let checkpoint =
        SafetensorsFile::open(&Path::new(&run).join("fold_1/checkpoint_final.safetensors")).unwrap();
    has(&checkpoint.metadata()["plimsoll.specification"]);
    assert!(specification.contains("\"cases\""));
    // The same run makes the same file.
    let again = text(&tiny.path("again.plimsoll"));
    run_json(&["models", "export", &run, &again]);
    assert!(fs::read(&again).unwrap() == fs::read(&file).unwrap());
    // Others read it as any file of safetensors.
    let plain = SafetensorsFile::open(Path::new(&file)).unwrap();
    assert!(plain.contains("fold_0.input_block.conv1.conv.weight"));
}

#[test]
fn what_is_there_stays_and_what_has_no_effect_is_refused() {
    let tiny = Tiny::new();
    let (run, file) = exported(&tiny);
    let before = fs::read(&file).unwrap();
    let error = run_error(&["models", "export", &run, &file]);
    assert!(error.contains("already exists") && fs::read(&file).unwrap() == before, "{error}");
    let error = run_error(&["models", "export", &run, &text(&tiny.path("a.safetensors"))]);
    assert!(error.contains("does not end in .plimsoll"), "{error}");
    let error = run_error(&["models", "export", &text(&tiny.data), &text(&tiny.path("a.plimsoll"))]);
    assert!(error.contains("holds no model"), "{error}");
    let images = text(&tiny.data.join("imagesTs"));
    let labels = text(&tiny.path("labels"));
    let error = run_error(&["predict", &file, "-i", &images, "-o", &labels, "--checkpoint", "best"]);
    assert!(error.contains("--checkpoint has no effect"), "{error}");
    // A checkpoint that is damaged leaves nothing half-written.
    let checkpoint = Path::new(&run).join("fold_1/checkpoint_final.safetensors");
    let mut bytes = fs::read(&checkpoint).unwrap();
    // The first tensor: moments behind the parameters are not written.
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[data] ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    let error = run_error(&["models", "export", &run, &text(&tiny.path("a.plimsoll"))]);
    assert!(error.contains("checkpoint_final.safetensors is damaged"), "{error}");
    let left: Vec<_> =
        fs::read_dir(tiny.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "the data set, the run and the file: {left:?}");
}

#[test]
fn a_file_that_was_changed_is_refused_and_the_tensor_is_named() {
    let tiny = Tiny::new();
    let (_, file) = exported(&tiny);
    let verified = run_json(&["models", "verify", &file]);
    assert_eq!(verified["folds"], 2);
    let whole = fs::read(&file).unwrap();
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let opened = SafetensorsFile::open(Path::new(&file)).unwrap();
    assert_eq!(verified["tensors"], opened.tensors().count());
    let damaged = tiny.path("damaged.plimsoll");
    let error_of = |bytes: &[u8]| {
        fs::write(&damaged, bytes).unwrap();
        run_error(&["models", "verify", &text(&damaged)])
    };
    // Where each tensor begins stands in the header.
    let entries: serde_json::Value = serde_json::from_slice(&whole[8..8 + header]).unwrap();
    let place = |name: &str| 8 + header + entries[name]["data_offsets"][0].as_u64().unwrap() as usize;
    let [first, second] = ["fold_0.input_block.conv1.conv.weight", "fold_1.output_block.conv.conv.bias"];
    for names in [vec![first], vec![second], vec![first, second]] {
        let mut bytes = whole.clone();
        names.iter().for_each(|name| bytes[place(name) + 1] ^= 0x10);
        let error = error_of(&bytes);
        assert!(names.iter().all(|name| error.contains(&format!("`{name}`"))), "{error}");
        assert!(
            error.contains(&format!("{} of its {} tensors", names.len(), verified["tensors"])),
            "{error}"
        );
        // Prediction does not go on with it either.
        let (images, labels) = (text(&tiny.data.join("imagesTs")), tiny.path("labels"));
        let error = run_error(&["predict", &text(&damaged), "-i", &images, "-o", &text(&labels)]);
        assert!(error.contains("damaged") && error.contains(names[0]), "{error}");
        assert_eq!(fs::read_dir(&labels).map_or(0, Iterator::count), 0);
    }
    let mut bytes = whole.clone();
    let at = whole.windows(8).position(|window| window == b"\"epochs\"" || window == b"epochs\\\"").unwrap();
    bytes[at] ^= 1;
    assert!(error_of(&bytes).contains("is damaged: its header"));
    for length in [0, 7, 100, header, whole.len() - 1] {
        let error = error_of(&whole[..length]);
        assert!(error.contains("damaged.plimsoll"), "{length}: {error}");
    }
    let absurd = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
    assert!(error_of(&absurd).contains("the header claims"));
}

/// Writes a file whose checksums are right, of tensors and metadata that are given.
fn write(to: &Path, tensors: &[(String, Shape)], record: &str, value: f32) {
    let metadata = BTreeMap::from([("plimsoll.model".to_string(), record.to_string())]);
    let largest = tensors.iter().map(|(_, shape)| shape.count()).max().unwrap();
    let fill = |_, values: &mut [f32]| {
        values.fill(value);
        Ok(())
    };
    safetensors::write(&mut fs::File::create(to).unwrap(), tensors, &metadata, &mut vec![0.0; largest], fill)
        .unwrap();
}

#[test]
fn a_file_that_says_what_cannot_be_is_refused_with_sound_checksums_too() {
    let tiny = Tiny::new();
    let (_, file) = exported(&tiny);
    let opened = SafetensorsFile::open(Path::new(&file)).unwrap();
    let record = opened.metadata()["plimsoll.model"].clone();
    let tensors: Vec<(String, Shape)> = opened.tensors().map(|(name, shape)| (name.into(), shape)).collect();
    let made = tiny.path("made.plimsoll");
    let error_of = |tensors: &[(String, Shape)], record: &str, value: f32| {
        write(&made, tensors, record, value);
        run_error(&["models", "verify", &text(&made)])
    };
    let error = error_of(&tensors, &record, f32::NAN);
    assert!(error.contains("are not finite"), "{error}");
    let mut other = tensors.clone();
    other[0].1 = Shape(vec![3, 3]);
    let error = error_of(&other, &record, 0.5);
    assert!(error.contains("has shape [3×3], but the network needs"), "{error}");
    let error = error_of(&tensors[1..], &record, 0.5);
    assert!(error.contains("there is no tensor"), "{error}");
    let mut more = tensors.clone();
    more.push(("fold_7.a".into(), Shape(vec![1])));
    let error = error_of(&more, &record, 0.5);
    assert!(error.contains("`fold_7.a` belongs to no listed fold"), "{error}");
    let mut json: serde_json::Value = serde_json::from_str(&record).unwrap();
    json["folds"] = serde_json::json!([]);
    assert!(error_of(&tensors, &json.to_string(), 0.5).contains("it has no fold"));
    for (key, value) in [
        ("version", serde_json::json!(99)),
        ("config", serde_json::json!({})),
        ("program", serde_json::json!(1e300)),
    ] {
        let mut json: serde_json::Value = serde_json::from_str(&record).unwrap();
        json[key] = value;
        let error = error_of(&tensors, &json.to_string(), 0.5);
        assert!(error.contains("made.plimsoll"), "{key}: {error}");
    }
    let mut json: serde_json::Value = serde_json::from_str(&record).unwrap();
    json["config"]["training"]["patch"] = serde_json::json!([1u64 << 40, 8, 8]);
    let error = error_of(&tensors, &json.to_string(), 0.5);
    assert!(error.contains("its model is invalid"), "{error}");
    // Weights alone are no model.
    let weights = text(&tiny.path("weights.safetensors"));
    run_json(&["export", &text(&tiny.path("run/fold_0")), "-o", &weights]);
    let (images, labels) = (text(&tiny.data.join("imagesTs")), text(&tiny.path("labels")));
    let error = run_error(&["predict", &weights, "-i", &images, "-o", &labels]);
    assert!(error.contains("it is a file of weights alone"), "{error}");
}

#[test]
fn classifiers_are_files_too_and_pairs_of_them_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("images");
    phantom::write(&data, &PhantomImages { images: [6, 3, 2], side: 40, seed: 2 }).unwrap();
    for split in ["train", "val", "test"] {
        for grade in &phantom::GRADES[3..] {
            fs::remove_dir_all(data.join(split).join(grade)).unwrap();
        }
    }
    let settings = dir.path().join("settings.toml");
    let written =
        "batch_size = 4\nepochs = 1\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, written).unwrap();
    let place = |name: &str| text(&dir.path().join(name));
    let (run, file, test) = (place("run"), place("grades.plimsoll"), text(&data.join("test")));
    let train =
        ["train", &text(&data), "--config", &text(&settings), "--ram", "512MiB", "--threads", "1", "--out"];
    run_json(&[&train[..], &[&run]].concat());
    run_json(&["models", "export", &run, &file]);
    run_json(&["models", "verify", &file]);
    let [one, other] = [(&run, "run.csv"), (&file, "file.csv")].map(|(model, table)| {
        run_json(&["predict", model, "-i", &test, "-o", &place(table)]);
        fs::read(place(table)).unwrap()
    });
    assert!(one == other && !one.is_empty());
    let shown = run_json(&["models", "show", &file]);
    assert!(shown[0]["lines"].to_string().contains("classes "), "{shown}");
    let pairs = place("pairs");
    run_json(&[&train[..], &[&pairs, "--one-vs-one"]].concat());
    let error = run_error(&["models", "export", &pairs, &place("pairs.plimsoll")]);
    assert!(error.contains("classifiers of 3 pairs") && error.contains("pair_0_1"), "{error}");
    run_json(&["models", "export", &place("pairs/pair_0_1"), &place("pair.plimsoll")]);
}
