//! `plimsoll train` as processes of `mpiexec`: the same bytes for one, two and four ranks, after stops and kills.
//!
//! MPI is looked for below the folders that `PLIMSOLL_TEST_MPI` lists, separated by colons, and below `/usr` and `/usr/local`, as
//! `crates/plimsoll-ranks/tests/mpi.rs` does. Without it the tests are reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/cgroup.rs"]
mod cgroup;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cgroup::Cgroup;
use libtest_mimic::{Arguments, Failed, Trial};
use plimsoll_data::phantom::{self, PhantomConfig};

/// The folders of an MPI with an `mpiexec` that starts several ranks on few cores.
#[derive(Clone)]
struct Mpi {
    launcher: PathBuf,
    libraries: PathBuf,
}

fn find() -> Option<Mpi> {
    let listed = std::env::var("PLIMSOLL_TEST_MPI").unwrap_or_default();
    let roots = listed.split(':').filter(|root| !root.is_empty()).chain(["/usr/local", "/usr"]);
    for root in roots.map(Path::new) {
        for folder in ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"] {
            let libraries = root.join(folder);
            let is_there = ["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"]
                .iter()
                .any(|name| libraries.join(name).exists());
            let launchers = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"];
            let launcher =
                launchers.iter().map(|name| root.join("bin").join(name)).find(|path| path.exists());
            if let Some(launcher) = launcher.filter(|_| is_there) {
                return Some(Mpi { launcher, libraries });
            }
        }
    }
    None
}

/// The settings of a run of eight steps with four shards.
const SETTINGS: &str = "patch_size = [8, 8, 8]\nbatch_size = 8\nshards = 4\nepochs = 2\niterations_per_epoch = 4\n\
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
        let dir = tempfile::tempdir().unwrap();
        let phantom = PhantomConfig {
            cases: 4,
            test_cases: 0,
            size: [16, 20],
            outlier: false,
            ..PhantomConfig::default()
        };
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
            _ => {
                let mut command = Command::new(&self.mpi.launcher);
                command.arg("-n").arg(ranks.to_string()).args(before).arg(program);
                command
            }
        };
        command.args(["train", "dataset", "--ram", &self.ram, "--threads", "1", "--out", run]);
        command.args((!self.validates).then_some("--skip-validation"));
        command.args(more).current_dir(self.dir.path());
        let launchers = self.mpi.launcher.parent().unwrap();
        // As in an activated virtual environment, where the library is found beside the launcher; systems have it where the loader looks.
        if launchers.with_file_name("lib") == self.mpi.libraries {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(launchers.to_path_buf()).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(folders).unwrap()).env_remove("LD_LIBRARY_PATH");
        } else {
            command.env("LD_LIBRARY_PATH", &self.mpi.libraries);
        }
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

/// Two ranks, each in a group that has just the limit of a rank: what a rank needs is planned, the MPI library included.
fn own_groups(mpi: &Mpi) -> Result<(), Failed> {
    let mut site = Site::new(mpi);
    let output = site.train(2, "free", &[]);
    expect(output.status.success(), &text(&output))?;
    let events = String::from_utf8(site.file("free", "events.jsonl"))?;
    let events = events.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let planned = events.filter(|event| event["event"] == "plan").find_map(|event| event["planned"].as_u64());
    // The other rank may own a tensor more.
    let limit = (planned.ok_or("no plan is recorded")? + (256 << 10)).next_multiple_of(4096);
    let groups = [Cgroup::new(limit), Cgroup::new(limit)].map(|group| group.ok_or("no group can be made"));
    let [first, second] = groups;
    let (first, second) = (first?, second?);
    site.ram = limit.to_string();
    // A shell for each rank puts itself into its group, and becomes the rank.
    let enter = format!(
        "if [ \"$PMI_RANK\" = 0 ]; then {}; else {}; fi; exec \"$0\" \"$@\"",
        first.enter(),
        second.enter()
    );
    let mut command = site.command_below(2, "groups", &[], &["sh", "-c", &enter]);
    let output = command.output()?;
    expect(output.status.success(), &text(&output))?;
    expect((first.kills(), second.kills()) == (Some(0), Some(0)), "the kernel has killed a rank")?;
    site.expect_same("free", "groups")
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

fn main() {
    let arguments = Arguments::from_args();
    let found = find();
    let all: [(&str, Run); 7] = [
        ("any_number_of_ranks_writes_the_same_bytes", same_bytes),
        ("whole_cases_are_divided_among_ranks", validation),
        ("shards_are_as_many_as_ranks_by_default", default_shards),
        ("ranks_that_do_not_divide_the_shards_are_refused", too_many_ranks),
        ("ranks_that_may_take_more_than_their_node_has_are_refused", too_much_memory),
        ("a_killed_rank_ends_all_and_another_number_continues", killed),
        ("nccl_is_refused_on_processors", transport),
    ];
    let has_groups = Cgroup::new(1 << 30).is_some();
    let in_groups = {
        let name = "ranks_in_groups_of_their_limits_are_not_killed";
        let reason = match (&found, has_groups) {
            (None, _) => " (no MPICH with an mpiexec)",
            (_, false) => " (needs memory cgroups)",
            _ => "",
        };
        let mpi = found.clone();
        Trial::test(format!("{name}{reason}"), move || mpi.map_or(Ok(()), |mpi| own_groups(&mpi)))
            .with_ignored_flag(!reason.is_empty())
    };
    let trials = all.map(|(name, run)| {
        let name = if found.is_some() { name.into() } else { format!("{name} (no MPICH with an mpiexec)") };
        let mpi = found.clone();
        Trial::test(name, move || mpi.map_or(Ok(()), |mpi| run(&mpi))).with_ignored_flag(found.is_none())
    });
    let alone = Trial::test("options_of_ranks_are_refused_without_others", alone);
    libtest_mimic::run(&arguments, trials.into_iter().chain([in_groups, alone]).collect()).exit();
}
