//! Why a run cannot be described, found or gone on with.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_data::LengthUnit;
use plimsoll_memory::{Bytes, MapError};
use plimsoll_nn::ConfigError;
use plimsoll_nn::weights::WeightError;
use plimsoll_plan::EngineError;

use crate::difference;
use crate::{FolderUse, SettingChange, WayOut};

/// Why a run cannot be described, found or gone on with.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration is impossible.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A weight file cannot be used.
    #[error("{0}")]
    Weights(#[from] WeightError),
    /// A weight file holds tensors that the network has no place for.
    #[error("{}: {count} tensors have no place in {network}: {names}", path.display())]
    Extra {
        /// The file.
        path: PathBuf,
        /// The network.
        network: String,
        /// Their number.
        count: usize,
        /// The first of them.
        names: String,
    },
    /// An engine refuses what a checkpoint holds.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Memory cannot be mapped.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// The limit is too low for the run.
    #[error(
        "the run needs {needed} even with all recomputation and the smallest micro-batch, but the limit is {limit}: {parts}"
    )]
    Infeasible {
        /// The least limit that would do.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
        /// The parts of the memory.
        parts: String,
        /// The changes that would make it fit.
        ways_out: Vec<WayOut>,
    },
    /// The limit of a device is too low for the run.
    #[error(
        "the run needs {needed} of the memory of {device} even with all recomputation and the smallest micro-batch, but its limit is \
         {limit}: {parts}"
    )]
    InfeasibleOnDevice {
        /// The device.
        device: String,
        /// The least limit that would do.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
        /// The parts of the memory.
        parts: String,
        /// The changes that would make it fit.
        ways_out: Vec<WayOut>,
    },
    /// A folder holds a run already.
    #[error("{} already holds a run", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder has another use.
    #[error("{} holds {found}, so it cannot also hold {wanted}", folder.display())]
    OtherUse {
        /// The folder.
        folder: PathBuf,
        /// Its use.
        found: FolderUse,
        /// The use that it was to have.
        wanted: FolderUse,
    },
    /// There is no run to resume.
    #[error("there is no run to resume: {} does not exist", specification.display())]
    NothingToResume {
        /// The specification that a run would have.
        specification: PathBuf,
    },
    /// The request differs from the settings that a run began with.
    #[error("{} is a run with other settings: {}", folder.display(), difference::one_line(changes))]
    OtherSpecification {
        /// The folder.
        folder: PathBuf,
        /// All settings that differ, with both values.
        changes: Vec<SettingChange>,
    },
    /// Settings that cannot change when a run resumes are others than when it began.
    #[error("{} is a run with other settings: {}", folder.display(), difference::one_line(changes))]
    FixedSettings {
        /// The folder.
        folder: PathBuf,
        /// All of these settings, with both values.
        changes: Vec<SettingChange>,
    },
    /// The data set has other channels or classes than when a run began, so that no network fits both.
    #[error("{} was started with other data: {}", folder.display(), difference::one_line(changes))]
    OtherData {
        /// The folder.
        folder: PathBuf,
        /// The numbers that differ, with both values.
        changes: Vec<SettingChange>,
    },
    /// A run was written by an older program, or by a newer one.
    #[error(
        "{} has the run version {}, but this program reads version {expected}",
        path.display(),
        found.map_or("none".into(), |version| version.to_string())
    )]
    OtherVersion {
        /// The file that says so.
        path: PathBuf,
        /// The version of the file; `None` if it has none.
        found: Option<u64>,
        /// The version that this program reads.
        expected: u32,
    },
    /// The same settings make other programs than when a run was begun.
    #[error("{} was started by a version of this program with other numerical results", folder.display())]
    OtherPrograms {
        /// The folder.
        folder: PathBuf,
    },
    /// The data of a run is not what it was.
    #[error("{} was started with other data; changed since: {}", folder.display(), changed.join(", "))]
    ChangedData {
        /// The folder.
        folder: PathBuf,
        /// Cases, and what else.
        changed: Vec<String>,
    },
    /// The data set has cases that were not there when a run was begun, and that none of its folds has.
    #[error("{} was started without these cases, which are in none of its folds: {}", folder.display(), cases.join(", "))]
    NewCases {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        cases: Vec<String>,
    },
    /// Cases that are to be included have come when all folds were begun.
    #[error("{} has started all its folds without these cases: {}", folder.display(), cases.join(", "))]
    AllFoldsBegun {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        cases: Vec<String>,
    },
    /// A sweep was begun without cases that the data set has now.
    #[error("the sweep {} was started without these cases, which are in none of its folds: {}", folder.display(), cases.join(", "))]
    NewCasesOfSweep {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        cases: Vec<String>,
    },
    /// The data set no longer has cases of a run's folds.
    #[error("{} was started with cases that the data set no longer has: {}", folder.display(), cases.join(", "))]
    LostCases {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        cases: Vec<String>,
    },
    /// The file of initial weights is not what it was.
    #[error("{} is not the file that the run was started with: its contents differ", path.display())]
    OtherWeights {
        /// The file.
        path: PathBuf,
    },
    /// A network has no encoder that nnssl pre-trains.
    #[error("{network} cannot start from a pre-trained encoder, which is one of plain or resenc on volumes")]
    NoEncoder {
        /// The network.
        network: String,
    },
    /// A pre-trained encoder is of other image channels.
    #[error(
        "{}: it was pre-trained on {found} image channels, but the images have {images}: only the weights of one channel can be repeated",
        path.display()
    )]
    StartChannels {
        /// The file.
        path: PathBuf,
        /// Channels of the pre-training.
        found: usize,
        /// Channels of the images.
        images: usize,
    },
    /// A pre-trained encoder has another topology that cannot be adapted.
    #[error("{}: `{name}` is {found}, which cannot be adapted to {needed}", path.display())]
    OtherTopology {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape or its absence.
        found: String,
        /// The shape or the network that is needed.
        needed: String,
    },
    /// A run is to end before where it is.
    #[error("{done} epochs are already finished, but `epochs` is {epochs}")]
    Shortened {
        /// The requested number of epochs.
        epochs: u64,
        /// Epochs that are done or begun.
        done: u64,
    },
    /// A model has another task than the requested one.
    #[error("the model {is}, but one that {must} is needed")]
    OtherTask {
        /// The task of the model.
        is: &'static str,
        /// The requested task.
        must: &'static str,
    },
    /// The images have other channels than the model whose plans are adopted.
    #[error("the images have {found} channel(s), but the model that plans are taken from has {expected}")]
    OtherChannels {
        /// The number of channels of the images.
        found: usize,
        /// The number of channels of the model.
        expected: usize,
    },
    /// Another process trains a fold.
    #[error("{} is being trained by {holder}", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// Who.
        holder: String,
    },
    /// A name that no fold has.
    #[error("`{found}` is not a fold")]
    NoFold {
        /// The name.
        found: String,
    },
    /// A spacing that is so far from the images' spacing that its unit must be wrong.
    #[error(
        "`spacing` is {found} mm, but the median of the data set is {median} mm: they are {:.0} times apart",
        if *times > 1.0 { *times } else { 1.0 / times }
    )]
    FarSpacing {
        /// The set spacing.
        found: String,
        /// The median.
        median: String,
        /// The ratio to the median.
        times: f64,
        /// The unit that may have been meant.
        meant: Option<LengthUnit>,
    },
    /// A case of a fold is not among the valid cases.
    #[error("case {case} of the fold is not among the valid cases")]
    UnknownCase {
        /// The case.
        case: String,
    },
    /// A checkpoint is not one of this run.
    #[error("{} is not a checkpoint of this run: {why}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// No checkpoint of a run can be used.
    #[error("no checkpoint in {} can be used: {}", folder.display(), all(damaged))]
    NoSoundCheckpoint {
        /// The folder.
        folder: PathBuf,
        /// The faults of each.
        damaged: Vec<RunError>,
    },
    /// Weights or moments are no longer numbers.
    #[error(
        "after step {steps} `{tensor}` has values that are not finite, so no checkpoint of it is written"
    )]
    NotFinite {
        /// Which.
        tensor: String,
        /// Steps done.
        steps: u64,
    },
    /// Checkpoints that were written are gone.
    #[error("{} has no checkpoint left, although {steps} steps were saved", folder.display())]
    LostCheckpoints {
        /// The folder.
        folder: PathBuf,
        /// Up to which step.
        steps: u64,
    },
    /// A file of a sweep, or of settings that it is based on, says something else.
    #[error("{}: {what}", path.display())]
    Sweep {
        /// The file.
        path: PathBuf,
        /// The description of the fault.
        what: String,
    },
    /// A file of a run is damaged.
    #[error("{} is invalid: {why}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The description of the fault.
        why: String,
    },
    /// Something cannot be written as JSON: a fault of this program.
    #[error("{what} cannot be written: {why}")]
    Unwritable {
        /// The kind of file.
        what: String,
        /// Why.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl RunError {
    pub(crate) fn io(path: &Path, source: io::Error) -> RunError {
        RunError::Io { path: path.into(), source }
    }

    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<String> {
        match self {
            RunError::Config(error) => error.remedy(),
            RunError::Weights(error) => error.remedy(),
            RunError::Extra { .. } => Some(
                "set the network of the weights (features, convolutions of each stage), or leave these tensors out with ‹allow_extra›"
                    .into(),
            ),
            RunError::Infeasible { ways_out, .. } | RunError::InfeasibleOnDevice { ways_out, .. } => {
                let ways: Vec<String> = ways_out.iter().map(ToString::to_string).collect();
                Some(format!("it would fit with {}", ways.join(", or "))).filter(|_| !ways_out.is_empty())
            }
            RunError::Engine(error) => error.remedy(),
            RunError::Occupied { .. } => {
                Some("add ‹resume› to continue it, or choose another folder with ‹out›".into())
            }
            RunError::OtherUse { found: FolderUse::Pairs, wanted: FolderUse::Classification, .. } => Some(
                "add ‹one_vs_one› ‹resume› to continue the pairs, or choose another folder with ‹out›".into(),
            ),
            RunError::OtherUse { found, wanted: FolderUse::Predictions, .. } => Some(match found {
                FolderUse::Predictions => "this is a bug: report it with the command and this message".into(),
                _ => "choose another folder for the labels with ‹output›".into(),
            }),
            RunError::OtherUse { .. } => Some("choose another folder with ‹out›".into()),
            RunError::NothingToResume { .. } => {
                Some("leave ‹resume› out to start one, or name its folder with ‹out›".into())
            }
            RunError::OtherSpecification { .. } => {
                Some("leave these settings out to continue as started, or start another run with ‹out›".into())
            }
            RunError::FixedSettings { .. } => Some(
                "leave these settings out to continue as started, or start another run with ‹out›; only `epochs`, learning rates and \
                 their `decay`, weights and steps of components of the loss, `bad_numbers` and `early_stopping` may change"
                    .into(),
            ),
            RunError::OtherData { .. } => {
                Some("restore the data set, or start another run with ‹out›".into())
            }
            RunError::OtherVersion { .. } => Some(
                "use the version that wrote it, whose ‹job models export› writes the model of the run into one file; or train it again \
                 with ‹out›"
                    .into(),
            ),
            RunError::OtherPrograms { .. } => {
                Some("continue with the version that started it (see `start` in events.jsonl), or start another run".into())
            }
            RunError::ChangedData { .. } => Some(
                "restore the data; or add ‹accept_changed_data› to continue with the present data, which the run records".into(),
            ),
            RunError::NewCases { .. } => Some(
                "add ‹new_cases=include› to train and validate them in folds that have not started, or ‹new_cases=leave-out› to continue \
                 without them"
                    .into(),
            ),
            RunError::AllFoldsBegun { .. } => Some(
                "start another run with ‹out›, or add ‹new_cases=leave-out› to continue without them".into(),
            ),
            RunError::NewCasesOfSweep { .. } => {
                Some("start another sweep with ‹out›, or move these cases out of the data set".into())
            }
            RunError::LostCases { .. } => Some(
                "restore them; or add ‹accept_changed_data› to remove them from the folds that have not started".into(),
            ),
            RunError::OtherWeights { .. } => {
                Some("restore the file, or start another run with ‹out›".into())
            }
            RunError::NoEncoder { .. } | RunError::OtherTopology { .. } => {
                Some("adopt the network of the pre-training with ‹adopt=topology›, without settings of the network".into())
            }
            RunError::StartChannels { .. } => {
                Some("take a start that was pre-trained on one channel, or on as many as the images have".into())
            }
            RunError::Shortened { done, .. } => Some(format!("set ‹epochs={done}› or more")),
            RunError::OtherTask { .. } => Some("name the folder of a run of that kind".into()),
            RunError::OtherChannels { .. } => Some("take the plans of a model with the same channels".into()),
            RunError::Locked { .. } => {
                Some("wait for it (‹job status› shows its progress), end it, or choose another ‹out›".into())
            }
            RunError::NoFold { .. } => Some("folds are 0, 1, 2, … or `all`".into()),
            RunError::FarSpacing { found, meant: Some(unit), .. } => {
                let short = if *unit == LengthUnit::Micrometre { "um" } else { "m" };
                Some(format!(
                    "is the unit {unit}? Then give ‹spacing={}{short}›; if headers are wrong, ‹unit› um, mm or m sets the unit of their numbers",
                    found.replace(", ", ",")
                ))
            }
            RunError::FarSpacing { .. } => Some(
                "check the spacing, which is in millimetres (5,1,1um is in micrometres), and the headers with ‹job inspect›"
                    .into(),
            ),
            RunError::UnknownCase { .. } => {
                Some("run ‹job inspect› to see the case's problems; repair it, or remove it from the fold".into())
            }
            RunError::Checkpoint { .. } | RunError::Json { .. } => {
                Some("restore the file from a copy, or start another run with ‹out›".into())
            }
            RunError::NotFinite { .. } => Some(
                "lower ‹learning_rate›; the last checkpoint is from before that, and ‹resume› continues from it".into(),
            ),
            RunError::NoSoundCheckpoint { folder, .. } | RunError::LostCheckpoints { folder, .. } => Some(format!(
                "restore one from a copy; or remove {} and give the same command without ‹resume› to start again",
                folder.display()
            )),
            RunError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("choose a writable folder with ‹out›".into())
            }
            RunError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free space on the disk, then ‹resume›".into())
            }
            RunError::Io { source, .. } if source.kind() == io::ErrorKind::FileTooLarge => {
                Some("raise the limit of file sizes (`ulimit -f`), then ‹resume›".into())
            }
            RunError::Sweep { .. } => Some(
                "‹job settings› lists the settings, and docs/sweeps.md explains the file of a sweep".into(),
            ),
            RunError::Memory(error) => Some(error.remedy()),
            RunError::Unwritable { .. } | RunError::Io { .. } => None,
        }
    }
}

/// Several errors in one line.
fn all(errors: &[RunError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// An error with its causes in one line. A cause that repeats the text before it is left out.
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    printable(&line).replace(['\n', '\t'], " ")
}

/// A text of a file from elsewhere as it is shown: all control characters but ends of lines and tabs are replaced (U+FFFD), since a
/// terminal would do what they say.
pub fn printable(text: &str) -> String {
    let replaced = |character: char| match character {
        '\n' | '\t' => character,
        control if control.is_control() => char::REPLACEMENT_CHARACTER,
        other => other,
    };
    text.chars().map(replaced).collect()
}
