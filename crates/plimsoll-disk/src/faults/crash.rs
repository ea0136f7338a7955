//! The states that a power failure may leave of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Operation, State};

/// The number of unsynchronised changes of a file of which each is left out, kept alone, and torn. If there are
/// more, this many are chosen: the first, the last, and others between them at equal distances.
const CHOSEN: usize = 12;

/// All states of a folder that a power failure may leave at any moment while these operations were done in it, when it
/// began as `initial`, which the disk had. Each state comes once; the last operation's own outcome is among them.
///
/// # The model
/// It allows what POSIX does, except that a folder's names change in order, as they do in journalling file systems.
///
/// * Names: creating, renaming and removing take effect in order, all at once each, and any first part of those since the
///   last synchronisation may have reached the disk. A synchronisation of a folder covers those in it and all before.
///   That of a file covers no name, not even its own.
/// * Contents: the writes to a file, and changes of its length, since the file was last synchronised may have reached the
///   disk or not, whatever became of names, and in any order: a renamed file may be empty. Of k such changes the states are:
///   none of them; the first j; those and half of the next write; the first j where writes beyond the old end are zeros;
///   only the j-th; all but the j-th.
/// * Folders that are made count as there once a file in them has reached the disk.
///
/// # How many there are
/// Between two synchronisations with n changes of names and k changes of one file's contents, at most
/// (n + 1) · (5 · min(k, 12) + 3). If several files have such changes, each is varied alone, while the others have all or
/// nothing of theirs, which makes at most twice the sum. Operations on files that neither `initial` has nor were created
/// are left out.
pub fn crash_states<'a>(
    initial: &State,
    operations: &'a [Operation],
) -> impl Iterator<Item = State> + use<'a> {
    let mut disk = Disk::new(initial);
    let mut outcomes = Vec::new();
    for operation in operations {
        // The possible states grow until a synchronisation, so only the moments before each one are examined.
        if matches!(operation, Operation::Sync(_) | Operation::SyncFolder(_)) {
            disk.outcomes(&mut outcomes);
        }
        disk.apply(operation);
    }
    disk.outcomes(&mut outcomes);
    let (hasher, mut seen) = (RandomState::new(), BTreeSet::new());
    outcomes
        .into_iter()
        .map(|outcome| outcome.state())
        .filter(move |state| seen.insert(hasher.hash_one(state)))
}

type FileId = usize;
type Names = BTreeMap<PathBuf, FileId>;

/// A change of a file's contents that the disk may not have.
#[derive(Clone, Copy)]
enum Change<'a> {
    Write { offset: usize, bytes: &'a [u8] },
    SetLength(usize),
}

#[derive(Clone)]
struct File<'a> {
    on_disk: Rc<Vec<u8>>,
    changes: Vec<Change<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Half,
    Whole,
}

/// The changes of a file that reached the disk.
#[derive(Clone, Copy)]
enum Reached {
    First(usize),
    FirstAndHalf(usize),
    /// The first `n` changes, but of these only the lengths.
    Zeros(usize),
    Only(usize),
    AllBut(usize),
}

impl File<'_> {
    fn reached(&self) -> Vec<Reached> {
        let count = self.changes.len();
        let chosen: BTreeSet<usize> = match count <= CHOSEN {
            true => (0..count).collect(),
            false => (0..CHOSEN).map(|i| i * (count - 1) / (CHOSEN - 1)).collect(),
        };
        let mut all = vec![Reached::First(0), Reached::First(count), Reached::Zeros(count)];
        for i in chosen {
            all.extend([Reached::First(i), Reached::FirstAndHalf(i), Reached::Zeros(i)]);
            all.extend([Reached::Only(i), Reached::AllBut(i)]);
        }
        all
    }

    fn contents(&self, reached: Reached) -> Vec<u8> {
        let mut contents = self.on_disk.to_vec();
        for (i, change) in self.changes.iter().enumerate() {
            let (grows, part) = match reached {
                Reached::First(count) => (i < count, Part::Whole),
                Reached::FirstAndHalf(count) if i == count => (true, Part::Half),
                Reached::FirstAndHalf(count) => (i < count, Part::Whole),
                Reached::Zeros(count) => (i < count, Part::Nothing),
                Reached::Only(only) => (i <= only, if i == only { Part::Whole } else { Part::Nothing }),
                Reached::AllBut(left) => (true, if i == left { Part::Nothing } else { Part::Whole }),
            };
            if !grows {
                break;
            }
            match *change {
                Change::SetLength(length) => contents.resize(length, 0),
                Change::Write { offset, bytes } => {
                    let bytes = if part == Part::Half { bytes.split_at(bytes.len() / 2).0 } else { bytes };
                    let end = offset + bytes.len();
                    if contents.len() < end {
                        contents.resize(end, 0);
                    }
                    if let (true, Some(place)) = (part != Part::Nothing, contents.get_mut(offset..end)) {
                        place.copy_from_slice(bytes);
                    }
                }
            }
        }
        contents
    }
}

