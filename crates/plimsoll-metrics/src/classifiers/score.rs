//! Scores of classifiers by name.

use serde::{Serialize, Serializer};

use crate::Better;
use crate::classification::Labelling;
use crate::classification::scores::{OF_CLASS, OVERALL, OVERALL_OF_LABELS};

/// A score of a classification, by its name in reports; see [`classify`](crate::classification::classify).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageScore(&'static str);

impl ImageScore {
    /// The share of images that are given the classes that they are of.
    pub const ACCURACY: ImageScore = ImageScore("accuracy");
    /// The area under the ROC curve.
    pub const AUROC: ImageScore = ImageScore("auroc");
    /// The share of images of a class that are given it.
    pub(super) const SENSITIVITY: ImageScore = ImageScore("sensitivity");
    /// The share of all others that are not given it.
    pub(super) const SPECIFICITY: ImageScore = ImageScore("specificity");

    /// All scores.
    pub fn all() -> Vec<ImageScore> {
        let mut all: Vec<ImageScore> =
            [&OVERALL[..], &OVERALL_OF_LABELS, &OF_CLASS].concat().into_iter().map(ImageScore).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Those of images that are of one class, or of any number of labels.
    pub fn for_labelling(labelling: Labelling) -> Vec<ImageScore> {
        let is_there = |score: &ImageScore| {
            score.place(None, labelling).is_some() || score.place(Some(0), labelling).is_some()
        };
        ImageScore::all().into_iter().filter(is_there).collect()
    }

    /// The score of this name.
    pub fn named(name: &str) -> Option<ImageScore> {
        ImageScore::all().into_iter().find(|score| score.0.eq_ignore_ascii_case(name))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the direction in which scores are better.
    pub fn better(self) -> Better {
        if self.0 == "ece" { Better::Lower } else { Better::Higher }
    }

    /// Returns `true` if it runs from 0 to 1.
    pub fn is_share(self) -> bool {
        self.0 != "quadratic_kappa"
    }

    /// Returns the index among all computed scores, for a class or for all classes together, or `None` if there is no such score.
    pub(super) fn place(self, class: Option<usize>, labelling: Labelling) -> Option<usize> {
        let overall: &[&str] = match labelling {
            Labelling::OneClass => &OVERALL,
            Labelling::SeveralLabels => &OVERALL_OF_LABELS,
        };
        let at = |names: &[&str]| names.iter().position(|name| *name == self.0);
        match class {
            None => at(overall),
            Some(class) => Some(overall.len() + class * OF_CLASS.len() + at(&OF_CLASS)?),
        }
    }
}

impl Serialize for ImageScore {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}
