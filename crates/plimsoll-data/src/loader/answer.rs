//! The outputs of a network for an image as a whole.

/// The outputs of a network for an image: their number and their targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One of several classes: the outputs are logits of a softmax.
    OneOf {
        /// The number of classes.
        classes: usize,
    },
    /// Any of these labels, each by itself: the outputs are logits of sigmoids, in their order.
    AnyOf {
        /// Their numbers in the data set.
        labels: Vec<u32>,
    },
    /// One of several classes that have an order: output k is the logit of being above class k (Niu et al. 2016), for each class but
    /// the last.
    Ordinal {
        /// The number of classes.
        classes: usize,
    },
}

impl Answer {
    /// The number of outputs of the network.
    pub fn outputs(&self) -> usize {
        match self {
            Answer::OneOf { classes } => *classes,
            Answer::AnyOf { labels } => labels.len(),
            Answer::Ordinal { classes } => classes.saturating_sub(1),
        }
    }

    /// Returns `true` if a class alone does not determine the targets.
    pub(crate) fn is_soft(&self) -> bool {
        !matches!(self, Answer::OneOf { .. })
    }

    /// The label that the loss is taken of before soft targets are minded.
    pub(crate) fn label(&self, class: u8) -> u8 {
        match self {
            Answer::OneOf { .. } => class,
            // Any would do that is one of an output.
            Answer::AnyOf { .. } | Answer::Ordinal { .. } => 0,
        }
    }

    /// Writes what each output should be of an image with a class, where it has one, and labels. Nothing is written where there is
    /// no room.
    pub(crate) fn write_target(&self, class: u8, labels: &[u32], target: &mut [f32]) {
        let class = usize::from(class);
        for (output, value) in target.iter_mut().enumerate() {
            let is_so = match self {
                Answer::OneOf { .. } => output == class,
                Answer::AnyOf { labels: known } => {
                    known.get(output).is_some_and(|label| labels.contains(label))
                }
                Answer::Ordinal { .. } => class > output,
            };
            *value = f32::from(u8::from(is_so));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(answer: &Answer, class: u8, labels: &[u32]) -> Vec<f32> {
        let mut target = vec![9.0; answer.outputs()];
        answer.write_target(class, labels, &mut target);
        target
    }

    #[test]
    fn targets_are_one_class_any_labels_or_the_thresholds_that_are_passed() {
        assert_eq!(target(&Answer::OneOf { classes: 3 }, 2, &[7]), [0.0, 0.0, 1.0]);
        assert_eq!(target(&Answer::AnyOf { labels: vec![4, 1, 2] }, 0, &[2, 4]), [1.0, 0.0, 1.0]);
        assert_eq!(target(&Answer::AnyOf { labels: vec![4, 1, 2] }, 0, &[]), [0.0; 3]);
        let ordinal = Answer::Ordinal { classes: 4 };
        assert_eq!(target(&ordinal, 0, &[0]), [0.0; 3]);
        assert_eq!(target(&ordinal, 2, &[2]), [1.0, 1.0, 0.0]);
        assert_eq!(target(&ordinal, 3, &[3]), [1.0; 3]);
    }
}
