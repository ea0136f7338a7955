//! Predicting one case, or all cases of a folder.

pub(crate) mod case;
pub(crate) mod destination;
pub(crate) mod folder;
pub(crate) mod predictor;
