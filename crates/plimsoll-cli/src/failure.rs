//! A failed command: one line that says what is wrong, and one that says what to do.

use std::fmt;
use std::io;
use std::path::Path;

use plimsoll::Error;

/// The status of a process whose command failed.
const FAILED: u8 = 1;

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    line: String,
    hint: String,
    status: u8,
    /// `true` if the command only stopped because it was asked to.
    is_stopped: bool,
}

impl Failure {
    /// An error of the command line itself, with a remedy.
    pub fn new(message: impl fmt::Display, hint: impl Into<String>) -> Failure {
        Failure { line: message.to_string(), hint: hint.into(), status: FAILED, is_stopped: false }
    }

    /// The system's error about a file or a folder.
    pub fn at_path(path: &Path, error: &io::Error) -> Failure {
        Error::at_path(path, error).into()
    }

    /// A stopped command: the results that it has saved, and the way to continue.
    pub fn stopped(message: impl fmt::Display, hint: impl Into<String>) -> Failure {
        Failure { is_stopped: true, ..Failure::new(message, hint) }
    }

    /// The same after a signal: with the status of a process that the signal ended, and with its name if the command only stopped.
    pub fn with_signal(self, name: &str, status: u8) -> Failure {
        let line = match self.is_stopped {
            true => format!("{name}: {}", self.line),
            false => self.line,
        };
        Failure { line, status, ..self }
    }

    /// The same of one of several processes, which is named.
    pub fn named_for_process(self, name: &str) -> Failure {
        Failure { line: format!("{name}: {}", self.line), ..self }
    }

    /// The same with another status of the process.
    pub fn with_status(self, status: u8) -> Failure {
        Failure { status, ..self }
    }

    /// The status of the process.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Prints it to the standard error stream.
    pub fn print(&self) {
        eprintln!("error: {}\nhint: {}", self.line, self.hint);
    }

    /// The error in one line.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The remedy.
    pub fn remedy(&self) -> &str {
        &self.hint
    }
}

impl<E> From<E> for Failure
where
    Error: From<E>,
{
    fn from(error: E) -> Failure {
        let error = Error::from(error);
        Failure {
            line: error.line(),
            hint: error.remedy().clone().into(),
            status: FAILED,
            is_stopped: error.is_stopped(),
        }
    }
}
