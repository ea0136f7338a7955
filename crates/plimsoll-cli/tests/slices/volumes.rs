//! Slices of volumes.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use plimsoll_volume::VolumeFile;

use super::discs;
use crate::support::{expect_same, plimsoll, run, run_error, run_json};

/// Arguments of a training of slices of seconds.
fn train<'a>(data: &'a str, out: &'a str) -> Vec<&'a str> {
    let mut args =
        vec!["train", data, "--out", out, "--ram", "512MiB", "--threads", "1", "--config", "/dev/null"];
    args.extend([
        "--dimensions",
        "2",
        "--features",
        "8,16,16",
        "--batch-size",
        "4",
        "--learning-rate",
        "0.02",
    ]);
    args.extend(["--epochs", "4", "--iterations", "15", "--validation-iterations", "2"]);
    args
}

#[test]
fn slices_are_trained_planned_predicted_in_the_images_geometry_and_scored() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let (data, place) =
        (data.to_str().unwrap(), |name: &str| dir.path().join(name).to_str().unwrap().to_string());
    let (out, predictions) = (place("run"), place("predictions"));
    let record = run_json(&train(data, &out));
    assert!(record["peak_rss_bytes"].as_u64() <= record["ram_budget_bytes"].as_u64());
    let specification: serde_json::Value =
        serde_json::from_slice(&fs::read(Path::new(&out).join("fold_0/specification.json")).unwrap())
            .unwrap();
    let config = &specification["config"];
    assert_eq!(
        config["task"]["segmentation"]["spacing"],
        serde_json::json!([1.0, 1.0]),
        "in the plane alone"
    );
    assert_eq!(config["training"]["patch"][0], 1);
    assert_eq!(config["training"]["loss"]["components"][0]["batch"], true, "Dice of the whole batch");
    assert_eq!(
        config["task"]["segmentation"]["augmentation"]["mirror_axes"],
        serde_json::json!([false, true, true])
    );
    // Across the planes nothing is resampled: as many slices come out as go in, and where they went in.
    let images = format!("{data}/imagesTs");
    run_json(&["predict", &out, "-i", &images, "-o", &predictions, "--ram", "512MiB"]);
    let geometry = |path: &str| *VolumeFile::open(path).unwrap().geometry();
    let (image, label) = (format!("{images}/case_5_0000.nii.gz"), format!("{predictions}/case_5.nii.gz"));
    assert_eq!(geometry(&image), geometry(&label));
    let scores = run_json(&["evaluate", &predictions, &format!("{data}/labelsTs")]);
    let dice = scores["foreground_mean"]["Dice"].as_f64().unwrap();
    assert!(dice >= 0.8, "Dice {dice}");
}

#[test]
fn a_plan_says_that_it_is_of_slices_and_follows_nnunets_rules() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let data = data.to_str().unwrap();
    let plan = |more: &[&str]| {
        run_json(
            &[&["plan", data, "--ram", "8GiB", "--config", "/dev/null", "--threads", "1"], more].concat(),
        )
    };
    let flat = plan(&["--dimensions", "2"]);
    assert_eq!(flat["dimensions"], 2);
    // The median slice of 40 × 44 pixels, halved to four: 8 divides both. 35 slices, of which a twentieth is two.
    assert_eq!((&flat["patch_size"], &flat["batch_size"]), (&serde_json::json!([1, 40, 48]), &2.into()));
    // A patch of one slice says the same, and so does a spacing of two numbers.
    let by_patch = plan(&["--patch-size", "1,40,48"]);
    assert_eq!(by_patch["parameters"], flat["parameters"]);
    assert_eq!(plan(&["--spacing", "1,1"])["patch_size"], flat["patch_size"]);
    assert_eq!(plan(&[])["dimensions"], 3, "volumes where nothing is said");
    let said =
        run(&["plan", data, "--dimensions", "2", "--ram", "8GiB", "--config", "/dev/null", "--threads", "1"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("in two dimensions: a patch is one slice across the depth"), "{said}");
    for net in [
        "resenc",
        "dynunet",
        "segresnet",
        "segresnetds",
        "swinunetr",
        "mednext",
        "attentionunet",
        "stunet",
        "unetr",
    ] {
        let one = plan(&["--dimensions", "2", "--net", net]);
        assert_eq!((&one["dimensions"], &one["patch_size"][0]), (&2.into(), &1.into()), "{net}");
    }
}

