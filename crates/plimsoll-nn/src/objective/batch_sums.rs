//! Components of sums over a batch that goes through the network in parts.
//!
//! Dice over a batch is a quotient of sums over all its samples. A part of the batch has the gradient of its own logits if it knows these
//! sums: the derivatives by them are factors of terms of its voxels. So each part computes its sums in a pass of its own; the totals are
//! an input of the program of gradients, in the place of the sums of its own samples. All parts then compute the loss of the
//! batch, and their gradients add up to its gradient: they are not divided by the number of parts. Means over samples of what the
//! sums of each sample give, such as Dice without `batch`, stay as they are.

use plimsoll_graph::ops::{CompositeLoss, Loss};
use plimsoll_graph::{GraphError, Kind, Program, Shape, TensorId};

use super::{HeadLogits, LossBuilder, Objective, Term, Variant};
use crate::names;

/// A loss of the sums of a batch of which the program has a part.
pub(crate) struct BatchLoss {
    /// Its value `[1]`.
    pub(crate) value: TensorId,
    loss: Loss,
    /// Logits and labels of the part, and the sums of the batch.
    operands: [TensorId; 3],
}

impl BatchLoss {
    /// The logits of the part.
    pub(crate) fn logits(&self) -> TensorId {
        self.operands[0]
    }

    /// Appends the gradient of the logits times `factor`, which is `[1]`.
    pub(crate) fn gradient(&self, program: &mut Program, factor: TensorId) -> Result<TensorId, GraphError> {
        let [logits, labels, sums] = self.operands;
        program.push_one(self.loss.gradient_op(), &[logits, labels, sums, factor])
    }
}

impl Term {
    /// Returns `true` if it follows from the sums of each sample instead of the sums of the batch.
    pub(super) fn is_of_samples(&self) -> bool {
        matches!(self, Term::Sums(component) if component.is_of_samples())
    }
}

impl Objective {
    /// Returns `true` if parts of a batch need the sums of all of it.
    pub fn needs_batch_sums(&self) -> bool {
        let ignores = self.ignore.is_some();
        let needs = |term: &Term| matches!(term, Term::Sums(_)) && term.needs_whole_batch(ignores);
        self.components.iter().any(|term| term.weight() != 0.0 && needs(term))
    }

    /// The first component that cannot be computed of parts of a batch, whatever these know of each other.
    pub fn undivided(&self) -> Option<&'static str> {
        let ignores = self.ignore.is_some();
        let is_undivided = |term: &&Term| {
            matches!(term, Term::Structure(_)) && term.weight() != 0.0 && term.needs_whole_batch(ignores)
        };
        self.components.iter().find(is_undivided).map(Term::name)
    }

    /// Returns the [`parts`](Objective::parts) of a variant in the order of a program that reads the sums of the batch: components of
    /// samples come after the other components of sums.
    pub fn parts_by_batch_sums(&self, variant: &Variant) -> Vec<usize> {
        self.ordered_parts(variant, Term::is_of_samples)
    }

    /// The components that follow from the sums of a batch.
    fn of_batch(&self) -> Loss {
        self.sums_where(|term| !term.is_of_samples())
    }

    /// Declares the input of a head's sums over the batch, `[N, C, rows]`. The first sample has the sums of the batch, the others have zeros.
    pub(crate) fn batch_sums(&self, program: &mut Program, logits: TensorId, head: usize) -> TensorId {
        let shape = program.shape(logits);
        let shape = Shape(vec![shape.batch(), shape.channels(), self.of_batch().rows()]);
        program.input(names::batch_sums(head), shape, Kind::Table)
    }

    /// Appends the sums `[N, C, rows]` of a head.
    pub(crate) fn head_sums(
        &self,
        builder: &mut LossBuilder<'_>,
        logits: TensorId,
    ) -> Result<TensorId, GraphError> {
        let labels = builder.labels(builder.extent(HeadLogits { logits, batch_sums: None }))?;
        builder.push(self.of_batch().sums_op(), &[logits, labels])
    }

    /// Appends the loss of a head by the sums of the batch, and its parts.
    pub(super) fn loss_of_batch(
        &self,
        builder: &mut LossBuilder<'_>,
        head: HeadLogits,
        sums: TensorId,
    ) -> Result<(BatchLoss, TensorId), GraphError> {
        let labels = builder.labels(builder.extent(head))?;
        let loss = self.of_batch();
        let results = builder.push_all(CompositeLoss { loss: loss.clone() }, &[sums])?;
        let of_batch = BatchLoss { value: results[0], loss, operands: [head.logits, labels, sums] };
        Ok((of_batch, results[1]))
    }
}
