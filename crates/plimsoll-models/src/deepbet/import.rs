//! Importing the two networks of deepbet.

use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_nn::LinkNet;

use super::description::text_of;
use super::network::NetworkFile;
use super::{DESCRIPTION, NETWORKS, PACKAGE};
use crate::imports::{LICENCE, hash_of, licence_of};
use crate::new_files::NewFiles;
use crate::{ModelError, PackageError};

/// The folders in which the networks may be, from the outermost: an unpacked package has `data/models`.
const WITHIN: [&str; 3] = ["", "models", "data/models"];

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedDeepbet {
    /// The description, which is the model.
    pub model: PathBuf,
    /// All files, and their bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// The text of the licence, if there was one.
    pub licence: Option<PathBuf>,
    /// The name of each network's file, and its SHA-256 in hexadecimal digits.
    pub sha256: Vec<(String, String)>,
}

/// The folder of deepbet's networks that a path is, or that is in it: one with a file of at least one network.
pub fn find(path: &Path) -> Option<PathBuf> {
    let folders = WITHIN.iter().map(|within| if within.is_empty() { path.into() } else { path.join(within) });
    folders
        .into_iter()
        .find(|folder: &PathBuf| NETWORKS.iter().any(|[stored, _]| folder.join(stored).is_file()))
}

/// Imports the networks of a [`find`]ed folder into another one, which is created if it does not exist.
///
/// # Errors
/// Returns an error if a network is missing, cannot be read or is another one; there is no room to read it; or a file exists already or cannot
/// be written. Then all that was written is removed.
pub fn import(from: &Path, to: &Path, budget: &Budget) -> Result<ImportedDeepbet, ModelError> {
    let paths = NETWORKS.map(|[stored, _]| from.join(stored));
    if let Some(path) = paths.iter().find(|path| !path.is_file()) {
        return Err(PackageError::Missing { path: path.clone(), package: &PACKAGE }.into());
    }
    let site = from.parent().and_then(Path::parent);
    let licence = licence_of(from, site, "deepbet")?;
    let mut names: Vec<String> = NETWORKS.iter().map(|[_, written]| written.to_string()).collect();
    names.extend([LICENCE, DESCRIPTION].map(String::from));
    let mut files = NewFiles::begin(to, &names, |path| PackageError::Exists { path }.into())?;
    let (mut first, mut sha256): (Option<LinkNet>, _) = (None, Vec::new());
    for (path, [stored, written]) in paths.iter().zip(NETWORKS) {
        let network = NetworkFile::open(path, budget)?;
        let net = first.get_or_insert_with(|| network.network().clone());
        let (found, expected) = (network.network().init_filters, net.init_filters);
        if found != expected {
            let (path, first) = (path.clone(), paths[0].clone());
            return Err(
                PackageError::NetworksDiffer { path, found, first, expected, package: &PACKAGE }.into()
            );
        }
        network.write(written, &mut files, budget)?;
        sha256.push((stored.to_string(), hash_of(path)?));
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
    Ok(ImportedDeepbet { model, files: files.keep(), licence, sha256 })
}
