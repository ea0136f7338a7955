//! Bad input ends in one clear error that names the file and the numbers, and nothing is overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{dataset, run, run_error, run_json, small_run};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeFile, VolumeWriter};

struct Data {
    dir: tempfile::TempDir,
    folder: PathBuf,
}

fn data() -> Data {
    let dir = tempfile::tempdir().unwrap();
    let folder = dataset(dir.path());
    Data { dir, folder }
}

impl Data {
    fn image(&self, case: usize) -> PathBuf {
        self.folder.join(format!("imagesTr/vessel_{case:03}_0000.nii.gz"))
    }

    fn label(&self, case: usize) -> PathBuf {
        self.folder.join(format!("labelsTr/vessel_{case:03}.nii.gz"))
    }

    /// The errors of inspecting and training; both must fail, and training must leave nothing behind.
    fn errors(&self) -> (String, String) {
        let folder = self.folder.to_str().unwrap();
        let run = self.dir.path().join("run");
        let inspected = run_error(&["inspect", folder]);
        let trained = run_error(&small_run(folder, run.to_str().unwrap()));
        assert!(!run.exists(), "a run was begun");
        (inspected, trained)
    }
}

/// Writes labels on the grid of another volume, or one of another shape or spacing.
fn write_labels(path: &Path, geometry: &Geometry, value: impl Fn(usize) -> u8) {
    let labels: Vec<u8> = (0..geometry.voxel_count()).map(value).collect();
    let mut writer = VolumeWriter::create(path, geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
}

fn geometry_of(path: &Path) -> Geometry {
    *VolumeFile::open(path).unwrap().geometry()
}

#[test]
fn a_truncated_image() {
    let data = data();
    let bytes = fs::read(data.image(1)).unwrap();
    fs::write(data.image(1), &bytes[..bytes.len() / 2]).unwrap();
    let (inspected, trained) = data.errors();
    for error in [inspected, trained] {
        assert!(error.contains("vessel_001_0000.nii.gz") && error.contains("hint: "), "{error}");
    }
}

#[test]
fn a_header_that_claims_sixty_gigabytes() {
    let data = data();
    // 5000 × 3000 × 4096 shorts, in a file of a few hundred bytes.
    let mut header = vec![0u8; 352];
    header[..4].copy_from_slice(&348i32.to_le_bytes());
    for (axis, extent) in [3i16, 5000, 3000, 2048, 1, 1, 1, 1].into_iter().enumerate() {
        header[40 + 2 * axis..][..2].copy_from_slice(&extent.to_le_bytes());
    }
    header[70..72].copy_from_slice(&4i16.to_le_bytes());
    header[72..74].copy_from_slice(&16i16.to_le_bytes());
    for axis in 0..4 {
        header[76 + 4 * axis..][..4].copy_from_slice(&1f32.to_le_bytes());
    }
    header[108..112].copy_from_slice(&352f32.to_le_bytes());
    header[344..348].copy_from_slice(b"n+1\0");
    fs::write(data.image(0), &header).unwrap();
    let (inspected, trained) = data.errors();
    for error in [inspected, trained] {
        assert!(error.contains("vessel_000_0000.nii.gz"), "{error}");
        assert!(error.contains("352 bytes") && error.contains("61440000352"), "{error}");
    }
}

#[test]
fn a_label_that_is_no_class() {
    let data = data();
    write_labels(&data.label(2), &geometry_of(&data.image(2)), |i| if i == 1234 { 7 } else { 0 });
    let (inspected, trained) = data.errors();
    for error in [inspected, trained] {
        assert!(error.contains("vessel_002.nii.gz") && error.contains('7'), "{error}");
    }
}

#[test]
fn an_image_and_a_label_map_on_different_grids() {
    for kind in ["shape", "affine"] {
        let data = data();
        let image = geometry_of(&data.image(0));
        let [d, h, w] = image.shape();
        let other = match kind {
            "shape" => Geometry::new([d, h, w + 1], *image.affine()).unwrap(),
            _ => Geometry::new([d, h, w], Affine::from_spacing(Spacing([2e-3, 1e-3, 1e-3]))).unwrap(),
        };
        write_labels(&data.label(0), &other, |_| 1);
        let (inspected, _) = data.errors();
        assert!(inspected.contains("vessel_000"), "{inspected}");
    }
}

#[test]
fn a_missing_channel_a_missing_label_map_and_an_empty_folder() {
    let missing = data();
    let description = missing.folder.join("dataset.json");
    let text = fs::read_to_string(&description).unwrap();
    let two = text.replace("\"0\": \"microscopy\"", "\"0\": \"microscopy\", \"1\": \"second\"");
    assert_ne!(two, text);
    fs::write(&description, two).unwrap();
    let (inspected, _) = missing.errors();
    assert!(inspected.contains("vessel_000_0001.nii.gz"), "{inspected}");

    let missing = data();
    fs::remove_file(missing.label(3)).unwrap();
    let (inspected, _) = missing.errors();
    assert!(inspected.contains("vessel_003"), "{inspected}");

    let empty = tempfile::tempdir().unwrap();
    let error = run_error(&["inspect", empty.path().to_str().unwrap()]);
    assert!(error.contains("dataset.json") && error.contains("hint: "), "{error}");
}

#[test]
fn an_output_that_cannot_be_written() {
    let data = data();
    let file = data.dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    let inside = file.join("run");
    let error = run_error(&small_run(data.folder.to_str().unwrap(), inside.to_str().unwrap()));
    assert!(error.contains(file.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn a_limit_that_is_too_low() {
    let data = data();
    let run_folder = data.dir.path().join("run");
    let mut args = small_run(data.folder.to_str().unwrap(), run_folder.to_str().unwrap());
    let ram = args.iter().position(|arg| *arg == "--ram").unwrap();
    let plan = ["plan", args[1], "--ram", "512MiB", "--net", "dynunet", "--features", "8,16,24"];
    let plan = run_json(&[&plan[..], &["--patch-size", "16,16,16", "--config", "/dev/null"]].concat());
    let least = plan["minimum_ram_bytes"].as_u64().unwrap() >> 20;
    let below = format!("{}MiB", least - 1);
    args[ram + 1] = &below;
    let error = run_error(&args);
    let said = format!("{}.0 MiB", least - 1);
    assert!(error.contains("the run needs") && error.contains(&said) && error.contains("--ram"), "{error}");
    assert!(!run_folder.join("fold_all").exists());
    args[ram + 1] = "1MiB";
    let error = run_error(&args);
    assert!(error.contains("the process itself needs"), "{error}");
    // The hint's limit is enough.
    let needed = format!("{}MiB", least + 3);
    args[ram + 1] = &needed;
    let record = run_json(&args);
    assert!(record["peak_rss_bytes"].as_u64() <= record["ram_budget_bytes"].as_u64(), "{record}");
}

#[test]
fn settings_that_are_unknown_or_contradict_themselves() {
    let data = data();
    let (folder, config) = (data.folder.to_str().unwrap(), data.dir.path().join("plimsoll.toml"));
    fs::write(&config, "batch_size = 2\nlearnig_rate = 0.1\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("plimsoll.toml, line 2") && error.contains("learnig_rate"), "{error}");
    fs::write(&config, "seed = 1\n[[loss.components]]\nname = \"dyce\"\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("plimsoll.toml, line 3") && error.contains("`soft_dice`"), "{error}");
    fs::write(&config, "[[loss.components]]\nname = \"focal\"\nclass_weights = [1.0]\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("class_weights of focal is 1 numbers"), "{error}");
    let error = run_error(&["plan", folder, "--config", "/dev/null", "--patch-size", "17"]);
    assert!(error.contains("17"), "{error}");
    let error =
        run_error(&["plan", folder, "--config", "/dev/null", "--batch-size", "4", "--micro-batch", "3"]);
    assert!(error.contains("micro_batch") && error.contains("divide"), "{error}");
    fs::write(&config, "batch_size = 2\nmicro_batch = 1\n[loss]\nignore = 1\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("`micro_batch` is 1") && error.contains("whole batch"), "{error}");
    fs::write(&config, "[network]\nnet = \"dynunet\"\nencoder_convs = [2, 2, 2]\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("`encoder_convs`") && error.contains("`dynunet`"), "{error}");
    assert!(error.contains("deep_supervision"), "the hint says what it has: {error}");
    fs::write(&config, "[network]\nnet = \"vnet\"\n").unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("plimsoll.toml, line 2") && error.contains("`dynunet`"), "{error}");
    let error = run_error(&["plan", folder, "--net", "vnet"]);
    assert!(error.contains("plain") && error.contains("dynunet"), "{error}");
    let error = run_error(&["plan", folder, "--config", "/dev/null", "--net", "unet"]);
    assert!(error.contains("`net` is unet, but it is for prediction only"), "{error}");
    fs::write(&config, "patch_size = [4, 4, 4]\n[network]\nstrides = [[1, 1, 1], [2, 2, 2], [2, 2, 2]]\n")
        .unwrap();
    let error = run_error(&["plan", folder, "--config", config.to_str().unwrap()]);
    assert!(error.contains("[1, 1, 1] at the coarsest stage") && error.contains("4 × 4 × 8"), "{error}");
    let error = run_error(&["train"]);
    assert!(error.contains("<DATASET>") && error.contains("Usage: "), "{error}");
    let error = run_error(&["plan", folder, "--ram", "1.5 elephants"]);
    assert!(error.contains("1.5 elephants"), "{error}");
    let error = run_error(&["predict", folder, "-i", folder, "-o", "/tmp/never"]);
    assert!(error.contains("holds no model"), "{error}");
    assert!(!Path::new("/tmp/never").exists());
}

#[test]
fn predictions_are_not_overwritten_and_come_with_the_geometry_of_their_image() {
    let data = data();
    let (folder, run_folder) = (data.folder.to_str().unwrap(), data.dir.path().join("run"));
    run_json(&small_run(folder, run_folder.to_str().unwrap()));
    let (images, out) = (data.folder.join("imagesTs"), data.dir.path().join("out"));
    let predict = [
        "predict",
        run_folder.to_str().unwrap(),
        "-i",
        images.to_str().unwrap(),
        "-o",
        out.to_str().unwrap(),
    ];
    let report = run_json(&predict);
    let file = PathBuf::from(report["cases"][0]["file"].as_str().unwrap());
    let image = images.join("vessel_test_000_0000.nii.gz");
    assert_eq!(geometry_of(&file).difference(&geometry_of(&image), 1e-9), None);
    let first = fs::read(&file).unwrap();
    let kept = run_json(&predict);
    assert_eq!((kept["cases"].as_array().unwrap().len(), kept["kept"].as_array().unwrap().len()), (0, 1));
    assert_eq!(fs::read(&file).unwrap(), first);
    let again = [&predict[..], &["--overwrite", "--threads", "1", "--ram", "300MiB"]].concat();
    run_json(&again);
    assert_eq!(fs::read(&file).unwrap(), first, "another number of threads, another limit: the same labels");
    let summary =
        run_json(&["evaluate", out.to_str().unwrap(), data.folder.join("labelsTs").to_str().unwrap()]);
    assert!(summary["foreground_mean"]["Dice"].is_number() || summary["foreground_mean"]["Dice"].is_null());
    assert!(out.join("summary.json").exists());
    let low = [&predict[..], &["--overwrite", "--ram", "20MiB"]].concat();
    let error = run_error(&low);
    assert!(error.contains("needs"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), first);
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["--version"], &["train", "--help"]] {
        assert!(run(args).status.success());
    }
    let output = run(&["trian"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "));
}
