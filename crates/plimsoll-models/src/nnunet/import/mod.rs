//! Importing shared models: archives of `nnUNetv2_export_model_to_zip`, and folders.
//!
//! An archive is of unknown origin and may be malicious. Nothing is written outside the requested folder, no link is followed or created,
//! no existing file is replaced, and no file exceeds its size in the archive's directory. These sizes are compared with the size of the
//! archive and the free disk space before anything is written.

mod archive;
mod folder;
mod written;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use plimsoll_disk::{File, atomic, free_bytes};
use plimsoll_memory::{Budget, Bytes};

use archive::Archive;
use folder::Folder;
use written::{Written, is_there};

use super::NnUnetError;
use super::find::models_below;
use crate::ModelError;

/// Files of a model are few, and so are their folders; more are none.
const MOST_FILES: usize = 100_000;
/// The deepest folder that is searched for models: data set, trainer and configuration, fold, validation.
const MOST_DEPTH: usize = 6;
/// Bytes that are copied at a time.
const PIECE: usize = 64 << 10;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The number of files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The folders of models among them.
    pub models: Vec<PathBuf>,
    /// Texts of licences among them.
    pub licences: Vec<PathBuf>,
}

impl Imported {
    /// Counts a file.
    fn add(&mut self, file: &Listed, path: PathBuf) {
        self.files += 1;
        self.bytes += file.bytes;
        if is_licence(&file.name) {
            self.licences.push(path);
        }
    }
}

/// A file that is to be imported: its name below the folder, and its bytes.
struct Listed {
    name: PathBuf,
    bytes: u64,
}

/// Copies the models of an archive or a folder into a folder, which is created if it does not exist. `copied` receives the number of
/// copied bytes and the total.
///
/// # Errors
/// Returns an error if there is no model, a name leads outside the folder, sizes exceed the archive or the disk, a file exists already,
/// or it cannot be read or written. Files of an import that was killed are kept, and the rest is written. After an error all written
/// files and created folders are removed.
pub fn import(
    from: &Path,
    to: &Path,
    budget: &Budget,
    copied: &mut dyn FnMut(u64, u64),
) -> Result<Imported, ModelError> {
    match from.is_dir() {
        true => import_from(&mut Folder::open(from, budget)?, from, to, copied),
        false => import_from(&mut Archive::open(from, budget)?, from, to, copied),
    }
}

/// A source of files.
trait Source {
    /// All files, by whole paths below a folder.
    fn list(&mut self) -> Result<Vec<Listed>, ModelError>;

    /// Writes the bytes of a file that stands in the list, by its place there.
    fn copy(
        &mut self,
        place: usize,
        file: &Listed,
        to: &mut dyn Write,
        piece: &mut dyn FnMut(u64),
    ) -> io::Result<()>;
}

fn import_from(
    source: &mut dyn Source,
    from: &Path,
    to: &Path,
    copied: &mut dyn FnMut(u64, u64),
) -> Result<Imported, ModelError> {
    let refuse = |why: String| NnUnetError::Import { path: from.into(), why };
    let listed = source.list()?;
    if !listed.iter().any(|file| file.name.file_name().is_some_and(|name| name == "plans.json")) {
        return Err(refuse("it has no plans.json, so it holds no model of nnU-Net 2".into()).into());
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = listed.iter().find(|file| !names.insert(&file.name)) {
        return Err(refuse(format!("it has {} twice", twice.name.display())).into());
    }
    let all = listed.iter().try_fold(0u64, |all, file| all.checked_add(file.bytes));
    let all = all.ok_or_else(|| refuse("it claims an impossible number of bytes".into()))?;
    let mut written = Written::new(to, &listed);
    let result = write_all(source, from, to, &listed, all, &mut written, copied);
    if result.is_err() {
        written.take_away();
    }
    result
}

/// Writes all listed files, `all` bytes together, and finds the models among them.
fn write_all(
    source: &mut dyn Source,
    from: &Path,
    to: &Path,
    listed: &[Listed],
    all: u64,
    written: &mut Written<'_>,
    copied: &mut dyn FnMut(u64, u64),
) -> Result<Imported, ModelError> {
    let refuse = |why: String| NnUnetError::Import { path: from.into(), why };
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ModelError::io(&path, source)
    };
    written.make_target().map_err(failed(to))?;
    let free = free_bytes(to).map_err(failed(to))?;
    if all > free {
        let (needed, free) = (Bytes(all), Bytes(free));
        return Err(refuse(format!("it needs {needed}, but {} has room for {free}", to.display())).into());
    }
    let kept = written_before(source, from, to, listed)?;
    let mut imported = Imported::default();
    for (place, file) in listed.iter().enumerate() {
        let path = to.join(&file.name);
        if kept.contains(&place) {
            written.keep();
            imported.add(file, path);
            copied(imported.bytes, all);
            continue;
        }
        let folder = path.parent().unwrap_or(to);
        written.make_folder(folder).map_err(failed(folder))?;
        let before = imported.bytes;
        let mut done = 0;
        let write = atomic::write(&path, |output| {
            source.copy(place, file, output, &mut |bytes| {
                done += bytes;
                copied(before + done, all);
            })
        });
        write.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                ModelError::from(refuse(format!("{}: {error}", file.name.display())))
            }
            _ => ModelError::io(&path, error),
        })?;
        written.file();
        imported.add(file, path);
    }
    let tops: BTreeSet<&Path> = listed
        .iter()
        .filter_map(|file| Some(Path::new(file.name.components().next()?.as_os_str())))
        .collect();
    for top in tops {
        imported.models.extend(models_below(&to.join(top), MOST_DEPTH)?);
    }
    if imported.models.is_empty() {
        // A folder that is a model itself has its files at the top.
        imported.models.extend(models_below(to, 0)?);
    }
    Ok(imported)
}

