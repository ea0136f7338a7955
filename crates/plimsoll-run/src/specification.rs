//! What the training of a fold is: all that its result depends on.
//!
//! It is made before the first step, never changes but where its user extends the run, and is what a resumption is checked
//! against. Its [identity](Specification::identity) is the digest of all that bits follow from, and stands in each checkpoint.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_data::Fold;
use plimsoll_disk::File;
use plimsoll_graph::Program;
use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{FoldFolder, FoldName, RunConfig, RunError, Settings, as_written, read_json, write_json};

/// Of the file and of what stands beside it; one of another version is refused. 2: checkpoints and journals have the factor that a loss is
/// multiplied by (`loss_scale`). 3: configurations have what convolutions multiply (`products`).
const VERSION: u32 = 3;

/// The longest file that is read: that of a hundred thousand cases fits.
const LONGEST: u64 = 64 << 20;

/// Bytes of a weight file that are read at a time.
const PIECE: usize = 64 << 10;

/// Settings that may change when a run goes on: how long it is, and what ends it.
const MAY_CHANGE: [&str; 4] = ["epochs", "schedule.total_steps", "bad_numbers", "early_stopping"];

/// What the training of a fold is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Of this file.
    pub version: u32,
    /// What its user asked for.
    pub settings: Settings,
    /// All settings, resolved; network, loss, schedule; what of the data set a model needs.
    pub config: RunConfig,
    /// Which fold.
    pub fold: FoldName,
    /// Its cases, as they were divided when it began.
    pub cases: Fold,
    /// Cases of the data set that are in none of the run's folds, as its user knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The contents of each of these cases.
    pub data: BTreeMap<String, Digest>,
    /// Where parameters come from.
    pub initial: InitialWeights,
    /// The programs of the run, by name.
    pub programs: BTreeMap<String, Digest>,
    /// What it was begun on: other machines round differently.
    pub backend: String,
    /// How it was changed since it began, the oldest first.
    pub amendments: Vec<Amendment>,
}

/// Where parameters come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "from")]
pub enum InitialWeights {
    /// The seed.
    Seed,
    /// A file.
    File {
        /// Where it lay.
        path: PathBuf,
        /// Its contents.
        content: Digest,
        /// Whether tensors that the network has no place for were left out.
        allow_extra: bool,
        /// Whether heads that do not fit began anew.
        new_head: bool,
        /// Whether weights of three channels of an image were summed for one.
        #[serde(default)]
        sum_stem: bool,
    },
}

impl InitialWeights {
    /// From a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_file(
        path: &Path,
        allow_extra: bool,
        new_head: bool,
        sum_stem: bool,
    ) -> Result<InitialWeights, RunError> {
        let content = digest_of(path)?;
        Ok(InitialWeights::File { path: path.into(), content, allow_extra, new_head, sum_stem })
    }

    /// That the file, where there is one, is still what it was when the run was begun.
    ///
    /// # Errors
    /// If it cannot be read, or has other contents.
    pub fn check(&self) -> Result<(), RunError> {
        match self {
            InitialWeights::File { path, content, .. } if digest_of(path)? != *content => {
                Err(RunError::OtherWeights { path: path.clone() })
            }
            InitialWeights::Seed | InitialWeights::File { .. } => Ok(()),
        }
    }
}

/// The digest of a file, read in pieces.
///
/// # Errors
/// If it cannot be read.
pub fn digest_of(path: &Path) -> Result<Digest, RunError> {
    let io = |source| RunError::io(path, source);
    let mut file = File::open(path).map_err(io)?;
    let mut digester = Digester::default();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece).map_err(io)? {
            0 => return Ok(digester.finish()),
            read => digester.update(&piece[..read]),
        }
    }
}

/// A change to a run that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// The identity before it.
    pub before: Digest,
    /// Steps done before it.
    pub steps: u64,
    /// What was changed.
    pub changes: Vec<String>,
}

/// What is to be trained, as it was asked for now.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What it is.
    pub specification: Specification,
    /// Whether the cases of the fold were named.
    pub names_cases: bool,
    /// Whether initial weights were.
    pub names_weights: bool,
    /// Whether data that has changed is taken as it is.
    pub accepts_changed_data: bool,
}

