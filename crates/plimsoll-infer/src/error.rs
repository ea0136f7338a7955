//! Why a case cannot be predicted.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::{Case, DatasetError, InspectError, NoStatistics, PatchError, PrepareError, Problem};
use plimsoll_memory::{Bytes, MapError, OverBudget};
use plimsoll_nn::ConfigError;
use plimsoll_plan::{EngineError, PlanError};
use plimsoll_run::RunError;
use plimsoll_volume::{GeometryDifference, VolumeError};

use crate::located::LocatedFault;
use crate::options::RingStorage;

/// Why a case cannot be predicted.
#[derive(Debug, thiserror::Error)]
pub enum InferError {
    /// The run has no configuration that can be read.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The configuration is impossible.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The description of a model contradicts its network.
    #[error(
        "the network takes {} channels and has {} outputs, but its data have {} channels and its labels ask for {} outputs",
        found.0,
        found.1,
        expected.0,
        expected.1
    )]
    OtherNetwork {
        /// Channels and outputs that follow from the data and the labels.
        expected: (usize, usize),
        /// Those of the network.
        found: (usize, usize),
    },
    /// The program cannot be planned.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// No engine can run the plan.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Images cannot be brought to the size of the model.
    #[error("{0}")]
    Images(#[from] plimsoll_data::pictures::SettingError),
    /// An image cannot be read.
    #[error("{0}")]
    Image(#[from] plimsoll_image::ImageError),
    /// The files of a case are not those that the model needs.
    #[error("{0}")]
    Files(#[source] Box<DatasetError>),
    /// A case's images cannot be inspected.
    #[error("{0}")]
    Inspect(#[from] InspectError),
    /// Resampled to the spacing at which it is seen, a case would have a shape that nobody can mean.
    #[error("{case}: {fault}")]
    Grid {
        /// The case.
        case: String,
        /// The numbers.
        fault: Box<GridFault>,
    },
    /// A case's images are not sound.
    #[error("{problem}")]
    Unsound {
        /// The first problem.
        problem: Box<Problem>,
    },
    /// A case has no image that can be read.
    #[error("{case} has no readable image")]
    Unreadable {
        /// The case.
        case: String,
    },
    /// Label maps of one image have other shapes than it.
    #[error("{}: the labels have shape {found:?}, but the image has {expected:?}", path.display())]
    OtherShape {
        /// The file.
        path: PathBuf,
        /// Its shape (depth, height, width) as stored.
        found: [usize; 3],
        /// The shape of the image.
        expected: [usize; 3],
    },
    /// A label map does not lie on the grid of the image whose intensities are measured in it.
    #[error("{} does not lie on the grid of {}: {difference}", path.display(), image.display())]
    OtherGrid {
        /// The label map.
        path: PathBuf,
        /// The image.
        image: PathBuf,
        /// The difference.
        difference: GeometryDifference,
    },
    /// Intensities of an image of several channels are to be measured.
    #[error("{}: intensities are measured in images of one channel, but it has {channels}", path.display())]
    SeveralChannels {
        /// The image.
        path: PathBuf,
        /// Its channels.
        channels: usize,
    },
    /// A channel cannot be normalised.
    #[error("{case}: {source}")]
    Normalisation {
        /// The case.
        case: String,
        /// Why.
        source: NoStatistics,
    },
    /// A case cannot be prepared as its model was trained to see it.
    #[error("{case}: {source}")]
    Prepare {
        /// The case.
        case: String,
        /// Why.
        source: Box<PrepareError>,
    },
    /// A model of two networks cannot mark a case.
    #[error("{case}: {source}")]
    Located {
        /// The case.
        case: String,
        /// Why.
        source: LocatedFault,
    },
    /// Probabilities cannot be written, or cannot be read back.
    #[error("the probabilities in {}: {source}", path.display())]
    Probabilities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Labels or probabilities of a case that wait for being put in order cannot be kept.
    #[error(
        "{bytes} of temporary {} cannot be written beside {}: {source}",
        if *labels { "labels" } else { "probabilities" },
        path.display()
    )]
    Spool {
        /// The file beside which they wait.
        path: PathBuf,
        /// Bytes of all of them.
        bytes: Bytes,
        /// `true` if it is labels, which wait in memory where the limit has room for them. Probabilities never do.
        labels: bool,
        /// Why.
        source: io::Error,
    },
    /// A window cannot be pulled.
    #[error("{0}")]
    Patch(#[from] PatchError),
    /// Features were to be summed in place of logits.
    #[error("{model}: features cannot be summed in place of logits: {why}")]
    NoFeatures {
        /// The weights of the model, or of its first fold.
        model: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// The network's output is no number, or beyond all that a sum of windows can hold.
    #[error(
        "{case}: the network's output is not finite in the window at voxel {start:?} of the resampled image: the weights of {}, or the \
         values of the image, are not finite or far too large",
        weights.display()
    )]
    NotFinite {
        /// The case.
        case: String,
        /// The weights that were applied.
        weights: PathBuf,
        /// The start of the window along the axes of the network.
        start: [usize; 3],
        /// The type in which sums are stored: half precision refuses logits beyond its range.
        ring: RingStorage,
        /// The flag with which features are stored as f32; none where they are, or nothing does that.
        in_f32: Option<&'static str>,
    },
    /// Labels cannot be written.
    #[error("{0}")]
    Write(#[source] VolumeError),
    /// A file cannot be read.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// Memory is refused.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// Memory that was planned for is not there.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// The memory limit is below what the process itself needs.
    #[error("the process itself needs {}, but the limit is {}", .0.needed, .0.limit)]
    Overhead(OverBudget),
    /// The limit is too low for a case.
    #[error("{case} needs {needed}, but the limit is {limit}: {parts}")]
    Infeasible {
        /// The case.
        case: String,
        /// The least limit that would do.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
        /// The parts that need it.
        parts: String,
        /// Alternatives that would need less.
        alternatives: Vec<Alternative>,
    },
    /// The limit has no room for this number of windows at once, before any case is looked at.
    #[error("{windows} windows at once: {source}")]
    WindowBatch {
        /// The number of windows.
        windows: usize,
        /// Why not.
        source: MapError,
    },
    /// The limit of a device is too low for the model.
    #[error("the model needs {needed} of the device's memory, but its limit is {limit}")]
    InfeasibleOnDevice {
        /// The least limit that would do.
        needed: Bytes,
        /// The limit.
        limit: Bytes,
        /// Windows that the network takes at once.
        windows: usize,
    },
    /// Labels would replace an image that they are predicted from.
    #[error("the labels of {case} would replace an image, {}", image.display())]
    ReplacesImage {
        /// The case.
        case: String,
        /// The image.
        image: PathBuf,
    },
    /// It was interrupted.
    #[error("interrupted while predicting {case}; nothing was written for it")]
    Interrupted {
        /// The case.
        case: String,
    },
}

impl InferError {
    /// Returns `true` if other cases may well be predicted: the fault is in what belongs to this case alone, not in the model, the
    /// backend or the disk that labels are written to.
    pub fn is_of_one_case(&self) -> bool {
        match self {
            InferError::Inspect(error) => !matches!(error, InspectError::Stopped),
            InferError::Write(error) => !matches!(error, VolumeError::Io { .. }),
            InferError::Prepare { source, .. } => match &**source {
                PrepareError::Transposed { .. } | PrepareError::Cubic { .. } => false,
                PrepareError::Volume(error) | PrepareError::Patch(PatchError::Volume(error)) => {
                    !is_of_output(error)
                }
                _ => true,
            },
            InferError::Patch(PatchError::Volume(error)) | InferError::Volume(error) => !is_of_output(error),
            InferError::Files(_)
            | InferError::Grid { .. }
            | InferError::Unsound { .. }
            | InferError::Unreadable { .. }
            | InferError::OtherShape { .. }
            | InferError::OtherGrid { .. }
            | InferError::SeveralChannels { .. }
            | InferError::Normalisation { .. }
            | InferError::Located { .. }
            | InferError::NotFinite { .. }
            | InferError::Image(_)
            | InferError::Patch(_)
            | InferError::Memory(_)
            | InferError::OverBudget(_)
            | InferError::Infeasible { .. } => true,
            InferError::Run(_)
            | InferError::Overhead(_)
            | InferError::Probabilities { .. }
            | InferError::Spool { .. }
            | InferError::Config(_)
            | InferError::OtherNetwork { .. }
            | InferError::NoFeatures { .. }
            | InferError::Images(_)
            | InferError::Plan(_)
            | InferError::Engine(_)
            | InferError::WindowBatch { .. }
            | InferError::InfeasibleOnDevice { .. }
            | InferError::ReplacesImage { .. }
            | InferError::Interrupted { .. } => false,
        }
    }

    /// Returns a remedy.
    pub fn remedy(&self) -> Option<String> {
        match self {
            InferError::Run(error) => error.remedy(),
            InferError::Config(error) => error.remedy(),
            InferError::Images(error) => error.remedy(),
            InferError::Image(error) => error.remedy(),
            InferError::Files(error) => error.remedy(),
            InferError::Inspect(error) => error.remedy(),
            InferError::Unsound { problem } => problem.hint.clone(),
            InferError::Normalisation { source, .. } => source.remedy(),
            InferError::Prepare { source, .. } => source.remedy(),
            InferError::Located { source, .. } => Some(source.remedy().into()),
            InferError::Probabilities { source, .. } => Some(match source.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    "predict the case again with probabilities, from the same images".into()
                }
                _ => "check that the file exists and the disk has room".into(),
            }),
            InferError::Spool { bytes, labels, source, .. } => Some(match source.kind() {
                io::ErrorKind::NotFound => "check the path of the output".into(),
                io::ErrorKind::PermissionDenied => "check the permissions".into(),
                kind => {
                    let free = match kind {
                        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                            format!("free {bytes} on that disk, or ")
                        }
                        io::ErrorKind::FileTooLarge => {
                            "raise the limit of file sizes (`ulimit -f`), or ".into()
                        }
                        _ => String::new(),
                    };
                    let in_memory =
                        if *labels { ", or raise ‹ram›, so that labels wait in memory" } else { "" };
                    format!("{free}write to another disk{in_memory}")
                }
            }),
            InferError::Patch(error) => error.remedy(),
            InferError::Volume(error) | InferError::Write(error) => error.remedy(),
            InferError::Grid { .. } => Some(
                "check the spacing in the file: it is probably damaged, or in other units than the file says, which ‹unit› um, mm or \
                 m corrects"
                    .into(),
            ),
            InferError::NotFinite { ring, in_f32, .. } => {
                let hint = match ring {
                    RingStorage::F16 => {
                        "sums in half precision hold numbers up to 65000: predict with ‹ring=f32›, and if that fails too, with \
                         another checkpoint"
                    }
                    RingStorage::F32 => {
                        "if this happens for every case, the weights are damaged: predict with another checkpoint, such as \
                         ‹checkpoint=best›; if for this case alone, check the range of its values"
                    }
                };
                Some(match in_f32 {
                    Some(flag) => {
                        format!("{hint}; features are stored in 16 bits: {flag} stores them as f32")
                    }
                    None => hint.into(),
                })
            }
            InferError::Infeasible { needed, limit, alternatives, .. } => {
                let mib = |bytes: &Bytes| bytes.0.div_ceil(1 << 20);
                let mut hint = format!("raise the limit to ‹ram={}MiB›", mib(needed));
                for Alternative { setting, needed } in alternatives {
                    hint += &match needed <= limit {
                        true => format!(", or add {setting}, with which {}MiB suffice", mib(needed)),
                        false => format!(", or to ‹ram={}MiB› with {setting}", mib(needed)),
                    };
                }
                Some(hint)
            }
            InferError::OtherShape { .. } | InferError::OtherGrid { .. } => {
                Some("give it labels that were predicted from this image".into())
            }
            InferError::SeveralChannels { .. } => Some("name an image with one of its channels".into()),
            InferError::ReplacesImage { .. } => Some("write the labels to another folder".into()),
            InferError::Memory(error) => Some(error.remedy()),
            InferError::OverBudget(error) => Some(error.remedy()),
            InferError::Overhead(OverBudget { needed, .. }) => Some(format!(
                "raise ‹ram› above {} MiB, which the process needs without any image; the plan of ‹job predict› states the least limit \
                 of each case",
                needed.0.div_ceil(1 << 20)
            )),
            InferError::Interrupted { .. } => {
                Some("give the same command again: finished cases are kept, unless ‹overwrite› is given".into())
            }
            InferError::NoFeatures { .. } => Some("sum logits: ‹sum=logits›, or leave ‹sum› out".into()),
            InferError::OtherNetwork { .. } => {
                Some("the weights and the description of the data belong to different models".into())
            }
            InferError::WindowBatch { source, .. } => {
                Some(format!("{}, or give a smaller ‹window_batch›", source.remedy()))
            }
            InferError::InfeasibleOnDevice { needed, windows, .. } => {
                let fewer = if *windows > 1 { ", give a smaller ‹window_batch›" } else { "" };
                let mib = needed.0.div_ceil(1 << 20);
                Some(format!("raise the limit to ‹vram={mib}MiB›{fewer}, or predict with ‹device=cpu›"))
            }
            InferError::Plan(error) => error.remedy(),
            InferError::Engine(error) => error.remedy(),
            InferError::Unreadable { .. } => None,
        }
    }
}

