//! Giving images classes with a trained network, or with one for each pair of classes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::pictures::{ImageDataset, Largest};
use plimsoll_image::ImageFile;
use plimsoll_infer::{ImageExplainer, ImagePredictor};
use plimsoll_memory::{Budget, Bytes, Mapped, resident};
use plimsoll_metrics::votes::{Rule, Votes, pairs};
use plimsoll_models::{Model, ModelSource, OpenOptions, OpenedModel};
use plimsoll_run::{CheckpointKind, ClassificationTask, EpochRecord, Settings, each_epoch};
use serde::Serialize;

use super::listed::{Listed, Opening};
use super::mistakes::{Mistakes, Sheet, Worst};
use super::predict::request::PredictRequest;
use super::prediction_table::{PairProbabilities, PredictionTable};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// The result of a classification.
#[derive(Serialize)]
pub struct Classified {
    /// The file that was written.
    pub file: PathBuf,
    /// The number of images.
    pub images: usize,
    /// Models whose probabilities are averaged.
    pub models: usize,
    /// Classifiers that voted; 1 where one network knows all classes.
    pub classifiers: usize,
    /// Those that failed, with reasons.
    pub failed: Vec<String>,
    /// The drawing of misclassified images; `None` if it was not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mistakes: Option<Mistakes>,
    /// The most memory that was planned.
    pub planned_bytes: Bytes,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

/// The classifiers of a model folder.
enum Classifiers {
    /// Networks that know all classes, whose probabilities are averaged.
    Mean(Vec<Model>),
    /// The classifier of each pair of labels, in order.
    Pairs(Vec<((u32, u32), Model)>),
}

/// Returns `true` if a folder holds classifiers of images rather than a network that labels voxels.
pub fn is_classifier(model: &Path) -> Outcome<bool> {
    Ok(ModelSource::detect(model)?.is_classifier()?)
}

impl Classifiers {
    fn open(
        folder: &Path,
        others: &[PathBuf],
        checkpoint: CheckpointKind,
        budget: &Budget,
    ) -> Outcome<Classifiers> {
        let options = OpenOptions { checkpoint, ..OpenOptions::default() };
        let mut models: Vec<Model> = Vec::new();
        for path in std::iter::once(folder).chain(others.iter().map(PathBuf::as_path)) {
            let model = match OpenedModel::open(path, &options, budget)? {
                OpenedModel::Pairs { models, .. } if others.is_empty() => {
                    return Ok(Classifiers::Pairs(models));
                }
                OpenedModel::Pairs { .. } => {
                    let message =
                        format!("{} holds classifiers of pairs, which vote together", path.display());
                    return Err(Error::new(message, "predict with this model alone"));
                }
                opened => opened.into_run()?,
            };
            if let Some(first) = models.first() {
                expect_alike(NamedModel { path: folder, model: first }, NamedModel { path, model: &model })?;
            }
            models.push(model);
        }
        Ok(Classifiers::Mean(models))
    }

    fn first(&self) -> Outcome<&Model> {
        let first = match self {
            Classifiers::Mean(models) => models.first(),
            Classifiers::Pairs(models) => models.first().map(|(_, model)| model),
        };
        first.ok_or_else(|| Error::new("there is no classifier", "name the folder of a trained one"))
    }

    /// All of them.
    fn models(&self) -> Vec<&Model> {
        match self {
            Classifiers::Mean(models) => models.iter().collect(),
            Classifiers::Pairs(models) => models.iter().map(|(_, model)| model).collect(),
        }
    }
}

/// A model and the path that the user named.
struct NamedModel<'a> {
    path: &'a Path,
    model: &'a Model,
}

/// Checks that two classifiers have the same classes.
fn expect_alike(one: NamedModel<'_>, other: NamedModel<'_>) -> Outcome {
    let own = one.model.config.task.classification()?;
    let others = other.model.config.task.classification()?;
    let known = |task: &ClassificationTask| {
        task.labels.iter().map(|label| class_name(task, *label).to_string()).collect::<Vec<_>>()
    };
    if known(own) == known(others) && own.target == others.target && own.labels == others.labels {
        return Ok(());
    }
    let names = [own, others].map(|task| known(task).join(", "));
    let message = format!(
        "{} has the classes {}, but {} has {}",
        one.path.display(),
        names[0],
        other.path.display(),
        names[1]
    );
    Err(Error::new(message, "average models of the same task and classes"))
}

