//! Giving images classes with a trained network, or with one for each pair of classes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_image::{ImageDataset, ImageFile, Largest};
use plimsoll_infer::ImagePredictor;
use plimsoll_memory::{Budget, Bytes, Mapped, System, limits, resident};
use plimsoll_metrics::votes::{Rule, Votes};
use plimsoll_run::{
    CheckpointKind, ClassificationTask, EpochRecord, Model, RunFolder, Settings, Task, each_epoch,
};
use serde::Serialize;

use super::listed::Listed;
use super::pairs::pair_run;
use super::predict::PredictRequest;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::write;

/// What came of all images.
#[derive(Serialize)]
pub struct Classified {
    pub file: PathBuf,
    pub images: usize,
    /// Classifiers that voted; 1 where one network knows all classes.
    pub classifiers: usize,
    pub failed: Vec<String>,
    pub planned_bytes: Bytes,
    pub peak_rss_bytes: Bytes,
}

/// What a folder holds to predict with.
enum Classifiers {
    One(Box<Model>),
    /// Of each pair of labels, in order.
    Pairs(Vec<((u32, u32), Model)>),
}

/// Whether a folder holds classifiers of images, and not a network that labels voxels.
pub fn is_classifier(model: &Path) -> Outcome<bool> {
    if !pairs_of(model)?.is_empty() {
        return Ok(true);
    }
    // What is wrong with a model is said by whoever opens it.
    Ok(Model::plans(model).is_ok_and(|config| matches!(config.task, Task::Classification(_))))
}

/// The pairs of labels that a folder has runs of, in order.
pub fn pairs_of(folder: &Path) -> Outcome<Vec<(u32, u32)>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let names = plimsoll_disk::read_dir(folder).map_err(|error| Failure::of_path(folder, &error))?;
    let pair = |path: &PathBuf| {
        let (a, b) = path.file_name()?.to_str()?.strip_prefix("pair_")?.split_once('_')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let mut pairs: Vec<(u32, u32)> = names.iter().filter_map(pair).collect();
    pairs.sort_unstable();
    Ok(pairs)
}

impl Classifiers {
    fn open(folder: &Path, checkpoint: CheckpointKind) -> Outcome<Classifiers> {
        let pairs = pairs_of(folder)?;
        if pairs.is_empty() {
            return Ok(Classifiers::One(Box::new(Model::open(folder, checkpoint)?)));
        }
        let mut models = Vec::new();
        for pair in pairs {
            models.push((pair, Model::open(pair_run(folder, pair).path(), checkpoint)?));
        }
        Ok(Classifiers::Pairs(models))
    }

    fn first(&self) -> Outcome<&Model> {
        match self {
            Classifiers::One(model) => Ok(model),
            Classifiers::Pairs(models) => {
                models.first().map(|(_, model)| model).ok_or_else(|| Failure::new("there is no pair", ""))
            }
        }
    }
}

