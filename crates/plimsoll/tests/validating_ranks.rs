//! Validations that several ranks divide: the files of one process, with each case computed by one rank.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use plimsoll::backend::DeviceName;
use plimsoll::{Context, Event, PlanRequest, RankResult, StopToken, TrainRequest, Trained, train_rank};
use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::pictures::phantom::{self as pictures, PhantomImages};
use plimsoll_memory::Bytes;
use plimsoll_nn::{NetworkName, NetworkSettings};
use plimsoll_ranks::{Communicator, ThreadRank, thread_ranks};
use plimsoll_run::{ImageSettings, Settings};

/// The longest wait of a rank: tests share processors with others.
const PATIENCE: Duration = Duration::from_secs(120);
/// The validated cases.
const VALIDATED: [&str; 5] = ["vessel_003", "vessel_004", "vessel_005", "vessel_006", "vessel_007"];

/// A data set, and runs on it.
struct Site {
    dir: tempfile::TempDir,
    settings: Settings,
    splits: Option<PathBuf>,
}

/// The work of a rank.
struct Seen {
    result: RankResult,
    /// The cases that it predicted.
    predicted: Vec<String>,
}

impl Site {
    /// A data set of label maps: three cases to train on, five to validate with.
    fn volumes() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let phantom = PhantomConfig {
            cases: 8,
            test_cases: 0,
            size: [16, 20],
            outlier: false,
            ..PhantomConfig::default()
        };
        phantom::write(dir.path().join("dataset"), &phantom).unwrap();
        let splits = dir.path().join("folds.json");
        let folds =
            serde_json::json!([{"train": ["vessel_000", "vessel_001", "vessel_002"], "val": VALIDATED}]);
        fs::write(&splits, folds.to_string()).unwrap();
        let settings = Settings {
            network: NetworkSettings {
                net: Some(NetworkName::DynUNet),
                features: Some(vec![4, 6]),
                ..NetworkSettings::default()
            },
            patch_size: Some([8; 3]),
            ..training()
        };
        Site { dir, settings, splits: Some(splits) }
    }

    /// Images in five classes: two of each to train on, one to validate with.
    fn images() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let images = PhantomImages { images: [2, 1, 0], side: 64, seed: 1 };
        pictures::write(&dir.path().join("dataset"), &images).unwrap();
        let network = NetworkSettings {
            net: Some(NetworkName::SEResNeXt50),
            features: Some(vec![128; 4]),
            ..NetworkSettings::default()
        };
        let images = ImageSettings { size: Some([64, 64]), ..ImageSettings::default() };
        let settings = Settings { network, images: Some(images), validation_iterations: None, ..training() };
        Site { dir, settings, splits: None }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn request(&self, name: &str, resume: bool) -> TrainRequest {
        let mut plan = PlanRequest::new(self.dir.path().join("dataset")).unwrap();
        plan.settings = self.settings.clone();
        (plan.ram, plan.threads, plan.loader_threads) = (Some(Bytes::mib(512)), 1, Some(1));
        plan.backend = DeviceName::Cpu.open(1, None).unwrap();
        TrainRequest { splits: self.splits.clone(), resume, ..TrainRequest::new(plan, self.run(name)) }
    }

    /// Trains and validates with some ranks. `stopped` is asked to stop when it has predicted its first case.
    fn train(&self, name: &str, ranks: usize, resume: bool, stopped: Option<usize>) -> Vec<Seen> {
        thread::scope(|scope| {
            let one = |mut communicator: ThreadRank| {
                scope.spawn(move || {
                    let (predicted, stop) = (Arc::new(Mutex::new(Vec::new())), StopToken::default());
                    let is_stopped = stopped == Some(communicator.rank());
                    let (seen, asked) = (Arc::clone(&predicted), stop.clone());
                    let mut context = Context::observed(move |event: &Event<'_>| {
                        if let Event::WorkLine { text, .. } = event
                            && let Some((_, rest)) = text.split_once(": vessel_")
                            && let Some((number, _)) = rest.split_once(',')
                        {
                            seen.lock().unwrap().push(format!("vessel_{number}"));
                            if is_stopped {
                                asked.ask();
                            }
                        }
                    });
                    context.stop = stop;
                    let request = self.request(name, resume);
                    let result = train_rank(&request, &mut communicator, PATIENCE, &context)
                        .and_then(|training| training.validate(&mut communicator, &context));
                    if result.is_err() {
                        communicator.abort(1);
                    }
                    let predicted = predicted.lock().unwrap().clone();
                    Seen { result: result.unwrap(), predicted }
                })
            };
            let threads: Vec<_> = thread_ranks(ranks, PATIENCE).into_iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The files of a validation. Scores name label maps with the folder of the run, which is left out.
    fn files(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let folder = self.run(name).join("fold_0/validation");
        let place = self.run(name).display().to_string();
        let file = |path: PathBuf| {
            let bytes = fs::read(&path).unwrap();
            let bytes = match String::from_utf8(bytes) {
                Ok(text) => text.replace(&place, "").into_bytes(),
                Err(binary) => binary.into_bytes(),
            };
            (file_name(&path), bytes)
        };
        fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap().path())).collect()
    }

    fn expect_same(&self, one: &str, other: &str) {
        let [one, other] = [one, other].map(|name| self.files(name));
        assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
        for (name, bytes) in &one {
            assert!(*bytes == other[name], "{name} differs");
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// A training of two steps with four shards.
fn training() -> Settings {
    Settings {
        batch_size: Some(4),
        shards: Some(4),
        micro_batch: Some(1),
        epochs: Some(1),
        iterations_per_epoch: Some(2),
        validation_iterations: Some(1),
        ema: Some(0.9),
        seed: Some(3),
        ..Settings::default()
    }
}

/// The result of the first rank, which alone has one.
fn only_result(seen: &[Seen]) -> &Trained {
    assert!(seen[1..].iter().all(|seen| seen.result.trained.is_none()));
    seen[0].result.trained.as_ref().unwrap()
}

#[test]
fn whole_cases_are_divided_among_ranks_and_have_the_files_of_one_process() {
    let site = Site::volumes();
    for ranks in [1, 2, 4] {
        let name = format!("{ranks} ranks");
        let seen = site.train(&name, ranks, false, None);
        let trained = only_result(&seen);
        assert!(trained.folds[0].validation.is_some() && seen.iter().all(|seen| !seen.result.is_stopped));
        // Each case is predicted by one rank: the first of four has two of the five.
        let counts: Vec<usize> = seen.iter().map(|seen| seen.predicted.len()).collect();
        assert_eq!(counts, (0..ranks).map(|rank| (5 - rank).div_ceil(ranks)).collect::<Vec<_>>());
        let mut all: Vec<String> = seen.into_iter().flat_map(|seen| seen.predicted).collect();
        all.sort();
        assert_eq!(all, VALIDATED);
        site.expect_same("1 ranks", &name);
    }
    let files = site.files("4 ranks");
    assert!(files.contains_key("summary.json") && files.len() >= 7, "{:?}", files.keys());
    // Whoever calls again finds all.
    let again = site.train("4 ranks", 2, true, None);
    assert!(only_result(&again).folds[0].validation.is_some());
    assert!(again.iter().all(|seen| seen.predicted.is_empty()));
}

#[test]
fn a_stop_of_one_rank_ends_the_validation_of_all_and_another_number_of_ranks_finishes_it() {
    let site = Site::volumes();
    site.train("whole", 1, false, None);
    let stopped = site.train("stopped", 2, false, Some(1));
    assert!(stopped.iter().all(|seen| seen.result.is_stopped));
    assert!(only_result(&stopped).is_stopped);
    assert!(!site.files("stopped").contains_key("summary.json"));
    let resumed = site.train("stopped", 4, true, None);
    let predicted = |seen: &[Seen]| seen.iter().map(|seen| seen.predicted.len()).sum::<usize>();
    assert_eq!(predicted(&stopped) + predicted(&resumed), VALIDATED.len(), "no case is predicted twice");
    site.expect_same("whole", "stopped");
}

#[test]
fn validation_images_are_divided_among_ranks_and_have_the_table_of_one_process() {
    let site = Site::images();
    for ranks in [1, 2, 4] {
        let name = format!("{ranks} ranks");
        let seen = site.train(&name, ranks, false, None);
        assert!(!only_result(&seen).is_stopped);
        site.expect_same("1 ranks", &name);
    }
    assert!(site.files("4 ranks").contains_key("predictions.csv"));
}
