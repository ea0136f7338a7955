//! Signals: orderly ends where there is something to save, and ends at once where there is not.

use std::fs;
use std::time::Duration;

use super::{PATIENCE, Running};
use crate::support::{Tiny, expect_same, progress};

#[test]
fn batch_systems_are_told_to_try_again_and_shells_which_signal_it_was_and_each_leaves_a_checkpoint() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let latest = run.join("fold_0/checkpoint_latest.safetensors");
    let mut steps = 0;
    for (number, (signal, status)) in
        [("TERM", 75), ("USR1", 75), ("XCPU", 75), ("INT", 130), ("HUP", 129)].iter().enumerate()
    {
        let resume: &[&str] = if number == 0 { &[] } else { &["--resume"] };
        let mut command =
            tiny.train(&run, &[&["--epochs", "100000", "--iterations", "2"][..], resume].concat());
        let metrics =
            || fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap_or_default().lines().count();
        let before = metrics();
        let ended = Running::start(&mut command).until(|| metrics() > before + 1).signal(signal).end();
        let error = ended.error(*status);
        assert!(error.contains(&format!("error: SIG{signal}: stopped after step ")), "{error}");
        assert!(error.contains("; a checkpoint is written\nhint: the same command with --resume"), "{error}");
        let done = progress(&latest)["steps"].as_u64().unwrap();
        assert!(done > steps && error.contains(&format!("after step {done};")), "{steps} {done} {error}");
        steps = done;
    }
}

#[test]
fn a_run_that_was_stopped_while_validating_validates_again_and_comes_to_the_same_bits() {
    let tiny = Tiny::new();
    let settings = ["--epochs", "1", "--iterations", "1", "--validation-iterations", "1000"];
    let (run, whole) = (tiny.path("run"), tiny.path("whole"));
    tiny.trained(&whole, &settings);
    let events = run.join("fold_0/events.jsonl");
    let running = Running::start(&mut tiny.train(&run, &settings));
    let running = running.until(|| fs::read_to_string(&events).unwrap_or_default().contains("\"plan\""));
    // The only step takes milliseconds, and validation seconds.
    std::thread::sleep(Duration::from_millis(300));
    let error = running.signal("TERM").end().error(75);
    assert!(error.contains("SIGTERM: stopped after step 1; a checkpoint is written"), "{error}");
    let stopped = progress(&run.join("fold_0/checkpoint_latest.safetensors"));
    assert_eq!((stopped["steps"].as_u64(), stopped["validated"].as_u64()), (Some(1), Some(0)));
    tiny.trained(&run, &[&settings[..], &["--resume"]].concat());
    // The previous checkpoint is the one that was written when it was stopped.
    fs::remove_file(run.join("fold_0/checkpoint_previous.safetensors")).unwrap();
    expect_same(&run, &whole, "after it was stopped while validating");
}

#[test]
fn before_there_is_anything_to_save_a_signal_ends_the_process_at_once_and_nothing_is_left() {
    let tiny = Tiny::new();
    // Reading this takes many seconds: 16 GiB, of which the disk holds the header alone.
    let image = tiny.data.join("imagesTr/vessel_001_0000.nii.gz");
    let mut header = [0; 352];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &348i32.to_le_bytes());
    let (extents, f64_type, bits) = ([3i16, 256, 256, 32767, 1, 1, 1, 1], 64i16, 64i16);
    extents.iter().enumerate().for_each(|(at, extent)| put(40 + 2 * at, &extent.to_le_bytes()));
    put(70, &f64_type.to_le_bytes());
    put(72, &bits.to_le_bytes());
    (0..4).for_each(|at| put(76 + 4 * at, &1f32.to_le_bytes()));
    put(108, &352f32.to_le_bytes());
    put(344, b"n+1\0");
    fs::write(&image, header).unwrap();
    let voxels = 256 * 256 * 32767;
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(352 + 8 * voxels).unwrap();
    let run = tiny.path("run");
    for (signal, status) in [("TERM", 75), ("INT", 130)] {
        let mut running = Running::start(&mut tiny.train(&run, &[]));
        let process = running.child().id();
        let running = running.until(|| catches_signals(process));
        let error = running.signal(signal).end().error(status);
        assert!(error.contains(&format!("error: SIG{signal}: ended at once")), "{error}");
        assert!(!run.exists());
    }
}

/// Returns `true` once a process has handlers for SIGTERM and SIGINT. A process that has only just started is ended by them without a word.
fn catches_signals(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let bit = |signal: u32| 1 << (signal - 1);
    let both = bit(15) | bit(2);
    caught & both == both
}

#[test]
fn a_second_signal_does_not_wait_for_the_end_of_a_step() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    // Steps take long enough for two signals.
    let settings = ["--features", "32,64", "--patch-size", "64", "--batch-size", "16", "--micro-batch", "1"];
    let mut command = tiny.train(&run, &[&settings[..], &["--ram", "1GiB"]].concat());
    let events = run.join("fold_0/events.jsonl");
    let running = Running::start(&mut command);
    let running = running.until(|| fs::read_to_string(&events).unwrap_or_default().contains("\"plan\""));
    std::thread::sleep(Duration::from_millis(500));
    let running = running.signal("TERM");
    std::thread::sleep(Duration::from_millis(100));
    let start = std::time::Instant::now();
    let error = running.signal("INT").end().error(130);
    assert!(start.elapsed() < PATIENCE / 10);
    assert!(error.contains("SIGINT: ended at once"), "{error}");
}
