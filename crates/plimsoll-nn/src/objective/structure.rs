//! The components that see shapes, with their options.

use plimsoll_graph::ops::{self, DistanceLoss, DistanceTerm, MeanDifference, SoftRecall, SurfaceForm};
use plimsoll_graph::{GraphError, TensorId};
use serde::{Deserialize, Serialize};

use super::{AppliesTo, HeadLogits, LossBuilder, Otherwise, Timing, morphology};

/// Defines the options of a component: its weight, when and at what scale it is computed, and its own.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Factor of the component.
            pub weight: f32,
            /// From one step on which it is computed to the next, in steps.
            pub every: u64,
            /// The first step on which it is computed, counted from 0.
            pub phase: u64,
            /// The first epoch, counted from 0, whose steps compute it.
            pub from_epoch: u64,
            /// By how much its masks are downsampled along each axis.
            pub scale: usize,
            /// The programs that have it: training, validation or both.
            pub mode: AppliesTo,
            /// `true` if its weight is multiplied with `every`.
            pub rescale: bool,
            /// The replacement on steps on which it is not computed.
            pub otherwise: Otherwise,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                let Timing { every, phase, from_epoch, mode, rescale, otherwise } = Timing::default();
                $name {
                    weight: 1.0, every, phase, from_epoch, scale: 1, mode, rescale, otherwise,
                    $($field: $default,)*
                }
            }
        }

        impl From<&$name> for CommonOptions {
            fn from(options: &$name) -> CommonOptions {
                let $name { weight, every, phase, from_epoch, scale, mode, rescale, otherwise, .. } = *options;
                CommonOptions { weight, scale, timing: Timing { every, phase, from_epoch, mode, rescale, otherwise } }
            }
        }
    };
}

/// The common options of all components that depend on shapes.
struct CommonOptions {
    weight: f32,
    scale: usize,
    timing: Timing,
}

/// The unit of distances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Millimetres.
    #[default]
    Mm,
    /// Voxels of the grid that they are computed on, as in MONAI.
    Voxels,
}

options!(
    /// Boundary loss (Kervadec et al. 2019): the mean of φ p with φ the signed distance to the target's boundary, positive
    /// outside. Where the target has no voxel of a class, or no other, φ is 0.
    Boundary {
        /// The unit of φ.
        unit: Unit = Unit::Mm,
    }
);

options!(
    /// Hausdorff distance by distance transforms (Karimi and Salcudean 2019): the mean of (p − t)² (Dₚ^α + Dₜ^α), D being the
    /// distance to the boundary of the predicted mask (p above ½) and of the target; as `monai.losses.HausdorffDTLoss`, and
    /// its logarithm log(1 + mean) as `LogHausdorffDTLoss`. Where a mask is empty or full, D is 0.
    HausdorffDt {
        /// α.
        alpha: f32 = 2.0,
        /// The unit of distances.
        unit: Unit = Unit::Mm,
    }
);

options!(
    /// Surface distance with a tolerance: see [`SurfaceForm`]. Where the target has no voxel of a class, its bounded
    /// distance is 1 everywhere, and so for the predicted mask (p above ½).
    SurfaceDistance {
        /// τ, in millimetres.
        tolerance_mm: f32 = 2.0,
        /// The formula.
        form: SurfaceForm = SurfaceForm::Symmetric,
    }
);

options!(
    /// clDice (Shit et al. 2021): 1 minus the harmonic mean of the share of the predicted skeleton that lies in the target and of
    /// the target's that lies in the prediction, with soft skeletons; of the classes but the background together, the mean
    /// over samples, as `monai.losses.SoftclDiceLoss(include_background=False)`.
    ClDice {
        /// Erosions of a skeleton.
        iterations: usize = 3,
        /// Added to the numerators of both shares.
        smooth_numerator: f32 = 1.0,
        /// Added to their denominators.
        smooth_denominator: f32 = 1.0,
        /// Added to the denominator of the harmonic mean.
        smooth: f32 = 1e-4,
    }
);

options!(
    /// Mean |S(p) − S(t)| of morphological skeletons S (Lantuéjoul 1980): the union of what an opening by 3³ removes of a
    /// volume and of its erosions.
    MorphSkeleton {
        /// The number of volumes, each the erosion of the one before.
        iterations: usize = 3,
    }
);

options!(
    /// Mean |E(p) − E(t)| + |mean relu(τ − E(p)) − mean relu(τ − E(t))|, with E the erosion by 5³: what is left of thick
    /// components, and how much is holes or thin.
    ToplossSimple {
        /// τ.
        threshold: f32 = 0.2,
    }
);

