//! Common helpers of the tests of the command line.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

pub mod cgroup;
mod small_disk;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_nn::weights::SafetensorsFile;

pub use small_disk::SmallDisk;

/// The command line under test.
pub fn plimsoll() -> Command {
    isolated(Command::new(env!("CARGO_BIN_EXE_plimsoll")))
}

/// The command line under test, which the system ends with SIGKILL after one second of processor time.
pub fn within_a_second() -> Command {
    let mut command = isolated(Command::new("sh"));
    command.args(["-c", "ulimit -t 1 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll")]);
    command
}

/// A command that neither sees the user's own cache folder nor writes into the folder of the tests.
fn isolated(mut command: Command) -> Command {
    command.current_dir(std::env::temp_dir());
    command.env("XDG_CACHE_HOME", std::env::temp_dir().join("plimsoll-test-cache"));
    command
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Output {
    plimsoll().args(args).output().unwrap()
}

/// Runs it and expects success; returns what it printed as JSON.
pub fn run_json(args: &[&str]) -> serde_json::Value {
    let output = plimsoll().args(args).arg("--json").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs it and expects failure: one `error:` line, one `hint:` line at most, nothing else; returns both lines.
pub fn run_error(args: &[&str]) -> String {
    error_of(&mut plimsoll(), args)
}

/// Runs a command with further arguments and expects failure, as [`run_error`].
pub fn error_of(command: &mut Command, args: &[&str]) -> String {
    let output = command.args(args).arg("--json").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} succeeded");
    let lines: Vec<&str> = errors.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert!(lines[0].starts_with("error: "), "{args:?}: {errors}");
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{args:?}: {errors}");
    errors
}

/// A small data set of vessel trees.
pub fn dataset(folder: &Path) -> PathBuf {
    let path = folder.join("dataset");
    let config = PhantomConfig { cases: 4, test_cases: 1, size: [30, 40], ..PhantomConfig::default() };
    phantom::write(&path, &config).unwrap();
    path
}

/// Arguments of a small run.
pub fn small_run<'a>(dataset: &'a str, out: &'a str) -> Vec<&'a str> {
    let mut args = vec!["train", dataset, "--out", out];
    args.extend(["--fold", "all", "--ram", "512MiB", "--net", "dynunet", "--features", "8,16,24"]);
    args.extend(["--patch-size", "16,16,16", "--epochs", "3", "--iterations", "8", "--dropout", "0.1"]);
    args.extend(["--validation-iterations", "2", "--config", "/dev/null"]);
    args
}

/// The bits of every tensor of a fold's final checkpoint: parameters and moments.
pub fn final_bits(run: &Path) -> BTreeMap<String, Vec<u32>> {
    let mut file = SafetensorsFile::open(&run.join("fold_all/checkpoint_final.safetensors")).unwrap();
    let tensors: Vec<_> = file.tensors().map(|(name, shape)| (name.to_string(), shape)).collect();
    assert!(tensors.len() > 20);
    tensors
        .into_iter()
        .map(|(name, shape)| {
            let mut values = vec![0.0; shape.count()];
            file.read(&name, &shape, &mut values).unwrap();
            (name, values.into_iter().map(f32::to_bits).collect())
        })
        .collect()
}

/// A run of a fraction of a second, with three cases and as many folds.
pub struct Tiny {
    pub dir: tempfile::TempDir,
    pub data: PathBuf,
}

impl Tiny {
    pub fn new() -> Tiny {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("dataset");
        let config = PhantomConfig { cases: 3, test_cases: 1, size: [16, 20], outlier: false, seed: 5 };
        phantom::write(&data, &config).unwrap();
        Tiny { dir, data }
    }

    /// A place beside the data set.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Trains: two epochs of two steps, unless `more` says something else.
    pub fn train(&self, run: &Path, more: &[&str]) -> Command {
        let mut command = plimsoll();
        command.arg("train").arg(&self.data).arg("--out").arg(run);
        let usual = [
            ("--ram", "512MiB"),
            ("--net", "dynunet"),
            ("--features", "4,8"),
            ("--patch-size", "8"),
            ("--epochs", "2"),
            ("--iterations", "2"),
            ("--validation-iterations", "1"),
            ("--threads", "1"),
            ("--config", "/dev/null"),
        ];
        for (flag, value) in usual.into_iter().filter(|(flag, _)| !more.contains(flag)) {
            command.args([flag, value]);
        }
        command.args(more);
        command
    }

    /// Trains to the end.
    pub fn trained(&self, run: &Path, more: &[&str]) -> Ended {
        let ended = Ended::run(&mut self.train(run, more));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended
    }
}

/// The end and the output of a process.
#[derive(Debug)]
pub struct Ended {
    /// None if a signal killed it.
    pub status: Option<i32>,
    pub said: String,
    pub printed: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, printed) = (text(&output.stderr), text(&output.stdout));
        Ended { status: output.status.code(), said, printed }
    }
}

