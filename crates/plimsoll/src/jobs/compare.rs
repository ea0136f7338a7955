//! Comparing candidates: runs, arms of sweeps, and predictions that were scored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation, resident};
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{
    Candidate, Comparison, ComparisonSettings, Paired, Repeat, compare_candidates,
};
use plimsoll_metrics::{Metric, Summary};
use plimsoll_run::{FoldFolder, FoldName, RunFolder, Specification, SweepFolder, Task, read_json};
use serde::Serialize;

use super::line::{Line, driver_bytes};
use super::pair_ensembles::{PairEnsembles, TrainedCandidate};
use crate::args::AskedScore;
use crate::comparison_picture;
use crate::failure::{Failure, Outcome};
use crate::report::write;
use crate::signals::Stop;

/// The longest summary that is read: that of a hundred thousand cases fits.
const LONGEST: u64 = 256 << 20;

/// Scores take less memory than the text that they are read from, and both are held at once.
const HELD_PER_BYTE: u64 = 2;

/// What is compared, and how.
pub struct CompareRequest {
    /// Folders of runs, folds, sweeps or scored predictions.
    pub candidates: Vec<PathBuf>,
    /// The scores.
    pub metrics: Vec<AskedScore>,
    /// Classes by name or number; all if none are named.
    pub classes: Vec<String>,
    /// Whether cases that not all have are left out.
    pub common_cases: bool,
    pub bootstrap: Bootstrap,
    /// Where the table goes.
    pub csv: Option<PathBuf>,
    /// Where the picture goes.
    pub picture: Option<PathBuf>,
    /// Ensembles of two that are predicted and ranked with the others.
    pub ensembles: Option<PairEnsembles>,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
}

/// What came of it.
#[derive(Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The same with all ensembles of two, where they are asked for.
    pub with_ensembles: Option<Comparison>,
    /// The folders of each candidate's models, by its name.
    pub folders: BTreeMap<String, Vec<PathBuf>>,
    /// Folds without scores that were left out.
    pub not_validated: Vec<PathBuf>,
    pub reserved_bytes: Bytes,
    pub peak_rss_bytes: Bytes,
}

/// Where the scores of a candidate are.
struct Source {
    /// What it is called if no other is called so, and what it is called else.
    names: [String; 2],
    /// The places of each repeat.
    repeats: Vec<Place>,
}

/// Where the scores of a repeat are.
struct Place {
    /// What is behind the name of its candidate; nothing of the only one.
    suffix: String,
    folder: PathBuf,
    scored: Scored,
}

enum Scored {
    /// In the folders of folds.
    Folds(Vec<FoldFolder>),
    /// Beside predictions, which `evaluate` scored.
    Predictions,
}

/// Scores as they are read, with what is known of their classes.
struct Reader<'a> {
    budget: &'a Budget,
    common_cases: bool,
    held: Vec<Reservation>,
    not_validated: Vec<PathBuf>,
    /// The names of classes, and who said so.
    classes: Option<(Vec<String>, PathBuf)>,
}

