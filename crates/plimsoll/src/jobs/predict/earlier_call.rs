//! The calls that predicted existing labels.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call that predicts cases.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Call {
    /// The folds of weights that it averages.
    pub(super) folds: usize,
    /// The backend and its instruction set.
    pub(super) engine: String,
    /// Threads that compute.
    pub(super) threads: usize,
}

/// The record of an earlier call about a case that it predicted, and about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierCall {
    pub folds: Value,
    pub engine: Value,
    pub threads: Value,
    /// The case's entry in the `cases` of that call.
    pub predicted: Value,
}

impl EarlierCall {
    /// The name of the case.
    pub(super) fn case(&self) -> Option<&str> {
        self.predicted["case"].as_str()
    }
}
