//! Whole runs on a card, which is an emulator: a loader, steps, checkpoints, validation and predictions, below two lines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance::emulator::backend_within;
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::{Dataset, Fold, InspectConfig, Inspection};
use plimsoll_infer::{CaseRequest, PredictOptions, Predictor};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::{NetworkName, NetworkSettings, Optimizer};
use plimsoll_plan::Backend;
use plimsoll_run::{
    Asked, CheckpointKind, EpochCost, EpochRecord, FoldName, InitialWeights, Machine, Model, RunConfig,
    RunFolder, RunRecord, Settings, Specification, StopReason,
};
use plimsoll_train::{Job, Observer, PlannedRun, RunData, StepReport, plan_run_allowing, train};

/// The line of this process.
const RAM: Bytes = Bytes::mib(512);
/// A line of the card that holds everything.
const VRAM: Bytes = Bytes::mib(64);

/// A data set, and a small network with dropout on small patches of it.
struct Site {
    dir: tempfile::TempDir,
    data: RunData,
    config: RunConfig,
    settings: Settings,
    fold: Fold,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("dataset");
        let phantom = PhantomConfig {
            cases: 3,
            test_cases: 1,
            size: [16, 20],
            outlier: false,
            ..PhantomConfig::default()
        };
        phantom::write(&folder, &phantom).unwrap();
        let dataset = Dataset::open(&folder).unwrap();
        let budget = Budget::new(RAM);
        let inspection =
            Inspection::run(&dataset, InspectConfig { threads: 1, seed: 0 }, &budget, &|_, _| ()).unwrap();
        let settings = Settings {
            network: NetworkSettings {
                net: Some(NetworkName::DynUNet),
                features: Some(vec![4, 6]),
                dropout: Some(0.1),
                ..NetworkSettings::default()
            },
            patch_size: Some([8; 3]),
            batch_size: Some(2),
            epochs: Some(2),
            iterations_per_epoch: Some(3),
            validation_iterations: Some(1),
            optimizer: Some(Optimizer::adamw()),
            learning_rate: Some(1e-2),
            seed: Some(3),
            ..Settings::default()
        };
        let config =
            RunConfig::resolve(&settings, &dataset, inspection.fingerprint.as_ref().unwrap()).unwrap();
        let ids: Vec<String> = dataset.cases.iter().map(|case| case.id.clone()).collect();
        let fold = Fold { train: ids[..2].to_vec(), val: ids[2..].to_vec() };
        let data = RunData::Volumes { dataset, inspection: Arc::new(inspection) };
        Site { dir, data, config, settings, fold }
    }

    fn plan(&self, backend: &dyn Backend) -> PlannedRun {
        let machine = Machine { line: RAM, threads: 1, loader_threads: 1 };
        let facts = self.data.facts(&self.config, &self.fold).unwrap();
        plan_run_allowing(&[], &self.config, false, (machine, backend), facts).unwrap()
    }

    fn run(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Trains in a folder, to the end or until `stop_after` steps are done.
    fn train(
        &self,
        name: &str,
        backend: &dyn Backend,
        resume: bool,
        stop_after: Option<u64>,
    ) -> (RunRecord, Seen) {
        let planned = self.plan(backend);
        planned.numbers.check().unwrap();
        let contents = self.data.contents();
        let specification = Specification::new(
            (self.settings.clone(), planned.config.clone()),
            (FoldName::Number(0), self.fold.clone()),
            &|case| contents.get(case).copied(),
            InitialWeights::Seed,
            planned.programs.all(),
            backend.arithmetic(),
        )
        .unwrap();
        let asked =
            Asked { specification, names_cases: false, names_weights: false, accepts_changed_data: false };
        let job = Job {
            planned,
            data: self.data.clone(),
            asked,
            folder: RunFolder::new(self.run(name)).fold(FoldName::Number(0)),
            resume,
            splits: None,
            log_steps: false,
            company: None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut seen = Seen { stop: Arc::clone(&stop), stop_after, ..Seen::default() };
        let record = train(job, &Budget::new(RAM), &stop, &mut seen).unwrap();
        (record, seen)
    }

    fn checkpoint(&self, name: &str) -> Vec<u8> {
        fs::read(self.run(name).join("fold_0/checkpoint_final.safetensors")).unwrap()
    }

    /// The labels of the test case, by a run.
    fn predict(&self, run: &str, backend: Arc<dyn Backend>) -> Vec<u8> {
        let model = Model::open(&self.run(run), CheckpointKind::Final).unwrap();
        let images = self.dir.path().join("dataset/imagesTs");
        let task = model.config.task.segmentation().unwrap().dataset.clone();
        let cases = Dataset::images(&images, &task.channels, &task.file_ending).unwrap();
        let options = PredictOptions { step: 0.75, mirror: false, threads: 1 };
        let on_device = backend.device_memory().is_some();
        let budget = Budget::new(RAM);
        let mut predictor = Predictor::new(model.try_into().unwrap(), options, backend, &budget).unwrap();
        let to = self.dir.path().join("labels.nii");
        let request =
            CaseRequest { case: &cases[0], earlier: None, within: None, labels: &to, probabilities: None };
        let plan = predictor.predict(&request, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(plan.device_bytes.is_some(), on_device);
        // Behind the header, a byte for each voxel.
        fs::read(&to).unwrap()[352..].to_vec()
    }
}

/// What a run told.
#[derive(Default)]
struct Seen {
    losses: Vec<f32>,
    warnings: Vec<String>,
    stop: Arc<AtomicBool>,
    stop_after: Option<u64>,
}

impl Observer for Seen {
    fn begin(&mut self, _: &Specification, _: u64, _: &str) {}

    fn loaded(&mut self, _: &str) {}

    fn step(&mut self, report: &StepReport) {
        self.losses.push(report.loss);
        self.stop.store(self.stop_after == Some(report.steps), Ordering::Relaxed);
    }

    fn validating(&mut self, _: u64, _: u64) {}

    fn epoch(&mut self, record: &EpochRecord, _: &EpochCost) {
        self.losses.extend(record.validation_loss.map(|loss| loss as f32));
    }

    fn warning(&mut self, what: &str) {
        self.warnings.push(what.into());
    }
}

#[test]
fn a_run_on_a_card_comes_to_the_processors_numbers_and_to_the_same_bits_however_often_it_is_stopped() {
    let site = Site::new();
    let cpu = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let (_, on_cpu) = site.train("cpu", &cpu, false, None);
    let card = backend_within(VRAM);
    let (record, seen) = site.train("whole", &card, false, None);
    assert_eq!(record.ended, StopReason::Finished);
    assert_eq!(record.engine, "CUDA, sm_80");
    // Six steps and two validations.
    assert_eq!(seen.losses.len(), 8);
    for (ours, expected) in seen.losses.iter().zip(&on_cpu.losses) {
        assert!((ours / expected - 1.0).abs() < 1e-4, "{:?}, on the CPU {:?}", seen.losses, on_cpu.losses);
    }
    // What was planned of the card is what the card says was taken, and the arena is no part of the other line.
    let device = record.device.as_ref().unwrap();
    assert_eq!(device.vram_budget_bytes, VRAM);
    assert_eq!(device.used_bytes, Some(device.planned_bytes));
    assert!(record.arena_used_bytes <= record.arena_bytes && record.arena_used_bytes > Bytes::ZERO);
    assert!(record.planned.iter().all(|part| part.name != "arena"));
    let held = |name: &str| record.held.iter().find(|held| held.holder == name).map(|held| held.peak);
    let planned = |name: &str| record.planned.iter().find(|part| part.name == name).map(|part| part.bytes);
    assert_eq!((held("arena"), held("staging")), (None, planned("staging")));
    assert!(planned("staging") > Some(Bytes::ZERO));

    // Stopped within the first epoch and within the second.
    let (stopped, _) = site.train("stopped", &card, false, Some(2));
    assert_eq!((stopped.ended, stopped.steps), (StopReason::Signal, 2));
    site.train("stopped", &card, true, Some(5));
    let (resumed, seen) = site.train("stopped", &card, true, None);
    assert_eq!((resumed.ended, resumed.steps), (StopReason::Finished, 6));
    assert_eq!(
        seen.warnings.iter().filter(|what| what.contains("begun on")).count(),
        0,
        "{:?}",
        seen.warnings
    );
    assert!(site.checkpoint("whole") == site.checkpoint("stopped"), "other bytes after a stop");

    // Where it goes on elsewhere, that is said.
    site.train("moved", &card, false, Some(4));
    let (moved, seen) = site.train("moved", &cpu, true, None);
    assert_eq!(moved.ended, StopReason::Finished);
    let said = seen.warnings.iter().any(|what| what.contains("begun on CUDA, sm_80 and goes on on"));
    assert!(said, "{:?}", seen.warnings);

    // Labels are the processor's, but where two classes are as likely to the last bits.
    let ours = site.predict("whole", Arc::new(card));
    let expected = site.predict("whole", Arc::new(cpu));
    assert!(ours.len() > 4000 && ours.len() == expected.len());
    let off = ours.iter().zip(&expected).filter(|(ours, expected)| ours != expected).count();
    assert!(off * 1000 <= ours.len(), "{off} of {} labels are others", ours.len());
}

#[test]
fn a_line_of_the_card_that_is_too_low_is_refused_with_the_least_that_does() {
    let site = Site::new();
    let high = site.plan(&backend_within(VRAM)).numbers;
    let least = high.device.as_ref().unwrap().minimum_vram_bytes;
    let low = site.plan(&backend_within(least - Bytes(1))).numbers;
    assert!(!low.feasible);
    let refused = low.check().unwrap_err();
    let hint = refused.hint().unwrap();
    assert!(refused.to_string().contains(&format!("{least} of the memory of CUDA, sm_80")), "{refused}");
    assert!(hint.contains(&format!("--vram {}MiB", least.0.div_ceil(1 << 20))), "{hint}");
    let enough = site.plan(&backend_within(least)).numbers;
    assert!(enough.feasible && enough.device.unwrap().total_bytes <= least);
}
