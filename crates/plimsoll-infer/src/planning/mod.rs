//! The memory and the time of predicting cases, before and after, and the checks of their images.

pub(crate) mod ahead;
pub(crate) mod believable;
pub(crate) mod case_memory;
pub(crate) mod case_plan;
pub(crate) mod case_spacing;
pub(crate) mod case_windows;
pub(crate) mod headers;
pub(crate) mod times;
