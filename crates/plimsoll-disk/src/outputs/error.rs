//! Reasons to refuse an output.

use std::io;
use std::path::PathBuf;

/// The reason to refuse an output before any work is done.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file is an input.
    #[error("{name} would replace {}, which this command reads as {input}", path.display())]
    ReplacesInput {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
        /// The input, in words.
        input: &'static str,
    },
    /// The file is in a folder of inputs, or a link to a file in it.
    #[error("{} belongs to {input} {}, which this command reads: {name} would replace {part}", path.display(), folder.display())]
    ReplacesPart {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
        /// The input, in words.
        input: &'static str,
        /// The folder of the input.
        folder: PathBuf,
        /// A file of the input, in words.
        part: &'static str,
    },
    /// A folder of outputs is a folder of inputs.
    #[error("{} is the folder of {input}, which this command reads: {name} would put its files among them, and files of the same name would be replaced", path.display())]
    IsInputs {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
        /// The input, in words.
        input: &'static str,
    },
    /// A folder of outputs is in a folder of inputs.
    #[error("{} is in a folder of {input} {}, which this command reads: {name} would put its files among them", path.display(), folder.display())]
    AmongInputs {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
        /// The input, in words.
        input: &'static str,
        /// The folder of the input.
        folder: PathBuf,
    },
    /// The file has other contents than the command writes.
    #[error("{} exists and is not {expected}: {name} would replace it", path.display())]
    OtherContents {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
        /// The output that the command writes.
        expected: &'static str,
        /// `true` if no argument names another path.
        is_fixed: bool,
    },
    /// Two outputs are one file.
    #[error("{} would be written twice, by {first} and by {second}", path.display())]
    Twice {
        /// The output.
        path: PathBuf,
        /// The argument that names it.
        first: &'static str,
        /// The other argument that names it.
        second: &'static str,
    },
    /// The output is a folder, a pipe or a device.
    #[error("{} is not a file: {name} would replace it", path.display())]
    NotAFile {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
    },
    /// The output is a symbolic link without a target.
    #[error("{} is a link to a file that does not exist: {name} would replace it", path.display())]
    DanglingLink {
        /// The argument that names the output.
        name: &'static str,
        /// The output.
        path: PathBuf,
    },
    /// The file system refused a request.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The way to avoid an [`OutputError`], for a front end to put into its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRemedy {
    /// Name a new file by this argument.
    NewFile(&'static str),
    /// Name a new file by this argument, or move the existing one away.
    NewFileOrMove(&'static str),
    /// Name a file of another ending by this argument.
    OtherEnding(&'static str),
    /// Move the existing file away.
    Move,
    /// Name a folder outside of all inputs by this argument.
    FolderElsewhere(&'static str),
    /// Check the path and its permissions.
    CheckPath,
}

impl OutputError {
    /// The way to avoid it.
    pub fn remedy(&self) -> OutputRemedy {
        match self {
            OutputError::ReplacesInput { name, .. }
            | OutputError::ReplacesPart { name, .. }
            | OutputError::NotAFile { name, .. } => OutputRemedy::NewFile(name),
            OutputError::Twice { first, second, .. } if first == second => OutputRemedy::OtherEnding(second),
            OutputError::Twice { second, .. } => OutputRemedy::NewFile(second),
            OutputError::OtherContents { is_fixed: true, .. } => OutputRemedy::Move,
            OutputError::OtherContents { name, .. } | OutputError::DanglingLink { name, .. } => {
                OutputRemedy::NewFileOrMove(name)
            }
            OutputError::IsInputs { name, .. } | OutputError::AmongInputs { name, .. } => {
                OutputRemedy::FolderElsewhere(name)
            }
            OutputError::Io { .. } => OutputRemedy::CheckPath,
        }
    }
}
