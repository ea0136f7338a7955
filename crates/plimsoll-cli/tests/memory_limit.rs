//! A run keeps to its limit where the system enforces it, with a data set ten times larger than the limit; and what is planned is
//! what is held, from both sides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "memory_limit/least_limit.rs"]
mod least_limit;
#[path = "memory_limit/small_disks.rs"]
mod small_disks;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Trial};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use support::cgroup::Cgroup;
use support::{SmallDisk, dataset, plimsoll, run_json};

/// Names tests after their functions.
macro_rules! named {
    ($($path:path),* $(,)?) => {
        vec![$((stringify!($path), $path as fn())),*]
    };
}

/// A kind of tests, with the reason why they are ignored on this machine.
struct Group {
    ignored: Option<&'static str>,
    tests: Vec<(&'static str, fn())>,
}

impl Group {
    fn always(tests: Vec<(&'static str, fn())>) -> Group {
        Group { ignored: None, tests }
    }

    fn trials(self) -> impl Iterator<Item = Trial> {
        let Group { ignored, tests } = self;
        tests.into_iter().map(move |(name, test)| {
            let trial = Trial::test(name, move || {
                test();
                Ok(())
            });
            trial.with_ignored_flag(ignored.is_some()).with_kind(ignored.unwrap_or_default())
        })
    }
}

fn main() -> ExitCode {
    let groups = [
        Group::always(named![
            a_run_keeps_to_its_limit_where_the_system_enforces_it,
            what_is_planned_is_what_is_resident_from_both_sides,
            each_part_of_the_overhead_is_what_this_program_has,
            a_network_of_many_nodes_holds_no_more_heap_than_is_allowed,
            a_hundred_epochs_hold_no_more_than_two,
            predicting_and_evaluating_hold_what_they_plan,
            least_limit::the_least_limit_covers_the_whole_life_of_a_run_for_any_number_of_cases,
            least_limit::the_least_limit_covers_any_number_of_folds,
            least_limit::the_least_limit_covers_reading_which_values_label_maps_have,
            least_limit::a_folder_of_a_hundred_thousand_files_is_refused_before_its_names_are_read,
            least_limit::the_least_limit_covers_the_whole_life_of_a_run_on_any_number_of_pictures,
        ]),
        Group {
            ignored: Cgroup::new(1 << 30).is_none().then_some("needs memory cgroups"),
            tests: named![a_run_keeps_to_the_limit_of_its_group],
        },
        Group {
            ignored: (!may_mount()).then_some("needs a user who may mount a disk"),
            tests: named![
                small_disks::a_full_disk_ends_a_run_with_one_error_and_with_room_it_goes_on_to_the_same_bits,
                small_disks::a_start_that_does_not_fit_on_the_disk_leaves_nothing_behind,
            ],
        },
        Group {
            ignored: Some("takes many minutes; run it with --ignored --nocapture for the table"),
            tests: named![random_runs_in_groups_of_their_limits_are_not_killed],
        },
    ];
    libtest_mimic::run(&Arguments::from_args(), groups.into_iter().flat_map(Group::trials).collect())
        .exit_code()
}

/// Returns `true` if this user may mount a disk.
fn may_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    SmallDisk::mount(&folder.path().join("disk"), "16k").is_some()
}

const CASES: usize = 8;
const SHAPE: [usize; 3] = [256, 384, 400];
const EPOCHS: usize = 12;

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
    // Rows of the wave by where they begin in it: made once, since tests are compiled without optimisation.
    let bytes = |values: Vec<i16>| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let row = |first: usize| (0..width).map(move |w| ((first + w * 7) % 64) as i16);
    let waves: Vec<Vec<u8>> = (0..64).map(|first| bytes(row(first).collect())).collect();
    let bright: Vec<Vec<u8>> =
        (0..64).map(|first| bytes(row(first).map(|wave| wave + 100).collect())).collect();
    for case in 0..CASES {
        let create = |path: String, element| {
            VolumeWriter::create(data.join(path), &geometry, 1, element, None).unwrap()
        };
        let mut image = create(format!("imagesTr/ball_{case:03}_0000.nii"), ElementType::I16);
        let mut label = create(format!("labelsTr/ball_{case:03}.nii"), ElementType::U8);
        for d in 0..depth {
            let (mut values, mut classes) = (Vec::new(), vec![0; height * width]);
            for h in 0..height {
                let first = (d * 3 + h * 5 + case) % 64;
                let at = values.len();
                values.extend_from_slice(&waves[first]);
                let off = |at: usize, middle: usize| at.abs_diff(middle).pow(2);
                let Some(left) = (40_usize * 40).checked_sub(off(d, 100 + case) + off(h, 150)) else {
                    continue;
                };
                let inside = 200 - left.isqrt()..200 + left.isqrt() + 1;
                let of_row = 2 * inside.start..2 * inside.end;
                values[at + of_row.start..at + of_row.end].copy_from_slice(&bright[first][of_row]);
                classes[h * width..][inside].fill(1);
            }
            image.write_planes(&values).unwrap();
            label.write_planes(&classes).unwrap();
        }
        image.finish().unwrap();
        label.finish().unwrap();
    }
    data
}

