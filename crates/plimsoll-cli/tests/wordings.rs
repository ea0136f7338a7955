//! Snapshots of the texts that users read, so that a reviewer sees each changed word: the help of every command, a plan, and the
//! errors that users meet most. `INSTA_UPDATE=always cargo test -p plimsoll-cli --test all wordings` accepts new texts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::{Tiny, plimsoll};

/// Compares with `tests/snapshots/NAME.snap`.
fn expect(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The output of a command with the folder of the test as `DIR`.
fn printed(dir: &Path, args: &[&str]) -> (bool, String) {
    // Some texts depend on the instruction set.
    let output = plimsoll().env("PLIMSOLL_SIMD", "portable").current_dir(dir).args(args).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), text.replace(dir.to_str().unwrap(), "DIR"))
}

/// Names of commands in a help text.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("    "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(String::from)
        .collect()
}

#[test]
fn help_of_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let (success, help) = printed(dir.path(), &args);
        assert!(success, "{help}");
        paths.extend(commands(&help).into_iter().map(|name| [path.clone(), vec![name]].concat()));
        let name: Vec<&str> = ["help"].into_iter().chain(path.iter().map(String::as_str)).collect();
        expect(&name.join("_"), &help);
    }
}

/// Replaces numbers that depend on the machine, such as times, the size of the program, lengths of compressed files, and operations added by
/// plans that are chosen by the measured speed.
fn without_measurements(text: &str) -> String {
    const UNITS: [&str; 11] = ["s", "ms", "min", "h", "B", "KiB", "MiB", "GiB", "bytes", "of", "values"];
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches([',', ';', ')', '.', ':']));
    let mut result = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            let is_added = |next: &str| next == "%" && word.starts_with('+');
            let measured = words.get(index + 1).is_some_and(|next| is_unit(next) || is_added(next));
            let number = word.trim_start_matches('(').parse::<f64>().is_ok();
            let word = if measured && number { "N" } else { word };
            write!(result, "{}{word}", if index == 0 { "" } else { " " }).unwrap();
        }
        result.push('\n');
    }
    result
}

#[test]
fn plan_of_a_small_run() {
    let tiny = Tiny::new();
    let mut args = vec!["plan", "dataset", "--config", "/dev/null", "--ram", "256MiB", "--threads", "1"];
    args.extend(["--net", "dynunet", "--features", "4,8", "--patch-size", "8"]);
    let (success, plan) = printed(tiny.dir.path(), &args);
    assert!(success, "{plan}");
    // Messages about progress, and a time in units that depend on its length.
    let is_stable = |line: &&str| !line.contains("planning …") && !line.contains(" steps × ");
    let lines: Vec<&str> = plan.lines().filter(is_stable).collect();
    expect("plan", &without_measurements(&lines.join("\n")));
}

/// A command that fails, after `prepare` has put the folder of the test into the state that makes it fail.
struct Failure {
    title: &'static str,
    prepare: fn(&Path),
    command: &'static str,
}

const SMALL: &str = "--config /dev/null --ram 256MiB --threads 1 --net dynunet --features 4,8 --patch-size 8 --epochs 1 \
                     --iterations 1 --validation-iterations 1";

