//! The scores of a segmentation, by name.

use serde::{Deserialize, Serialize};

/// Scores that are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Counts of voxels and what follows from them.
    Overlap,
    /// Distances between surfaces.
    Surface,
    /// Centrelines and holes.
    Topology,
    /// Connected components one by one.
    Lesion,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 4] = [Group::Overlap, Group::Surface, Group::Topology, Group::Lesion];

    /// Its scores.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        Metric::ALL.into_iter().filter(move |metric| metric.group() == self)
    }
}

/// A number about one class of one case. Names are those of nnU-Net's `summary.json` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is described where it is computed, see `evaluate`")]
pub enum Metric {
    Dice,
    IoU,
    Sensitivity,
    Precision,
    VolumeSimilarity,
    TP,
    FP,
    FN,
    TN,
    #[serde(rename = "n_pred")]
    Predicted,
    #[serde(rename = "n_ref")]
    Reference,
    HD,
    HD95,
    ASSD,
    NSD,
    #[serde(rename = "clDice")]
    ClDice,
    #[serde(rename = "Betti0Error")]
    Betti0,
    #[serde(rename = "Betti1Error")]
    Betti1,
    #[serde(rename = "Betti2Error")]
    Betti2,
    TopologyScore,
    LesionF1,
    LesionSensitivity,
    LesionPrecision,
    PQ,
    SQ,
    RQ,
    #[serde(rename = "VISplit")]
    VISplit,
    #[serde(rename = "VIMerge")]
    VIMerge,
}

impl Metric {
    /// All of them, in the order in which they are written.
    pub const ALL: [Metric; 28] = [
        Metric::Dice,
        Metric::IoU,
        Metric::Sensitivity,
        Metric::Precision,
        Metric::VolumeSimilarity,
        Metric::TP,
        Metric::FP,
        Metric::FN,
        Metric::TN,
        Metric::Predicted,
        Metric::Reference,
        Metric::HD,
        Metric::HD95,
        Metric::ASSD,
        Metric::NSD,
        Metric::ClDice,
        Metric::Betti0,
        Metric::Betti1,
        Metric::Betti2,
        Metric::TopologyScore,
        Metric::LesionF1,
        Metric::LesionSensitivity,
        Metric::LesionPrecision,
        Metric::PQ,
        Metric::SQ,
        Metric::RQ,
        Metric::VISplit,
        Metric::VIMerge,
    ];

    /// As it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Dice => "Dice",
            Metric::IoU => "IoU",
            Metric::Sensitivity => "Sensitivity",
            Metric::Precision => "Precision",
            Metric::VolumeSimilarity => "VolumeSimilarity",
            Metric::TP => "TP",
            Metric::FP => "FP",
            Metric::FN => "FN",
            Metric::TN => "TN",
            Metric::Predicted => "n_pred",
            Metric::Reference => "n_ref",
            Metric::HD => "HD",
            Metric::HD95 => "HD95",
            Metric::ASSD => "ASSD",
            Metric::NSD => "NSD",
            Metric::ClDice => "clDice",
            Metric::Betti0 => "Betti0Error",
            Metric::Betti1 => "Betti1Error",
            Metric::Betti2 => "Betti2Error",
            Metric::TopologyScore => "TopologyScore",
            Metric::LesionF1 => "LesionF1",
            Metric::LesionSensitivity => "LesionSensitivity",
            Metric::LesionPrecision => "LesionPrecision",
            Metric::PQ => "PQ",
            Metric::SQ => "SQ",
            Metric::RQ => "RQ",
            Metric::VISplit => "VISplit",
            Metric::VIMerge => "VIMerge",
        }
    }

    /// What it is computed with.
    pub fn group(self) -> Group {
        match self {
            metric if metric < Metric::HD => Group::Overlap,
            metric if metric < Metric::ClDice => Group::Surface,
            metric if metric < Metric::LesionF1 => Group::Topology,
            _ => Group::Lesion,
        }
    }

    /// What it is measured in; nothing for a share of one or a number of things.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Metric::HD | Metric::HD95 | Metric::ASSD => Some("mm"),
            Metric::VISplit | Metric::VIMerge => Some("bit"),
            _ => None,
        }
    }

    /// Whether it counts voxels, rather than says how good a prediction is.
    pub fn is_count(self) -> bool {
        matches!(
            self,
            Metric::TP | Metric::FP | Metric::FN | Metric::TN | Metric::Predicted | Metric::Reference
        )
    }

    /// Whether it runs from 0 to 1.
    pub fn is_share(self) -> bool {
        let betti = matches!(self, Metric::Betti0 | Metric::Betti1 | Metric::Betti2);
        self.unit().is_none() && !self.is_count() && !betti
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_files_are_the_names() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
        assert!(Metric::ALL.is_sorted());
    }
}
