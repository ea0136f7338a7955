//! Changes of the labels of a task after its networks.

use serde::Deserialize;

/// A change of labels, on the grid that networks see.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Keeps only the largest component of some labels.
    KeepLargest {
        /// The labels, each for itself.
        labels: Vec<String>,
    },
    /// Removes components of some labels up to a volume.
    DropSmall {
        /// The labels, each for itself; all of the task if none is named.
        labels: Vec<String>,
        /// The volume.
        mm3: f64,
    },
    /// All labels are vertebrae from the highest to the lowest: they are numbered anew where two of them touch, without what is smaller
    /// than a volume.
    NumberVertebrae {
        /// The volume.
        least_mm3: f64,
    },
    /// Labels grow into the background.
    Grow {
        /// The distance in millimetres.
        radius_mm: f64,
    },
}

/// A change of labels on the stored grid with the labels of another task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refinement {
    /// The distance that labels grow into the background first, in millimetres.
    pub radius_mm: f64,
    /// The label that they are cut to then.
    pub inside: String,
    /// The task that has it.
    pub task: String,
}

impl Change {
    /// The change that `--remove-small-blobs` asks for.
    pub fn remove_small_blobs(mm3: f64) -> Change {
        Change::DropSmall { labels: Vec::new(), mm3 }
    }

    /// The fewest voxels that a component needs which is larger than `mm3`, of voxels of these lengths. Lengths and their product are of
    /// single precision, as in NIfTI's header.
    pub fn voxels_above(mm3: f64, spacing: [f64; 3]) -> u64 {
        let [depth, height, width] = spacing.map(|length| length as f32);
        // The cast saturates.
        ((mm3 as f32 / (width * height * depth)).floor() as u64).saturating_add(1)
    }

    /// The fewest voxels of a component of at least `mm3`.
    pub fn voxels_of(mm3: f64, spacing: [f64; 3]) -> u64 {
        let [depth, height, width] = spacing.map(|length| length as f32);
        (mm3 as f32 / (width * height * depth)).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_just_the_volume_are_removed_but_vertebrae_stay() {
        // 200 mm³ are 7.4 voxels of 3 mm, and 27 mm³ are one.
        assert_eq!(Change::voxels_above(200.0, [3.0; 3]), 8);
        assert_eq!(Change::voxels_above(27.0, [3.0; 3]), 2);
        assert_eq!(Change::voxels_above(50_000.0, [6.0; 3]), 232);
        // No component is as large.
        assert_eq!(Change::voxels_above(1e30, [1.5; 3]), u64::MAX);
        assert_eq!(Change::voxels_of(100.0, [1.5; 3]), 30);
        assert_eq!(Change::voxels_of(27.0, [3.0; 3]), 1);
    }
}
