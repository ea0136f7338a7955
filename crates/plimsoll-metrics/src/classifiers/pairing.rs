//! The images of several classifiers, side by side.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_memory::{Budget, Bytes, MapError, Reservation};

use crate::classification::{Labelling, NamedTable, Table};
use crate::comparison::{ComparisonError, ensemble_name, expect_same_repeats};

/// The bytes that a map of names takes for each name, without its letters.
const BYTES_OF_NAME: usize = 96;

/// A candidate of a comparison: one choice of settings, trained once or several times.
#[derive(Debug)]
pub struct Classifier {
    /// Its name.
    pub name: String,
    /// The same with other seeds: at least one.
    pub repeats: Vec<ClassifierRepeat>,
}

/// One training of a classifier, with what it says of images.
#[derive(Debug)]
pub struct ClassifierRepeat {
    name: String,
    /// The tables of its folds, or one table of all images.
    tables: Vec<Table>,
    /// The table and the place there of each image.
    images: BTreeMap<String, (usize, usize)>,
    _memory: Vec<Reservation>,
}

impl ClassifierRepeat {
    /// Combines the tables of its folds, or takes one table of all its images.
    ///
    /// # Errors
    /// Returns an error if an image is there twice, tables have other classes, or the memory is not available.
    pub fn new(
        name: impl Into<String>,
        tables: Vec<NamedTable>,
        budget: &Budget,
    ) -> Result<ClassifierRepeat, ComparisonError> {
        let mut all = ClassifierRepeat {
            name: name.into(),
            tables: Vec::new(),
            images: BTreeMap::new(),
            _memory: Vec::new(),
        };
        for (number, named) in tables.into_iter().enumerate() {
            let (table, names) = (named.table, named.names);
            let bytes = names.iter().map(|name| name.len() + BYTES_OF_NAME).sum();
            let memory = budget.reserve("names of images", Bytes::from_len(bytes)).map_err(MapError::from)?;
            all._memory.push(memory);
            if let Some(first) = all.tables.first() {
                expect_alike(&all.name, first, &format!("{} (part {})", all.name, number + 1), &table)?;
            }
            for (place, image) in names.into_iter().enumerate() {
                if all.images.contains_key(&image) {
                    return Err(ComparisonError::CaseTwice { candidate: all.name, case: image });
                }
                all.images.insert(image, (number, place));
            }
            all.tables.push(table);
        }
        Ok(all)
    }

    fn place(&self, image: &str) -> Option<(&Table, usize)> {
        let (table, place) = self.images.get(image)?;
        Some((&self.tables[*table], *place))
    }
}

/// Classifiers with the images that all of them have.
#[derive(Debug)]
pub struct PairedClassifiers {
    candidates: Vec<PairedClassifier>,
    classes: Vec<String>,
    labelling: Labelling,
    images: Vec<String>,
    left_out: Vec<String>,
    _memory: Reservation,
}

/// A classifier with what each of its repeats says of the common images, in their order.
#[derive(Debug)]
pub(super) struct PairedClassifier {
    pub name: String,
    pub repeats: Vec<(String, Table)>,
}

impl PairedClassifiers {
    /// Pairs images by name. With `common`, images that not all repeats of all candidates have are left out. What candidates say is copied,
    /// within `budget`.
    ///
    /// # Errors
    /// Returns an error if there are not two candidates of different names, they know other classes or other labels, images are missing and may not be left
    /// out, or the memory is not available.
    pub fn new(
        candidates: Vec<Classifier>,
        common: bool,
        budget: &Budget,
    ) -> Result<PairedClassifiers, ComparisonError> {
        let repeats = || candidates.iter().flat_map(|candidate| &candidate.repeats);
        let with_tables = |candidate: &&Classifier| {
            !candidate.repeats.is_empty() && candidate.repeats.iter().all(|repeat| !repeat.tables.is_empty())
        };
        let found = candidates.iter().filter(with_tables).count();
        let Some(first) = repeats().next().filter(|_| found == candidates.len() && found > 1) else {
            return Err(ComparisonError::TooFew { found });
        };
        let mut names = BTreeSet::new();
        if let Some(twice) = candidates.iter().find(|candidate| !names.insert(&candidate.name)) {
            return Err(ComparisonError::SameName { name: twice.name.clone() });
        }
        let known = &first.tables[0];
        for other in repeats().skip(1) {
            expect_alike(&first.name, known, &other.name, &other.tables[0])?;
        }
        let all: BTreeSet<&String> = repeats().flat_map(|repeat| repeat.images.keys()).collect();
        // And the places of the images of one repeat, while what it says of them is copied.
        let of_place = size_of::<(&Table, usize)>();
        let bytes = all.iter().map(|name| 2 * (name.len() + BYTES_OF_NAME) + of_place).sum();
        let memory = budget.reserve("names of images", Bytes::from_len(bytes)).map_err(MapError::from)?;
        let lacks = |image: &str| repeats().find(|repeat| !repeat.images.contains_key(image));
        let (images, left_out): (Vec<&String>, Vec<&String>) =
            all.iter().partition(|image| lacks(image).is_none());
        let missing = || {
            let named = |image: &&String| Some((image.to_string(), lacks(image)?.name.clone()));
            left_out.iter().filter_map(named).collect()
        };
        if images.is_empty() {
            return Err(ComparisonError::NoCommonCases { missing: missing() });
        }
        if !left_out.is_empty() && !common {
            return Err(ComparisonError::MissingCases { all: all.len(), missing: missing() });
        }
        let (classes, labelling) = (known.classes().to_vec(), known.labelling());
        let gathered = |repeat: &ClassifierRepeat| -> Result<(String, Table), ComparisonError> {
            let places: Vec<(&Table, usize)> =
                images.iter().filter_map(|image| repeat.place(image)).collect();
            Ok((repeat.name.clone(), Table::gathered(&classes, labelling, &places, budget)?))
        };
        let mut paired = Vec::new();
        for candidate in &candidates {
            let repeats = candidate.repeats.iter().map(gathered).collect::<Result<_, _>>()?;
            paired.push(PairedClassifier { name: candidate.name.clone(), repeats });
        }
        expect_same_labels(&paired, &images)?;
        let own = |names: Vec<&String>| names.into_iter().cloned().collect();
        let (images, left_out) = (own(images), own(left_out));
        Ok(PairedClassifiers { candidates: paired, classes, labelling, images, left_out, _memory: memory })
    }

