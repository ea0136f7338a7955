//! `plimsoll segment`: TotalSegmentator's tasks.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use plimsoll_run::total_segmentator::Mode;

use super::{Compute, Held, Ram};
use crate::failure::{Failure, Outcome};
use crate::jobs::segment::{ExtraChoice, SegmentRequest};

/// Images to segment as TotalSegmentator does it.
#[derive(Debug, ClapArgs)]
pub struct Segment {
    /// The task: total, total_mr, lung_vessels, …
    #[arg(required_unless_present = "list", default_value = "total")]
    pub task: String,
    /// A .nii.gz or .nii image, or a folder of .nii.gz images or of the slices of one series of DICOM.
    #[arg(short, long, value_name = "IN", required_unless_present = "list")]
    pub input: Option<PathBuf>,
    /// The folder of masks, one for each label; with --ml the label map, .nii.gz, .nii, or .seg.nrrd for 3D Slicer. Of a folder of images,
    /// a folder of these.
    #[arg(short, long, value_name = "OUT", required_unless_present = "list")]
    pub output: Option<PathBuf>,
    /// Write one file with all labels, and their names in its header, instead of a mask for each.
    #[arg(long)]
    pub ml: bool,
    /// Measure the volume in mm³ and the mean intensity of each label, in statistics.json in the folder of masks, or with
    /// --ml in NAME.statistics.json beside the label map. Labels that touch the border of the image are 0 in both.
    #[arg(short, long)]
    pub statistics: bool,
    /// Measure labels that touch the border of the image, too.
    #[arg(long, visible_alias = "stats_include_incomplete", requires = "statistics")]
    pub stats_include_incomplete: bool,
    /// Draw three slices with the labels: NAME.preview.png beside the label map, or preview.png in the folder of masks.
    #[arg(short, long)]
    pub preview: bool,
    /// Look at 3 mm, where the task has a model for that.
    #[arg(long, conflicts_with = "fastest")]
    pub fast: bool,
    /// Look at 6 mm, or at 3 mm where the task has no coarser model.
    #[arg(long)]
    pub fastest: bool,
    /// Only these labels of a task of the whole body: the image is cut to what a coarser model finds of them, and only the models that
    /// have them are run.
    #[arg(long, visible_alias = "roi_subset", value_name = "LABEL", num_args = 1.., value_delimiter = ',')]
    pub roi_subset: Vec<String>,
    /// The folder of weights [default: TOTALSEG_WEIGHTS_PATH, or nnunet/results in TOTALSEG_HOME_DIR or ~/.totalsegmentator].
    #[arg(long, value_name = "DIR")]
    pub weights: Option<PathBuf>,
    /// List the tasks with their labels, and whether their weights are there.
    #[arg(long)]
    pub list: bool,
    /// Replace files that are there [default: they are kept, and what is missing is made].
    #[arg(long)]
    pub overwrite: bool,
    /// Say what each model would hold and take, from the headers of the images alone; nothing is segmented.
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    pub held: Held,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
}

impl Segment {
    /// What is asked for.
    pub fn request(&self) -> Outcome<SegmentRequest> {
        let (Some(input), Some(output)) = (&self.input, &self.output) else {
            return Err(Failure::new(
                "nothing is named to be segmented",
                "name an image with -i, and where to with -o",
            ));
        };
        if !self.roi_subset.is_empty() && !self.task.starts_with("total") {
            let message =
                format!("--roi-subset has no effect with {}: it is of tasks of the whole body", self.task);
            return Err(Failure::new(message, "leave it out"));
        }
        Ok(SegmentRequest {
            task: self.task.clone(),
            mode: match (self.fast, self.fastest) {
                (true, _) => Mode::Fast,
                (_, true) => Mode::Fastest,
                _ => Mode::Default,
            },
            input: input.clone(),
            output: output.clone(),
            one_file: self.ml,
            extras: ExtraChoice {
                statistics: self.statistics,
                incomplete: self.stats_include_incomplete,
                preview: self.preview,
            },
            subset: self.roi_subset.clone(),
            weights: self.weights.clone(),
            overwrite: self.overwrite,
            ram: self.ram.ram,
            ring: self.held.ring(),
            precision: self.held.precision(),
            threads: self.compute.threads.count(),
            backend: if self.plan { self.compute.open_to_plan()? } else { self.compute.open()? },
        })
    }
}
