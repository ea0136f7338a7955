//! The objective that is minimised: a list of components of the loss.
//!
//! Some follow from sums over voxels and are taken together in one pass ([`Component`]). The others see shapes
//! ([`Structure`]): each is a part of a program of its own, on probabilities, and may be computed on some steps only
//! ([`Timing`]). Which of them a step has follows from its number alone.

mod batch_sums;
mod loss_builder;
mod morphology;
mod regions;
mod soft;
mod structure;
mod timing;
mod variants;
mod written;

use plimsoll_graph::ops::{Component, CompositeLoss, Loss, Regions, WeightedSum};
use plimsoll_graph::{GraphError, Program, TensorId};
use serde::{Deserialize, Serialize};

pub(crate) use batch_sums::BatchLoss;
pub(crate) use loss_builder::{HeadLogits, LossBuilder};
pub use loss_builder::{TargetInput, TargetInputKind};
pub use soft::SoftTargets;
pub use structure::{
    Boundary, ClDice, HausdorffDt, MorphSkeleton, SkeletonRecall, Structure, SurfaceDistance, ToplossSimple,
    Unit,
};
pub use timing::{AppliesTo, Otherwise, Timing, Turn};
pub use variants::Variant;

/// One weighted component of the loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, from = "written::WrittenTerm")]
pub enum Term {
    /// One that follows from sums over voxels.
    Sums(Component),
    /// One that sees shapes.
    Structure(Structure),
}

/// A weighted sum of components.
///
/// In configurations it is a list of components, or, for Dice and cross-entropy, their weights and the options of Dice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "written::WrittenObjective")]
pub struct Objective {
    /// The components.
    pub components: Vec<Term>,
    /// A label that marks voxels to leave out of all of them.
    pub ignore: Option<u8>,
    /// The programs that have targets beside labels. It is derived from the learned classes and stored with them.
    #[serde(skip)]
    pub soft: SoftTargets,
    /// The regions that outputs belong to, if they are regions. It is derived from the learned classes and stored with
    /// them.
    #[serde(skip)]
    pub regions: Option<Regions>,
}

/// The loss of a head.
#[derive(Default)]
pub(crate) struct HeadLoss {
    /// Values `[1]` with their weights, means over the samples of the program.
    pub(crate) values: Vec<(TensorId, f32)>,
    /// The loss of the sums of the batch, if the program has a part of it.
    pub(crate) of_batch: Option<BatchLoss>,
    /// The tensors that [`names::LOSS_PARTS`](crate::names::LOSS_PARTS) joins.
    pub(crate) parts: Vec<TensorId>,
}

impl Default for Objective {
    fn default() -> Objective {
        Loss::default().into()
    }
}

impl From<Loss> for Objective {
    fn from(loss: Loss) -> Objective {
        let components = loss.components.into_iter().map(Term::Sums).collect();
        Objective { components, ignore: loss.ignore, soft: SoftTargets::Never, regions: loss.regions }
    }
}

impl Term {
    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Term::Sums(component) => component.name(),
            Term::Structure(structure) => structure.name(),
        }
    }

    /// Its factor in the loss.
    pub fn weight(&self) -> f32 {
        match self {
            Term::Sums(component) => component.weight(),
            Term::Structure(structure) => structure.weight(),
        }
    }

    /// Returns the schedule of the component.
    pub fn timing(&self) -> Timing {
        match self {
            Term::Sums(_) => Timing::default(),
            Term::Structure(structure) => structure.timing(),
        }
    }

    /// Returns `true` if it cannot be taken of a batch in parts.
    fn needs_whole_batch(&self, ignores: bool) -> bool {
        match self {
            Term::Sums(component) => component.needs_whole_batch(ignores),
            Term::Structure(structure) => structure.needs_whole_batch(ignores),
        }
    }

    fn fault(&self, classes: usize) -> Option<(&'static str, String, String)> {
        match self {
            Term::Sums(component) => component.fault(classes),
            Term::Structure(structure) => structure.fault(),
        }
    }
}

impl Objective {
    /// Returns `true` if it cannot be taken of a batch in parts.
    pub fn needs_whole_batch(&self) -> bool {
        let ignores = self.ignore.is_some();
        self.components.iter().any(|term| term.weight() != 0.0 && term.needs_whole_batch(ignores))
    }

    /// The same with all components that see shapes at half the resolution, if there are any and that may be.
    pub fn coarser(&self) -> Option<Objective> {
        let mut coarser = self.clone();
        let mut is_coarser = false;
        for term in &mut coarser.components {
            if let Term::Structure(structure) = term
                && let Some(halved) = structure.coarser()
            {
                *structure = halved;
                is_coarser = true;
            }
        }
        is_coarser.then_some(coarser)
    }

    /// The scales of the components that see shapes.
    pub fn scales(&self) -> Vec<usize> {
        let scale = |term: &Term| match term {
            Term::Structure(structure) => Some(structure.scale()),
            Term::Sums(_) => None,
        };
        self.components.iter().filter_map(scale).collect()
    }

