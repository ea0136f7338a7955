//! Problems of a case, as messages to the user.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The case cannot be used.
    Error,
    /// The case can be used, but something about it is unusual.
    Warning,
}

/// A problem of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The case.
    pub case: String,
    /// The file.
    pub file: PathBuf,
    /// The description, with the numbers.
    pub text: String,
    /// A remedy to suggest to the user.
    pub hint: Option<String>,
}

impl Problem {
    /// The memory that it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let texts = self.case.len() + self.file.as_os_str().len() + self.text.len();
        size_of::<Problem>() + texts + self.hint.as_ref().map_or(0, String::len)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Problem {
    /// The case, the file and the description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {}: ", self.case)?;
        let file = self.file.display().to_string();
        if !self.text.contains(&file) {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// Collects the problems of one case.
pub(crate) struct Problems {
    case: String,
    pub(crate) found: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(case: &str) -> Problems {
        Problems { case: case.into(), found: Vec::new() }
    }

    pub(crate) fn error(&mut self, file: &Path, text: String, hint: &str) {
        self.add(Severity::Error, file, text, Some(hint.into()));
    }

    pub(crate) fn warning(&mut self, file: &Path, text: String, hint: &str) {
        self.add(Severity::Warning, file, text, Some(hint.into()));
    }

    pub(crate) fn add(&mut self, severity: Severity, file: &Path, text: String, hint: Option<String>) {
        let (case, file) = (self.case.clone(), file.to_path_buf());
        self.found.push(Problem { severity, case, file, text, hint });
    }

    pub(crate) fn any_error(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }
}
