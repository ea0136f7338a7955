//! The candidates of a comparison: runs, arms of sweeps and scored predictions.

use std::path::{Path, PathBuf};

use plimsoll_run::{FoldFolder, FoldName, RunFolder, Specification, SweepFolder, Task};

use crate::error::{Error, Outcome};

/// The scores of a folder of predictions.
pub const SUMMARY: &str = "summary.json";

/// A candidate and the places of its scores.
pub struct Source {
    /// Its short name, and its long name for the case that another candidate has the same short one.
    pub names: [String; 2],
    /// The places of each repeat.
    pub repeats: Vec<RepeatScores>,
}

/// The place of the scores of one repeat.
pub struct RepeatScores {
    /// The suffix after the name of its candidate; empty for a single repeat.
    pub suffix: String,
    /// The folder.
    pub folder: PathBuf,
    /// The scores that it has.
    pub scored: Scored,
}

/// The kind of place that scores are in.
pub enum Scored {
    /// In the folders of folds.
    Folds(Vec<FoldFolder>),
    /// In these files, each with what it is called: of predictions that `evaluate` or nnU-Net scored.
    Summaries(Vec<(String, PathBuf)>),
    /// In a table of the probabilities of images.
    Table(PathBuf),
}

/// The candidates at a path: all arms of a sweep, or one.
pub fn sources_at(path: &Path) -> Outcome<Vec<Source>> {
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
            RepeatScores { suffix: format!("/seed_{seed}"), folder: run.path().into(), scored }
        };
        let source = |arm: &plimsoll_run::Arm| Source {
            names: [arm.name.clone(), path.join(&arm.name).display().to_string()],
            repeats: trials.seeds.iter().map(|seed| place(&arm.name, *seed)).collect(),
        };
        return Ok(trials.arms.iter().map(source).collect());
    }
    let run = if path.is_dir() { RunFolder::new(path).folds()? } else { Vec::new() };
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
    } else if path.join(SUMMARY).is_file() {
        Scored::Summaries(vec![(String::new(), path.join(SUMMARY))])
    } else if let Some(folds) = nnunet_folds(path)? {
        Scored::Summaries(folds)
    } else if path.is_file() && has_ending(path, "json") {
        Scored::Summaries(vec![(String::new(), path.into())])
    } else if path.is_file() && has_ending(path, "csv") {
        Scored::Table(path.into())
    } else {
        let message = match path.is_dir() {
            true => format!(
                "{} is not a run or a sweep, and has no summary.json of scored predictions",
                path.display()
            ),
            false => format!("{} is not a folder, a summary.json or a table of images", path.display()),
        };
        return Err(Error::new(
            message,
            "name folders of runs that ‹job train +folds=all› wrote, or of a sweep",
        ));
    };
    let long = path.display().to_string();
    let short = path.file_name().map_or_else(|| long.clone(), |name| name.to_string_lossy().into_owned());
    let place = RepeatScores { suffix: String::new(), folder: path.into(), scored };
    Ok(vec![Source { names: [short, long], repeats: vec![place] }])
}

/// The scores of the folds in a model folder of nnU-Net, which has no specification; `None` if there are none.
fn nnunet_folds(path: &Path) -> Outcome<Option<Vec<(String, PathBuf)>>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let entries = plimsoll_disk::read_dir(path).map_err(|error| Error::at_path(path, &error))?;
    let fold = |entry: &PathBuf| {
        let fold = FoldFolder::at(entry).filter(|fold| fold.name() != FoldName::All)?;
        let summary = fold.validation().join(SUMMARY);
        summary.is_file().then(|| (fold.name(), (format!("/fold_{}", fold.name()), summary)))
    };
    let mut folds: Vec<_> = entries.iter().filter_map(fold).collect();
    folds.sort_by_key(|(name, _)| *name);
    Ok((!folds.is_empty()).then(|| folds.into_iter().map(|(_, fold)| fold).collect()))
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|own| own.eq_ignore_ascii_case(ending))
}

fn no_folds(path: &Path) -> Error {
    let message = format!("{} has no folds with held-out validation cases", path.display());
    Error::new(message, "train it with ‹fold=0›, 1, …, or ‹folds=all›")
}

/// The task of candidates: labelling voxels or classifying images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// Label maps.
    LabelMaps,
    /// Classes of images.
    Images,
}

impl CandidateKind {
    /// Returns the task of all candidates.
    ///
    /// # Errors
    /// Returns an error if they have both tasks, or a specification cannot be read.
    pub fn detect(sources: &[Source]) -> Outcome<CandidateKind> {
        let mut known: Option<(CandidateKind, &Path)> = None;
        for place in sources.iter().flat_map(|source| &source.repeats) {
            let Some(kind) = place.kind()? else { continue };
            match known {
                None => known = Some((kind, &place.folder)),
                Some((other, of)) if other != kind => {
                    let (images, labels) = match kind {
                        CandidateKind::Images => (&*place.folder, of),
                        CandidateKind::LabelMaps => (of, &*place.folder),
                    };
                    let message = format!(
                        "{} classifies images, but {} labels voxels",
                        images.display(),
                        labels.display()
                    );
                    return Err(Error::new(message, "compare runs of the same data set"));
                }
                Some(_) => {}
            }
        }
        // Without a fold that has begun, the missing scores are reported later.
        Ok(known.map_or(CandidateKind::LabelMaps, |(kind, _)| kind))
    }
}

impl RepeatScores {
    /// None where no fold is begun.
    fn kind(&self) -> Outcome<Option<CandidateKind>> {
        match &self.scored {
            Scored::Summaries(_) => Ok(Some(CandidateKind::LabelMaps)),
            Scored::Table(_) => Ok(Some(CandidateKind::Images)),
            Scored::Folds(folds) => {
                let Some(fold) = folds.iter().find(|fold| fold.is_begun()) else { return Ok(None) };
                Ok(Some(match Specification::read(fold)?.config.task {
                    Task::Segmentation(_) => CandidateKind::LabelMaps,
                    Task::Classification(_) => CandidateKind::Images,
                }))
            }
        }
    }
}
