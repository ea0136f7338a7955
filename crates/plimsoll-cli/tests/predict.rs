//! Prediction of a folder: what cannot be predicted is told and does not end the others, what is there is kept, and no image is
//! ever replaced.

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::support::{dataset, plimsoll, run_error, run_json, small_run};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::Dataset;
use plimsoll_infer::{
    Destination, FolderProgress, FolderReport, InferError, LabelNames, PredictOptions, Predictor,
    predict_cases,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::Model;
use plimsoll_nn::weights::{SafetensorsFile, safetensors};
use plimsoll_run::CheckpointKind;
use plimsoll_volume::{VolumeError, VolumeFile};
use serde_json::Value;

mod plans;
mod records;

/// The folder of the trained model that the tests of this file share.
fn shared() -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    SHARED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("predict");
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let data = dataset(&folder);
        run_json(&small_run(data.to_str().unwrap(), folder.join("run").to_str().unwrap()));
        folder
    })
}

fn model() -> String {
    shared().join("run").to_str().unwrap().into()
}

/// A sound image of the data set.
fn sound() -> PathBuf {
    shared().join("dataset/imagesTs/vessel_test_000_0000.nii.gz")
}

/// A folder for images, and one for labels.
struct Folders {
    dir: tempfile::TempDir,
}

impl Folders {
    fn new() -> Folders {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("images")).unwrap();
        Folders { dir }
    }

    fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    fn labels(&self) -> PathBuf {
        self.dir.path().join("labels")
    }

    fn add_sound(&self, case: &str) {
        fs::copy(sound(), self.images().join(format!("{case}_0000.nii.gz"))).unwrap();
    }

    /// An image of 30 × 32 × 34 voxels whose position in space is its `pixdim` (width, height, depth) alone.
    fn add(&self, case: &str, pixdim: [f32; 3]) {
        fs::write(self.images().join(format!("{case}_0000.nii.gz")), nifti([30, 32, 34], pixdim)).unwrap();
    }

    fn args<'a>(&'a self, model: &'a str, rest: &[&'a str]) -> Vec<String> {
        let (images, labels) = (self.images(), self.labels());
        let args = ["predict", model, "-i", images.to_str().unwrap(), "-o", labels.to_str().unwrap()];
        args.iter().chain(rest).map(|arg| arg.to_string()).collect()
    }

    fn written(&self) -> Vec<String> {
        let files = fs::read_dir(self.labels()).unwrap();
        let mut names: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        // The record of a call is beside labels in any case.
        names.retain(|name| name != "run.json");
        names.sort();
        names
    }
}

/// Bytes of a NIfTI-1 file of shorts without sform and qform.
fn nifti([depth, height, width]: [usize; 3], pixdim: [f32; 3]) -> Vec<u8> {
    let mut file = vec![0u8; 352];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &348i32.to_le_bytes());
    for (axis, extent) in [3, width, height, depth, 1, 1, 1, 1].into_iter().enumerate() {
        put(40 + 2 * axis, &(extent as i16).to_le_bytes());
    }
    put(70, &4i16.to_le_bytes());
    put(72, &16i16.to_le_bytes());
    put(76, &1f32.to_le_bytes());
    for (axis, spacing) in pixdim.into_iter().enumerate() {
        put(80 + 4 * axis, &spacing.to_le_bytes());
    }
    put(108, &352f32.to_le_bytes());
    put(344, b"n+1\0");
    for at in 0..depth * height * width {
        file.extend(((at * 7919 % 251) as i16).to_le_bytes());
    }
    file
}

/// The result of a run: its success, its report, and its error stream.
fn outcome(args: &[String]) -> (bool, Value, String) {
    let output = plimsoll().args(args).arg("--json").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.success(), report, errors)
}

