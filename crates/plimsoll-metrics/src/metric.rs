//! The scores of a segmentation, by name.

use serde::{Deserialize, Serialize};

/// Scores that are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Counts of voxels and scores of overlap.
    Overlap,
    /// Distances between surfaces.
    Surface,
    /// Centrelines and Betti numbers.
    Topology,
    /// Scores of connected components.
    Lesion,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 4] = [Group::Overlap, Group::Surface, Group::Topology, Group::Lesion];

    /// The group's scores.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        Metric::ALL.into_iter().filter(move |metric| metric.group() == self)
    }
}

/// The direction in which scores are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// High ones.
    Higher,
    /// Low ones: distances, errors.
    Lower,
}

/// A score of one class of one case, named as in nnU-Net's `summary.json` where it exists there.
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
    /// All metrics, in output order.
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

    /// The name in files.
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

    /// The group that it is computed with.
    pub fn group(self) -> Group {
        match self {
            metric if metric < Metric::HD => Group::Overlap,
            metric if metric < Metric::ClDice => Group::Surface,
            metric if metric < Metric::LesionF1 => Group::Topology,
            _ => Group::Lesion,
        }
    }

    /// The unit; `None` for shares and counts.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Metric::HD | Metric::HD95 | Metric::ASSD => Some("mm"),
            Metric::VISplit | Metric::VIMerge => Some("bit"),
            _ => None,
        }
    }

    /// Returns `true` if it is a count of voxels and not a measure of quality.
    pub fn is_count(self) -> bool {
        matches!(
            self,
            Metric::TP | Metric::FP | Metric::FN | Metric::TN | Metric::Predicted | Metric::Reference
        )
    }

    /// Returns the direction in which scores are better, or `None` for counts of voxels, which depend on the size of the structure.
    pub fn better(self) -> Option<Better> {
        match self {
            metric if metric.is_count() => None,
            metric if metric.is_share() => Some(Better::Higher),
            // What is left are distances, errors of Betti numbers and variations of information.
            _ => Some(Better::Lower),
        }
    }

    /// Returns `true` if it runs from 0 to 1.
    pub fn is_share(self) -> bool {
        let betti = matches!(self, Metric::Betti0 | Metric::Betti1 | Metric::Betti2);
        self.unit().is_none() && !self.is_count() && !betti
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_better_when_high_and_distances_and_errors_when_low() {
        let lower = |metric: &Metric| metric.better() == Some(Better::Lower);
        let found: Vec<Metric> = Metric::ALL.into_iter().filter(lower).collect();
        let mut expected = vec![Metric::HD, Metric::HD95, Metric::ASSD];
        expected.extend([Metric::Betti0, Metric::Betti1, Metric::Betti2, Metric::VISplit, Metric::VIMerge]);
        assert_eq!(found, expected);
        assert!(Metric::ALL.into_iter().all(|metric| metric.is_count() == metric.better().is_none()));
    }

    #[test]
    fn names_in_files_are_the_names_of_the_variants() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
        assert!(Metric::ALL.is_sorted());
    }
}
