//! The specification of a fold's training: everything that its result depends on.
//!
//! It is made before the first step, changes only if the user amends the run, and is compared on every resumption. Its
//! [identity](Specification::identity) is the digest of all parts that decide bits, and is stored in each checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_data::Fold;
use plimsoll_graph::Program;
use plimsoll_memory::Digest;
use plimsoll_nn::PlateauState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::difference::{Difference, as_object, differences, requested_changes};
use crate::{
    FoldFolder, FoldName, InitialWeights, Progress, Resolved, RunConfig, RunError, Score, SettingChange,
    Settings, read_json, write_json,
};

/// The version of the file and of the files beside it; other versions are refused. 2: checkpoints and journals have the factor of the loss
/// (`loss_scale`). 3: configurations have the number format of products (`products`). 4: amendments have settings with both values, and
/// checkpoints the number of amendments that they include.
const VERSION: u32 = 4;

/// The longest file that is read; one of a hundred thousand cases is shorter.
const LONGEST: u64 = 64 << 20;

/// The specification of a fold's training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// The version of this file.
    pub version: u32,
    /// The user's settings.
    pub settings: Settings,
    /// All settings, resolved; network, loss, schedule; what of the data set a model needs.
    pub config: RunConfig,
    /// The fold.
    pub fold: FoldName,
    /// Its cases, as they were divided when it began.
    pub cases: Fold,
    /// Cases of the data set that are in none of the run's folds, as its user knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The contents of each of these cases.
    pub data: BTreeMap<String, Digest>,
    /// The origin of the initial parameters.
    pub initial: InitialWeights,
    /// The programs of the run, by name.
    pub programs: BTreeMap<String, Digest>,
    /// The backend that it began on; other machines round differently.
    pub backend: String,
    /// The amendments since it began, the oldest first.
    pub amendments: Vec<Amendment>,
}

/// A change to a run that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// The identity before it.
    pub before: Digest,
    /// Steps done before it.
    pub steps: u64,
    /// Settings that were changed.
    pub changes: Vec<SettingChange>,
    /// Cases, and what else of the data, that were no longer as they were and were accepted.
    pub data: Vec<String>,
}

impl Amendment {
    /// Returns `true` if bits of steps follow from it, and not only how many steps there are.
    fn changes_bits(&self) -> bool {
        !self.data.is_empty() || !self.changes.iter().all(SettingChange::is_of_end)
    }
}

impl std::fmt::Display for Amendment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let data = (!self.data.is_empty()).then(|| format!("data: {}", self.data.join(", ")));
        let changes = self.changes.iter().map(ToString::to_string);
        f.write_str(&data.into_iter().chain(changes).collect::<Vec<_>>().join("; "))
    }
}

/// A run that resumes with requested changes.
#[derive(Debug)]
pub struct Continuation {
    before: Specification,
    now: Specification,
    changes: Vec<SettingChange>,
    data: Vec<String>,
    left_out: Vec<String>,
    notes: Vec<String>,
}

impl Continuation {
    /// The specification from a step on. Returns also what the user should know.
    ///
    /// # Errors
    /// Returns an error if it ends before that step.
    pub fn from_step(self, steps: u64) -> Result<(Specification, Vec<String>), RunError> {
        let Continuation { mut before, now, changes, data, left_out, mut notes } = self;
        // No step depends on cases that are in no fold, so that leaving them out amends nothing.
        before.left_out.extend(left_out);
        if changes.is_empty() && data.is_empty() {
            return Ok((before, notes));
        }
        let RunConfig { epochs, iterations_per_epoch, .. } = now.config;
        if epochs.saturating_mul(iterations_per_epoch) < steps {
            return Err(RunError::Shortened { epochs, done: steps.div_ceil(iterations_per_epoch.max(1)) });
        }
        if before.config.epochs != epochs {
            notes.push(format!(
                "extended from {} to {epochs} epochs: from step {steps} on, learning rates follow a run of {epochs} epochs",
                before.config.epochs
            ));
        }
        let identity = before.identity()?;
        let mut next = before;
        next.config.epochs = epochs;
        next.config.schedule = now.config.schedule;
        next.config.training.loss = now.config.training.loss;
        next.config.bad_numbers = now.config.bad_numbers;
        next.config.early_stopping = now.config.early_stopping;
        if changes.iter().any(|change| change.is_of("loss")) {
            next.programs = now.programs;
        }
        next.settings = now.settings;
        next.config.task.adopt_classes(&now.config.task);
        for (case, content) in &mut next.data {
            if let Some(now) = now.data.get(case) {
                *content = *now;
            }
        }
        next.amendments.push(Amendment { before: identity, steps, changes, data });
        Ok((next, notes))
    }
}

