//! States of a run's folder that a power failure may leave, and the run that resumes from each.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::{Dataset, Fold, InspectConfig, Inspection};
use plimsoll_disk::atomic::sweep;
use plimsoll_disk::faults::{State, crash_states, lay_out, record, state_of};
use plimsoll_graph::{Program, TensorId};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId, Timings, VerifiedPlan};
use plimsoll_run::{
    CheckpointKind, Checkpoints, EpochRecord, Event, EventLog, FoldFolder, FoldName, InitialWeights, Journal,
    Progress, Resolved, RunConfig, RunFolder, RunState, Settings, Specification, each_epoch, each_event,
};

/// An engine that computes nothing and remembers what is written.
#[derive(Default)]
struct Memory(BTreeMap<TensorId, Vec<f32>>);

impl Engine for Memory {
    fn plan(&self) -> &VerifiedPlan {
        panic!("nothing is planned")
    }

    fn write(&mut self, _: ProgramId, tensor: TensorId, values: HostSlice<'_>) -> Result<(), EngineError> {
        let HostSlice::F32(values) = values else { panic!("only parameters and moments are kept") };
        self.0.insert(tensor, values.to_vec());
        Ok(())
    }

    fn read(&self, id: ProgramId, tensor: TensorId, values: HostSliceMut<'_>) -> Result<(), EngineError> {
        self.read_from(id, tensor, 0, values)
    }

    fn read_from(
        &self,
        _: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSliceMut<'_>,
    ) -> Result<(), EngineError> {
        let HostSliceMut::F32(values) = values else { panic!("only parameters and moments are kept") };
        values.copy_from_slice(&self.0[&tensor][first..][..values.len()]);
        Ok(())
    }

    fn write_at(&mut self, _: ProgramId, _: TensorId, _: usize, _: HostSlice<'_>) -> Result<(), EngineError> {
        panic!("tensors are written as a whole")
    }

    fn clear(&mut self, _: ProgramId, _: TensorId) -> Result<(), EngineError> {
        panic!("nothing is cleared")
    }

    fn run_launches(&mut self, _: ProgramId, _: Range<usize>) -> Result<(), EngineError> {
        panic!("nothing is computed")
    }

    fn used_bytes(&self) -> usize {
        0
    }

    fn timings(&self) -> &Timings {
        panic!("nothing is computed")
    }
}

/// A run without an engine.
struct Run {
    specification: Specification,
    program: Program,
    id: ProgramId,
    budget: Budget,
}

impl Run {
    fn new() -> Run {
        let dir = tempfile::tempdir().unwrap();
        let config = PhantomConfig { cases: 2, test_cases: 0, size: [16, 16], outlier: false, seed: 1 };
        phantom::write(dir.path(), &config).unwrap();
        let dataset = Dataset::open(dir.path()).unwrap();
        let budget = Budget::new(Bytes::mib(64));
        let inspection =
            Inspection::run(&dataset, InspectConfig { threads: 1, seed: 0 }, &budget, &|_, _| {}).unwrap();
        let fingerprint = inspection.fingerprint.unwrap();
        let settings: Settings =
            toml::from_str("patch_size = [8, 8, 8]\n[network]\nnet = 'dynunet'\nfeatures = [16, 48]\n")
                .unwrap();
        let config = RunConfig::resolve(&settings, &dataset, &fingerprint).unwrap();
        let programs = config.training.programs().unwrap();
        let program = programs.update.as_ref().unwrap_or(&programs.gradients[0]).clone();
        let ids: Vec<String> = dataset.cases.iter().map(|case| case.id.clone()).collect();
        let specification = Specification::new(
            Resolved { settings, config },
            FoldName::All,
            Fold::all(&ids),
            &|case| fingerprint.case(case).map(|case| case.content),
            InitialWeights::Seed,
            &programs.gradients,
            "a test".into(),
        );
        Run { specification: specification.unwrap(), program, id: ProgramId::new(0), budget }
    }

    fn checkpoints(&self, folder: &FoldFolder) -> Checkpoints {
        let net = self.specification.config.training.net.as_architecture();
        Checkpoints::new(folder, &self.program, net, &self.budget).unwrap()
    }