/// Options of a classification.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassifyOptions {
    /// The rule by which the classifiers of pairs vote.
    pub rule: Rule,
    /// Adds a column to the table for the probabilities of each pair.
    pub pair_columns: bool,
    /// The largest number of misclassified images that are drawn; `None` draws no image.
    pub mistakes: Option<NonZeroUsize>,
}

/// Classifies each image of the input and writes a table of probabilities. With `others`, probabilities are the mean over all models.
///
/// # Errors
/// Returns an error if a model or the table cannot be read or written, or the models have different classes. Images that cannot be read
/// are reported in [`Classified::failed`].
pub fn classify(
    request: &PredictRequest,
    others: &[PathBuf],
    options: ClassifyOptions,
    context: &Context,
) -> Outcome<Classified> {
    request.expect_all("classifiers write one table of all images")?;
    if request.output.exists() && !request.overwrite {
        let message = format!("{} already exists", request.output.display());
        return Err(Error::new(message, "‹overwrite› replaces it"));
    }
    let budget = Budget::new(context.limits(request.ram).limit);
    let classifiers = Classifiers::open(&request.model, others, request.checkpoint, &budget)?;
    let (task, labels) = known_classes(&classifiers)?;
    if let Some(range) = task.pipeline.decode.range_16_bit {
        context.note(format_args!("16-bit samples: {range} become 0 to 255, as in training"));
    }
    let settings = settings_of(&request.model)?;
    let listed = list(&request.input, &settings, &budget)?;
    if options.mistakes.is_some() && listed.classes.is_empty() {
        let message =
            format!("‹mistakes›: the labels of the images in {} are unknown", request.input.display());
        return Err(Error::new(message, "give a folder for each class, or a .csv file with their labels"));
    }
    let largest = largest_image(&listed, &classifiers)?;
    let images: Vec<(&str, &Path)> =
        listed.cases.iter().map(|case| (case.name.as_str(), case.path.as_path())).collect();
    let mut run = Run { request, largest, images: &images, budget: &budget, context, planned: Bytes::ZERO };
    let classes = labels.len();
    let mut probabilities =
        Mapped::<f64>::zeroed(&budget, "probabilities", images.len().saturating_mul(classes))?;
    let mut explained = None;
    let (models, classifiers_count, failed, pairs) = match classifiers {
        Classifiers::Mean(models) => {
            let count = models.len();
            // Front ends allow this for a single model only.
            explained = options.mistakes.and_then(|most| Some((models.first()?.clone(), most.get())));
            (count, 1, run.average(models, &mut probabilities)?, None)
        }
        Classifiers::Pairs(models) => {
            let count = models.len();
            let (failed, said) = run.vote(models, &labels, options.rule, &mut probabilities)?;
            (1, count, failed, options.pair_columns.then_some(said))
        }
    };
    let names: Vec<&str> = labels.iter().map(|label| class_name(&task, *label)).collect();
    let table = PredictionTable {
        images: &listed,
        task: &task,
        classes: &names,
        probabilities: &probabilities,
        pairs,
    };
    let left_out: Vec<usize> = failed.iter().map(|(place, _)| *place).collect();
    write(&request.output, |file| table.write(&left_out, file))?;
    let mistakes = match explained {
        Some((model, most)) => Some(run.explain(model, &listed, &left_out, &probabilities, most)?),
        None => None,
    };
    let planned_bytes = run.planned;
    let failed: Vec<String> = failed.into_iter().map(|(_, problem)| problem).collect();
    for problem in &failed {
        context.warn(problem);
    }
    Ok(Classified {
        file: request.output.clone(),
        images: images.len() - failed.len(),
        models,
        classifiers: classifiers_count,
        failed,
        mistakes,
        planned_bytes,
        peak_rss_bytes: resident()?.peak,
    })
}

