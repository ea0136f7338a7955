//! What the commands do, each as a function of a request: commands make requests of their arguments, and a demonstration of its own.

pub mod at_once;
pub mod classify;
pub mod compare;
pub mod ensemble;
pub mod evaluate;
pub mod folds;
pub mod inspect;
pub mod label_folder;
pub mod line;
pub mod listed;
pub mod mistakes;
pub mod outliers;
pub mod pair_ensembles;
pub mod pairs;
pub mod plan;
pub mod postprocess;
pub mod predict;
pub mod prediction_plan;
pub mod prediction_table;
pub mod previews;
pub mod segment;
pub mod steps;
pub mod sweep;
pub mod train;
pub mod validate;
pub mod validate_images;
