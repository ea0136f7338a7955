//! Models in a folder.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, Reservation};

use super::{Listed, MOST_DEPTH, MOST_FILES, Source, below, copy_exactly};
use crate::ModelError;
use crate::nnunet::NnUnetError;
use crate::nnunet::find::holds_model;

/// The memory for a name beside its text: entries in growing lists, in the set of names, and among written files.
const NAME: u64 = 256;
/// The number of copies of a text: as a path, and while it becomes a name.
const TEXTS: u64 = 2;
/// The bytes of one reservation.
const STEP: u64 = 64 << 10;

/// Files below a folder.
pub(super) struct Folder {
    /// The folder that contains the names.
    base: PathBuf,
    files: Vec<Listed>,
    _held: Names,
}

/// Room for names, which is taken as they are found.
struct Names {
    needed: u64,
    held: Option<Reservation>,
}

impl Names {
    fn add(&mut self, path: &Path, budget: &Budget) -> Result<(), ModelError> {
        self.needed += NAME + TEXTS * path.as_os_str().len() as u64;
        if self.held.as_ref().is_none_or(|held| held.bytes() < Bytes(self.needed)) {
            self.held = None;
            let held = budget.reserve("names of files", Bytes(self.needed.next_multiple_of(STEP)));
            self.held = Some(held.map_err(|source| NnUnetError::OverBudget { path: path.into(), source })?);
        }
        Ok(())
    }
}

impl Folder {
    /// Looks for files in a folder, and in those in it.
    pub(super) fn open(root: &Path, budget: &Budget) -> Result<Folder, ModelError> {
        let failed = |path: &Path, source| ModelError::io(path, source);
        // Such as `.`, which says nothing of the folders that it is in.
        let root = root.canonicalize().map_err(|source| failed(root, source))?;
        let refuse = |why: String| ModelError::from(NnUnetError::Import { path: root.clone(), why });
        // A model that is a folder by itself keeps its name and the name of its data set.
        let base = match holds_model(&root) {
            true => root.parent().and_then(Path::parent),
            false => None,
        };
        let base = base.unwrap_or(&root).to_path_buf();
        let mut names = Names { needed: 0, held: None };
        let (mut files, mut found) = (Vec::new(), 0);
        let mut left: Vec<(PathBuf, usize)> = vec![(root.clone(), 0)];
        while let Some((folder, depth)) = left.pop() {
            for entry in plimsoll_disk::entries(&folder).map_err(|source| failed(&folder, source))? {
                let entry = entry.map_err(|source| failed(&folder, source))?;
                found += 1;
                if found > MOST_FILES {
                    return Err(refuse(format!("it has more than {MOST_FILES} files and folders")));
                }
                names.add(&entry, budget)?;
                // Links may lead anywhere, and are left where they are.
                if entry.is_symlink() {
                    continue;
                }
                if entry.is_dir() && depth < MOST_DEPTH {
                    left.push((entry, depth + 1));
                } else if entry.is_file() {
                    let bytes =
                        plimsoll_disk::metadata(&entry).map_err(|source| failed(&entry, source))?.len();
                    let own = entry.strip_prefix(&base).ok().and_then(Path::to_str).and_then(below);
                    let Some(name) = own else {
                        let name = entry.display();
                        return Err(refuse(format!("`{name}` is not a valid file name on every system")));
                    };
                    files.push(Listed { name, bytes });
                }
            }
        }
        files.sort_by(|one: &Listed, other| one.name.cmp(&other.name));
        Ok(Folder { base, files, _held: names })
    }
}

impl Source for Folder {
    fn list(&mut self) -> Result<Vec<Listed>, ModelError> {
        Ok(std::mem::take(&mut self.files))
    }

    fn copy(
        &mut self,
        _: usize,
        file: &Listed,
        to: &mut dyn Write,
        piece: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        copy_exactly(&mut File::open(self.base.join(&file.name))?, file.bytes, to, piece)
    }
}
