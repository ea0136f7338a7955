//! Scores of segmentations and classifications against their references.
//!
//! [`compare`] streams two label maps plane by plane into a [`Confusion`] matrix, from which [`Overlap`] computes
//! scores. Scores of shape work on [`ClassMasks`], the bounding box of a class: [`SurfaceDistances`], [`cl_dice`],
//! [`BettiNumbers`], [`Lesions`]. [`evaluate`] runs all of it on many cases, and [`evaluate_maps`] on two label maps in memory; [`Summary`] collects the scores in the
//! format of nnU-Net's `summary.json`, and [`CrossValidation`] the scores of folds. [`classification`] scores tables of probabilities;
//! [`votes`] makes one decision of classifiers for pairs of classes, [`comparison`] says which of several candidates that were
//! scored on the same cases is better, and [`classifiers`] which of several classifiers.
//!
//! An undefined score is NaN. For empty masks, each score follows the rule of its reference program, which its
//! documentation states.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod centreline;
pub mod classification;
pub mod classifiers;
mod compare;
pub mod comparison;
mod cross_validation;
pub mod csv;
mod error;
mod evaluate;
mod lesions;
mod masks;
mod mean_interval;
mod metric;
mod missing;
mod normal;
mod overlap;
mod quantile;
mod resample;
mod settings;
mod summary;
mod summary_file;
mod surface;
mod topology;
pub mod votes;

pub use centreline::cl_dice;
pub use compare::{CaseFiles, Confusion, compare};
pub use cross_validation::{CrossValidation, FoldScores, OverFolds};
pub use error::MetricError;
pub use evaluate::{CasePaths, LabelMaps, evaluate, evaluate_maps, present_labels};
pub use lesions::{Detection, Lesions, Panoptic, VariationOfInformation};
pub use masks::ClassMasks;
pub use mean_interval::mean_interval;
pub use metric::{Better, Group, Metric};
pub use missing::{CaseCounts, CaseScore, MeanScore, Missing};
pub use overlap::Overlap;
pub use quantile::quantile;
pub use settings::Settings;
pub use summary::{CaseScores, CasesOf, Scores, Summary};
pub use summary_file::SummaryError;
pub use surface::{Surface, SurfaceDistances};
pub use topology::BettiNumbers;
