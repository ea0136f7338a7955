//! Ensembles of two candidates over the cases that validated both: the mean of the probabilities of two models that have not seen the
//! case.
//!
//! ```text
//! OUT/members/fold_0.1234abcd/   the probabilities of a fold's validation cases; removed once all ensembles are done
//! OUT/A + B.1234abcd/            labels by the mean of both, summary.json, and origin.json, which names the checkpoints
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Case, Dataset, prediction_ending};
use plimsoll_infer::{EnsembleRequest, InferError, label_by_mean};
use plimsoll_memory::{Bytes, Digest, Reservation};
use plimsoll_metrics::comparison::{Candidate, Repeat, ensemble_name, expect_same_repeats};
use plimsoll_metrics::{CasePaths, Settings, Summary};
use plimsoll_models::{Model, SegmentationModel};
use plimsoll_plan::Backend;
use plimsoll_run::{CheckpointKind, FoldFolder, RunError, Specification, read_json, write_json};
use serde_json::{Value, json};

use super::HELD_PER_BYTE;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::make_folder;
use crate::jobs::evaluate::score;
use crate::jobs::listed::{Listed, Opening};
use crate::jobs::memory_limit::MemoryLimit;
use crate::jobs::predict::ensemble::{MOST_LETTERS, named_by_path};
use crate::jobs::predict::fold::{FoldPrediction, fold_labels};
use crate::jobs::validate::{LONGEST_SUMMARY, Origin};

/// Ensembles to be predicted.
pub struct PairEnsembles {
    /// The folder of the ensembles.
    pub folder: PathBuf,
    /// The data set that all candidates were trained on; of classifiers none, whose folds keep what they say of images.
    pub dataset: Option<PathBuf>,
    /// Allows the lists of the data set to name files outside its folder.
    pub allow_outside: bool,
    /// A flag that only has an effect where something is predicted.
    pub of_predictions: Option<&'static str>,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
    /// Threads that compute.
    pub threads: usize,
}

/// A candidate with its trained models.
pub struct TrainedCandidate {
    /// The name.
    pub name: String,
    /// The folds of each repeat.
    pub repeats: Vec<Vec<FoldFolder>>,
}

/// The fold of a repeat that validated each case.
type Folds = BTreeMap<String, FoldFolder>;

/// The common data of all ensembles of a call.
struct Job<'a> {
    asked: &'a PairEnsembles,
    dataset: Dataset,
    /// The place of each case in the data set, by its name.
    places: BTreeMap<String, usize>,
    settings: &'a Settings,
    context: &'a Context,
}

/// Two repeats whose probabilities are averaged.
struct Pair {
    name: String,
    folder: PathBuf,
    folds: [Folds; 2],
}

impl PairEnsembles {
    /// Predicts and scores the ensembles of all pairs of candidates over these cases, repeat by repeat. Returns them with the reservations
    /// of their scores. Existing results of the same checkpoints are kept, so that an interrupted call continues.
    pub fn validate(
        &self,
        trained: &[TrainedCandidate],
        cases: &[String],
        settings: &Settings,
        memory: &mut MemoryLimit,
        context: &Context,
    ) -> Outcome<(Vec<Candidate>, Vec<Reservation>)> {
        let Some(first) = trained.iter().flat_map(|one| one.repeats.iter().flatten()).next() else {
            return Err(Error::new("there is no model to average", "name folders of runs, or of a sweep"));
        };
        let Some(of_dataset) = &self.dataset else {
            return Err(Error::new("no data set is named", "name it with ‹data›"));
        };
        let specification = Specification::read(first)?;
        let opening = Opening {
            settings: &specification.settings,
            allow_outside: self.allow_outside,
            threads: self.threads,
            context,
        };
        let Listed::Volumes(dataset) = Listed::open(of_dataset, &opening, &memory.budget)? else {
            let message = format!("{} is a data set of images with classes", of_dataset.display());
            return Err(Error::new(message, "name the data set of the candidates' training"));
        };
        let places = dataset.cases.iter().enumerate().map(|(place, case)| (case.id.clone(), place)).collect();
        let job = Job { asked: self, dataset, places, settings, context };
        let cases: BTreeSet<&str> = cases.iter().map(String::as_str).collect();
        let (mut found, mut held) = (Vec::new(), Vec::new());
        for (at, one) in trained.iter().enumerate() {
            for other in &trained[at + 1..] {
                found.push(job.candidate(one, other, &cases, memory, &mut held)?);
            }
        }
        self.remove_members(trained)?;
        Ok((found, held))
    }