/// The durable state of the disk and the changes that may have reached it.
struct Disk<'a> {
    /// The names as they are on the disk.
    on_disk: Names,
    /// Each change of names since: the folders that it concerns, and all names after it.
    journal: Vec<([PathBuf; 2], Names)>,
    files: Vec<File<'a>>,
}

impl<'a> Disk<'a> {
    fn new(initial: &State) -> Disk<'a> {
        let files = initial.values();
        let files = files.map(|contents| File { on_disk: Rc::new(contents.clone()), changes: Vec::new() });
        let on_disk = initial.keys().cloned().zip(0..).collect();
        Disk { on_disk, journal: Vec::new(), files: files.collect() }
    }

    fn names(&self) -> &Names {
        self.journal.last().map_or(&self.on_disk, |(_, names)| names)
    }

    fn file(&mut self, path: &Path) -> Option<&mut File<'a>> {
        let id = *self.names().get(path)?;
        self.files.get_mut(id)
    }

    fn rename(&mut self, concerned: [&Path; 2], change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        let folder = |path: &Path| path.parent().unwrap_or(Path::new("")).to_path_buf();
        self.journal.push((concerned.map(folder), names));
    }

    fn apply(&mut self, operation: &'a Operation) {
        match operation {
            Operation::Create(path) => {
                let id = self.files.len();
                self.files.push(File { on_disk: Rc::default(), changes: Vec::new() });
                self.rename([path, path], |names| _ = names.insert(path.clone(), id));
            }
            Operation::Rename { from, to } => self.rename([from, to], |names| {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }),
            Operation::Remove(path) => self.rename([path, path], |names| _ = names.remove(path)),
            Operation::Write { path, offset, bytes } => {
                if let Some(file) = self.file(path) {
                    file.changes.push(Change::Write { offset: *offset as usize, bytes });
                }
            }
            Operation::SetLength { path, length } => {
                if let Some(file) = self.file(path) {
                    file.changes.push(Change::SetLength(*length as usize));
                }
            }
            Operation::Sync(path) => {
                if let Some(file) = self.file(path) {
                    file.on_disk = Rc::new(file.contents(Reached::First(file.changes.len())));
                    file.changes.clear();
                }
            }
            Operation::SyncFolder(folder) => {
                let last = self.journal.iter().rposition(|(concerned, _)| concerned.contains(folder));
                if let Some((_, names)) = last.and_then(|last| self.journal.drain(..=last).next_back()) {
                    self.on_disk = names;
                }
            }
        }
    }

    /// Adds the states that a power failure may leave now.
    fn outcomes(&self, outcomes: &mut Vec<Outcome<'a>>) {
        let files = Rc::new(self.files.clone());
        for names in std::iter::once(&self.on_disk).chain(self.journal.iter().map(|(_, names)| names)) {
            let mut push = |varied, reached, others_reached| {
                let (names, files) = (names.clone(), files.clone());
                outcomes.push(Outcome { names, files, varied, reached, others_reached });
            };
            let changed = |id: &&FileId| self.files.get(**id).is_some_and(|file| !file.changes.is_empty());
            let changed: Vec<FileId> = names.values().filter(changed).copied().collect();
            if changed.is_empty() {
                push(None, Reached::First(0), false);
            }
            for id in &changed {
                for reached in self.files.get(*id).map(File::reached).unwrap_or_default() {
                    push(Some(*id), reached, false);
                    if changed.len() > 1 {
                        push(Some(*id), reached, true);
                    }
                }
            }
        }
    }
}

/// A state that may be left, before it is worked out.
struct Outcome<'a> {
    names: Names,
    files: Rc<Vec<File<'a>>>,
    /// The file of which `reached` has reached the disk; of the others all changes have, or none.
    varied: Option<FileId>,
    reached: Reached,
    others_reached: bool,
}

impl Outcome<'_> {
    fn state(&self) -> State {
        let contents = |id: FileId| {
            let file = self.files.get(id)?;
            let reached = match (Some(id) == self.varied, self.others_reached) {
                (true, _) => self.reached,
                (false, true) => Reached::First(file.changes.len()),
                (false, false) => Reached::First(0),
            };
            Some(file.contents(reached))
        };
        self.names.iter().filter_map(|(path, id)| Some((path.clone(), contents(*id)?))).collect()
    }
}