    /// The first fault of its options for `classes` classes: the option, its value, and the requirement.
    pub fn fault(&self, classes: usize) -> Option<(String, String, String)> {
        if !self.components.iter().any(|term| term.weight() != 0.0) {
            return Some((
                "components".into(),
                "without any weight".into(),
                "the loss needs one with a weight".into(),
            ));
        }
        let of_term = self.components.iter().find_map(|term| {
            let (option, found, expected) = term.fault(classes)?;
            Some((format!("{option} of {}", term.name()), found, expected))
        });
        let of_targets = || self.soft_fault(classes).or_else(|| self.regions_fault(classes));
        of_term.or_else(|| self.variants_fault()).or_else(of_targets)
    }

    /// Returns the parts that [`names::LOSS_PARTS`](crate::names::LOSS_PARTS) has in a variant, in its order, as
    /// numbers below [`part_count`](Objective::part_count): first the components of sums, then the others that are
    /// computed.
    pub fn parts(&self, variant: &Variant) -> Vec<usize> {
        self.ordered_parts(variant, |_| false)
    }

    /// The parts of a variant. Components of sums that are `late` come after the other components of sums.
    fn ordered_parts(&self, variant: &Variant, late: impl Fn(&Term) -> bool) -> Vec<usize> {
        let place = |(place, (term, turn)): (usize, (&Term, Turn))| match (term, turn) {
            (Term::Structure(_), Turn::Off) => None,
            (Term::Structure(_), Turn::Instead) => Some(2 * place + 1),
            _ => Some(2 * place),
        };
        let mut terms: Vec<_> = self.components.iter().zip(variant.turns()).enumerate().collect();
        // Stable, so that components of one kind keep their order.
        terms.sort_by_key(|(_, (term, _))| match term {
            Term::Sums(_) => u8::from(late(term)),
            Term::Structure(_) => 2,
        });
        terms.into_iter().filter_map(place).collect()
    }

    /// Returns the largest number of parts of a loss: each component, and its replacement.
    pub fn part_count(&self) -> usize {
        2 * self.components.len()
    }

    /// The name of a part.
    pub fn part_name(&self, part: usize) -> String {
        let name = self.components.get(part / 2).map_or("", Term::name);
        if part.is_multiple_of(2) { name.into() } else { format!("boundary_l1 for {name}") }
    }

    /// The components of sums that fulfil a condition.
    fn sums_where(&self, fulfils: impl Fn(&Term) -> bool) -> Loss {
        let sums = self.components.iter().filter(|term| fulfils(term)).filter_map(|term| match term {
            Term::Sums(component) => Some(component.clone()),
            Term::Structure(_) => None,
        });
        Loss { components: sums.collect(), ignore: self.ignore, regions: self.regions.clone() }
    }

    /// The structures that a variant computes.
    fn structures<'a>(&'a self, variant: &'a Variant) -> impl Iterator<Item = (&'a Structure, Turn)> {
        self.components.iter().zip(variant.turns()).filter_map(|(term, turn)| match (term, turn) {
            (Term::Structure(_), Turn::Off) | (Term::Sums(_), _) => None,
            (Term::Structure(structure), turn) => Some((structure, turn)),
        })
    }

    /// Appends to a program the validation loss `[1]` of logits, an image `[N, C, D, H, W]`, and labels `[N, 1, D, H,
    /// W]` with a spacing in millimetres; returns it with the inputs that it needs beside these.
    ///
    /// # Errors
    /// Returns an error if logits and labels do not fit.
    pub fn write(
        &self,
        program: &mut Program,
        logits: TensorId,
        labels: TensorId,
        spacing: [f64; 3],
    ) -> Result<(TensorId, Vec<TargetInput>), GraphError> {
        let mut builder = LossBuilder::new(program, labels, spacing, self.ignore);
        let of_head =
            self.head_loss(&mut builder, HeadLogits { logits, batch_sums: None }, &self.validation())?;
        let (values, weights): (Vec<TensorId>, Vec<f32>) = of_head.values.into_iter().unzip();
        let loss = builder.push(WeightedSum { weights }, &values)?;
        Ok((loss, builder.targets()))
    }

    /// Writes the loss of a head.
    pub(crate) fn head_loss(
        &self,
        builder: &mut LossBuilder<'_>,
        head: HeadLogits,
        variant: &Variant,
    ) -> Result<HeadLoss, GraphError> {
        let mut loss = HeadLoss::default();
        let sums = match head.batch_sums {
            Some(sums) => {
                let (of_batch, parts) = self.loss_of_batch(builder, head, sums)?;
                loss.of_batch = Some(of_batch);
                loss.parts.push(parts);
                self.sums_where(Term::is_of_samples)
            }
            None => self.sums_where(|_| true),
        };
        if !sums.components.is_empty() {
            let labels = builder.labels(builder.extent(head))?;
            let table = builder.push(sums.sums_op(), &[head.logits, labels])?;
            let results = builder.push_all(CompositeLoss { loss: sums }, &[table])?;
            let [value, part] =
                self.with_soft_targets(builder, head, labels, variant, [results[0], results[1]])?;
            loss.values.push((value, 1.0));
            loss.parts.push(part);
        }
        for (structure, turn) in self.structures(variant) {
            let value = match turn {
                Turn::Instead => builder.boundary_l1(head, structure.scale())?,
                _ => structure.write(builder, head)?,
            };
            let factor = structure.timing().factor(variant.is_validation());
            loss.values.push((value, structure.weight() * factor));
            loss.parts.push(value);
        }
        Ok(loss)
    }
}
