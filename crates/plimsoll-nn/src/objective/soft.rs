//! Targets that are not one class for certain: shares of classes, several labels at once, thresholds in an order.
//!
//! A loss that is linear in its target t, as the cross-entropy of a softmax or of sigmoids is, differs between two targets by their
//! difference times the logits z alone: log Σ eᶻ − Σ tᶜ zᶜ and Σ log(1 + eᶻᶜ) − tᶜ zᶜ have t nowhere else. So it is the loss of the
//! label that a sample has, to which Σ (yᶜ − tᶜ) zᶜ is added, y being 1 for the class of that label and else 0. The differences y − t are
//! an input of the program; the gradient for a soft target is p − t.

use plimsoll_graph::ops::{
    Activation, Component, CrossEntropy, DistanceLoss, DistanceTerm, WeightedBce, WeightedSum,
};
use plimsoll_graph::{GraphError, TensorId};

use super::{HeadLogits, LossBuilder, Objective, Term, Variant};

/// The programs that have targets beside labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SoftTargets {
    /// None: the label of a sample is its target.
    #[default]
    Never,
    /// Those that train, as where samples are mixed.
    Training,
    /// Those that train and those that validate.
    Always,
}

impl SoftTargets {
    fn are_of(self, variant: &Variant) -> bool {
        match self {
            SoftTargets::Never => false,
            SoftTargets::Training => !variant.is_validation(),
            SoftTargets::Always => true,
        }
    }
}

/// The factor of mean (y − t) z over samples and classes in a component that is linear in its target; none of another.
fn factor(component: &Component, classes: usize) -> Option<f32> {
    match component {
        // Of label smoothing ε, the rest of the target, 1 − ε, is what differs.
        Component::CrossEntropy(CrossEntropy { class_weights, label_smoothing, .. })
            if class_weights.is_empty() =>
        {
            Some(classes as f32 * (1.0 - label_smoothing))
        }
        Component::WeightedBce(WeightedBce {
            pos_weight: 1.0,
            activation: Activation::Sigmoid,
            include_background: true,
            class_weights,
            ..
        }) if class_weights.is_empty() => Some(1.0),
        _ => None,
    }
}

impl Objective {
    /// Returns the fault of an objective with soft targets, if there is one: the option, its value, and the expected
    /// value.
    pub(super) fn soft_fault(&self, classes: usize) -> Option<(String, String, String)> {
        if self.soft == SoftTargets::Never {
            return None;
        }
        let is_linear = match &self.components[..] {
            [Term::Sums(component)] => factor(component, classes).is_some(),
            _ => false,
        };
        let names: Vec<&str> = self.components.iter().map(Term::name).collect();
        (!is_linear || self.ignore.is_some()).then(|| {
            (
                "components".into(),
                format!("[{}]", names.join(", ")),
                "labels are mixed, several or ordered: use cross_entropy without class weights alone, or weighted_bce of the sigmoid with \
                 its background and without weights alone"
                    .into(),
            )
        })
    }

    /// Adds to the loss of a head and its part, both `[1]`, what soft targets make of them in programs that have any.
    pub(super) fn with_soft_targets(
        &self,
        builder: &mut LossBuilder<'_>,
        head: HeadLogits,
        labels: TensorId,
        variant: &Variant,
        [loss, part]: [TensorId; 2],
    ) -> Result<[TensorId; 2], GraphError> {
        let classes = builder.classes(head);
        let [Term::Sums(component)] = &self.components[..] else { return Ok([loss, part]) };
        let Some(factor) = factor(component, classes).filter(|_| self.soft.are_of(variant)) else {
            return Ok([loss, part]);
        };
        let shift = builder.target_shift(head);
        // The mean of the product of two volumes, whatever they are.
        let product = DistanceLoss { term: DistanceTerm::Boundary, ignore: None };
        let mean = builder.push(product, &[head.logits, labels, shift])?;
        let weights = |factor| WeightedSum { weights: vec![1.0, factor] };
        Ok([
            builder.push(weights(component.weight() * factor), &[loss, mean])?,
            builder.push(weights(factor), &[part, mean])?,
        ])
    }
}
