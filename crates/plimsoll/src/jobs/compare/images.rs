//! Comparing classifiers: runs of images, arms of sweeps, and tables of what was predicted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, resident};
use plimsoll_metrics::classification::{Labelling, NamedTable, Table};
use plimsoll_metrics::classifiers::{
    Classifier, ClassifierComparison, ClassifierRepeat, ClassifierSettings, ImageScore, PairedClassifiers,
    compare_classifiers,
};
use plimsoll_metrics::comparison::ensemble_name;
use plimsoll_report::comparison_picture;
use plimsoll_report::report_page::labelling_of;
use plimsoll_run::Specification;
use serde::Serialize;

use super::pair_ensembles::{PairEnsembles, pair_folder};
use super::{CompareRequest, not_validated};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::{make_folder, write};
use crate::jobs::candidates::{RepeatScores, Scored, Source};
use crate::jobs::memory_limit::MemoryLimit;

/// The scores that are compared if none is named.
const DEFAULT: [ImageScore; 2] = [ImageScore::ACCURACY, ImageScore::AUROC];

/// The result for classifiers.
#[derive(Serialize)]
pub struct ImageReport {
    #[serde(flatten)]
    /// The comparison.
    pub comparison: ClassifierComparison,
    /// The comparison with all ensembles of two candidates, if they were requested.
    pub with_ensembles: Option<ClassifierComparison>,
    /// The tables of each ensemble, one for each repeat, by its name.
    pub tables: BTreeMap<String, Vec<PathBuf>>,
    /// The folders of each candidate, by its name.
    pub folders: BTreeMap<String, Vec<PathBuf>>,
    /// Folds that were left out, since their images are not classified.
    pub not_validated: Vec<PathBuf>,
    /// The most memory that was reserved.
    pub reserved_bytes: Bytes,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

/// Tables as they are read.
struct Reader<'a> {
    budget: &'a Budget,
    common_cases: bool,
    context: &'a Context,
    /// The number of labels of an image in tables that belong to no run.
    labelling: Labelling,
    not_validated: Vec<PathBuf>,
}

/// Compares classifiers, and writes the requested files.
pub fn compare_images(
    request: &CompareRequest,
    sources: &[Source],
    which: usize,
    context: &Context,
) -> Outcome<ImageReport> {
    if let Some(flag) = request.ensembles.as_ref().and_then(|ensembles| ensembles.of_predictions) {
        let message = format!("{flag} has no effect: predictions of validation images exist");
        return Err(Error::new(message, "leave it out"));
    }
    let memory = MemoryLimit::set(request.ram, 1, context)?;
    let mut reader = Reader {
        budget: &memory.budget,
        common_cases: request.common_cases,
        context,
        labelling: labelling(sources, request.several_labels)?,
        not_validated: Vec::new(),
    };
    let (mut candidates, mut folders) = (Vec::new(), BTreeMap::<String, Vec<PathBuf>>::new());
    for source in sources {
        let name = &source.names[which];
        let own = source.repeats.iter().map(|place| place.folder.clone()).collect();
        folders.insert(name.clone(), own);
        let mut repeats = Vec::new();
        for place in &source.repeats {
            let tables = reader.tables(place)?;
            // One without any table was left out, which only --common-cases allows.
            if !tables.is_empty() {
                let name = format!("{name}{}", place.suffix);
                repeats.push(ClassifierRepeat::new(name, tables, &memory.budget)?);
            }
        }
        candidates.extend((!repeats.is_empty()).then(|| Classifier { name: name.clone(), repeats }));
    }
    let not_validated = reader.not_validated;
    let paired = PairedClassifiers::new(candidates, request.common_cases, &memory.budget)?;
    let settings = ClassifierSettings {
        scores: scores(&request.scores, &paired)?,
        classes: (!request.classes.is_empty()).then(|| request.classes.clone()),
        bootstrap: request.bootstrap,
    };
    let comparison = compare_classifiers(&paired, &settings, &memory.budget)?;
    if let Some(path) = &request.csv {
        write(path, |file| comparison.write_csv(file))?;
    }
    if let Some(path) = &request.picture {
        let picture = comparison_picture::draw_classifiers(&comparison, &memory.budget)?;
        write(path, |file| file.write_all(&picture))?;
    }
    let mut tables = BTreeMap::new();
    let with_ensembles = match &request.ensembles {
        None => None,
        Some(PairEnsembles { folder, .. }) => {
            let alone: Vec<String> = paired.names().map(str::to_string).collect();
            let all = paired.with_ensembles(&memory.budget)?;
            for (one, other) in pairs(&alone) {
                let name = ensemble_name(one, other);
                let both = [one, other].into_iter().filter_map(|name| folders.get(name));
                let both: Vec<PathBuf> = both.flatten().cloned().collect();
                let own = write_tables(folder, &name, &both, &all)?;
                tables.insert(name.clone(), own);
                folders.insert(name, both);
            }
            Some(compare_classifiers(&all, &settings, &memory.budget)?)
        }
    };
    let (reserved_bytes, peak_rss_bytes) = (memory.budget.peak(), resident()?.peak);
    Ok(ImageReport {
        comparison,
        with_ensembles,
        tables,
        folders,
        not_validated,
        reserved_bytes,
        peak_rss_bytes,
    })
}