/// Returns `true` if the disk of the output is at fault, which other cases need as well.
fn is_of_output(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Decompress { .. })
}

/// The grid of an image that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: its spacing is {spacing}; at {target} it would have {shape} voxels, but {limit}",
    file.display()
)]
pub struct GridFault {
    /// The image.
    pub file: PathBuf,
    /// Its spacing in millimetres (depth, height, width), along the axes of the network.
    pub spacing: String,
    /// The spacing that it would be brought to.
    pub target: String,
    /// The shape that the image would have.
    pub shape: String,
    /// The limit that this breaks.
    pub limit: &'static str,
}

/// An alternative with which a case would fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The setting and its value, such as `‹ring=f16›`.
    pub setting: &'static str,
    /// The least limit with this setting.
    pub needed: Bytes,
}

/// Checks that the prediction of a case was not interrupted.
pub(crate) fn check_going(case: &Case, stop: &AtomicBool) -> Result<(), InferError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(InferError::Interrupted { case: case.id.clone() }),
        false => Ok(()),
    }
}

/// Returns the error of a case without an image that can be read.
pub(crate) fn unreadable(case: &Case) -> InferError {
    InferError::Unreadable { case: case.id.clone() }
}

/// Returns the error of a fault of this crate.
pub(crate) fn internal(fault: &str) -> InferError {
    internal_engine(fault).into()
}

