//! Runs of one, two and four ranks: the same bytes of checkpoints and metrics, whatever their number.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::{Dataset, Fold, InspectConfig, Inspection};
use plimsoll_graph::Role;
use plimsoll_memory::{Budget, Bytes};
#[cfg(unix)]
use plimsoll_nccl_stub::{HostLanes, Stub};
use plimsoll_nn::{Network, NetworkName, NetworkSettings, Objective, Optimizer, RankPlace, UNetNorm};
use plimsoll_plan::Plans;
use plimsoll_ranks::{
    Communicator, Messages, NodePlace, RanksError, Segment, Tag, ThreadRank, Traffic, Transfer, thread_ranks,
};
#[cfg(unix)]
use plimsoll_ranks::{LaneSizes, NcclOptions, open_nccl};
use plimsoll_run::{
    BadNumbers, EpochCost, EpochRecord, FoldName, FoldRequest, InitialWeights, Machine, Precision, Resolved,
    RunConfig, RunFolder, RunRecord, Sample, Settings, Specification, StopReason,
};
use plimsoll_train::{
    Job, Observer, PlannedRun, Planning, RankedRun, RunData, StepExchange, StepReport, TrainError,
    plan_run_allowing, train_rank,
};

/// The memory limit of each rank.
const RAM: Bytes = Bytes::mib(512);
/// The longest wait of a rank: tests share processors with others.
const PATIENCE: Duration = Duration::from_secs(120);

/// A data set, and a run of six steps with four shards.
struct Site {
    dir: tempfile::TempDir,
    data: RunData,
    config: RunConfig,
    settings: Settings,
    fold: Fold,
}

/// The threads of an interrupted run.
struct Part {
    name: &'static str,
    ranks: usize,
    resume: bool,
    stop_after: Option<u64>,
}

impl Part {
    fn whole(name: &'static str, ranks: usize) -> Part {
        Part { name, ranks, resume: false, stop_after: None }
    }
}