    /// Removes what single folds said, which takes far more room than labels.
    fn remove_members(&self, trained: &[TrainedCandidate]) -> Outcome {
        for fold in trained.iter().flat_map(|one| one.repeats.iter().flatten()) {
            let folder = self.member(fold);
            if !folder.is_dir() {
                continue;
            }
            remove_files(&folder)?;
            plimsoll_disk::remove_folder(&folder).map_err(|error| Error::at_path(&folder, &error))?;
        }
        let all = self.members();
        let io = |error| Error::at_path(&all, &error);
        // Those of other candidates stay, of a call that has not ended.
        if all.is_dir() && plimsoll_disk::read_dir(&all).map_err(io)?.is_empty() {
            plimsoll_disk::remove_folder(&all).map_err(io)?;
        }
        Ok(())
    }

    /// The folder of the probabilities of a fold.
    fn member(&self, fold: &FoldFolder) -> PathBuf {
        self.members().join(named_by_path(fold.path()))
    }

    fn members(&self) -> PathBuf {
        self.folder.join("members")
    }
}

impl Job<'_> {
    fn candidate(
        &self,
        one: &TrainedCandidate,
        other: &TrainedCandidate,
        cases: &BTreeSet<&str>,
        memory: &mut MemoryLimit,
        held: &mut Vec<Reservation>,
    ) -> Outcome<Candidate> {
        let name = ensemble_name(&one.name, &other.name);
        expect_same_repeats(&one.name, one.repeats.len(), &other.name, other.repeats.len())?;
        let mut repeats = Vec::new();
        for (number, (own, others)) in one.repeats.iter().zip(&other.repeats).enumerate() {
            let folds = [validated(own, cases)?, validated(others, cases)?];
            let paths: Vec<&Path> =
                folds.iter().flat_map(|folds| folds.values().next()).map(FoldFolder::path).collect();
            let folder = self.asked.folder.join(pair_folder(&name, &paths));
            let pair = Pair { name: format!("{name}/{number}"), folder, folds };
            let summary = self.summary(&pair, memory, held)?;
            repeats.push(Repeat::new(pair.name.clone(), pair.name, summary, [])?);
        }
        Ok(Candidate { name, repeats })
    }

    /// The scores of a pair, predicted if they do not exist, within a reservation.
    fn summary(
        &self,
        pair: &Pair,
        memory: &mut MemoryLimit,
        held: &mut Vec<Reservation>,
    ) -> Outcome<Summary> {
        let (said, scores) = (pair.folder.join("origin.json"), pair.folder.join("summary.json"));
        let origin = pair.origin(self.settings)?;
        if said.is_file() && scores.is_file() && read_json::<Value>(&said, LONGEST_SUMMARY)? == origin {
            held.push(self.room(&scores, memory)?);
            return Ok(read_json(&scores, LONGEST_SUMMARY)?);
        }
        make_folder(&pair.folder)?;
        if said.is_file() {
            // From here on labels and scores are no longer what it says.
            plimsoll_disk::remove_file(&said).map_err(|error| Error::at_path(&said, &error))?;
        }
        let mut members = BTreeMap::new();
        for folds in &pair.folds {
            let own: BTreeSet<&Path> = folds.values().map(FoldFolder::path).collect();
            for path in own {
                let (fold, cases) = self.cases_of(folds, path)?;
                members.insert(path.to_path_buf(), self.member(fold, &cases, memory)?);
            }
        }
        let mut paths = Vec::new();
        for id in pair.folds[0].keys() {
            let case = self.case(id)?;
            let predictors = pair.folds.iter().filter_map(|folds| members.get(folds.get(id)?.path()));
            let predictors: Vec<&Member> = predictors.collect();
            let [one, other] = predictors[..] else {
                return Err(RunError::UnknownCase { case: id.clone() }.into());
            };
            if one.model.answers != other.model.answers {
                let message = format!("the labels of both models of {} differ", pair.name);
                return Err(Error::new(message, "leave out ‹ensembles›, or compare runs of the same labels"));
            }
            let labels = pair.folder.join(format!("{id}{}", prediction_ending(&self.dataset.file_ending)));
            let probabilities = [one, other].map(|member| member.folder.join(format!("{id}.npz")));
            let (Some(image), Some(reference)) = (case.image_files().next(), case.label.clone()) else {
                return Err(RunError::UnknownCase { case: id.clone() }.into());
            };
            let request = EnsembleRequest {
                case: id,
                probabilities: &probabilities,
                answers: &one.model.answers,
                image,
                labels: &labels,
            };
            label_by_mean(&request, &memory.budget, self.context.stop.flag())
                .map_err(|problem| self.ended(problem))?;
            let reference_values = case.reading.label_values.clone();
            paths.push(CasePaths {
                prediction: labels,
                reference,
                reference_values,
                prediction_values: None,
            });
        }
        let summary = score(&paths, self.settings, &memory.budget, self.asked.threads, self.context)?;
        write_json(&scores, &summary)?;
        held.push(self.room(&scores, memory)?);
        // Last, because it states that all files before it are complete.
        write_json(&said, &origin)?;
        Ok(summary)
    }

    /// Room for scores that are read from a file, or were written to it.
    fn room(&self, scores: &Path, memory: &MemoryLimit) -> Outcome<Reservation> {
        let length = plimsoll_disk::metadata(scores).map_err(|error| Error::at_path(scores, &error))?.len();
        Ok(memory.budget.reserve("scores", Bytes(length.saturating_mul(HELD_PER_BYTE)))?)
    }

    /// The probabilities of a fold for these cases, predicted if they do not exist.
    fn member(&self, fold: &FoldFolder, cases: &[Case], memory: &mut MemoryLimit) -> Outcome<Member> {
        let folder = self.asked.member(fold);
        make_folder(&folder)?;
        let model: SegmentationModel = Model::open(fold.path(), CheckpointKind::Final)?.try_into()?;
        let to = fold_labels(&folder, &self.dataset.file_ending, true);
        let (said, origin) = (folder.join("origin.json"), origin_of(fold)?);
        if !said.is_file() || read_json::<Value>(&said, LONGEST_SUMMARY)? != origin {
            remove_files(&folder)?;
            write_json(&said, &origin)?;
        }
        if !cases.iter().all(|case| to.keeps(case)) {
            self.context.note(format_args!("predicting {} cases of {}", cases.len(), fold.path().display()));
            let PairEnsembles { backend, threads, .. } = self.asked;
            let prediction = FoldPrediction { backend, threads: *threads, context: self.context };
            if !prediction.predict(model.clone(), cases, &to, memory, &mut || Ok(()))? {
                return Err(self.interrupted());
            }
        }
        Ok(Member { folder, model })
    }

    /// A fold of those that cases were validated by, with its cases.
    fn cases_of<'f>(&self, folds: &'f Folds, path: &Path) -> Outcome<(&'f FoldFolder, Vec<Case>)> {
        let own: Vec<(&String, &FoldFolder)> = folds.iter().filter(|(_, fold)| fold.path() == path).collect();
        let Some((_, fold)) = own.first() else {
            return Err(RunError::UnknownCase { case: path.display().to_string() }.into());
        };
        let cases = own.iter().map(|(id, _)| self.case(id).cloned()).collect::<Outcome<Vec<Case>>>()?;
        Ok((fold, cases))
    }

    fn case(&self, id: &str) -> Outcome<&Case> {
        let found = self.places.get(id).and_then(|place| self.dataset.cases.get(*place));
        found.ok_or_else(|| RunError::UnknownCase { case: id.into() }.into())
    }

    fn ended(&self, problem: InferError) -> Error {
        match problem {
            InferError::Interrupted { .. } => self.interrupted(),
            problem => problem.into(),
        }
    }

    fn interrupted(&self) -> Error {
        Error::stopped("not all ensembles are predicted", "the same command continues")
    }
}

