//! Checks of a training that read no image: folds, new and lost cases, initial weights.

use std::path::Path;

use plimsoll_data::{Fold, FoldsNeeds, Splits};
use plimsoll_memory::Budget;
use plimsoll_remedy::Remedy;
use plimsoll_run::{FoldFolder, FoldName, InitialWeights, RunError, RunFolder, holder};

use super::request::{FoldChoice, TrainRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::data_changes::{Begun, unassigned};
use crate::jobs::listed::{Listed, folds_needs};

/// A fold to train, with its cases.
#[derive(Clone)]
pub(super) struct FoldToTrain {
    pub(super) folder: FoldFolder,
    pub(super) cases: Fold,
    /// Cases of the data set that are in no fold of the run.
    pub(super) left_out: Vec<String>,
}

pub(super) fn no_fold() -> Error {
    Error::new("no fold is named", "like ‹fold=0›")
}

/// A checked request: the facts that follow from file names and headers, before any image is read.
#[derive(Clone)]
pub(in crate::jobs) struct Checked {
    pub(super) folds: Vec<FoldToTrain>,
    /// The splits to store with a run that has none.
    pub(super) splits: Option<Splits>,
    /// `true` if the data set has changed and the splits of the run are replaced.
    pub(super) replaces_splits: bool,
    pub(super) initial: InitialWeights,
}

impl Checked {
    /// A single fold that begins with random weights. `splits` are stored with its run, and `left_out` names the cases that no fold has.
    pub(in crate::jobs) fn for_fold(
        folder: FoldFolder,
        cases: Fold,
        splits: Option<Splits>,
        left_out: Vec<String>,
    ) -> Checked {
        let folds = vec![FoldToTrain { folder, cases, left_out }];
        Checked { folds, splits, replaces_splits: false, initial: InitialWeights::Seed }
    }

    /// The memory that the splits take.
    pub(super) fn folds_needs(&self) -> Outcome<FoldsNeeds> {
        self.splits.as_ref().map_or(Ok(FoldsNeeds::default()), folds_needs)
    }

    /// The same request with other initial weights.
    pub(in crate::jobs) fn with_initial(self, initial: InitialWeights) -> Checked {
        Checked { initial, ..self }
    }
}

/// The cases of folds, as splits divide them.
struct FoldCases<'a> {
    /// The folds; `None` if they cannot be read.
    splits: &'a Option<Splits>,
    /// Cases that no fold has.
    left_out: &'a [String],
    /// All cases of the data set.
    ids: &'a [String],
    begun: &'a Begun,
}

impl TrainRequest {
    /// Checks the request without reading an image. The error lists all problems.
    pub(in crate::jobs) fn check(
        &self,
        listed: &Listed,
        budget: &Budget,
        context: &Context,
    ) -> Outcome<Checked> {
        let ids = listed.names();
        let mut problems = Vec::new();
        let mut found = |problem: Error| problems.push(problem);
        let begun = Begun::read(&self.run).map_err(&mut found).unwrap_or(Begun { folds: Vec::new() });
        let placed = self
            .splits(listed, &ids, budget)
            .and_then(|splits| self.place(splits, &begun, listed, &ids, context));
        let (splits, replaces_splits) = placed.map_err(&mut found).unwrap_or((None, false));
        let left_out = splits.as_ref().map_or_else(Vec::new, |splits| unassigned(&ids, splits));
        let initial = self.initial().unwrap_or_else(|problem| {
            found(problem);
            InitialWeights::Seed
        });
        let names = match (&self.folds, &splits) {
            (FoldChoice::Named(names), _) => names.clone(),
            (FoldChoice::Every, Some(splits)) => (0..splits.folds.len()).map(FoldName::Number).collect(),
            (FoldChoice::Every, None) => Vec::new(),
        };
        let choice = FoldCases { splits: &splits, left_out: &left_out, ids: &ids, begun: &begun };
        let folds = self.folds_to_train(names, &choice, &mut found);
        if self.resume && !folds.is_empty() && folds.iter().all(|fold| !fold.folder.is_begun()) {
            let specification = folds[0].folder.specification();
            found(RunError::NothingToResume { specification }.into());
        }
        writable(&self.run).unwrap_or_else(&mut found);
        self.monitoring.check().unwrap_or_else(&mut found);
        if problems.is_empty() {
            let splits = splits.filter(|_| {
                matches!(self.folds, FoldChoice::Every)
                    || folds.iter().any(|fold| fold.folder.name() != FoldName::All)
            });
            return Ok(Checked { folds, splits, replaces_splits, initial });
        }
        let all: Vec<String> = problems.iter().map(Error::line).collect();
        let remedy = problems.first().map_or_else(|| Remedy::from(""), |first| first.remedy().clone());
        Err(Error::new(all.join("; also: "), remedy))
    }