/// The settings of planned and executed runs, without a limit.
fn settings(data: &str) -> Vec<&str> {
    let mut args = vec![data, "--net", "dynunet", "--features", "8,16,24", "--patch-size", "32,32,32"];
    args.extend(["--epochs", "12", "--iterations", "4", "--validation-iterations", "1"]);
    args.extend(["--threads", "2", "--config", "/dev/null"]);
    args
}

/// Runs the command line after some words of shell.
fn after(shell: &str, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.current_dir(std::env::temp_dir());
    command.env("XDG_CACHE_HOME", std::env::temp_dir().join("plimsoll-test-cache"));
    command.args(["-c", &format!("{shell} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_plimsoll")]);
    command.args(args).arg("--json").output().unwrap()
}

/// Resident memory after each epoch.
fn resident_after_epochs(run: &Path) -> Vec<u64> {
    let events = fs::read_to_string(run.join("fold_all/events.jsonl")).unwrap();
    events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "epoch")
        .map(|event| event["resident_bytes"].as_u64().unwrap())
        .collect()
}

/// Checks that no more memory is resident after the last epoch than after the second, but for fragments of the heap. Less may be:
/// the kernel reclaims pages of code when another program needs memory.
fn check_steady(run: &Path, epochs: usize) {
    let resident = resident_after_epochs(run);
    assert_eq!(resident.len(), epochs);
    let grown = resident[epochs - 1].saturating_sub(resident[1]);
    assert!(grown <= 1 << 20, "{grown} bytes between the epochs 2 and {epochs}: {resident:?}");
}

/// The record that a finished run printed.
fn record(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["finished"], true);
    record
}

fn bytes(record: &serde_json::Value, key: &str) -> u64 {
    record[key].as_u64().unwrap_or_else(|| panic!("no {key} in {record}"))
}

/// Checks that a run finished within `limit`, and its memory did not grow.
fn check(output: &Output, run: &Path, limit: u64) {
    let record = record(output);
    assert!(bytes(&record, "ram_budget_bytes") <= limit, "{record}");
    assert!(bytes(&record, "peak_rss_bytes") <= bytes(&record, "planned_bytes"), "{record}");
    assert!(bytes(&record, "planned_bytes") <= bytes(&record, "ram_budget_bytes"), "{record}");
    check_steady(run, EPOCHS);
}

/// The planned and the resident memory: in total, and of code.
struct Sizes {
    planned: u64,
    peak: u64,
    code_mapped: u64,
    code_resident: u64,
}

impl Sizes {
    fn new(planned: u64, peak: u64, code: &serde_json::Value) -> Sizes {
        Sizes { planned, peak, code_mapped: bytes(code, "mapped"), code_resident: bytes(code, "resident") }
    }

    /// The sizes in the record of a training.
    fn from_training(record: &serde_json::Value) -> Sizes {
        Sizes {
            planned: bytes(record, "planned_bytes"),
            peak: bytes(record, "peak_rss_bytes"),
            code_mapped: part(record, "planned", "name", "code", "bytes"),
            code_resident: part(record, "held", "holder", "code", "peak"),
        }
    }
}

/// A number of one of the parts that a record lists.
fn part(record: &serde_json::Value, list: &str, key: &str, name: &str, size: &str) -> u64 {
    let parts = record[list].as_array().unwrap();
    let part = parts.iter().find(|part| part[key] == name).unwrap_or_else(|| panic!("no {name} in {list}"));
    bytes(part, size)
}

/// Checks that the resident memory is the planned memory or slightly less; returns the difference. The number of resident pages of the
/// program is the system's choice (read-ahead, other processes), so code only has an upper bound.
fn check_tight(sizes: &Sizes, what: &str) -> u64 {
    let Sizes { planned, peak, code_mapped, code_resident } = *sizes;
    assert!(peak <= planned, "{what}: {peak} bytes were resident, {planned} planned");
    assert!(code_resident <= code_mapped, "{what}: {code_resident} bytes of code, {code_mapped} are mapped");
    // Code may have been resident at the peak and reclaimed since, which leaves less than nothing.
    let slack = (planned - code_mapped).saturating_sub(peak - code_resident);
    assert!(
        slack <= (16 << 20).max(planned / 50),
        "{what}: planned {planned}, but for code {slack} bytes more than were resident"
    );
    slack
}

