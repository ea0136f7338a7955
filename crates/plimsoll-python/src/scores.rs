//! Scores of arrays against references.

use std::collections::BTreeMap;

use plimsoll_metrics::{
    ClassMasks, Group, LabelMaps, Metric, Settings, Surface, SurfaceDistances, evaluate_maps,
};

use crate::{Failure, Grid, Resources};

/// The scores of each label; an undefined or infinite score is `None`.
pub type LabelScores = BTreeMap<u8, Vec<(Metric, Option<f64>)>>;

/// The options of [`evaluate`].
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreOptions {
    /// The labels that are scored.
    pub labels: Vec<u8>,
    /// The groups of scores.
    pub groups: Vec<Group>,
    /// The definition of a surface.
    pub surface: Surface,
    /// The tolerance of the normalised surface distance, in the unit of the spacing.
    pub tolerance: f64,
    /// The label of references whose voxels no score counts.
    pub ignore: Option<u8>,
}

/// Returns the group of scores with this name.
///
/// # Errors
/// If there is none.
pub fn group(name: &str) -> Result<Group, Failure> {
    let groups = [
        ("overlap", Group::Overlap),
        ("surface", Group::Surface),
        ("topology", Group::Topology),
        ("lesion", Group::Lesion),
    ];
    let found = groups.into_iter().find(|(candidate, _)| *candidate == name);
    found.map(|(_, group)| group).ok_or_else(|| {
        Failure::argument(
            "metrics",
            format!("has \"{name}\", but must be of overlap, surface, topology and lesion"),
        )
    })
}

/// Returns the definition of surfaces with this name.
///
/// # Errors
/// If there is none.
pub fn surface(name: &str) -> Result<Surface, Failure> {
    match name {
        "elements" => Ok(Surface::Elements),
        "voxels" => Ok(Surface::Voxels),
        _ => Err(Failure::argument(
            "surface",
            format!("is \"{name}\", but must be \"elements\" or \"voxels\""),
        )),
    }
}

/// Returns the name of a score in nnU-Net's `summary.json`.
pub fn metric_name(metric: Metric) -> String {
    match serde_json::to_value(metric) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{metric:?}"),
    }
}

/// Scores each label of a prediction against a reference. An undefined or infinite score is `None`.
///
/// # Errors
/// If the maps do not have the shape of the grid, the spacing is not positive and finite, or the budget has no room for a class.
pub fn evaluate(
    prediction: &[u8],
    reference: &[u8],
    grid: &Grid,
    options: &ScoreOptions,
    resources: &Resources,
) -> Result<LabelScores, Failure> {
    let settings = Settings {
        groups: options.groups.iter().copied().collect(),
        surface: options.surface,
        tolerance: options.tolerance,
        ignore: options.ignore,
        ..Settings::new(options.labels.clone())
    };
    let maps = LabelMaps { prediction, reference, shape: grid.shape, spacing: grid.spacing };
    let scores = evaluate_maps(&maps, &settings, &resources.budget, resources.threads)?;
    let listed = scores.into_iter().map(|(label, scores)| {
        let scores = scores.metrics().map(|metric| (metric, scores.get(metric))).collect();
        (label, scores)
    });
    Ok(listed.collect())
}

/// Distances between the surfaces of two masks, in the unit of the spacing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distances {
    /// The largest distance: infinite if one mask is empty, NaN if both are.
    pub hausdorff: f64,
    /// The greater of both 95th percentiles.
    pub hausdorff_95: f64,
    /// The mean over both surfaces.
    pub average_symmetric: f64,
    /// The means from the prediction's surface and from the reference's.
    pub averages: [f64; 2],
    /// The share of both surfaces within each tolerance of the other.
    pub surface_dice: f64,
}

/// Measures the distances between the surfaces of label 1 of two maps.
///
/// # Errors
/// Returns the errors of [`evaluate`].
pub fn surface_distances(
    prediction: &[u8],
    reference: &[u8],
    grid: &Grid,
    definition: Surface,
    tolerance: f64,
    resources: &Resources,
) -> Result<Distances, Failure> {
    let Resources { budget, threads } = resources;
    let masks = ClassMasks::new(1, prediction, reference, grid.shape, grid.spacing, budget)?;
    let measured = SurfaceDistances::measure(&masks, definition, budget, *threads)?;
    Ok(Distances {
        hausdorff: measured.hausdorff(),
        hausdorff_95: measured.hausdorff_at(0.95),
        average_symmetric: measured.average_symmetric(),
        averages: measured.average_distances(),
        surface_dice: measured.surface_dice(tolerance),
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Budget, Bytes};

    use super::*;

    fn resources() -> Resources {
        Resources { budget: Budget::new(Bytes::mib(1)), threads: 1 }
    }

    const GRID: Grid = Grid { shape: [1, 2, 4], spacing: [1.0, 2.0, 3.0], rank: 2 };

    #[test]
    fn dice_is_counted_for_each_label_without_ignored_voxels() {
        let (prediction, reference) = ([1, 1, 0, 0, 2, 0, 1, 0], [1, 0, 0, 0, 2, 2, 3, 0]);
        let options = ScoreOptions {
            labels: vec![1, 2],
            groups: vec![Group::Overlap],
            surface: Surface::Voxels,
            tolerance: 1.0,
            ignore: Some(3),
        };
        let scores = evaluate(&prediction, &reference, &GRID, &options, &resources()).unwrap();
        let dice =
            |label: u8| scores[&label].iter().find(|(metric, _)| *metric == Metric::Dice).unwrap().1.unwrap();
        // Label 1: 1 true positive and 1 false positive; label 2: 1 true positive and 1 false negative.
        assert_eq!((dice(1), dice(2)), (2.0 / 3.0, 2.0 / 3.0));
    }

    #[test]
    fn distances_of_single_voxels_follow_the_spacing() {
        let (prediction, reference) = ([1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0]);
        let found =
            surface_distances(&prediction, &reference, &GRID, Surface::Voxels, 3.7, &resources()).unwrap();
        let expected = 13_f64.sqrt();
        assert!(
            (found.hausdorff - expected).abs() < 1e-6 && (found.average_symmetric - expected).abs() < 1e-6
        );
        assert_eq!(found.surface_dice, 1.0);
        let empty =
            surface_distances(&prediction, &[0; 8], &GRID, Surface::Voxels, 1.0, &resources()).unwrap();
        assert_eq!((empty.hausdorff, empty.surface_dice), (f64::INFINITY, 0.0));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(
            ["Dice", "HD95", "clDice"],
            [Metric::Dice, Metric::HD95, Metric::ClDice].map(metric_name)[..]
        );
        assert_eq!(group("lesion").unwrap(), Group::Lesion);
        assert!(group("dice").unwrap_err().to_string().contains("overlap, surface, topology and lesion"));
        assert!(surface("mesh").unwrap_err().to_string().contains("\"elements\" or \"voxels\""));
    }
}
