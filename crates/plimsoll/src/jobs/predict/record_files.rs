//! The files of the record of a prediction.

use std::path::{Path, PathBuf};

use super::fields::Fault;
use crate::error::{Error, Outcome};
use crate::part::Part;

/// The record of the labels in a folder.
const RECORD: &str = "run.json";

/// The file of the cases that a call has finished.
const FINISHED: &str = "run.cases.jsonl";

/// The folder of the records of parts, beside labels.
pub(super) const PARTS: &str = "run.parts";

/// The longest record or file of finished cases that is read; one of a hundred thousand cases is shorter.
pub(super) const LONGEST: u64 = 512 << 20;

/// The files of the record of a call.
#[derive(Clone, Debug)]
pub(super) struct RecordFiles {
    /// The record, which is written at the end.
    pub(super) record: PathBuf,
    /// The finished cases until then.
    pub(super) lines: PathBuf,
    /// The part that they are of.
    part: Option<Part>,
}

impl RecordFiles {
    /// The files of the labels in a folder.
    pub(super) fn whole(output: &Path) -> RecordFiles {
        RecordFiles { record: output.join(RECORD), lines: output.join(FINISHED), part: None }
    }

    /// The files of a part.
    pub(super) fn for_part(output: &Path, part: Part) -> RecordFiles {
        let (folder, stem) = (output.join(PARTS), part.file_stem());
        RecordFiles {
            record: folder.join(format!("{stem}.json")),
            lines: folder.join(format!("{stem}.cases.jsonl")),
            part: Some(part),
        }
    }

    /// The files of a call for a folder, or for a part of it.
    pub(super) fn for_call(output: &Path, part: Option<Part>) -> RecordFiles {
        match part {
            None => RecordFiles::whole(output),
            Some(part) => RecordFiles::for_part(output, part),
        }
    }

    /// The error for a fault in one of these files.
    pub(super) fn faulty(&self, path: &Path, Fault { field, reason }: Fault) -> Error {
        let remedy = match self.part {
            None => "remove this file: labels are kept, without the times of their prediction".to_string(),
            Some(part) => format!("remove this file, and predict the part again with ‹part={part}›"),
        };
        Error::in_record(path, field, reason, remedy)
    }
}

/// The length of a file; `None` if it does not exist. Faults of its folder are reported when the folder is created.
pub(super) fn length(path: &Path) -> Outcome<Option<u64>> {
    let io = |error| Error::at_path(path, &error);
    if !path.parent().is_some_and(Path::is_dir) || !plimsoll_disk::exists(path).map_err(io)? {
        return Ok(None);
    }
    Ok(Some(plimsoll_disk::metadata(path).map_err(io)?.len()))
}

/// Refuses a file of another program that has a name of ours.
pub(super) fn no_record(path: &Path) -> Error {
    let message = format!("{} is not a record of predictions and would be replaced", path.display());
    Error::new(message, "write the labels to another folder with ‹output›")
}
