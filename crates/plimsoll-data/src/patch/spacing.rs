//! The spacing that images are brought to: along all axes, or in the plane of slices alone.

use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};

/// The spacing that images are brought to, in millimetres, in the canonical orientation. In files it is a list of three
/// numbers (depth, height, width) or of two (height, width), or `{"native": [depth, height, width]}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub enum TargetSpacing {
    /// Each image keeps its own spacing. These lengths are the median of the data set, by which the network is
    /// designed and distances in a loss are measured.
    Native(Spacing),
    /// Along depth, height and width: images are resampled along all of them.
    Volume(Spacing),
    /// Along height and width: slices are resampled in their plane. Along the depth each image keeps its own spacing, so that
    /// every slice is one that was stored.
    InPlane([f64; 2]),
}

/// A spacing as files have it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Lengths(Vec<f64>),
    Native { native: [f64; 3] },
}

/// The spacing that a user sets, or the choice that each image keeps its own. In files it is a list of numbers,
/// or `"native"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredSetting", into = "StoredSetting")]
pub enum SpacingSetting {
    /// Each image keeps its own.
    Native,
    /// Images are brought to this.
    To(TargetSpacing),
}

/// A setting as files have it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredSetting {
    Word(String),
    Lengths(Vec<f64>),
}

/// The word for the spacing of each image.
const NATIVE: &str = "native";

impl TryFrom<StoredSetting> for SpacingSetting {
    type Error = String;

    fn try_from(stored: StoredSetting) -> Result<SpacingSetting, String> {
        match stored {
            StoredSetting::Word(word) if word == NATIVE => Ok(SpacingSetting::Native),
            StoredSetting::Word(word) => {
                Err(format!("a spacing is a list of numbers or \"native\", and not {word:?}"))
            }
            StoredSetting::Lengths(lengths) => TargetSpacing::try_from(lengths).map(SpacingSetting::To),
        }
    }
}

impl From<SpacingSetting> for StoredSetting {
    fn from(setting: SpacingSetting) -> StoredSetting {
        match setting {
            SpacingSetting::Native | SpacingSetting::To(TargetSpacing::Native(_)) => {
                StoredSetting::Word(NATIVE.into())
            }
            SpacingSetting::To(spacing) => StoredSetting::Lengths(spacing.lengths().to_vec()),
        }
    }
}

impl From<TargetSpacing> for SpacingSetting {
    fn from(spacing: TargetSpacing) -> SpacingSetting {
        match spacing {
            TargetSpacing::Native(_) => SpacingSetting::Native,
            other => SpacingSetting::To(other),
        }
    }
}

impl TargetSpacing {
    /// The target spacing of an image of this spacing in the canonical orientation.
    pub fn for_image(self, image: Spacing) -> Spacing {
        match self {
            TargetSpacing::Native(_) => image,
            TargetSpacing::Volume(spacing) => spacing,
            TargetSpacing::InPlane([height, width]) => Spacing([image.0[0], height, width]),
        }
    }

    /// Returns `true` if it is a spacing of slices: in their plane alone.
    pub fn is_of_slices(self) -> bool {
        matches!(self, TargetSpacing::InPlane(_))
    }

    /// From one voxel of a patch to the next along depth, height and width, for distances within a patch. A patch of one slice
    /// has no two voxels along the depth, so that number is never multiplied with anything but 0: it is the height's.
    pub fn within_patch(self) -> [f64; 3] {
        match self {
            TargetSpacing::Native(Spacing(lengths)) | TargetSpacing::Volume(Spacing(lengths)) => lengths,
            TargetSpacing::InPlane([height, width]) => [height, height, width],
        }
    }

    /// Its numbers: three or two.
    pub fn lengths(&self) -> &[f64] {
        match self {
            TargetSpacing::Native(Spacing(lengths)) | TargetSpacing::Volume(Spacing(lengths)) => lengths,
            TargetSpacing::InPlane(lengths) => lengths,
        }
    }
}

impl From<Spacing> for TargetSpacing {
    fn from(spacing: Spacing) -> TargetSpacing {
        TargetSpacing::Volume(spacing)
    }
}

impl From<TargetSpacing> for Stored {
    fn from(spacing: TargetSpacing) -> Stored {
        match spacing {
            TargetSpacing::Native(Spacing(native)) => Stored::Native { native },
            other => Stored::Lengths(other.lengths().to_vec()),
        }
    }
}

impl TryFrom<Stored> for TargetSpacing {
    type Error = String;

    fn try_from(stored: Stored) -> Result<TargetSpacing, String> {
        match stored {
            Stored::Lengths(lengths) => TargetSpacing::try_from(lengths),
            Stored::Native { native } => Ok(TargetSpacing::Native(Spacing(native))),
        }
    }
}

impl TryFrom<Vec<f64>> for TargetSpacing {
    type Error = String;

    fn try_from(lengths: Vec<f64>) -> Result<TargetSpacing, String> {
        match lengths[..] {
            [depth, height, width] => Ok(TargetSpacing::Volume(Spacing([depth, height, width]))),
            [height, width] => Ok(TargetSpacing::InPlane([height, width])),
            _ => Err(format!(
                "a spacing has three numbers (depth, height, width), or two for slices (height, width); {} are given",
                lengths.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_keep_the_spacing_from_one_to_the_next_and_volumes_do_not() {
        let image = Spacing([7.5, 0.4, 0.5]);
        assert_eq!(TargetSpacing::InPlane([1.0, 2.0]).for_image(image), Spacing([7.5, 1.0, 2.0]));
        assert_eq!(TargetSpacing::from(Spacing([3.0, 1.0, 2.0])).for_image(image), Spacing([3.0, 1.0, 2.0]));
    }

    #[test]
    fn files_have_three_numbers_or_two() {
        let read = serde_json::from_str::<TargetSpacing>;
        assert_eq!(read("[3.0, 1.0, 2.0]").unwrap(), Spacing([3.0, 1.0, 2.0]).into());
        assert_eq!(read("[1.0, 2.0]").unwrap(), TargetSpacing::InPlane([1.0, 2.0]));
        assert_eq!(serde_json::to_string(&TargetSpacing::InPlane([1.0, 2.0])).unwrap(), "[1.0,2.0]");
        assert!(read("[1.0]").unwrap_err().to_string().contains("1 are given"));
        let native = TargetSpacing::Native(Spacing([5.0, 1.0, 2.0]));
        assert_eq!(serde_json::to_string(&native).unwrap(), "{\"native\":[5.0,1.0,2.0]}");
        assert_eq!(read("{\"native\":[5.0,1.0,2.0]}").unwrap(), native);
        assert_eq!(native.for_image(Spacing([3.0, 0.5, 0.5])), Spacing([3.0, 0.5, 0.5]));
    }

    #[test]
    fn a_setting_is_numbers_or_a_word() {
        let read = serde_json::from_str::<SpacingSetting>;
        assert_eq!(read("\"native\"").unwrap(), SpacingSetting::Native);
        assert_eq!(read("[3.0, 1.0, 2.0]").unwrap(), SpacingSetting::To(Spacing([3.0, 1.0, 2.0]).into()));
        assert!(read("\"own\"").unwrap_err().to_string().contains("or \"native\", and not \"own\""));
        assert_eq!(serde_json::to_string(&SpacingSetting::Native).unwrap(), "\"native\"");
    }
}
