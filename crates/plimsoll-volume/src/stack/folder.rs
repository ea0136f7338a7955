//! Folders of slices, each a TIFF file of one page.

use std::path::Path;

use plimsoll_disk::File;

use super::order::sort;
use super::{MOST_PAGES, Pages, Planes, Stack, guarded};
use crate::VolumeError;
use crate::content::Content;
use crate::source::Opened;
use crate::stack::description::Description;
use crate::stack::is_tiff;

/// Returns `true` if a folder has slices, and beside them only files about them.
pub(crate) fn is_of_slices(folder: &Path) -> bool {
    let Ok(entries) = plimsoll_disk::entries(folder) else { return false };
    let mut slices = 0usize;
    for path in entries.flatten() {
        match (is_slice(&path), is_about(&path)) {
            (true, _) => slices += 1,
            (false, true) => {}
            (false, false) => return false,
        }
    }
    slices > 0
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn is_slice(path: &Path) -> bool {
    is_tiff(path) && !is_hidden(path) && path.is_file()
}

/// Returns `true` for a file about slices that lies beside them: a table, a log, settings of a scanner.
fn is_about(path: &Path) -> bool {
    const ENDINGS: [&str; 6] = ["csv", "json", "log", "md", "txt", "xml"];
    is_hidden(path)
        || path
            .extension()
            .is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Opens a folder of slices.
///
/// # Errors
/// Returns an error if a slice cannot be opened, slices differ in size or type, their names do not determine their
/// order, or one is missing.
pub(crate) fn open(folder: &Path, content: Content) -> Result<Opened, VolumeError> {
    let failed = |source| VolumeError::Io { path: folder.into(), action: "list", source };
    let refused = |why: String| VolumeError::Stack { path: folder.into(), why };
    let mut names: Vec<Box<str>> = Vec::new();
    for entry in plimsoll_disk::entries(folder).map_err(failed)? {
        let path = entry.map_err(failed)?;
        if !is_slice(&path) {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| refused(format!("the name of {} is not UTF-8", path.display())))?;
        names.push(name.into());
        if names.len() > MOST_PAGES {
            return Err(refused(format!("it has more than {MOST_PAGES} slices")));
        }
    }
    names.sort();
    let names = sort(names).map_err(refused)?;
    let mut of_all = None;
    let mut file_bytes = 0u64;
    for name in &names {
        let path = folder.join(&**name);
        let bytes = File::open(&path).and_then(|file| file.len());
        let bytes = bytes.map_err(|source| VolumeError::Io { path: path.clone(), action: "open", source })?;
        file_bytes = file_bytes.saturating_add(bytes);
        let (mut decoder, form) = super::single_page(&path)?;
        match &of_all {
            None => {
                let description = guarded(&path, || Description::read(&mut decoder))?;
                if let Some(why) = description.several_channels(1) {
                    return Err(VolumeError::Stack { path, why });
                }
                of_all = Some((form, description));
            }
            Some((first, _)) if *first != form => {
                let of_first = names.first().map(|name| &**name).unwrap_or_default();
                return Err(refused(format!("{of_first} has {first}, but {name} has {form}")));
            }
            Some(_) => {}
        }
    }
    let Some((form, description)) = of_all else { return Err(refused("it has no slices".into())) };
    let bytes = form.page_bytes(names.len(), file_bytes).map_err(refused)?;
    let pages = Pages { count: names.len(), form, bytes };
    let planes = Planes::Slices { folder: folder.into(), names, form };
    Stack::opened(folder, content, planes, pages, &description)
}