impl Specification {
    /// Of a fold that begins.
    ///
    /// # Errors
    /// If a case of the fold was not inspected.
    pub fn new(
        (settings, config): (Settings, RunConfig),
        (fold, cases): (FoldName, Fold),
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
        let program = |program: &Program| {
            let text = serde_json::to_vec(program).map_err(|problem| RunError::Unwritable {
                what: format!("program `{}`", program.name),
                why: problem.to_string(),
            })?;
            Ok((program.name.clone(), Digest::of(&text)))
        };
        let programs = programs.iter().map(program).collect::<Result<_, RunError>>()?;
        let amendments = Vec::new();
        let version = VERSION;
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
    /// If it cannot be written as JSON.
    pub fn identity(&self) -> Result<Digest, RunError> {
        let Specification { version, config, fold, cases, data, initial, programs, .. } = self;
        let initial = match initial {
            InitialWeights::Seed => None,
            InitialWeights::File { content, new_head, sum_stem, .. } => Some((content, new_head, sum_stem)),
        };
        let mut config = config.clone();
        // What ends a run says how far it goes, not what it computes.
        (config.bad_numbers, config.early_stopping) = Default::default();
        let text = serde_json::to_vec(&(version, &config, fold, cases, data, initial, programs));
        let unwritable = |problem: serde_json::Error| RunError::Unwritable {
            what: "the specification".into(),
            why: problem.to_string(),
        };
        Ok(Digest::of(&text.map_err(unwritable)?))
    }

    /// What will really run, in lines for people: every setting as it was resolved, the cases, where weights come from.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn lines(&self) -> Result<Vec<String>, RunError> {
        let mut lines =
            vec![format!("specification {}: fold {}, {}", self.identity()?, self.fold, of_fold(&self.cases))];
        lines.push(format!("initial weights: {}", self.initial));
        for (key, value) in as_object(&self.config)? {
            match value {
                Value::Object(parts) if key == "training" => {
                    lines.extend(parts.iter().map(|(part, value)| format!("{part} = {value}")));
                }
                Value::Object(task) if key == "task" => {
                    for (kind, parts) in &task {
                        lines.push(format!("task = {kind}"));
                        // What of the data set a model needs to know is not set by anybody.
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

    /// Whether a checkpoint with this identity is one of this run, as it is or was.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn owns(&self, checkpoint: Digest) -> Result<bool, RunError> {
        let before = self.amendments.iter().any(|amendment| amendment.before == checkpoint);
        Ok(before || self.identity()? == checkpoint)
    }

    /// Reads that of a fold.
    ///
    /// # Errors
    /// If it is not there, or is none.
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

    /// That what a file says can be one; else why not.
    fn check(&self) -> Result<(), String> {
        self.settings.check().and_then(|()| self.config.check()).map_err(|problem| problem.to_string())?;
        let cases = || self.cases.train.iter().chain(&self.cases.val);
        if let Some(case) = cases().chain(self.data.keys()).find(|case| !self.config.task.is_case_name(case))
        {
            return Err(format!("{case:?} is no name of a case"));
        }
        match cases().find(|case| !self.data.contains_key(*case)) {
            Some(case) => Err(format!("it has no contents of the case {case}")),
            None => Ok(()),
        }
    }

    /// Writes it into the folder of its fold.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&self, folder: &FoldFolder) -> Result<(), RunError> {
        write_json(&folder.specification(), self)
    }

    /// The specification that a run goes on with: what it was begun with, and what may be changed since. Returns also what its
    /// user should know.
    ///
    /// # Errors
    /// If something else is asked for than what was begun, with all differences; if cases have changed since and that is not
    /// accepted, with their names.
    pub fn go_on(
        &self,
        folder: &FoldFolder,
        asked: &Asked,
        steps: u64,
    ) -> Result<(Specification, Vec<String>), RunError> {
        let now = &asked.specification;
        let mut notes = Vec::new();
        let mut changes = Vec::new();
        let changed = self.changed_cases(now);
        if !changed.is_empty() {
            if !asked.accepts_changed_data {
                return Err(RunError::ChangedData { folder: folder.path().into(), changed });
            }
            changes.push(format!("data: {}", changed.join(", ")));
        }
        let more_left_out: Vec<&str> =
            now.left_out.iter().filter(|case| !self.left_out.contains(case)).map(String::as_str).collect();
        if !more_left_out.is_empty() {
            changes.push(format!("left out: {}", more_left_out.join(", ")));
        }
        let mut differences = differences(&self.config, &now.config)?;
        // What follows from the data is kept as it was.
        differences.retain(|difference| !difference.is_of_data());
        let (may, mut must_not): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|difference| difference.may_change());
        if asked.names_cases && self.cases != now.cases {
            must_not.push(Difference::new(
                "the cases of the fold",
                of_fold(&self.cases),
                of_fold(&now.cases),
            ));
        }
        if asked.names_weights && self.initial != now.initial {
            must_not.push(Difference::new("--weights", self.initial.to_string(), now.initial.to_string()));
        }
        if !must_not.is_empty() {
            let differences = must_not.iter().map(ToString::to_string).collect();
            return Err(RunError::OtherSpecification { folder: folder.path().into(), differences });
        }
        if self.programs != now.programs {
            return Err(RunError::OtherPrograms { folder: folder.path().into() });
        }
        if self.backend != now.backend {
            let text = "bits may differ from those of a run that stays where it was begun";
            notes.push(format!("it was begun on {} and goes on on {}: {text}", self.backend, now.backend));
        }
        changes.extend(may.iter().map(ToString::to_string));
        let mut next = self.clone();
        if changes.is_empty() {
            return Ok((next, notes));
        }
        let RunConfig { epochs, schedule, iterations_per_epoch, .. } = now.config;
        if epochs.saturating_mul(iterations_per_epoch) < steps {
            return Err(RunError::Shortened { epochs, done: steps / iterations_per_epoch.max(1) });
        }
        if next.config.epochs != epochs {
            notes.push(format!(
                "extended from {} to {epochs} epochs: from step {steps} on, learning rates are those of a run of {epochs} \
                 epochs",
                next.config.epochs
            ));
        }
        (next.config.epochs, next.config.schedule.total_steps) = (epochs, schedule.total_steps);
        next.config.bad_numbers = now.config.bad_numbers;
        next.config.early_stopping = now.config.early_stopping;
        next.settings = now.settings.clone();
        next.left_out.extend(more_left_out.into_iter().map(String::from));
        next.config.task.adopt_classes(&now.config.task);
        for (case, content) in &mut next.data {
            if let Some(now) = now.data.get(case) {
                *content = *now;
            }
        }
        next.amendments.push(Amendment { before: self.identity()?, steps, changes });
        Ok((next, notes))
    }

    /// That another fold of the same run has the same settings: their predictions are averaged.
    ///
    /// # Errors
    /// If it has not, with all differences.
    pub fn expect_settings_of(&self, run: &Path, other: &RunConfig) -> Result<(), RunError> {
        let found = differences(&self.config, other)?;
        let found: Vec<String> =
            found.iter().filter(|difference| !difference.is_of_data()).map(ToString::to_string).collect();
        match found.is_empty() {
            true => Ok(()),
            false => Err(RunError::OtherSpecification { folder: run.into(), differences: found }),
        }
    }

    /// What of the data is not as it was: classes, channels, cases.
    fn changed_cases(&self, now: &Specification) -> Vec<String> {
        let mut changed = self.config.task.changed_data(&now.config.task);
        let is_other = |(case, content): &(&String, &Digest)| now.data.get(*case) != Some(*content);
        changed.extend(self.data.iter().filter(is_other).map(|(case, _)| case.clone()));
        changed
    }
}

/// A place where two configurations differ.
struct Difference {
    place: String,
    known: String,
    now: String,
}

impl Difference {
    fn new(place: impl Into<String>, known: String, now: String) -> Difference {
        Difference { place: place.into(), known, now }
    }

    /// Whether it follows from the data set, and is set by nobody.
    fn is_of_data(&self) -> bool {
        let of_task = self.place.strip_prefix("task.").and_then(|rest| rest.split_once('.'));
        of_task.is_some_and(|(_, part)| part.starts_with("dataset."))
    }

    fn may_change(&self) -> bool {
        let is = |name: &&str| {
            self.place.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        MAY_CHANGE.iter().any(is)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was {}, now {}", self.place, self.known, self.now)
    }
}

impl std::fmt::Display for InitialWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InitialWeights::Seed => f.write_str("random"),
            InitialWeights::File { path, content, .. } => write!(f, "{} ({content})", path.display()),
        }
    }
}

