//! Comparing predictions with references.

mod references;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_data::{Labels, LengthUnit, prediction_ending};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{CasePaths, Metric, Settings, Summary, evaluate as score_all, present_labels};
use plimsoll_report::preview::{Comparison, Frame, comparison};
use plimsoll_report::{ClassNames, box_plots};

use self::references::References;
use super::evaluation_parts::ScoredPart;
use super::memory_limit::MemoryLimit;
use crate::backend::default_threads;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::{write, write_json};
use crate::part::Part;

/// Predictions to be compared with references: two folders, or two files.
pub struct EvaluateRequest {
    /// The folder of predictions, or one label map.
    pub predictions: PathBuf,
    /// The data set of the references, a folder of them, or one label map.
    pub references: PathBuf,
    /// The layout of the data set and its classes, if its folder does not define them.
    pub data: plimsoll_run::Settings,
    /// Classes to score, by name or number, or several as one, joined by `+`; `None` for the classes of the data set that the references
    /// belong to.
    pub classes: Option<Vec<String>>,
    /// The scores and their options. Its classes are replaced by `classes`.
    pub settings: Settings,
    /// The label of references whose voxels no score counts; the data set's, if none is named.
    pub ignore: Option<u8>,
    /// The unit of lengths in headers, whatever they state; `None` for the unit of the data set that the references belong to.
    pub unit: Option<LengthUnit>,
    /// Allows the data set to list files outside its folder.
    pub allow_outside: bool,
    /// Leaves references without a prediction out.
    pub partial: bool,
    /// The part of the cases that is scored; `None` for all. The last of several processes to finish merges the scores of all parts.
    pub part: Option<Part>,
    /// Images, and where pictures of the cases go.
    pub pictures: Option<(PathBuf, PathBuf)>,
    /// The file of the scores; `None` for `summary.json` beside the predictions.
    pub output: Option<PathBuf>,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// Threads.
    pub threads: usize,
}

impl EvaluateRequest {
    /// Scoring predictions against references with all classes of the data set, by Dice and the other overlap scores.
    pub fn new(predictions: impl Into<PathBuf>, references: impl Into<PathBuf>) -> EvaluateRequest {
        EvaluateRequest {
            predictions: predictions.into(),
            references: references.into(),
            data: plimsoll_run::Settings::default(),
            classes: None,
            settings: Settings::new(Vec::new()),
            ignore: None,
            unit: None,
            allow_outside: false,
            partial: false,
            part: None,
            pictures: None,
            output: None,
            ram: None,
            threads: default_threads(),
        }
    }
}

/// The result of an evaluation.
pub struct Evaluated {
    /// The scores of cases, and their means: of the requested part as long as others are missing, then of all.
    pub summary: Summary,
    /// The scored part; `None` if all cases were scored.
    pub part: Option<ScoredPart>,
    /// The names of classes.
    pub names: ClassNames,
    /// The most that was reserved for it at a time: code, heap and stacks included.
    pub reserved: Bytes,
}

impl Evaluated {
    /// The mean Dice score of the foreground classes over all cases; `None` if no case has one.
    pub fn mean_dice(&self) -> Option<f64> {
        self.summary.foreground_mean.get(Metric::Dice)
    }
}

impl EvaluateRequest {
    /// Scores predictions against references, and writes nothing but the requested pictures.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, a reference has no prediction, or the classes to score are not known.
    pub fn score(&self, context: &Context) -> Outcome<Evaluated> {
        let memory = MemoryLimit::set(self.ram, self.threads, context)?;
        let mut found = References::find(self, &memory.budget, context)?;
        let millimetres_per_unit = self.unit.or(found.unit).map(LengthUnit::millimetres);
        let ignore = self.ignore.or(found.labels.as_ref().and_then(Labels::ignore));
        let Scored { classes, regions, names } = match (&self.classes, &found.labels) {
            (Some(named), described) => Scored::named(named, &found.folder, described.as_ref())?,
            (None, Some(described)) => Scored::described(foreground(described), described),
            (None, None) => Scored::present(&found, ignore, &memory.budget, context)?,
        };
        expect_none_ignored(&classes, &regions, ignore)?;
        let settings = Settings { classes, regions, ignore, millimetres_per_unit, ..self.settings.clone() };
        let part =
            self.part.map(|part| ScoredPart::choose(part, &self.predictions, &mut found.cases, context));
        let summary = score(&found.cases, &settings, &memory.budget, self.threads, context)?;
        if let Some((images, pictures)) = &self.pictures {
            draw_all(&summary, &found, images, pictures, ignore, &memory.budget)?;
        }
        Ok(Evaluated { summary, part, names, reserved: memory.budget.peak() })
    }
}

