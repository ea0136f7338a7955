//! Scoring predictions in files, and comparing models.

use std::path::{Path, PathBuf};

use plimsoll::{CompareRequest, Context, EvaluateRequest, Evaluated, PairEnsembles, Part};
use plimsoll_data::LengthUnit;
use plimsoll_memory::Bytes;
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::{Missing, Settings, Surface};
use plimsoll_report::contents;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::arguments::{Machine, settings};
use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::{Failure, group};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvaluateArguments {
    predictions: PathBuf,
    references: PathBuf,
    /// Classes by name or number.
    labels: Option<Vec<String>>,
    metrics: Vec<String>,
    surface: Surface,
    tolerance: f64,
    lesion_overlap: f64,
    missing: Missing,
    ignore: Option<u8>,
    unit: Option<LengthUnit>,
    settings: Map<String, Value>,
    config: Option<PathBuf>,
    allow_outside: bool,
    partial: bool,
    part: Option<Part>,
    images: Option<PathBuf>,
    pictures: Option<PathBuf>,
    output: Option<PathBuf>,
    ram: Option<Bytes>,
    threads: Option<usize>,
}

impl EvaluateArguments {
    fn files(&self) -> Files {
        let tables =
            self.output.as_ref().map(|output| [output.with_extension("csv"), output.with_extension("svg")]);
        let [csv, svg] = tables.map_or([None, None], |tables| tables.map(Some));
        Files::default()
            .read("the predictions", [&self.predictions])
            .read("the references", [&self.references])
            .read("the images", &self.images)
            .read("the settings", &self.config)
            .write_into("pictures", self.pictures.as_deref())
            .write("output", self.output.as_deref(), contents::SCORES)
            .write("output", csv.as_deref(), contents::TABLE_OF_SCORES)
            .write("output", svg.as_deref(), contents::DRAWING)
    }

    fn request(self) -> Result<EvaluateRequest, Failure> {
        if !(0.0..=1.0).contains(&self.lesion_overlap) {
            return Err(JobFailure::argument(format!(
                "lesion_overlap is {}, but must be from 0 to 1",
                self.lesion_overlap
            )));
        }
        let pictures = match (self.images, self.pictures) {
            (Some(images), Some(pictures)) => Some((images, pictures)),
            (None, None) => None,
            _ => return Err(JobFailure::argument("images and pictures are needed together")),
        };
        let machine = Machine { threads: self.threads, ..Machine::default() };
        Ok(EvaluateRequest {
            predictions: self.predictions,
            references: self.references,
            data: settings(self.settings, self.config.as_deref())?,
            classes: self.labels,
            settings: Settings {
                groups: self.metrics.iter().map(|name| group(name)).collect::<Result<_, _>>()?,
                surface: self.surface,
                tolerance: self.tolerance,
                lesion_overlap: self.lesion_overlap,
                missing: self.missing,
                ..Settings::new(Vec::new())
            },
            ignore: self.ignore,
            unit: self.unit,
            allow_outside: self.allow_outside,
            partial: self.partial,
            part: self.part,
            pictures,
            output: self.output,
            ram: self.ram,
            threads: machine.threads()?,
        })
    }
}

/// Scores label maps in files. Scores are written only where the arguments name a file.
pub(super) fn evaluate(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: EvaluateArguments = parsed(arguments)?;
    let context = arguments.files().check(context)?;
    let is_written = arguments.output.is_some();
    let request = arguments.request()?;
    let evaluated = match is_written {
        true => plimsoll::evaluate(&request, &context),
        false => request.score(&context),
    };
    let Evaluated { summary, names, .. } = evaluated.map_err(JobFailure::wrap)?;
    let named = summary.mean.keys().map(|class| (class.to_string(), Value::from(names.name(*class))));
    let named: Map<String, Value> = named.collect();
    written(&json!({ "summary": summary, "names": named }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareArguments {
    candidates: Vec<PathBuf>,
    metric: Vec<String>,
    #[serde(rename = "class")]
    classes: Vec<String>,
    common_cases: bool,
    several_labels: bool,
    missing: Option<Missing>,
    resamples: usize,
    seed: u64,
    csv: Option<PathBuf>,
    picture: Option<PathBuf>,
    ensembles: Option<PathBuf>,
    data: Option<PathBuf>,
    allow_outside: bool,
    machine: Machine,
}

impl CompareArguments {
    fn files(&self) -> Files {
        Files::default()
            .read("a candidate", &self.candidates)
            .read("the data set", &self.data)
            .write("csv", self.csv.as_deref(), contents::COMPARISON)
            .write("picture", self.picture.as_deref(), contents::PICTURE)
            .write_into("ensembles", self.ensembles.as_deref())
    }

    fn ensembles(&self) -> Result<Option<PairEnsembles>, Failure> {
        let given = [
            ("threads", self.machine.threads.is_some()),
            ("device", self.machine.device != plimsoll::backend::DeviceName::default()),
            ("vram", self.machine.vram.is_some()),
            ("data", self.data.is_some()),
            ("allow_outside", self.allow_outside),
        ];
        let of_predictions = given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name);
        match (self.ensembles.as_deref(), of_predictions) {
            (Some(folder), _) => Ok(Some(PairEnsembles {
                folder: Path::to_path_buf(folder),
                dataset: self.data.clone(),
                allow_outside: self.allow_outside,
                of_predictions,
                backend: self.machine.open()?,
                threads: self.machine.threads()?,
            })),
            (None, None) => Ok(None),
            (None, Some(name)) => Err(JobFailure::argument(format!(
                "{name} has no effect without ensembles: nothing is predicted"
            ))),
        }
    }
}

/// Compares models by the scores of the same cases.
pub(super) fn compare(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: CompareArguments = parsed(arguments)?;
    let files = arguments.files();
    files.expect_apart_from_data(arguments.candidates.iter().map(PathBuf::as_path), arguments.machine.ram)?;
    let context = files.check(context)?;
    if arguments.resamples == 0 {
        return Err(JobFailure::argument("resamples is 0; pass at least 1"));
    }
    let ensembles = arguments.ensembles()?;
    if ensembles.is_some() {
        context.keep_results();
    }
    let request = CompareRequest {
        candidates: arguments.candidates,
        scores: arguments.metric,
        classes: arguments.classes,
        common_cases: arguments.common_cases,
        several_labels: arguments.several_labels,
        missing: arguments.missing,
        bootstrap: Bootstrap { resamples: arguments.resamples, seed: arguments.seed, ..Bootstrap::default() },
        csv: arguments.csv,
        picture: arguments.picture,
        ensembles,
        ram: arguments.machine.ram,
    };
    written(&plimsoll::compare(&request, &context).map_err(JobFailure::wrap)?)
}
