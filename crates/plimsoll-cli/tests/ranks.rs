//! `plimsoll train` as processes of `mpiexec`: the same bytes for one, two and four ranks, after stops and kills.
//!
//! Each test runs with each of the binary interfaces of MPI that this machine has a library of; `support/mpi.rs` describes where they are looked for.
//! Those of a missing interface are reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/cgroup.rs"]
mod cgroup;
#[path = "support/mpi.rs"]
mod mpi;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cgroup::Cgroup;
use libtest_mimic::{Arguments, Failed, Trial};
use mpi::{Interface, Mpi, RANK, find_all};
use plimsoll_data::phantom::{self, PhantomConfig};

/// The settings of a run of eight steps with four shards.
const SETTINGS: &str = "patch_size = [8, 8, 8]\nbatch_size = 8\nshards = 4\nmicro_batch = 2\nepochs = 2\niterations_per_epoch = 4\n\
                        validation_iterations = 1\nema = 0.9\nseed = 3\n[network]\nnet = \"dynunet\"\nfeatures = [4, 6]\n";

/// A data set, and folders of runs on it.
struct Site {
    dir: tempfile::TempDir,
    mpi: Mpi,
    /// The memory limit of each rank.
    ram: String,
    /// Predicts the validation cases after the training.
    validates: bool,
}

impl Site {
    fn new(mpi: &Mpi) -> Site {
        Site::with_cases(mpi, [16, 20])
    }

    /// With images of some voxels along each axis.
    fn with_cases(mpi: &Mpi, size: [usize; 2]) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let phantom =
            PhantomConfig { cases: 4, test_cases: 0, size, outlier: false, ..PhantomConfig::default() };
        phantom::write(dir.path().join("dataset"), &phantom).unwrap();
        fs::write(dir.path().join("plimsoll.toml"), SETTINGS).unwrap();
        Site { dir, mpi: mpi.clone(), ram: "300MiB".into(), validates: false }
    }

    /// The command that trains a run with some ranks; with 0 without a launcher.
    fn command(&self, ranks: usize, run: &str, more: &[&str]) -> Command {
        self.command_below(ranks, run, more, &[])
    }

    /// The same with words before the program of a rank.
    fn command_below(&self, ranks: usize, run: &str, more: &[&str], before: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_plimsoll");
        let mut command = match ranks {
            0 => Command::new(program),
            _ => self.mpi.command(ranks, before, program),
        };
        command.args(["train", "dataset", "--ram", &self.ram, "--threads", "1", "--out", run]);
        command.args((!self.validates).then_some("--skip-validation"));
        command.args(more).current_dir(self.dir.path());
        command.env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command
    }

    fn train(&self, ranks: usize, run: &str, more: &[&str]) -> Output {
        self.command(ranks, run, more).output().unwrap()
    }

    fn start(&self, ranks: usize, run: &str, more: &[&str]) -> Child {
        let mut command = self.command(ranks, run, more);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn file(&self, run: &str, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(run).join("fold_0").join(name)).unwrap_or_default()
    }

    /// The planned cost of a rank of some.
    fn planned(&self, ranks: usize) -> Result<serde_json::Value, Failed> {
        let mut command = self.mpi.beside(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["plan", "dataset", "--ram", &self.ram, "--threads", "1", "--json"]);
        command.args(["--ranks", &ranks.to_string(), "--network", "1Gbit"]).current_dir(self.dir.path());
        let output = command.env("XDG_CACHE_HOME", self.dir.path().join("cache")).output()?;
        expect(output.status.success(), &text(&output))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let costs = report["scaling"]["costs"].as_array().and_then(|costs| costs.last());
        Ok(costs.ok_or("nothing is planned")?.clone())
    }

    /// Checks that the first rank of a run held what was planned, but for code that is mapped and not resident.
    fn expect_tight(&self, run: &str, limit: u64) -> Result<(), Failed> {
        let record: serde_json::Value = serde_json::from_slice(&self.file(run, "run.json"))?;
        let number = |key: &str| record[key].as_u64().ok_or(format!("{run} has no {key}"));
        let part = |of: &str, list: &str, name: &str, key: &str| {
            let parts = record[list].as_array().into_iter().flatten();
            parts.filter(|part| part[name] == of).find_map(|part| part[key].as_u64()).unwrap_or(0)
        };
        let (planned, peak) = (number("planned_bytes")?, number("peak_rss_bytes")?);
        let (mapped, resident) =
            (part("code", "planned", "name", "bytes"), part("code", "held", "holder", "peak"));
        let said = format!(
            "{run}: limit {limit}, planned {planned}, peak {peak}, code {mapped}, {resident} of it resident"
        );
        expect(peak <= planned && planned <= limit && resident <= mapped && resident > 0, &said)?;
        let slack = (planned - mapped).saturating_sub(peak - resident);
        println!("{said}: {slack} more than were held");
        expect(slack <= (16 << 20).max(planned / 50), &said)
    }

    fn expect_same(&self, one: &str, other: &str) -> Result<(), Failed> {
        for name in ["checkpoint_final.safetensors", "metrics.jsonl"] {
            let (one_file, other_file) = (self.file(one, name), self.file(other, name));
            expect(!one_file.is_empty(), &format!("{one} has no {name}"))?;
            expect(one_file == other_file, &format!("{name} of {one} and {other} differ"))?;
        }
        Ok(())
    }
}