fn names(report: &Value, list: &str) -> Vec<String> {
    let cases = report[list].as_array().unwrap();
    cases.iter().map(|case| case["case"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_spacing_that_cannot_be_meant_is_told_within_the_limit_and_the_other_cases_are_predicted() {
    let folders = Folders::new();
    folders.add("good", [1e-3; 3]);
    let spacings = [
        ("e20", [1e20; 3], "1.00e20"),
        ("e8", [1e8; 3], "1.00e8"),
        ("e8_one_axis", [1e-3, 1e8, 1e-3], "1.00e8"),
        ("e9", [1e9; 3], "1.00e9"),
        ("inf", [1e-3, 1e-3, f32::INFINITY], "pixdim"),
        ("minus", [1e-3, -1e-3, 1e-3], "pixdim"),
        ("minute", [1e-20; 3], "1.00e-20"),
        ("nan", [f32::NAN; 3], "pixdim"),
        ("zero", [0.0; 3], "pixdim"),
    ];
    for (case, pixdim, _) in spacings {
        folders.add(case, pixdim);
    }
    let (succeeded, report, errors) = outcome(&folders.args(&model(), &["--ram", "100MiB"]));
    assert!(!succeeded && errors.contains("9 of 10 cases could not be predicted"), "{errors}");
    assert_eq!(names(&report, "cases"), ["good"]);
    assert_eq!(folders.written(), ["good.nii.gz"]);
    let failed = report["failed"].as_array().unwrap();
    for (failed, (case, _, said)) in failed.iter().zip(spacings) {
        let error = failed["error"].as_str().unwrap();
        assert!(error.starts_with(&format!("{case}: ")), "{error}");
        assert!(error.contains(&format!("{case}_0000.nii.gz")) && error.contains(said), "{error}");
        assert!(!failed["hint"].as_str().unwrap().is_empty());
    }
    assert_eq!(failed.len(), spacings.len());
    let bytes = |key: &str| report[key].as_u64().unwrap();
    assert!(bytes("peak_rss_bytes") <= 100 << 20, "{report}");
    assert!(bytes("planned_bytes") <= 100 << 20, "{report}");
}

/// Labels of a model for the same voxels at two spacings, the first as its header says and the second in µm, although that says nothing.
fn check_unit(model: &str, millimetres: f32, more: &[&str]) {
    let predicted = |length: f32, unit: &[&str]| {
        let folders = Folders::new();
        folders.add("a", [length; 3]);
        let args = folders.args(model, &[&["--threads", "2"][..], unit, more].concat());
        let plan = args.iter().cloned().chain(["--plan".to_string()]).collect::<Vec<_>>();
        let (is_planned, plan, said) = outcome(&plan);
        assert!(is_planned, "{said}");
        let (is_predicted, report, said) = outcome(&args);
        assert!(is_predicted, "{said}");
        assert_eq!(plan[0]["cases"][0]["plan"]["windows"], report["cases"][0]["windows"]);
        let mut file = VolumeFile::open(folders.labels().join("a.nii.gz")).unwrap();
        assert!((file.geometry().spacing().0[0] / f64::from(length) - 1.0).abs() < 1e-6, "that of the image");
        let mut labels = Vec::new();
        let planes = file.for_each_plane(0, &Budget::new(Bytes::mib(64)), |_, plane| {
            labels.extend_from_slice(plane);
            Ok::<(), VolumeError>(())
        });
        planes.unwrap();
        (report["cases"][0]["windows"].clone(), labels)
    };
    let (windows, labels) = predicted(millimetres, &[]);
    let (of_unit, found) = predicted(millimetres * 1000.0, &["--unit", "um"]);
    assert_eq!(windows, of_unit);
    // The spacing in a header has single precision, so that voxels may be interpolated at a ten-millionth beside where they are.
    let same = labels.iter().zip(&found).filter(|(a, b)| a == b).count();
    assert!(labels.len() == found.len() && same as f64 > 0.999 * found.len() as f64, "{same}");
}

#[test]
fn lengths_are_read_in_the_unit_that_is_said_and_labels_are_on_the_grid_of_the_image() {
    check_unit(&model(), 1e-3, &[]);
    let folders = Folders::new();
    folders.add("a", [1.0; 3]);
    let (is_predicted, _, said) = outcome(&folders.args(&model(), &[]));
    assert!(!is_predicted && said.contains("--unit um, mm or m"), "{said}");
    let of_nnunet =
        "../../oracles/nnunet/cascade/results/Dataset105_Cascade/nnUNetTrainer__nnUNetPlans__3d_fullres";
    let of_nnunet = Path::new(env!("CARGO_MANIFEST_DIR")).join(of_nnunet);
    check_unit(of_nnunet.to_str().unwrap(), 1.0, &["--disable_tta"]);
}

#[test]
fn a_bad_case_does_not_end_a_folder_and_what_is_there_is_kept() {
    let folders = Folders::new();
    for case in ["a", "c", "d"] {
        folders.add_sound(case);
    }
    fs::write(folders.images().join("b_0000.nii.gz"), "no image").unwrap();
    let args = folders.args(&model(), &[]);
    // As people see it: a line for each case, then the error and what to do.
    let output = plimsoll().args(&args).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    let line = |start: &str| errors.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((line("b: "), line("error: "), line("hint: ")), (1, 1, 1), "{errors}");
    assert!(errors.contains("error: 1 of 4 cases could not be predicted: b: "), "{errors}");
    assert_eq!((line("case 1 of 4: a, "), line("case 3 of 4: c, "), line("case 4 of 4: d, ")), (1, 1, 1));
    assert!(errors.contains(" left\n"), "{errors}");
    assert_eq!(folders.written(), ["a.nii.gz", "c.nii.gz", "d.nii.gz"]);

    // Only what is missing is predicted the next time.
    let kept = fs::read(folders.labels().join("a.nii.gz")).unwrap();
    fs::write(folders.labels().join("a.nii.gz"), "kept").unwrap();
    fs::remove_file(folders.labels().join("c.nii.gz")).unwrap();
    fs::remove_file(folders.images().join("b_0000.nii.gz")).unwrap();
    let (succeeded, report, errors) = outcome(&args);
    assert!(succeeded, "{errors}");
    assert_eq!(
        (names(&report, "cases"), names(&report, "kept")),
        (vec!["c".into()], vec!["a".into(), "d".into()])
    );
    assert!(errors.contains("warning: 2 predictions already existed and were kept; --overwrite"), "{errors}");
    assert_eq!(fs::read_to_string(folders.labels().join("a.nii.gz")).unwrap(), "kept");
    let (succeeded, report, _) = outcome(&args);
    assert_eq!((succeeded, names(&report, "kept").len()), (true, 3));
    let (succeeded, report, _) = outcome(&folders.args(&model(), &["--overwrite"]));
    assert_eq!((succeeded, names(&report, "cases").len()), (true, 3));
    assert_eq!(fs::read(folders.labels().join("a.nii.gz")).unwrap(), kept);
}

#[test]
fn labels_are_never_written_into_the_folder_of_the_images() {
    let folders = Folders::new();
    // Without the number of a channel, labels would have the name of the image.
    let image = folders.images().join("scan.nii.gz");
    fs::copy(sound(), &image).unwrap();
    let before = fs::read(&image).unwrap();
    let link = folders.dir.path().join("link");
    std::os::unix::fs::symlink(folders.images(), &link).unwrap();
    let (images, dotted) = (folders.images(), folders.images().join("../images/."));
    for output in [&images, &dotted, &link] {
        let output = output.to_str().unwrap();
        for flags in [&["--overwrite"][..], &[]] {
            let args = ["predict", &model(), "-i", images.to_str().unwrap(), "-o", output];
            let error = run_error(&[&args[..], flags].concat());
            assert!(error.contains("is the folder of the images"), "{error}");
        }
        let one = ["predict", &model(), "-i", image.to_str().unwrap(), "-o", output, "--overwrite"];
        let error = run_error(&one);
        assert!(error.contains("would replace an image") && error.contains("scan.nii.gz"), "{error}");
    }
    assert_eq!(fs::read(&image).unwrap(), before);
    assert_eq!(fs::read_dir(&images).unwrap().count(), 1);
}

/// A model in a folder below this one, all weights of which are no numbers.
fn spoilt_model(dir: &Path) -> String {
    let spoilt = dir.join("spoilt");
    fs::create_dir_all(spoilt.join("fold_all")).unwrap();
    let original = shared().join("run");
    let specification = "fold_all/specification.json";
    fs::copy(original.join(specification), spoilt.join(specification)).unwrap();
    let file = "fold_all/checkpoint_final.safetensors";
    let mut from = SafetensorsFile::open(&original.join(file)).unwrap();
    let metadata: BTreeMap<String, String> = from.metadata().clone();
    let tensors: Vec<_> = from.tensors().map(|(name, shape)| (name.to_string(), shape)).collect();
    let largest = tensors.iter().map(|(_, shape)| shape.count()).max().unwrap();
    let mut to = fs::File::create(spoilt.join(file)).unwrap();
    let fill = |tensor: usize, values: &mut [f32]| {
        let (name, shape) = &tensors[tensor];
        from.read(name, shape, values).unwrap();
        // As many weights as a diverging run spoils: all of them.
        values.fill(f32::NAN);
        Ok(())
    };
    safetensors::write(&mut to, &tensors, &metadata, &mut vec![0.0; largest], fill).unwrap();
    spoilt.to_str().unwrap().into()
}

#[test]
fn weights_that_are_not_finite_predict_nothing() {
    let folders = Folders::new();
    folders.add_sound("a");
    folders.add_sound("b");
    let spoilt = spoilt_model(folders.dir.path());
    let errors =
        support::run_error(&folders.args(&spoilt, &[]).iter().map(|arg| &**arg).collect::<Vec<&str>>());
    assert!(errors.contains("values of `") && errors.contains("not finite"), "{errors}");
    assert!(
        errors.contains("checkpoint_final.safetensors") && errors.contains("an earlier checkpoint"),
        "{errors}"
    );
    assert!(!folders.labels().exists() || folders.written().is_empty(), "not even a temporary file is left");
}

#[test]
fn a_run_of_another_version_is_refused_by_its_version() {
    let folders = Folders::new();
    folders.add_sound("a");
    let (older, own) = (folders.dir.path().join("older"), shared().join("run"));
    fs::create_dir_all(older.join("fold_all")).unwrap();
    fs::copy(
        own.join("fold_all/checkpoint_final.safetensors"),
        older.join("fold_all/checkpoint_final.safetensors"),
    )
    .unwrap();
    let file = "fold_all/specification.json";
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(own.join(file)).unwrap()).unwrap();
    for version in [serde_json::json!(1), serde_json::json!(99), serde_json::Value::Null] {
        text["version"] = version.clone();
        fs::write(older.join(file), text.to_string()).unwrap();
        let args = folders.args(older.to_str().unwrap(), &[]);
        let error = support::run_error(&args.iter().map(|arg| &**arg).collect::<Vec<&str>>());
        let found = if version.is_null() { "none".to_string() } else { version.to_string() };
        assert!(error.contains(&format!("has the run version {found}, but this program reads")), "{error}");
        assert!(error.contains("hint: use the version that wrote it"), "{error}");
    }
}

#[test]
fn a_case_whose_logits_leave_the_last_arena_no_room_gets_a_smaller_one_and_the_same_labels() {
    let folders = Folders::new();
    let path = |name: &str| folders.dir.path().join(name).to_str().unwrap().to_string();
    // A network whose forward pass can free something: the skip is idle while the second stage is computed, at full
    // resolution, and one convolution brings it back.
    let (config, run) = (path("plimsoll.toml"), path("run"));
    let network = "[network]\nnet = \"plain\"\nfeatures = [32, 64]\nstrides = [[1, 1, 1], [1, 1, 1]]\nencoder_convs = [1, 2]\n";
    fs::write(&config, network).unwrap();
    let data = shared().join("dataset");
    let train = ["train", data.to_str().unwrap(), "--out", &run, "--fold", "all", "--ram", "900MiB"];
    let short = ["--epochs", "1", "--iterations", "2", "--validation-iterations", "1", "--batch-size", "1"];
    run_json(&[&train[..], &short, &["--patch-size", "16,16,16", "--config", &config]].concat());

    let large = ["--overlap", "0", "--threads", "1"];
    let image = |name: &str, shape: [usize; 3]| {
        fs::write(folders.images().join(name), nifti(shape, [1e-3; 3])).unwrap();
    };
    let predict = |input: &str, output: &str, ram: &str| {
        let input = folders.images().join(input);
        let args = ["predict", &run, "-i", input.to_str().unwrap(), "-o", output, "--ram", ram];
        run_json(&[&args[..], &large].concat())
    };
    image("large_0000.nii.gz", [16, 64, 64]);
    let roomy = predict("large_0000.nii.gz", &path("roomy"), "900MiB");
    let needed = roomy["cases"][0]["plan"]["minimum_ram_bytes"].as_u64().unwrap();
    // The engine of a smaller case fits; beside the logits of the large one, it no longer does.
    let limit = (needed - (64 << 10)).to_string();
    let alone = predict("large_0000.nii.gz", &path("alone"), &limit);
    image("a_small_0000.nii.gz", [16, 16, 16]);
    let both = predict("", &path("both"), &limit);
    assert_eq!(names(&both, "cases"), ["a_small", "large"]);
    let arena = |report: &Value, case: usize| report["cases"][case]["plan"]["arena_bytes"].as_u64().unwrap();
    assert_eq!(arena(&both, 0), arena(&roomy, 0), "the first engine is the fastest");
    assert!(arena(&both, 1) < arena(&both, 0), "the second recomputes: {both}");
    assert_eq!(arena(&both, 1), arena(&alone, 0));
    let labels = |folder: &str| fs::read(folders.dir.path().join(folder).join("large.nii.gz")).unwrap();
    assert!(labels("both") == labels("alone") && labels("both") == labels("roomy"));
    let mut decoded = Vec::new();
    let file = folders.dir.path().join("both/large.nii.gz");
    let mut volume = VolumeFile::open(file).unwrap();
    let budget = Budget::new(Bytes::mib(1));
    let visit = |_, plane: &[u8]| {
        decoded.extend_from_slice(plane);
        Ok::<(), VolumeError>(())
    };
    volume.for_each_plane(0, &budget, visit).unwrap();
    assert!(decoded.contains(&0) && decoded.contains(&1), "labels that are all the same would prove nothing");
}

#[test]
fn an_interruption_ends_at_once_writes_nothing_for_its_case_and_what_was_done_is_kept() {
    let folders = Folders::new();
    for case in ["a", "b", "c"] {
        folders.add_sound(case);
    }
    fs::create_dir(folders.labels()).unwrap();
    let model = Model::open(&shared().join("run"), CheckpointKind::Final).unwrap();
    let summary = &model.config.task.segmentation().unwrap().dataset;
    let cases = Dataset::images(folders.images(), &summary.channels, &summary.file_ending).unwrap();
    let ending = summary.file_ending.clone();
    let to = Destination {
        folder: folders.labels(),
        names: LabelNames::Cases,
        ending,
        overwrite: false,
        probabilities: false,
        earlier: None,
    };
    let budget = Budget::new(Bytes::mib(256));
    let options = PredictOptions::new(0.5, false, 2);
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
    let mut predictor = Predictor::new(model.try_into().unwrap(), options, backend, &budget).unwrap();
    // Stopped in the midst of the second case, and before anything is read.
    for (stop_at, left) in [(Some(2), vec!["a.nii.gz"]), (None, vec!["a.nii.gz"])] {
        let stop = AtomicBool::new(stop_at.is_none());
        let mut seen = 0;
        let result = predict_cases(&mut predictor, &cases, &to, &stop, &mut |progress| {
            if let FolderProgress::Window { number, windows, .. } = progress {
                assert!(!stop.load(Ordering::Relaxed), "a window after the signal");
                seen += 1;
                stop.store(Some(number) == stop_at && windows.windows == 2, Ordering::Relaxed);
            }
        });
        assert!(matches!(result, Err(InferError::Interrupted { case }) if case == "b"));
        assert_eq!(
            (seen > 0, folders.written()),
            (stop_at.is_some(), left.into_iter().map(String::from).collect())
        );
    }
    let ends = |report: &FolderReport| (report.cases.len(), report.kept(), report.failed().count());
    let going = AtomicBool::new(false);
    let report = predict_cases(&mut predictor, &cases, &to, &going, &mut |_| {}).unwrap();
    assert_eq!(ends(&report), (3, 1, 0));
    let of = |case: &str| fs::read(folders.labels().join(format!("{case}.nii.gz"))).unwrap();
    assert!(of("a") == of("b") && of("b") == of("c"), "the same image has the same labels");
}

#[test]
fn a_bad_case_does_not_end_the_others_and_means_of_equal_models_are_equal() {
    let folders = Folders::new();
    folders.add_sound("a");
    fs::write(folders.images().join("b_0000.nii.gz"), "no image").unwrap();
    folders.add_sound("c");
    let (succeeded, ..) = outcome(&folders.args(&model(), &[]));
    assert!(!succeeded);
    let alone = fs::read(folders.labels().join("a.nii.gz")).unwrap();
    fs::remove_dir_all(folders.labels()).unwrap();
    // The run and its only fold are the same model in two folders.
    let (images, labels, run) = (folders.images(), folders.labels(), shared().join("run"));
    let fold = run.join("fold_all");
    let paths = [&run, &fold, &images, &labels].map(|path| path.to_str().unwrap().to_string());
    let [run, fold, images, labels] = &paths;
    let args: Vec<String> =
        ["predict", "-m", run, "-m", fold, "-i", images, "-o", labels].map(String::from).into();
    let (succeeded, report, errors) = outcome(&args);
    assert!(!succeeded && errors.contains("1 of 3 cases could not be predicted"), "{errors}");
    assert_eq!(
        (names(&report, "cases"), names(&report, "failed")),
        (vec!["a".into(), "c".into()], vec!["b".into()])
    );
    assert_eq!(fs::read(folders.labels().join("a.nii.gz")).unwrap(), alone);
    let files = folders.written().into_iter().filter(|name| name.ends_with(".nii.gz"));
    assert_eq!(files.collect::<Vec<_>>(), ["a.nii.gz", "c.nii.gz"]);
    // Again, with the case mended: it alone is predicted.
    folders.add_sound("b");
    let (succeeded, report, errors) = outcome(&args);
    assert!(succeeded && errors.contains("2 predictions already exist"), "{errors}");
    assert_eq!(
        (names(&report, "cases"), names(&report, "kept")),
        (vec!["b".into()], vec!["a".into(), "c".into()])
    );
}

#[test]
fn flags_of_volumes_are_kept_and_shown() {
    let folders = Folders::new();
    folders.add_sound("a");
    let plan = |rest: &[&str]| {
        let (succeeded, report, errors) =
            outcome(&folders.args(&model(), &[&["--overwrite"], rest].concat()));
        assert!(succeeded, "{errors}");
        report["cases"][0]["plan"].clone()
    };
    let (exact, halves) = (plan(&[]), plan(&["--ring", "f16"]));
    assert_eq!((&exact["ring"], &halves["ring"]), (&Value::from("f32"), &Value::from("f16")));
    assert!(halves["logits_bytes"].as_u64() < exact["logits_bytes"].as_u64());
    let other = plan(&["--precision", "bf16"]);
    assert!(other["arena_bytes"].as_u64() < exact["arena_bytes"].as_u64(), "{other}");
    let output = plimsoll().args(folders.args(&model(), &["--overwrite", "--ring", "f16"])).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Who asked for sums in f16 is not told of them.
    assert!(!said.contains("sums are stored as f16") && said.contains("export"), "{said}");
    // No processor stores features so.
    for asked in [["--overwrite", "--precision", "f16"], ["--plan", "--precision", "f16"]] {
        let output = plimsoll().args(folders.args(&model(), &asked)).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("stored as f16"), "{said}");
        assert!(said.contains("hint: f16 is for GPUs"), "{said}");
    }
}
