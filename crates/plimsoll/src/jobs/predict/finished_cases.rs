//! Cases that a call has finished, line by line, until it writes its record: what is known of them if it is killed before.
//!
//! A line for each, and not the record again: so a case costs the disk the same whether it is the first or the last of thousands.
//!
//! The file is locked by the call that writes to it. Another one that runs at the same time, into the same folder, neither adds to it nor takes it for
//! what a killed call left: it has no lines of its own, and says so.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::Appender;
use serde::Serialize;

use super::entry::{Call, EarlierCall};
use super::fields::Object;
use super::record_files::{RecordFiles, no_record};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// A line: what [`EarlierCall`] is read from.
#[derive(Serialize)]
struct Line<'a, P> {
    #[serde(flatten)]
    call: &'a Call,
    predicted: &'a P,
}

/// The cases that this call has finished.
pub(super) struct FinishedCases {
    context: Context,
    path: PathBuf,
    call: Call,
    /// Made with the first case: a call that finishes none leaves no file.
    lines: Lines,
}

enum Lines {
    /// Not yet.
    None,
    Own(Appender),
    /// The file is another call's.
    OfAnother,
}

impl FinishedCases {
    /// An empty list for a call whose record has these files.
    pub(super) fn none(call: Call, files: RecordFiles, context: &Context) -> FinishedCases {
        FinishedCases { context: context.clone(), path: files.lines, call, lines: Lines::None }
    }

    /// Adds the result of a case, which is on the disk when this returns. If that fails, a warning is reported: the labels exist, and the
    /// record at the end of the call does not need the line.
    pub(super) fn add(&mut self, case: &str, predicted: &impl Serialize) {
        if let Err(failure) = self.append(predicted) {
            self.context
                .warn(format_args!("{}: the time of {case} is not recorded before the end", failure.line()));
        }
    }

    /// The call that finishes the cases.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// Removes the lines: what they say is in the record.
    pub(super) fn remove(self) -> Outcome {
        match self.lines {
            Lines::Own(lines) => remove_lines(lines),
            // A file that was made for the first line and could not be used has none.
            Lines::None => match left_lines(&self.path)?.filter(|lines| lines.length() == 0) {
                Some(empty) => remove_lines(empty),
                None => Ok(()),
            },
            Lines::OfAnother => Ok(()),
        }
    }

    fn append(&mut self, predicted: &impl Serialize) -> Outcome {
        let line = serde_json::to_vec(&Line { call: &self.call, predicted })?;
        let io = |error| Error::at_path(&self.path, &error);
        if matches!(self.lines, Lines::None) {
            // These lines belong to a call that began later than this one and was killed.
            let own = Appender::open_locked(&self.path).map_err(io)?.filter(|lines| lines.length() == 0);
            self.lines = own.map_or(Lines::OfAnother, Lines::Own);
            if matches!(self.lines, Lines::OfAnother) {
                let path = self.path.display();
                self.context.warn(format_args!(
                    "{path} belongs to another process that predicts into this folder: times of this one are \
                                                recorded at its end"
                ));
            }
        }
        match &mut self.lines {
            Lines::Own(lines) => lines.append(&line).map_err(io),
            Lines::None | Lines::OfAnother => Ok(()),
        }
    }
}

/// Reads the finished cases of a call from a file of at most `most` bytes. A last line that a crash cut off is ignored.
///
/// # Errors
/// Returns an error if the file has another content.
pub(super) fn read_lines(files: &RecordFiles, most: u64) -> Outcome<Vec<EarlierCall>> {
    let path = &files.lines;
    let text = match plimsoll_disk::read(path, most) {
        // The call that wrote it has just come to its end.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(|error| Error::at_path(path, &error))?,
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    // Behind the last newline.
    lines.next_back();
    let read = |(number, line): (usize, &[u8])| {
        let fields = serde_json::from_slice::<Object>(line).ok().filter(names_case);
        let fields = fields.ok_or_else(|| no_record(path))?;
        EarlierCall::read(fields).map_err(|fault| files.faulty(path, fault.within(&format!("line {number}"))))
    };
    (1..).zip(lines).map(read).collect()
}

/// Returns `true` if the fields of a line name a case that was predicted.
fn names_case(fields: &Object) -> bool {
    fields.get("predicted").is_some_and(|predicted| predicted["case"].is_string())
}

/// Takes over the lines that a killed call has left in a file; `None` if there are none, or another call is still writing them.
pub(super) fn left_lines(path: &Path) -> Outcome<Option<Appender>> {
    let io = |error| Error::at_path(path, &error);
    match path.parent().is_some_and(Path::is_dir) && plimsoll_disk::exists(path).map_err(io)? {
        true => Appender::open_locked(path).map_err(io),
        false => Ok(None),
    }
}

/// Removes lines that are this call's own.
pub(super) fn remove_lines(lines: Appender) -> Outcome {
    // They are locked until that is done: nobody else can have made another file of the name.
    let path = lines.path();
    plimsoll_disk::remove_file(path).map_err(|error| Error::at_path(path, &error))
}
