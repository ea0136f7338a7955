//! A check, before any work is done, that no output of a command replaces one of its inputs.
//!
//! Files are compared by [`Identity`], so that no link hides an input. A folder that is an input protects all files in it, except
//! those whose contents the command wrote itself: a page beside the images that it shows may be written again.

mod error;
mod identity;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::{File, folder};

pub use error::{OutputError, OutputRemedy};
pub use identity::Identity;

use identity::{is_missing, resolved};

/// The bytes at the start of a file by which [`Contents`] are recognised.
const HEAD: u64 = 16 << 10;

/// The depth to which folders of inputs are searched for links to an output.
const MOST_DEPTH: usize = 16;

/// The kind of contents that a command writes.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// The contents in words, with an article.
    pub name: &'static str,
    /// Returns `true` if a file that begins with these bytes has such contents, and cannot be an input of the command.
    pub is_own: fn(head: &[u8]) -> bool,
}

/// A rule for an existing file that is no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced if its contents are of the same kind.
    SameContents,
    /// The same for a file whose path cannot be chosen.
    SameContentsAtFixedPath,
    /// The command decides: it asks for a permission, or keeps the file.
    AsAllowed,
}

/// A file that a command writes.
#[derive(Clone, Debug)]
pub struct OutputFile {
    /// The argument that names it.
    pub name: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The content to write.
    pub contents: Contents,
    /// The rule for an existing file.
    pub existing: Existing,
}

/// A folder that a command writes files into.
#[derive(Clone, Debug)]
pub struct OutputFolder {
    /// The argument that names it.
    pub name: &'static str,
    /// The folder.
    pub path: PathBuf,
}

/// A file or folder that a command reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// The input in words, like `the data set`.
    pub name: &'static str,
    /// A file of the input in words, like `an image`.
    pub part: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The names, or beginnings of names that end in `*`, of folders in it that no output may be in.
    pub closed: &'static [&'static str],
}

/// The place of an output folder relative to an input.
enum FolderRelation {
    /// It is the folder of the input.
    Same,
    /// It is in a folder of the input that is closed to outputs.
    Closed,
    /// Its files cannot be mistaken for the input's.
    Apart,
}

/// All files and folders of a command.
#[derive(Clone, Debug, Default)]
pub struct CommandFiles {
    /// Files and folders that it reads.
    pub inputs: Vec<Input>,
    /// Files that it writes.
    pub files: Vec<OutputFile>,
    /// Folders that it writes files into.
    pub folders: Vec<OutputFolder>,
}

impl CommandFiles {
    /// Checks that no output replaces an input, or an existing file of other contents.
    ///
    /// # Errors
    /// If one does, or the file system cannot tell.
    pub fn check(&self) -> Result<(), OutputError> {
        for (at, output) in self.files.iter().enumerate() {
            let own = resolved(&output.path).map_err(failed(&output.path))?;
            self.check_file(output, &own)?;
            for other in self.files.iter().skip(at + 1) {
                if resolved(&other.path).map_err(failed(&other.path))? == own {
                    let path = output.path.clone();
                    return Err(OutputError::Twice { path, first: output.name, second: other.name });
                }
            }
        }
        self.folders.iter().try_for_each(|output| self.check_folder(output))
    }