/// Writes text into a file of the folder.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Cuts a file to half of its length.
fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// Changes the text of `dataset.json`.
fn describe(dir: &Path, from: &str, to: &str) {
    let path = dir.join("dataset/dataset.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

const ARGUMENTS: &[Failure] = &[
    Failure { title: "a misspelt command", prepare: |_| {}, command: "trian dataset" },
    Failure { title: "no data set", prepare: |_| {}, command: "train --out run2" },
    Failure { title: "a misspelt option", prepare: |_| {}, command: "train dataset --out run2 --epoch 3" },
    Failure { title: "a memory limit without a unit", prepare: |_| {}, command: "plan dataset --ram 4" },
    Failure { title: "a memory limit with another unit", prepare: |_| {}, command: "plan dataset --ram 4XB" },
    Failure { title: "no threads", prepare: |_| {}, command: "plan dataset --threads 0" },
    Failure { title: "an unknown network", prepare: |_| {}, command: "plan dataset --net unet3d" },
    Failure { title: "an unknown precision", prepare: |_| {}, command: "plan dataset --precision fp16" },
    Failure { title: "an unknown device", prepare: |_| {}, command: "plan dataset --device gpu" },
    Failure {
        title: "a patch with two numbers",
        prepare: |_| {},
        command: "plan dataset --patch-size 16,16",
    },
    Failure { title: "a patch of nothing", prepare: |_| {}, command: "plan dataset --patch-size 0" },
    Failure { title: "no epochs", prepare: |_| {}, command: "train dataset --out run2 --epochs 0" },
    Failure {
        title: "a fold that does not exist",
        prepare: |_| {},
        command: "train dataset --out run2 --fold 9",
    },
    Failure { title: "missing settings", prepare: |_| {}, command: "plan dataset --config missing.toml" },
    Failure {
        title: "an unknown setting",
        prepare: |dir| write(&dir.join("s.toml"), "epoch = 3\n"),
        command: "plan dataset --config s.toml",
    },
    Failure {
        title: "a setting of another type",
        prepare: |dir| write(&dir.join("s.toml"), "epochs = \"many\"\n"),
        command: "plan dataset --config s.toml",
    },
];

const DATA_SETS: &[Failure] = &[
    Failure { title: "a missing data set", prepare: |_| {}, command: "inspect missing" },
    Failure {
        title: "a file as a data set",
        prepare: |dir| write(&dir.join("file"), ""),
        command: "inspect file",
    },
    Failure {
        title: "an empty folder",
        prepare: |dir| fs::create_dir(dir.join("empty")).unwrap(),
        command: "inspect empty",
    },
    Failure {
        title: "a description that is no JSON",
        prepare: |dir| write(&dir.join("dataset/dataset.json"), "{\"labels\":"),
        command: "inspect dataset",
    },
    Failure {
        title: "a description without labels",
        prepare: |dir| describe(dir, "\"labels\"", "\"classes\""),
        command: "inspect dataset",
    },
    Failure {
        title: "a missing label map",
        prepare: |dir| fs::remove_file(dir.join("dataset/labelsTr/vessel_001.nii.gz")).unwrap(),
        command: "inspect dataset",
    },
    Failure {
        title: "a truncated image",
        prepare: |dir| cut(&dir.join("dataset/imagesTr/vessel_001_0000.nii.gz")),
        command: "train dataset --out run2",
    },
    Failure {
        title: "a web page in place of an image",
        prepare: |dir| {
            write(&dir.join("dataset/imagesTr/vessel_001_0000.nii.gz"), "<!DOCTYPE html><html></html>")
        },
        command: "inspect dataset",
    },
    Failure {
        title: "a pointer of Git LFS in place of an image",
        prepare: |dir| {
            let text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
            write(&dir.join("dataset/imagesTr/vessel_001_0000.nii.gz"), text);
        },
        command: "inspect dataset",
    },
    Failure {
        title: "an empty file in place of an image",
        prepare: |dir| write(&dir.join("dataset/imagesTr/vessel_001_0000.nii.gz"), ""),
        command: "inspect dataset",
    },
    Failure {
        title: "a label map of another case",
        prepare: |dir| {
            let labels = dir.join("dataset/labelsTr");
            fs::copy(labels.join("vessel_000.nii.gz"), labels.join("vessel_001.nii.gz")).unwrap();
        },
        command: "inspect dataset",
    },
    Failure {
        title: "a table that names a missing file",
        prepare: |dir| write(&dir.join("table.csv"), "image,label\na.nii.gz,b.nii.gz\n"),
        command: "inspect table.csv",
    },
    Failure {
        title: "a table without a column of images",
        prepare: |dir| write(&dir.join("table.csv"), "scan;mask\na.nii.gz;b.nii.gz\n"),
        command: "inspect table.csv",
    },
    Failure {
        title: "a memory limit that is too low for a run",
        prepare: |_| {},
        command: "train dataset --out run2 --ram 24MiB",
    },
    Failure {
        title: "a memory limit that is too low to plan",
        prepare: |_| {},
        command: "plan dataset --ram 24MiB",
    },
    Failure {
        title: "a patch that does not fit the network",
        prepare: |_| {},
        command: "plan dataset --net dynunet --features 4,8,16 --patch-size 9",
    },
    Failure {
        title: "a page that would replace an image",
        prepare: |_| {},
        command: "inspect dataset --page dataset/imagesTr/vessel_001_0000.nii.gz",
    },
];

const RUNS: &[Failure] = &[
    Failure { title: "a run that exists", prepare: |_| {}, command: "train dataset --out run --fold all" },
    Failure {
        title: "a run that is resumed with other features",
        prepare: |_| {},
        command: "train dataset --out run --fold all --resume --features 4,16",
    },
    Failure {
        title: "a run that is resumed and does not exist",
        prepare: |_| {},
        command: "train dataset --out run2 --resume",
    },
    Failure {
        title: "a run in a data set",
        prepare: |_| {},
        command: "train dataset --out dataset/imagesTr/run",
    },
    Failure {
        title: "a damaged checkpoint",
        prepare: |dir| {
            for name in [
                "checkpoint_final.safetensors",
                "checkpoint_best.safetensors",
                "checkpoint_latest.safetensors",
            ] {
                let path = dir.join("run/fold_all").join(name);
                if path.exists() {
                    cut(&path);
                }
            }
        },
        command: "train dataset --out run --fold all --resume --epochs 2",
    },
    Failure { title: "the state of a folder without runs", prepare: |_| {}, command: "status dataset" },
    Failure { title: "a page of a folder without runs", prepare: |_| {}, command: "report dataset" },
    Failure {
        title: "a sweep without a grid",
        prepare: |dir| write(&dir.join("sweep.toml"), "seeds = [0]\n"),
        command: "sweep sweep.toml dataset --out sweep",
    },
    Failure {
        title: "a sweep of an unknown setting",
        prepare: |dir| write(&dir.join("sweep.toml"), "[grid]\nlearning_rat = [0.1]\n"),
        command: "sweep sweep.toml dataset --out sweep",
    },
];

const MODELS: &[Failure] = &[
    Failure {
        title: "a missing model",
        prepare: |_| {},
        command: "predict missing -i dataset/imagesTs -o predictions",
    },
    Failure {
        title: "a folder that is no model",
        prepare: |_| {},
        command: "predict dataset -i dataset/imagesTs -o predictions",
    },
    Failure { title: "missing images", prepare: |_| {}, command: "predict run -i missing -o predictions" },
    Failure {
        title: "images of another number of channels",
        prepare: |dir| {
            let images = dir.join("dataset/imagesTs");
            let first = fs::read_dir(&images).unwrap().next().unwrap().unwrap().path();
            fs::copy(&first, images.join("vessel_009_0000.nii.gz")).unwrap();
            fs::copy(&first, images.join("vessel_009_0001.nii.gz")).unwrap();
        },
        command: "predict run -i dataset/imagesTs -o predictions",
    },
    Failure {
        title: "a truncated image among those to predict",
        prepare: |dir| {
            let first = fs::read_dir(dir.join("dataset/imagesTs")).unwrap().next().unwrap().unwrap().path();
            cut(&first);
        },
        command: "predict run -i dataset/imagesTs -o predictions",
    },
    Failure {
        title: "a memory limit that is too low to predict",
        prepare: |_| {},
        command: "predict run -i dataset/imagesTs -o predictions --ram 12MiB",
    },
    Failure {
        title: "predictions over their images",
        prepare: |_| {},
        command: "predict run -i dataset/imagesTs -o dataset/imagesTs",
    },
    Failure {
        title: "a fold that is not trained",
        prepare: |_| {},
        command: "predict run -i dataset/imagesTs -o predictions --folds 3",
    },
    Failure {
        title: "an unknown task",
        prepare: |_| {},
        command: "segment lungs -i dataset/imagesTs -o predictions",
    },
    Failure {
        title: "a task without weights",
        prepare: |_| {},
        command: "segment total -i dataset/imagesTs -o predictions --weights missing",
    },
    Failure {
        title: "an unknown format of weights",
        prepare: |_| {},
        command: "export run -o weights.safetensors --format keras",
    },
    Failure {
        title: "weights that exist",
        prepare: |dir| write(&dir.join("weights.safetensors"), "mine"),
        command: "export run -o weights.safetensors",
    },
    Failure {
        title: "a damaged model file",
        prepare: |dir| write(&dir.join("model.plimsoll"), "nothing"),
        command: "models verify model.plimsoll",
    },
    Failure {
        title: "an archive that is none",
        prepare: |dir| write(&dir.join("model.zip"), "nothing"),
        command: "models import model.zip -o model",
    },
];

const SCORES: &[Failure] = &[
    Failure { title: "missing predictions", prepare: |_| {}, command: "evaluate missing dataset/labelsTr" },
    Failure {
        title: "predictions of other cases",
        prepare: |dir| {
            fs::create_dir(dir.join("other")).unwrap();
            let map = dir.join("dataset/labelsTr/vessel_001.nii.gz");
            fs::copy(map, dir.join("other/another.nii.gz")).unwrap();
        },
        command: "evaluate other dataset",
    },
    Failure {
        title: "predictions on another grid",
        prepare: |dir| {
            fs::create_dir(dir.join("other")).unwrap();
            let map = dir.join("dataset/labelsTr/vessel_001.nii.gz");
            fs::copy(map, dir.join("other/vessel_002.nii.gz")).unwrap();
        },
        command: "evaluate other dataset",
    },
    Failure {
        title: "an unknown class",
        prepare: |_| {},
        command: "evaluate dataset/labelsTr dataset --labels liver",
    },
    Failure { title: "one model to compare", prepare: |_| {}, command: "compare run" },
    Failure { title: "models that do not exist", prepare: |_| {}, command: "compare missing1 missing2" },
    Failure { title: "an unknown score", prepare: |_| {}, command: "compare run run --metric jaccard" },
    Failure {
        title: "post-processing of nothing",
        prepare: |_| {},
        command: "postprocess -i dataset/labelsTr -o processed",
    },
    Failure {
        title: "the choice of post-processing for a folder without a run",
        prepare: |_| {},
        command: "postprocess --choose dataset",
    },
];

/// Runs each command in a copy of a folder with the data set `dataset` and its run `run`.
fn expect_failures(name: &str, failures: &[Failure]) {
    let tiny = Tiny::new();
    tiny.trained(&tiny.path("run"), &["--fold", "all", "--epochs", "1", "--iterations", "1"]);
    let mut text = String::new();
    for Failure { title, prepare, command } in failures {
        let dir = tempfile::tempdir().unwrap();
        copy(tiny.dir.path(), dir.path());
        prepare(dir.path());
        let mut args: Vec<&str> = command.split(' ').collect();
        if command.starts_with("train dataset --out") {
            args.extend(SMALL.split_whitespace().collect::<Vec<_>>());
            args = first_of_each(&args);
        }
        let (success, printed) = printed(dir.path(), &args);
        assert!(!success, "{title}: {printed}");
        let is_message =
            |line: &&str| ["error: ", "hint: ", "warning: "].iter().any(|kind| line.starts_with(kind));
        let messages: Vec<&str> = printed.lines().filter(is_message).collect();
        writeln!(text, "# {title}\n$ plimsoll {command}\n{}", without_measurements(&messages.join("\n")))
            .unwrap();
    }
    expect(name, &text);
}

/// Leaves out the later of two settings of an option, so that a command overrides the settings of a small run.
fn first_of_each<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut kept: Vec<&str> = Vec::new();
    let mut args = args.iter().copied().peekable();
    while let Some(arg) = args.next() {
        let value = args.next_if(|next| arg.starts_with("--") && !next.starts_with("--"));
        if !(arg.starts_with("--") && kept.contains(&arg)) {
            kept.push(arg);
            kept.extend(value);
        }
    }
    kept
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn errors_of_arguments() {
    expect_failures("errors_of_arguments", ARGUMENTS);
}

#[test]
fn errors_of_data_sets() {
    expect_failures("errors_of_data_sets", DATA_SETS);
}

#[test]
fn errors_of_runs() {
    expect_failures("errors_of_runs", RUNS);
}

#[test]
fn errors_of_models() {
    expect_failures("errors_of_models", MODELS);
}

#[test]
fn errors_of_scores() {
    expect_failures("errors_of_scores", SCORES);
}
