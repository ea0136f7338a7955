//! Folds in training, read from their files alone: numbers for a terminal or a machine, and a page without scripts.

mod bars;
mod folds;
mod page;
mod watched;

pub use bars::{Bar, bars, below};
pub use folds::{Folds, folds_in};
pub use page::{failed, page};
pub use watched::{FoldReport, Watched, WatchedFold};
