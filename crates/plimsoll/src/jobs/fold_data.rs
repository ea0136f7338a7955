//! Opening a data set and the cases of a fold, for programs that train networks of their own.

use std::collections::HashSet;
use std::path::PathBuf;

use plimsoll_data::{Fold, Splits};
use plimsoll_memory::Budget;
use plimsoll_run::Settings;
use plimsoll_train::RunData;

use super::listed::{Inspecting, Listed, Opening};
use crate::context::Context;
use crate::error::Outcome;

/// The place of a data set.
#[derive(Clone, Debug)]
pub enum DataPlace {
    /// A folder, a table or a list.
    Path(PathBuf),
    /// A list in memory.
    List {
        /// The JSON of a MONAI data list: `{"training": [{"image": …, "label": …}, …]}`.
        text: String,
        /// The folder that its paths are relative to.
        folder: PathBuf,
    },
}

/// A fold of a data set.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    /// The place of the data set.
    pub place: DataPlace,
    /// The settings that describe the data set, and the preparation of images with classes.
    pub settings: Settings,
    /// Allows lists to name files outside of the data set's folder.
    pub allow_outside: bool,
    /// Leaves cases with an error out; of volumes alone.
    pub skip_bad_cases: bool,
    /// The number of the fold; `None` for all cases, which then train and validate, or for the division that images have of their own.
    pub fold: Option<usize>,
    /// Cases that are read at a time, at least 1.
    pub threads: usize,
}

/// An inspected data set, and the cases of a fold.
#[derive(Clone)]
pub struct FoldData {
    /// The name of the data set.
    pub name: String,
    /// The data set and its inspection.
    pub data: RunData,
    /// The cases of the fold.
    pub fold: Fold,
}

/// Opens and inspects a data set. What an earlier job has found is read from the context's cache folder if no file has changed.
///
/// # Errors
/// Returns an error if the data set cannot be opened or has neither label maps nor classes, a case cannot be used, there is no such fold,
/// the budget is too
/// small, or the context's stop token asks for an end.
pub fn open_fold(request: &FoldRequest, budget: &Budget, context: &Context) -> Outcome<FoldData> {
    let opening = Opening {
        settings: &request.settings,
        allow_outside: request.allow_outside,
        threads: request.threads,
        context,
    };
    let (listed, has_splits) = match &request.place {
        DataPlace::Path(path) => (Listed::open(path, &opening, budget)?, true),
        // A file of folds in its folder may be of another data set.
        DataPlace::List { text, folder } => (Listed::open_list(text, folder, &opening, budget)?, false),
    };
    for warning in listed.warnings() {
        context.warn(warning);
    }
    let names = listed.names();
    let splits_file = listed.splits_file().filter(|path| has_splits && path.is_file());
    let mut fold = match (request.fold, splits_file) {
        (None, _) => listed.unnamed_fold(),
        (Some(number), Some(path)) => Splits::read(path, &names, budget)?.fold(number)?.clone(),
        (Some(number), None) => listed.usual_splits(budget)?.fold(number)?.clone(),
    };
    let images = request.settings.images.clone().unwrap_or_default();
    let inspecting =
        Inspecting { threads: request.threads, skip_bad_cases: request.skip_bad_cases, images: &images };
    let found = listed.inspect(&inspecting, budget, context)?;
    found.skipped.iter().for_each(|skipped| context.warn(skipped));
    if let RunData::Volumes { dataset, .. } = &found.data {
        let known: HashSet<&str> = dataset.cases.iter().map(|case| case.id.as_str()).collect();
        for cases in [&mut fold.train, &mut fold.val] {
            cases.retain(|case| known.contains(case.as_str()));
        }
    }
    Ok(FoldData { name: found.name, data: found.data, fold })
}
