//! Hints about the layout of data sets: which files belong together, and which values are which classes.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use serde_json::{Value, json};

use super::data::{expect_mended, inspect};
use super::{expect_accepted, hint, quoted, with, words};
use crate::support::Tiny;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The spacing of the phantoms in millimetres, to which predicted images must be close.
const SPACING: f64 = 0.001;

/// Writes a volume of 6 × 6 × 6 voxels and some channels. A cube in its middle has a value.
fn volume(path: &Path, value: u8, channels: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let geometry = Geometry::new([6; 3], Affine::from_spacing(Spacing([SPACING; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, channels, ElementType::U8, None).unwrap();
    let inside = |voxel: usize| [voxel / 36, voxel / 6 % 6, voxel % 6].iter().all(|at| (2..4).contains(at));
    let voxels: Vec<u8> = (0..216).map(|voxel| if inside(voxel) { value } else { 0 }).collect();
    for _ in 0..channels {
        writer.write_planes(&voxels).unwrap();
    }
    writer.finish().unwrap();
}

/// A file of NRRD of 2 × 2 × 2 voxels with named segments, each of a value in a layer.
fn segments(path: &Path, segments: &[(&str, u8, usize)], layers: &[[u8; 8]]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (sizes, none, list) = match layers.len() {
        1 => ("2 2 2".to_string(), "", ""),
        count => (format!("{count} 2 2 2"), "none ", "list "),
    };
    let dimension = if layers.len() == 1 { 3 } else { 4 };
    let mut header = format!(
        "NRRD0004\ntype: uchar\ndimension: {dimension}\nspace: left-posterior-superior\nsizes: {sizes}\nspace directions: \
         {none}(1,0,0) (0,1,0) (0,0,1)\nkinds: {list}domain domain domain\nencoding: raw\nspace origin: (0,0,0)\n"
    );
    for (at, (name, value, layer)) in segments.iter().enumerate() {
        header += &format!(
            "Segment{at}_Name:={name}\nSegment{at}_LabelValue:={value}\nSegment{at}_Layer:={layer}\n"
        );
    }
    header.push('\n');
    let voxels = (0..8).flat_map(|voxel| layers.iter().map(move |layer| layer[voxel]));
    fs::write(path, header.into_bytes().into_iter().chain(voxels).collect::<Vec<u8>>()).unwrap();
}

/// The text of a setting behind a phrase of a hint.
fn setting<'a>(said: &'a str, behind: &str) -> &'a str {
    said.split(behind).nth(1).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn what_is_proposed_for_pairs_of_folders_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("pairs");
    for case in ["a", "b"] {
        volume(&data.join(format!("images/{case}.nii.gz")), 100, 1);
        volume(&data.join(format!("labels/{case}.nii.gz")), 5, 1);
    }
    let config = dir.path().join("settings.toml");
    let set = |text: &str| fs::write(&config, text).unwrap();
    set("");
    let args = with(&inspect(&data), &words(&["--config", text(&config)]));
    // A value that is not the next one: the line that is proposed, or the description that is written.
    let said = hint(&args);
    assert!(said.contains("`plimsoll inspect FOLDER --write` writes a dataset.json"), "{said}");
    let line = setting(&said, "or set in plimsoll.toml: ").to_string();
    set(&line);
    expect_accepted(&args, &line);
    set("");
    let command = quoted(&said).first().unwrap().replace("plimsoll ", "").replace("FOLDER", text(&data));
    expect_accepted(&words(&command.split(' ').collect::<Vec<_>>()), &said);
    expect_accepted(&args, "the description that was written");
    fs::remove_file(data.join("dataset.json")).unwrap();
    // A label map that is not there: it is added, its image is moved, or names are matched as the setting says.
    set(&line);
    let map = data.join("labels/b.nii.gz");
    fs::remove_file(&map).unwrap();
    expect_mended("no label map", &args, &["add the label map"], || volume(&map, 5, 1));
    fs::remove_file(&map).unwrap();
    let image = data.join("images/b.nii.gz");
    expect_mended("an image too many", &args, &["move the image elsewhere"], || {
        fs::rename(&image, dir.path().join("b.nii.gz")).unwrap();
    });
    fs::rename(dir.path().join("b.nii.gz"), &image).unwrap();
    let said = hint(&args);
    let pattern = setting(&said, "under [data], ").split(", where").next().unwrap();
    assert_eq!(pattern, "labels = \"labels/*_seg.nii.gz\"");
    for case in ["a", "b"] {
        volume(&data.join(format!("labels/{case}_seg.nii.gz")), 5, 1);
    }
    fs::remove_file(data.join("labels/a.nii.gz")).unwrap();
    set(&format!("{line}\n[data]\n{pattern}\n"));
    expect_accepted(&args, &said);
    // Folders whose names do not tell which is which.
    for (old, new) in [("images", "first"), ("labels", "second")] {
        fs::rename(data.join(old), data.join(new)).unwrap();
    }
    set(&line);
    let said = hint(&args);
    let settings = setting(&said, "under [data], ");
    assert_eq!(settings, "images = \"first\" and labels = \"second\"");
    set(&format!("{line}\n[data]\n{}\n", settings.replace(" and ", "\n")));
    expect_accepted(&args, &said);
}

#[test]
fn what_is_proposed_for_values_of_segments_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("settings.toml");
    let inspect = |data: &Path| with(&inspect(data), &words(&["--config", text(&config)]));
    fs::write(&config, "").unwrap();
    // Segments that overlap: the second is a part of the first.
    let overlapping = dir.path().join("overlapping");
    let organ = [1, 1, 1, 0, 0, 0, 1, 0];
    for case in ["a", "b"] {
        segments(&overlapping.join(format!("images/{case}.nrrd")), &[], &[organ]);
        let named = [("organ", 1, 0), ("tumour", 1, 1)];
        let label = overlapping.join(format!("labels/{case}.seg.nrrd"));
        segments(&label, &named, &[organ, [0, 1, 0, 0, 0, 0, 0, 0]]);
    }
    let args = inspect(&overlapping);
    let said = hint(&args);
    let proposed = setting(&said, "[regions] with ").split(", if the second").next().unwrap();
    fs::write(&config, format!("[regions]\n{}\n", proposed.replace("], ", "]\n").replace(" and ", "\n")))
        .unwrap();
    expect_accepted(&args, &said);
    // Or the voxels of one are taken from the other.
    fs::write(&config, "").unwrap();
    for case in ["a", "b"] {
        let named = [("organ", 1, 0), ("tumour", 1, 1)];
        let label = overlapping.join(format!("labels/{case}.seg.nrrd"));
        segments(&label, &named, &[[1, 0, 1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0]]);
    }
    expect_accepted(&args, &said);
    // Names with different values in some files, and none in others.
    let mixed = dir.path().join("mixed");
    let voxels = [0, 1, 1, 0, 0, 2, 1, 0];
    for (case, named) in [
        ("a", &[("organ", 1, 0), ("tumour", 2, 0)][..]),
        ("b", &[("organ", 2, 0), ("tumour", 1, 0)]),
        ("c", &[]),
    ] {
        segments(&mixed.join(format!("images/{case}.nrrd")), &[], &[voxels]);
        segments(&mixed.join(format!("labels/{case}.nrrd")), named, &[voxels]);
    }
    let args = inspect(&mixed);
    let said = hint(&args);
    fs::write(&config, setting(&said, "in plimsoll.toml, like ")).unwrap();
    expect_accepted(&args, &said);
}

