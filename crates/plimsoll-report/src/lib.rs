//! Pages and pictures: a page about a run, a sweep or a data set, a live page of folds in training, previews of label maps, and pictures of
//! progress, comparisons and memory plans.
//!
//! Nothing here prints, opens a data set or knows a command: a caller names the file that a page is written to, and renders
//! [`ReportError`] for its users.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod arena;
mod box_plots;
mod class_names;
mod classification_picture;
pub mod comparison_picture;
pub mod contents;
pub mod duration;
mod epoch_chart;
mod error;
pub mod inspect_page;
pub mod live;
pub mod markup;
pub mod picture;
pub mod preview;
pub mod progress_picture;
pub mod report_page;
pub mod svg;
pub mod text;

pub use box_plots::box_plots;
pub use class_names::{ClassNames, missing_words};
pub use classification_picture::classification_picture;
pub use error::{Outcome, Pair, ReportError, Unavailable};
