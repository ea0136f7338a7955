//! Opening the volumes of a data set and the cases of a fold, for programs that train networks of their own.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_data::{Dataset, Fold, Inspection, Splits};
use plimsoll_memory::Budget;
use plimsoll_run::{ImageSettings, Settings};
use plimsoll_train::RunData;

use super::listed::{Inspecting, Listed, Opening};
use crate::context::Context;
use crate::error::{Error, Outcome};

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

/// A fold of a data set of volumes.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    /// The place of the data set.
    pub place: DataPlace,
    /// The settings that describe the data set.
    pub settings: Settings,
    /// Allows lists to name files outside of the data set's folder.
    pub allow_outside: bool,
    /// Leaves cases with an error out.
    pub skip_bad_cases: bool,
    /// The number of the fold; `None` for all cases, which then train and validate.
    pub fold: Option<usize>,
    /// Cases that are read at a time, at least 1.
    pub threads: usize,
}

/// An inspected data set of volumes, and the cases of a fold.
#[derive(Debug)]
pub struct FoldData {
    /// The data set.
    pub dataset: Dataset,
    /// Its inspection.
    pub inspection: Arc<Inspection>,
    /// The cases of the fold.
    pub fold: Fold,
}

/// Opens and inspects a data set of volumes. What an earlier job has found is read from the context's cache folder if no file has changed.
///
/// # Errors
/// Returns an error if the data set cannot be opened or has no label maps, a case cannot be used, there is no such fold, the budget is too
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
        (None, _) => Fold::all(&names),
        (Some(number), Some(path)) => Splits::read(path, &names, budget)?.fold(number)?.clone(),
        (Some(number), None) => listed.usual_splits(budget)?.fold(number)?.clone(),
    };
    let images = ImageSettings::default();
    let inspecting =
        Inspecting { threads: request.threads, skip_bad_cases: request.skip_bad_cases, images: &images };
    if let Listed::Images { place, .. } = &listed {
        let message = format!("{} has images with classes, and no label maps", place.display());
        return Err(Error::new(
            message,
            "patches are cut out of images with label maps; ‹job train› trains classifiers",
        ));
    }
    let found = listed.inspect(&inspecting, budget, context)?;
    found.skipped.iter().for_each(|skipped| context.warn(skipped));
    let RunData::Volumes { dataset, inspection } = found.data else {
        return Err(Error::new(format!("{} has no volumes", found.name), ""));
    };
    let known: HashSet<&str> = dataset.cases.iter().map(|case| case.id.as_str()).collect();
    for cases in [&mut fold.train, &mut fold.val] {
        cases.retain(|case| known.contains(case.as_str()));
    }
    Ok(FoldData { dataset, inspection, fold })
}