/// The places of files that exist with the same contents: an import that was killed wrote them, and the rest is written now.
///
/// # Errors
/// Returns an error if a file exists with other contents, all files exist, or one cannot be read.
fn written_before(
    source: &mut dyn Source,
    from: &Path,
    to: &Path,
    listed: &[Listed],
) -> Result<BTreeSet<usize>, ModelError> {
    let mut found = BTreeSet::new();
    for (place, file) in listed.iter().enumerate() {
        let path = to.join(&file.name);
        let failed = |source| ModelError::io(&path, source);
        if !is_there(&path).map_err(failed)? {
            continue;
        }
        let is_same = is_copy(source, place, file, &path).map_err(failed)?;
        found.insert(place);
        // With nothing left to write, nothing was interrupted.
        if !is_same || found.len() == listed.len() {
            let why = format!("{} already exists", path.display());
            return Err(NnUnetError::Import { path: from.into(), why }.into());
        }
    }
    Ok(found)
}

/// Returns `true` if a path leads to a file of the same bytes as one of the source. A link is no copy.
fn is_copy(source: &mut dyn Source, place: usize, file: &Listed, path: &Path) -> io::Result<bool> {
    if !path.symlink_metadata()?.is_file() || plimsoll_disk::metadata(path)?.len() != file.bytes {
        return Ok(false);
    }
    let mut comparison = Comparison { file: File::open_any(path)?, piece: vec![0; PIECE], is_same: true };
    source.copy(place, file, &mut comparison, &mut |_| {})?;
    Ok(comparison.is_same)
}

/// Compares what is written to it with a file.
struct Comparison {
    file: File,
    piece: Vec<u8>,
    is_same: bool,
}

impl Write for Comparison {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for bytes in bytes.chunks(PIECE) {
            let Some(found) = self.piece.get_mut(..bytes.len()) else { break };
            self.file.read_exact(found)?;
            self.is_same &= *found == *bytes;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `true` if a file is the text of a licence, by its name.
fn is_licence(name: &Path) -> bool {
    let stem = name.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_ascii_lowercase();
    ["license", "licence", "copying", "notice"].iter().any(|known| stem.starts_with(known))
}

/// A path of an archive or a folder, if it stays below the folder that it is written in.
fn below(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    // Names of other systems may hide what leads upwards, or a drive; control characters may hide a name from who reads it.
    let hidden = name.contains(['\\', ':']) || name.contains(char::is_control) || name.is_empty();
    (plain && !hidden).then(|| path.into())
}

/// Copies exactly a number of bytes; more or fewer bytes are an error.
fn copy_exactly(
    from: &mut dyn Read,
    claimed: u64,
    to: &mut dyn Write,
    piece: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut buffer = [0; PIECE];
    let mut left = claimed;
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        left = left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has more than the {claimed} bytes that it claims"),
            )
        })?;
        let found = buffer.get(..read).ok_or_else(|| io::Error::other("more was read than fits"))?;
        to.write_all(found)?;
        piece(read as u64);
    }
    match left {
        0 => Ok(()),
        left => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{left} of its {claimed} bytes are missing"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_a_folder_are_none_of_it() {
        for name in ["../a", "/a", "a/../../b", "a\\..\\b", "C:/a", "", "a/./../../b", "a\0b", "a\x1b[2Jb"] {
            assert_eq!(below(name), None, "{name:?}");
        }
        assert_eq!(below("Dataset001_A/fold_0/checkpoint_final.pth").unwrap().components().count(), 3);
    }

    #[test]
    fn a_file_that_is_not_as_long_as_it_claims_is_an_error() {
        let copy = |bytes: &[u8], claimed: u64| {
            let mut written = Vec::new();
            copy_exactly(&mut &bytes[..], claimed, &mut written, &mut |_| {}).map(|()| written)
        };
        assert_eq!(copy(b"abc", 3).unwrap(), b"abc");
        assert!(copy(b"abc", 2).unwrap_err().to_string().contains("more than the 2 bytes"));
        assert!(copy(b"abc", 4).unwrap_err().to_string().contains("1 of its 4 bytes"));
    }
}