/// The request of a fold's training.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    /// The specification as requested.
    pub specification: Specification,
    /// `true` if the request names the cases of the fold.
    pub names_cases: bool,
    /// `true` if the request names initial weights.
    pub names_weights: bool,
    /// `true` if the request accepts changed data.
    pub accepts_changed_data: bool,
}

impl Specification {
    /// The specification of a fold that begins.
    ///
    /// # Errors
    /// Returns an error if a case of the fold was not inspected.
    pub fn new(
        resolved: Resolved,
        fold: FoldName,
        cases: Fold,
        contents: &dyn Fn(&str) -> Option<Digest>,
        initial: InitialWeights,
        programs: &[Program],
        backend: String,
    ) -> Result<Specification, RunError> {
        let content = |id: &String| match contents(id) {
            Some(content) => Ok((id.clone(), content)),
            None => Err(RunError::UnknownCase { case: id.clone() }),
        };
        let data = cases.train.iter().chain(&cases.val).map(content).collect::<Result<_, _>>()?;
        let programs = programs.iter().map(digest_of_program).collect::<Result<_, RunError>>()?;
        let amendments = Vec::new();
        let version = VERSION;
        let Resolved { settings, config } = resolved;
        Ok(Specification {
            version,
            settings,
            config,
            fold,
            cases,
            left_out: Vec::new(),
            data,
            initial,
            programs,
            backend,
            amendments,
        })
    }