#[test]
fn what_is_proposed_for_lists_and_names_of_files_is_accepted() {
    let tiny = Tiny::new();
    let args = inspect(&tiny.data);
    let description = tiny.data.join("dataset.json");
    let original: Value = serde_json::from_slice(&fs::read(&description).unwrap()).unwrap();
    let write = |value: &Value| fs::write(&description, value.to_string()).unwrap();
    let with_key = |key: &str, value: Value| {
        let mut changed = original.clone();
        changed[key] = value;
        changed
    };
    let right = || write(&original);
    // A file that is no JSON, and an ending that no image has.
    fs::write(&description, "{\"labels\":\n").unwrap();
    expect_mended("half a file", &args, &["correct the file at that line"], right);
    write(&with_key("file_ending", json!(".nrrd")));
    expect_mended("no images", &args, &["check the folder and the file ending"], right);
    // A second channel that a case lacks: its file is added, or its other files are removed.
    let image =
        |case: usize, channel: usize| tiny.data.join(format!("imagesTr/vessel_00{case}_000{channel}.nii.gz"));
    write(&with_key("channel_names", json!({"0": "CT", "1": "T2"})));
    let tests: Vec<PathBuf> =
        fs::read_dir(tiny.data.join("imagesTs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for test in tests {
        let second = text(&test).replace("_0000.nii.gz", "_0001.nii.gz");
        fs::copy(&test, second).unwrap();
    }
    for case in 0..2 {
        fs::copy(image(case, 0), image(case, 1)).unwrap();
    }
    expect_mended("no second channel", &args, &["add the file"], || {
        fs::copy(image(2, 0), image(2, 1)).unwrap();
    });
    fs::remove_file(image(2, 1)).unwrap();
    let aside = tiny.path("aside.nii.gz");
    expect_mended("no second channel", &args, &["remove the case's other files to leave it out"], || {
        fs::rename(image(2, 0), &aside).unwrap();
    });
    fs::rename(&aside, image(2, 0)).unwrap();
    // Lists: a case twice, and an entry that is no name.
    let case = |number: usize| {
        json!({
            "image": format!("./imagesTr/vessel_00{number}_0000.nii.gz"),
            "label": format!("./labelsTr/vessel_00{number}.nii.gz"),
        })
    };
    let list = |cases: &[Value]| {
        let labels = json!({"0": "background", "1": "vessel"});
        write(&json!({"modality": {"0": "CT"}, "labels": labels, "training": cases}));
    };
    list(&[case(0), case(1), case(1)]);
    expect_mended("twice", &args, &["leave one of the two out"], || list(&[case(0), case(1)]));
    let nameless = json!({"image": "./imagesTr/..", "label": "./labelsTr/vessel_001.nii.gz"});
    list(&[case(0), nameless]);
    expect_mended("no name", &args, &["list files like \"./imagesTr/CASE.nii.gz\""], || {
        list(&[case(0), case(1)]);
    });
    // A path that does not exist.
    let said = hint(&inspect(&tiny.path("elsewhere")));
    assert_eq!(said, "check the path");
    expect_accepted(&args, &said);
}

#[test]
fn what_is_proposed_for_names_of_predicted_images_and_predictions_is_accepted() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0", "--epochs", "1", "--skip-validation"]);
    let images = tiny.path("images");
    fs::create_dir(&images).unwrap();
    let test = fs::read_dir(tiny.data.join("imagesTs")).unwrap().next().unwrap().unwrap().path();
    let put = |name: &str| assert!(fs::copy(&test, images.join(name)).unwrap() > 0);
    let predict = |out: &str| {
        let out = tiny.path(out);
        words(&[
            "predict",
            text(&run),
            "-i",
            text(&images),
            "-o",
            text(&out),
            "--ram",
            "512MiB",
            "--threads",
            "1",
        ])
    };
    put("case_0000.nii.gz");
    put("other.nii.gz");
    expect_mended("mixed names", &predict("mixed"), &["rename it with the number of its channel"], || {
        fs::rename(images.join("other.nii.gz"), images.join("other_0000.nii.gz")).unwrap();
    });
    // Two channels of which the model takes one.
    volume(&images.join("two_0000.nii.gz"), 100, 2);
    expect_mended("two channels", &predict("two"), &["must have a channel for each"], || {
        volume(&images.join("two_0000.nii.gz"), 100, 1);
    });
    // Predictions under names of no reference.
    let predictions = tiny.path("predictions");
    fs::create_dir(&predictions).unwrap();
    for case in 0..3 {
        let label = tiny.data.join(format!("labelsTr/vessel_00{case}.nii.gz"));
        fs::copy(label, predictions.join(format!("unknown_{case}.nii.gz"))).unwrap();
    }
    let references = tiny.data.join("labelsTr");
    let evaluate = words(&["evaluate", text(&predictions), text(&references)]);
    expect_mended("other names", &evaluate, &["have the same file name"], || {
        for case in 0..3 {
            let unknown = predictions.join(format!("unknown_{case}.nii.gz"));
            fs::rename(unknown, predictions.join(format!("vessel_00{case}_seg.nii.gz"))).unwrap();
        }
    });
}

