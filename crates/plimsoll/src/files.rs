//! Files that jobs write, whole or not at all.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_disk::atomic::{self, sweep};
use serde::Serialize;

use crate::error::{Error, Outcome};

/// Writes a file, whole or not at all.
pub(crate) fn write(path: &Path, to: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
    atomic::write(path, to).map_err(|error| Error::at_path(path, &error))
}

/// Writes JSON as people read it.
pub(crate) fn write_json(file: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, value)?;
    file.write_all(b"\n")
}

/// Creates a folder if it does not exist, and removes the temporary files that a killed process left in it.
pub(crate) fn make_folder(folder: &Path) -> Outcome {
    let failed = |error| Error::at_path(folder, &error);
    plimsoll_disk::create_dir_all(folder).map_err(failed)?;
    sweep(folder).map_err(failed)?;
    Ok(())
}
