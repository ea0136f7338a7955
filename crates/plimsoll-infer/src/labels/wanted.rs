//! The requested output of a case.

use plimsoll_models::Answers;

/// The number of labels above 0 from which they are written in 16 bits, as nnU-Net does.
const WIDE: u16 = 255;

/// The requested output of a case.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The meaning of the logits.
    pub(crate) answers: &'a Answers,
    /// The numbers that are wanted beside labels.
    pub(crate) scores: Scores,
}

/// The numbers of each output at a voxel that are made beside its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scores {
    None,
    /// The softmax of classes, or the sigmoid of each region.
    Probabilities,
    /// Mean logits.
    Logits,
}

impl<'a> Wanted<'a> {
    /// Labels, and probabilities beside them if they are wanted.
    pub(crate) fn new(answers: &'a Answers, probabilities: bool) -> Wanted<'a> {
        let scores = if probabilities { Scores::Probabilities } else { Scores::None };
        Wanted { answers, scores }
    }
}

impl Wanted<'_> {
    /// Bytes of a label.
    pub(crate) fn label_bytes(&self) -> usize {
        if self.answers.largest() < WIDE { 1 } else { 2 }
    }

    /// The number of probabilities or logits of a voxel that are made.
    pub(crate) fn probabilities(&self) -> usize {
        match self.scores {
            Scores::None => 0,
            Scores::Probabilities | Scores::Logits => self.answers.outputs(),
        }
    }
}
