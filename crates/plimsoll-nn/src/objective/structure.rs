//! The components that see shapes, with their options.

use plimsoll_graph::ops::{DistanceLoss, DistanceTerm, SurfaceForm};
use plimsoll_graph::{GraphError, TensorId};
use serde::{Deserialize, Serialize};

use super::{Head, Mode, Otherwise, Scene, Timing};

/// Defines the options of a component: its weight, when and at what scale it is computed, and its own.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Factor of the component.
            pub weight: f32,
            /// It is computed on each `every`-th step,
            pub every: u64,
            /// of which this is the first, counted from 0.
            pub phase: u64,
            /// The first epoch, counted from 0, of which steps have it.
            pub from_epoch: u64,
            /// By how much its masks are downsampled along each axis.
            pub scale: usize,
            /// Whether training, validation or both have it.
            pub mode: Mode,
            /// Whether its weight is multiplied with `every`.
            pub rescale: bool,
            /// What steps have on which it is not computed.
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

        impl From<&$name> for Common {
            fn from(options: &$name) -> Common {
                let $name { weight, every, phase, from_epoch, scale, mode, rescale, otherwise, .. } = *options;
                Common { weight, scale, timing: Timing { every, phase, from_epoch, mode, rescale, otherwise } }
            }
        }
    };
}

/// What all components that see shapes have.
struct Common {
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
        /// Which formula.
        form: SurfaceForm = SurfaceForm::Symmetric,
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
}

/// The largest scale.
const COARSEST: usize = 8;

impl Structure {
    fn common(&self) -> Common {
        match self {
            Structure::Boundary(options) => options.into(),
            Structure::HausdorffDt(options) | Structure::LogHausdorffDt(options) => options.into(),
            Structure::SurfaceDistance(options) => options.into(),
        }
    }

    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Structure::Boundary(_) => "boundary",
            Structure::HausdorffDt(_) => "hausdorff_dt",
            Structure::LogHausdorffDt(_) => "log_hausdorff_dt",
            Structure::SurfaceDistance(_) => "surface_distance",
        }
    }

    /// Its factor in the loss.
    pub fn weight(&self) -> f32 {
        self.common().weight
    }

    /// When it is computed.
    pub fn timing(&self) -> Timing {
        self.common().timing
    }

    /// By how much its masks are downsampled.
    pub fn scale(&self) -> usize {
        self.common().scale
    }

    /// Whether it cannot be taken of a batch in parts.
    pub(super) fn needs_whole_batch(&self) -> bool {
        matches!(self, Structure::LogHausdorffDt(_))
    }

    /// What is wrong with its options: which, its value, and what it must be.
    pub(super) fn fault(&self) -> Option<(&'static str, String, String)> {
        let number = |option, value: f32, least: bool, expected: &str| {
            let bad = !(value.is_finite() && least);
            bad.then(|| (option, value.to_string(), format!("it must be {expected}")))
        };
        let Common { weight, scale, timing } = self.common();
        let own = match self {
            Structure::Boundary(_) => None,
            Structure::HausdorffDt(HausdorffDt { alpha, .. })
            | Structure::LogHausdorffDt(HausdorffDt { alpha, .. }) => {
                number("alpha", *alpha, *alpha > 0.0, "a number above zero")
            }
            Structure::SurfaceDistance(SurfaceDistance { tolerance_mm, .. }) => {
                number("tolerance_mm", *tolerance_mm, *tolerance_mm > 0.0, "a number above zero")
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
    pub(crate) fn write(&self, scene: &mut Scene<'_>, head: Head) -> Result<TensorId, GraphError> {
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
        };
        distance_loss(scene, head, self.scale(), unit, term)
    }
}

fn distance_loss(
    scene: &mut Scene<'_>,
    head: Head,
    scale: usize,
    unit: Unit,
    term: DistanceTerm,
) -> Result<TensorId, GraphError> {
    let (probabilities, labels) = scene.scaled(head, scale)?;
    let mut operands = vec![probabilities, labels, scene.target_distance(head, scale, unit)];
    if term.of_prediction() {
        operands.push(scene.predicted_distance(head, scale, unit, term.is_signed())?);
    }
    let ignore = scene.ignore();
    scene.push(DistanceLoss { term, ignore }, &operands)
}
