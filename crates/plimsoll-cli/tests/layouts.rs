//! From a folder without a description to training.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Tiny, run_error, run_json};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeFile, VolumeWriter, VoxelBox};

/// A data set of vessel trees as pairs of folders, with a value for the vessel and lengths times a factor.
struct Pairs {
    tiny: Tiny,
    folder: PathBuf,
}

impl Pairs {
    fn new(value: u8, factor: impl Fn(usize) -> f64) -> Pairs {
        let tiny = Tiny::new();
        let folder = tiny.path("pairs");
        let mut images: Vec<PathBuf> =
            fs::read_dir(tiny.data.join("imagesTr")).unwrap().map(|entry| entry.unwrap().path()).collect();
        images.sort();
        for (number, image) in images.iter().enumerate() {
            let name = image.file_name().unwrap().to_string_lossy().replace("_0000.nii.gz", "");
            let label = tiny.data.join("labelsTr").join(format!("{name}.nii.gz"));
            copy(image, &folder.join(format!("raw/{name}.nii")), factor(number), 1);
            copy(&label, &folder.join(format!("seg/{name}_y.nii")), factor(number), value);
        }
        Pairs { tiny, folder }
    }

    fn path(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn write_settings(&self, toml: &str) -> String {
        let path = self.tiny.path("settings.toml");
        fs::write(&path, toml).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// Trains a little with some flags, and returns the record.
    fn train(&self, config: &str, more: &[&str]) -> serde_json::Value {
        let run = self.tiny.path("run");
        let mut args = vec!["train", self.path(), "--out", run.to_str().unwrap(), "--config", config];
        args.extend([
            "--ram",
            "512MiB",
            "--net",
            "dynunet",
            "--features",
            "4,8",
            "--patch-size",
            "8",
            "--epochs",
            "1",
        ]);
        args.extend(["--iterations", "2", "--validation-iterations", "1", "--threads", "1"]);
        args.extend(more);
        run_json(&args)
    }
}

/// Copies a volume with its lengths and its voxels times factors.
fn copy(from: &Path, to: &Path, factor: f64, value: u8) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut file = VolumeFile::open(from).unwrap();
    let shape = file.geometry().shape();
    let mut voxels = vec![0.0; shape.iter().product()];
    file.region_f32(0, VoxelBox::whole(shape), &mut voxels).unwrap();
    let spacing = file.geometry().spacing().0.map(|length| length * factor);
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing(spacing))).unwrap();
    let mut writer = VolumeWriter::create(to, &geometry, 1, ElementType::I16, None).unwrap();
    let bytes: Vec<u8> =
        voxels.iter().flat_map(|voxel| ((*voxel * f32::from(value)) as i16).to_ne_bytes()).collect();
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_folder_of_images_and_one_of_label_maps_is_trained_on_as_it_is() {
    let pairs = Pairs::new(1, |_| 1.0);
    let found = run_json(&["inspect", pairs.path(), "--config", "/dev/null"]);
    assert_eq!(found["layout"], "pairs of folders raw/ + seg/");
    assert_eq!(found["labels"], serde_json::json!([["background", 0], ["foreground", 1]]));
    let trained = pairs.train("/dev/null", &["--spacing", "native"]);
    assert_eq!(trained["steps"], 2, "{trained}");
    assert!(!pairs.folder.join("dataset.json").exists());
}

#[test]
fn other_values_are_said_and_not_guessed() {
    let pairs = Pairs::new(255, |_| 1.0);
    let said = run_error(&["plan", pairs.path(), "--config", "/dev/null"]);
    assert!(said.contains("the values 0, 255, but the classes of these values"), "{said}");
    assert!(said.contains("labels = { \"foreground\" = 255 }"), "{said}");
    let config = pairs.write_settings("labels = { vessel = 255 }");
    let trained = pairs.train(&config, &[]);
    // The fold was validated against references of 255.
    let scores = &trained["validation"]["mean"]["1"];
    assert!(scores["n_ref"].as_f64().is_some_and(|voxels| voxels > 0.0), "{trained}");
    // A description makes it unnecessary to say so.
    run_json(&["inspect", pairs.path(), "--config", "/dev/null", "--write"]);
    let written = fs::read_to_string(pairs.folder.join("dataset.json")).unwrap();
    assert!(written.contains("\"foreground\": 255"), "{written}");
    let found = run_json(&["inspect", pairs.path(), "--config", "/dev/null"]);
    assert_eq!(found["layout"], "the list dataset.json");
    let said = run_error(&["inspect", pairs.path(), "--config", "/dev/null", "--write"]);
    assert!(said.contains("dataset.json already exists"), "{said}");
}

