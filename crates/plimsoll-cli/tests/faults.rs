//! Whichever operation on the disk fails: success or one error, nothing corrupt is used, and the next try gives the same bits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ended, Tiny, expect_same, plimsoll, results};

const KINDS: [&str; 4] = ["eio", "enospc", "short", "torn"];

/// About so many faults of each job are tried in every test run. All of them are by
/// `cargo test --release -p plimsoll-cli --test all faults:: -- --ignored --nocapture`.
const SAMPLE: usize = 24;

/// A sequence of operations on the disk, and its result.
struct Job<'a> {
    name: &'static str,
    /// The command with a place for its results, for the first time or after it failed.
    command: &'a dyn Fn(&Path, bool) -> Command,
}

/// The results of jobs.
#[derive(Debug, Default)]
struct Count {
    #[expect(dead_code, reason = "printed")]
    operations: usize,
    faults: usize,
    errors: usize,
}

impl Job<'_> {
    /// Tries every `stride`-th pair of an operation and a way to fail, all of them if it is 1.
    fn fail(&self, scratch: &Path, sample: Option<usize>) -> Count {
        let whole = scratch.join("whole");
        let trace = scratch.join("trace");
        let ended = Ended::run((self.command)(&whole, false).env("PLIMSOLL_DISK_TRACE", &trace));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let operations = fs::read_to_string(&trace).unwrap();
        let operations: Vec<&str> = operations.lines().collect();
        assert!(results(&whole).len() + operations.len() > 20, "{operations:?}");
        let all = operations.len() * KINDS.len();
        // An odd stride meets every kind.
        let stride = sample.map_or(1, |sample| (all / sample) | 1);
        let mut count = Count { operations: operations.len(), ..Count::default() };
        for pair in (0..all).step_by(stride) {
            let (number, kind) = (pair / KINDS.len() + 1, KINDS[pair % KINDS.len()]);
            let when = format!("{} with {kind} at `{}`", self.name, operations[number - 1]);
            let place = scratch.join("failed");
            let fault = format!("{number}:{kind}");
            let ended = Ended::run((self.command)(&place, false).env("PLIMSOLL_DISK_FAULT", fault));
            count.faults += 1;
            if ended.status != Some(0) {
                count.errors += 1;
                let error = ended.error(1);
                assert!(!error.contains("panicked"), "{when}: {error}");
                let again = Ended::run(&mut (self.command)(&place, true));
                assert_eq!(again.status, Some(0), "again after {when}, {error}: {again:?}");
            }
            // What came before the latest checkpoint follows from when a run was interrupted.
            for folder in [&place, &whole] {
                let _ = fs::remove_file(folder.join("fold_all/checkpoint_previous.safetensors"));
            }
            expect_same(&place, &whole, &format!("after {when}: {}", ended.said));
            fs::remove_dir_all(&place).unwrap();
        }
        count
    }
}

fn in_every_way(sample: Option<usize>) {
    let tiny = Tiny::new();
    let folder = |name: &str| {
        let folder = tiny.path(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    let place = |path: PathBuf| path.to_str().unwrap().to_string();
    let short = ["--fold", "all", "--epochs", "1"];
    let run = tiny.path("run");
    tiny.trained(&run, &short);
    let predictions = tiny.path("predictions");
    let predict = |out: &Path| {
        let mut command = plimsoll();
        command.arg("predict").arg(&run).args(["--ram", "512MiB", "--threads", "1", "--overlap", "0"]);
        command.arg("-i").arg(tiny.data.join("imagesTs")).arg("-o").arg(out);
        command
    };
    assert_eq!(Ended::run(&mut predict(&predictions)).status, Some(0));
    let candidates = ["1", "2"].map(|seed| {
        let candidate = tiny.path(&format!("seed_{seed}"));
        tiny.trained(&candidate, &["--fold", "0", "--epochs", "1", "--seed", seed]);
        candidate
    });
    let jobs = [
        Job {
            name: "comparing",
            command: &|out, _| {
                fs::create_dir_all(out).unwrap();
                let mut command = plimsoll();
                command.arg("compare").args(&candidates).args(["--resamples", "10", "--ensembles"]);
                command.arg(out.join("ensembles")).arg("--data").arg(&tiny.data);
                command.arg("--csv").arg(out.join("pairs.csv")).arg("--picture").arg(out.join("pairs.png"));
                command.args(["--ram", "512MiB", "--threads", "1"]);
                command
            },
        },
        Job {
            name: "training",
            command: &|place, again| {
                let is_begun = again && place.join("fold_all/specification.json").exists();
                let resume: &[&str] = if is_begun { &["--resume"] } else { &[] };
                tiny.train(place, &[&short[..], resume].concat())
            },
        },
        Job { name: "predicting", command: &|place, _| predict(place) },
        Job {
            name: "scoring",
            command: &|out, _| {
                fs::create_dir_all(out).unwrap();
                let mut command = plimsoll();
                command.arg("evaluate").arg(&predictions).arg(tiny.data.join("labelsTs"));
                command.args(["--ram", "512MiB", "--threads", "1", "--output"]);
                command.arg(place(out.join("scores.json")));
                command
            },
        },
    ];
    for job in jobs {
        let count = job.fail(&folder(job.name), sample);
        assert!(count.errors > 0 && count.faults > 10, "{count:?}");
        println!("{}: {count:?}", job.name);
    }
}

#[test]
fn a_sample_of_operations_that_fail() {
    in_every_way(Some(SAMPLE));
}

#[test]
#[ignore = "takes fifteen minutes"]
fn every_operation_that_fails_in_every_way() {
    in_every_way(None);
}
