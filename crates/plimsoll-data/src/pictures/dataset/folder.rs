//! Data sets with a folder for each class, as torchvision's `ImageFolder` reads them, in folders `train`, `val` and `test` if
//! they are divided.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Reservation};

use crate::dataset::slashed;

use super::{DatasetError, ImageCase, ImageDataset, Split, list, reserve};

/// Endings of images.
const ENDINGS: [&str; 6] = ["png", "jpg", "jpeg", "tif", "tiff", "bmp"];

/// Folders inside of a class are entered up to this depth.
const DEEPEST: usize = 8;

/// More folders than this are no classes.
const MOST_CLASSES: usize = 1000;

impl ImageDataset {
    /// Lists `root/CLASS/…/IMAGE` or `root/SPLIT/CLASS/…/IMAGE`. Classes are all folders' names in the order of their letters.
    /// The name of a case is its path in `root`. Files and folders that begin with a dot are passed over.
    ///
    /// # Errors
    /// If a folder cannot be read, there are no classes or images, splits and classes are mixed, or the memory is not available.
    pub fn from_folders(root: impl AsRef<Path>, budget: &Budget) -> Result<ImageDataset, DatasetError> {
        let root = root.as_ref();
        let top = subfolders(root, budget)?;
        let splits: Vec<Split> = top.iter().filter_map(|(name, _)| Split::named(name)).collect();
        let mut folders = Vec::new();
        if splits.is_empty() {
            folders.extend(top.into_iter().map(|(name, path)| (None, name, path)));
        } else {
            if let Some((other, _)) = top.iter().find(|(name, _)| Split::named(name).is_none()) {
                let splits = splits.iter().map(|split| split.name()).collect::<Vec<_>>().join(", ");
                return Err(DatasetError::MixedFolders { folder: root.into(), splits, other: other.clone() });
            }
            for (name, path) in top {
                let split = Split::named(&name);
                folders
                    .extend(subfolders(&path, budget)?.into_iter().map(|(name, path)| (split, name, path)));
            }
        }
        if folders.is_empty() {
            return Err(DatasetError::NoClasses { folder: root.into() });
        }
        let mut classes: Vec<String> = folders.iter().map(|(_, class, _)| class.clone()).collect();
        classes.sort();
        classes.dedup();
        if classes.len() > MOST_CLASSES {
            let (found, most) = (classes.len() as u64, MOST_CLASSES as u64);
            return Err(DatasetError::TooManyClasses { path: root.into(), found, most });
        }
        let numbers: BTreeMap<String, u32> = classes.iter().cloned().zip(0..).collect();
        let (mut cases, mut warnings, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for (split, class, folder) in folders {
            let mut found = Found::default();
            found.search(&folder, DEEPEST, budget)?;
            let text = found.images.iter().map(|path| 2 * path.as_os_str().len() as u64).sum();
            memory.push(reserve(budget, found.images.len(), text).map_err(DatasetError::memory(root))?);
            if let Some(first) = found.others.first() {
                warnings.push(format!(
                    "{} files in {} do not have the ending of an image and are skipped, such as {}",
                    found.others.len(),
                    folder.display(),
                    first.display()
                ));
            }
            let label = numbers.get(&class).copied();
            cases.extend(found.images.into_iter().map(|path| ImageCase {
                name: slashed(path.strip_prefix(root).unwrap_or(&path)),
                labels: label.into_iter().collect(),
                group: None,
                split,
                path,
            }));
        }
        if cases.is_empty() {
            return Err(DatasetError::NoCases { path: root.into() });
        }
        Ok(ImageDataset { classes, multi_label: false, cases, warnings, memory })
    }
}

/// Returns `true` if a path ends like an image and its name does not begin with a dot.
pub(super) fn is_image(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    !is_hidden(path) && ending.is_some_and(|ending| ENDINGS.contains(&&*ending))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'))
}

fn is_folder(path: &Path) -> Result<bool, DatasetError> {
    Ok(plimsoll_disk::metadata(path).map_err(|source| DatasetError::io(path, source))?.is_dir())
}

/// Folders in a folder, by name.
fn subfolders(folder: &Path, budget: &Budget) -> Result<Vec<(String, PathBuf)>, DatasetError> {
    let mut found = Vec::new();
    let (paths, _names) = list(folder, budget)?;
    for path in paths {
        if !is_hidden(&path) && is_folder(&path)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((name, path));
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Found {
    images: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// The reservations of these paths.
    names: Vec<Reservation>,
}

impl Found {
    fn search(&mut self, folder: &Path, depth: usize, budget: &Budget) -> Result<(), DatasetError> {
        let (paths, names) = list(folder, budget)?;
        self.names.push(names);
        for path in paths {
            if is_hidden(&path) {
                continue;
            }
            // The names of images tell enough; what else is a folder has to be asked.
            if is_image(&path) {
                self.images.push(path);
            } else if depth > 0 && is_folder(&path)? {
                self.search(&path, depth - 1, budget)?;
            } else {
                self.others.push(path);
            }
        }
        Ok(())
    }
}