options!(
    /// Skeleton recall (Kirchhoff et al. 2024): 1 minus the share of the target's skeleton, made wider by two voxels, that the
    /// prediction has, the mean over samples and classes but the background.
    SkeletonRecall {
        /// `true` if a class's sums run over all samples of a batch before the quotient is taken.
        batch: bool = false,
        /// Added to the numerator.
        smooth_numerator: f32 = 1e-5,
        /// Added to the denominator.
        smooth_denominator: f32 = 1e-5,
    }
);

/// A component that sees shapes: probabilities of the foreground classes as volumes. All are means over samples, classes and
/// voxels that count, or functions of such.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Structure {
    /// Boundary loss.
    Boundary(Boundary),
    /// Hausdorff distance by distance transforms.
    HausdorffDt(HausdorffDt),
    /// Its logarithm.
    LogHausdorffDt(HausdorffDt),
    /// Surface distance with a tolerance.
    SurfaceDistance(SurfaceDistance),
    /// clDice.
    #[serde(rename = "cldice")]
    ClDice(ClDice),
    /// Difference of morphological skeletons.
    MorphSkeleton(MorphSkeleton),
    /// Simple topology loss.
    ToplossSimple(ToplossSimple),
    /// Skeleton recall.
    SkeletonRecall(SkeletonRecall),
}

/// The largest scale.
const COARSEST: usize = 8;
/// The most erosions of a skeleton.
const MOST_ITERATIONS: usize = 64;
/// The dilation of a target's skeleton, in voxels.
const TUBE: usize = 2;

impl Structure {
    fn common(&self) -> CommonOptions {
        match self {
            Structure::Boundary(options) => options.into(),
            Structure::HausdorffDt(options) | Structure::LogHausdorffDt(options) => options.into(),
            Structure::SurfaceDistance(options) => options.into(),
            Structure::ClDice(options) => options.into(),
            Structure::MorphSkeleton(options) => options.into(),
            Structure::ToplossSimple(options) => options.into(),
            Structure::SkeletonRecall(options) => options.into(),
        }
    }

    /// The same at a coarser scale.
    fn at_scale(mut self, scale: usize) -> Structure {
        match &mut self {
            Structure::Boundary(options) => options.scale = scale,
            Structure::HausdorffDt(options) | Structure::LogHausdorffDt(options) => options.scale = scale,
            Structure::SurfaceDistance(options) => options.scale = scale,
            Structure::ClDice(options) => options.scale = scale,
            Structure::MorphSkeleton(options) => options.scale = scale,
            Structure::ToplossSimple(options) => options.scale = scale,
            Structure::SkeletonRecall(options) => options.scale = scale,
        }
        self
    }