impl Site {
    fn new(change: impl FnOnce(&mut Settings)) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("dataset");
        let phantom = PhantomConfig {
            cases: 4,
            test_cases: 0,
            size: [16, 20],
            outlier: false,
            ..PhantomConfig::default()
        };
        phantom::write(&folder, &phantom).unwrap();
        let dataset = Dataset::open(&folder).unwrap();
        let budget = Budget::new(RAM);
        let inspection =
            Inspection::run(&dataset, InspectConfig { threads: 1, seed: 0 }, &budget, &|_, _| ()).unwrap();
        let mut settings = Settings {
            network: NetworkSettings {
                net: Some(NetworkName::DynUNet),
                features: Some(vec![4, 6]),
                dropout: Some(0.1),
                ..NetworkSettings::default()
            },
            patch_size: Some([8; 3]),
            batch_size: Some(8),
            shards: Some(4),
            micro_batch: Some(1),
            epochs: Some(2),
            iterations_per_epoch: Some(3),
            validation_iterations: Some(1),
            optimizer: Some(Optimizer::adamw()),
            learning_rate: Some(1e-2),
            seed: Some(3),
            ..Settings::default()
        };
        change(&mut settings);
        let config =
            RunConfig::resolve(&settings, &dataset, inspection.fingerprint.as_ref().unwrap()).unwrap();
        let ids: Vec<String> = dataset.cases.iter().map(|case| case.id.clone()).collect();
        let fold = Fold { train: ids[..3].to_vec(), val: ids[3..].to_vec() };
        let data = RunData::Volumes { dataset, inspection: Arc::new(inspection) };
        Site { dir, data, config, settings, fold }
    }

    fn plan(&self, place: RankPlace) -> PlannedRun {
        let machine = Machine { limit: RAM, threads: 1, loader_threads: 1 };
        let facts = self.data.facts(&self.config, &self.fold).unwrap();
        let plans = Plans::default();
        let planning = Planning { place, ..Planning::unobserved(&plans, None) };
        let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
        let planned = plan_run_allowing(&[], &self.config, true, machine, &backend, facts, planning).unwrap();
        planned.numbers.check().unwrap();
        planned
    }

    fn job(&self, part: &Part, place: RankPlace) -> Job {
        let planned = self.plan(place);
        let contents = self.data.contents();
        let specification = Specification::new(
            Resolved { settings: self.settings.clone(), config: planned.config.clone() },
            FoldName::Number(0),
            self.fold.clone(),
            &|case| contents.get(case).copied(),
            InitialWeights::Seed,
            &planned.programs.specified(),
            planned.backend.arithmetic(),
        );
        let request = FoldRequest {
            specification: specification.unwrap(),
            names_cases: false,
            names_weights: false,
            accepts_changed_data: false,
        };
        Job {
            planned,
            data: self.data.clone(),
            request,
            folder: RunFolder::new(self.run(part.name)).fold(FoldName::Number(0)),
            resume: part.resume,
            splits: None,
            log_steps: false,
            siblings: None,
            cache: None,
            warm: false,
            notes: Vec::new(),
        }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Trains with some ranks, to the end or until the last of them has seen some steps. Returns the results by rank.
    fn try_train(
        &self,
        part: &Part,
        change: impl Fn(usize, &mut Job) + Sync,
    ) -> Vec<Result<(RunRecord, Traffic), TrainError>> {
        self.try_train_by(part, change, &|rank| Box::new(rank))
    }

    /// The same with other communicators, which are made of ranks.
    fn try_train_by(
        &self,
        part: &Part,
        change: impl Fn(usize, &mut Job) + Sync,
        connect: &(dyn Fn(ThreadRank) -> Box<dyn Communicator + Send> + Sync),
    ) -> Vec<Result<(RunRecord, Traffic), TrainError>> {
        thread::scope(|scope| {
            let change = &change;
            let one = |rank: ThreadRank| {
                let mut communicator = Counting { rank: connect(rank), seen: Traffic::default() };
                let (rank, ranks) = (communicator.rank(), communicator.size());
                let mut job = self.job(part, RankPlace { rank, ranks });
                change(rank, &mut job);
                let stop = Arc::new(AtomicBool::new(false));
                // Another rank than that which writes, where there is one.
                let stop_after = part.stop_after.filter(|_| rank + 1 == ranks);
                let mut seen = Stopper { stop: Arc::clone(&stop), stop_after };
                let budget = Budget::new(RAM);
                let ranked = RankedRun { communicator: &mut communicator, patience: None };
                let result = train_rank(job, ranked, &budget, &stop, &mut seen);
                if result.is_err() {
                    communicator.abort(1);
                }
                assert!(budget.used() == Bytes::ZERO, "memory stays reserved");
                Ok((result?, communicator.seen))
            };
            let threads: Vec<_> = thread_ranks(part.ranks, PATIENCE)
                .into_iter()
                .map(|communicator| scope.spawn(move || one(communicator)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn train(&self, part: &Part) -> Vec<RunRecord> {
        self.try_train(part, |_, _| ()).into_iter().map(|result| result.unwrap().0).collect()
    }

    /// Trains, and returns the messages of each rank.
    fn count(&self, part: &Part) -> Vec<Traffic> {
        self.try_train(part, |_, _| ()).into_iter().map(|result| result.unwrap().1).collect()
    }

    fn file(&self, run: &str, name: &str) -> Vec<u8> {
        fs::read(self.run(run).join("fold_0").join(name)).unwrap()
    }

    /// Checks that two runs wrote the same bytes.
    fn expect_same(&self, one: &str, other: &str) {
        for name in ["checkpoint_final.safetensors", "checkpoint_best.safetensors", "metrics.jsonl"] {
            assert!(self.file(one, name) == self.file(other, name), "{name} of {one} and {other} differ");
        }
    }

    /// Trains with one, two and four ranks, and checks that all write the same bytes.
    fn expect_same_for_all(&self) -> Vec<RunRecord> {
        self.train(&Part::whole("1 rank", 1));
        self.train(&Part::whole("2 ranks", 2));
        let records = self.train(&Part::whole("4 ranks", 4));
        self.expect_same("1 rank", "2 ranks");
        self.expect_same("1 rank", "4 ranks");
        records
    }
}

/// Checks that each rank held as much memory as was planned.
#[track_caller]
fn expect_held_as_planned(records: &[RunRecord]) {
    for record in records {
        let held = |name: &str| record.held.iter().find(|held| held.holder == name).map(|held| held.peak);
        let planned =
            |name: &str| record.planned.iter().find(|part| part.name == name).map(|part| part.bytes);
        assert!(held("shards").is_some());
        for name in ["shards", "arena", "checkpoint", "loader"] {
            assert_eq!(held(name), planned(name), "{name}");
        }
    }
}

/// A rank whose messages are counted, except messages of checkpoints, whose number depends on scores.
struct Counting {
    rank: Box<dyn Communicator + Send>,
    seen: Traffic,
}

/// The tag of tensors that the first rank stores.
const STORED: Tag = Tag::from_u8(3);

impl Communicator for Counting {
    fn rank(&self) -> usize {
        self.rank.rank()
    }

    fn size(&self) -> usize {
        self.rank.size()
    }

    fn node(&self) -> NodePlace {
        self.rank.node()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.rank.set_patience(patience);
    }

    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        if tag != STORED {
            self.seen.sent = self.seen.sent + Messages::new(1, segment.len());
        }
        self.rank.send(to, tag, segment)
    }

    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        if tag != STORED {
            self.seen.received = self.seen.received + Messages::new(1, segment.len());
        }
        self.rank.receive(from, tag, segment)
    }

    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        self.rank.is_done(transfer)
    }

    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.rank.wait(transfer)
    }

    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        self.rank.wait_any(transfers)
    }

    fn abort(&mut self, status: i32) {
        self.rank.abort(status);
    }
}

