//! Cases that a data set has gained, lost or changed since a run of it was begun.
//!
//! Folds of a run are averaged, so they must be of the same data. A change is named and refused unless the user says what to do.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use plimsoll_data::Splits;
use plimsoll_memory::Digest;
use plimsoll_run::{FoldFolder, FoldName, RunError, RunFolder, Specification, Task};

use super::listed::Listed;
use super::new_cases::include;
use crate::error::Outcome;

/// The treatment of cases that were added to the data set after the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewCases {
    /// Each is validated in a fold that is not begun yet, and trained on in the others that are not; groups stay together.
    Include,
    /// They are in no fold.
    LeaveOut,
}

/// The folds of a run that are begun, with what they were begun as.
pub struct Begun {
    /// The folds.
    pub folds: Vec<(FoldFolder, Specification)>,
}

impl Begun {
    /// Those of a run.
    pub fn read(run: &RunFolder) -> Outcome<Begun> {
        let read = |fold: FoldFolder| Specification::read(&fold).map(|specification| (fold, specification));
        Ok(Begun { folds: run.folds()?.into_iter().map(read).collect::<Result<_, _>>()? })
    }

    /// The numbers of folds that are begun.
    fn numbers(&self) -> BTreeSet<usize> {
        let number = |fold: &FoldFolder| match fold.name() {
            FoldName::Number(number) => Some(number),
            FoldName::All => None,
        };
        self.folds.iter().filter_map(|(fold, _)| number(fold)).collect()
    }

    /// Those of `cases` that a fold was begun without, by choice or because its splits lack them.
    fn without_left_out(&self, cases: Vec<String>) -> Vec<String> {
        let left_out: BTreeSet<&String> =
            self.folds.iter().flat_map(|(_, specification)| &specification.left_out).collect();
        cases.into_iter().filter(|case| !left_out.contains(case)).collect()
    }

    /// Takes cases that the data set has lost out of folds that are not begun, if `accept` is set.
    ///
    /// # Errors
    /// Returns an error if it is not set, with their names.
    pub fn remove_lost(
        &self,
        run: &Path,
        splits: &mut Splits,
        ids: &[String],
        accept: bool,
    ) -> Outcome<bool> {
        let known: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let lost: Vec<String> = splits.cases().difference(&known).map(ToString::to_string).collect();
        if lost.is_empty() {
            return Ok(false);
        }
        if !accept {
            return Err(RunError::LostCases { folder: run.into(), cases: lost }.into());
        }
        let (begun, lost): (_, BTreeSet<String>) = (self.numbers(), lost.into_iter().collect());
        let open = splits.folds.iter_mut().enumerate().filter(|(number, _)| !begun.contains(number));
        for (_, fold) in open {
            fold.train.retain(|case| !lost.contains(case));
            fold.val.retain(|case| !lost.contains(case));
        }
        splits.check_lists(&run.join("splits_final.json"))?;
        Ok(true)
    }

    /// Does with cases that are in no fold what is chosen. Returns whether the splits were changed, and what is to be said.
    ///
    /// # Errors
    /// Returns an error if there are such, a fold is begun, and nothing is chosen; or if they are to be included, and all folds are
    /// begun.
    pub fn place_new(
        &self,
        run: &Path,
        splits: &mut Splits,
        cases: &Listed,
        ids: &[String],
        choice: Option<NewCases>,
    ) -> Outcome<(bool, Option<String>)> {
        let new = self.without_left_out(unassigned(ids, splits));
        if new.is_empty() {
            return Ok((false, None));
        }
        match choice {
            Some(NewCases::Include) => {
                let begun = self.numbers();
                let open: Vec<usize> =
                    (0..splits.folds.len()).filter(|number| !begun.contains(number)).collect();
                if open.is_empty() {
                    return Err(RunError::AllFoldsBegun { folder: run.into(), cases: new }.into());
                }
                let only_trained = include(splits, &open, &new, &cases.traits());
                let mut notice = format!(
                    "{} new since the run started: included in folds that have not started",
                    listed(&new)
                );
                if !only_trained.is_empty() {
                    notice.push_str(&format!(
                        "; {} only trained on, because a started fold validates other images of the same group",
                        listed(&only_trained)
                    ));
                }
                Ok((true, Some(notice)))
            }
            Some(NewCases::LeaveOut) => Ok((false, Some(format!("{} left out of all folds", listed(&new))))),
            None if self.folds.is_empty() => {
                let all = listed(&new);
                Ok((false, Some(format!("{all} in no fold of the splits: neither trained on nor validated"))))
            }
            None => Err(RunError::NewCases { folder: run.into(), cases: new }.into()),
        }
    }

    /// Names the cases that a begun fold `all` lacks.
    ///
    /// # Errors
    /// Returns an error if there are such and they are not left out by choice.
    pub fn expect_all(&self, fold: &FoldFolder, ids: &[String], choice: Option<NewCases>) -> Outcome {
        let Some((_, begun)) = self.folds.iter().find(|(folder, _)| folder.name() == fold.name()) else {
            return Ok(());
        };
        let known: BTreeSet<&String> = begun.cases.train.iter().chain(&begun.cases.val).collect();
        let new: Vec<String> = ids.iter().filter(|case| !known.contains(case)).cloned().collect();
        let (new, folder) = (self.without_left_out(new), fold.path().to_path_buf());
        match (new.is_empty(), choice) {
            (true, _) | (_, Some(NewCases::LeaveOut)) => Ok(()),
            (_, Some(NewCases::Include)) => Err(RunError::AllFoldsBegun { folder, cases: new }.into()),
            (_, None) => Err(RunError::NewCases { folder, cases: new }.into()),
        }
    }

    /// Compares the data of a new fold with the data of the folds before it.
    ///
    /// # Errors
    /// Returns an error if classes, channels, images or labels have changed; the error names them.
    pub fn expect_same_data(&self, run: &Path, task: &Task, now: &HashMap<&str, Digest>) -> Outcome {
        let mut changed = BTreeSet::new();
        for (_, begun) in &self.folds {
            changed.extend(begun.config.task.changed_data(task));
            let is_other = |(case, content): &(&String, &Digest)| {
                now.get(case.as_str()).is_some_and(|now| now != *content)
            };
            changed.extend(begun.data.iter().filter(is_other).map(|(case, _)| case.clone()));
        }
        match changed.is_empty() {
            true => Ok(()),
            false => {
                let changed = changed.into_iter().collect();
                Err(RunError::ChangedData { folder: run.into(), changed }.into())
            }
        }
    }
}

/// The cases that no fold has.
pub fn unassigned(ids: &[String], splits: &Splits) -> Vec<String> {
    let known = splits.cases();
    ids.iter().filter(|case| !known.contains(case.as_str())).cloned().collect()
}

/// Some cases in a sentence, as its subject.
fn listed(cases: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = cases.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match cases.len() {
        1 => format!("the case {shown} is"),
        count if count <= SHOWN => format!("the cases {shown} are"),
        count => format!("the cases {shown} and {} more are", count - SHOWN),
    }
}
