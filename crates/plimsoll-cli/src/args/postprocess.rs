//! `plimsoll postprocess`: steps on label maps, and which of them help.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use plimsoll_data::LengthUnit;

use super::{Ram, Threads};

/// Label maps to post-process, or a run to choose steps for.
#[derive(Debug, ClapArgs)]
pub struct Postprocess {
    /// With --choose: the folder of a run whose folds are trained and validated.
    #[arg(value_name = "RUN", requires = "choose")]
    pub run: Option<PathBuf>,
    /// Try steps on the predictions of all validation cases, and write those that raise the Dice of a label and lower none to
    /// postprocessing.toml in the run, which `predict` then applies.
    #[arg(long, requires = "run", conflicts_with_all = ["input", "output", "steps", "orthogonal"])]
    pub choose: bool,
    /// A label map, or a folder of them.
    #[arg(short, long, value_name = "IN", required_unless_present = "choose", requires = "output")]
    pub input: Option<PathBuf>,
    /// The target: a label map, or another folder.
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// The steps: a .toml or .json file of Plimsoll, or nnU-Net's postprocessing.json.
    #[arg(long, value_name = "FILE")]
    pub steps: Option<PathBuf>,
    /// In place of steps: write label maps whose axes are not at right angles, as from a tilted gantry, on orthogonal grids, which other programs
    /// open; each voxel gets the nearest label.
    #[arg(long, conflicts_with_all = ["steps", "unit"])]
    pub orthogonal: bool,
    /// The unit of lengths in headers, whatever they state: um, mm or m. Radii and volumes of steps are in millimetres.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<LengthUnit>,
    /// Replace existing files [default: they are kept, and the missing ones are written].
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub threads: Threads,
}