/// Each two of some.
fn pairs(of: &[String]) -> impl Iterator<Item = (&String, &String)> {
    of.iter().enumerate().flat_map(|(at, one)| of[at + 1..].iter().map(move |other| (one, other)))
}

/// Writes the probabilities of an ensemble, a table for each repeat.
fn write_tables(
    folder: &Path,
    name: &str,
    both: &[PathBuf],
    paired: &PairedClassifiers,
) -> Outcome<Vec<PathBuf>> {
    make_folder(folder)?;
    let paths: Vec<&Path> = both.iter().map(PathBuf::as_path).collect();
    let stem = pair_folder(name, &paths);
    let tables: Vec<_> = paired.tables(name).collect();
    let mut files = Vec::with_capacity(tables.len());
    for (number, (_, table)) in tables.iter().enumerate() {
        let number = if tables.len() > 1 { format!(".{number}") } else { String::new() };
        let file = folder.join(format!("{stem}{number}.csv"));
        write(&file, |file| table.write(paired.images(), file))?;
        files.push(file);
    }
    Ok(files)
}

/// The number of labels of an image in tables: from runs among the candidates, or else as requested.
fn labelling(sources: &[Source], several: bool) -> Outcome<Labelling> {
    for place in sources.iter().flat_map(|source| &source.repeats) {
        let Scored::Folds(folds) = &place.scored else { continue };
        let Some(fold) = folds.iter().find(|fold| fold.is_begun()) else { continue };
        if several {
            let message = format!("{} already states how many labels an image has", place.folder.display());
            return Err(Error::new(message, "leave out ‹several_labels›"));
        }
        return Ok(labelling_of(Specification::read(fold)?.config.task.classification()?.target));
    }
    Ok(if several { Labelling::SeveralLabels } else { Labelling::OneClass })
}

/// The requested scores, each once.
fn scores(asked: &[String], paired: &PairedClassifiers) -> Outcome<Vec<ImageScore>> {
    let known = || ImageScore::for_labelling(paired.labelling());
    let mut found = Vec::new();
    for name in asked {
        if name.eq_ignore_ascii_case("all") {
            found.extend(known());
            continue;
        }
        found.push(ImageScore::named(name).ok_or_else(|| {
            let names: Vec<&str> = known().into_iter().map(ImageScore::name).collect();
            let hint = format!("choose from {}, or all", names.join(", "));
            Error::new(format!("{name} is not a score for comparing classifiers"), hint)
        })?);
    }
    if asked.is_empty() {
        found.extend(DEFAULT);
    }
    let mut seen = BTreeSet::new();
    found.retain(|score| seen.insert(*score));
    Ok(found)
}

impl Reader<'_> {
    /// The tables of a repeat: one for each fold, or a single one.
    fn tables(&mut self, place: &RepeatScores) -> Outcome<Vec<NamedTable>> {
        let mut tables = Vec::new();
        match &place.scored {
            Scored::Table(path) => tables.push(Table::read_named(path, self.labelling, self.budget)?),
            Scored::Folds(folds) => {
                for fold in folds {
                    let path = fold.image_predictions();
                    if !path.is_file() {
                        not_validated(fold, &path, self.common_cases, self.context)?;
                        self.not_validated.push(fold.path().into());
                        continue;
                    }
                    let target = Specification::read(fold)?.config.task.classification()?.target;
                    tables.push(Table::read_named(&path, labelling_of(target), self.budget)?);
                }
            }
            // Scores of label maps are of another kind of comparison.
            Scored::Summaries(_) => {
                let message = format!("{} has scores of label maps", place.folder.display());
                return Err(Error::new(message, "compare them with runs that label voxels"));
            }
        }
        Ok(tables)
    }
}
