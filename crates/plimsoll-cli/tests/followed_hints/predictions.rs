//! Hints about predictions: limits, sums, units, and files that stand in the way.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

use super::{ended, expect_accepted, flags, hint, with, words};
use crate::support::Tiny;

/// A run of two folds.
struct Trained {
    tiny: Tiny,
    run: PathBuf,
}

impl Trained {
    fn new() -> Trained {
        let tiny = Tiny::new();
        let run = tiny.path("run");
        for fold in ["0", "1"] {
            tiny.trained(&run, &["--fold", fold, "--epochs", "1", "--skip-validation"]);
        }
        Trained { tiny, run }
    }

    /// The folder of a fold.
    fn fold(&self, fold: usize) -> PathBuf {
        self.run.join(format!("fold_{fold}"))
    }

    /// Predicts the test image, or the images of a folder, into a folder of a name.
    fn predict(&self, model: &Path, images: &Path, out: &str, more: &[&str]) -> Vec<String> {
        let out = self.tiny.path(out);
        let args =
            ["predict", "-m", text(model), "-i", text(images), "--output", text(&out), "--threads", "1"];
        with(&words(&[&args[..], &["--ram", "512MiB"]].concat()), &words(more))
    }

    fn test_images(&self) -> PathBuf {
        self.tiny.data.join("imagesTs")
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Follows hints about the memory limit until a command succeeds. Returns the hints; each raises the limit.
fn raised_until_accepted(args: &[String], from: u64) -> Vec<String> {
    let (mut limit, mut hints) = (from, Vec::new());
    loop {
        let args = with(args, &words(&["--ram", &format!("{limit}MiB")]));
        let ended = ended(&args);
        if ended.status == Some(0) {
            return hints;
        }
        let said = hint(&args);
        assert!(hints.len() < 6, "{hints:?}: {said}");
        let number = |text: &str| -> u64 {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_else(|_| panic!("{said}"))
        };
        let next = match said.strip_prefix("raise --ram by at least ") {
            Some(missing) => limit + number(missing),
            None => match said.strip_prefix("raise --ram above ") {
                Some(least) => number(least),
                None => {
                    number(said.strip_prefix("raise the limit to --ram ").unwrap_or_else(|| panic!("{said}")))
                }
            },
        };
        assert!(next > limit, "{limit} MiB: {said}");
        limit = next;
        hints.push(said);
    }
}

#[test]
fn every_way_to_predict_below_a_limit_that_is_proposed_works() {
    let trained = Trained::new();
    let (model, images) = (trained.fold(0), trained.test_images());
    let predict = |out: &str, more: &[&str]| trained.predict(&model, &images, out, more);
    // A limit below the process itself: the number, and the command that is named, which states the least limit.
    let hints = raised_until_accepted(&predict("small", &[]), 20);
    let least = hints[0].strip_prefix("raise --ram above ").unwrap_or_else(|| panic!("{hints:?}"));
    let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
    assert!(hints[0].contains("the plan of `plimsoll predict` states the least limit"), "{hints:?}");
    let planned = ended(&predict("planned", &["--plan", "--json"])).printed;
    let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
    let stated = planned[0]["cases"][0]["least_ram_bytes"].as_u64().unwrap();
    assert!(stated > (least - 1) << 20, "{stated} bytes, although the process needs {least} MiB");
    expect_accepted(&predict("planned", &["--ram", &stated.to_string()]), "the least limit of the plan");
    // Windows that do not fit before any case is read.
    let args = predict("batch", &["--window-batch", "1024", "--ram", &format!("{least}MiB")]);
    let said = hint(&args);
    assert_eq!(flags(&said), ["--ram", "--window-batch"], "{said}");
    expect_accepted(&with(&args, &words(&["--window-batch", "1", "--ram", &stated.to_string()])), &said);
    let hints = raised_until_accepted(&predict("batch_more", &["--window-batch", "1024"]), least);
    assert!(hints[0].starts_with("raise --ram by at least "), "{hints:?}");
    // An arena that is too large: each alternative fits, and runs.
    let args = predict("large", &["--window-batch", "1024", "--ram", &format!("{}MiB", least + 8)]);
    let said = hint(&args);
    let ways: Vec<&str> =
        said.strip_prefix("raise the limit to ").unwrap_or_else(|| panic!("{said}")).split(", or ").collect();
    assert!(
        ways.len() > 2 && said.contains("--window-batch 1,") && said.contains("--precision bf16"),
        "{said}"
    );
    for (number, way) in ways.into_iter().enumerate() {
        let proposed = flags(way);
        assert!(!proposed.is_empty(), "{way}");
        let out = trained.tiny.path(&format!("large_{number}"));
        expect_accepted(&with(&with(&args, &proposed), &words(&["--output", text(&out)])), way);
    }
}

#[test]
fn every_way_to_predict_on_a_device_that_is_proposed_is_planned() {
    let trained = Trained::new();
    let on_device = ["--plan", "--device", "sm_80", "--window-batch", "1024"];
    let args = trained.predict(&trained.fold(0), &trained.test_images(), "labels", &on_device);
    let with_vram = |limit: &str| with(&args, &words(&["--vram", limit]));
    // A limit below the driver itself, then one below the arena.
    let said = hint(&with_vram("1MiB"));
    let above = said.strip_prefix("raise --vram above ").unwrap_or_else(|| panic!("{said}"));
    let driver: u64 = above.split(' ').next().unwrap().parse().unwrap();
    let args = with_vram(&format!("{}MiB", driver + 8));
    let said = hint(&args);
    let ways: Vec<&str> = said.strip_prefix("raise the limit to ").unwrap().split(", ").collect();
    let [raise, fewer, other] = ways[..] else { panic!("{said}") };
    expect_accepted(&with(&args, &flags(raise)), raise);
    assert_eq!(flags(fewer), ["--window-batch"], "{said}");
    expect_accepted(&with(&args, &words(&["--window-batch", "1"])), fewer);
    assert!(other.ends_with("predict with --device cpu"), "{said}");
    let mut on_processor = with(&args, &words(&["--device", "cpu"]));
    let at = on_processor.iter().position(|arg| arg == "--vram").unwrap();
    on_processor.drain(at..at + 2);
    expect_accepted(&on_processor, other);
}

#[test]
#[cfg(unix)]
fn probabilities_that_the_system_refuses_are_written_once_its_limit_is_raised_as_proposed() {
    let trained = Trained::new();
    let images = trained.tiny.path("wide");
    fs::create_dir(&images).unwrap();
    // Voxels are decided in another order than they are stored in: probabilities wait on the disk, 8 bytes a voxel.
    let geometry = Geometry::new([20, 64, 60], Affine::from_spacing(Spacing([0.001; 3]))).unwrap();
    let image = images.join("case_0000.nii.gz");
    let mut writer = VolumeWriter::create(&image, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&(0..76_800u32).map(|voxel| (voxel % 251) as u8).collect::<Vec<u8>>()).unwrap();
    writer.finish().unwrap();
    let args = trained.predict(&trained.fold(0), &images, "labels", &["--save-probabilities"]);
    // A shell sets the limit: 256 blocks of 512 or 1024 bytes.
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll")])
        .args(&args)
        .output();
    let error = crate::support::Ended::from(limited.unwrap()).error(1);
    assert!(error.contains("600.0 KiB of temporary probabilities cannot be written beside"), "{error}");
    assert!(
        error.ends_with("hint: raise the limit of file sizes (`ulimit -f`), or write to another disk"),
        "{error}"
    );
    let out = trained.tiny.path("labels");
    assert!(!out.join("case.nii.gz").exists() && !out.join("case.npz").exists());
    expect_accepted(&args, &error);
    assert!(out.join("case.nii.gz").is_file());
}

#[test]
fn sums_that_are_proposed_are_accepted() {
    let trained = Trained::new();
    let images = trained.test_images();
    let predict = |more: &[&str]| trained.predict(&trained.run, &images, "labels", more);
    // Two folds have two heads.
    let said = hint(&predict(&["--sum", "features"]));
    assert_eq!(said, "sum logits: --sum logits, or leave --sum out");
    expect_accepted(&predict(&["--sum", "logits"]), &said);
    expect_accepted(&predict(&["--overwrite"]), &said);
}

#[test]
fn units_that_are_proposed_are_accepted() {
    let trained = Trained::new();
    let images = trained.tiny.path("micrometres");
    fs::create_dir(&images).unwrap();
    // The phantoms that the model was trained on have voxels of a thousandth of a millimetre.
    let geometry = Geometry::new([8, 9, 10], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let image = images.join("case_0000.nii.gz");
    let mut writer = VolumeWriter::create(&image, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&(0..720).map(|voxel| (voxel % 251) as u8).collect::<Vec<u8>>()).unwrap();
    writer.finish().unwrap();
    let args = trained.predict(&trained.fold(0), &images, "labels", &[]);
    let said = hint(&args);
    assert!(said.contains("which --unit um, mm or m corrects"), "{said}");
    expect_accepted(&with(&args, &words(&["--unit", "um"])), &said);
}

#[test]
#[cfg(unix)]
fn labels_are_written_to_the_other_folder_that_is_proposed() {
    let trained = Trained::new();
    let (images, out) = (trained.tiny.path("links"), trained.tiny.path("labels"));
    for folder in [&images, &out] {
        fs::create_dir(folder).unwrap();
    }
    // The image of the case lies where its labels would.
    let stored = out.join("case.nii.gz");
    let test = fs::read_dir(trained.test_images()).unwrap().next().unwrap().unwrap().path();
    fs::copy(test, &stored).unwrap();
    std::os::unix::fs::symlink(&stored, images.join("case_0000.nii.gz")).unwrap();
    let before = fs::read(&stored).unwrap();
    let said = hint(&trained.predict(&trained.fold(0), &images, "labels", &["--overwrite"]));
    assert_eq!(said, "write the labels to another folder");
    assert!(fs::read(&stored).unwrap() == before, "the image was replaced");
    expect_accepted(&trained.predict(&trained.fold(0), &images, "other", &["--overwrite"]), &said);
}

#[test]
fn a_case_whose_probabilities_are_damaged_is_predicted_again_as_proposed() {
    let trained = Trained::new();
    let (first, second) = (trained.fold(0), trained.fold(1));
    let mut args = trained.predict(&first, &trained.test_images(), "mean", &["--save-probabilities"]);
    args.extend(words(&["-m", text(&second)]));
    expect_accepted(&args, "whole");
    let out = trained.tiny.path("mean");
    let mut written = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let labels = written.find(|path| path.extension().is_some_and(|ending| ending == "gz")).unwrap();
    let expected = fs::read(&labels).unwrap();
    let probabilities = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "npz"))
        .unwrap();
    fs::remove_file(&labels).unwrap();
    fs::File::options().write(true).open(&probabilities).unwrap().set_len(100).unwrap();
    let said = hint(&args);
    assert_eq!(said, "remove this file: the same command then predicts the case again");
    assert!(ended(&args).said.contains(text(&probabilities)));
    fs::remove_file(&probabilities).unwrap();
    expect_accepted(&args, &said);
    assert!(fs::read(&labels).unwrap() == expected);
}

#[test]
#[cfg(unix)]
fn an_interrupted_prediction_is_done_again_as_proposed() {
    let trained = Trained::new();
    let images = trained.tiny.path("many");
    fs::create_dir(&images).unwrap();
    let test = fs::read_dir(trained.test_images()).unwrap().next().unwrap().unwrap().path();
    for case in 0..6 {
        fs::copy(&test, images.join(format!("case_{case}_0000.nii.gz"))).unwrap();
    }
    // Windows that lie a voxel apart take a while.
    let args = trained.predict(&trained.fold(0), &images, "labels", &["--overlap", "0.9"]);
    let out = trained.tiny.path("labels");
    let labels = |case: usize| out.join(format!("case_{case}.nii.gz"));
    let mut command = crate::support::plimsoll();
    let child = command.args(&args).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    while !labels(0).exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first case");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.unwrap().success());
    let interrupted = crate::support::Ended::from(child.wait_with_output().unwrap());
    let error = interrupted.error(130);
    assert!(error.contains("finished cases are kept, unless --overwrite is given"), "{error}");
    assert!(!labels(5).exists());
    let written = fs::metadata(labels(0)).unwrap().modified().unwrap();
    expect_accepted(&args, &error);
    assert!((0..6).all(|case| labels(case).exists()));
    assert_eq!(
        fs::metadata(labels(0)).unwrap().modified().unwrap(),
        written,
        "a finished case was predicted again"
    );
}
