//! Terms of single voxels, which are summed like what region terms are made of.

use serde::{Deserialize, Serialize};

use super::Activation;
use crate::Array;

/// A sum over voxels, for each class or region, beyond the four of [`SoftmaxStats`](super::super::SoftmaxStats).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum VoxelSum {
    /// Σ p².
    Squares,
    /// −Σ log p, whatever the label.
    MinusLog,
    /// The terms of [`Focal`](super::Focal).
    Focal {
        /// γ.
        gamma: f32,
        /// α.
        alpha: Option<f32>,
        /// The function that p is of the logits.
        activation: Activation,
    },
    /// The terms of [`WeightedBce`](super::WeightedBce).
    Bce {
        /// w.
        pos_weight: f32,
        /// The function that p is of the logits.
        activation: Activation,
    },
}

/// A voxel that counts.
pub(in crate::ops) struct Voxel {
    pub sample: usize,
    /// Its place among the voxels of the sample.
    pub place: usize,
    pub label: usize,
    /// For each class or region, `true` if the voxel belongs to it.
    pub here: Vec<bool>,
    pub logits: Vec<f64>,
    /// The softmax, or of regions the sigmoid.
    pub p: Vec<f64>,
    /// 1 − p, exact where p is nearly 1: of the softmax the sum of all others.
    pub rest: Vec<f64>,
}

/// The softmax of some logits.
pub fn softmax(logits: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.map(|logit| (logit - top).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|e| e / sum).collect()
}

impl Voxel {
    /// −log p of the class of the label.
    pub fn cross_entropy(&self) -> f64 {
        self.minus_log(self.label)
    }

    /// −log p of a class, also where p itself is too small for a number.
    fn minus_log(&self, class: usize) -> f64 {
        let top = self.logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.logits.iter().map(|logit| (logit - top).exp()).sum();
        sum.ln() - (self.logits[class] - top)
    }
}

/// Calls `visit` for each voxel that counts.
pub(in crate::ops) fn for_each_voxel(
    logits: &Array,
    labels: &Array,
    ignore: Option<u8>,
    mut visit: impl FnMut(&Voxel),
) {
    let (voxels, classes) = (logits.shape.voxels(), logits.shape.channels());
    for (place, label) in labels.data.iter().enumerate() {
        let (sample, place) = (place / voxels, place % voxels);
        let label = *label as usize;
        if label >= classes || ignore.is_some_and(|ignored| label == usize::from(ignored)) {
            continue;
        }
        let logits: Vec<f64> =
            (0..classes).map(|class| logits.data[logits.plane(sample, class) + place]).collect();
        let p = softmax(logits.iter().copied());
        let others = |class: usize| (0..classes).filter(move |other| *other != class);
        // Never zero, so that logarithms and quotients are finite; so do the kernels.
        let rest = (0..classes)
            .map(|class| others(class).map(|other| p[other]).sum::<f64>().max(f64::MIN_POSITIVE))
            .collect();
        let here = (0..classes).map(|class| class == label).collect();
        visit(&Voxel { sample, place, label, here, logits, p, rest });
    }
}

/// log(1 + eˣ).
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl VoxelSum {
    /// α of a class of the softmax.
    pub fn class_alpha(alpha: Option<f32>, class: usize) -> f32 {
        VoxelSum::target_alpha(alpha, class != 0)
    }

    /// α of a voxel of the class, or of one that is not.
    pub fn target_alpha(alpha: Option<f32>, here: bool) -> f32 {
        alpha.map_or(1.0, |alpha| if here { alpha } else { 1.0 - alpha })
    }

    /// The term of a voxel and a class.
    pub(in crate::ops) fn value(&self, voxel: &Voxel, class: usize) -> f64 {
        let (p, rest, x) = (voxel.p[class], voxel.rest[class], voxel.logits[class]);
        let here = voxel.here[class];
        let minus_log = |p: f64| -p.max(f64::MIN_POSITIVE).ln();
        match *self {
            VoxelSum::Squares => p * p,
            VoxelSum::MinusLog => voxel.minus_log(class),
            VoxelSum::Focal { activation: Activation::Softmax, .. } if !here => 0.0,
            VoxelSum::Focal { gamma, alpha, activation: Activation::Softmax } => {
                f64::from(VoxelSum::class_alpha(alpha, class)) * rest.powf(gamma.into()) * minus_log(p)
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Sigmoid } => {
                let x = if here { x } else { -x };
                let alpha = f64::from(VoxelSum::target_alpha(alpha, here));
                alpha * sigmoid(-x).powf(gamma.into()) * softplus(-x)
            }
            VoxelSum::Bce { pos_weight, activation } => match (activation, here) {
                (Activation::Softmax, true) => f64::from(pos_weight) * minus_log(p),
                (Activation::Softmax, false) => minus_log(rest),
                (Activation::Sigmoid, true) => f64::from(pos_weight) * softplus(-x),
                (Activation::Sigmoid, false) => softplus(x),
            },
        }
    }

    /// p times the derivative by the softmax p of the class, and the derivative by its logit where the term is of that.
    pub(in crate::ops) fn slopes(&self, voxel: &Voxel, class: usize) -> (f64, f64) {
        let (p, rest, x) = (voxel.p[class], voxel.rest[class], voxel.logits[class]);
        let here = voxel.here[class];
        match *self {
            VoxelSum::Squares => (2.0 * p * p, 0.0),
            VoxelSum::MinusLog => (-1.0, 0.0),
            VoxelSum::Focal { activation: Activation::Softmax, .. } if !here => (0.0, 0.0),
            VoxelSum::Focal { gamma, alpha, activation: Activation::Softmax } => {
                let (alpha, gamma) = (f64::from(VoxelSum::class_alpha(alpha, class)), f64::from(gamma));
                let minus_log = -p.max(f64::MIN_POSITIVE).ln();
                let power = rest.powf(gamma);
                (-alpha * power * (gamma * p / rest * minus_log + 1.0), 0.0)
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Sigmoid } => {
                let sign = if here { 1.0 } else { -1.0 };
                let (alpha, gamma) = (f64::from(VoxelSum::target_alpha(alpha, here)), f64::from(gamma));
                let (wrong, entropy) = (sigmoid(-sign * x), softplus(-sign * x));
                let slope = alpha * wrong.powf(gamma) * (gamma * (1.0 - wrong) * entropy + wrong);
                (0.0, -sign * slope)
            }
            VoxelSum::Bce { pos_weight, activation } => match (activation, here) {
                (Activation::Softmax, true) => (-f64::from(pos_weight), 0.0),
                (Activation::Softmax, false) => (p / rest, 0.0),
                (Activation::Sigmoid, true) => (0.0, -f64::from(pos_weight) * sigmoid(-x)),
                (Activation::Sigmoid, false) => (0.0, sigmoid(x)),
            },
        }
    }
}