#[test]
fn spacings_in_another_unit_are_asked_about() {
    // Vessels are a thousandth of a millimetre from voxel to voxel.
    let pairs = Pairs::new(1, |_| 1.0);
    let plan = |more: &[&str]| {
        let args = [
            "plan",
            pairs.path(),
            "--config",
            "/dev/null",
            "--net",
            "dynunet",
            "--features",
            "4,8",
            "--patch-size",
            "8",
        ];
        let output = support::plimsoll().args(args).args(more).arg("--json").output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_planned, said) = plan(&["--spacing", "5,1,1"]);
    assert!(!is_planned && said.contains("is the unit µm? Then give --spacing 5,1,1um"), "{said}");
    for more in [&["--spacing", "5,1,1um"][..], &["--spacing", "5,1,1", "--unit", "m"]] {
        let (is_planned, said) = plan(more);
        assert!(is_planned, "{more:?}: {said}");
    }
    // One case alone is named.
    let mixed = Pairs::new(1, |number| if number == 1 { 1e3 } else { 1.0 });
    let said = run_error(&["plan", mixed.path(), "--config", "/dev/null"]);
    assert!(said.contains("are its numbers in µm, whatever its header says?"), "{said}");
}

#[test]
fn a_unit_that_is_set_is_of_training_validation_and_prediction() {
    let pairs = Pairs::new(1, |_| 1.0);
    let trained = pairs.train("/dev/null", &["--unit", "m"]);
    // Labels are written where the image is, and compared with the reference there.
    let scores = &trained["validation"]["mean"]["1"];
    assert!(scores["n_ref"].as_f64().is_some_and(|voxels| voxels > 0.0), "{trained}");
    let (run, raw) = (pairs.tiny.path("run"), pairs.folder.join("raw"));
    let labels = pairs.tiny.path("labels");
    let args =
        ["predict", run.to_str().unwrap(), "-i", raw.to_str().unwrap(), "-o", labels.to_str().unwrap()];
    let said = run_error(&[&args[..], &["--ram", "512MiB"]].concat());
    assert!(said.contains("is the unit of its header right?"), "{said}");
    run_json(&[&args[..], &["--ram", "512MiB", "--unit", "m"]].concat());
    let image = fs::read_dir(&raw).unwrap().next().unwrap().unwrap().path();
    let predicted = labels.join(image.file_name().unwrap());
    let grid = |path: &Path| *VolumeFile::open(path).unwrap().geometry();
    assert_eq!(grid(&predicted).difference(&grid(&image), 1e-6), None);
}

#[test]
fn a_page_does_not_take_the_place_of_a_description() {
    let pairs = Pairs::new(1, |_| 1.0);
    for name in ["dataset.html", "report.json"] {
        let page = pairs.folder.join(name);
        let said =
            run_error(&["inspect", pairs.path(), "--config", "/dev/null", "--page", page.to_str().unwrap()]);
        assert!(
            said.contains("would have the same name as its file of numbers") && said.contains("report.html"),
            "{said}"
        );
        assert!(!page.exists());
    }
}

#[test]
fn the_page_has_a_thumbnail_of_every_case_and_no_scripts() {
    let pairs = Pairs::new(255, |_| 1.0);
    let page = pairs.tiny.path("report.html");
    let config = pairs.write_settings("labels = { \"a < b\" = 255 }");
    run_json(&["inspect", pairs.path(), "--config", &config, "--page", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<img alt=\"\" src=\"data:image/png;base64,").count(), 3);
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(html.contains("a &lt; b") && !html.contains("<script") && !html.contains("http"), "{html}");
    let beside: serde_json::Value =
        serde_json::from_slice(&fs::read(page.with_extension("json")).unwrap()).unwrap();
    assert_eq!((beside["cases"].as_u64(), beside["labels"][1][1].as_u64()), (Some(3), Some(255)));
}

