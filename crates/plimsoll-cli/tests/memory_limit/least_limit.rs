//! The least limit of a plan covers the whole life of a run, for any number of cases, folds and pictures.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

use crate::bytes;
use crate::support::plimsoll;

/// A data set of tiny cases, which all have the same voxels.
fn tiny_cases(folder: &Path, count: usize) -> PathBuf {
    let data = folder.join(format!("tiny_{count}"));
    for part in ["imagesTr", "labelsTr"] {
        fs::create_dir_all(data.join(part)).unwrap();
    }
    let description = format!(
        r#"{{"channel_names": {{"0": "CT"}}, "labels": {{"background": 0, "ball": 1}},
            "numTraining": {count}, "file_ending": ".nii"}}"#
    );
    fs::write(data.join("dataset.json"), description).unwrap();
    let geometry = Geometry::new([8; 3], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let write = |path: PathBuf, element, bytes: &[u8]| {
        let mut writer = VolumeWriter::create(&path, &geometry, 1, element, None).unwrap();
        writer.write_planes(bytes).unwrap();
        writer.finish().unwrap();
    };
    let voxels: Vec<u8> = (0..512i16).flat_map(|at| (at * 37 % 900 - 200).to_ne_bytes()).collect();
    let labels: Vec<u8> = (0..512).map(|at| u8::from(at / 64 % 3 == 1)).collect();
    let (image, label) = (|n| format!("imagesTr/c{n:05}_0000.nii"), |n| format!("labelsTr/c{n:05}.nii"));
    write(data.join(image(0)), ElementType::I16, &voxels);
    write(data.join(label(0)), ElementType::U8, &labels);
    for number in 1..count {
        fs::hard_link(data.join(image(0)), data.join(image(number))).unwrap();
        fs::hard_link(data.join(label(0)), data.join(label(number))).unwrap();
    }
    data
}