/// Gives each image of the input its classes, and writes them down. `rule` is how pairs vote.
pub fn classify(request: &PredictRequest, rule: Rule, stop: &AtomicBool, quiet: bool) -> Outcome<Classified> {
    if request.output.exists() && !request.overwrite {
        let message = format!("{} is there already", request.output.display());
        return Err(Failure::new(message, "--overwrite replaces it"));
    }
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let classifiers = Classifiers::open(&request.model, request.checkpoint)?;
    let (task, labels) = known_classes(&classifiers)?;
    let settings = settings_of(&request.model)?;
    let listed = list(&request.input, &settings, &budget)?;
    let mut largest = Largest::default();
    for case in &listed.cases {
        // What cannot be read is said when its turn comes.
        if let Ok(file) = ImageFile::open(&case.path, &task.pipeline.decode) {
            largest.include(&file)?;
        }
    }
    let images: Vec<(&str, &Path)> =
        listed.cases.iter().map(|case| (case.name.as_str(), case.path.as_path())).collect();
    let mut run =
        Run { request, largest, images: &images, budget: &budget, stop, quiet, planned: Bytes::ZERO };
    let classes = labels.len();
    let mut probabilities =
        Mapped::<f64>::zeroed(&budget, "probabilities", images.len().saturating_mul(classes))?;
    let (classifiers_count, failed) = match classifiers {
        Classifiers::One(model) => (1, run.add(*model, &mut probabilities, "classifying")?),
        Classifiers::Pairs(models) => {
            let count = models.len();
            let failed = run.vote(models, (&labels, rule), &mut probabilities)?;
            (count, failed)
        }
    };
    let planned_bytes = run.planned;
    let names: Vec<&str> = labels.iter().map(|label| class_name(&task, *label)).collect();
    let is_failed = |place: usize| failed.iter().any(|(failed, _)| *failed == place);
    write(&request.output, |file| {
        let mut table = csv::Writer::from_writer(file);
        table
            .write_record(["case", "label"].into_iter().chain(names.iter().copied()).chain(["predicted"]))?;
        let rows = listed.cases.iter().zip(probabilities.chunks_exact(classes));
        for (_, (case, row)) in rows.enumerate().filter(|(place, _)| !is_failed(*place)) {
            let label = match &case.labels[..] {
                [label] => listed.classes.get(*label as usize).map_or("", String::as_str),
                _ => "",
            };
            let numbers: Vec<String> = row.iter().map(|probability| format!("{probability:.6}")).collect();
            let mut best = 0;
            for (place, probability) in row.iter().enumerate() {
                if *probability > row[best] {
                    best = place;
                }
            }
            let given = [case.name.as_str(), label].into_iter().chain(numbers.iter().map(String::as_str));
            table.write_record(given.chain([names[best]]))?;
        }
        table.flush()
    })?;
    let failed: Vec<String> = failed.into_iter().map(|(_, problem)| problem).collect();
    for problem in &failed {
        eprintln!("warning: {problem}");
    }
    Ok(Classified {
        file: request.output.clone(),
        images: images.len() - failed.len(),
        classifiers: classifiers_count,
        failed,
        planned_bytes,
        peak_rss_bytes: resident()?.peak,
    })
}

/// The task of the first classifier, and all labels that are told apart.
fn known_classes(classifiers: &Classifiers) -> Outcome<(ClassificationTask, Vec<u32>)> {
    let task = classifiers.first()?.config.task.classification()?.clone();
    let labels = match classifiers {
        Classifiers::One(_) => task.labels.clone(),
        Classifiers::Pairs(models) => {
            let mut labels: Vec<u32> = models.iter().flat_map(|((a, b), _)| [*a, *b]).collect();
            labels.sort_unstable();
            labels.dedup();
            let needed = labels.len() * (labels.len() - 1) / 2;
            if models.len() != needed {
                let message = format!("{} of {needed} pairs of classes are trained", models.len());
                return Err(Failure::new(
                    message,
                    "`plimsoll train --one-vs-one --resume` trains what is missing",
                ));
            }
            labels
        }
    };
    Ok((task, labels))
}

fn class_name(task: &ClassificationTask, label: u32) -> &str {
    task.dataset.classes.get(label as usize).map_or("?", String::as_str)
}

/// What the run of a model was asked for: it knows the columns of tables.
fn settings_of(folder: &Path) -> Outcome<Settings> {
    let run = match pairs_of(folder)?.first() {
        Some(pair) => pair_run(folder, *pair),
        None => RunFolder::new(folder),
    };
    match run.folds()?.first() {
        Some(fold) => Ok(plimsoll_run::Specification::read(fold)?.settings),
        None => Ok(Settings::default()),
    }
}

