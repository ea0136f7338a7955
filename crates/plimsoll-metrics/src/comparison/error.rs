//! Why candidates cannot be compared.

use plimsoll_memory::{MapError, OverBudget};

use crate::classification::TableError;
use crate::{Group, Metric};

/// Why candidates cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// There are not two of them.
    #[error("{found} candidate to compare, but at least two are needed")]
    TooFew {
        /// The number found.
        found: usize,
    },
    /// Two have the same name.
    #[error("two candidates are called {name}")]
    SameName {
        /// Their name.
        name: String,
    },
    /// Two summaries of a repeat have the same case.
    #[error("{candidate} has the case {case} twice")]
    CaseTwice {
        /// Whose they are.
        candidate: String,
        /// The case.
        case: String,
    },
    /// A case has no name.
    #[error("{candidate} has a case whose prediction has no file name")]
    NoName {
        /// Whose it is.
        candidate: String,
    },
    /// Other classes are scored.
    #[error("{one} has scores of the classes {}, but {other} of {}", list(classes), list(others))]
    Classes {
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The classes of the one.
        classes: Vec<u8>,
        /// Those of the other.
        others: Vec<u8>,
    },
    /// The same score has another meaning.
    #[error("{one} and {other} were scored with another {what}")]
    Parameters {
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The parameter that differs.
        what: &'static str,
    },
    /// Not all candidates have the same cases.
    #[error("{} of {all} cases are missing for some candidates: {}", missing.len(), first(missing))]
    MissingCases {
        /// Cases of all candidates together.
        all: usize,
        /// Each with the first candidate that lacks it.
        missing: Vec<(String, String)>,
    },
    /// No case is there for all candidates.
    #[error("no case has scores of all candidates: {}", first(missing))]
    NoCommonCases {
        /// Each with the first candidate that lacks it.
        missing: Vec<(String, String)>,
    },
    /// Candidates were scored against other references.
    #[error(
        "the references of {case} differ: class {class} has {} voxels for {one}, and {} for {other}",
        voxels[0], voxels[1]
    )]
    OtherReference {
        /// The case.
        case: String,
        /// The class.
        class: u8,
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The value of each candidate.
        voxels: [f64; 2],
    },
    /// Candidates were scored on other voxels: with another ignored label, or on another grid.
    #[error("{} voxels of {case} are counted for {one}, but {} for {other}", voxels[0], voxels[1])]
    OtherVoxels {
        /// The case.
        case: String,
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The voxels that are counted for each.
        voxels: [f64; 2],
    },
    /// A missing distance cannot be replaced by the diagonal of the image.
    #[error("{candidate} has no {} of {case}, and its scores do not state the size of the image", metric.name())]
    NoDiagonal {
        /// The candidate.
        candidate: String,
        /// The case.
        case: String,
        /// The score.
        metric: Metric,
    },
    /// A candidate does not have a score in all cases.
    #[error("{candidate} does not have {} of all cases; it has {}", metric.name(), names(known))]
    NoScore {
        /// A candidate.
        candidate: String,
        /// The requested item.
        metric: Metric,
        /// The available scores.
        known: Vec<Metric>,
    },
    /// The requested score is a count.
    #[error("{} is a count of voxels, where neither more nor fewer is better", metric.name())]
    Count {
        /// The requested item.
        metric: Metric,
    },
    /// The requested class is not scored.
    #[error("class {class} is not scored; these are: {}", list(known))]
    NoClass {
        /// The requested item.
        class: u8,
        /// The available items.
        known: Vec<u8>,
    },
    /// Classifiers know other classes.
    #[error("{one} has the classes {}, but {other} has {}", classes.join(", "), others.join(", "))]
    ClassNames {
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The classes of the one.
        classes: Vec<String>,
        /// Those of the other.
        others: Vec<String>,
    },
    /// Images are of one class for one candidate, and of several for another.
    #[error("the images of one of {one} and {other} have one class each, of the other any number of labels")]
    Labelling {
        /// A candidate.
        one: String,
        /// Another.
        other: String,
    },
    /// An image has other labels.
    #[error("the labels of {case} differ: {} for {one}, and {} for {other}", label(&labels[0]), label(&labels[1]))]
    OtherLabel {
        /// The image.
        case: String,
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The value of each candidate.
        labels: [String; 2],
    },
    /// Classifiers do not have such a score.
    #[error("classifiers of this kind have no {score}")]
    NoImageScore {
        /// The requested item.
        score: &'static str,
    },
    /// The requested class is unknown to the classifiers.
    #[error("there is no class {class}; these are: {}", known.join(", "))]
    NoClassNamed {
        /// The requested item.
        class: String,
        /// The available items.
        known: Vec<String>,
    },
    /// Two candidates of an ensemble were trained differently often.
    #[error("{one} was trained {} times and {other} {} times: it is ambiguous which to average", repeats[0], repeats[1])]
    Repeats {
        /// A candidate.
        one: String,
        /// Another.
        other: String,
        /// The number of repeats of each.
        repeats: [usize; 2],
    },
    /// A table of what a classifier says cannot be used.
    #[error("{0}")]
    Table(#[from] TableError),
    /// There is no memory for the resamples.
    #[error("{0}")]
    Memory(#[from] MapError),
}

impl From<OverBudget> for ComparisonError {
    fn from(error: OverBudget) -> ComparisonError {
        ComparisonError::Memory(error.into())
    }
}

impl ComparisonError {
    /// Returns a remedy.
    pub fn remedy(&self) -> Option<String> {
        let hint = match self {
            ComparisonError::TooFew { .. } => {
                "name another run of the same data set, or a sweep of several arms"
            }
            ComparisonError::Repeats { .. } => {
                "compare candidates with the same seeds, or leave out ‹ensembles›"
            }
            ComparisonError::SameName { .. } => "name each candidate once, by folders of different names",
            ComparisonError::CaseTwice { .. } => {
                "the folds of a cross-validation share no validation case: name one fold, like RUN/fold_0"
            }
            ComparisonError::NoName { .. } => "score the predictions again with ‹job evaluate›",
            ComparisonError::Classes { .. } => {
                "compare runs of the same data set, or score the same classes with ‹job evaluate› and ‹labels›"
            }
            ComparisonError::Parameters { .. } => {
                "score both again with the same ‹surface›, ‹tolerance› and ‹lesion_overlap› of ‹job evaluate›"
            }
            ComparisonError::MissingCases { .. } => {
                "validate the same folds with all candidates; ‹common_cases› compares the cases that all have"
            }
            ComparisonError::NoCommonCases { .. } => {
                "compare runs of the same data set that validated the same folds"
            }
            ComparisonError::OtherReference { .. } => {
                "compare candidates that were scored against the same references"
            }
            ComparisonError::OtherVoxels { .. } => {
                "score both with ‹job evaluate› against the same references, with the same ignored label"
            }
            ComparisonError::NoDiagonal { .. } => {
                "score the predictions with ‹job evaluate›, which records the size; or use ‹missing=worst›"
            }
            ComparisonError::NoScore { metric, .. } => {
                // Existing scores are replaced, so that scores of overlap are requested again.
                let groups = match metric.group() {
                    Group::Overlap => "overlap",
                    Group::Surface => "overlap,surface",
                    Group::Topology => "overlap,topology",
                    Group::Lesion => "overlap,lesion",
                };
                return Some(format!(
                    "‹job evaluate RUN/fold_0/validation LABELS +partial +metrics={groups}› adds it, fold by fold"
                ));
            }
            ComparisonError::Count { .. } => "choose a score, like dice",
            ComparisonError::NoClass { .. } | ComparisonError::NoClassNamed { .. } => "name one of these",
            ComparisonError::ClassNames { .. } | ComparisonError::Labelling { .. } => {
                "compare classifiers of the same data set, with the same classes in the same order"
            }
            ComparisonError::OtherLabel { .. } => "compare classifiers of the same images and labels",
            ComparisonError::NoImageScore { .. } => {
                "accuracy and auroc exist for all; kappa and averages over classes only if each image has one class"
            }
            ComparisonError::Table(error) => return error.remedy(),
            ComparisonError::Memory(error) => {
                return Some(format!("{}, or draw fewer ‹resamples›", error.remedy()));
            }
        };
        Some(hint.into())
    }
}

/// A label as messages show it.
fn label(label: &str) -> &str {
    if label.is_empty() { "none" } else { label }
}

fn list(classes: &[u8]) -> String {
    classes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

fn names(metrics: &[Metric]) -> String {
    metrics.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ")
}

/// The first cases with who lacks them.
fn first(missing: &[(String, String)]) -> String {
    const SHOWN: usize = 5;
    let shown = missing.iter().take(SHOWN).map(|(case, who)| format!("{case} ({who} lacks it)"));
    let more = (missing.len() > SHOWN).then(|| format!("and {} more", missing.len() - SHOWN));
    shown.chain(more).collect::<Vec<_>>().join(", ")
}
