//! The target of a classification, and probabilities from the outputs of a network.

use plimsoll_data::Answer;
use plimsoll_nn::SoftTargets;
use serde::{Deserialize, Serialize};

use crate::ClassificationTask;

/// The target of a classification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageTarget {
    /// One class for each image.
    #[default]
    OneOf,
    /// Any number of labels for each image.
    AnyOf,
    /// One of several ordered classes: each output but the last decides whether the image is above a class (Niu et al. 2016).
    Ordinal,
}

/// The probability from which on an image has a label, of several.
pub const LABEL_THRESHOLD: f64 = 0.5;

impl ClassificationTask {
    /// The kind of answer of the network.
    pub fn answer(&self) -> Answer {
        let classes = self.labels.len();
        match self.target {
            ImageTarget::OneOf => Answer::OneOf { classes },
            ImageTarget::AnyOf => Answer::AnyOf { labels: self.labels.clone() },
            ImageTarget::Ordinal => Answer::Ordinal { classes },
        }
    }

    /// The programs that have soft targets.
    pub(crate) fn soft_targets(&self) -> SoftTargets {
        match self.target {
            ImageTarget::OneOf if self.augmentation.mixup > 0.0 => SoftTargets::Training,
            ImageTarget::OneOf => SoftTargets::Never,
            ImageTarget::AnyOf | ImageTarget::Ordinal => SoftTargets::Always,
        }
    }

    /// Adds a share of the probability of each class to `sums`, by the network's outputs: the softmax of logits; of several labels the
    /// sigmoid of each; of classes in an order differences of the probabilities of being above each, P(k) = q(k − 1) − q(k) with
    /// q(−1) = 1, q(K − 1) = 0. Thresholds that are learned one by one may contradict each other, so that q(k) is the least of the
    /// sigmoids up to k.
    pub fn add_probabilities(&self, outputs: &[f32], share: f64, sums: &mut [f64]) {
        match self.target {
            ImageTarget::OneOf => {
                let top = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let power = |logit: f32| f64::from(logit - top).exp();
                let all: f64 = outputs.iter().copied().map(power).sum();
                for (sum, logit) in sums.iter_mut().zip(outputs) {
                    *sum += share * power(*logit) / all;
                }
            }
            ImageTarget::AnyOf => {
                for (sum, logit) in sums.iter_mut().zip(outputs) {
                    *sum += share * sigmoid(*logit);
                }
            }
            ImageTarget::Ordinal => {
                let mut above = 1.0;
                let next = outputs.iter().copied().map(sigmoid).chain([0.0]);
                for (sum, next) in sums.iter_mut().zip(next) {
                    let next = next.min(above);
                    *sum += share * (above - next);
                    above = next;
                }
            }
        }
    }

    /// The weight of each output of the network in the score whose gradient explains a class: the output of class 1; −1 of the other of
    /// two classes; for ordered classes, above the previous class and not above this one.
    pub fn score_of(&self, class: usize) -> Vec<f32> {
        let mut weights = vec![0.0; self.answer().outputs()];
        match self.target {
            ImageTarget::OneOf if weights.len() == 2 => {
                weights.fill(-1.0);
                weights[class] = 1.0;
            }
            ImageTarget::OneOf | ImageTarget::AnyOf => weights[class] = 1.0,
            ImageTarget::Ordinal => {
                if let Some(before) = class.checked_sub(1) {
                    weights[before] = 1.0;
                }
                if let Some(own) = weights.get_mut(class) {
                    *own = -1.0;
                }
            }
        }
        weights
    }

    /// The indices of the predicted classes: the most probable class, the first of equally probable ones; or all labels with a probability
    /// of at least [`LABEL_THRESHOLD`].
    pub fn given<'a>(&self, probabilities: &'a [f64]) -> impl Iterator<Item = usize> + use<'a> {
        let is_any = self.target == ImageTarget::AnyOf;
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for (place, probability) in probabilities.iter().enumerate() {
            if *probability > most {
                (best, most) = (place, *probability);
            }
        }
        let is_given = move |(place, probability): (usize, &f64)| {
            let is_so = if is_any { *probability >= LABEL_THRESHOLD } else { place == best };
            is_so.then_some(place)
        };
        probabilities.iter().enumerate().filter_map(is_given)
    }
}

/// 1 / (1 + e⁻ˣ).
fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

#[cfg(test)]
mod tests {
    use plimsoll_data::Sampling;

    use super::*;
    use crate::{ImageSettings, ImageSummary};

    fn task(target: ImageTarget, classes: usize) -> ClassificationTask {
        let names = (0..classes).map(|class| class.to_string()).collect();
        ClassificationTask {
            dataset: ImageSummary { name: "images".into(), classes: names },
            labels: (0..classes as u32).collect(),
            target,
            pipeline: ImageSettings::default().pipeline(None),
            augmentation: Default::default(),
            sampling: Sampling::Shuffled,
        }
    }

    fn probabilities(task: &ClassificationTask, outputs: &[f32]) -> Vec<f64> {
        let mut sums = vec![0.0; task.labels.len()];
        task.add_probabilities(outputs, 0.25, &mut sums);
        task.add_probabilities(outputs, 0.75, &mut sums);
        sums
    }

    #[track_caller]
    fn close(found: &[f64], expected: &[f64]) {
        let is_close = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-6;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_close), "{found:?}");
    }

    #[test]
    fn probabilities_are_the_softmax() {
        let task = task(ImageTarget::OneOf, 2);
        let found = probabilities(&task, &[1000.0, 1000.0 + 3f32.ln()]);
        assert!((found[0] - 0.25).abs() < 1e-4 && (found[1] - 0.75).abs() < 1e-4, "{found:?}");
        assert_eq!(task.given(&[0.5, 0.5]).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn labels_have_probabilities_of_their_own_and_a_half_is_enough() {
        let task = task(ImageTarget::AnyOf, 3);
        let found = probabilities(&task, &[0.0, 3f32.ln(), -(3f32.ln())]);
        close(&found, &[0.5, 0.75, 0.25]);
        assert_eq!(task.given(&[0.5, 0.75, 0.25]).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(task.given(&[0.4; 3]).count(), 0);
    }

    #[test]
    fn scores_are_of_the_outputs_that_make_a_class_probable() {
        let of = |target, classes, class| task(target, classes).score_of(class);
        assert_eq!(of(ImageTarget::OneOf, 3, 1), [0.0, 1.0, 0.0]);
        assert_eq!(of(ImageTarget::OneOf, 2, 0), [1.0, -1.0]);
        assert_eq!(of(ImageTarget::AnyOf, 2, 1), [0.0, 1.0]);
        assert_eq!(of(ImageTarget::Ordinal, 3, 0), [-1.0, 0.0]);
        assert_eq!(of(ImageTarget::Ordinal, 3, 1), [1.0, -1.0]);
        assert_eq!(of(ImageTarget::Ordinal, 3, 2), [0.0, 1.0]);
    }

    #[test]
    fn classes_in_an_order_have_differences_that_are_never_negative() {
        let task = task(ImageTarget::Ordinal, 4);
        // P(above) = 3/4, 1/2, 1/4.
        let third = 3f32.ln();
        close(&probabilities(&task, &[third, 0.0, -third]), &[0.25; 4]);
        // 1/2, then 3/4, which cannot be: 1/2 is the most that is left.
        close(&probabilities(&task, &[0.0, third, -third]), &[0.5, 0.0, 0.25, 0.25]);
        assert_eq!(task.given(&[0.1, 0.2, 0.6, 0.1]).collect::<Vec<_>>(), [2]);
    }
}
