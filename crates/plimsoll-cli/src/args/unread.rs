//! Files of settings that a user may expect to be read.

use std::path::Path;

use plimsoll::{Context, SETTINGS_FILE};

/// Warns of a file of settings in the folder of a data set, if it is not the file that is read, which `--config` names or which is
/// in the current folder.
pub fn warn_of_unread(dataset: &Path, config: Option<&Path>, context: &Context) {
    let folder = if dataset.is_dir() { Some(dataset) } else { dataset.parent() };
    let Some(inside) = folder.map(|folder| folder.join(SETTINGS_FILE)) else { return };
    let Ok(found) = inside.canonicalize() else { return };
    let read = config.unwrap_or(Path::new(SETTINGS_FILE));
    if read.canonicalize().is_ok_and(|read| read == found) {
        return;
    }
    let (inside, read) = (inside.display(), read.display());
    match config {
        Some(_) => context.warn(format_args!("{inside} is not read: settings are read from {read}")),
        None => context.warn(format_args!(
            "{inside} is not read: settings are read from {read} in the current folder; name it with --config {inside}"
        )),
    }
}