/// The warnings and hints of an inspection of a folder, in a working folder.
fn inspected(working: &Path, args: &[&str]) -> String {
    let mut command = support::plimsoll();
    command.current_dir(working).arg("inspect").args(args);
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn images_like_ct_whose_channel_has_no_name_are_asked_about() {
    let pairs = Pairs::new(1, |_| 1.0);
    let empty = pairs.tiny.path("empty");
    fs::create_dir(&empty).unwrap();
    let is_asked = |said: &str| said.contains("look like Hounsfield units of CT");
    assert!(!is_asked(&inspected(&empty, &[pairs.path()])));
    // Air in the first voxels of each image.
    for entry in fs::read_dir(pairs.folder.join("raw")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let offset = f32::from_le_bytes(bytes[108..112].try_into().unwrap()) as usize;
        bytes[offset..offset + 2].copy_from_slice(&(-1000i16).to_le_bytes());
        fs::write(&path, bytes).unwrap();
    }
    let said = inspected(&empty, &[pairs.path()]);
    assert!(is_asked(&said) && said.contains("like 3 of 3 cases"), "{said}");
    assert!(said.contains("[data] and channels = [\"CT\"]"), "{said}");
    assert_eq!(said.matches("Hounsfield").count(), 1, "{said}");
    // The two lines, and the name that keeps each image's own statistics.
    for name in ["CT", "zscore"] {
        let config = pairs.write_settings(&format!("[data]\nchannels = [\"{name}\"]\n"));
        assert!(!is_asked(&inspected(&empty, &[pairs.path(), "--config", &config])), "{name}");
    }
}

#[test]
fn settings_in_the_folder_of_the_data_set_are_not_ignored_silently() {
    let pairs = Pairs::new(1, |_| 1.0);
    let inside = pairs.folder.join("plimsoll.toml");
    fs::write(&inside, "[data]\nchannels = [\"T1\"]\n").unwrap();
    let empty = pairs.tiny.path("empty");
    fs::create_dir(&empty).unwrap();
    let said = inspected(&empty, &[pairs.path()]);
    let warning = format!("warning: {} is not read: settings are read from plimsoll.toml", inside.display());
    assert!(said.contains(&warning) && said.contains("channels: image;"), "{said}");
    assert!(said.contains(&format!("name it with --config {}", inside.display())), "{said}");
    let other = pairs.write_settings("");
    let said = inspected(&empty, &[pairs.path(), "--config", &other]);
    assert!(said.contains(&format!("is not read: settings are read from {other}")), "{said}");
    // It is read if it is named, or if the command runs in its folder.
    for (working, args) in
        [(&empty, &[pairs.path(), "--config", inside.to_str().unwrap()][..]), (&pairs.folder, &["."])]
    {
        let said = inspected(working, args);
        assert!(said.contains("channels: T1;") && !said.contains("is not read"), "{said}");
    }
}

#[test]
fn hints_name_the_folders_that_exist() {
    let pairs = Pairs::new(1, |_| 1.0);
    for (from, to) in [("raw", "ct"), ("seg", "truth_seg")] {
        fs::rename(pairs.folder.join(from), pairs.folder.join(to)).unwrap();
    }
    copy(&pairs.folder.join("ct/vessel_000.nii"), &pairs.folder.join("pet/vessel_000.nii"), 1.0, 1);
    let said = run_error(&["inspect", pairs.path(), "--config", "/dev/null"]);
    assert!(said.contains("under [data], images = \"ct\" and labels = \"truth_seg\""), "{said}");
    fs::remove_dir_all(pairs.folder.join("pet")).unwrap();
    fs::rename(pairs.folder.join("truth_seg/vessel_000_y.nii"), pairs.folder.join("truth_seg/other.nii"))
        .unwrap();
    let said = run_error(&["inspect", pairs.path(), "--config", "/dev/null"]);
    assert!(said.contains("under [data], labels = \"truth_seg/*_seg.nii.gz\""), "{said}");
}