    /// These candidates, and behind them the ensemble of each two, `A + B`: the mean of the probabilities of both, of the first repeat of the one
    /// with the first of the other and so on. Nobody has seen an image: in cross-validation both are of folds that were not trained on it.
    ///
    /// # Errors
    /// Returns an error if two were trained differently often, a candidate is called as an ensemble is, or the memory is not available.
    pub fn with_ensembles(mut self, budget: &Budget) -> Result<PairedClassifiers, ComparisonError> {
        let mut ensembles = Vec::new();
        for (at, one) in self.candidates.iter().enumerate() {
            for other in &self.candidates[at + 1..] {
                let name = ensemble_name(&one.name, &other.name);
                if self.candidates.iter().any(|candidate| candidate.name == name) {
                    return Err(ComparisonError::SameName { name });
                }
                expect_same_repeats(&one.name, one.repeats.len(), &other.name, other.repeats.len())?;
                let mean = |((one, own), (other, others)): (&(String, Table), &(String, Table))| {
                    Ok((ensemble_name(one, other), Table::mean([own, others], budget)?))
                };
                let repeats = one.repeats.iter().zip(&other.repeats).map(mean);
                let repeats = repeats.collect::<Result<Vec<_>, ComparisonError>>()?;
                ensembles.push(PairedClassifier { name, repeats });
            }
        }
        self.candidates.append(&mut ensembles);
        Ok(self)
    }

    /// Returns the table of each repeat of a candidate with its name, with images in order; empty if there is no such candidate.
    pub fn tables(&self, candidate: &str) -> impl Iterator<Item = (&str, &Table)> {
        let own = self.candidates.iter().filter(move |own| own.name == candidate);
        own.flat_map(|own| own.repeats.iter().map(|(name, table)| (name.as_str(), table)))
    }

    /// The names of the candidates, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().map(|candidate| candidate.name.as_str())
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the number of classes that an image may have.
    pub fn labelling(&self) -> Labelling {
        self.labelling
    }

    /// The names of the images that all have.
    pub fn images(&self) -> &[String] {
        &self.images
    }

    /// Those that not all have.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    pub(super) fn candidates(&self) -> &[PairedClassifier] {
        &self.candidates
    }
}

/// Checks that two tables have the same classes.
fn expect_alike(one: &str, own: &Table, other: &str, theirs: &Table) -> Result<(), ComparisonError> {
    let names = || (one.to_string(), other.to_string());
    if own.classes() != theirs.classes() {
        let ((one, other), [classes, others]) =
            (names(), [own, theirs].map(|table| table.classes().to_vec()));
        return Err(ComparisonError::ClassNames { one, other, classes, others });
    }
    if own.labelling() != theirs.labelling() {
        let (one, other) = names();
        return Err(ComparisonError::Labelling { one, other });
    }
    Ok(())
}

/// Checks that all tables agree on the labels of each image.
fn expect_same_labels(candidates: &[PairedClassifier], images: &[&String]) -> Result<(), ComparisonError> {
    let mut repeats = candidates.iter().flat_map(|candidate| &candidate.repeats);
    let Some((one, first)) = repeats.next() else { return Ok(()) };
    for (other, table) in repeats {
        let agrees = |image: &usize| {
            (0..first.classes().len()).all(|class| first.is_of(*image, class) == table.is_of(*image, class))
        };
        if let Some(image) = (0..images.len()).find(|image| !agrees(image)) {
            return Err(ComparisonError::OtherLabel {
                case: images[image].clone(),
                one: one.clone(),
                other: other.clone(),
                labels: [first, table].map(|table| table.label(image)),
            });
        }
    }
    Ok(())
}