/// Scores predictions against references, and writes the scores beside the predictions or into the requested file. The scores of a part go
/// into a folder beside that file, which is written when all parts are finished.
///
/// # Errors
/// Returns an error if a file cannot be read or written, a reference has no prediction, or the classes to score are not known.
pub fn evaluate(request: &EvaluateRequest, context: &Context) -> Outcome<Evaluated> {
    let mut evaluated = request.score(context)?;
    let predictions = &request.predictions;
    let folder = match predictions.is_dir() {
        true => predictions.clone(),
        false => predictions.parent().map(Path::to_path_buf).unwrap_or_default(),
    };
    let beside = |ending: &str| match &request.output {
        Some(path) => path.with_extension(ending),
        None => folder.join("scores").with_extension(ending),
    };
    let path = request.output.clone().unwrap_or_else(|| folder.join("summary.json"));
    if let Some(part) = &evaluated.part {
        match part.merge(&path, &evaluated.summary, request.ram, context)? {
            Some(all) => evaluated.summary = all,
            None => return Ok(evaluated),
        }
    }
    let Evaluated { summary, names, .. } = &evaluated;
    write(&path, |file| write_json(file, summary))?;
    write(&beside("csv"), |file| summary.write_csv(file))?;
    let plots = beside("svg");
    if summary.metric_per_case.len() > 1 {
        write(&plots, |file| box_plots(summary, &|class| names.name(class)).write(file))?;
    } else if plots.exists() {
        // The picture shows other cases than the single one that was scored now.
        plimsoll_disk::remove_file(&plots).map_err(|error| Error::at_path(&plots, &error))?;
    }
    Ok(evaluated)
}

/// Scores cases within a budget.
pub fn score(
    cases: &[CasePaths],
    settings: &Settings,
    budget: &Budget,
    threads: usize,
    context: &Context,
) -> Outcome<Summary> {
    let progress = context.work("evaluating", cases.len() as u64);
    let done = |done: usize| progress.set(done as u64, String::new());
    let summary = score_all(cases, settings, budget, threads, &done);
    drop(progress);
    Ok(summary?)
}

/// The scored classes.
struct Scored {
    classes: Vec<u8>,
    /// The labels of each class, if these are regions.
    regions: Vec<Vec<u8>>,
    names: ClassNames,
}

/// The separator of labels that are scored as one.
const AND: char = '+';

impl Scored {
    /// The labels that the maps have, where neither the request nor a data set defines classes.
    fn present(
        found: &References,
        ignore: Option<u8>,
        budget: &Budget,
        context: &Context,
    ) -> Outcome<Scored> {
        let progress = context.work("reading label maps", found.cases.len() as u64);
        let done = |done: usize| progress.set(done as u64, String::new());
        let labels = present_labels(&found.cases, ignore, budget, &done);
        drop(progress);
        let classes: Vec<u8> = labels?.into_iter().filter(|label| *label != 0).collect();
        if classes.is_empty() {
            let place = found.folder.display();
            let message = format!(
                "no label map of the references in {place} or of the predictions has a voxel above 0"
            );
            return Err(Error::new(message, "name the classes, like ‹labels=1,2›"));
        }
        let listed = classes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        context.note(format_args!("classes are the labels of the maps: {listed}"));
        Ok(Scored { classes, regions: Vec::new(), names: ClassNames::default() })
    }

    /// Classes of a data set, with its names and regions.
    fn described(classes: Vec<u8>, described: &Labels) -> Scored {
        Scored { classes, regions: described.scored_regions(), names: ClassNames::new(described) }
    }