/// Stops a run after some steps.
struct Stopper {
    stop: Arc<AtomicBool>,
    stop_after: Option<u64>,
}

impl Observer for Stopper {
    fn begin(&mut self, _: &Specification, _: u64, _: &str) {}

    fn loaded(&mut self, _: &str) {}

    fn step(&mut self, report: &StepReport) {
        self.stop.store(self.stop_after == Some(report.steps), Ordering::Relaxed);
    }

    fn validating(&mut self, _: u64, _: u64) {}

    fn epoch(&mut self, _: &EpochRecord, _: &EpochCost) {}

    fn sample(&mut self, _: &Sample) {}

    fn saving(&mut self) {}

    fn warning(&mut self, _: &str) {}
}

/// Trains with ranks whose segments of at least some bytes go through NCCL.
#[cfg(unix)]
fn train_by_nccl(site: &Site, part: &Part, least: usize) {
    let (stub, held) = (Stub::new(), Arc::default());
    let options = NcclOptions { patience: PATIENCE, least };
    let connect = |rank: ThreadRank| {
        let lanes = HostLanes::new(LaneSizes::new(rank.size()), &held);
        let opened = open_nccl(Box::new(rank), stub.load().unwrap(), Box::new(lanes), options);
        opened.map_err(|failure| failure.error).unwrap()
    };
    for result in site.try_train_by(part, |_, _| (), &connect) {
        result.unwrap();
    }
    assert_eq!(held.load(Ordering::SeqCst), 0, "buffers on cards");
}

#[cfg(unix)]
#[test]
fn ranks_that_send_through_nccl_write_the_same_bytes() {
    let site = Site::new(|settings| settings.ema = Some(0.9));
    site.train(&Part::whole("threads", 4));
    train_by_nccl(&site, &Part::whole("NCCL", 4), 0);
    site.expect_same("threads", "NCCL");
    // Long segments alone, by another number of ranks.
    train_by_nccl(&site, &Part::whole("NCCL, 2 ranks", 2), 1000);
    site.expect_same("threads", "NCCL, 2 ranks");
}

#[test]
fn any_number_of_ranks_writes_the_same_bytes_after_any_stop() {
    // Two micro-batches in each shard, clipped gradients, averages of parameters, dropout.
    let site = Site::new(|settings| {
        settings.max_grad_norm = Some(0.5);
        settings.ema = Some(0.9);
    });
    let records = site.expect_same_for_all();
    // Each rank holds what is planned of it, and a part of the moments.
    expect_held_as_planned(&records);
    // Stopped by another rank than the first, and continued with other numbers of ranks.
    let part = |ranks, resume, stop_after| Part { name: "stopped", ranks, resume, stop_after };
    let stopped = site.train(&part(4, false, Some(2)));
    assert!(stopped.iter().all(|record| (record.ended, record.steps) == (StopReason::Signal, 2)));
    site.train(&part(2, true, Some(4)));
    let resumed = site.train(&part(1, true, None));
    assert_eq!((resumed[0].ended, resumed[0].steps), (StopReason::Finished, 6));
    site.expect_same("1 rank", "stopped");
}

