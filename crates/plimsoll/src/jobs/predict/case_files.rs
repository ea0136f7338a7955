//! A case with the files that predicting it reads and writes.

use std::path::PathBuf;

use plimsoll_data::Case;
use plimsoll_infer::{CaseRequest, Destination};

/// A case of a plan, and the files that would be made of it.
pub(in crate::jobs) struct CaseFiles {
    pub(in crate::jobs) case: Case,
    pub(in crate::jobs) earlier: Option<PathBuf>,
    pub(in crate::jobs) labels: PathBuf,
    pub(in crate::jobs) probabilities: Option<PathBuf>,
}

impl CaseFiles {
    /// The files of a case whose labels go to a destination.
    pub(in crate::jobs) fn new(case: Case, to: &Destination) -> CaseFiles {
        let (earlier, labels, probabilities) = (to.earlier(&case), to.file(&case), to.probabilities(&case));
        CaseFiles { case, earlier, labels, probabilities }
    }

    pub(in crate::jobs) fn request(&self) -> CaseRequest<'_> {
        CaseRequest {
            case: &self.case,
            earlier: self.earlier.as_deref(),
            within: None,
            labels: &self.labels,
            probabilities: self.probabilities.as_deref(),
        }
    }
}
