//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Lets `write` write a file beside `path`, waits until the disk has it, and gives it the name, in place of a file that
/// had it.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|file| {
            let mut buffered = BufWriter::new(file);
            write(&mut buffered)?;
            buffered.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Nothing more can be done if this fails too; the first error is the one to report.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    if cfg!(unix) {
        // Until its folder is on the disk as well, a new name can be lost with the power.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
