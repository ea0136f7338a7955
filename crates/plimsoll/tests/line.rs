//! A run keeps to its line where the system enforces it, with a data set ten times larger than the line.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use support::run_json;

const CASES: usize = 8;
const SHAPE: [usize; 3] = [256, 384, 400];
const EPOCHS: usize = 30;

/// Eight images of 75 MiB and their labels: a bright ball in a wave.
fn large_dataset(folder: &Path) -> PathBuf {
    let data = folder.join("large");
    for part in ["imagesTr", "labelsTr"] {
        fs::create_dir_all(data.join(part)).unwrap();
    }
    let description = format!(
        r#"{{"name": "Balls", "channel_names": {{"0": "noNorm"}}, "labels": {{"background": 0, "ball": 1}},
            "numTraining": {CASES}, "file_ending": ".nii"}}"#
    );
    fs::write(data.join("dataset.json"), description).unwrap();
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let [depth, height, width] = SHAPE;
    for case in 0..CASES {
        let create = |path: String, element| {
            VolumeWriter::create(data.join(path), &geometry, 1, element, None).unwrap()
        };
        let mut image = create(format!("imagesTr/ball_{case:03}_0000.nii"), ElementType::I16);
        let mut label = create(format!("labelsTr/ball_{case:03}.nii"), ElementType::U8);
        for d in 0..depth {
            let (mut values, mut classes) = (Vec::new(), Vec::new());
            for h in 0..height {
                for w in 0..width {
                    let off = |at: usize, middle: usize| at.abs_diff(middle).pow(2);
                    let ball = off(d, 100 + case) + off(h, 150) + off(w, 200) < 40 * 40;
                    let wave = ((d * 3 + h * 5 + w * 7 + case) % 64) as i16;
                    values.extend((wave + if ball { 100 } else { 0 }).to_ne_bytes());
                    classes.push(u8::from(ball));
                }
            }
            image.write_planes(&values).unwrap();
            label.write_planes(&classes).unwrap();
        }
        image.finish().unwrap();
        label.finish().unwrap();
    }
    data
}

/// What is planned and run, but for the line.
fn settings(data: &str) -> Vec<&str> {
    let mut args = vec![data, "--net", "dynunet", "--features", "8,16,24", "--patch-size", "32,32,32"];
    args.extend(["--epochs", "30", "--iterations", "4", "--validation-iterations", "1"]);
    args.extend(["--threads", "2", "--config", "/dev/null"]);
    args
}

/// Runs the command line after some words of shell.
fn after(shell: &str, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.current_dir(std::env::temp_dir());
    command.args(["-c", &format!("{shell} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_plimsoll")]);
    command.args(args).arg("--json").output().unwrap()
}

/// That a run came to its end within `line`, and held after the last epoch what it held after the first.
fn check(output: &Output, run: &Path, line: u64) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = |key: &str| record[key].as_u64().unwrap();
    assert_eq!(record["finished"], true);
    assert!(bytes("ram_budget_bytes") <= line, "{record}");
    assert!(bytes("peak_rss_bytes") <= bytes("planned_bytes"), "{record}");
    assert!(bytes("planned_bytes") <= bytes("ram_budget_bytes"), "{record}");
    let journal = fs::read_to_string(run.join("fold_all/metrics.jsonl")).unwrap();
    let resident: Vec<u64> = journal
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["resident_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(resident.len(), EPOCHS);
    // Room for what the heap happens to keep.
    let grown = resident[EPOCHS - 1].saturating_sub(resident[0]);
    assert!(grown <= 1 << 20, "{grown} bytes more after {EPOCHS} epochs: {resident:?}");
}

/// A memory cgroup of our own, gone when it is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// With a limit; none if groups cannot be made here.
    fn new(bytes: u64) -> Option<Cgroup> {
        let name = format!("plimsoll_test_{}", std::process::id());
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(root, file)| {
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Cgroup(group);
            let limited =
                group.0.join(file).exists() && fs::write(group.0.join(file), bytes.to_string()).is_ok();
            limited.then_some(group)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_run_keeps_to_its_line_where_the_system_enforces_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = large_dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = run_json(&[&["plan"][..], &settings(data), &["--ram", "1GiB"]].concat());
    // The least that would do, and a little for a cache that cannot hold a single image.
    let line = (plan["minimum_ram_bytes"].as_u64().unwrap() >> 20) + 4;
    let decoded = plan["decoded_bytes"].as_u64().unwrap();
    assert!(decoded > 10 * (line << 20), "the data set has {decoded} bytes, the line is {line} MiB");
    let (ram, run) = (format!("{line}MiB"), dir.path().join("limited"));
    let train = [&["train"][..], &settings(data), &["--fold", "all"]].concat();
    let args = [&train[..], &["--out", run.to_str().unwrap(), "--ram", &ram]].concat();
    check(&after(&format!("ulimit -v {}", line << 10), &args), &run, line << 20);

    // Without --ram, the group's limit is the line, less a margin of a sixteenth.
    let limit = (line << 20) * 16 / 15 + (1 << 20);
    let Some(group) = Cgroup::new(limit) else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let run = dir.path().join("grouped");
    let args = [&train[..], &["--out", run.to_str().unwrap()]].concat();
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    check(&after(&enter, &args), &run, limit);
}