    /// The digest of all that bits follow from, the machine left out.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub fn identity(&self) -> Result<Digest, RunError> {
        let Specification { version, config, fold, cases, data, initial, programs, amendments, .. } = self;
        let initial = match initial {
            InitialWeights::Seed => None,
            InitialWeights::File { content, rule, .. } => Some((content, rule)),
        };
        let mut config = config.clone();
        // The rules that end a run do not change any step.
        (config.bad_numbers, config.early_stopping) = Default::default();
        // Two runs that were changed alike at different steps differ in their bits.
        let changed = amendments.iter().filter(|amendment| amendment.changes_bits());
        let changed: Vec<(u64, Digest)> =
            changed.map(|amendment| (amendment.steps, amendment.before)).collect();
        let text = serde_json::to_vec(&(version, &config, fold, cases, data, initial, programs, changed));
        let unwritable = |problem: serde_json::Error| RunError::Unwritable {
            what: "the specification".into(),
            why: problem.to_string(),
        };
        Ok(Digest::compute(&text.map_err(unwritable)?))
    }

    /// The resolved settings, the cases and the initial weights in lines for people.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub fn lines(&self) -> Result<Vec<String>, RunError> {
        let mut lines = vec![format!(
            "specification {}: fold {}, {}",
            self.identity()?,
            self.fold,
            fold_line(&self.cases)
        )];
        lines.push(format!("initial weights: {}", self.initial));
        for (key, value) in as_object(&self.config)? {
            match value {
                Value::Object(parts) if key == "training" => {
                    lines.extend(parts.iter().map(|(part, value)| format!("{part} = {value}")));
                }
                Value::Object(task) if key == "task" => {
                    for (kind, parts) in &task {
                        lines.push(format!("task = {kind}"));
                        // The description of the data set is no setting.
                        let set =
                            parts.as_object().into_iter().flatten().filter(|(part, _)| *part != "dataset");
                        lines.extend(set.map(|(part, value)| format!("{part} = {value}")));
                    }
                }
                value => lines.push(format!("{key} = {value}")),
            }
        }
        Ok(lines)
    }

    /// Returns `true` if a checkpoint with this identity is of this run in its present or an earlier form.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub fn owns(&self, checkpoint: Digest) -> Result<bool, RunError> {
        let before = self.amendments.iter().any(|amendment| amendment.before == checkpoint);
        Ok(before || self.identity()? == checkpoint)
    }

    /// Reads the specification of a fold.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or is invalid.
    pub fn read(folder: &FoldFolder) -> Result<Specification, RunError> {
        let path = folder.specification();
        let value: Value = read_json(&path, LONGEST)?;
        let json = |why: String| RunError::Json { path: path.clone(), why };
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            found => {
                return Err(RunError::OtherVersion { path, found, expected: VERSION });
            }
        }
        let mut read: Specification =
            serde_json::from_value(value).map_err(|problem| json(problem.to_string()))?;
        read.config.restore();
        read.check().map_err(json)?;
        Ok(read)
    }

    /// Checks that the contents of a file are consistent; the error is the reason.
    fn check(&self) -> Result<(), String> {
        self.settings.check().and_then(|()| self.config.check()).map_err(|problem| problem.to_string())?;
        let cases = || self.cases.train.iter().chain(&self.cases.val);
        if let Some(case) = cases().chain(self.data.keys()).find(|case| !self.config.task.is_case_name(case))
        {
            return Err(format!("{case:?} is not the name of a case"));
        }
        match cases().find(|case| !self.data.contains_key(*case)) {
            Some(case) => Err(format!("it has no contents of the case {case}")),
            None => Ok(()),
        }
    }

    /// Writes it into the folder of its fold.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn write(&self, folder: &FoldFolder) -> Result<(), RunError> {
        write_json(&folder.specification(), self)
    }

    /// Compares the run with what is request for now, before anything of it is read or held.
    ///
    /// # Errors
    /// Returns an error if a setting differs that may not change, with all of these; if cases have changed and that is not accepted, with
    /// their names; if this program computes something else than that which began the run.
    pub fn compare(&self, folder: &FoldFolder, request: &FoldRequest) -> Result<Continuation, RunError> {
        let now = &request.specification;
        let data = self.changed_cases(now);
        if !data.is_empty() && !request.accepts_changed_data {
            return Err(RunError::ChangedData { folder: folder.path().into(), changed: data });
        }
        let left_out = now.left_out.iter().filter(|case| !self.left_out.contains(case)).cloned().collect();
        let changes = self.expect_may_change(folder, &now.settings, &now.config)?;
        let mut others = Vec::new();
        if request.names_cases && self.cases != now.cases {
            let (known, now) = (fold_line(&self.cases), fold_line(&now.cases));
            others.push(SettingChange::from_texts("the cases of the fold", known, now));
        }
        if request.names_weights && self.initial != now.initial {
            let (known, now) = (self.initial.to_string(), now.initial.to_string());
            others.push(SettingChange::from_texts("weights", known, now));
        }
        if !others.is_empty() {
            return Err(RunError::FixedSettings { folder: folder.path().into(), changes: others });
        }
        // Components of the loss are constants of the programs, so only the programs of the run as it began can be compared.
        let is_as_begun = match changes.iter().any(|change| change.is_of("loss")) {
            true => {
                let programs = self.config.training.programs()?;
                let all = programs.gradients.iter().chain(&programs.sums).chain(&programs.update);
                let all = all.chain([&programs.validate]);
                all.map(digest_of_program).collect::<Result<BTreeMap<_, _>, _>>()? == self.programs
            }
            false => self.programs == now.programs,
        };
        if !is_as_begun {
            return Err(RunError::OtherPrograms { folder: folder.path().into() });
        }
        let mut notes = Vec::new();
        if self.backend != now.backend {
            let text = "results may differ in the last bits from a run that stays on one machine";
            notes.push(format!("it was started on {} and resumes on {}: {text}", self.backend, now.backend));
        }
        Ok(Continuation { before: self.clone(), now: now.clone(), changes, data, left_out, notes })
    }

    /// The settings that the request changes.
    ///
    /// # Errors
    /// Returns an error if a setting differs that must not change; the error lists all such settings.
    pub fn expect_may_change(
        &self,
        folder: &FoldFolder,
        settings: &Settings,
        config: &RunConfig,
    ) -> Result<Vec<SettingChange>, RunError> {
        let mut differences = differences(&self.config, config)?;
        // Values that follow from the data stay as they were.
        differences.retain(|difference| !difference.is_of_data());
        let (of_data, differences): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(Difference::is_extent_of_data);
        if !of_data.is_empty() {
            let changes = of_data.into_iter().map(|difference| difference.change).collect();
            return Err(RunError::OtherData { folder: folder.path().into(), changes });
        }
        let (may, must_not): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|difference| difference.effect.is_some());
        if !must_not.is_empty() {
            let changes = must_not.into_iter().map(|difference| difference.change).collect();
            let changes = requested_changes(changes, &self.settings, settings)?;
            return Err(RunError::FixedSettings { folder: folder.path().into(), changes });
        }
        Ok(may.into_iter().map(|difference| difference.change).collect())
    }

    /// Brings what a checkpoint remembers of scores and learning rates up to the changes that were made since it was written.
    pub fn adapt(&self, progress: &mut Progress) {
        for amendment in self.amendments.iter().skip(progress.amendments) {
            let is_any = |settings: &[&str]| {
                let is_of = |change: &SettingChange| settings.iter().any(|setting| change.is_of(setting));
                amendment.changes.iter().any(is_of)
            };
            if is_any(&["learning_rate", "decay"]) {
                // A rate that is set is the rate that steps have.
                progress.plateau = PlateauState::default();
            }
            let score = self.config.early_stopping.map(|rule| rule.score);
            let is_other_loss = is_any(&["loss"]) && score == Some(Score::ValidationLoss);
            if is_other_loss || is_any(&["early_stopping.score"]) {
                // Scores of two kinds cannot be compared.
                progress.patience = None;
            }
        }
        progress.amendments = self.amendments.len();
    }

    /// Checks that another fold of the same run has the same settings, since predictions of folds are averaged.
    ///
    /// # Errors
    /// Returns an error if it has not; the error lists all differences.
    pub fn expect_settings_of(
        &self,
        run: &Path,
        settings: &Settings,
        config: &RunConfig,
    ) -> Result<(), RunError> {
        let mut found = differences(&self.config, config)?;
        found.retain(|difference| !difference.is_of_data());
        if found.is_empty() {
            return Ok(());
        }
        let changes = found.into_iter().map(|difference| difference.change).collect();
        let changes = requested_changes(changes, &self.settings, settings)?;
        Err(RunError::OtherSpecification { folder: run.into(), changes })
    }

    /// The changed parts of the data: classes, channels, cases.
    fn changed_cases(&self, now: &Specification) -> Vec<String> {
        let mut changed = self.config.task.changed_data(&now.config.task);
        let is_other = |(case, content): &(&String, &Digest)| now.data.get(*case) != Some(*content);
        changed.extend(self.data.iter().filter(is_other).map(|(case, _)| case.clone()));
        changed
    }
}

fn fold_line(fold: &Fold) -> String {
    let names = |ids: &[String]| {
        let shown: Vec<&str> = ids.iter().take(3).map(String::as_str).collect();
        let more = if ids.len() > shown.len() { ", …" } else { "" };
        format!("{} ({}{more})", ids.len(), shown.join(", "))
    };
    format!("{} to train on, {} to validate with", names(&fold.train), names(&fold.val))
}

/// The name of a program, and the digest of its text.
fn digest_of_program(program: &Program) -> Result<(String, Digest), RunError> {
    let text = serde_json::to_vec(program).map_err(|problem| RunError::Unwritable {
        what: format!("program `{}`", program.name),
        why: problem.to_string(),
    })?;
    Ok((program.name.clone(), Digest::compute(&text)))
}