/// The largest extent of the images as the classifiers decode them.
fn largest_image(listed: &ImageDataset, classifiers: &Classifiers) -> Outcome<Largest> {
    let mut largest = Largest::default();
    let mut decodings = Vec::new();
    for model in classifiers.models() {
        let decoding = &model.config.task.classification()?.pipeline.decode;
        if !decodings.contains(&decoding) {
            decodings.push(decoding);
        }
    }
    for (case, decoding) in
        listed.cases.iter().flat_map(|case| decodings.iter().map(move |decoding| (case, *decoding)))
    {
        // An image that cannot be read is reported when it is classified.
        if let Ok(file) = ImageFile::open(&case.path, decoding) {
            largest.include(&file)?;
        }
    }
    Ok(largest)
}

/// The task of the first classifier, and the labels of all classifiers.
fn known_classes(classifiers: &Classifiers) -> Outcome<(ClassificationTask, Vec<u32>)> {
    let task = classifiers.first()?.config.task.classification()?.clone();
    let labels = match classifiers {
        Classifiers::Mean(_) => task.labels.clone(),
        Classifiers::Pairs(models) => {
            let mut labels: Vec<u32> = models.iter().flat_map(|((a, b), _)| [*a, *b]).collect();
            labels.sort_unstable();
            labels.dedup();
            let needed = labels.len() * (labels.len() - 1) / 2;
            if models.len() != needed {
                let message = format!("{} of {needed} pairs of classes are trained", models.len());
                return Err(Error::new(message, "‹job train +one_vs_one +resume› trains the missing ones"));
            }
            labels
        }
    };
    Ok((task, labels))
}

fn class_name(task: &ClassificationTask, label: u32) -> &str {
    task.dataset.classes.get(label as usize).map_or("?", String::as_str)
}

/// The settings of a model's run, which name the columns of tables.
fn settings_of(model: &Path) -> Outcome<Settings> {
    // A run without a fold has the usual ones.
    Ok(ModelSource::detect(model)?.settings()?.unwrap_or_else(Settings::default))
}