/// Compares candidates, and writes what is asked for.
pub fn compare(request: &CompareRequest, stop: &Stop, quiet: bool) -> Outcome<Report> {
    let mut line = match &request.ensembles {
        None => Line::draw(request.ram, 1)?,
        Some(PairEnsembles { backend, threads, .. }) => {
            Line::draw_beside(request.ram, *threads, driver_bytes(&**backend))?
        }
    };
    let mut sources = Vec::new();
    for path in &request.candidates {
        sources.extend(sources_at(path)?);
    }
    let shorts: BTreeSet<&String> = sources.iter().map(|source| &source.names[0]).collect();
    let which = usize::from(shorts.len() < sources.len());
    let mut reader = Reader {
        budget: &line.budget,
        common_cases: request.common_cases,
        held: Vec::new(),
        not_validated: Vec::new(),
        classes: None,
    };
    let (mut candidates, mut folders) = (Vec::new(), BTreeMap::<String, Vec<PathBuf>>::new());
    for source in &sources {
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
    let mut metrics = Vec::new();
    for asked in &request.metrics {
        match asked {
            AskedScore::All => metrics.extend(paired.metrics()),
            AskedScore::One(metric) => metrics.push(*metric),
        }
    }
    let mut seen = BTreeSet::<Metric>::new();
    metrics.retain(|metric| seen.insert(*metric));
    let settings = ComparisonSettings {
        metrics,
        classes: (!request.classes.is_empty())
            .then(|| request.classes.iter().map(|class| number_of(class, &names, &paired)).collect())
            .transpose()?,
        names,
        bootstrap: request.bootstrap,
    };
    let comparison = compare_candidates(&paired, &settings, &line.budget)?;
    if let Some(path) = &request.csv {
        write(path, |file| comparison.write_csv(file))?;
    }
    if let Some(path) = &request.picture {
        let picture = comparison_picture::draw(&comparison, &paired, &line.budget)?;
        write(path, |file| file.write_all(&picture))?;
    }
    let with_ensembles = match &request.ensembles {
        None => None,
        Some(ensembles) => {
            let trained = trained(&sources, which)?;
            let found =
                ensembles.validate(&trained, (paired.cases(), paired.settings()), &mut line, stop, quiet)?;
            for (at, one) in trained.iter().enumerate() {
                for other in &trained[at + 1..] {
                    let of_both = [&one.name, &other.name].into_iter().filter_map(|name| folders.get(name));
                    let both: Vec<PathBuf> = of_both.flat_map(|own| own.iter().cloned()).collect();
                    folders.insert(format!("{} + {}", one.name, other.name), both);
                }
            }
            let all = paired.candidates().iter().cloned().chain(found).collect();
            let all = Paired::new(all, false)?;
            Some(compare_candidates(&all, &settings, &line.budget)?)
        }
    };
    let (reserved_bytes, peak_rss_bytes) = (line.budget.peak(), resident()?.peak);
    Ok(Report { comparison, with_ensembles, folders, not_validated, reserved_bytes, peak_rss_bytes })
}

/// The candidates with their models.
fn trained(sources: &[Source], which: usize) -> Outcome<Vec<TrainedCandidate>> {
    let folds = |place: &Place| match &place.scored {
        Scored::Folds(folds) => Ok(folds.clone()),
        Scored::Predictions => {
            let message = format!("{} has no models to average", place.folder.display());
            Err(Failure::new(message, "name folders of runs, or of a sweep, or leave out --ensembles"))
        }
    };
    let candidate = |source: &Source| {
        let repeats = source.repeats.iter().map(folds).collect::<Outcome<_>>()?;
        Ok(TrainedCandidate { name: source.names[which].clone(), repeats })
    };
    sources.iter().map(candidate).collect()
}

/// The candidates at a path: all arms of a sweep, or one.
fn sources_at(path: &Path) -> Outcome<Vec<Source>> {
    let sweep = SweepFolder::new(path);
    if sweep.is_begun() {
        let trials = sweep.read()?;
        let folds = || trials.folds.iter().copied().filter(|fold| *fold != FoldName::All);
        if folds().next().is_none() {
            return Err(no_folds(path));
        }
        let place = |arm: &str, seed: u64| {
            let run = sweep.run(arm, seed);
            let scored = Scored::Folds(folds().map(|fold| run.fold(fold)).collect());
            Place { suffix: format!("/seed_{seed}"), folder: run.path().into(), scored }
        };
        let source = |arm: &plimsoll_run::Arm| Source {
            names: [arm.name.clone(), path.join(&arm.name).display().to_string()],
            repeats: trials.seeds.iter().map(|seed| place(&arm.name, *seed)).collect(),
        };
        return Ok(trials.arms.iter().map(source).collect());
    }
    let run = RunFolder::new(path).folds()?;
    let scored = if !run.is_empty() {
        let folds: Vec<FoldFolder> = run.into_iter().filter(|fold| fold.name() != FoldName::All).collect();
        if folds.is_empty() {
            return Err(no_folds(path));
        }
        Scored::Folds(folds)
    } else if let Some(fold) = FoldFolder::at(path).filter(FoldFolder::is_begun) {
        if fold.name() == FoldName::All {
            return Err(no_folds(path));
        }
        Scored::Folds(vec![fold])
    } else if path.join("summary.json").is_file() {
        Scored::Predictions
    } else {
        let message = match path.is_dir() {
            true => format!(
                "{} is no run, no sweep, and has no summary.json of scored predictions",
                path.display()
            ),
            false => format!("{} is no folder", path.display()),
        };
        return Err(Failure::new(
            message,
            "name folders of runs that `train --folds all` has trained, or of a sweep",
        ));
    };
    let long = path.display().to_string();
    let short = path.file_name().map_or_else(|| long.clone(), |name| name.to_string_lossy().into_owned());
    let place = Place { suffix: String::new(), folder: path.into(), scored };
    Ok(vec![Source { names: [short, long], repeats: vec![place] }])
}

fn no_folds(path: &Path) -> Failure {
    let message = format!("{} has no folds with cases that they were not trained on", path.display());
    Failure::new(message, "train it with --fold 0, 1, …, or --folds all")
}

impl Reader<'_> {
    fn candidate(&mut self, name: &str, places: &[Place]) -> Outcome<Candidate> {
        let mut repeats = Vec::new();
        for place in places {
            let repeat_name = format!("{name}{}", place.suffix);
            let mut summaries = Vec::new();
            match &place.scored {
                Scored::Predictions => {
                    summaries.push((repeat_name.clone(), self.summary(&place.folder.join("summary.json"))?));
                }
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
            if let Some(first) = summaries.next() {
                repeats.push(Repeat::of(repeat_name, first, summaries)?);
            }
        }
        Ok(Candidate { name: name.into(), repeats })
    }

    /// The scores of a fold; none if it has none and may be left out.
    fn fold(&mut self, fold: &FoldFolder) -> Outcome<Option<Summary>> {
        if fold.is_begun() {
            self.expect_classes(fold)?;
        }
        let path = fold.validation().join("summary.json");
        if path.is_file() {
            return Ok(Some(self.summary(&path)?));
        }
        if self.common_cases {
            eprintln!("warning: {} is not validated and is left out", fold.path().display());
            self.not_validated.push(fold.path().into());
            return Ok(None);
        }
        let message = format!("{} is not validated: {} is not there", fold.path().display(), path.display());
        let hint = "`train --resume` or `sweep --resume` validates folds that are trained; --common-cases leaves it out";
        Err(Failure::new(message, hint))
    }

    /// That a fold labels voxels, with the classes of all folds before it.
    fn expect_classes(&mut self, fold: &FoldFolder) -> Outcome {
        let own = fold.path();
        let names = match Specification::read(fold)?.config.task {
            Task::Segmentation(task) => task.dataset.labels.scored_names(),
            Task::Classification(_) => {
                let message = format!("{} gives each image a class: no case has scores", own.display());
                let hint = "`plimsoll evaluate --classification` scores a classifier's table, with intervals";
                return Err(Failure::new(message, hint));
            }
        };
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
                return Err(Failure::new(message, "compare runs of the same data set"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn summary(&mut self, path: &Path) -> Outcome<Summary> {
        let length = plimsoll_disk::metadata(path).map_err(|error| Failure::of_path(path, &error))?.len();
        self.held.push(self.budget.reserve("scores", Bytes(length.saturating_mul(HELD_PER_BYTE)))?);
        Ok(read_json(path, LONGEST)?)
    }
}

/// The number of a class that is given by its name or its number.
fn number_of(asked: &str, names: &BTreeMap<u8, String>, paired: &Paired) -> Outcome<u8> {
    let named = names.iter().find(|(_, name)| name.as_str() == asked).map(|(number, _)| *number);
    let found = named.or_else(|| asked.parse().ok()).filter(|number| paired.classes().contains(number));
    found.ok_or_else(|| {
        let known = paired.classes().iter();
        let known: Vec<String> =
            known.map(|number| names.get(number).cloned().unwrap_or_else(|| number.to_string())).collect();
        Failure::new(format!("class {asked} is not scored"), format!("these are: {}", known.join(", ")))
    })
}