impl Ended {
    pub fn run(command: &mut Command) -> Ended {
        command.output().unwrap().into()
    }

    /// Runs a command whose standard output goes to a file.
    pub fn run_printing_to(command: &mut Command, file: fs::File) -> Ended {
        let mut child = command.stdout(file).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
        Ended { status: child.wait().unwrap().code(), said, printed: String::new() }
    }

    /// Checks that it failed with this status and one error, the last line before its hint; returns both lines.
    pub fn error(&self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "{self:?}");
        let errors = self.said.lines().filter(|line| line.starts_with("error: ")).count();
        let last: Vec<&str> = self.said.lines().rev().take(2).collect();
        let [hint, error] = last[..] else { panic!("{self:?}") };
        assert!(errors == 1 && error.starts_with("error: ") && hint.starts_with("hint: "), "{self:?}");
        format!("{error}\n{hint}")
    }
}

/// The values that differ from run to run: times, durations and processes.
const OF_TIME: [&str; 7] =
    ["events.jsonl", "steps.jsonl", "run.json", "log.txt", "progress.png", "arena.svg", "lock"];

/// All files under a folder that a result is in, with their contents.
pub fn results(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !OF_TIME.iter().any(|name| path.ends_with(name)) {
                let mut contents = fs::read(&path).unwrap();
                if path.ends_with("summary.json") {
                    // It names its files in full, as nnU-Net's does.
                    let text = String::from_utf8(contents).unwrap();
                    contents = text.replace(folder.to_str().unwrap(), "RUN").into_bytes();
                }
                files.insert(path.strip_prefix(folder).unwrap().to_path_buf(), contents);
            }
        }
    }
    files
}

/// Checks that two folders hold the same results, byte for byte.
pub fn expect_same(found: &Path, expected: &Path, when: &str) {
    let (found, expected) = (results(found), results(expected));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "{when}");
    for (path, contents) in &expected {
        assert!(found[path] == *contents, "{} differs {when}", path.display());
    }
}

/// The warnings among a fold's events, except for predicted times, which other work on the machine makes wrong.
pub fn warnings(fold: &Path) -> Vec<String> {
    let events = fs::read_to_string(fold.join("events.jsonl")).unwrap();
    // A line without its newline is being written, or its process was killed while it wrote.
    let whole = events.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let events = whole.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let warnings = events.filter(|event| event["event"] == "warning");
    let said = warnings.map(|event| event["what"].as_str().unwrap().to_string());
    let is_of_time =
        |what: &str| what.starts_with("a step was predicted to take") || what.starts_with("steps waited ");
    said.filter(|what| !is_of_time(what)).collect()
}

/// The progress that a checkpoint holds.
pub fn progress(checkpoint: &Path) -> serde_json::Value {
    let file = SafetensorsFile::open(checkpoint).unwrap();
    serde_json::from_str(&file.metadata()["plimsoll.progress"]).unwrap()
}