fn of_fold(fold: &Fold) -> String {
    let names = |ids: &[String]| {
        let shown: Vec<&str> = ids.iter().take(3).map(String::as_str).collect();
        let more = if ids.len() > shown.len() { ", …" } else { "" };
        format!("{} ({}{more})", ids.len(), shown.join(", "))
    };
    format!("{} to train on, {} to validate with", names(&fold.train), names(&fold.val))
}

fn as_object(config: &RunConfig) -> Result<serde_json::Map<String, Value>, RunError> {
    let unwritable = |why: String| RunError::Unwritable { what: "the configuration".into(), why };
    match as_written(config) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(unwritable("it is no object".into())),
        Err(problem) => Err(unwritable(problem.to_string())),
    }
}

/// All places where two configurations differ.
fn differences(known: &RunConfig, now: &RunConfig) -> Result<Vec<Difference>, RunError> {
    let mut found = Vec::new();
    let (known, now) = (Value::Object(as_object(known)?), Value::Object(as_object(now)?));
    compare(&known, &now, String::new(), &mut found);
    Ok(found)
}

fn compare(known: &Value, now: &Value, place: String, found: &mut Vec<Difference>) {
    match (known, now) {
        (Value::Object(known), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<&String> = known.keys().chain(now.keys()).collect();
            for key in keys {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                let value = |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or(Value::Null);
                compare(&value(known), &value(now), place, found);
            }
        }
        _ if known == now => {}
        _ => found.push(Difference::new(place, known.to_string(), now.to_string())),
    }
}
