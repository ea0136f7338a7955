//! Losses: any components with any weights, taken in one pass over the logits, and their gradient in another.
//!
//! [`SoftmaxStats`] takes the sums that the components need, [`CompositeLoss`] computes the loss of them, and
//! [`CompositeLossGrad`] the gradient of the logits from the derivatives by the sums and the terms of voxels.

mod component;
mod composite;
mod region;
mod voxel;

use serde::{Deserialize, Serialize};

pub use component::{
    Activation, Component, CrossEntropy, Focal, FocalTversky, GeneralizedDice, SoftDice, Tversky,
    VolumeWeight, WeightedBce,
};
pub use composite::{CompositeLoss, CompositeLossGrad};
pub use voxel::{VoxelSum, softmax};

pub(super) use composite::table;
pub(super) use voxel::{Voxel, for_each_voxel};

use super::{RegionLossGrad, RegionStats, Regions, SoftmaxStats};
use crate::Op;
use region::Sums;

/// A weighted sum of components.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The components.
    pub components: Vec<Component>,
    /// A label that marks voxels to leave out of all of them.
    #[serde(default)]
    pub ignore: Option<u8>,
    /// The regions of the outputs, which may overlap: then all probabilities are sigmoids. None if each output is of a
    /// class, and probabilities are the softmax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
}

/// Dice and cross-entropy, as `monai.losses.DiceCELoss(softmax=True, to_onehot_y=True)`.
impl Default for Loss {
    fn default() -> Loss {
        Loss::dice_ce(SoftDice::default(), 1.0)
    }
}

/// A number that [`Loss::value`] computes beside the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    /// The value of a component, without its weight.
    Part {
        /// The number of the component.
        component: usize,
        /// Its value.
        value: f64,
    },
    /// Derivatives that are added to the derivatives of the class in the sample.
    Region {
        /// The sample.
        sample: usize,
        /// The class.
        class: usize,
        /// By Σpt, Σp and Σp².
        slopes: [f64; 3],
    },
    /// A summand of the factor of p − t for voxels with this label.
    CrossEntropy {
        /// The label.
        class: usize,
        /// The factor.
        factor: f64,
    },
    /// The factor of a [`VoxelSum`] of a class.
    Voxel {
        /// The number of the sum among [`Loss::voxel_sums`].
        sum: usize,
        /// The class.
        class: usize,
        /// The factor.
        factor: f64,
    },
}

impl Loss {
    /// Dice and a multiple of the cross-entropy. With both smoothing terms 10⁻⁵, `batch` and no background it is
    /// nnU-Net's `DC_and_CE_loss`, shifted by the constant 1.
    pub fn dice_ce(dice: SoftDice, cross_entropy: f32) -> Loss {
        let cross_entropy = CrossEntropy { weight: cross_entropy, ..CrossEntropy::default() };
        Loss {
            components: vec![Component::SoftDice(dice), Component::CrossEntropy(cross_entropy)],
            ignore: None,
            regions: None,
        }
    }

    /// The sum of components over classes.
    pub fn new(components: Vec<Component>) -> Loss {
        Loss { components, ignore: None, regions: None }
    }

    /// Two flags: the components need Σp, and they need Σp².
    fn sizes(&self) -> (bool, bool) {
        let squared = |component: &Component| match component {
            Component::SoftDice(dice) | Component::LogCoshDice(dice) => Some(dice.squared),
            Component::GeneralizedDice(_) | Component::Tversky(_) | Component::FocalTversky(_) => Some(false),
            Component::CrossEntropy(_) | Component::WeightedBce(_) | Component::Focal(_) => None,
        };
        let any = |wanted: bool| self.components.iter().any(|c| squared(c) == Some(wanted));
        (any(false), any(true))
    }

