//! Which scores are computed, and with which parameters.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Group, Surface};

/// The classes and scores of an evaluation, and their parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The classes.
    pub classes: Vec<u8>,
    /// The groups of scores.
    pub groups: BTreeSet<Group>,
    /// The definition of surfaces.
    pub surface: Surface,
    /// The tolerance of the NSD, in mm.
    pub tolerance: f64,
    /// The share of a lesion that must be covered for it to be detected, see
    /// [`Lesions::detection`](crate::Lesions::detection).
    pub lesion_overlap: f64,
}

impl Settings {
    /// The overlap of these classes. If other groups are added: the NSD at 1 mm, and lesions are detected by a single
    /// voxel.
    pub fn new(classes: Vec<u8>) -> Settings {
        Settings {
            classes,
            groups: [Group::Overlap].into(),
            surface: Surface::default(),
            tolerance: 1.0,
            lesion_overlap: 0.0,
        }
    }
}
