//! Comparing candidates: runs, arms of sweeps, and predictions that were scored.

pub mod images;
pub mod pair_ensembles;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation, resident};
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{
    Candidate, Comparison, ComparisonSettings, Paired, Repeat, compare_candidates, ensemble_name,
};
use plimsoll_metrics::{Metric, Missing, Summary};
use plimsoll_report::comparison_picture;
use plimsoll_run::{FoldFolder, Specification};
use serde::Serialize;

use self::images::{ImageReport, compare_images};
use self::pair_ensembles::{PairEnsembles, TrainedCandidate};
use super::candidates::{CandidateKind, RepeatScores, SUMMARY, Scored, Source, sources_at};
use super::memory_limit::{MemoryLimit, driver_bytes};
use super::validate::LONGEST_SUMMARY;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// Scores take less memory than the text that they are read from; both are held at once, and so is a copy of the text of nnU-Net, which writes what is no
/// JSON.
const HELD_PER_BYTE: u64 = 3;

/// The score that is compared if none is named.
const DEFAULT: Metric = Metric::Dice;

/// A comparison of candidates.
pub struct CompareRequest {
    /// Folders of runs, folds, sweeps or scored predictions.
    pub candidates: Vec<PathBuf>,
    /// The scores, by name, `all` among them; the usual ones if none are named.
    pub scores: Vec<String>,
    /// Classes by name or number; all if none are named.
    pub classes: Vec<String>,
    /// Leaves cases out that not all candidates have.
    pub common_cases: bool,
    /// Allows the images of tables to have any number of labels.
    pub several_labels: bool,
    /// The treatment of missing scores of label maps; `None` counts them as the worst score.
    pub missing: Option<Missing>,
    /// The draws of the bootstrap.
    pub bootstrap: Bootstrap,
    /// The file of the table.
    pub csv: Option<PathBuf>,
    /// The file of the picture.
    pub picture: Option<PathBuf>,
    /// Ensembles of two that are predicted and ranked with the others.
    pub ensembles: Option<PairEnsembles>,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
}

/// The result of a comparison.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ComparisonReport {
    /// Models that label voxels.
    LabelMaps(Box<LabelReport>),
    /// Models that classify images.
    Images(Box<ImageReport>),
}

/// The result for candidates that label voxels.
#[derive(Serialize)]
pub struct LabelReport {
    #[serde(flatten)]
    /// The comparison.
    pub comparison: Comparison,
    /// The comparison with all ensembles of two candidates, if they were requested.
    pub with_ensembles: Option<Comparison>,
    /// The folders of each candidate's models, by its name.
    pub folders: BTreeMap<String, Vec<PathBuf>>,
    /// Folds without scores that were left out.
    pub not_validated: Vec<PathBuf>,
    /// The most memory that was reserved.
    pub reserved_bytes: Bytes,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

/// Scores as they are read, with what is known of their classes.
struct Reader<'a> {
    budget: &'a Budget,
    common_cases: bool,
    context: &'a Context,
    held: Vec<Reservation>,
    not_validated: Vec<PathBuf>,
    /// The names of classes, and who said so.
    classes: Option<(Vec<String>, PathBuf)>,
}

/// Compares candidates, and writes the requested files.
pub fn compare(request: &CompareRequest, context: &Context) -> Outcome<ComparisonReport> {
    let mut sources = Vec::new();
    for path in &request.candidates {
        sources.extend(sources_at(path)?);
    }
    // Long names where short ones are not enough.
    let shorts: BTreeSet<&String> = sources.iter().map(|source| &source.names[0]).collect();
    let which = usize::from(shorts.len() < sources.len());
    match CandidateKind::detect(&sources)? {
        CandidateKind::LabelMaps => compare_labels(request, &sources, which, context)
            .map(|report| ComparisonReport::LabelMaps(report.into())),
        CandidateKind::Images if request.missing.is_some() => Err(Error::new(
            "‹missing› applies to label maps: every image of a classifier has scores",
            "leave it out",
        )),
        CandidateKind::Images => compare_images(request, &sources, which, context)
            .map(|report| ComparisonReport::Images(report.into())),
    }
}

/// Refuses options that only classifiers have, and ensembles without their data set.
fn expect_label_options(request: &CompareRequest) -> Outcome {
    if request.several_labels {
        return Err(Error::new("‹several_labels› applies to tables of images", "leave it out"));
    }
    if request.ensembles.as_ref().is_some_and(|ensembles| ensembles.dataset.is_none()) {
        let message = "‹ensembles› predicts validation cases again, and needs their data set";
        return Err(Error::new(message, "name the data set of the training with ‹data›"));
    }
    Ok(())
}

