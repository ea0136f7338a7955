//! What tests of the command line share.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_nn::weights::SafetensorsFile;

/// The command line under test.
pub fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(std::env::temp_dir());
    // The user's own cache folder is no business of tests.
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
    let output = plimsoll().args(args).arg("--json").output().unwrap();
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
