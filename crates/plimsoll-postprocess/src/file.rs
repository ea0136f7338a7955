//! Steps as a file: TOML, or JSON of the same form.

use std::io::Write;
use std::path::Path;

use plimsoll_disk::atomic;
use serde::{Deserialize, Serialize};

use crate::{LabelGain, PostprocessError, Step};

/// The longest file that is read: steps of thousands of labels.
const LONGEST: u64 = 1 << 20;

/// Steps that are done on a label map, one after the other, and why.
///
/// ```toml
/// [[steps]]
/// step = "keep_largest"
/// labels = [1, 2]
///
/// [[steps]]
/// step = "drop_small"
/// labels = [3]
/// min_mm3 = 120.0
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postprocessing {
    /// The evidence for the steps, or `None` if a person wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    /// The steps. The key must be there, so that an empty or damaged file is not taken for one without steps.
    pub steps: Vec<Step>,
}

/// The evidence for chosen steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The number of predictions that were compared with their references.
    pub cases: usize,
    /// The folds that predicted them.
    pub folds: Vec<String>,
    /// The effect of the steps on each label.
    pub labels: Vec<LabelGain>,
}

impl Postprocessing {
    /// Reads `path`, of which `.json` is JSON, and all else TOML.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is longer than 1 MiB, or a step is impossible; the error names the line in TOML and JSON.
    pub fn read(path: &Path) -> Result<Postprocessing, PostprocessError> {
        let text = plimsoll_disk::read_to_string(path, LONGEST)
            .map_err(|source| PostprocessError::Io { path: path.into(), source })?;
        if is_json(path) {
            return serde_json::from_str(&text).map_err(|error| PostprocessError::Steps {
                path: path.into(),
                line: Some(error.line()),
                why: one_line(&error.to_string()),
            });
        }
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            PostprocessError::Steps {
                path: path.into(),
                line: before.map(|before| before.matches('\n').count() + 1),
                why: one_line(error.message()),
            }
        })
    }

    /// Writes it as TOML, whole or not at all.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), PostprocessError> {
        let text = toml::to_string(self).map_err(|error| PostprocessError::Steps {
            path: path.into(),
            line: None,
            why: one_line(&error.to_string()),
        })?;
        let written = atomic::write(path, |file: &mut dyn Write| file.write_all(text.as_bytes()));
        written.map_err(|source| PostprocessError::Io { path: path.into(), source })
    }
}

/// Returns `true` if a file of steps is JSON, by its name.
pub fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
