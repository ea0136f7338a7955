//! A run that is killed at any instant goes on to the same bits.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{dataset, expect_same, plimsoll, run_error, run_json, small_run};

#[test]
fn a_killed_run_goes_on_to_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let path = |name: &str| dir.path().join(name);
    let whole = path("whole");
    let record = run_json(&[&small_run(data, whole.to_str().unwrap())[..], &["--threads", "2"]].concat());
    assert_eq!(record["steps"], 24);
    assert_eq!(record["finished"], true);
    assert_eq!(record["heap_allocations_in_steps"], 0);
    assert_eq!(record["arena_used_bytes"], record["arena_bytes"]);
    let bytes = |key: &str| record[key].as_u64().unwrap();
    assert!(bytes("peak_rss_bytes") <= bytes("planned_bytes"), "{record}");
    assert!(bytes("planned_bytes") <= bytes("ram_budget_bytes"), "{record}");
    for threads in ["1", "2"] {
        let run = path(&format!("killed {threads}"));
        let folder = run.to_str().unwrap();
        let args = [&small_run(data, folder)[..], &["--threads", threads]].concat();
        // Killed twice: once some steps after the first epoch, and once as soon as it is running again.
        for (attempt, epochs) in [1, 2].into_iter().enumerate() {
            let mut command = plimsoll();
            command.args(&args).stdout(Stdio::null()).stderr(Stdio::null());
            if attempt > 0 {
                command.arg("--resume");
            }
            let mut child = command.spawn().unwrap();
            let journal = run.join("fold_all/metrics.jsonl");
            let deadline = Instant::now() + Duration::from_secs(300);
            while fs::read_to_string(&journal).unwrap_or_default().lines().count() < epochs {
                assert!(Instant::now() < deadline, "no epoch was finished");
                assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
                std::thread::sleep(Duration::from_millis(5));
            }
            // `kill` is SIGKILL.
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let again = run_error(&args);
        assert!(again.contains("already holds a run") && again.contains("--resume"), "{again}");
        // Settings need not be said again.
        let resumed = run_json(&[
            "train",
            data,
            "--out",
            folder,
            "--fold",
            "all",
            "--ram",
            "512MiB",
            "--threads",
            threads,
            "--resume",
            "--config",
            "/dev/null",
        ]);
        assert_eq!(resumed["finished"], true);
        expect_same(&run, &whole, &format!("on {threads} threads"));
    }
}

#[test]
fn another_configuration_is_not_mixed_into_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let (data, run) = (data.to_str().unwrap(), dir.path().join("run"));
    let run = run.to_str().unwrap();
    let mut args = small_run(data, run);
    run_json(&args);
    args.extend(["--batch-size", "4", "--resume"]);
    let error = run_error(&args);
    assert!(error.contains("is a run with other settings: batch_size was 2, now 4\n"), "{error}");
}

#[test]
fn a_signal_leaves_a_checkpoint_and_a_clean_exit() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let run = dir.path().join("run");
    let mut args = small_run(data.to_str().unwrap(), run.to_str().unwrap());
    args.extend(["--seed", "3"]);
    let steps = args.iter().position(|arg| *arg == "--epochs").unwrap();
    args[steps + 1] = "1000";
    let child = plimsoll().args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    while !run.join("fold_all/checkpoint_latest.safetensors").exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{errors}");
    assert!(errors.contains("error: SIGTERM: stopped after step") && errors.contains("hint:"), "{errors}");
    assert!(run.join("fold_all/run.json").exists());
}
