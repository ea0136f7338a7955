//! What is minimised: a list of components of the loss.
//!
//! Some follow from sums over voxels and are taken together in one pass ([`Component`]). The others see shapes
//! ([`Structure`]): each is a part of a program of its own, on probabilities, and may be computed on some steps only
//! ([`Timing`]). Which of them a step has follows from its number alone.

mod morphology;
mod scene;
mod structure;
mod timing;
mod variants;
mod written;

use plimsoll_graph::ops::{Component, CompositeLoss, Loss, WeightedSum};
use plimsoll_graph::{GraphError, Program, TensorId};
use serde::{Deserialize, Serialize};

pub(crate) use scene::{Head, Scene};
pub use scene::{TargetKind, TargetMap};
pub use structure::{
    Boundary, ClDice, HausdorffDt, MorphSkeleton, SkeletonRecall, Structure, SurfaceDistance, ToplossSimple,
    Unit,
};
pub use timing::{Mode, Otherwise, Timing, Turn};
pub use variants::Variant;

/// One weighted component of the loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, from = "written::Entry")]
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
#[serde(try_from = "written::Written")]
pub struct Objective {
    /// The components.
    pub components: Vec<Term>,
    /// A label that marks voxels to leave out of all of them.
    pub ignore: Option<u8>,
}

impl Default for Objective {
    fn default() -> Objective {
        Loss::default().into()
    }
}

impl From<Loss> for Objective {
    fn from(loss: Loss) -> Objective {
        Objective { components: loss.components.into_iter().map(Term::Sums).collect(), ignore: loss.ignore }
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

    /// When it is computed.
    pub fn timing(&self) -> Timing {
        match self {
            Term::Sums(_) => Timing::default(),
            Term::Structure(structure) => structure.timing(),
        }
    }

    /// Whether it cannot be taken of a batch in parts.
    fn needs_whole_batch(&self) -> bool {
        match self {
            Term::Sums(component) => component.needs_whole_batch(),
            Term::Structure(structure) => structure.needs_whole_batch(),
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
    /// Whether it cannot be taken of a batch in parts.
    pub fn needs_whole_batch(&self) -> bool {
        self.components.iter().any(|term| term.weight() != 0.0 && term.needs_whole_batch())
    }

    /// What is wrong with its options for so many classes: which option, its value, and what it must be.
    pub fn fault(&self, classes: usize) -> Option<(String, String, String)> {
        if !self.components.iter().any(|term| term.weight() != 0.0) {
            return Some(("components".into(), "without any weight".into(), "one must count".into()));
        }
        let of_term = self.components.iter().find_map(|term| {
            let (option, found, expected) = term.fault(classes)?;
            Some((format!("{option} of {}", term.name()), found, expected))
        });
        of_term.or_else(|| self.variants_fault())
    }

    /// The names of what [`names::LOSS_PARTS`](crate::names::LOSS_PARTS) has of a variant, in its order: first the
    /// components of sums, then the others that are computed.
    pub fn parts(&self, variant: &Variant) -> Vec<&'static str> {
        let sums = self.components.iter().filter(|term| matches!(term, Term::Sums(_))).map(Term::name);
        let structures = self.structures(variant).map(|(structure, turn)| match turn {
            Turn::Instead => "boundary_l1",
            _ => structure.name(),
        });
        sums.chain(structures).collect()
    }

    /// Those of sums.
    fn sums(&self) -> Loss {
        let sums = self.components.iter().filter_map(|term| match term {
            Term::Sums(component) => Some(component.clone()),
            Term::Structure(_) => None,
        });
        Loss { components: sums.collect(), ignore: self.ignore }
    }

    /// The structures that a variant computes.
    fn structures<'a>(&'a self, variant: &'a Variant) -> impl Iterator<Item = (&'a Structure, Turn)> {
        self.components.iter().zip(variant.turns()).filter_map(|(term, turn)| match (term, turn) {
            (Term::Structure(_), Turn::Off) | (Term::Sums(_), _) => None,
            (Term::Structure(structure), turn) => Some((structure, turn)),
        })
    }

    /// Appends to a program the loss `[1]` that validation has of logits, an image `[N, C, D, H, W]`, and labels
    /// `[N, 1, D, H, W]` with so many millimetres from voxel to voxel; returns it with the inputs that it needs beside these.
    ///
    /// # Errors
    /// If logits and labels do not fit.
    pub fn write(
        &self,
        program: &mut Program,
        (logits, labels): (TensorId, TensorId),
        spacing: [f64; 3],
    ) -> Result<(TensorId, Vec<TargetMap>), GraphError> {
        let mut scene = Scene::new(program, labels, spacing, self.ignore);
        let (values, _) = self.of_head(&mut scene, Head { logits }, &self.validation())?;
        let (values, weights): (Vec<TensorId>, Vec<f32>) = values.into_iter().unzip();
        let loss = scene.push(WeightedSum { weights }, &values)?;
        Ok((loss, scene.targets()))
    }

    /// Writes the loss of a head: its value `[1]` and its parts.
    pub(crate) fn of_head(
        &self,
        scene: &mut Scene<'_>,
        head: Head,
        variant: &Variant,
    ) -> Result<(Vec<(TensorId, f32)>, Vec<TensorId>), GraphError> {
        let (mut values, mut parts) = (Vec::new(), Vec::new());
        let sums = self.sums();
        if !sums.components.is_empty() {
            let labels = scene.labels(scene.extent(head))?;
            let table = scene.push(sums.stats(), &[head.logits, labels])?;
            let results = scene.push_all(CompositeLoss { loss: sums }, &[table, head.logits, labels])?;
            values.push((results[0], 1.0));
            parts.push(results[1]);
        }
        for (structure, turn) in self.structures(variant) {
            let value = match turn {
                Turn::Instead => scene.boundary_l1(head, structure.scale())?,
                _ => structure.write(scene, head)?,
            };
            values.push((value, structure.weight() * structure.timing().factor(variant.is_validation())));
            parts.push(value);
        }
        Ok((values, parts))
    }
}