/// Returns the error of a fault of this crate, as an engine reports it.
pub(crate) fn internal_engine(fault: &str) -> EngineError {
    EngineError::Internal(fault.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_refuses_what_is_decompressed_beside_the_output_ends_all_cases() {
        let full = || VolumeError::Decompress {
            path: "image.nii.gz".into(),
            beside: "labels.nii.gz".into(),
            bytes: Bytes::mib(3),
            source: io::ErrorKind::StorageFull.into(),
        };
        let of_case = || VolumeError::Io {
            path: "image.nii.gz".into(),
            action: "read",
            source: io::ErrorKind::PermissionDenied.into(),
        };
        let all = |error: &dyn Fn() -> VolumeError| {
            let prepare =
                |source: PrepareError| InferError::Prepare { case: "a".into(), source: Box::new(source) };
            [
                InferError::Volume(error()),
                InferError::Patch(PatchError::Volume(error())),
                prepare(PrepareError::Volume(error())),
                prepare(PrepareError::Patch(PatchError::Volume(error()))),
            ]
        };
        assert!(all(&full).iter().all(|error| !error.is_of_one_case()));
        assert!(all(&of_case).iter().all(InferError::is_of_one_case));
        assert!(full().remedy().unwrap().contains("free 3"), "{:?}", full().remedy());
    }

    #[test]
    fn only_labels_that_wait_would_wait_in_memory_and_only_a_full_disk_is_to_be_freed() {
        let hint = |labels, kind: io::ErrorKind| {
            let (path, bytes) = ("labels.nii.gz".into(), Bytes::mib(3));
            InferError::Spool { path, bytes, labels, source: kind.into() }.remedy().unwrap()
        };
        for labels in [true, false] {
            assert_eq!(hint(labels, io::ErrorKind::StorageFull).contains("‹ram›"), labels);
            assert!(hint(labels, io::ErrorKind::StorageFull).starts_with("free 3"));
            assert!(!hint(labels, io::ErrorKind::PermissionDenied).contains("free"));
            let too_large = hint(labels, io::ErrorKind::FileTooLarge);
            assert!(too_large.contains("ulimit -f") && !too_large.contains("free"), "{too_large}");
            assert_eq!(hint(labels, io::ErrorKind::Other).contains("‹ram›"), labels);
        }
    }

    #[test]
    fn what_is_not_finite_is_predicted_in_f32_only_where_it_was_not() {
        for ring in RingStorage::ALL {
            let hint = |in_f32| {
                let (case, weights) = ("a".into(), "checkpoint".into());
                InferError::NotFinite { case, weights, start: [0; 3], ring, in_f32 }.remedy().unwrap()
            };
            assert!(
                hint(Some("‹precision=f32›")).ends_with(": ‹precision=f32› stores them as f32"),
                "{ring}"
            );
            assert!(!hint(None).contains("16 bits"), "{ring}");
        }
    }
}
