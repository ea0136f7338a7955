//! What the commands do, each as a function of a request: commands make requests of their arguments, and a demonstration of its own.

pub mod at_once;
pub mod classify;
pub mod ensemble;
pub mod evaluate;
pub mod inspect;
pub mod keep_largest;
pub mod line;
pub mod listed;
pub mod mistakes;
pub mod pairs;
pub mod plan;
pub mod predict;
pub mod prediction_table;
pub mod segment;
pub mod train;
pub mod validate;