/// A fold with predicted probabilities.
struct Member {
    folder: PathBuf,
    model: SegmentationModel,
}

impl Pair {
    /// The checkpoints and settings that the scores follow from.
    fn origin(&self, settings: &Settings) -> Outcome<Value> {
        let mut all = Vec::new();
        for folds in &self.folds {
            let mut origins = BTreeMap::<&Path, Value>::new();
            let mut of_cases = BTreeMap::new();
            for (case, fold) in folds {
                if !origins.contains_key(fold.path()) {
                    origins.insert(fold.path(), origin_of(fold)?);
                }
                of_cases.insert(case, origins.get(fold.path()).cloned());
            }
            all.push(of_cases);
        }
        Ok(json!({"members": all, "settings": settings}))
    }
}

/// The fold of a repeat that validated each of these cases.
fn validated(folds: &[FoldFolder], cases: &BTreeSet<&str>) -> Outcome<Folds> {
    let mut found = Folds::new();
    for fold in folds {
        for case in Specification::read(fold)?.cases.val {
            found.insert(case, fold.clone());
        }
    }
    found.retain(|case, _| cases.contains(case.as_str()));
    match cases.iter().find(|case| !found.contains_key(**case)) {
        None => Ok(found),
        Some(case) => Err(RunError::UnknownCase { case: case.to_string() }.into()),
    }
}

/// The checkpoint of the validation of a fold, which must have the fold's final weights.
fn origin_of(fold: &FoldFolder) -> Outcome<Value> {
    Ok(serde_json::to_value(Origin::read_validated(fold)?)?)
}

/// The name of the folder of two repeats, with a number of their paths that tells repeats of the same name apart.
pub(super) fn pair_folder(name: &str, paths: &[&Path]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| named_by_path(path)).collect();
    let number = Digest::compute(paths.join("+").as_bytes()).0 as u32;
    let name: String = name.replace('/', "_").chars().take(MOST_LETTERS).collect();
    format!("{name}.{number:08x}")
}

fn remove_files(folder: &Path) -> Outcome {
    for file in plimsoll_disk::read_dir(folder).map_err(|error| Error::at_path(folder, &error))? {
        plimsoll_disk::remove_file(&file).map_err(|error| Error::at_path(&file, &error))?;
    }
    Ok(())
}
