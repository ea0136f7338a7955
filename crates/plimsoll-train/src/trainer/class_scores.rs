//! The scores of a classification.

use plimsoll_run::{ClassScores, ClassificationTask, ImageTarget, LabelScores};

/// The predictions of the validated images.
pub(super) struct Tally {
    task: ClassificationTask,
    probabilities: Vec<f64>,
    found: Found,
}

/// Counts of what was given and what was right.
enum Found {
    /// One class for each image.
    Classes(Confusion),
    /// Any of several labels: for each how many images were TP, FP, FN, TN.
    Labels(Vec<[u64; 4]>),
}

impl Tally {
    pub(super) fn new(task: &ClassificationTask) -> Tally {
        let classes = task.labels.len();
        let found = match task.target {
            ImageTarget::AnyOf => Found::Labels(vec![[0; 4]; classes]),
            ImageTarget::OneOf | ImageTarget::Ordinal => Found::Classes(Confusion::new(classes)),
        };
        Tally { task: task.clone(), probabilities: vec![0.0; classes], found }
    }

    /// Counts an image with labels by the network's outputs.
    pub(super) fn add(&mut self, labels: &[u32], outputs: &[f32]) {
        self.probabilities.fill(0.0);
        self.task.add_probabilities(outputs, 1.0, &mut self.probabilities);
        let mut given = self.task.given(&self.probabilities);
        match &mut self.found {
            Found::Classes(confusion) => {
                if let Some((class, given)) = self.task.class_of(labels).zip(given.next()) {
                    confusion.add(usize::from(class), given);
                }
            }
            Found::Labels(counts) => {
                let mut next = given.next();
                for (place, (counts, label)) in counts.iter_mut().zip(&self.task.labels).enumerate() {
                    let is_given = next == Some(place);
                    if is_given {
                        next = given.next();
                    }
                    let kind = match (is_given, labels.contains(label)) {
                        (true, true) => 0,
                        (true, false) => 1,
                        (false, true) => 2,
                        (false, false) => 3,
                    };
                    counts[kind] += 1;
                }
            }
        }
    }

    /// The scores of the images so far; `None` without images.
    pub(super) fn scores(&self) -> Option<ClassScores> {
        match &self.found {
            Found::Classes(confusion) => confusion.scores(),
            Found::Labels(counts) => label_scores(counts, self.task.classes()),
        }
    }
}

/// The scores of labels by their counts.
fn label_scores<'a>(counts: &[[u64; 4]], names: impl Iterator<Item = &'a str>) -> Option<ClassScores> {
    let quotient = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let labels = counts.iter().zip(names).map(|([tp, fp, negatives, tn], name)| LabelScores {
        label: name.into(),
        sensitivity: quotient(*tp, tp + negatives),
        specificity: quotient(*tn, tn + fp),
        f1: quotient(2 * tp, 2 * tp + fp + negatives),
    });
    let labels: Vec<LabelScores> = labels.collect();
    let mean =
        |numbers: Vec<f64>| (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64);
    let of_label =
        |label: &LabelScores| mean(label.sensitivity.into_iter().chain(label.specificity).collect());
    let right: u64 = counts.iter().map(|[tp, _, _, tn]| tp + tn).sum();
    Some(ClassScores {
        accuracy: quotient(right, counts.iter().flatten().sum())?,
        balanced_accuracy: mean(labels.iter().filter_map(of_label).collect())?,
        kappa: None,
        labels,
    })
}

/// The number of images of each class by predicted class.
#[derive(Clone, Debug)]
pub(super) struct Confusion {
    classes: usize,
    /// `[true class][given class]`
    counts: Vec<u64>,
}

impl Confusion {
    pub(super) fn new(classes: usize) -> Confusion {
        Confusion { classes, counts: vec![0; classes * classes] }
    }

    /// Counts an image of a class that was given a class.
    pub(super) fn add(&mut self, class: usize, given: usize) {
        if let Some(count) = self.counts.get_mut(class * self.classes + given) {
            *count += 1;
        }
    }

    /// The scores of the images so far; `None` without images.
    pub(super) fn scores(&self) -> Option<ClassScores> {
        let count = |truth: usize, given: usize| self.counts[truth * self.classes + given] as f64;
        let all = || 0..self.classes;
        let of_class: Vec<f64> = all().map(|truth| all().map(|given| count(truth, given)).sum()).collect();
        let given_as: Vec<f64> = all().map(|given| all().map(|truth| count(truth, given)).sum()).collect();
        let images: f64 = of_class.iter().sum();
        if images == 0.0 {
            return None;
        }
        let right: f64 = all().map(|class| count(class, class)).sum();
        let recalls =
            all().filter(|class| of_class[*class] > 0.0).map(|class| count(class, class) / of_class[class]);
        let (sum, present) = recalls.fold((0.0, 0.0), |(sum, present), recall| (sum + recall, present + 1.0));
        // Cohen 1968, with squared differences of classes as weights.
        let (mut seen, mut by_chance) = (0.0, 0.0);
        for truth in all() {
            for given in all() {
                let weight = (truth as f64 - given as f64).powi(2);
                seen += weight * count(truth, given);
                by_chance += weight * of_class[truth] * given_as[given] / images;
            }
        }
        Some(ClassScores {
            accuracy: right / images,
            balanced_accuracy: sum / present,
            kappa: (by_chance > 0.0).then(|| 1.0 - seen / by_chance),
            labels: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_scikit_learn() {
        // y = [0, 0, 0, 1, 1, 2, 2, 2], p = [0, 0, 1, 1, 2, 2, 2, 0]:
        // accuracy_score 0.625, balanced_accuracy_score 0.6111111111111112,
        // cohen_kappa_score(weights="quadratic") 0.5
        let mut confusion = Confusion::new(3);
        let given = [(0, 0), (0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 2), (2, 0)];
        assert_eq!(confusion.scores(), None);
        for (class, given) in given {
            confusion.add(class, given);
        }
        let scores = confusion.scores().unwrap();
        assert!((scores.accuracy - 0.625).abs() < 1e-12);
        assert!((scores.balanced_accuracy - 11.0 / 18.0).abs() < 1e-12);
        assert!((scores.kappa.unwrap() - 0.5).abs() < 1e-12, "{scores:?}");
    }

    #[test]
    fn labels_are_scored_one_by_one() {
        // Label a: two found, one missed, one correctly absent. Label b: never present, and found once.
        let counts = [[2, 0, 1, 1], [0, 1, 0, 3]];
        let scores = label_scores(&counts, ["a", "b"].into_iter()).unwrap();
        assert_eq!(scores.accuracy, 6.0 / 8.0);
        assert!((scores.balanced_accuracy - ((2.0 / 3.0 + 1.0) / 2.0 + 3.0 / 4.0) / 2.0).abs() < 1e-12);
        assert_eq!((scores.labels[0].f1, scores.labels[1].sensitivity), (Some(0.8), None));
        assert_eq!(label_scores(&[[0; 4]], ["a"].into_iter()), None);
    }
}
