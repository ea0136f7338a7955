//! Cases that a call has finished, line by line, until it writes its record: what is known of them if it is killed before.
//!
//! A line for each, and not the record again: so a case costs the disk the same whether it is the first or the last of thousands.

use std::path::{Path, PathBuf};

use plimsoll_disk::Appender;
use serde::Serialize;

use super::predict::PredictRequest;
use super::prediction_record::EarlierCall;
use super::prediction_report::Predicted;
use crate::failure::{Failure, Outcome};

/// The file, beside labels.
const FILE: &str = "run.cases.jsonl";

/// Where the cases are that a call into a folder has finished.
pub(super) fn lines_of(output: &Path) -> PathBuf {
    output.join(FILE)
}

/// A line: what [`EarlierCall`] is read from.
#[derive(Serialize)]
struct Line<'a> {
    folds: usize,
    engine: &'a str,
    threads: usize,
    predicted: &'a Predicted,
}

/// The cases that this call has finished.
pub(super) struct FinishedCases {
    path: PathBuf,
    folds: usize,
    engine: String,
    threads: usize,
    /// None before the first case: a call that finishes none leaves no file.
    lines: Option<Appender>,
}

impl FinishedCases {
    /// None yet, of a call that predicts with so many folds of weights.
    pub(super) fn none(request: &PredictRequest, folds: usize) -> FinishedCases {
        FinishedCases {
            path: lines_of(&request.output),
            folds,
            engine: request.backend.identity(),
            threads: request.options.threads,
            lines: None,
        }
    }

    /// Adds a case, which is on the disk when this returns. Where that fails, a warning says so: the labels are there, and the record at
    /// the end of the call does not need the line.
    pub(super) fn add(&mut self, predicted: &Predicted) {
        if let Err(failure) = self.append(predicted) {
            let case = &predicted.case;
            eprintln!("warning: {}: what {case} took is not recorded before the end", failure.line());
        }
    }

    fn append(&mut self, predicted: &Predicted) -> Outcome {
        let (folds, threads) = (self.folds, self.threads);
        let line = serde_json::to_vec(&Line { folds, engine: &self.engine, threads, predicted })?;
        let io = |error| Failure::of_path(&self.path, &error);
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => none.insert(Appender::open(&self.path).map_err(io)?),
        };
        lines.append(&line).map_err(io)
    }
}

/// Reads the lines of a file of at most `most` bytes. What a crash left of a last one is none.
///
/// # Errors
/// If it is no such file.
pub(super) fn read_lines(path: &Path, most: u64) -> Outcome<Vec<EarlierCall>> {
    let text = plimsoll_disk::read(path, most).map_err(|error| Failure::of_path(path, &error))?;
    let mut lines = text.split(|byte| *byte == b'\n');
    // Behind the last newline.
    lines.next_back();
    let read = |line| serde_json::from_slice::<EarlierCall>(line).ok().filter(|call| call.case().is_some());
    lines.map(|line| read(line).ok_or_else(|| no_record(path))).collect()
}

/// Removes the file, where there is one.
pub(super) fn remove_lines(output: &Path) -> Outcome {
    let path = lines_of(output);
    let io = |error| Failure::of_path(&path, &error);
    match plimsoll_disk::exists(&path).map_err(io)? {
        true => plimsoll_disk::remove_file(&path).map_err(io),
        false => Ok(()),
    }
}

/// Refuses a file of another program that has a name of ours.
pub(super) fn no_record(path: &Path) -> Failure {
    let message = format!("{} is no record of predictions, and would be replaced", path.display());
    Failure::new(message, "write the labels to another folder with -o")
}
