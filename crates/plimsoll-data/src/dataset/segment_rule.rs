//! The rule by which names in label maps become classes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rule by which the names that label maps give their values become classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SegmentRule {
    /// Not at all.
    By(SegmentsBy),
    /// By these names of classes, and others by their own.
    Names(BTreeMap<String, String>),
}

/// The alternative to names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentsBy {
    /// Values, which are the same in all files.
    Values,
}
