//! Scores of segmentations and classifications against their references.
//!
//! [`compare`] streams two label maps plane by plane and counts which class met which; [`Overlap`] makes scores of the
//! counts. What needs the shape of a class works on [`ClassMasks`], the box of it: [`SurfaceDistances`], [`cl_dice`],
//! [`BettiNumbers`], [`Lesions`]. [`evaluate`] does all of it for many cases; [`Summary`] puts them together in the
//! shape of nnU-Net's `summary.json`. [`classification`] scores tables of probabilities.
//!
//! A score that does not exist is not a number; where a reference program has a rule for empty masks, so has this, and
//! it is said at each score.

mod box_plots;
mod centreline;
pub mod classification;
mod compare;
mod csv;
mod error;
mod evaluate;
mod lesions;
mod masks;
mod metric;
mod overlap;
mod quantile;
mod summary;
mod surface;
mod topology;

pub use centreline::cl_dice;
pub use compare::{CaseFiles, Confusion, compare};
pub use error::MetricError;
pub use evaluate::{CasePaths, Settings, evaluate, pair_cases};
pub use lesions::{Detection, Lesions, Panoptic, VariationOfInformation};
pub use masks::ClassMasks;
pub use metric::{Group, Metric};
pub use overlap::Overlap;
pub use summary::{CaseScores, Scores, Summary};
pub use surface::{Surface, SurfaceDistances};
pub use topology::BettiNumbers;
