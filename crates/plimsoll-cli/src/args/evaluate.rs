//! Arguments of `evaluate`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll_data::LengthUnit;

use super::{MissingScores, PartArgs, Ram, Threads};

/// Predictions to compare.
#[derive(Debug, ClapArgs)]
pub struct Evaluate {
    /// The folder of predictions, or one label map.
    #[arg(required_unless_present = "classification")]
    pub predictions: Option<PathBuf>,
    /// The data set whose label maps are the references, a folder of references, or one label map.
    #[arg(required_unless_present = "classification")]
    pub references: Option<PathBuf>,
    /// Classes to score, by their names in the data set of the references, or by number; several with `+` between them are
    /// scored as one [default: all].
    #[arg(long, value_delimiter = ',', value_name = "CLASS,CLASS,…")]
    pub labels: Option<Vec<String>>,
    /// The label of references whose voxels no score counts [default: `ignore` among the labels of the data set].
    #[arg(long, value_name = "LABEL")]
    pub ignore: Option<u8>,
    /// Settings with the layout of the data set and its labels [default: plimsoll.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The unit of lengths in headers, whatever they state: um, mm or m [default: the unit in the data set's dataset.json].
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<LengthUnit>,
    /// Let the list of dataset.json name files outside of its folder.
    #[arg(long)]
    pub allow_outside: bool,
    /// Score only references that have a prediction, instead of requiring all.
    #[arg(long)]
    pub partial: bool,
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub scores: Scores,
    /// The folder of the images, for pictures: named as in imagesTr, of which the first channel is shown.
    #[arg(long, value_name = "DIR", requires = "pictures")]
    pub images: Option<PathBuf>,
    /// Write a picture of each case here: the slices with the largest error, with the outlines of reference (green) and prediction (orange).
    #[arg(long, value_name = "DIR", requires = "images")]
    pub pictures: Option<PathBuf>,
    #[command(flatten)]
    pub classification: Classification,
    /// The file of the scores [default: summary.json, scores.csv and scores.svg in the folder of predictions; for a classification
    /// scores.json, scores.csv and scores.svg]. Tables and, for two cases or more, plots are beside it under the same name.
    #[arg(short, long, value_name = "FILE.json")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub threads: Threads,
}

/// The scores of a segmentation and their options.
#[derive(Debug, Default, ClapArgs)]
pub struct Scores {
    /// Groups of scores; all but overlap take memory by the voxel of the box around a class.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUP,GROUP,…", default_value = "overlap")]
    pub metrics: Vec<Metrics>,
    /// The definition of a surface.
    #[arg(long, value_enum, default_value_t)]
    pub surface: SurfaceKind,
    /// The distance up to which surfaces agree for the NSD, in mm [default: 1].
    #[arg(long, value_name = "MM")]
    pub tolerance: Option<f64>,
    /// The share of a lesion that must be covered for it to be found [default: 0, any voxel].
    #[arg(long, value_name = "SHARE")]
    pub lesion_overlap: Option<f64>,
    /// The treatment in means of a score that is undefined because only one of prediction and reference has the class.
    #[arg(long, value_enum, value_name = "CONVENTION", default_value_t)]
    pub missing: MissingScores,
}

/// Groups of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metrics {
    /// All groups.
    All,
    /// Dice, IoU, sensitivity, precision, volume similarity, counts.
    Overlap,
    /// Hausdorff distances, ASSD, NSD (surface Dice).
    Surface,
    /// clDice, Betti errors.
    Topology,
    /// Lesion-wise F1, panoptic quality, variation of information.
    Lesion,
}

/// Definitions of surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SurfaceKind {
    /// Marching-cubes elements weighted by area, as DeepMind's surface-distance.
    #[default]
    Elements,
    /// Voxels at the rim, unweighted, as MONAI.
    Voxels,
}

/// A classification instead of segmentations.
#[derive(Debug, Default, ClapArgs)]
pub struct Classification {
    /// Score a classification instead: a table with a header `case,label,` and the names of the classes, and in each
    /// row a case, its class, and the probability of each class.
    #[arg(
        id = "classification",
        long = "classification",
        value_name = "FILE.csv",
        conflicts_with_all = ["predictions", "references", "labels", "ignore", "config", "partial", "part", "metrics", "surface", "tolerance", "unit", "allow_outside",
            "lesion_overlap", "missing", "images", "pictures"]
    )]
    pub table: Option<PathBuf>,
    /// Cases have any number of the classes: names separated by `|`, or none; probabilities do not sum to 1.
    #[arg(long, requires = "classification")]
    pub several_labels: bool,
    /// Replace existing scores.
    #[arg(long, requires = "classification")]
    pub overwrite: bool,
    /// The number of bootstrap resamples of cases for confidence intervals [default: 1000].
    #[arg(long, value_name = "N", requires = "classification")]
    pub resamples: Option<usize>,
    /// The seed of the resamples [default: 0].
    #[arg(long, requires = "classification")]
    pub seed: Option<u64>,
    /// Find the threshold of each class that has at least these sensitivities, like 0.9 or 0.9,0.95.
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = sensitivity, requires = "classification")]
    pub sensitivity: Vec<f64>,
}

/// Reads a sensitivity that thresholds are to have.
fn sensitivity(text: &str) -> Result<f64, String> {
    let share = text.trim().parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "a sensitivity is above 0 and at most 1".into())
}
