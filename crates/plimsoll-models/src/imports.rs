//! Functions that importers of packages share: texts of licences, hashes of files, and the programs of descriptions.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, Reservation};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::{ModelError, PackageError};

/// The name under which the text of a licence is copied.
pub(crate) const LICENCE: &str = "LICENSE";
/// The longest text of a licence that is copied.
const LONGEST_LICENCE: u64 = 1 << 20;
/// Bytes that are hashed at a time.
const PIECE: usize = 64 << 10;
/// The longest description that is read.
const LONGEST_DESCRIPTION: u64 = 64 << 10;
/// The most heap that reading one byte of a description takes.
const HEAP_PER_BYTE: u64 = 64;

/// The key of `program`, which no description of MONAI's models has.
#[derive(Deserialize)]
struct Beginning {
    program: Option<String>,
}

/// Returns the program that a `model.toml` names; one that cannot be read names none.
pub(crate) fn program_of(path: &Path) -> Option<String> {
    let is_short = plimsoll_disk::metadata(path).is_ok_and(|found| found.len() <= LONGEST_DESCRIPTION);
    let text =
        if is_short { plimsoll_disk::read_to_string(path, LONGEST_DESCRIPTION).ok()? } else { return None };
    toml::from_str::<Beginning>(&text).ok()?.program
}

/// Reads a `model.toml` of an importer. Returns it with the reservation of what reading it takes.
///
/// # Errors
/// Returns an error if it cannot be read, is too long or not of this kind, or there is no room to read it.
pub(crate) fn read_description<T: DeserializeOwned>(
    path: &Path,
    budget: &Budget,
) -> Result<(T, Reservation), ModelError> {
    let io = |source| ModelError::io(path, source);
    let length = plimsoll_disk::metadata(path).map_err(io)?.len();
    if length > LONGEST_DESCRIPTION {
        let why = format!("it has {length} bytes, more than {LONGEST_DESCRIPTION}");
        return Err(PackageError::description(path, &why).into());
    }
    let held = budget.reserve("a model.toml", Bytes(length * HEAP_PER_BYTE));
    let held = held.map_err(|source| PackageError::OverBudget { path: path.into(), source })?;
    let text = plimsoll_disk::read_to_string(path, length).map_err(io)?;
    let read = toml::from_str(&text);
    Ok((read.map_err(|problem| PackageError::description(path, problem.message()))?, held))
}

/// The text of a package's licence: beside the weights, or in the package's `.dist-info` below `site`.
///
/// # Errors
/// Returns an error if it cannot be read or is too long.
pub(crate) fn licence_of(
    beside: &Path,
    site: Option<&Path>,
    package: &str,
) -> Result<Option<Vec<u8>>, ModelError> {
    let mut places = vec![beside.join(LICENCE)];
    if let Some(found) = site.and_then(|site| plimsoll_disk::read_dir(site).ok()) {
        let mut infos: Vec<PathBuf> = found.into_iter().filter(|path| is_info_of(path, package)).collect();
        infos.sort();
        places
            .extend(infos.iter().flat_map(|info| [info.join("licenses").join(LICENCE), info.join(LICENCE)]));
    }
    let Some(path) = places.into_iter().find(|path| path.is_file()) else { return Ok(None) };
    plimsoll_disk::read(&path, LONGEST_LICENCE).map(Some).map_err(|source| ModelError::io(&path, source))
}

/// Returns `true` if a folder has the metadata of an installed package.
fn is_info_of(path: &Path, package: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    name.strip_prefix(package).is_some_and(|rest| rest.starts_with('-')) && name.ends_with(".dist-info")
}

/// The SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) fn hash_of(path: &Path) -> Result<String, ModelError> {
    let failed = |source| ModelError::io(path, source);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => break,
            length => hash.update(&piece[..length]),
        }
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
