//! Sweeps: trials of arms, planned as a whole, killed and gone on with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Ended, Tiny, expect_same, plimsoll, results};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::SweepFolder;
use plimsoll_volume::{ElementType, StoredVolume, VolumeWriter};
use serde_json::Value;

/// The settings that all arms share: a training of milliseconds.
const COMMON: &str = "
    [settings]
    patch_size = [8, 8, 8]
    epochs = 2
    iterations_per_epoch = 2
    validation_iterations = 1
    [settings.network]
    net = 'dynunet'
    features = [4, 8]
";

/// Two losses.
const LOSSES: &str = "
    [grid]
    loss = [
      { name = 'dice-ce', value = { components = [{ name = 'soft_dice' }, { name = 'cross_entropy' }] } },
      { name = 'tversky', value = { components = [{ name = 'tversky', alpha = 0.3, beta = 0.7 }] } },
    ]
";

/// Numbers of the second arm go wrong after its first step.
const DIVERGING: &str = "
    [[arm]]
    name = 'sound'
    [[arm]]
    name = 'diverging'
    settings.learning_rate = 1e10
";

struct Sweeps {
    tiny: Tiny,
}

impl Sweeps {
    fn new() -> Sweeps {
        Sweeps { tiny: Tiny::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tiny.path(name)
    }

    /// A sweep of some arms with these seeds on these folds.
    fn file(&self, name: &str, repeats: &str, arms: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("dataset = 'dataset'\n{repeats}\n{COMMON}\n{arms}")).unwrap();
        path
    }

    /// Two arms, two seeds and two folds.
    fn usual(&self) -> PathBuf {
        self.file("usual.toml", "folds = [0, 1]\nseeds = [0, 1]", LOSSES)
    }

    fn command(&self, file: &Path, out: &Path, more: &[&str]) -> Command {
        let mut command = plimsoll();
        command.arg("sweep").arg(file).arg("--out").arg(out).args(more);
        let usual = [("--ram", "512MiB"), ("--threads", "1")];
        for (flag, value) in usual.into_iter().filter(|(flag, _)| !more.contains(flag)) {
            command.args([flag, value]);
        }
        command
    }

    fn done(&self, file: &Path, out: &Path, more: &[&str]) -> Ended {
        let ended = Ended::run(&mut self.command(file, out, more));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended
    }
}

/// The number of training starts in a sweep, and its finished trials.
fn starts(sweep: &Path) -> (usize, Vec<String>) {
    let folder = SweepFolder::new(sweep);
    let (mut starts, mut finished) = (0, Vec::new());
    for trial in folder.read().unwrap().each() {
        let events = folder.trial(&trial.arm, trial.seed, trial.fold).events();
        let events = fs::read_to_string(events).unwrap_or_default();
        starts += events.matches("\"event\":\"start\"").count();
        if events.contains("\"why\":\"finished\"") {
            finished.push(trial.to_string());
        }
    }
    (starts, finished)
}

