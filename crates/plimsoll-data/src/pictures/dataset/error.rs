//! Why a data set cannot be listed.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Bytes, OverBudget};

/// Why a data set cannot be listed. Each error names the file or folder.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The operating system reported an error.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A folder has no folders of classes.
    #[error("{} has no folder of a class", folder.display())]
    NoClasses {
        /// The folder.
        folder: PathBuf,
    },
    /// Folders of splits and of classes lie beside each other.
    #[error("{} has the splits {splits} and beside them {other}, which is not a split", folder.display())]
    MixedFolders {
        /// The folder.
        folder: PathBuf,
        /// Names of splits that are there.
        splits: String,
        /// A folder that is no split.
        other: String,
    },
    /// There is no image.
    #[error("{} has no images", path.display())]
    NoCases {
        /// The folder or table.
        path: PathBuf,
    },
    /// The table is implausibly long.
    #[error("{} has {found}; a table of images has at most {most}", path.display())]
    TooLong {
        /// The table.
        path: PathBuf,
        /// Its length.
        found: Bytes,
        /// The limit.
        most: Bytes,
    },
    /// The table is no CSV.
    #[error("{} is not a table: {problem}", path.display())]
    Csv {
        /// The table.
        path: PathBuf,
        /// The parser's message with the line.
        problem: String,
    },
    /// A column is missing.
    #[error("{} has no column `{column}`, but {found}", path.display())]
    NoColumn {
        /// The table.
        path: PathBuf,
        /// The column.
        column: String,
        /// The columns that are there.
        found: String,
    },
    /// A cell has a value that is not understood.
    #[error("{}, line {line}, column `{column}`: {problem}", path.display())]
    Cell {
        /// The table.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// The column.
        column: String,
        /// The problem.
        problem: String,
    },
    /// Some labels are whole numbers, others are not.
    #[error(
        "{}, line {line}: the label `{label}` is not a whole number, but {numbers} other labels are",
        path.display()
    )]
    MixedLabels {
        /// The table.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// The first label that is no number.
        label: String,
        /// The number of cells that are numbers.
        numbers: usize,
    },
    /// The labels have too many values to be classes.
    #[error("the labels of {} have {found} values; at most {most} classes are supported", path.display())]
    TooManyClasses {
        /// The table or folder.
        path: PathBuf,
        /// The number found.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// An image is in the table twice.
    #[error("{}, line {line}: the image `{name}` is already in line {first}", path.display())]
    Twice {
        /// The table.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// The line of the first.
        first: u64,
        /// The image.
        name: String,
    },
    /// The budget has no room for the list.
    #[error("the list of images of {}: {source}", path.display())]
    Memory {
        /// The table or folder.
        path: PathBuf,
        /// The refused reservation.
        source: OverBudget,
    },
}

impl DatasetError {
    pub(super) fn io(path: &Path, source: io::Error) -> DatasetError {
        DatasetError::Io { path: path.into(), source }
    }

    pub(super) fn memory(path: &Path) -> impl Fn(OverBudget) -> DatasetError {
        move |source| DatasetError::Memory { path: path.into(), source }
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            DatasetError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path".into()
            }
            DatasetError::Io { .. } => return None,
            DatasetError::NoClasses { .. } => {
                "put the images of each class into their own folder, in train, val and test if they are divided; or give a table"
                    .into()
            }
            DatasetError::MixedFolders { .. } => "move the folder elsewhere, or into a split".into(),
            DatasetError::NoCases { .. } => "images end in .png, .jpg, .jpeg, .tif, .tiff or .bmp".into(),
            DatasetError::TooLong { .. } => "check that this is the table and not an image".into(),
            DatasetError::Csv { .. } => {
                "a table has a header and the same number of cells in each row, separated by commas, semicolons or tabs".into()
            }
            DatasetError::NoColumn { .. } => "give the names of the columns in the settings of the table".into(),
            DatasetError::Cell { .. } => "correct the cell, or remove the row".into(),
            DatasetError::MixedLabels { .. } => {
                "correct the label, or list all classes in the settings of the table".into()
            }
            DatasetError::TooManyClasses { .. } => "check that the column has classes, and not measurements".into(),
            DatasetError::Twice { .. } => "remove one of the two rows".into(),
            DatasetError::Memory { source, .. } => source.remedy(),
        })
    }
}
