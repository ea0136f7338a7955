//! The scores that are computed, and their parameters.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Group, Missing, Surface};

/// The classes and scores of an evaluation, and their parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The classes.
    pub classes: Vec<u8>,
    /// The labels of each region, which may overlap, beginning with region 1; empty if each class is the label of its
    /// number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Vec<u8>>,
    /// The label of references, as a class, whose voxels no score counts. A predicted voxel that has it counts like any other label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<u8>,
    /// The unit of lengths in millimetres, if it is not the one that headers state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millimetres_per_unit: Option<f64>,
    /// The groups of scores.
    pub groups: BTreeSet<Group>,
    /// The definition of surfaces.
    pub surface: Surface,
    /// The tolerance of the NSD, in mm.
    pub tolerance: f64,
    /// The share of a lesion that must be covered for it to be detected, see
    /// [`Lesions::detection`](crate::Lesions::detection).
    pub lesion_overlap: f64,
    /// The treatment of cases in which only one of prediction and reference has a class, in means.
    #[serde(default)]
    pub missing: Missing,
}

impl Settings {
    /// The overlap of these classes. If other groups are added: the NSD at 1 mm, and lesions are detected by a single
    /// voxel.
    pub fn new(classes: Vec<u8>) -> Settings {
        Settings {
            classes,
            regions: Vec::new(),
            ignore: None,
            millimetres_per_unit: None,
            groups: [Group::Overlap].into(),
            surface: Surface::default(),
            tolerance: 1.0,
            lesion_overlap: 0.0,
            missing: Missing::default(),
        }
    }

    /// The labels whose voxels form a class.
    pub(crate) fn labels(&self, class: u8) -> Vec<u8> {
        let region = usize::from(class).checked_sub(1).and_then(|place| self.regions.get(place));
        region.cloned().unwrap_or_else(|| vec![class])
    }
}