fn compare_labels(
    request: &CompareRequest,
    sources: &[Source],
    which: usize,
    context: &Context,
) -> Outcome<LabelReport> {
    expect_label_options(request)?;
    let mut memory = match &request.ensembles {
        None => MemoryLimit::set(request.ram, 1, context)?,
        Some(PairEnsembles { backend, threads, .. }) => {
            MemoryLimit::set_beside(request.ram, *threads, driver_bytes(&**backend), context)?
        }
    };
    let mut reader = Reader {
        budget: &memory.budget,
        common_cases: request.common_cases,
        context,
        held: Vec::new(),
        not_validated: Vec::new(),
        classes: None,
    };
    let (mut candidates, mut folders) = (Vec::new(), BTreeMap::<String, Vec<PathBuf>>::new());
    for source in sources {
        let candidate = reader.candidate(&source.names[which], &source.repeats)?;
        let own = source.repeats.iter().map(|place| place.folder.clone()).collect();
        folders.insert(candidate.name.clone(), own);
        // One without any scores was left out, which only --common-cases allows.
        candidates.extend((!candidate.repeats.is_empty()).then_some(candidate));
    }
    let Reader { classes, not_validated, held: _held, .. } = reader;
    let names: BTreeMap<u8, String> = match &classes {
        Some((names, _)) => (0..=u8::MAX).zip(names.iter().cloned()).collect(),
        None => BTreeMap::new(),
    };
    let paired = Paired::new(candidates, request.common_cases)?;
    let metrics = metrics(&request.scores, &paired)?;
    let settings = ComparisonSettings {
        metrics,
        classes: (!request.classes.is_empty())
            .then(|| request.classes.iter().map(|class| number_of(class, &names, &paired)).collect())
            .transpose()?,
        names,
        missing: request.missing.unwrap_or(Missing::Worst),
        bootstrap: request.bootstrap,
    };
    let comparison = compare_candidates(&paired, &settings, &memory.budget)?;
    if let Some(path) = &request.csv {
        write(path, |file| comparison.write_csv(file))?;
    }
    if let Some(path) = &request.picture {
        let picture = comparison_picture::draw_label_maps(&comparison, &paired, &memory.budget)?;
        write(path, |file| file.write_all(&picture))?;
    }
    let with_ensembles = match &request.ensembles {
        None => None,
        Some(ensembles) => {
            let kept: BTreeSet<&str> =
                paired.candidates().iter().map(|candidate| candidate.name.as_str()).collect();
            let compared = sources.iter().filter(|source| kept.contains(&*source.names[which]));
            let trained = trained(compared, which)?;
            let (found, _held) =
                ensembles.validate(&trained, paired.cases(), paired.settings(), &mut memory, context)?;
            for (at, one) in trained.iter().enumerate() {
                for other in &trained[at + 1..] {
                    let of_both = [&one.name, &other.name].into_iter().filter_map(|name| folders.get(name));
                    let both: Vec<PathBuf> = of_both.flat_map(|own| own.iter().cloned()).collect();
                    folders.insert(ensemble_name(&one.name, &other.name), both);
                }
            }
            let all = paired.candidates().iter().cloned().chain(found).collect();
            let all = Paired::new(all, request.common_cases)?;
            Some(compare_candidates(&all, &settings, &memory.budget)?)
        }
    };
    let (reserved_bytes, peak_rss_bytes) = (memory.budget.peak(), resident()?.peak);
    Ok(LabelReport { comparison, with_ensembles, folders, not_validated, reserved_bytes, peak_rss_bytes })
}

/// The candidates with their models.
fn trained<'a>(sources: impl Iterator<Item = &'a Source>, which: usize) -> Outcome<Vec<TrainedCandidate>> {
    // Folds without validation are among the candidates only if they may be left out.
    let is_validated = |fold: &&FoldFolder| fold.validation().join(SUMMARY).is_file();
    let folds = |place: &RepeatScores| match &place.scored {
        Scored::Folds(folds) => Ok(folds.iter().filter(is_validated).cloned().collect::<Vec<_>>()),
        Scored::Summaries(_) | Scored::Table(_) => {
            let message = format!("{} has no models to average", place.folder.display());
            Err(Error::new(message, "name folders of runs, or of a sweep, or leave out ‹ensembles›"))
        }
    };
    let candidate = |source: &Source| {
        let repeats = source.repeats.iter().map(folds).collect::<Outcome<Vec<_>>>()?;
        // A repeat without any of them was left out.
        let repeats = repeats.into_iter().filter(|folds| !folds.is_empty()).collect();
        Ok(TrainedCandidate { name: source.names[which].clone(), repeats })
    };
    sources.map(candidate).collect()
}