/// Plans a run, and trains, resumes and predicts with it at the least limit.
fn live_at_the_least_limit(dir: &Path, data: &Path, fold: &str) {
    let name = data.file_name().unwrap().to_str().unwrap();
    let (run, cache) = (dir.join(format!("run_{name}")), dir.join(format!("cache_{name}")));
    let command = |args: &[&str]| {
        let mut command = plimsoll();
        command.env("XDG_CACHE_HOME", &cache).args(args).arg("--json");
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {args:?}: {errors}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let settings = |ram: &'static str, epochs: &'static str| {
        let mut args = vec![data.to_str().unwrap(), "--ram", ram, "--epochs", epochs];
        args.extend(["--net", "dynunet", "--features", "4,8", "--patch-size", "8,8,8", "--threads", "1"]);
        args.extend(["--iterations", "2", "--validation-iterations", "1", "--config", "/dev/null"]);
        args
    };
    // Whether the data set was inspected before makes no difference to the least limit.
    let plan = || bytes(&command(&[&["plan"][..], &settings("1GiB", "1")].concat()), "minimum_ram_bytes");
    let least = plan();
    assert_eq!(plan(), least, "{name}");
    fs::remove_dir_all(&cache).unwrap();
    let least: &'static str = least.to_string().leak();
    let tail = ["--fold", fold, "--out", run.to_str().unwrap()];
    command(&[&["train"][..], &settings(least, "1"), &tail].concat());
    // The second start reads what the first one found, and resumes.
    command(&[&["train"][..], &settings(least, "2"), &tail, &["--resume"]].concat());
    let labels = dir.join(format!("labels_{name}"));
    let images = ["imagesTr", "images"].map(|folder| data.join(folder));
    let images = images.iter().find(|folder| folder.is_dir()).unwrap();
    let one = fs::read_dir(images).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let (one, labels) = (one.to_str().unwrap(), labels.to_str().unwrap());
    command(&["predict", run.to_str().unwrap(), "-i", one, "-o", labels, "--ram", least, "--threads", "1"]);
}

pub fn the_least_limit_covers_the_whole_life_of_a_run_for_any_number_of_cases() {
    let dir = tempfile::tempdir().unwrap();
    for (count, fold) in [(3, "0"), (60, "0"), (300, "all"), (2000, "all")] {
        live_at_the_least_limit(dir.path(), &tiny_cases(dir.path(), count), fold);
    }
}

pub fn the_least_limit_covers_any_number_of_folds() {
    let dir = tempfile::tempdir().unwrap();
    for (count, folds) in [(40, 20), (600, 200)] {
        let data = tiny_cases(dir.path(), count);
        let names: Vec<String> = (0..count).map(|number| format!("c{number:05}")).collect();
        let fold = |fold: usize| {
            let (val, train): (Vec<_>, Vec<_>) =
                names.iter().enumerate().partition(|(number, _)| number % folds == fold);
            let list = |cases: Vec<(usize, &String)>| -> Vec<String> {
                cases.into_iter().map(|(_, name)| name.clone()).collect()
            };
            serde_json::json!({ "train": list(train), "val": list(val) })
        };
        let splits: Vec<serde_json::Value> = (0..folds).map(fold).collect();
        fs::write(data.join("splits_final.json"), serde_json::to_vec(&splits).unwrap()).unwrap();
        live_at_the_least_limit(dir.path(), &data, "0");
    }
}

pub fn the_least_limit_covers_reading_which_values_label_maps_have() {
    let dir = tempfile::tempdir().unwrap();
    for count in [3, 300] {
        let named = tiny_cases(dir.path(), count);
        let data = dir.path().join(format!("unnamed_{count}"));
        fs::create_dir_all(&data).unwrap();
        for (from, to) in [("imagesTr", "images"), ("labelsTr", "labels")] {
            fs::create_dir(data.join(to)).unwrap();
            for entry in fs::read_dir(named.join(from)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                // Long names make the kept values long.
                let long = format!("{}{}", "p".repeat(150), name.replace("_0000", ""));
                fs::hard_link(named.join(from).join(&name), data.join(to).join(long)).unwrap();
            }
        }
        live_at_the_least_limit(dir.path(), &data, "0");
    }
}

pub fn a_folder_of_a_hundred_thousand_files_is_refused_before_its_names_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("many/imagesTr");
    fs::create_dir_all(&images).unwrap();
    let description = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "ball": 1},
        "numTraining": 100000, "file_ending": ".nii.gz"}"#;
    fs::write(dir.path().join("many/dataset.json"), description).unwrap();
    for number in 0..100_000 {
        fs::File::create(images.join(format!("case_{number:06}_0000.nii.gz"))).unwrap();
    }
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../oracles/nnunet/flat/results/Dataset103_Flat/nnUNetTrainer__nnUNetPlans__2d");
    let [data, labels] = ["many", "labels"].map(|name| dir.path().join(name));
    let [data, images, model, labels] = [&data, &images, &model, &labels].map(|path| path.to_str().unwrap());
    for args in [
        &["inspect", data][..],
        &["predict", model, "-i", images, "-o", labels, "--plan"],
        &["predict", model, "-i", images, "-o", labels],
    ] {
        let output = plimsoll().args(args).args(["--ram", "90MiB", "--threads", "1"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(errors.contains("names of files") && errors.contains("--ram"), "{args:?}: {errors}");
    }
}

/// Pictures of two classes in folders, hard links of one file for each class.
fn tiny_pictures(folder: &Path, count: usize) -> PathBuf {
    let data = folder.join(format!("pictures_{count}"));
    for (class, low) in [("dark", 10u32), ("bright", 150)] {
        let of_class = data.join(class);
        fs::create_dir_all(&of_class).unwrap();
        let first = of_class.join("p00000.png");
        let value = |x: u32, y: u32| image::Luma([(low + (x * 7 + y) % 90) as u8]);
        image::ImageBuffer::<image::Luma<u8>, Vec<u8>>::from_fn(40, 40, value).save(&first).unwrap();
        for number in 1..count / 2 {
            fs::hard_link(&first, of_class.join(format!("p{number:05}.png"))).unwrap();
        }
    }
    data
}

pub fn the_least_limit_covers_the_whole_life_of_a_run_on_any_number_of_pictures() {
    let dir = tempfile::tempdir().unwrap();
    for count in [6, 60, 3000] {
        let data = tiny_pictures(dir.path(), count);
        let [run, cache, settings] =
            ["run", "cache", "settings.toml"].map(|name| dir.path().join(format!("{count}_{name}")));
        fs::write(
            &settings,
            "batch_size = 2\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n",
        )
        .unwrap();
        let [data, out, settings] = [&data, &run, &settings].map(|path| path.to_str().unwrap());
        let command = |args: &[&str]| {
            let mut command = plimsoll();
            command.env("XDG_CACHE_HOME", &cache).args(args).args(["--threads", "1", "--json"]);
            let output = command.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{count} pictures: {args:?}: {errors}");
            serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
        };
        let plan = || {
            bytes(&command(&["plan", data, "--config", settings, "--ram", "1GiB"]), "minimum_ram_bytes")
                .to_string()
        };
        let least = plan();
        assert_eq!(plan(), least, "{count} pictures");
        fs::remove_dir_all(&cache).unwrap();
        let train = |epochs| {
            let mut args = vec!["train", data, "--config", settings, "--out", out, "--ram", &least];
            args.extend(["--fold", "0", "--iterations", "2", "--epochs", epochs]);
            args
        };
        command(&train("1"));
        command(&[&train("2")[..], &["--resume"]].concat());
        let table = dir.path().join(format!("{count}.csv"));
        let one = Path::new(data).join("dark/p00000.png");
        let (one, table) = (one.to_str().unwrap(), table.to_str().unwrap());
        command(&["predict", out, "-i", one, "-o", table, "--ram", &least]);
    }
}
