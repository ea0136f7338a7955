//! The memory and the time of predicting cases, before anything is allocated for them.

pub(crate) mod case_needs;
pub(crate) mod case_planner;
pub(crate) mod engines;
pub(crate) mod estimates;
pub(crate) mod interior;
pub(crate) mod needs;
pub(crate) mod plan;
pub(crate) mod work;