impl Reader<'_> {
    fn candidate(&mut self, name: &str, places: &[RepeatScores]) -> Outcome<Candidate> {
        let mut repeats = Vec::new();
        for place in places {
            let repeat_name = format!("{name}{}", place.suffix);
            let mut summaries = Vec::new();
            match &place.scored {
                Scored::Summaries(files) => {
                    for (name, path) in files {
                        summaries.push((format!("{repeat_name}{name}"), self.summary(path)?));
                    }
                }
                // Tables of images are of another kind of comparison.
                Scored::Table(path) => return Err(no_scores(path)),
                Scored::Folds(folds) => {
                    for fold in folds {
                        let found = self.fold(fold)?;
                        summaries.extend(
                            found.map(|found| (format!("{repeat_name}/fold_{}", fold.name()), found)),
                        );
                    }
                }
            }
            let mut summaries = summaries.into_iter();
            if let Some((first_name, first)) = summaries.next() {
                repeats.push(Repeat::new(repeat_name, first_name, first, summaries)?);
            }
        }
        Ok(Candidate { name: name.into(), repeats })
    }

    /// The scores of a fold; `None` if it has no scores and may be left out.
    fn fold(&mut self, fold: &FoldFolder) -> Outcome<Option<Summary>> {
        if fold.is_begun() {
            self.expect_classes(fold)?;
        }
        let path = fold.validation().join(SUMMARY);
        if path.is_file() {
            return Ok(Some(self.summary(&path)?));
        }
        not_validated(fold, &path, self.common_cases, self.context)?;
        self.not_validated.push(fold.path().into());
        Ok(None)
    }

    /// Checks that a fold has the classes of all folds before it.
    fn expect_classes(&mut self, fold: &FoldFolder) -> Outcome {
        let own = fold.path();
        let names = Specification::read(fold)?.config.task.segmentation()?.dataset.labels.scored_names();
        match &self.classes {
            None => self.classes = Some((names, own.into())),
            Some((known, of)) if *known != names => {
                let message = format!(
                    "{} has the classes {}, and {} has {}",
                    of.display(),
                    known.join(", "),
                    own.display(),
                    names.join(", ")
                );
                return Err(Error::new(message, "compare runs of the same data set"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn summary(&mut self, path: &Path) -> Outcome<Summary> {
        let length = plimsoll_disk::metadata(path).map_err(|error| Error::at_path(path, &error))?.len();
        self.held.push(self.budget.reserve("scores", Bytes(length.saturating_mul(HELD_PER_BYTE)))?);
        let text =
            plimsoll_disk::read(path, LONGEST_SUMMARY).map_err(|error| Error::at_path(path, &error))?;
        Summary::parse(&text)
            .map_err(|problem| Error::new(format!("{} {problem}", path.display()), problem.remedy()))
    }
}

/// Checks that a fold without validation may be left out.
pub fn not_validated(fold: &FoldFolder, path: &Path, common_cases: bool, context: &Context) -> Outcome {
    if common_cases {
        context.warn(format_args!("{} is not validated and is left out", fold.path().display()));
        return Ok(());
    }
    let message = format!("{} is not validated: {} is missing", fold.path().display(), path.display());
    let hint =
        "‹job train +resume› or ‹job sweep +resume› validates trained folds; ‹common_cases› leaves it out";
    Err(Error::new(message, hint))
}

fn no_scores(path: &Path) -> Error {
    let message = format!("{} has no scores of cases", path.display());
    Error::new(message, "compare tables of images with each other")
}

/// The requested scores, each once.
fn metrics(asked: &[String], paired: &Paired) -> Outcome<Vec<Metric>> {
    let known = || Metric::ALL.into_iter().filter(|metric| metric.better().is_some());
    let mut found = Vec::new();
    for name in asked {
        if name.eq_ignore_ascii_case("all") {
            found.extend(paired.metrics());
            continue;
        }
        let metric = known().find(|metric| metric.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<&str> = known().map(Metric::name).collect();
            let hint = format!("choose from {}, or all", names.join(", "));
            Error::new(format!("{name} is not a score for comparing label maps"), hint)
        })?;
        found.push(metric);
    }
    if asked.is_empty() {
        found.push(DEFAULT);
    }
    let mut seen = BTreeSet::<Metric>::new();
    found.retain(|metric| seen.insert(*metric));
    Ok(found)
}

/// The number of a class that is given by its name or its number.
fn number_of(asked: &str, names: &BTreeMap<u8, String>, paired: &Paired) -> Outcome<u8> {
    let named = names.iter().find(|(_, name)| name.as_str() == asked).map(|(number, _)| *number);
    let found = named.or_else(|| asked.parse().ok()).filter(|number| paired.classes().contains(number));
    found.ok_or_else(|| {
        let known = paired.classes().iter();
        let known: Vec<String> =
            known.map(|number| names.get(number).cloned().unwrap_or_else(|| number.to_string())).collect();
        Error::new(format!("class {asked} is not scored"), format!("these are: {}", known.join(", ")))
    })
}