#[test]
fn shards_of_one_micro_batch_are_added_as_those_of_several() {
    let site = Site::new(|settings| {
        settings.optimizer = Some(Optimizer::nnunet());
        settings.max_grad_norm = Some(f32::INFINITY);
        settings.micro_batch = None;
    });
    assert_eq!(site.config.training.micro_batch, 2);
    site.expect_same_for_all();
}

/// Dice over the batch, as in nnU-Net, with another loss of samples between.
fn over_the_batch() -> Objective {
    let components = r#"[{"name": "tversky", "weight": 0.5}, {"name": "soft_dice", "batch": true}, {"name": "cross_entropy"}]"#;
    serde_json::from_str(&format!("{{\"components\": {components}}}")).unwrap()
}

#[test]
fn a_loss_over_the_batch_is_the_same_for_any_number_of_shards_and_ranks() {
    let losses = |site: &Site, run: &str| -> Vec<f64> {
        let metrics = String::from_utf8(site.file(run, "metrics.jsonl")).unwrap();
        let record: serde_json::Value = serde_json::from_str(metrics.lines().next().unwrap()).unwrap();
        let parts = record["train_loss_parts"].as_array().unwrap().iter().map(|part| &part["value"]);
        [&record["train_loss"]].into_iter().chain(parts).map(|value| value.as_f64().unwrap()).collect()
    };
    let with = |shards, micro_batch| {
        Site::new(|settings| {
            settings.loss = Some(over_the_batch());
            settings.max_grad_norm = Some(0.5);
            settings.shards = Some(shards);
            settings.micro_batch = Some(micro_batch);
        })
    };
    let whole = with(1, 8);
    whole.train(&Part::whole("whole", 1));
    let expected = losses(&whole, "whole");
    assert_eq!(expected.len(), 4);
    // A shard of one micro-batch, and of two.
    for micro_batch in [2, 1] {
        let site = with(4, micro_batch);
        expect_held_as_planned(&site.expect_same_for_all());
        for (found, expected) in losses(&site, "4 ranks").into_iter().zip(&expected) {
            assert!((found / expected - 1.0).abs() < 1e-4, "{found}, {expected}");
        }
    }
}

#[test]
fn the_default_dice_of_slices_is_over_the_batch_for_any_number_of_shards() {
    let with = |shards| {
        Site::new(|settings| {
            settings.patch_size = Some([1, 16, 16]);
            settings.shards = Some(shards);
            settings.micro_batch = None;
        })
    };
    let site = with(4);
    assert!(site.config.training.loss.needs_batch_sums());
    assert_eq!(site.config.training.loss, with(1).config.training.loss);
    site.expect_same_for_all();
}

#[test]
fn running_statistics_follow_the_first_shard_for_any_number_of_ranks() {
    let mut site = Site::new(|settings| settings.micro_batch = Some(2));
    let Network::DynUNet(net) = &mut site.config.training.net else { panic!("another network") };
    net.shape.norm = UNetNorm::Batch { conv_bias: false };
    site.expect_same_for_all();
}

#[test]
fn normalisation_over_a_shard_and_a_loss_over_the_batch_have_the_same_bits_for_any_number_of_ranks() {
    let mut site = Site::new(|settings| {
        settings.micro_batch = Some(2);
        settings.loss = Some(over_the_batch());
        settings.precision = Some(Precision::Bf16);
    });
    let Network::DynUNet(net) = &mut site.config.training.net else { panic!("another network") };
    net.shape.norm = UNetNorm::Batch { conv_bias: false };
    site.expect_same_for_all();
}

#[test]
fn features_in_bf16_have_the_same_bits_for_any_number_of_ranks() {
    let site = Site::new(|settings| settings.precision = Some(Precision::Bf16));
    site.expect_same_for_all();
}