fn expect(is_so: bool, said: &str) -> Result<(), Failed> {
    if is_so { Ok(()) } else { Err(said.to_string().into()) }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Twenty steps in bf16 with Dice over the batch.
fn same_bytes_over_the_batch(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    let loss =
        "[loss]\ncomponents = [{ name = \"soft_dice\", batch = true }, { name = \"cross_entropy\" }]\n";
    let settings = SETTINGS.replace("[network]", &format!("precision = \"bf16\"\n{loss}[network]"));
    fs::write(site.dir.path().join("plimsoll.toml"), settings)?;
    for (ranks, run) in [(0, "alone"), (2, "two"), (4, "four")] {
        let output = site.train(ranks, run, &["--iterations", "10"]);
        expect(output.status.success(), &text(&output))?;
        site.expect_same("alone", run)?;
    }
    Ok(())
}

fn same_bytes(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    for (ranks, run) in [(0, "alone"), (1, "one"), (2, "two"), (4, "four")] {
        let output = site.train(ranks, run, &[]);
        expect(output.status.success(), &text(&output))?;
        site.expect_same("alone", run)?;
    }
    Ok(())
}

/// Whole cases are predicted by two ranks, and the first reports their scores.
fn validation(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site { validates: true, ..Site::new(mpi) };
    let folds = r#"[{"train": ["vessel_000"], "val": ["vessel_001", "vessel_002", "vessel_003"]}]"#;
    fs::write(site.dir.path().join("folds.json"), folds)?;
    for (ranks, run) in [(0, "run_0"), (2, "run_2")] {
        let mut command = site.command(ranks, run, &["--splits", "folds.json"]);
        let output = command.output()?;
        let said = text(&output);
        expect(output.status.success(), &said)?;
        expect(said.matches("fold 0: finished").count() == 1, &said)?;
    }
    let scores =
        |run: &str| String::from_utf8_lossy(&site.file(run, "validation/summary.json")).replace(run, "");
    expect(!scores("run_0").is_empty() && scores("run_0") == scores("run_2"), "the scores differ")
}

fn default_shards(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    let without = SETTINGS.replace("shards = 4\n", "");
    fs::write(site.dir.path().join("plimsoll.toml"), without).unwrap();
    let output = site.train(2, "run", &[]);
    expect(output.status.success(), &text(&output))?;
    let specification = String::from_utf8(site.file("run", "specification.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&specification).unwrap();
    expect(value["config"]["training"]["shards"] == 2, &specification)
}

fn too_many_ranks(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    let output = site.train(3, "run", &[]);
    let said = text(&output);
    expect(!output.status.success(), &said)?;
    expect(
        said.contains("`shards` is 4, but it must be a multiple of the number of ranks, which is 3"),
        &said,
    )?;
    expect(!site.dir.path().join("run/fold_0").exists(), "a run has begun")
}

/// Two ranks that may each take more than half of what the machine or the control group has left.
fn too_much_memory(mpi: &Mpi) -> Result<(), Failed> {
    let mut site = Site::new(mpi);
    let tightest = plimsoll_memory::limits(&plimsoll_memory::System::default(), None).found[0].bytes;
    site.ram = format!("{}MiB", (tightest.0 >> 20) * 3 / 5);
    let output = site.train(2, "run", &[]);
    let said = text(&output);
    expect(!output.status.success(), &said)?;
    expect(said.contains("2 ranks with --ram ") && said.contains(" may take "), &said)?;
    expect(said.contains("start fewer ranks on a node"), &said)?;
    expect(!site.dir.path().join("run/fold_0").exists(), "a run has begun")
}

/// One, two and four ranks, each in a group that has just the least limit that is planned for it: the MPI library is planned too.
fn own_groups(mpi: &Mpi) -> Result<(), Failed> {
    let mut site = Site::new(mpi);
    // Enough parameters for as many messages as are in flight at most.
    let settings = SETTINGS.replace("[4, 6]", "[128, 256]");
    fs::write(site.dir.path().join("plimsoll.toml"), settings)?;
    let output = site.train(0, "free", &[]);
    expect(output.status.success(), &text(&output))?;
    let mut states = Vec::new();
    for ranks in [1, 2, 4] {
        site.ram = "300MiB".into();
        let cost = site.planned(ranks)?;
        states.push(cost["state_bytes"].as_u64().ok_or("no moments are planned")?);
        let limit = cost["minimum_ram_bytes"].as_u64().ok_or("no limit is planned")?.next_multiple_of(4096);
        let groups: Option<Vec<Cgroup>> = (0..ranks).map(|_| Cgroup::new(limit)).collect();
        let groups = groups.ok_or("no group can be made")?;
        site.ram = limit.to_string();
        // A shell for each rank puts itself into its group, and becomes the rank.
        let places = groups.iter().enumerate().map(|(rank, group)| format!("{rank}) {};; ", group.enter()));
        let enter = format!("case {RANK} in {}esac; exec \"$0\" \"$@\"", places.collect::<String>());
        let run = format!("groups_{ranks}");
        let output = site.command_below(ranks, &run, &[], &["sh", "-c", &enter]).output()?;
        expect(output.status.success(), &format!("{ranks} ranks of {limit} bytes: {}", text(&output)))?;
        let kills = groups.iter().map(Cgroup::kills);
        expect(kills.into_iter().all(|kills| kills == Some(0)), "the kernel has killed a rank")?;
        site.expect_same("free", &run)?;
        site.expect_tight(&run, limit)?;
    }
    // A rank owns whole tensors, so that its part is not exact.
    let share = |ranks: usize| states[ranks.ilog2() as usize] as f64 / states[0] as f64 * ranks as f64;
    expect((1.0..1.4).contains(&share(2)) && (1.0..1.7).contains(&share(4)), &format!("{states:?}"))
}

/// Without other ranks there is nobody to wait for or to send to.
fn alone() -> Result<(), Failed> {
    let options = [
        (["--patience", "5"], "--patience is the wait for other ranks"),
        (["--transport", "mpi"], "--transport is the way of messages between ranks"),
    ];
    for (option, error) in options {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.args(["train", "nowhere"]).args(option).output().unwrap();
        let said = text(&output);
        expect(!output.status.success() && said.contains(error), &said)?;
    }
    Ok(())
}

/// NCCL is refused on processors, by all ranks, and MPI is what they use.
fn transport(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    let output = site.train(2, "nccl", &["--transport", "nccl"]);
    let said = text(&output);
    expect(!output.status.success(), &said)?;
    expect(said.contains("the ranks cannot use NCCL: it trains on the device cpu"), &said)?;
    expect(said.contains("train on a GPU with --device cuda:0; --transport mpi does without NCCL"), &said)?;
    let output = site.train(2, "mpi", &["--transport", "mpi"]);
    expect(output.status.success(), &text(&output))
}

/// Kills one rank; the others end, and another number of ranks continues.
fn killed(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::new(mpi);
    let longer = ["--iterations", "40"];
    let output = site.train(0, "whole", &longer);
    expect(output.status.success(), &text(&output))?;
    let mut child = site.start(4, "killed", &longer);
    let start = Instant::now();
    let is_there = || !site.file("killed", "checkpoint_latest.safetensors").is_empty();
    while !is_there() && start.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    expect(is_there(), "no checkpoint was written")?;
    let victims = ranks_below(child.id());
    expect(!victims.is_empty() || child.try_wait().unwrap().is_some(), "no rank runs")?;
    if let Some(victim) = victims.last() {
        // It may have ended by itself in the meantime.
        let _ = Command::new("kill").args(["-9", &victim.to_string()]).status();
        let killed = Instant::now();
        while child.try_wait().unwrap().is_none() {
            expect(killed.elapsed() < Duration::from_secs(20), "the other ranks go on")?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let _ = child.wait();
    let output = site.train(2, "killed", &["--iterations", "40", "--resume"]);
    let said = text(&output);
    expect(output.status.success(), &said)?;
    site.expect_same("whole", "killed")
}

/// The time after which a rank hangs, in seconds.
const PATIENCE: u64 = 3;

/// Starts two ranks, stops one of them once a file exists and both compute, and checks that the other names it and ends all.
fn expect_named(
    site: &Site,
    command: &mut Command,
    stopped: usize,
    has_begun: impl Fn() -> bool,
) -> Result<(), Failed> {
    let printed = site.dir.path().join("printed");
    command.stdout(Stdio::null()).stderr(fs::File::create(&printed)?);
    let mut child = command.spawn()?;
    wait_until(Duration::from_secs(120), || has_begun() || child.try_wait().unwrap().is_some());
    // Both have begun to predict.
    std::thread::sleep(Duration::from_millis(500));
    let ranks = ranks_below(child.id());
    expect(ranks.len() == 2, &format!("no two ranks predict, {ranks:?}: {}", fs::read_to_string(&printed)?))?;
    let stop = Command::new("kill").args(["-STOP", &ranks[stopped].to_string()]).status()?;
    let begin = Instant::now();
    let has_ended = wait_until(Duration::from_secs(60), || child.try_wait().unwrap().is_some());
    let (seconds, said) = (begin.elapsed().as_secs(), fs::read_to_string(&printed)?);
    if !has_ended {
        child.kill()?;
    }
    expect(stop.success() && has_ended && !child.wait()?.success(), &said)?;
    expect((PATIENCE..PATIENCE + 5).contains(&seconds), &format!("ended after {seconds} s: {said}"))?;
    let host = plimsoll_memory::host::name();
    let line = |rank: usize| {
        let by = 1 - rank;
        format!("rank {by} on {host}: rank {rank} on {host} hangs: it has made no progress for {PATIENCE} s")
    };
    expect(said.contains(&line(0)) != said.contains(&line(1)), &said)?;
    let are_gone = wait_until(Duration::from_secs(2), || ranks_alive(&ranks) == 0);
    expect(are_gone, "a rank goes on")
}

/// A rank that is stopped while each predicts validation cases of its own, so that the other waits for nothing.
fn stopped_in_validation(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site { validates: true, ..Site::with_cases(mpi, [56, 60]) };
    let folds = r#"[{"train": ["vessel_000", "vessel_001"], "val": ["vessel_002", "vessel_003"]}]"#;
    fs::write(site.dir.path().join("folds.json"), folds)?;
    for (stopped, run) in [(0, "first"), (1, "second")] {
        let options = ["--splits", "folds.json", "--patience", &PATIENCE.to_string()];
        let has_begun = || !site.file(run, "validation/origin.json").is_empty();
        expect_named(&site, &mut site.command(2, run, &options), stopped, has_begun)?;
    }
    Ok(())
}

/// The same while each predicts a part of a folder.
fn stopped_in_prediction(mpi: &Mpi) -> Result<(), Failed> {
    let site = Site::with_cases(mpi, [56, 60]);
    let output = site.train(0, "run", &[]);
    expect(output.status.success(), &text(&output))?;
    let mut command = mpi.command(2, &[], env!("CARGO_BIN_EXE_plimsoll"));
    command.args([
        "predict",
        "run",
        "-i",
        "dataset/imagesTr",
        "-o",
        "labels",
        "--ram",
        "300MiB",
        "--threads",
        "1",
    ]);
    command.args(["--patience", &PATIENCE.to_string()]).current_dir(site.dir.path());
    let parts = site.dir.path().join("labels/run.parts");
    expect_named(&site, &mut command, 0, || parts.is_dir())
}

/// Waits until something is true, and returns `false` if it is not after a time.
fn wait_until(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if is_true() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The number of processes that have not ended.
fn ranks_alive(ranks: &[u32]) -> usize {
    let is_alive = |rank: &&u32| {
        let status = fs::read_to_string(format!("/proc/{rank}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
    };
    ranks.iter().filter(is_alive).count()
}

/// The processes of the program that a launcher has started, below its own helpers.
fn ranks_below(launcher: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![launcher];
    while let Some(parent) = parents.pop() {
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()) {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim() == "plimsoll" {
                found.push(child);
            } else {
                parents.push(child);
            }
        }
    }
    found.sort_unstable();
    found
}

/// A test of one MPI.
type Run = fn(&Mpi) -> Result<(), Failed>;

/// Ranks with a limit each, in a group of their own.
const IN_GROUPS: &str = "ranks_in_groups_of_their_limits_are_not_killed";

fn main() {
    let arguments = Arguments::from_args();
    let all: [(&str, Run); 11] = [
        ("any_number_of_ranks_writes_the_same_bytes", same_bytes),
        (
            "any_number_of_ranks_writes_the_same_bytes_with_dice_over_the_batch_in_bf16",
            same_bytes_over_the_batch,
        ),
        ("whole_cases_are_divided_among_ranks", validation),
        ("shards_are_as_many_as_ranks_by_default", default_shards),
        ("ranks_that_do_not_divide_the_shards_are_refused", too_many_ranks),
        ("ranks_that_may_take_more_than_their_node_has_are_refused", too_much_memory),
        ("a_killed_rank_ends_all_and_another_number_continues", killed),
        ("a_rank_that_is_stopped_while_cases_are_predicted_ends_all", stopped_in_validation),
        ("a_rank_that_is_stopped_while_it_predicts_its_part_ends_all", stopped_in_prediction),
        ("nccl_is_refused_on_processors", transport),
        (IN_GROUPS, own_groups),
    ];
    let has_groups = Cgroup::new(1 << 30).is_some();
    let mut trials = vec![Trial::test("options_of_ranks_are_refused_without_others", alone)];
    for Interface { name: interface, libraries, mpi } in find_all() {
        for (name, run) in all {
            let reason = match &mpi {
                None => format!(" (no {} with an mpiexec)", libraries.join(" or ")),
                Some(_) if name == IN_GROUPS && !has_groups => " (needs memory cgroups)".into(),
                Some(_) => String::new(),
            };
            let found = mpi.clone();
            let trial = Trial::test(format!("{interface}::{name}{reason}"), move || {
                found.map_or(Ok(()), |mpi| run(&mpi))
            });
            trials.push(trial.with_ignored_flag(!reason.is_empty()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
