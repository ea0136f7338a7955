//! How well images are given their classes.

use plimsoll_run::ClassScores;

/// How many images of each class were given which.
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

    /// Counts an image by its logits: it is given the first class with the largest.
    pub(super) fn add(&mut self, class: u8, logits: &[f32]) {
        let mut given = 0;
        for (place, logit) in logits.iter().enumerate() {
            if *logit > logits[given] {
                given = place;
            }
        }
        if let Some(count) = self.counts.get_mut(usize::from(class) * self.classes + given) {
            *count += 1;
        }
    }

    /// The scores of the images so far; none where there are none.
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
            let mut logits = [0.0; 3];
            logits[given] = 1.0;
            confusion.add(class, &logits);
        }
        let scores = confusion.scores().unwrap();
        assert!((scores.accuracy - 0.625).abs() < 1e-12);
        assert!((scores.balanced_accuracy - 11.0 / 18.0).abs() < 1e-12);
        assert!((scores.kappa.unwrap() - 0.5).abs() < 1e-12, "{scores:?}");
    }
}
