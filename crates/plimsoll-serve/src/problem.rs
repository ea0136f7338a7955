//! Errors of requests, as clients receive them.

use std::fmt;
use std::path::Path;

use axum::http::StatusCode;
use plimsoll::{Cause, Error};
use plimsoll_memory::Bytes;
use plimsoll_remedy::{Remedy, render};
use serde::Serialize;

use crate::wording::ServerWords;

/// An error of a request: a status, a line about the fault, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    pub(crate) hint: String,
    /// The least limit of the server with which the request would be accepted, if its limit is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) needed_ram_bytes: Option<Bytes>,
    /// The limit of the server, if it is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ram_limit_bytes: Option<Bytes>,
    /// Seconds after which the request may succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_seconds: Option<u64>,
}

impl Problem {
    /// An error with a remedy.
    pub(crate) fn new(status: StatusCode, error: impl fmt::Display, hint: impl Into<String>) -> Problem {
        Problem {
            status,
            error: error.to_string(),
            hint: hint.into(),
            needed_ram_bytes: None,
            ram_limit_bytes: None,
            retry_after_seconds: None,
        }
    }

    /// The service is ending.
    pub(crate) fn closing() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server is shutting down",
            "send the request again when it is back",
        )
    }

    /// A fault of this program.
    pub(crate) fn internal() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the prediction ended unexpectedly",
            "this is a bug: report it with the model and the kind of image; other requests are not affected",
        )
    }
}

/// Turns errors of jobs into problems of requests: with the words of the server, and without paths of its disk.
pub(crate) struct Translator<'a> {
    pub(crate) words: &'a ServerWords,
    pub(crate) limit: Bytes,
    /// The folder of the request, which messages do not name.
    pub(crate) folder: &'a Path,
}

impl Translator<'_> {
    /// Translates the error of a job.
    pub(crate) fn job(&self, error: &Error) -> Problem {
        let status = match error.cause() {
            Cause::Stopped { .. } => return Problem::closing(),
            Cause::Infer(error) if error.is_of_one_case() => StatusCode::UNPROCESSABLE_ENTITY,
            Cause::Dicom(_) | Cause::Dataset(_) | Cause::Volume(_) | Cause::Inspect(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Cause::File { kind: std::io::ErrorKind::StorageFull, .. } => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.text(status, &error.line(), error.remedy())
    }

    /// Translates the texts of an error of an image, in which parameters are marked.
    pub(crate) fn image(&self, line: &str, remedy: &str) -> Problem {
        self.text(StatusCode::UNPROCESSABLE_ENTITY, line, &Remedy::from(remedy))
    }

    /// Translates an error of a job for which the limit is too low, and one of `needed` bytes suffices.
    pub(crate) fn limit(&self, error: &Error, needed: Bytes) -> Problem {
        let mib = needed.0.div_ceil(1 << 20);
        let remedy = Remedy::from(format!("raise the limit to ‹ram={mib}MiB›"));
        self.text(StatusCode::SERVICE_UNAVAILABLE, &error.line(), &remedy)
    }

    fn text(&self, status: StatusCode, line: &str, remedy: &Remedy) -> Problem {
        let needed = self.words.needed_ram(remedy);
        let status = if needed.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { status };
        let line = self.without_folder(&render(line, self.words));
        let hint = self.without_folder(&remedy.render(self.words));
        Problem {
            needed_ram_bytes: needed,
            ram_limit_bytes: needed.map(|_| self.limit),
            ..Problem::new(status, line, hint)
        }
    }

    /// Names files of the request as a client knows them.
    fn without_folder(&self, text: &str) -> String {
        let folder = self.folder.display().to_string();
        text.replace(&format!("{folder}/"), "").replace(&folder, "the upload")
    }
}