    /// Checks that no output is one of the files or folders that an input lists, wherever these are, and that no output folder has one.
    ///
    /// # Errors
    /// If one is or has, or the file system cannot tell.
    pub fn check_listed<'a>(
        &self,
        input: &'static str,
        listed: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), OutputError> {
        let existing = |output| existing(output).transpose();
        let files = self.files.iter().filter_map(existing).collect::<Result<Vec<_>, _>>()?;
        let folders = self.folders.iter().map(|output| Ok((output, resolved(&output.path)?)));
        let folders = folders.collect::<io::Result<Vec<_>>>().map_err(failed(Path::new(".")))?;
        if files.is_empty() && folders.is_empty() {
            return Ok(());
        }
        for path in listed {
            let Some(own) = Identity::read(path).map_err(failed(path))? else { continue };
            let here = resolved(path).map_err(failed(path))?;
            for ExistingFile { output, identity, resolved } in &files {
                let OutputFile { name, path: written, .. } = output;
                if *identity == own {
                    return Err(OutputError::ReplacesInput { name, path: written.clone(), input });
                }
                // A folder of slices is an image.
                if resolved.starts_with(&here) {
                    let (folder, part) = (path.into(), "a part of an image");
                    return Err(OutputError::ReplacesPart {
                        name,
                        path: written.clone(),
                        input,
                        folder,
                        part,
                    });
                }
            }
            let has = |place: &Path| *place == here || here.parent() == Some(place);
            if let Some((OutputFolder { name, path }, _)) = folders.iter().find(|(_, place)| has(place)) {
                return Err(OutputError::IsInputs { name, path: path.clone(), input });
            }
        }
        Ok(())
    }

    fn check_file(&self, output: &OutputFile, resolved: &Path) -> Result<(), OutputError> {
        let OutputFile { name, path, contents, existing } = output;
        let Some(own) = Identity::read(path).map_err(failed(path))? else {
            return match path.is_symlink() {
                true => Err(OutputError::DanglingLink { name, path: path.clone() }),
                false => Ok(()),
            };
        };
        for input in &self.inputs {
            if Identity::read(&input.path).map_err(failed(&input.path))?.as_ref() == Some(&own) {
                return Err(OutputError::ReplacesInput { name, path: path.clone(), input: input.name });
            }
        }
        if !folder::metadata(path).map_err(failed(path))?.is_file() {
            return Err(OutputError::NotAFile { name, path: path.clone() });
        }
        let head = head(path).map_err(failed(path))?;
        if (contents.is_own)(&head) {
            return Ok(());
        }
        for input in &self.inputs {
            if input.has(resolved, &own, *existing).map_err(failed(&input.path))? {
                return Err(OutputError::ReplacesPart {
                    name,
                    path: path.clone(),
                    input: input.name,
                    folder: input.path.clone(),
                    part: input.part,
                });
            }
        }
        match existing {
            Existing::AsAllowed => Ok(()),
            // An empty file is a place that was made for the output.
            _ if head.is_empty() => Ok(()),
            Existing::SameContents | Existing::SameContentsAtFixedPath => Err(OutputError::OtherContents {
                name,
                path: path.clone(),
                expected: contents.name,
                is_fixed: *existing == Existing::SameContentsAtFixedPath,
            }),
        }
    }

    fn check_folder(&self, output: &OutputFolder) -> Result<(), OutputError> {
        let OutputFolder { name, path } = output;
        let own = resolved(path).map_err(failed(path))?;
        for input in &self.inputs {
            let (path, folder, input_name) = (path.clone(), input.path.clone(), input.name);
            match input.place(&own).map_err(failed(&input.path))? {
                FolderRelation::Apart => {}
                FolderRelation::Same => return Err(OutputError::IsInputs { name, path, input: input_name }),
                FolderRelation::Closed => {
                    return Err(OutputError::AmongInputs { name, path, input: input_name, folder });
                }
            }
        }
        Ok(())
    }
}

impl Input {
    /// Returns `true` if an existing output is a file in this folder. Links to such files are searched for only where the command might
    /// replace a file of other contents.
    fn has(&self, output: &Path, own: &Identity, existing: Existing) -> io::Result<bool> {
        if !is_folder(&self.path)? {
            return Ok(false);
        }
        let here = resolved(&self.path)?;
        Ok(output.starts_with(&here)
            || (existing == Existing::AsAllowed && has_link(&here, own, MOST_DEPTH)?))
    }

    /// The place of an output folder.
    fn place(&self, output: &Path) -> io::Result<FolderRelation> {
        if !is_folder(&self.path)? {
            return Ok(FolderRelation::Apart);
        }
        let here = resolved(&self.path)?;
        let Ok(within) = output.strip_prefix(&here) else { return Ok(FolderRelation::Apart) };
        if within.as_os_str().is_empty() {
            return Ok(FolderRelation::Same);
        }
        let is_closed = |name: &str| {
            self.closed.iter().any(|closed| match closed.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *closed,
            })
        };
        let itself = here.file_name().into_iter();
        let mut names = itself.chain(within.iter()).map(|name| name.to_string_lossy());
        Ok(if names.any(|name| is_closed(&name)) { FolderRelation::Closed } else { FolderRelation::Apart })
    }
}

/// An output that exists.
struct ExistingFile<'a> {
    output: &'a OutputFile,
    identity: Identity,
    /// Its path without links and `..`.
    resolved: PathBuf,
}

/// The existing file of an output; `None` if there is none.
fn existing(output: &OutputFile) -> Result<Option<ExistingFile<'_>>, OutputError> {
    let failed = failed(&output.path);
    let found = Identity::read(&output.path).and_then(|identity| Ok((identity, resolved(&output.path)?)));
    let (identity, resolved) = found.map_err(failed)?;
    Ok(identity.map(|identity| ExistingFile { output, identity, resolved }))
}

/// Returns `true` if a file in the folder, or in a folder in it, has this identity.
fn has_link(within: &Path, own: &Identity, depth: usize) -> io::Result<bool> {
    for entry in folder::entries(within)? {
        let entry = entry?;
        // A link to a folder may lead back to where it is.
        if is_folder(&entry)? && !entry.is_symlink() {
            if depth > 0 && has_link(&entry, own, depth - 1)? {
                return Ok(true);
            }
        } else if Identity::read(&entry)?.as_ref() == Some(own) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_folder(path: &Path) -> io::Result<bool> {
    match folder::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The bytes at the start of a file.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open_any(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    move |source| OutputError::Io { path, source }
}

#[cfg(test)]
mod tests;
