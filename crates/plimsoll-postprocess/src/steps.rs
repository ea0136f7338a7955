//! The steps of post-processing.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_morphology::Connectivity;
use serde::{Deserialize, Serialize};

/// The labels that a step is of: at least one, none of them the background, 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeSet<u16>", into = "BTreeSet<u16>")]
pub struct LabelSet(BTreeSet<u16>);

impl LabelSet {
    /// The labels, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// Returns `true` if a label is among them.
    pub fn contains(&self, label: u16) -> bool {
        self.0.contains(&label)
    }
}

impl TryFrom<BTreeSet<u16>> for LabelSet {
    type Error = String;

    fn try_from(labels: BTreeSet<u16>) -> Result<LabelSet, String> {
        match labels.first() {
            None => Err("`labels` is empty".into()),
            Some(0) => Err("`labels` has 0, which is the background".into()),
            Some(_) => Ok(LabelSet(labels)),
        }
    }
}

impl From<LabelSet> for BTreeSet<u16> {
    fn from(labels: LabelSet) -> BTreeSet<u16> {
        labels.0
    }
}

/// The voxels around a voxel that belong to its component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// The 6 that share a face with it.
    Faces,
    /// The 18 that share a face or an edge with it.
    Edges,
    /// All 26, as nnU-Net has it.
    #[default]
    Corners,
}

impl Neighbours {
    fn is_usual(&self) -> bool {
        *self == Neighbours::default()
    }
}

impl From<Neighbours> for Connectivity {
    fn from(neighbours: Neighbours) -> Connectivity {
        match neighbours {
            Neighbours::Faces => Connectivity::Faces,
            Neighbours::Edges => Connectivity::Edges,
            Neighbours::Corners => Connectivity::Corners,
        }
    }
}

/// The size that a component must have to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeastSize {
    /// A number of voxels.
    Voxels(u64),
    /// A volume in mm³. A voxel has the product of the lengths of its three sides.
    Mm3(f64),
}

/// The largest radius of a closing, in mm. Far beyond any gap within an organ, and small enough that no number overflows.
const MOST_RADIUS: f64 = 1000.0;

/// A step. Voxels that it takes away become background; voxels that it adds are background before, so that no other label changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredStep", into = "StoredStep")]
pub enum Step {
    /// Keeps the largest component, or several of the same size.
    KeepLargest {
        /// The labels.
        labels: LabelSet,
        /// `true` if components are of the voxels of all these labels together, instead of each label for itself.
        together: bool,
        /// The voxels that touch.
        neighbours: Neighbours,
    },
    /// Drops components that are smaller than a size.
    DropSmall {
        /// The labels.
        labels: LabelSet,
        /// The same as `together` of [`Step::KeepLargest`].
        together: bool,
        /// The voxels that touch.
        neighbours: Neighbours,
        /// The size that is kept.
        least: LeastSize,
    },
    /// Gives a label the background within its holes: all that cannot be reached from outside of it through faces of voxels, as
    /// `scipy.ndimage.binary_fill_holes`. Of an image of one slice, within that slice.
    FillHoles {
        /// The labels, each for itself.
        labels: LabelSet,
    },
    /// Gives a label the background in its gaps: closing with a ball, by exact distances in mm. What is out of the image counts as
    /// background, and the border of the image changes nothing.
    Close {
        /// The labels, each for itself.
        labels: LabelSet,
        /// The radius of the ball.
        radius_mm: f64,
    },
}

/// A step as files have it.
#[derive(Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
enum StoredStep {
    KeepLargest {
        labels: LabelSet,
        #[serde(default, skip_serializing_if = "is_false")]
        together: bool,
        #[serde(default, skip_serializing_if = "Neighbours::is_usual")]
        neighbours: Neighbours,
    },
    DropSmall {
        labels: LabelSet,
        #[serde(default, skip_serializing_if = "is_false")]
        together: bool,
        #[serde(default, skip_serializing_if = "Neighbours::is_usual")]
        neighbours: Neighbours,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_voxels: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_mm3: Option<f64>,
    },
    FillHoles {
        labels: LabelSet,
    },
    Close {
        labels: LabelSet,
        radius_mm: f64,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl TryFrom<StoredStep> for Step {
    type Error = String;

    fn try_from(stored: StoredStep) -> Result<Step, String> {
        Ok(match stored {
            StoredStep::KeepLargest { labels, together, neighbours } => {
                Step::KeepLargest { labels, together, neighbours }
            }
            StoredStep::DropSmall { labels, together, neighbours, min_voxels, min_mm3 } => {
                let least = match (min_voxels, min_mm3) {
                    (Some(0), None) => return Err("`min_voxels` is 0, which drops nothing".into()),
                    (Some(voxels), None) => LeastSize::Voxels(voxels),
                    (None, Some(mm3)) if mm3 > 0.0 && mm3.is_finite() => LeastSize::Mm3(mm3),
                    (None, Some(mm3)) => return Err(format!("`min_mm3` {mm3} is not a volume")),
                    _ => return Err("`drop_small` takes one of `min_voxels` and `min_mm3`".into()),
                };
                Step::DropSmall { labels, together, neighbours, least }
            }
            StoredStep::FillHoles { labels } => Step::FillHoles { labels },
            StoredStep::Close { labels, radius_mm } => {
                if !(radius_mm > 0.0 && radius_mm <= MOST_RADIUS) {
                    return Err(format!("`radius_mm` {radius_mm} is not above 0 and at most {MOST_RADIUS}"));
                }
                Step::Close { labels, radius_mm }
            }
        })
    }
}

impl From<Step> for StoredStep {
    fn from(step: Step) -> StoredStep {
        match step {
            Step::KeepLargest { labels, together, neighbours } => {
                StoredStep::KeepLargest { labels, together, neighbours }
            }
            Step::DropSmall { labels, together, neighbours, least } => {
                let (min_voxels, min_mm3) = match least {
                    LeastSize::Voxels(voxels) => (Some(voxels), None),
                    LeastSize::Mm3(mm3) => (None, Some(mm3)),
                };
                StoredStep::DropSmall { labels, together, neighbours, min_voxels, min_mm3 }
            }
            Step::FillHoles { labels } => StoredStep::FillHoles { labels },
            Step::Close { labels, radius_mm } => StoredStep::Close { labels, radius_mm },
        }
    }
}

impl Step {
    /// The labels that it changes.
    pub fn labels(&self) -> &LabelSet {
        match self {
            Step::KeepLargest { labels, .. }
            | Step::DropSmall { labels, .. }
            | Step::FillHoles { labels }
            | Step::Close { labels, .. } => labels,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.labels().iter().map(|label| label.to_string()).collect();
        let of = numbers.join(", ");
        match self {
            Step::KeepLargest { together: true, .. } => {
                write!(f, "keep the largest component of {of} together")
            }
            Step::KeepLargest { .. } => write!(f, "keep the largest component of {of}"),
            Step::DropSmall { together, least, .. } => {
                match least {
                    LeastSize::Voxels(voxels) => write!(f, "drop components below {voxels} voxels of {of}")?,
                    LeastSize::Mm3(mm3) => write!(f, "drop components below {mm3} mm³ of {of}")?,
                }
                f.write_str(if *together { " together" } else { "" })
            }
            Step::FillHoles { .. } => write!(f, "fill holes of {of}"),
            Step::Close { radius_mm, .. } => write!(f, "close {of} with a radius of {radius_mm} mm"),
        }
    }
}