    /// The same at twice the scale, if that may be.
    pub(super) fn coarser(&self) -> Option<Structure> {
        let scale = 2 * self.scale();
        (scale <= COARSEST).then(|| self.clone().at_scale(scale))
    }

    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Structure::Boundary(_) => "boundary",
            Structure::HausdorffDt(_) => "hausdorff_dt",
            Structure::LogHausdorffDt(_) => "log_hausdorff_dt",
            Structure::SurfaceDistance(_) => "surface_distance",
            Structure::ClDice(_) => "cldice",
            Structure::MorphSkeleton(_) => "morph_skeleton",
            Structure::ToplossSimple(_) => "toploss_simple",
            Structure::SkeletonRecall(_) => "skeleton_recall",
        }
    }

    /// Its factor in the loss.
    pub fn weight(&self) -> f32 {
        self.common().weight
    }

    /// Returns the schedule of the component.
    pub fn timing(&self) -> Timing {
        self.common().timing
    }

    /// By how much its masks are downsampled.
    pub fn scale(&self) -> usize {
        self.common().scale
    }

    /// Returns `true` if it cannot be taken of a batch in parts, see [`Component::needs_whole_batch`](ops::Component::needs_whole_batch).
    pub(super) fn needs_whole_batch(&self, ignores: bool) -> bool {
        let itself = match self {
            Structure::LogHausdorffDt(_) => true,
            Structure::SkeletonRecall(options) => options.batch,
            Structure::Boundary(_) | Structure::HausdorffDt(_) | Structure::SurfaceDistance(_) => ignores,
            Structure::ClDice(_) | Structure::MorphSkeleton(_) | Structure::ToplossSimple(_) => false,
        };
        itself || ignores && self.timing().otherwise == Otherwise::BoundaryL1
    }

    /// Returns the fault of its options, if there is one: the option, its value, and the expected value.
    pub(super) fn fault(&self) -> Option<(&'static str, String, String)> {
        let number = |option, value: f32, least: bool, expected: &str| {
            let bad = !(value.is_finite() && least);
            bad.then(|| (option, value.to_string(), format!("it must be {expected}")))
        };
        let smoothing =
            |option, value: f32| number(option, value, value >= 0.0, "a number that is not negative");
        let iterated = |iterations: usize| {
            let bad = !(1..=MOST_ITERATIONS).contains(&iterations);
            let expected = format!("it must be from 1 to {MOST_ITERATIONS}");
            bad.then(|| ("iterations", iterations.to_string(), expected))
        };
        let CommonOptions { weight, scale, timing } = self.common();
        let own = match self {
            Structure::Boundary(_) => None,
            Structure::HausdorffDt(HausdorffDt { alpha, .. })
            | Structure::LogHausdorffDt(HausdorffDt { alpha, .. }) => {
                number("alpha", *alpha, *alpha > 0.0, "a number above zero")
            }
            Structure::SurfaceDistance(SurfaceDistance { tolerance_mm, .. }) => {
                number("tolerance_mm", *tolerance_mm, *tolerance_mm > 0.0, "a number above zero")
            }
            Structure::ClDice(ClDice {
                iterations, smooth_numerator, smooth_denominator, smooth, ..
            }) => iterated(*iterations)
                .or_else(|| smoothing("smooth_numerator", *smooth_numerator))
                .or_else(|| smoothing("smooth_denominator", *smooth_denominator))
                .or_else(|| smoothing("smooth", *smooth)),
            Structure::MorphSkeleton(MorphSkeleton { iterations, .. }) => iterated(*iterations),
            Structure::ToplossSimple(ToplossSimple { threshold, .. }) => {
                number("threshold", *threshold, (0.0..=1.0).contains(threshold), "a number from 0 to 1")
            }
            Structure::SkeletonRecall(SkeletonRecall { smooth_numerator, smooth_denominator, .. }) => {
                smoothing("smooth_numerator", *smooth_numerator)
                    .or_else(|| smoothing("smooth_denominator", *smooth_denominator))
            }
        };
        if !(1..=COARSEST).contains(&scale) {
            return Some(("scale", scale.to_string(), format!("it must be from 1 to {COARSEST}")));
        }
        number("weight", weight, weight >= 0.0, "a number that is not negative")
            .or(own)
            .or_else(|| timing.fault())
    }

    /// Writes its value `[1]` for a head.
    pub(crate) fn write(
        &self,
        builder: &mut LossBuilder<'_>,
        head: HeadLogits,
    ) -> Result<TensorId, GraphError> {
        let scale = self.scale();
        let (term, unit) = match self {
            Structure::Boundary(options) => (DistanceTerm::Boundary, options.unit),
            Structure::HausdorffDt(options) => {
                (DistanceTerm::Hausdorff { alpha: options.alpha, log: false }, options.unit)
            }
            Structure::LogHausdorffDt(options) => {
                (DistanceTerm::Hausdorff { alpha: options.alpha, log: true }, options.unit)
            }
            Structure::SurfaceDistance(SurfaceDistance { tolerance_mm, form, .. }) => {
                (DistanceTerm::Surface { tolerance: *tolerance_mm, form: *form }, Unit::Mm)
            }
            Structure::ClDice(options) => {
                let ClDice { iterations, smooth_numerator, smooth_denominator, smooth, .. } = *options;
                let quotients = ops::ClDice { smooth_numerator, smooth_denominator, smooth };
                return morphology::cldice(builder, head, scale, iterations, quotients);
            }
            Structure::MorphSkeleton(options) => {
                let difference = difference(builder, head, None);
                return morphology::skeleton_difference(builder, head, scale, options.iterations, difference);
            }
            Structure::ToplossSimple(options) => {
                let difference = difference(builder, head, Some(options.threshold));
                return morphology::erosion_difference(builder, head, scale, difference);
            }
            Structure::SkeletonRecall(options) => {
                let SkeletonRecall { batch, smooth_numerator, smooth_denominator, .. } = *options;
                let recall = SoftRecall { batch, smooth_numerator, smooth_denominator };
                return morphology::skeleton_recall(builder, head, scale, TUBE, recall);
            }
        };
        distance_loss(builder, head, scale, unit, term)
    }
}

fn difference(builder: &LossBuilder<'_>, head: HeadLogits, threshold: Option<f32>) -> MeanDifference {
    MeanDifference { threshold, classes: builder.classes(head), ignore: builder.ignore() }
}

fn distance_loss(
    builder: &mut LossBuilder<'_>,
    head: HeadLogits,
    scale: usize,
    unit: Unit,
    term: DistanceTerm,
) -> Result<TensorId, GraphError> {
    let (probabilities, labels) = builder.scaled(head, scale)?;
    let mut operands = vec![probabilities, labels, builder.target_distance(head, scale, unit)];
    if term.uses_prediction() {
        operands.push(builder.predicted_distance(head, scale, unit, term.is_signed())?);
    }
    let ignore = builder.ignore();
    builder.push(DistanceLoss { term, ignore }, &operands)
}
