//! A training of several folds that is killed again and again comes to the files of one that was not.

mod outputs;
mod predictions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Tiny, expect_same};

/// Kills in every test run; the long one is asked for by `cargo test --release -p plimsoll-cli --test all kills:: -- --ignored`, with
/// `PLIMSOLL_KILLS` for another number than 300.
const FEW: usize = 8;

/// The longest that a process is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Numbers that look random, by SplitMix64.
struct Draws(u64);

impl Draws {
    /// Less than a number.
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut next = self.0;
        next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (next ^ (next >> 31)) % most
    }
}

/// The files of a fold's folders whose names say something.
fn files(run: &Path, says: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folders = fs::read_dir(run).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.filter(|path| path.is_dir()).chain([run.to_path_buf()]);
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    files
        .map(|entry| entry.path())
        .filter(|path| says(&path.file_name().unwrap().to_string_lossy()))
        .collect()
}

/// Waits for an instant, until the process ends by itself; returns whether it did.
fn wait(child: &mut Child, mut instant: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        if instant() {
            return false;
        }
        assert!(start.elapsed() < PATIENCE, "nothing happens");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn kill_again_and_again(kills: usize, seed: u64) {
    let tiny = Tiny::new();
    let folds = ["--folds", "all", "--epochs", "3", "--iterations", "3", "--log-steps"];
    let whole = tiny.path("whole");
    let start = Instant::now();
    tiny.trained(&whole, &folds);
    let seconds = start.elapsed();
    assert_eq!(files(&whole, |name| name == "checkpoint_final.safetensors").len(), 3);
    let mut draws = Draws(seed);
    let (mut killed, mut while_writing, mut runs) = (0, 0, 0);
    while killed < kills {
        let run = tiny.path(&format!("killed {runs}"));
        loop {
            let is_begun = !files(&run, |name| name == "specification.json").is_empty();
            let resume: &[&str] = if is_begun { &["--resume"] } else { &[] };
            let mut command = tiny.train(&run, &[&folds[..], resume].concat());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let start = Instant::now();
            let delay = Duration::from_micros(draws.below(seconds.as_micros() as u64 + 1));
            let ended = match draws.below(3) {
                // While a file is being written, or soon after.
                0 => wait(&mut child, || {
                    let is_written = |name: &str| name.ends_with(".partial");
                    start.elapsed() > delay / 2 && !files(&run, is_written).is_empty()
                }),
                _ => wait(&mut child, || start.elapsed() > delay),
            };
            if !ended && killed < kills {
                // `kill` is SIGKILL.
                child.kill().unwrap();
                killed += 1;
            }
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), None, "after {killed} kills it ended by itself: {said}");
            while_writing += usize::from(!files(&run, |name| name.ends_with(".partial")).is_empty());
        }
        assert_eq!(files(&run, |name| name.ends_with(".partial")), Vec::<PathBuf>::new());
        expect_same(&run, &whole, &format!("after {killed} kills in all"));
        for log in files(&run, |name| name == "steps.jsonl") {
            let log = fs::read_to_string(log).unwrap();
            let step =
                |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["steps"].as_u64();
            assert!(log.lines().map(step).eq((1..=9).map(Some)), "{log}");
        }
        fs::remove_dir_all(&run).unwrap();
        runs += 1;
    }
    println!(
        "{killed} kills, {while_writing} of them left an unfinished file; {runs} runs came to the same bytes"
    );
}

#[test]
fn a_run_of_several_folds_that_is_killed_at_any_instant_comes_to_the_same_files() {
    kill_again_and_again(FEW, 1);
}

#[test]
#[ignore = "takes minutes"]
fn however_often_it_is_killed() {
    let kills = std::env::var("PLIMSOLL_KILLS").map_or(300, |kills| kills.parse().unwrap());
    kill_again_and_again(kills, 2);
}
