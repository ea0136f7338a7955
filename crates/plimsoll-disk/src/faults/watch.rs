//! Folders whose operations are counted and recorded.

use std::io::Seek;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Fault, FaultKind, Operation};
use crate::operation::Change;

struct Watch {
    id: u64,
    folder: PathBuf,
    fault: Option<Fault>,
    /// The number of the last operation.
    number: u64,
    /// `None` if nothing is to be recorded.
    operations: Option<Vec<Operation>>,
}

static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a watch, also if the closure panics.
struct Watching(u64);

impl Watching {
    fn start(folder: &Path, fault: Option<Fault>, records: bool) -> Watching {
        let mut watches = watches();
        let id = watches.iter().map(|watch| watch.id).max().map_or(0, |id| id + 1);
        let operations = records.then(Vec::new);
        watches.push(Watch { id, folder: folder.into(), fault, number: 0, operations });
        Watching(id)
    }

    fn with<T>(&self, of: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        watches().iter_mut().find(|watch| watch.id == self.0).map(of)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        watches().retain(|watch| watch.id != self.0);
    }
}

/// Makes an operation under a folder fail while a closure runs, on whichever thread it is made; numbers start anew. Returns
/// the closure's result, and `true` if the operation was reached. Paths must begin with `folder` as it is given.
pub fn inject<T>(folder: &Path, fault: Fault, closure: impl FnOnce() -> T) -> (T, bool) {
    let watching = Watching::start(folder, Some(fault), false);
    let result = closure();
    let reached = watching.with(|watch| watch.number >= fault.number);
    (result, reached.unwrap_or(false))
}

/// Records the changes under a folder while a closure runs, on whichever thread they are made, in the order in which they
/// were done. Paths must begin with `folder` as it is given; a rename into the folder or out of it is not recorded.
pub fn record<T>(folder: &Path, closure: impl FnOnce() -> T) -> (T, Vec<Operation>) {
    let watching = Watching::start(folder, None, true);
    let result = closure();
    let operations = watching.with(|watch| watch.operations.take()).flatten();
    (result, operations.unwrap_or_default())
}

/// Numbers an operation for those who watch, and says how it fails.
pub(super) fn count(path: &Path) -> Option<FaultKind> {
    let mut found = None;
    for watch in watches().iter_mut().filter(|watch| path.starts_with(&watch.folder)) {
        watch.number += 1;
        found = found.or(watch.fault.filter(|fault| fault.number == watch.number).map(|fault| fault.kind));
    }
    found
}

/// Records a change for those who watch.
pub(super) fn note(change: &Change<'_>) {
    for watch in watches().iter_mut() {
        let Watch { folder, operations: Some(operations), .. } = watch else { continue };
        operations.extend(operation(folder, change));
    }
}

/// A change with paths relative to a folder; `None` if it is not in the folder.
fn operation(folder: &Path, change: &Change<'_>) -> Option<Operation> {
    let inside = |path: &Path| path.strip_prefix(folder).ok().map(PathBuf::from);
    Some(match *change {
        Change::Create(path) => Operation::Create(inside(path)?),
        Change::Write { path, mut file, bytes } => {
            let path = inside(path)?;
            // A file that is written has a position; behind the bytes also where they were appended.
            let offset = file.stream_position().ok()?.saturating_sub(bytes.len() as u64);
            Operation::Write { path, offset, bytes: bytes.into() }
        }
        Change::SetLength { path, length } => Operation::SetLength { path: inside(path)?, length },
        Change::Sync(path) => Operation::Sync(inside(path)?),
        Change::SyncFolder(path) => Operation::SyncFolder(inside(path)?),
        Change::Rename { from, to } => Operation::Rename { from: inside(from)?, to: inside(to)? },
        Change::Remove(path) => Operation::Remove(inside(path)?),
    })
}