#[test]
fn data_that_change_between_trials_are_noticed_at_the_start_of_the_next() {
    let sweeps = Sweeps::new();
    let (file, out) = (
        sweeps.file("many.toml", "folds = [0]\nseeds = [0, 1, 2, 3, 4, 5]", "[[arm]]\nname = 'only'"),
        sweeps.path("changing"),
    );
    let mut command = sweeps.command(&file, &out, &["--skip-validation"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !out.join("only/seed_0/fold_0/checkpoint_final.safetensors").is_file() {
        assert!(start.elapsed() < Duration::from_secs(300), "no trial ends");
        thread::sleep(Duration::from_millis(1));
    }
    let image = fs::read_dir(sweeps.tiny.data.join("imagesTr")).unwrap().next().unwrap().unwrap().path();
    let contents = fs::read(&image).unwrap();
    // The same bytes at another time: nobody can know that without reading all of them again.
    fs::write(&image, contents).unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let (_, finished) = starts(&out);
    assert!(!finished.is_empty() && finished.len() < 6, "{finished:?}");
    let folder = SweepFolder::new(&out);
    let failed: Vec<String> = folder
        .read()
        .unwrap()
        .each()
        .filter_map(|trial| folder.read_failure(&trial).unwrap())
        .map(|failure| failure.error)
        .collect();
    assert_eq!(failed.len() + finished.len(), 6, "{failed:?}");
    let name = image.file_name().unwrap().to_str().unwrap();
    assert!(
        failed
            .iter()
            .all(|error| error.contains(name) && error.contains("has changed since the sweep opened")),
        "{failed:?}"
    );
    // The contents are the same, as the next process finds when it inspects them.
    sweeps.done(&file, &out, &["--skip-validation", "--resume"]);
    assert_eq!(starts(&out).1.len(), 6);
}

/// Waits until something is there, or the process has ended.
fn kill_when(mut command: Command, is_there: impl Fn() -> bool) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if is_there() {
            // SIGKILL.
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "nothing happens");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    false
}

#[test]
fn a_sweep_that_is_killed_or_trains_side_by_side_comes_to_the_same_files() {
    let sweeps = Sweeps::new();
    let (file, whole, killed, at_once) =
        (sweeps.usual(), sweeps.path("whole"), sweeps.path("killed"), sweeps.path("at_once"));
    sweeps.done(&file, &whole, &[]);
    let (begun, finished) = starts(&whole);
    assert_eq!((begun, finished.len()), (8, 8), "each trial is trained once");
    assert!(whole.join("tversky/seed_1/cv.json").is_file());

    // While it is planned, while the first checkpoint is there, between trials, while one is validated.
    let there = |name: &str| {
        let path = killed.join(name);
        move || path.exists()
    };
    let instants = [
        there("dice-ce/resolved.json"),
        there("dice-ce/seed_0/fold_0/specification.json"),
        there("tversky/seed_0/fold_0/checkpoint_latest.safetensors"),
        there("dice-ce/seed_0/fold_1/validation"),
        there("tversky/seed_1/fold_0/checkpoint_final.safetensors"),
    ];
    for instant in instants {
        let resume: &[&str] = if SweepFolder::new(&killed).is_begun() { &["--resume"] } else { &[] };
        kill_when(sweeps.command(&file, &killed, resume), instant);
    }
    let before = starts(&killed).1;
    sweeps.done(&file, &killed, &["--resume"]);
    expect_same(&killed, &whole, "after five kills");
    assert!(!before.is_empty());

    // What is done is not done again.
    let count = starts(&killed).0;
    sweeps.done(&file, &killed, &["--resume"]);
    assert_eq!(starts(&killed).0, count);

    sweeps.done(&file, &at_once, &["--parallel", "2", "--threads", "2"]);
    expect_same(&at_once, &whole, "when two trials train at once");
}

#[test]
fn a_trial_that_fails_is_named_and_written_down_and_the_others_go_on() {
    let sweeps = Sweeps::new();
    let file = sweeps.file("diverging.toml", "folds = [0]\nseeds = [3]", DIVERGING);
    for (name, more) in
        [("one by one", &[][..]), ("side by side", &["--parallel", "2", "--threads", "2"][..])]
    {
        let out = sweeps.path(name);
        let ended = Ended::run(&mut sweeps.command(&file, &out, &[&["--json"], more].concat()));
        let error = ended.error(1);
        assert!(error.contains("1 of 2 trials failed: diverging/seed_3/fold_0: step "), "{error}");
        let printed: Value = serde_json::from_str(&ended.printed).unwrap();
        let states: Vec<&str> = printed["trials"]
            .as_array()
            .unwrap()
            .iter()
            .map(|trial| trial["state"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["finished", "failed"]);
        let failure = fs::read_to_string(out.join("diverging/seed_3/fold_0_failed.json")).unwrap();
        assert!(failure.contains("the loss is "), "{failure}");
        let status = plimsoll().arg("status").arg(&out).output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.contains("diverging/seed_3/fold_0: failed at "), "{status}");
    }
}

#[test]
fn trials_can_be_chosen_and_a_sweep_can_grow_but_not_change() {
    let sweeps = Sweeps::new();
    let (file, out) = (sweeps.usual(), sweeps.path("sweep"));
    sweeps.done(&file, &out, &["--only", "tversky/0/1,dice-ce/1", "--skip-validation"]);
    let expected = ["dice-ce/seed_1/fold_0", "dice-ce/seed_1/fold_1", "tversky/seed_0/fold_1"];
    let mut finished = starts(&out).1;
    finished.sort();
    assert_eq!(finished, expected);
    let error = Ended::run(&mut sweeps.command(&file, &out, &["--resume", "--only", "tversky/2"])).error(1);
    assert!(error.contains("--only tversky/seed_2: there is no such trial"), "{error}");
    let error = Ended::run(&mut sweeps.command(&file, &out, &[])).error(1);
    assert!(error.contains("already holds a run"), "{error}");

    let fewer = sweeps.file("fewer.toml", "folds = [0, 1]\nseeds = [0]", LOSSES);
    let error = Ended::run(&mut sweeps.command(&fewer, &out, &["--resume"])).error(1);
    assert!(error.contains("is another sweep: it has seed 1"), "{error}");
    let text = fs::read_to_string(&file).unwrap().replace("epochs = 2", "epochs = 3");
    let longer = sweeps.path("longer.toml");
    fs::write(&longer, text).unwrap();
    let error = Ended::run(&mut sweeps.command(&longer, &out, &["--resume"])).error(1);
    assert!(error.contains("arm `dice-ce`") && error.contains("epochs was 2, now 3"), "{error}");

    let kept = fs::read_to_string(out.join("splits_final.json")).unwrap();
    let mut folds: Vec<Value> = serde_json::from_str(&kept).unwrap();
    folds.reverse();
    fs::write(sweeps.path("other.json"), serde_json::to_string(&folds).unwrap()).unwrap();
    let other = "splits = 'other.json'\nfolds = [0, 1]\nseeds = [0, 1]";
    let other = sweeps.file("other.toml", other, LOSSES);
    let error = Ended::run(&mut sweeps.command(&other, &out, &["--resume"])).error(1);
    assert!(error.contains("other.json has other folds than "), "{error}");

    let more = sweeps.file("more.toml", "folds = [0, 1]\nseeds = [0, 1, 2]", LOSSES);
    sweeps.done(&more, &out, &["--resume", "--only", "tversky/2/0", "--skip-validation"]);
    assert_eq!(starts(&out).0, 4);
    // What is kept in its folder asks for the same.
    sweeps.done(&out.join("sweep.toml"), &out, &["--resume", "--only", "tversky/2", "--skip-validation"]);
    assert_eq!(starts(&out).0, 5);
}

#[test]
fn before_anything_begins_all_arms_are_checked_and_planned() {
    let sweeps = Sweeps::new();
    let out = sweeps.path("sweep");
    let wide = "[grid]\n'network.features' = [[4, 8], { name = 'wide', value = [64, 320] }]";
    let file = sweeps.file("wide.toml", "folds = [0, 1]", wide);
    let ended = Ended::run(&mut sweeps.command(&file, &out, &["--plan", "--json"]));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let plan: Value = serde_json::from_str(&ended.printed).unwrap();
    assert_eq!((plan["trials"].as_u64(), plan["arms"][1]["name"].as_str()), (Some(4), Some("wide")));
    let needed = plan["arms"][1]["minimum_ram_bytes"].as_u64().unwrap();
    let least = plan["arms"][0]["minimum_ram_bytes"].as_u64().unwrap();
    assert!(plan["predicted_seconds"].as_f64().unwrap() > 0.0 && least < needed, "{plan}");

    let limit = ((least + needed) / 2).to_string();
    let error = Ended::run(&mut sweeps.command(&file, &out, &["--ram", &limit])).error(1);
    assert!(error.contains("arm `wide` does not fit: the run needs "), "{error}");
    let bad = sweeps.file("bad.toml", "folds = [0]", "[grid]\nlerning_rate = [0.1]");
    let error = Ended::run(&mut sweeps.command(&bad, &out, &[])).error(1);
    assert!(error.contains("bad.toml: arm `lerning_rate-0.1`: unknown field `lerning_rate`"), "{error}");
    let folds = sweeps.file("folds.toml", "folds = [7]", LOSSES);
    let error = Ended::run(&mut sweeps.command(&folds, &out, &[])).error(1);
    assert!(error.contains('7'), "{error}");
    assert!(!out.exists(), "nothing is written");
}

#[test]
fn tasks_of_batch_systems_train_one_trial_each_and_are_begun_again_when_told_to_end() {
    let sweeps = Sweeps::new();
    let (file, out, whole) = (sweeps.usual(), sweeps.path("a sweep"), sweeps.path("whole"));
    let (batch, manifest) = (sweeps.path("sweep.sbatch"), sweeps.path("sweep.yaml"));
    let (batch_name, manifest_name) = (batch.to_str().unwrap(), manifest.to_str().unwrap());
    sweeps.done(&file, &out, &["--slurm", batch_name, "--kubernetes", manifest_name]);
    let text = fs::read_to_string(&batch).unwrap();
    for said in ["#SBATCH --array=0-7\n", "#SBATCH --signal=B:USR1@120\n", "#SBATCH --requeue\n"] {
        assert!(text.contains(said), "{text}");
    }
    let manifest = fs::read_to_string(&manifest).unwrap();
    for said in ["completionMode: Indexed\n", "completions: 8\n", "values: [75]\n", "action: Ignore\n"] {
        assert!(manifest.contains(said), "{manifest}");
    }
    assert!(Command::new("bash").arg("-n").arg(&batch).status().unwrap().success());
    // Slurm's part is played by a `scontrol` that writes down what it is told.
    let tools = sweeps.path("tools");
    fs::create_dir(&tools).unwrap();
    let (scontrol, requeued) = (tools.join("scontrol"), sweeps.path("requeued"));
    fs::write(&scontrol, format!("#!/bin/sh\necho \"$@\" >> {}\n", requeued.display())).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&scontrol).status().unwrap().success());
    let task = |index: usize| {
        let mut command = Command::new("bash");
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        command.arg(&batch).env("PATH", path).env("SLURM_ARRAY_JOB_ID", "9");
        command.env("SLURM_ARRAY_TASK_ID", index.to_string());
        command.env("XDG_CACHE_HOME", std::env::temp_dir().join("plimsoll-test-cache"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // Several processes on one sweep, two of them on one trial.
    let mut running: Vec<_> = (0..8).map(|index| task(index).spawn().unwrap()).collect();
    let twice = task(3).status().unwrap();
    for child in &mut running {
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 1)));
    }
    assert!(matches!(twice.code(), Some(0 | 1)), "{twice}");
    for index in 0..8 {
        assert_eq!(task(index).status().unwrap().code(), Some(0), "task {index}");
    }
    sweeps.done(&file, &whole, &[]);
    expect_same(&out, &whole, "when each trial is a task");
    assert!(!requeued.exists());
}