    /// Sums of voxels that are a component's own, in their order.
    pub fn voxel_sums(&self) -> impl Iterator<Item = VoxelSum> + '_ {
        self.components.iter().filter_map(Component::own_sum)
    }

    /// The sums that a loss of classes is made of.
    pub fn stats(&self) -> SoftmaxStats {
        let (squared, extra) = self.summed();
        SoftmaxStats { squared, ignore: self.ignore, extra }
    }

    /// The sums that a loss of regions is made of; none of classes.
    pub fn region_stats(&self) -> Option<RegionStats> {
        let (squared, extra) = self.summed();
        let regions = self.regions.clone()?;
        Some(RegionStats { regions, squared, ignore: self.ignore, extra })
    }

    /// The op that makes the sums `[N, C, rows]`. Operands: logits, labels.
    pub fn sums_op(&self) -> Op {
        self.region_stats().map_or_else(|| Op::from(self.stats()), Op::from)
    }

    /// The op that makes the gradient of logits. Operands: logits, labels, the sums, the gradient of the loss `[1]`.
    pub fn gradient_op(&self) -> Op {
        let loss = self.clone();
        match self.regions {
            Some(_) => RegionLossGrad { loss }.into(),
            None => CompositeLossGrad { loss }.into(),
        }
    }

    /// A flag, set if the second sum is of squares, and the sums beyond the first four.
    fn summed(&self) -> (bool, Vec<VoxelSum>) {
        let (plain, squares) = self.sizes();
        let both = (plain && squares).then_some(VoxelSum::Squares);
        (squares && !plain, both.into_iter().chain(self.voxel_sums()).collect())
    }

    /// The first output that counts in a component. Regions have no background to leave out.
    pub fn first_class(&self, component: &Component, classes: usize) -> usize {
        if self.regions.is_some() { 0 } else { component.first_class(classes) }
    }

    /// The number of sums for a sample and class; nothing is allocated.
    pub fn rows(&self) -> usize {
        4 + usize::from(self.sizes() == (true, true)) + self.voxel_sums().count()
    }

    /// Returns `true` if the gradient needs no more than derivatives by Σpt and one of Σp and Σp², and one factor of p − t.
    pub fn is_plain(&self) -> bool {
        let weighted =
            |c: &Component| matches!(c, Component::CrossEntropy(_)) && !c.class_weights().is_empty();
        self.regions.is_none()
            && self.sizes() != (true, true)
            && self.voxel_sums().next().is_none()
            && !self.components.iter().any(weighted)
    }

    /// The loss. `sums` gives a sample's and class's row of [`stats`](Loss::stats), or of regions of
    /// [`region_stats`](Loss::region_stats); `visit` gets what else follows, slopes and factors as derivatives of `upstream` times the loss. Nothing is allocated.
    pub fn value(&self, sums: impl Fn(usize, usize, usize) -> f64, batch: usize, classes: usize, upstream: f64, mut visit: impl FnMut(Piece)) -> f64 {
        let (plain, squares) = self.sizes();
        let both = usize::from(plain && squares);
        // Rows of the table: Σpt, Σp or Σp², Σt, −Σ t log p, then Σp² if the second row is Σp and both are needed. In the
        // order of `region`: Σpt, Σp, Σp², Σt. Of regions, the fourth row is the number of voxels.
        let row = [0, 1, if both == 1 { 4 } else { 1 }, 2];
        let has_background = self.regions.is_none();
        let by_row = |n: usize, c: usize, k: usize| sums(n, c, row[k]);
        let regions = Sums { sums: by_row, batch, classes, has_background };
        let weighted = |row: usize, weight: &dyn Fn(usize) -> f64| -> f64 {
            let pairs = (0..batch).flat_map(|n| (0..classes).map(move |c| (n, c)));
            pairs.map(|(n, c)| weight(c) * sums(n, c, row)).sum()
        };
        let voxels = match self.regions {
            // Each voxel has one label.
            None => weighted(2, &|_| 1.0),
            Some(_) => (0..batch).map(|n| sums(n, 0, 3)).sum(),
        };
        let voxels = voxels.max(1.0);
        let (mut total, mut own) = (0.0, 0);
        for (index, component) in self.components.iter().enumerate() {
            let weight = f64::from(component.weight());
            let factor = upstream * weight;
            let value = if let Some(value) = regions.region(component, factor, &mut visit) {
                value
            } else if let Component::CrossEntropy(entropy) = component {
                let class_weight = |class: usize| component.class_weight(class);
                let norm = match entropy.class_weights.is_empty() {
                    true => voxels,
                    false => Some(weighted(2, &class_weight)).filter(|norm| *norm > 0.0).unwrap_or(1.0),
                };
                let smoothing = f64::from(entropy.label_smoothing);
                for class in 0..classes {
                    let factor = factor * (1.0 - smoothing) / norm * class_weight(class);
                    visit(Piece::CrossEntropy { class, factor });
                }
                let mut value = (1.0 - smoothing) * weighted(3, &class_weight) / norm;
                if component.own_sum().is_some() {
                    let share = |class: usize| smoothing * class_weight(class) / (classes as f64 * norm);
                    for class in 0..classes {
                        visit(Piece::Voxel { sum: own, class, factor: factor * share(class) });
                    }
                    own += 1;
                    value += weighted(3 + both + own, &share);
                }
                value
            } else {
                let first = self.first_class(component, classes);
                let share = |class: usize| match class < first {
                    true => 0.0,
                    false => component.class_weight(class) / ((classes - first) as f64 * voxels),
                };
                for class in 0..classes {
                    visit(Piece::Voxel { sum: own, class, factor: factor * share(class) });
                }
                own += 1;
                weighted(3 + both + own, &share)
            };
            visit(Piece::Part { component: index, value });
            total += weight * value;
        }
        total
    }
}