/// The images of the input: with labels from a table or from folders of classes, else without.
fn list(input: &Path, settings: &Settings, budget: &Budget) -> Outcome<Arc<ImageDataset>> {
    let has_folders = input.is_dir()
        && plimsoll_disk::entries(input)
            .map_err(|error| Error::at_path(input, &error))?
            .any(|path| path.is_ok_and(|path| path.is_dir()));
    let is_table = input.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    if has_folders || is_table {
        let mut settings = settings.clone();
        if let Some(images) = settings.images.as_mut().filter(|_| has_folders) {
            images.table = None;
        }
        let opening =
            Opening { settings: &settings, allow_outside: false, threads: 1, context: &Context::default() };
        if let Listed::Images { dataset, .. } = Listed::open(input, &opening, budget)? {
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
    context: &'a Context,
    /// The planned memory of the classifier that needs most.
    planned: Bytes,
}

/// Places of images that cannot be read, and why.
type Failed = Vec<(usize, String)>;

impl Run<'_> {
    /// Adds a classifier's probabilities.
    fn add(&mut self, model: Model, sums: &mut [f64], what: &str) -> Outcome<Failed> {
        let options = &self.request.options;
        let mut predictor = ImagePredictor::new(
            model,
            self.largest,
            options.mirror,
            options.threads,
            &self.request.backend,
            self.budget,
        )?;
        self.planned = self.planned.max(self.budget.used());
        let progress = self.context.work(what.to_string(), self.images.len() as u64);
        let failed =
            predictor.add_probabilities(self.images, sums, self.context.stop.flag(), &mut |done, of| {
                progress.set((done * self.images.len() / of.max(1)) as u64, String::new())
            });
        drop(progress);
        Ok(failed?.into_iter().map(|(place, problem)| (place, problem.to_string())).collect())
    }

    /// Sets `probabilities` to the mean over models.
    fn average(&mut self, models: Vec<Model>, probabilities: &mut [f64]) -> Outcome<Failed> {
        let count = models.len();
        let mut failed = BTreeMap::new();
        for (number, model) in (1..).zip(models) {
            let what = match count {
                1 => "classifying".to_string(),
                count => format!("model {number} of {count}"),
            };
            failed.extend(self.add(model, probabilities, &what)?);
        }
        if count > 1 {
            probabilities.iter_mut().for_each(|sum| *sum /= count as f64);
        }
        Ok(failed.into_iter().collect())
    }

    /// Draws the images with the largest errors into a file beside the table.
    fn explain(
        &mut self,
        model: Model,
        listed: &ImageDataset,
        left_out: &[usize],
        probabilities: &[f64],
        most: usize,
    ) -> Outcome<Mistakes> {
        let task = model.config.task.classification()?.clone();
        let worst = Worst::find(listed, &task, probabilities, left_out, most, self.budget)?;
        let Worst { found, mistakes, .. } = &worst;
        if *found == 0 {
            return Ok(Mistakes { found: 0, file: None });
        }
        let threads = self.request.options.threads;
        let explainer =
            ImageExplainer::new(model, self.largest, threads, &self.request.backend, self.budget)?;
        let sheet = Sheet::new(explainer, mistakes, listed, self.context, self.budget)?;
        self.planned = self.planned.max(self.budget.used());
        let title =
            format!("{found} of {} images are wrong: the worst {}", listed.cases.len(), mistakes.len());
        let file = self.request.output.with_extension("mistakes.svg");
        sheet.write(&title, &file)?;
        Ok(Mistakes { found: *found, file: Some(file) })
    }

    /// Lets the classifiers of pairs vote; returns also what each said.
    fn vote(
        &mut self,
        models: Vec<((u32, u32), Model)>,
        labels: &[u32],
        rule: Rule,
        scores: &mut [f64],
    ) -> Outcome<(Failed, PairProbabilities)> {
        let (images, count) = (self.images.len(), models.len());
        let mut second = Mapped::<f64>::zeroed(self.budget, "votes of pairs", images.saturating_mul(count))?;
        let mut of_pair = Mapped::<f64>::zeroed(self.budget, "votes of pairs", images.saturating_mul(2))?;
        // No other rule asks for them.
        let accuracies = match rule {
            Rule::Weighted => {
                models.iter().map(|(_, model)| accuracy(model)).collect::<Outcome<Vec<f64>>>()?
            }
            _ => Vec::new(),
        };
        let mut failed = Vec::new();
        for (place, (pair, model)) in models.into_iter().enumerate() {
            of_pair.fill(0.0);
            let what = format!("classes {} and {}", pair.0, pair.1);
            failed = self.add(model, &mut of_pair, &what)?;
            for (row, both) in second.chunks_exact_mut(count).zip(of_pair.chunks_exact(2)) {
                row[place] = both[1].clamp(0.0, 1.0);
            }
        }
        let votes = Votes::new(labels.len(), rule, &accuracies).map_err(faulty)?;
        for (row, scores) in second.chunks_exact(count).zip(scores.chunks_exact_mut(labels.len())) {
            scores.copy_from_slice(&votes.scores(row).map_err(faulty)?);
            // The scores include small amounts that break ties; evaluation takes shares of their sum.
            let sum: f64 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
        Ok((failed, PairProbabilities { pairs: pairs(labels.len()).collect(), second }))
    }
}

fn faulty(problem: impl std::fmt::Display) -> Error {
    Error::new(problem.to_string(), "train the pairs again")
}

/// The best accuracy of a classifier's folds in validation, as the published weighting takes it.
fn accuracy(model: &Model) -> Outcome<f64> {
    let mut best: Option<f64> = None;
    for weights in &model.weights {
        let folder = weights.path.parent().and_then(plimsoll_run::FoldFolder::at);
        if let Some(folder) = folder {
            each_epoch(&folder, |record: EpochRecord| {
                let found = record.classification.map(|scores| scores.accuracy);
                best = best.into_iter().chain(found).reduce(f64::max);
            })?;
        }
    }
    best.ok_or_else(|| {
        let place = model
            .weights
            .first()
            .map_or(Path::new("."), |weights| weights.path.parent().unwrap_or(&weights.path));
        let message = format!("{} has no epoch with an accuracy, which weighted votes need", place.display());
        Error::new(message, "restore its metrics.jsonl, or choose another rule: ‹votes=sum›")
    })
}
