//! The files that a job reads and writes, which are checked before it begins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::Context;
use plimsoll_disk::outputs::{CommandFiles, Contents, Existing, Input, OutputFile, OutputFolder};

use super::JobFailure;
use crate::Failure;

/// Folders of a data set or a run that hold only its own files.
const CLOSED: &[&str] = &["imagesTr", "labelsTr", "imagesTs", "labelsTs", "fold_*"];

/// The files of a job, collected by argument.
#[derive(Default)]
pub(super) struct Files(CommandFiles);

impl Files {
    /// Adds inputs, whose name is a phrase like `the data set`.
    pub fn read<'a>(mut self, name: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Files {
        let inputs =
            paths.into_iter().map(|path| Input { name, part: "it", path: path.clone(), closed: CLOSED });
        self.0.inputs.extend(inputs);
        self
    }

    /// Adds an output, which may replace a file of the same kind.
    pub fn write(self, argument: &'static str, path: Option<&Path>, contents: Contents) -> Files {
        self.output(argument, path, contents, Existing::SameContents)
    }

    /// Adds an output of a job that decides itself about an existing file.
    pub fn write_as_allowed(self, argument: &'static str, path: &Path, contents: Contents) -> Files {
        self.output(argument, Some(path), contents, Existing::AsAllowed)
    }

    fn output(
        mut self,
        name: &'static str,
        path: Option<&Path>,
        contents: Contents,
        existing: Existing,
    ) -> Files {
        self.0.files.extend(path.map(|path| OutputFile { name, path: path.into(), contents, existing }));
        self
    }

    /// Adds a folder that files are written into.
    pub fn write_into(mut self, name: &'static str, folder: Option<&Path>) -> Files {
        self.0.folders.extend(folder.map(|path| OutputFolder { name, path: path.into() }));
        self
    }

    /// The files.
    pub fn listed(&self) -> &CommandFiles {
        &self.0
    }

    /// Checks that no output replaces an input, and returns a context in which none replaces a file that a data set lists.
    pub fn check(self, context: &Context) -> Result<Context, Failure> {
        self.0.check().map_err(JobFailure::of)?;
        Ok(context.clone().writing(Arc::new(self.0)))
    }
}
