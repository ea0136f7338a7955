//! Files of a run that are damaged, empty or gone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Ended, Tiny, expect_same, run_error, warnings};

/// A run that is done, and one like it that was stopped by the disk before its last epoch was over.
struct Stopped {
    tiny: Tiny,
    whole: PathBuf,
    more: &'static [&'static str],
}

const SETTINGS: [&str; 6] = ["--epochs", "3", "--iterations", "2", "--ram", "512MiB"];

impl Stopped {
    fn new() -> Stopped {
        Stopped::with(&[])
    }

    /// With other settings.
    fn with(more: &'static [&'static str]) -> Stopped {
        let tiny = Tiny::new();
        let whole = tiny.path("whole");
        tiny.trained(&whole, &[&SETTINGS[..], more].concat());
        Stopped { tiny, whole, more }
    }

    /// A copy of the run as it was before its final checkpoint was written.
    fn copy(&self, name: &str) -> PathBuf {
        let run = self.tiny.path(name);
        copy(&self.whole, &run);
        fs::remove_file(run.join("fold_0/checkpoint_final.safetensors")).unwrap();
        fs::remove_dir_all(run.join("fold_0/validation")).unwrap();
        run
    }

    fn resume(&self, run: &Path) -> Ended {
        Ended::run(&mut self.tiny.train(run, &[&SETTINGS[..], self.more, &["--resume"]].concat()))
    }

    fn expect_resumed(&self, run: &Path, says: &str) {
        let ended = self.resume(run);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let warnings = warnings(&run.join("fold_0"));
        assert!(warnings.iter().any(|warning| warning.contains(says)), "{says}: {warnings:?}");
        assert!(ended.said.contains(says), "{says}: {ended:?}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &place),
            false => drop(fs::copy(&path, &place).unwrap()),
        }
    }
}

fn truncate(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// Changes one bit of the values.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let place = bytes.len() - 1000;
    bytes[place] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_previous_checkpoint_replaces_a_damaged_one_with_the_same_bits() {
    let stopped = Stopped::new();
    for (name, damage) in [("truncated", truncate as fn(&Path)), ("flipped", flip)] {
        let run = stopped.copy(name);
        let latest = run.join("fold_0/checkpoint_latest.safetensors");
        damage(&latest);
        stopped.expect_resumed(&run, "checkpoint_previous.safetensors");
        let warned = &warnings(&run.join("fold_0"))[0];
        assert!(warned.contains("checkpoint_latest.safetensors"), "{warned}");
        assert!(warned.contains("; resuming from "), "{warned}");
        expect_same(&run, &stopped.whole, &format!("from a {name} checkpoint"));
    }
}

#[test]
fn a_damaged_checkpoint_never_takes_the_place_of_a_sound_one() {
    let stopped = Stopped::new();
    let run = stopped.copy("run");
    let (latest, previous) =
        ["latest", "previous"].map(|name| run.join(format!("fold_0/checkpoint_{name}.safetensors"))).into();
    flip(&latest);
    let sound = fs::read(&previous).unwrap();
    assert_eq!(stopped.resume(&run).status, Some(0));
    assert!(fs::read(&previous).unwrap() == sound);
}

#[test]
fn with_both_checkpoints_damaged_nothing_is_begun_anew_and_both_are_named() {
    let stopped = Stopped::new();
    let run = stopped.copy("run");
    truncate(&run.join("fold_0/checkpoint_latest.safetensors"));
    flip(&run.join("fold_0/checkpoint_previous.safetensors"));
    let before = fs::read(run.join("fold_0/metrics.jsonl")).unwrap();
    let error = stopped.resume(&run).error(1);
    assert!(error.contains("no checkpoint in ") && error.contains("fold_0 can be used: "), "{error}");
    assert!(error.contains("checkpoint_latest") && error.contains("checkpoint_previous"), "{error}");
    assert!(error.contains("hint: restore one from a copy; or remove "), "{error}");
    assert!(error.contains(" and give the same command without --resume to start again"), "{error}");
    for name in ["latest", "previous"] {
        fs::remove_file(run.join(format!("fold_0/checkpoint_{name}.safetensors"))).unwrap();
    }
    let error = stopped.resume(&run).error(1);
    assert!(error.contains("fold_0 has no checkpoint left, although 6 steps were saved"), "{error}");
    assert_eq!(fs::read(run.join("fold_0/metrics.jsonl")).unwrap(), before);
}

#[test]
fn without_the_numbers_of_epochs_that_are_done_a_run_goes_on_and_says_so() {
    let stopped = Stopped::new();
    for (name, damage) in [
        ("empty", (|path: &Path| fs::write(path, "").unwrap()) as fn(&Path)),
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("torn", |path| {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, &text[..text.find('\n').unwrap() + 20]).unwrap();
        }),
    ] {
        let run = stopped.copy(name);
        fs::remove_file(run.join("fold_0/checkpoint_latest.safetensors")).unwrap();
        damage(&run.join("fold_0/metrics.jsonl"));
        stopped.expect_resumed(&run, "metrics.jsonl misses epochs up to step 4: it continues without them");
        let weights = |run: &Path| fs::read(run.join("fold_0/checkpoint_final.safetensors")).unwrap();
        assert!(weights(&run) == weights(&stopped.whole), "{name}");
        let lines = fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap();
        let all = fs::read_to_string(stopped.whole.join("fold_0/metrics.jsonl")).unwrap();
        assert_eq!(lines.lines().last(), all.lines().last(), "{name}");
        assert_eq!(lines.lines().count(), if name == "torn" { 2 } else { 1 }, "{name}");
    }
}