/// The images of the input: with labels from a table or from folders of classes, else without.
fn list(input: &Path, settings: &Settings, budget: &Budget) -> Outcome<Arc<ImageDataset>> {
    let has_folders = input.is_dir()
        && plimsoll_disk::read_dir(input)
            .map_err(|error| Failure::of_path(input, &error))?
            .iter()
            .any(|path| path.is_dir());
    let is_table = input.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    if has_folders || is_table {
        let mut settings = settings.clone();
        if let Some(images) = settings.images.as_mut().filter(|_| has_folders) {
            images.table = None;
        }
        if let Listed::Images { dataset, .. } = Listed::open(input, &settings, budget)? {
            return Ok(dataset);
        }
    }
    Ok(Arc::new(ImageDataset::unlabelled(input, budget)?))
}

/// The images that are being classified.
struct Run<'a> {
    request: &'a PredictRequest,
    largest: Largest,
    images: &'a [(&'a str, &'a Path)],
    budget: &'a Budget,
    stop: &'a AtomicBool,
    quiet: bool,
    /// What the classifier that held most was planned to hold.
    planned: Bytes,
}

/// Places of images that cannot be read, and why.
type Failed = Vec<(usize, String)>;

impl Run<'_> {
    /// Adds a classifier's probabilities.
    fn add(&mut self, model: Model, sums: &mut [f64], what: &str) -> Outcome<Failed> {
        let options = &self.request.options;
        let how = (options.mirror, options.threads);
        let mut predictor =
            ImagePredictor::new(model, self.largest, how, &self.request.backend, self.budget)?;
        self.planned = self.planned.max(self.budget.used());
        let progress = Progress::new(what.to_string(), self.images.len() as u64, self.quiet);
        let failed = predictor.add_probabilities(self.images, sums, self.stop, &mut |done, of| {
            progress.set((done * self.images.len() / of.max(1)) as u64, String::new())
        });
        progress.finish();
        Ok(failed?.into_iter().map(|(place, problem)| (place, problem.to_string())).collect())
    }

    /// Lets the classifiers of pairs vote.
    fn vote(
        &mut self,
        models: Vec<((u32, u32), Model)>,
        (labels, rule): (&[u32], Rule),
        scores: &mut [f64],
    ) -> Outcome<Failed> {
        let (images, pairs) = (self.images.len(), models.len());
        // The probability of the second class, `[image][pair]`.
        let mut second = Mapped::<f64>::zeroed(self.budget, "votes of pairs", images.saturating_mul(pairs))?;
        let mut of_pair = Mapped::<f64>::zeroed(self.budget, "votes of pairs", images.saturating_mul(2))?;
        let mut accuracies = Vec::new();
        let mut failed = Vec::new();
        for (place, (pair, model)) in models.into_iter().enumerate() {
            accuracies.push(accuracy(&model)?);
            of_pair.fill(0.0);
            let what = format!("classes {} and {}", pair.0, pair.1);
            failed = self.add(model, &mut of_pair, &what)?;
            for (row, both) in second.chunks_exact_mut(pairs).zip(of_pair.chunks_exact(2)) {
                row[place] = both[1].clamp(0.0, 1.0);
            }
        }
        let accuracies = if rule == Rule::Weighted { accuracies } else { Vec::new() };
        let votes = Votes::new(labels.len(), rule, &accuracies).map_err(faulty)?;
        for (row, scores) in second.chunks_exact(pairs).zip(scores.chunks_exact_mut(labels.len())) {
            scores.copy_from_slice(&votes.scores(row).map_err(faulty)?);
            // What breaks ties among majorities is added to them: shares of the sum are what evaluation takes.
            let sum: f64 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
        Ok(failed)
    }
}

fn faulty(problem: impl std::fmt::Display) -> Failure {
    Failure::new(problem.to_string(), "train the pairs again")
}

/// The best accuracy of a classifier's folds in validation, as the published weighting takes it.
fn accuracy(model: &Model) -> Outcome<f64> {
    let mut best: f64 = 0.0;
    for weights in &model.weights {
        let folder = weights.parent().and_then(plimsoll_run::FoldFolder::at);
        if let Some(folder) = folder {
            each_epoch(&folder, |record: EpochRecord| {
                best = best.max(record.classification.map_or(0.0, |scores| scores.accuracy));
            })?;
        }
    }
    Ok(best)
}