#[test]
fn all_ranks_skip_the_same_bad_steps() {
    // Parameters are so large after the first step that no loss is a number.
    let mut site = Site::new(|settings| {
        settings.learning_rate = Some(1e30);
        settings.bad_numbers = Some(BadNumbers::Skip { limit: 10 });
        settings.micro_batch = Some(2);
    });
    let Network::DynUNet(net) = &mut site.config.training.net else { panic!("another network") };
    net.shape.norm = UNetNorm::Batch { conv_bias: false };
    for (name, ranks) in [("1 rank", 1), ("4 ranks", 4)] {
        let records = site.train(&Part::whole(name, ranks));
        assert!(records.iter().all(|record| record.skipped_steps > 0), "no step was bad");
    }
    let final_name = "checkpoint_final.safetensors";
    assert!(site.file("1 rank", final_name) == site.file("4 ranks", final_name));
}

#[test]
fn ranks_that_would_train_something_else_are_refused_on_all() {
    let site = Site::new(|_| ());
    let part = Part::whole("differing", 2);
    let results = site.try_train(&part, |rank, job| {
        if rank == 1 {
            job.request.specification.config.seed += 1;
        }
    });
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        let other = matches!(error, TrainError::OtherRank { what: "specification of the run", .. });
        assert!(other || matches!(error, TrainError::Ranks(_)), "rank {rank}: {error}");
    }
    assert!(!site.run("differing").join("fold_0/specification.json").exists(), "a run has begun");
}

#[test]
fn moments_and_averages_are_divided_among_ranks() {
    let site = Site::new(|settings| settings.ema = Some(0.9));
    // The elements of a kind of state in all programs of a rank.
    let elements = |place: RankPlace, kind: &str| {
        let planned = site.plan(place);
        let states = planned.programs.all().iter().flat_map(|program| {
            let states = program
                .with_role(Role::State)
                .map(|id| (&program.tensor(id).name, program.shape(id).count()));
            states.filter(|(name, _)| name.contains(kind))
        });
        states.collect::<BTreeMap<_, _>>().into_values().sum::<usize>()
    };
    for kind in ["/exp_avg", "/ema"] {
        let whole = elements(RankPlace::ALONE, kind);
        let parts: Vec<usize> = (0..4).map(|rank| elements(RankPlace { rank, ranks: 4 }, kind)).collect();
        assert!(whole > 0 && parts.iter().all(|part| *part > 0));
        assert_eq!(parts.iter().sum::<usize>(), whole, "{kind}");
    }
    // The specification does not depend on the rank.
    let specified = |place: RankPlace| site.plan(place).programs.specified();
    assert!(specified(RankPlace { rank: 1, ranks: 4 }) == specified(RankPlace::ALONE));
    let arena = |ranks| site.plan(RankPlace { rank: 0, ranks }).plan.arena_bytes;
    assert!(arena(4) < arena(1), "{} and {}", arena(4), arena(1));
}

/// Compares the messages of steps with those that are predicted.
fn expect_predicted_messages(ranks: usize, change: impl Fn(&mut Settings)) {
    // Two runs that differ in their steps alone: 2 × 3 and 2 × 5.
    let counts = [3, 5].map(|steps| {
        let site = Site::new(|settings| {
            settings.iterations_per_epoch = Some(steps);
            change(settings);
        });
        (site.count(&Part::whole("counted", ranks)), site)
    });
    let [(fewer, site), (more, _)] = counts;
    let programs = site.plan(RankPlace { rank: 0, ranks }).programs;
    let exchange = StepExchange::new(&site.config.training, &programs[programs.fullest()], ranks);
    for (rank, step) in exchange.traffic().into_iter().enumerate() {
        assert_eq!(fewer[rank] + step * 4, more[rank], "rank {rank} of {ranks}");
    }
}

#[test]
fn a_step_sends_the_messages_that_are_predicted() {
    for ranks in [2, 4] {
        expect_predicted_messages(ranks, |_| ());
    }
}

#[test]
fn a_loss_over_the_batch_sends_its_sums_as_predicted() {
    expect_predicted_messages(2, |settings| settings.loss = Some(over_the_batch()));
}