#[test]
fn residual_and_attention_networks_train_on_slices_too() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    for (net, size) in
        [("resenc", "--features"), ("segresnet", "--init-filters"), ("swinunetr", "--feature-size")]
    {
        let features = if net == "resenc" {
            "4,8,8"
        } else if net == "segresnet" {
            "8"
        } else {
            "12"
        };
        let out = dir.path().join(net);
        let mut args =
            vec!["train", data.to_str().unwrap(), "--out", out.to_str().unwrap(), "--ram", "512MiB"];
        args.extend([
            "--threads",
            "1",
            "--config",
            "/dev/null",
            "--dimensions",
            "2",
            "--net",
            net,
            size,
            features,
        ]);
        args.extend(["--patch-size", "1,64,64", "--batch-size", "2", "--epochs", "1", "--iterations", "2"]);
        args.extend(["--validation-iterations", "1"]);
        let settings = dir.path().join("settings.toml");
        if net == "swinunetr" {
            fs::write(&settings, "[network]\nnum_heads = [1, 1, 1, 1]\ndepths = [1, 1, 1, 1]\n").unwrap();
            let at = args.iter().position(|arg| *arg == "/dev/null").unwrap();
            args[at] = settings.to_str().unwrap();
        }
        assert_eq!(run_json(&args)["steps"], 2, "{net}");
    }
}

#[test]
fn slices_that_are_killed_in_the_middle_come_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let data = data.to_str().unwrap();
    let (whole, killed) = (dir.path().join("whole"), dir.path().join("killed"));
    run_json(&train(data, whole.to_str().unwrap()));
    let args = train(data, killed.to_str().unwrap());
    let mut child = plimsoll().args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (start, log) = (Instant::now(), killed.join("fold_0/metrics.jsonl"));
    // Behind the second epoch of four.
    while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 2 {
        assert!(start.elapsed() < Duration::from_secs(300) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    // `kill` is SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!killed.join("fold_0/checkpoint_final.safetensors").exists());
    run_json(&[&args[..], &["--resume"]].concat());
    expect_same(&killed, &whole, "after a kill");
}

#[test]
fn what_predicting_holds_does_not_grow_with_the_slices() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let out = dir.path().join("run");
    let quick = ["--epochs", "1", "--iterations", "1", "--skip-validation"];
    let args = train(data.to_str().unwrap(), out.to_str().unwrap());
    let args: Vec<&str> = args[..args.len() - 6].iter().copied().chain(quick).collect();
    run_json(&args);
    let images = dir.path().join("images");
    fs::create_dir(&images).unwrap();
    for (name, slices) in [("few", 8), ("many", 800)] {
        let image = images.join(format!("{name}_0000.nii.gz"));
        discs::volume(&image, &dir.path().join("labels.nii.gz"), [slices, 40, 44], [3.0, 1.0, 1.0], 4);
    }
    let (images, labels) = (images.to_str().unwrap(), dir.path().join("out"));
    let report = run_json(&["predict", out.to_str().unwrap(), "-i", images, "-o", labels.to_str().unwrap()]);
    let needs = |case: usize, part: &str| report["cases"][case]["plan"][part].as_u64().unwrap();
    let (few, many) = (needs(0, "minimum_ram_bytes"), needs(1, "minimum_ram_bytes"));
    // A hundred times the slices: only where each of them lies is held, 24 bytes a slice.
    assert!(many - few <= 24 * 792 + 4096, "{few} and {many}");
    assert!(
        needs(1, "logits_bytes") < 2 * needs(0, "logits_bytes"),
        "two planes of logits, whatever the depth"
    );
    // With room for the inspection of a case, which comes before its windows, but not for its 1.3 MiB of voxels.
    let least = format!("{}", many + (1 << 20));
    let report = run_json(&[
        "predict",
        out.to_str().unwrap(),
        "-i",
        images,
        "-o",
        labels.to_str().unwrap(),
        "--overwrite",
        "--ram",
        &least,
    ]);
    assert_eq!(report["cases"].as_array().unwrap().len(), 2);
}

#[test]
fn settings_that_contradict_two_dimensions_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let data = data.to_str().unwrap();
    for (more, says) in [
        (["--dimensions", "2", "--patch-size", "8,32,32"], "`patch_size` is [8, 32, 32]"),
        (["--dimensions", "3", "--patch-size", "1,32,32"], "`patch_size` is [1, 32, 32]"),
        (["--dimensions", "2", "--spacing", "2,1,1"], "`spacing` is [2, 1, 1]"),
        (["--dimensions", "3", "--spacing", "1,1"], "`spacing` is [1, 1]"),
        (["--dimensions", "2", "--net", "seresnext50"], "`net` is seresnext50"),
    ] {
        let error =
            run_error(&[&["plan", data, "--ram", "1GiB", "--config", "/dev/null"], &more[..]].concat());
        assert!(error.contains(says), "{more:?}: {error}");
    }
    // Images with one label each have no slices.
    let classes = dir.path().join("classes");
    let images = plimsoll_data::pictures::phantom::PhantomImages { images: [2, 1, 1], side: 40, seed: 2 };
    plimsoll_data::pictures::phantom::write(&classes, &images).unwrap();
    let error = run_error(&["plan", classes.to_str().unwrap(), "--ram", "1GiB", "--dimensions", "2"]);
    assert!(error.contains("`dimensions` is set, but it has no effect here"), "{error}");
}