    /// The named folds with their cases. Problems are passed to `found`.
    fn folds_to_train(
        &self,
        names: Vec<FoldName>,
        cases: &FoldCases<'_>,
        found: &mut dyn FnMut(Error),
    ) -> Vec<FoldToTrain> {
        let FoldCases { splits, left_out, ids, begun } = *cases;
        let mut folds = Vec::new();
        for name in names {
            let cases = match (name, splits) {
                (FoldName::All, _) => {
                    let expected = begun.expect_all(&self.run.fold(name), ids, self.new_cases);
                    expected.map(|()| Fold::all(ids))
                }
                (FoldName::Number(number), Some(splits)) => splits.fold(number).cloned().map_err(Error::from),
                // The missing splits are reported already.
                (FoldName::Number(_), None) => continue,
            };
            let folder = self.run.fold(name);
            if folder.is_begun() && !self.resume {
                found(RunError::Occupied { folder: folder.path().into() }.into());
            }
            if let Some((by, true)) = holder(&folder) {
                found(RunError::Locked { folder: folder.path().into(), holder: by.to_string() }.into());
            }
            match cases {
                Ok(cases) => {
                    let left_out = if name == FoldName::All { Vec::new() } else { left_out.to_vec() };
                    folds.push(FoldToTrain { folder, cases, left_out });
                }
                Err(problem) => found(problem),
            }
        }
        folds
    }

    /// Reads the folds: of the given file, or else of the run, or else of the data set, or else nnU-Net's usual five. `None` if only fold
    /// `all` is requested.
    fn splits(&self, listed: &Listed, ids: &[String], budget: &Budget) -> Outcome<Option<Splits>> {
        if let Some(given) = &self.splits
            && !given.is_file()
        {
            let message = format!("{} does not exist", given.display());
            return Err(Error::new(message, "leave ‹splits› out to create folds"));
        }
        let places = [self.splits.clone(), Some(self.run.splits()), listed.splits_file()];
        // Fold `all` needs no splits, and so no memory for them.
        let only_all = self.folds == FoldChoice::Named(vec![FoldName::All]);
        Ok(match places.into_iter().flatten().find(|path| path.is_file()) {
            _ if only_all => None,
            Some(path) if path == self.run.splits() => Some(Splits::read_of_run(path, budget)?),
            Some(path) => Some(Splits::read(path, ids, budget)?),
            None => Some(listed.usual_splits(budget)?),
        })
    }

    /// Removes lost cases from the splits and adds new ones, as the request says. Returns `true` as well if the run's splits change.
    fn place(
        &self,
        splits: Option<Splits>,
        begun: &Begun,
        listed: &Listed,
        ids: &[String],
        context: &Context,
    ) -> Outcome<(Option<Splits>, bool)> {
        // Fold `all` has no splits.
        let has_numbers = match &self.folds {
            FoldChoice::Every => true,
            FoldChoice::Named(names) => names.iter().any(|name| *name != FoldName::All),
        };
        let Some(mut splits) = splits.filter(|_| has_numbers) else { return Ok((None, false)) };
        let run = self.run.path();
        let is_shorter = begun.remove_lost(run, &mut splits, ids, self.accept_changed_data)?;
        let (is_longer, notice) = begun.place_new(run, &mut splits, listed, ids, self.new_cases)?;
        if let Some(notice) = notice {
            context.warn(notice);
        }
        Ok((Some(splits), is_shorter || is_longer))
    }

    /// The initial weights.
    fn initial(&self) -> Outcome<InitialWeights> {
        let Some(start) = &self.plan.start else { return Ok(InitialWeights::Seed) };
        Ok(InitialWeights::from_file(start.weights(), start.rule().clone())?)
    }
}

/// Checks that files can be created in the folder of a run, or in its first parent folder that exists.
fn writable(run: &RunFolder) -> Outcome {
    let there = run.path().ancestors().find(|folder| folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    plimsoll_disk::expect_writable(there).map_err(|error| Error::at_path(there, &error))
}
