//! The files that a job reads and writes, which are checked before it begins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::{CLOSED_FOLDERS, Context, expect_apart_from_data};
use plimsoll_disk::outputs::{CommandFiles, Contents, Existing, Input, OutputFile, OutputFolder};
use plimsoll_memory::Bytes;

use super::JobFailure;
use crate::Failure;

/// The files of a job, collected by argument.
#[derive(Default)]
pub(crate) struct Files(CommandFiles);

impl Files {
    /// Adds inputs, whose name is a phrase like `the data set`.
    pub fn read<'a>(mut self, name: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Files {
        let inputs = paths.into_iter().map(|path| Input {
            name,
            part: "it",
            path: path.clone(),
            closed: CLOSED_FOLDERS,
        });
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

    /// Adds an output in a place of its own, which may replace a file of the same kind.
    pub fn write_at_fixed_path(self, argument: &'static str, path: &Path, contents: Contents) -> Files {
        self.output(argument, Some(path), contents, Existing::SameContentsAtFixedPath)
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

    /// Checks that no output is a file of a data set that one of these models was trained on.
    pub fn expect_apart_from_data<'a>(
        &self,
        models: impl IntoIterator<Item = &'a Path>,
        ram: Option<Bytes>,
    ) -> Result<(), Failure> {
        expect_apart_from_data(models, &self.0, ram).map_err(JobFailure::wrap)
    }

    /// Checks that no output replaces an input.
    pub fn expect_apart(&self) -> Result<(), Failure> {
        self.0.check().map_err(JobFailure::wrap)
    }

    /// Checks that no output replaces an input, and returns a context in which none replaces a file that a data set lists.
    pub fn check(self, context: &Context) -> Result<Context, Failure> {
        self.expect_apart()?;
        Ok(context.clone().writing(Arc::new(self.0)))
    }
}