#[test]
fn what_is_proposed_for_folders_of_pictures_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("images");
    phantom::write(&data, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    // Folders for classes, of which none has an image that is read.
    let empty = dir.path().join("empty");
    let class = |name: &str| empty.join(name);
    for name in ["a", "b"] {
        fs::create_dir_all(class(name)).unwrap();
        fs::write(class(name).join("picture.gif"), "GIF89a").unwrap();
    }
    let pictures = fs::read_dir(data.join("train").join(phantom::GRADES[0])).unwrap();
    let mut pictures: Vec<PathBuf> = pictures.map(|entry| entry.unwrap().path()).collect();
    let args = inspect(&empty);
    // Pictures of equal pixels would be faults of their own.
    expect_mended("no pictures", &args, &["images end in .png"], || {
        for name in ["a", "b"] {
            for number in 0..2 {
                let picture = pictures.pop().unwrap();
                fs::copy(picture, class(name).join(format!("{name}{number}.png"))).unwrap();
            }
        }
    });
    // A word among numbers: the label is corrected, or all classes are listed.
    let table = dir.path().join("table.csv");
    let config = dir.path().join("table.toml");
    let settings = "[images.table]\nimage = \"image\"\nlabel = { one = \"label\" }\n";
    fs::write(&config, settings).unwrap();
    let args = with(&inspect(&table), &words(&["--config", text(&config)]));
    let rows = |labels: [&str; 4]| {
        let rows = labels.iter().zip(["a0", "a1", "b0", "b1"]);
        let rows = rows.map(|(label, name)| format!("empty/{}/{name}.png,{label}\n", &name[..1]));
        fs::write(&table, format!("image,label\n{}", rows.collect::<String>())).unwrap();
    };
    rows(["0", "1", "one", "0"]);
    expect_mended("a word", &args, &["correct the label"], || rows(["0", "1", "1", "0"]));
    rows(["0", "1", "one", "0"]);
    expect_mended("a word", &args, &["list all classes in the settings of the table"], || {
        fs::write(&config, format!("{settings}classes = [\"0\", \"1\", \"one\"]\n")).unwrap();
    });
}
