//! A user's description of a data set, in addition to its files: the tables `[data]` and `[labels]` of
//! `plimsoll.toml`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dataset::{RegionSettings, SegmentRule};

/// The table `[data]`. Settings that are missing follow from the files. Unknown keys are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// The layout of the files [default: found].
    pub layout: Option<LayoutName>,
    /// Images: folders or patterns like `raw/*_im.nii.gz` of pairs, columns of a table, the ends of names in
    /// folders of cases and in BIDS; one for each channel [default: found].
    pub images: Option<Names>,
    /// Label maps, in the same form [default: found].
    pub labels: Option<String>,
    /// The column of a table that names cases [default: found, or else the name of the image].
    pub case: Option<String>,
    /// The names of channels, which decide how they are normalised [default: the names of folders, columns or ends of names].
    pub channels: Option<Vec<String>>,
    /// The unit that lengths in headers are in, whatever headers say [default: as headers say].
    pub unit: Option<LengthUnit>,
    /// The classes of names in label maps: `"values"` to use values instead, or names with the names of classes
    /// [default: the same names].
    pub segments: Option<SegmentRule>,
}

impl DataSettings {
    /// These settings, completed by the settings of `other`.
    #[must_use]
    pub fn or(self, other: DataSettings) -> DataSettings {
        DataSettings {
            layout: self.layout.or(other.layout),
            images: self.images.or(other.images),
            labels: self.labels.or(other.labels),
            case: self.case.or(other.case),
            channels: self.channels.or(other.channels),
            unit: self.unit.or(other.unit),
            segments: self.segments.or(other.segments),
        }
    }
}

/// Options for opening a data set.
#[derive(Clone, Debug, Default)]
pub struct DataOptions {
    /// The layout of its files.
    pub data: DataSettings,
    /// Classes by name with their values in label maps; `background` is 0 where nothing else is [default: as described or found].
    pub labels: Option<BTreeMap<String, u64>>,
    /// Labels that are predicted together, as regions that may overlap [default: as described].
    pub regions: Option<RegionSettings>,
    /// Allows lists to name files outside of the data set's folder.
    pub allow_outside: bool,
}

/// One name, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// One for each channel.
    Several(Vec<String>),
}

impl Names {
    /// All of them.
    pub fn list(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Several(names) => names,
        }
    }
}

/// The name of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayoutName {
    /// A `dataset.json` describes it: nnU-Net's raw layout, the Decathlon's, a list of MONAI.
    Described,
    /// Folders of images and of label maps.
    Pairs,
    /// BIDS, with label maps among its derivatives.
    Bids,
    /// A folder for each case.
    Cases,
    /// A table with columns of paths.
    Table,
}

impl fmt::Display for LayoutName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutName::Described => "described",
            LayoutName::Pairs => "pairs",
            LayoutName::Bids => "bids",
            LayoutName::Cases => "cases",
            LayoutName::Table => "table",
        })
    }
}

/// A unit of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LengthUnit {
    /// 10⁻⁶ m.
    #[serde(rename = "µm", alias = "um", alias = "μm")]
    Micrometre,
    /// 10⁻³ m.
    #[serde(rename = "mm")]
    Millimetre,
    /// A metre.
    #[serde(rename = "m")]
    Metre,
}

impl LengthUnit {
    /// All of them, from the shortest.
    pub const ALL: [LengthUnit; 3] = [LengthUnit::Micrometre, LengthUnit::Millimetre, LengthUnit::Metre];

    /// Its length in millimetres.
    pub fn millimetres(self) -> f64 {
        match self {
            LengthUnit::Micrometre => 1e-3,
            LengthUnit::Millimetre => 1.0,
            LengthUnit::Metre => 1e3,
        }
    }
}

impl fmt::Display for LengthUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LengthUnit::Micrometre => "µm",
            LengthUnit::Millimetre => "mm",
            LengthUnit::Metre => "m",
        })
    }
}

impl FromStr for LengthUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<LengthUnit, String> {
        match text {
            // The sign for micro and the Greek letter look alike.
            "µm" | "μm" | "um" => Ok(LengthUnit::Micrometre),
            "mm" => Ok(LengthUnit::Millimetre),
            "m" => Ok(LengthUnit::Metre),
            _ => Err("a unit of length is um, mm or m".into()),
        }
    }
}