fn a_run_keeps_to_its_limit_where_the_system_enforces_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = large_dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = run_json(&[&["plan"][..], &settings(data), &["--ram", "1GiB"]].concat());
    // The least that would do, and a little for a cache that cannot hold a single image.
    let limit = (plan["minimum_ram_bytes"].as_u64().unwrap() >> 20) + 4;
    let decoded = plan["decoded_bytes"].as_u64().unwrap();
    assert!(decoded > 9 * (limit << 20), "the data set has {decoded} bytes, the limit is {limit} MiB");
    let (ram, run) = (format!("{limit}MiB"), dir.path().join("limited"));
    let train = [&["train"][..], &settings(data), &["--fold", "all"]].concat();
    let args = [&train[..], &["--out", run.to_str().unwrap(), "--ram", &ram]].concat();
    check(&after(&format!("ulimit -v {}", limit << 10), &args), &run, limit << 20);
}

/// Without `--ram`, the memory limit is the group's, less a margin of a sixteenth.
fn a_run_keeps_to_the_limit_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let data = large_dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = run_json(&[&["plan"][..], &settings(data), &["--ram", "1GiB"]].concat());
    let least = (plan["minimum_ram_bytes"].as_u64().unwrap() >> 20) + 4;
    let limit = (least << 20) * 16 / 15 + (1 << 20);
    let group = Cgroup::new(limit).unwrap();
    let run = dir.path().join("grouped");
    let train = [&["train"][..], &settings(data), &["--fold", "all"]].concat();
    let args = [&train[..], &["--out", run.to_str().unwrap()]].concat();
    check(&after(&group.enter(), &args), &run, limit);
}

/// A configuration by its flags.
struct Configuration(Vec<String>);

/// A sequence of numbers that is the same each time: a linear congruential generator with Knuth's constants for MMIX.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

impl Configuration {
    fn new(flags: &str) -> Configuration {
        Configuration(flags.split(' ').map(String::from).collect())
    }

    fn random(numbers: &mut Numbers) -> Configuration {
        let net = numbers.one_of(&["dynunet", "plain"]);
        let features = numbers.one_of(&["8,16", "8,16,24", "16,32,64", "24,40,80", "32,64,128"]);
        let patch = numbers.one_of(&["16,16,16", "24,32,32", "32,32,32", "32,48,48", "48,48,48"]);
        let batch = numbers.one_of(&["1", "2", "3", "4"]);
        let precision = numbers.one_of(&["f32", "bf16"]);
        let (threads, loaders) = (numbers.one_of(&["1", "2", "4"]), numbers.one_of(&["1", "2", "4"]));
        let optimizer = numbers.one_of(&["sgd", "adamw"]);
        Configuration::new(&format!(
            "--net {net} --features {features} --patch-size {patch} --batch-size {batch} --precision {precision} \
             --threads {threads} --loader-threads {loaders} --optimizer {optimizer}"
        ))
    }

    /// Flags of plan and train.
    fn args<'a>(&'a self, data: &'a str, ram: &'a str) -> Vec<&'a str> {
        let mut args = vec![data, "--ram", ram, "--config", "/dev/null"];
        args.extend(["--epochs", "2", "--iterations", "4", "--validation-iterations", "1"]);
        args.extend(self.0.iter().map(String::as_str));
        args
    }

    /// Runs it under a limit that is `share` of the way from the least to one with all volumes in the cache, in a memory cgroup of
    /// just that size where one can be made.
    fn run_at(&self, dir: &Path, data: &str, share: f64) -> Sizes {
        let plan = run_json(&[&["plan"][..], &self.args(data, "4GiB")].concat());
        let cache = (bytes(&plan, "decoded_bytes") as f64 * share) as u64;
        let limit = (bytes(&plan, "minimum_ram_bytes") + cache).next_multiple_of(4096);
        let (ram, run) = (limit.to_string(), dir.join("run"));
        let tail = ["--fold", "all", "--out", run.to_str().unwrap()];
        let args = [&["train"][..], &self.args(data, &ram), &tail].concat();
        let group = Cgroup::new(limit);
        if group.is_none() {
            eprintln!("no memory cgroup can be made here: nothing enforces the limit");
        }
        let record = record(&after(&group.as_ref().map_or("true".into(), Cgroup::enter), &args));
        fs::remove_dir_all(&run).unwrap();
        assert!(bytes(&record, "planned_bytes") <= limit, "{record}");
        Sizes::from_training(&record)
    }
}

fn what_is_planned_is_what_is_resident_from_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    for flags in [
        "--net dynunet --features 8,16 --patch-size 16,16,16 --batch-size 1 --threads 1 --loader-threads 1",
        "--net plain --features 16,32,64 --patch-size 48,48,48 --batch-size 2 --threads 2 --loader-threads 4",
        "--net dynunet --features 16,32,64 --patch-size 32,32,32 --batch-size 2 --precision bf16 --threads 4",
    ] {
        check_tight(&Configuration::new(flags).run_at(dir.path(), data, 1.0), flags);
    }
}