    /// The requested classes, named as in the data set if there is one.
    fn named(asked: &[String], folder: &Path, described: Option<&Labels>) -> Outcome<Scored> {
        if !asked.iter().any(|name| name.contains(AND)) {
            let classes = asked.iter().map(|class| class_of(class, folder, described));
            let classes = classes.collect::<Outcome<Vec<u8>>>()?;
            let regions = described.map(Labels::regions).filter(|all| !all.is_empty());
            if let Some(count) = regions.map(<[_]>::len)
                && let Some(class) = classes.iter().find(|class| usize::from(**class) > count)
            {
                let message = format!("‹labels={class}›: the data set has only {count} regions");
                return Err(Error::new(message, "numbers name regions; labels are named in sums, like 1+2"));
            }
            return Ok(match described {
                Some(described) => Scored::described(classes, described),
                None => Scored { classes, regions: Vec::new(), names: ClassNames::default() },
            });
        }
        let numbers = (1..=u8::MAX).take(asked.len()).collect::<Vec<u8>>();
        if numbers.len() < asked.len() {
            return Err(Error::new(
                format!("‹labels› names {} classes", asked.len()),
                "at most 255 are supported",
            ));
        }
        let labels = |name: &str| -> Outcome<Vec<u8>> {
            let regions = described.map(Labels::regions);
            if let Some(region) = regions.and_then(|all| all.iter().find(|region| region.name == name)) {
                return Ok(region.labels.clone());
            }
            let names = described.map(Labels::names);
            let named = names.and_then(|names| (0..=u8::MAX).zip(names).find(|(_, own)| *own == name));
            Ok(vec![named.map_or_else(|| class_of(name, folder, described), |(label, _)| Ok(label))?])
        };
        // Each label once, however often it is named.
        let region = |asked: &String| -> Outcome<Vec<u8>> {
            let parts = asked.split(AND).map(|name| labels(name.trim())).collect::<Outcome<Vec<_>>>()?;
            Ok(parts.concat().into_iter().collect::<BTreeSet<u8>>().into_iter().collect())
        };
        Ok(Scored {
            classes: numbers,
            regions: asked.iter().map(region).collect::<Outcome<_>>()?,
            names: ["background".to_string()]
                .into_iter()
                .chain(asked.iter().cloned())
                .collect::<Vec<_>>()
                .into(),
        })
    }
}

/// A class by its name in the data set, or by its number.
fn class_of(asked: &str, folder: &Path, described: Option<&Labels>) -> Outcome<u8> {
    let names = described.map(Labels::scored_names);
    let named = names.as_ref().and_then(|names| (0..=u8::MAX).zip(names).find(|(_, name)| *name == asked));
    if let Some((class, _)) = named {
        return Ok(class);
    }
    if let Ok(class) = asked.parse() {
        return Ok(class);
    }
    let message = format!("‹labels={asked}›: there is no such class");
    Err(match names {
        Some(names) => {
            let known = names.iter().skip(1).map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::new(message, format!("the data set has {known}; numbers name classes, too"))
        }
        None => Error::new(
            format!("{message}: {} has no dataset.json with names", folder.display()),
            "name classes by their numbers, like ‹labels=1,2›",
        ),
    })
}

/// Refuses to score the label of voxels that no score counts.
fn expect_none_ignored(classes: &[u8], regions: &[Vec<u8>], ignore: Option<u8>) -> Outcome {
    let Some(ignore) = ignore else { return Ok(()) };
    let is_asked = match regions.is_empty() {
        true => classes.contains(&ignore),
        false => regions.iter().any(|region| region.contains(&ignore)),
    };
    match is_asked {
        false => Ok(()),
        true => Err(Error::new(
            format!("class {ignore} cannot be scored: voxels with this label in a reference are ignored"),
            "leave it out of ‹labels›",
        )),
    }
}

/// The classes that are scored of a data set: all but the background, or its regions.
pub fn foreground(labels: &Labels) -> Vec<u8> {
    (1..labels.scored_names().len()).filter_map(|class| u8::try_from(class).ok()).collect()
}

/// Draws every case of a summary.
fn draw_all(
    summary: &Summary,
    found: &References,
    images: &Path,
    folder: &Path,
    ignore: Option<u8>,
    budget: &Budget,
) -> Outcome {
    plimsoll_disk::create_dir_all(folder).map_err(|error| Error::at_path(folder, &error))?;
    let ending = &*found.ending;
    for (case, paths) in summary.metric_per_case.iter().zip(&found.cases) {
        let Some(name) = case.prediction_file.file_name() else {
            let error = io::Error::from(io::ErrorKind::InvalidFilename);
            return Err(Error::at_path(&case.prediction_file, &error));
        };
        let name = name.to_string_lossy();
        let id = name.trim_end_matches(prediction_ending(ending));
        let channel = images.join(format!("{id}_0000{ending}"));
        let image = if channel.is_file() { channel } else { images.join(format!("{id}{ending}")) };
        let files = Comparison {
            image: &image,
            reference: &case.reference_file,
            reference_values: paths.reference_values.as_deref(),
            prediction: &case.prediction_file,
            prediction_values: paths.prediction_values.as_deref(),
            ignore,
        };
        let png = comparison(&files, Frame::LARGE, budget)?;
        write(&folder.join(format!("{id}.png")), |file| file.write_all(&png))?;
    }
    Ok(())
}