/// The tensors of a file of safetensors, with the place of the first byte of each.
fn tensors(path: &Path) -> Vec<(String, usize)> {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let start =
        |tensor: &serde_json::Value| 8 + length + tensor["data_offsets"][0].as_u64().unwrap() as usize;
    tensors.map(|(name, tensor)| (name.clone(), start(tensor))).collect()
}

#[test]
fn a_flipped_bit_in_any_tensor_is_named_by_whatever_reads_the_file() {
    let stopped = Stopped::with(&["--net", "plain"]);
    let fold = stopped.whole.join("fold_0");
    let [last, latest] = ["final", "latest"].map(|name| fold.join(format!("checkpoint_{name}.safetensors")));
    let sound = fs::read(&last).unwrap();
    let flipped = |path: &Path, place: usize| {
        let mut bytes = sound.clone();
        bytes[place] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let found = tensors(&last);
    let idle = found.iter().find(|(name, _)| name.ends_with("conv.bias")).expect("a bias before a norm");
    let moment = found.iter().find(|(name, _)| name.contains('/')).expect("a moment");
    let parameter = found.iter().find(|(name, _)| name.ends_with("conv.weight")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_string();
    let (run, images) = (text(&stopped.whole), text(&stopped.tiny.data.join("imagesTs")));
    for (name, place) in [idle, moment, parameter] {
        flipped(&last, *place);
        let to = text(&stopped.tiny.path("to"));
        for command in [
            &["predict", &run, "-i", &images, "-o", &to, "--ram", "512MiB"][..],
            &["export", &run, "--fold", "0", "--format", "onnx", "-o", &format!("{to}.onnx")],
            &["export", &run, "--fold", "0", "--format", "safetensors", "-o", &format!("{to}.safetensors")],
            &["models", "export", &run, &format!("{to}.plimsoll")],
        ] {
            let error = run_error(command);
            assert!(error.contains("is damaged") && error.contains(name.as_str()), "{command:?}: {error}");
        }
        fs::write(&last, &sound).unwrap();
        // A run that goes on takes the checkpoint before.
        let resumed = stopped.copy(&name.replace(['/', '.'], "_"));
        let latest_of_copy = resumed.join("fold_0/checkpoint_latest.safetensors");
        assert!(fs::read(&latest).unwrap().len() == sound.len());
        let mut bytes = fs::read(&latest_of_copy).unwrap();
        bytes[*place] ^= 1;
        fs::write(&latest_of_copy, bytes).unwrap();
        stopped.expect_resumed(&resumed, "checkpoint_previous.safetensors");
    }
}