    /// The state after `steps` steps; every value follows from the step.
    fn engine(&self, steps: u64) -> Memory {
        let value = |id: TensorId| {
            let count = self.program.shape(id).count();
            (0..count).map(|i| (i as f32 + 0.5) * (steps as f32 + 1.0)).collect()
        };
        Memory(self.program.ids().map(|id| (id, value(id))).collect())
    }

    fn write(&self, checkpoints: &mut Checkpoints, steps: u64) {
        let identity = self.specification.identity().unwrap();
        let progress = Progress { steps, ..Progress::default() };
        let net = self.specification.config.training.net.as_architecture();
        let kind = CheckpointKind::Latest;
        let engine = self.engine(steps);
        let state =
            RunState { engine: &engine, program: self.id, specification: identity, progress: &progress, net };
        checkpoints.write(kind, state).unwrap();
    }

    /// The step from which a run resumes; all values must be of that step.
    fn resumed(&self, checkpoints: &mut Checkpoints) -> Option<u64> {
        let mut engine = Memory::default();
        let resumed = checkpoints.resume(&self.specification, &mut engine, self.id).unwrap()?;
        let expected = self.engine(resumed.progress.steps);
        assert!(!engine.0.is_empty());
        for (tensor, values) in &engine.0 {
            assert!(*values == expected.0[tensor], "{:?}", self.program.tensor(*tensor).name);
        }
        Some(resumed.progress.steps)
    }
}

fn fold(folder: &Path) -> FoldFolder {
    RunFolder::new(folder).fold(FoldName::All)
}

/// Lays out each state that `change` may leave, and counts what `look` makes of them.
fn each_state<T: Ord>(
    folder: &Path,
    initial: &State,
    change: impl FnOnce(),
    look: impl Fn(&Path) -> T,
) -> BTreeMap<T, usize> {
    let ((), operations) = record(folder, change);
    let mut found = BTreeMap::new();
    for state in crash_states(initial, &operations) {
        let left = tempfile::tempdir().unwrap();
        lay_out(&state, left.path()).unwrap();
        *found.entry(look(left.path())).or_default() += 1;
    }
    found
}

#[test]
fn whenever_the_power_fails_while_a_checkpoint_is_written_the_old_one_or_the_new_one_can_be_gone_on_with() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    let folder = fold(dir.path());
    fs::create_dir_all(folder.path()).unwrap();
    let mut checkpoints = run.checkpoints(&folder);
    run.write(&mut checkpoints, 1);
    run.write(&mut checkpoints, 2);
    let initial = state_of(dir.path()).unwrap();
    assert_eq!(initial.len(), 2, "latest and previous");
    let found = each_state(
        dir.path(),
        &initial,
        || (3..6).for_each(|steps| run.write(&mut checkpoints, steps)),
        |left| {
            let folder = fold(left);
            let mut checkpoints = run.checkpoints(&folder);
            let steps = run.resumed(&mut checkpoints).unwrap();
            sweep(folder.path()).unwrap();
            // From there on as ever.
            run.write(&mut checkpoints, 6);
            assert_eq!(run.resumed(&mut run.checkpoints(&folder)), Some(6));
            steps
        },
    );
    println!("three checkpoints over two: from so many states, a run goes on after these steps: {found:?}");
    assert!(found.values().sum::<usize>() >= 100 && found.keys().eq(&[2, 3, 4, 5]), "{found:?}");
}

#[test]
fn nor_is_anything_lost_if_the_latest_checkpoint_was_damaged_before() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    let folder = fold(dir.path());
    fs::create_dir_all(folder.path()).unwrap();
    let mut checkpoints = run.checkpoints(&folder);
    run.write(&mut checkpoints, 1);
    run.write(&mut checkpoints, 2);
    let latest = folder.checkpoint(CheckpointKind::Latest);
    let mut bytes = fs::read(&latest).unwrap();
    let place = bytes.len() - 100;
    bytes[place] ^= 1;
    fs::write(&latest, bytes).unwrap();
    let initial = state_of(dir.path()).unwrap();
    let mut checkpoints = run.checkpoints(&folder);
    assert_eq!(run.resumed(&mut checkpoints), Some(1));
    let found = each_state(
        dir.path(),
        &initial,
        || run.write(&mut checkpoints, 3),
        |left| run.resumed(&mut run.checkpoints(&fold(left))).unwrap(),
    );
    println!("a checkpoint over a damaged one: {found:?}");
    assert!(found.keys().eq(&[1, 3]), "{found:?}");
}