#[test]
fn tasks_on_gpus_are_planned_for_a_kind_of_card_and_no_card_of_the_machine_that_writes_them_is_opened() {
    let sweeps = Sweeps::new();
    let (file, out, batch) = (sweeps.usual(), sweeps.path("sweep"), sweeps.path("sweep.sbatch"));
    let to_batch = ["--slurm", batch.to_str().unwrap()];
    // Where there is no driver, opening a card would be another error.
    let on_card = [&to_batch[..], &["--device", "cuda:0"]].concat();
    let error = Ended::run(&mut sweeps.command(&file, &out, &on_card)).error(1);
    assert!(error.contains("--device cuda:0 is a GPU of this machine"), "{error}");
    assert!(error.contains("--device sm_80 --vram 12GiB"), "{error}");
    assert!(!out.exists() && !batch.exists(), "nothing is written");
    sweeps.done(&file, &out, &[&to_batch[..], &["--device", "sm_80", "--vram", "1GiB"]].concat());
    let text = fs::read_to_string(&batch).unwrap();
    for said in ["#SBATCH --gres=gpu:1\n", " --device cuda:0 --vram 1073741824 "] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_signal_ends_a_sweep_in_order_and_a_task_puts_itself_back_into_the_queue() {
    let sweeps = Sweeps::new();
    let long = COMMON.replace("epochs = 2", "epochs = 100000");
    let file = sweeps.path("long.toml");
    fs::write(&file, format!("dataset = 'dataset'\nfolds = [0]\n{long}\n{LOSSES}")).unwrap();
    let (out, batch) = (sweeps.path("sweep"), sweeps.path("sweep.sbatch"));
    sweeps.done(&file, &out, &["--slurm", batch.to_str().unwrap()]);
    let requeued = sweeps.path("requeued");
    // A function stands for Slurm's program.
    let script = format!(
        "scontrol() {{ echo \"$@\" > {}; }}\n{}",
        requeued.display(),
        fs::read_to_string(&batch).unwrap()
    );
    let mut task = Command::new("bash");
    task.arg("-c").arg(script).env("SLURM_ARRAY_JOB_ID", "9").env("SLURM_ARRAY_TASK_ID", "1");
    task.env("XDG_CACHE_HOME", std::env::temp_dir().join("plimsoll-test-cache"));
    let mut task = task.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let latest = out.join("tversky/seed_0/fold_0/checkpoint_latest.safetensors");
    let start = Instant::now();
    while !latest.exists() {
        assert!(task.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-USR1", &task.id().to_string()]).status().unwrap().success());
    let ended = Ended::from(task.wait_with_output().unwrap());
    let error = ended.error(75);
    assert!(error.contains("SIGUSR1: stopped with 1 of 1 trials left"), "{error}");
    assert_eq!(fs::read_to_string(requeued).unwrap().trim(), "requeue 9_1");
    assert!(results(&out).keys().any(|path| path.ends_with("checkpoint_latest.safetensors")));
}

#[test]
fn a_sweep_on_a_data_set_that_has_changed_is_refused_by_name() {
    let sweeps = Sweeps::new();
    let (file, out) =
        (sweeps.file("few.toml", "folds = [0, 1]", "[[arm]]\nname = 'only'"), sweeps.path("sweep"));
    sweeps.done(&file, &out, &["--skip-validation"]);
    let more = sweeps.file("more.toml", "folds = [0, 1]\nseeds = [0, 1]", "[[arm]]\nname = 'only'");
    let data = &sweeps.tiny.data;
    let error = || Ended::run(&mut sweeps.command(&more, &out, &["--resume", "--skip-validation"])).error(1);
    let copy = |from: &str, to: &str| {
        for (folder, ending) in [("imagesTr", "_0000"), ("labelsTr", "")] {
            let path = |case: &str| data.join(folder).join(format!("{case}{ending}.nii.gz"));
            fs::copy(path(from), path(to)).unwrap();
        }
    };
    // A case more.
    copy("vessel_000", "vessel_003");
    let said = error();
    assert!(said.contains("vessel_003") && said.contains("hint: start another sweep with --out"), "{said}");
    for path in ["imagesTr/vessel_003_0000.nii.gz", "labelsTr/vessel_003.nii.gz"] {
        fs::remove_file(data.join(path)).unwrap();
    }
    // Another label map.
    let label = data.join("labelsTr/vessel_001.nii.gz");
    let before = fs::read(&label).unwrap();
    let volume = StoredVolume::read(&label, &Budget::new(Bytes::mib(8)), "test").unwrap();
    let mut labels = volume.bytes().to_vec();
    *labels.last_mut().unwrap() ^= 1;
    let mut writer = VolumeWriter::create(&label, volume.geometry(), 1, ElementType::U8, None).unwrap();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
    let said = error();
    assert!(
        said.contains("was started with other data; changed since: vessel_001\nhint: restore the data"),
        "{said}"
    );
    // As it was, the sweep is added to.
    fs::write(&label, before).unwrap();
    sweeps.done(&more, &out, &["--resume", "--skip-validation"]);
}
