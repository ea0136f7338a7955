//! A run on a card: its data, its small network, and what is seen of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::{Dataset, Fold, InspectConfig, Inspection};
use plimsoll_graph::DType;
use plimsoll_infer::{CaseRequest, PredictOptions, PredictPlan, Predictor};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::Model;
use plimsoll_nn::{NetworkName, NetworkSettings, Optimizer, RankPlace};
use plimsoll_plan::{Backend, Plans};
use plimsoll_ranks::Communicator;
use plimsoll_run::{
    CheckpointKind, EpochCost, EpochRecord, FoldName, FoldRequest, InitialWeights, LossScale, Machine,
    Resolved, RunConfig, RunFolder, RunRecord, Sample, Settings, Specification,
};
use plimsoll_train::{
    Job, Observer, PlannedRun, Planning, RankedRun, RunData, StepReport, TrainError, plan_run_allowing,
    train_rank,
};

/// The limit of this process.
pub const RAM: Bytes = Bytes::mib(512);
/// A limit of the card that holds everything.
pub const VRAM: Bytes = Bytes::mib(64);

/// A data set, and a small network with dropout on small patches of it.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub data: RunData,
    pub config: RunConfig,
    pub settings: Settings,
    pub fold: Fold,
}

impl Site {
    pub fn new() -> Site {
        Site::changed(|_| ())
    }

    /// With other settings than usual.
    pub fn changed(change: impl FnOnce(&mut Settings)) -> Site {
        Site::described(None, change)
    }

    /// With another description of the data set than its own.
    pub fn described(description: Option<&str>, change: impl FnOnce(&mut Settings)) -> Site {
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
        if let Some(description) = description {
            fs::write(folder.join("dataset.json"), description).unwrap();
        }
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
            batch_size: Some(2),
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
        let fold = Fold { train: ids[..2].to_vec(), val: ids[2..].to_vec() };
        let data = RunData::Volumes { dataset, inspection: Arc::new(inspection) };
        Site { dir, data, config, settings, fold }
    }

    pub fn plan(&self, backend: &dyn Backend, place: RankPlace) -> PlannedRun {
        let machine = Machine { limit: RAM, threads: 1, loader_threads: 1 };
        let facts = self.data.facts(&self.config, &self.fold).unwrap();
        let plans = Plans::default();
        let planning = Planning { place, ..Planning::unobserved(&plans, None) };
        plan_run_allowing(&[], &self.config, false, machine, backend, facts, planning).unwrap()
    }