fn random_runs_in_groups_of_their_limits_are_not_killed() {
    const RUNS: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let mut numbers = Numbers(20);
    let mut slacks = Vec::new();
    for run in 0..RUNS {
        let configuration = Configuration::random(&mut numbers);
        let share = numbers.below(5) as f64 / 4.0;
        let sizes = configuration.run_at(dir.path(), data.to_str().unwrap(), share);
        let flags = configuration.0.join(" ");
        let slack = check_tight(&sizes, &flags);
        eprintln!("{run:2} planned {:>12} peak {:>12} less {slack:>10}  {flags}", sizes.planned, sizes.peak);
        slacks.push(slack);
    }
    slacks.sort_unstable();
    let (least, median, most) = (slacks[0], slacks[RUNS / 2], slacks[RUNS - 1]);
    eprintln!("planned - peak, but for code: least {least}, median {median}, most {most} bytes");
}

fn each_part_of_the_overhead_is_what_this_program_has() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let run = dir.path().join("run");
    let record = run_json(&support::small_run(data.to_str().unwrap(), run.to_str().unwrap()));
    let planned = |name: &str| part(&record, "planned", "name", name, "bytes");
    // Of code, what is mapped is allowed, and some of it is never touched: how much is the system's choice.
    for (name, most) in [("code", planned("code")), ("heap", 6 << 20), ("cache", 1 << 20)] {
        let (planned, held) = (planned(name), part(&record, "held", "holder", name, "peak"));
        assert!(held > 0 && held <= planned, "{name}: {planned} bytes allowed, {held} held");
        assert!(planned - held <= most, "{name}: {planned} bytes allowed, only {held} held");
    }
    assert!(planned("stacks") > 0);
    let sum: u64 =
        record["planned"].as_array().unwrap().iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, bytes(&record, "planned_bytes"));
}

fn a_network_of_many_nodes_holds_no_more_heap_than_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let run = dir.path().join("run");
    let mut args = vec!["train", data.to_str().unwrap(), "--out", run.to_str().unwrap(), "--fold", "all"];
    args.extend(["--ram", "1GiB", "--net", "swinunetr", "--patch-size", "32,32,64", "--batch-size", "1"]);
    args.extend([
        "--epochs",
        "1",
        "--iterations",
        "1",
        "--validation-iterations",
        "1",
        "--config",
        "/dev/null",
    ]);
    let record = run_json(&args);
    let planned = part(&record, "planned", "name", "heap", "bytes");
    let held = part(&record, "held", "holder", "heap", "peak");
    assert!(held <= planned, "{planned} bytes allowed, {held} held");
}

fn a_hundred_epochs_hold_no_more_than_two() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let run = dir.path().join("run");
    let mut args = vec!["train", data.to_str().unwrap(), "--out", run.to_str().unwrap(), "--fold", "all"];
    args.extend(["--ram", "512MiB", "--net", "dynunet", "--features", "8,16", "--patch-size", "16,16,16"]);
    args.extend([
        "--epochs",
        "100",
        "--iterations",
        "2",
        "--validation-iterations",
        "1",
        "--config",
        "/dev/null",
    ]);
    run_json(&args);
    check_steady(&run, 100);
    assert!(run.join("fold_all/progress.png").is_file());
}

fn predicting_and_evaluating_hold_what_they_plan() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let (run, labels) = (dir.path().join("run"), dir.path().join("labels"));
    run_json(&support::small_run(data.to_str().unwrap(), run.to_str().unwrap()));
    let images = data.join("imagesTs");
    let predict =
        ["predict", run.to_str().unwrap(), "-i", images.to_str().unwrap(), "-o", labels.to_str().unwrap()];
    let record = run_json(&[&predict[..], &["--ram", "512MiB"]].concat());
    let (planned, peak) = (bytes(&record, "planned_bytes"), bytes(&record, "peak_rss_bytes"));
    check_tight(&Sizes::new(planned, peak, &record["code"]), "predict");

    let references = data.join("labelsTs");
    let evaluate = ["evaluate", labels.to_str().unwrap(), references.to_str().unwrap(), "--ram", "512MiB"];
    let output = plimsoll().args(evaluate).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().next_back().unwrap();
    let numbers: Vec<u64> = last
        .trim_start_matches("reserved ")
        .trim_end_matches(" of it code")
        .split(" at most, ")
        .flat_map(|part| part.split(" of it code; peak resident "))
        .flat_map(|part| part.split(", "))
        .map(|size| size.parse::<plimsoll_memory::Bytes>().unwrap().0)
        .collect();
    let [planned, code_mapped, peak, code_resident] = numbers[..] else { panic!("{last}") };
    check_tight(&Sizes { planned, peak, code_mapped, code_resident }, "evaluate");
}