#[test]
fn the_first_checkpoint_of_a_run_is_there_whole_or_not_at_all() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    let folder = fold(dir.path());
    fs::create_dir_all(folder.path()).unwrap();
    let found = each_state(
        dir.path(),
        &State::new(),
        || run.write(&mut run.checkpoints(&folder), 1),
        |left| run.resumed(&mut run.checkpoints(&fold(left))),
    );
    println!("the first checkpoint: {found:?}");
    assert!(found.keys().eq(&[None, Some(1)]), "{found:?}");
}

fn epoch(number: u64) -> EpochRecord {
    EpochRecord {
        epoch: number,
        steps: (number + 1) * 10,
        learning_rate: 0.01,
        train_loss: Some(1.0 / (number + 1) as f64),
        validation_loss: None,
        train_loss_parts: Vec::new(),
        validation_loss_parts: Vec::new(),
        pseudo_dice: vec![None],
        mean_pseudo_dice: None,
        ema_pseudo_dice: None,
        classification: None,
        skipped_steps: 0,
        loss_scale: None,
    }
}

#[test]
fn epochs_that_were_written_down_stay_and_a_torn_one_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = fold(dir.path());
    fs::create_dir_all(folder.path()).unwrap();
    let mut journal = Journal::open(&folder, 0, 10).unwrap();
    (0..3).for_each(|number| journal.append(&epoch(number)).unwrap());
    let initial = state_of(dir.path()).unwrap();
    let found = each_state(
        dir.path(),
        &initial,
        || journal.append(&epoch(3)).unwrap(),
        |left| {
            let folder = fold(left);
            let mut epochs = Vec::new();
            each_epoch(&folder, |record| epochs.push(record)).unwrap();
            let whole = epochs.len();
            // The checkpoint is of the third epoch, so the fourth is done again.
            let mut journal = Journal::open(&folder, 30, 10).unwrap();
            assert!(!journal.misses_epochs());
            journal.append(&epoch(3)).unwrap();
            let mut epochs = Vec::new();
            each_epoch(&folder, |record| epochs.push(record)).unwrap();
            assert_eq!(epochs, (0..4).map(epoch).collect::<Vec<_>>());
            whole
        },
    );
    println!("a line of metrics.jsonl over three: epochs that are read: {found:?}");
    assert!(found.keys().eq(&[3, 4]), "{found:?}");
}

#[test]
fn events_that_were_written_down_stay() {
    let dir = tempfile::tempdir().unwrap();
    let folder = fold(dir.path());
    fs::create_dir_all(folder.path()).unwrap();
    let event = |number: usize| Event::Warning { what: format!("number {number}") };
    let mut log = EventLog::open(&folder).unwrap();
    (0..3).for_each(|number| log.say(event(number)).unwrap());
    let initial = state_of(dir.path()).unwrap();
    let events = |folder: &FoldFolder| {
        let mut events = Vec::new();
        each_event(folder, |timed| events.push(timed.event)).unwrap();
        events
    };
    let found = each_state(
        dir.path(),
        &initial,
        || log.say(event(3)).unwrap(),
        |left| {
            let folder = fold(left);
            let before = events(&folder).len();
            EventLog::open(&folder).unwrap().say(event(4)).unwrap();
            let after = events(&folder);
            assert_eq!(after[..3], [0, 1, 2].map(event));
            assert_eq!(after.last(), Some(&event(4)));
            before
        },
    );
    println!("a line of events.jsonl over three: events that are read: {found:?}");
    assert!(found.keys().eq(&[3, 4]), "{found:?}");
}