    pub fn run(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Trains in a folder, to the end or until `stop_after` steps are done.
    pub fn train(
        &self,
        name: &str,
        backend: &dyn Backend,
        resume: bool,
        stop_after: Option<u64>,
    ) -> (RunRecord, Seen) {
        let part = Part { name, resume, stop_after };
        self.train_rank(part, backend, &mut plimsoll_ranks::alone())
    }

    /// Trains as one of several ranks.
    pub fn train_rank(
        &self,
        part: Part<'_>,
        backend: &dyn Backend,
        communicator: &mut dyn Communicator,
    ) -> (RunRecord, Seen) {
        let (record, seen) = self.try_train_rank(part, backend, communicator);
        (record.unwrap(), seen)
    }

    /// Trains as one of several ranks, and perhaps fails.
    pub fn try_train_rank(
        &self,
        Part { name, resume, stop_after }: Part<'_>,
        backend: &dyn Backend,
        communicator: &mut dyn Communicator,
    ) -> (Result<RunRecord, TrainError>, Seen) {
        let place = RankPlace { rank: communicator.rank(), ranks: communicator.size() };
        let planned = self.plan(backend, place);
        planned.numbers.check().unwrap();
        let contents = self.data.contents();
        let specification = Specification::new(
            Resolved { settings: self.settings.clone(), config: planned.config.clone() },
            FoldName::Number(0),
            self.fold.clone(),
            &|case| contents.get(case).copied(),
            InitialWeights::Seed,
            &planned.programs.specified(),
            backend.arithmetic(),
        )
        .unwrap();
        let request = FoldRequest {
            specification,
            names_cases: false,
            names_weights: false,
            accepts_changed_data: false,
        };
        let job = Job {
            planned,
            data: self.data.clone(),
            request,
            folder: RunFolder::new(self.run(name)).fold(FoldName::Number(0)),
            resume,
            splits: None,
            log_steps: false,
            siblings: None,
            cache: None,
            warm: false,
            notes: Vec::new(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut seen = Seen { stop: Arc::clone(&stop), stop_after, ..Seen::default() };
        let ranked = RankedRun { communicator, patience: None };
        let record = train_rank(job, ranked, &Budget::new(RAM), &stop, &mut seen);
        (record, seen)
    }

    /// The scale of the loss after each epoch, of the run's metrics.
    pub fn loss_scales(&self, name: &str) -> Vec<LossScale> {
        let metrics = fs::read_to_string(self.run(name).join("fold_0/metrics.jsonl")).unwrap();
        let records = metrics.lines().map(|line| serde_json::from_str::<EpochRecord>(line).unwrap());
        records.map(|record| record.loss_scale.unwrap()).collect()
    }

    pub fn checkpoint(&self, name: &str) -> Vec<u8> {
        fs::read(self.run(name).join("fold_0/checkpoint_final.safetensors")).unwrap()
    }

    /// The labels of the test case, predicted by a run with stored features as trained or as requested.
    pub fn predict(&self, run: &str, backend: Arc<dyn Backend>, precision: Option<DType>) -> Vec<u8> {
        let options = PredictOptions { precision, ..PredictOptions::new(0.75, false, 1) };
        self.predict_as(run, backend, options).0
    }

    /// The labels of the test case, its file of probabilities, and what was planned for it.
    pub fn predict_as(
        &self,
        run: &str,
        backend: Arc<dyn Backend>,
        options: PredictOptions,
    ) -> (Vec<u8>, Vec<u8>, PredictPlan) {
        let model = Model::open(&self.run(run), CheckpointKind::Final).unwrap();
        let images = self.dir.path().join("dataset/imagesTs");
        let task = model.config.task.segmentation().unwrap().dataset.clone();
        let cases = Dataset::images(&images, &task.channels, &task.file_ending).unwrap();
        let on_device = backend.device_memory().is_some();
        let budget = Budget::new(RAM);
        let mut predictor = Predictor::new(model.try_into().unwrap(), options, backend, &budget).unwrap();
        let [to, of_classes] = ["labels.nii", "probabilities.npz"].map(|name| self.dir.path().join(name));
        let request = CaseRequest {
            case: &cases[0],
            earlier: None,
            within: None,
            labels: &to,
            probabilities: Some(&of_classes),
        };
        let plan = predictor.predict(&request, &AtomicBool::new(false), &mut |_| ()).unwrap().plan;
        assert_eq!(plan.device_bytes.is_some(), on_device);
        // Behind the header, a byte for each voxel.
        (fs::read(&to).unwrap()[352..].to_vec(), fs::read(&of_classes).unwrap(), plan)
    }
}

/// A part of a run.
pub struct Part<'a> {
    pub name: &'a str,
    pub resume: bool,
    pub stop_after: Option<u64>,
}

/// The events of a run.
#[derive(Default)]
pub struct Seen {
    pub losses: Vec<f32>,
    /// The steps that were taken, by how many were done after each.
    pub steps: Vec<u64>,
    pub warnings: Vec<String>,
    pub stop: Arc<AtomicBool>,
    pub stop_after: Option<u64>,
}

impl Observer for Seen {
    fn begin(&mut self, _: &Specification, _: u64, _: &str) {}

    fn loaded(&mut self, _: &str) {}

    fn step(&mut self, report: &StepReport) {
        self.losses.push(report.loss);
        self.steps.push(report.steps);
        if self.stop_after == Some(report.steps) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn validating(&mut self, _: u64, _: u64) {}

    fn epoch(&mut self, record: &EpochRecord, _: &EpochCost) {
        self.losses.extend(record.validation_loss.map(|loss| loss as f32));
    }

    fn sample(&mut self, _: &Sample) {}

    fn saving(&mut self) {}

    fn warning(&mut self, what: &str) {
        self.warnings.push(what.into());
    }
}
