//! `plimsoll segment`: TotalSegmentator's tasks.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll_dicom::{SegmentationType, is_dicom_name};
use plimsoll_run::total_segmentator::Mode;

use super::{Compute, Held, Ram};
use crate::failure::{Failure, Outcome};
use crate::jobs::segment::{ExtraChoice, SegmentRequest};

/// How a segmentation of DICOM keeps labels: as its attribute Segmentation Type has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DicomLabels {
    /// One frame for each slice, with a label in each pixel, compressed
    Labelmap,
    /// A mask of one bit for each label and slice that has it: larger, and known to older readers
    Binary,
}

/// Images to segment as TotalSegmentator does it.
#[derive(Debug, ClapArgs)]
pub struct Segment {
    /// The task: total, total_mr, lung_vessels, …
    #[arg(required_unless_present = "list", default_value = "total")]
    pub task: String,
    /// A .nii.gz or .nii image, a folder of .nii.gz images, or one series of DICOM: a folder, a ZIP archive, or a file of many slices.
    #[arg(short, long, value_name = "IN", required_unless_present = "list")]
    pub input: Option<PathBuf>,
    /// The folder of masks, one for each label; with --ml the label map, .nii.gz, .nii, or .seg.nrrd for 3D Slicer. Of a folder of images,
    /// a folder of these. Of a series of DICOM also a segmentation of it, .dcm, with or without --ml.
    #[arg(short, long, value_name = "OUT", required_unless_present = "list")]
    pub output: Option<PathBuf>,
    /// Write one file with all labels, and their names in its header, instead of a mask for each.
    #[arg(long)]
    pub ml: bool,
    /// How a segmentation of DICOM keeps labels [default: labelmap].
    #[arg(long, visible_alias = "segmentation_type", value_name = "TYPE")]
    pub segmentation_type: Option<DicomLabels>,
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
    /// Cut the image to the body first, which a model of 6 mm finds: of use where there is much air around it.
    #[arg(long, visible_alias = "body_seg")]
    pub body_seg: bool,
    /// Look for what images are cut to at 3 mm instead of 6.
    #[arg(long, visible_alias = "robust_crop")]
    pub robust_crop: bool,
    /// Remove components of labels of up to so many mm³, on the grid that networks see [default of the volume: 200].
    #[arg(long, visible_alias = "remove_small_blobs", value_name = "MM3", num_args = 0..=1, default_missing_value = "200")]
    pub remove_small_blobs: Option<f64>,
    /// Make only the masks of labels: of the task `body`, none of the whole body and its skin.
    #[arg(long, visible_alias = "no_derived_masks", conflicts_with = "ml")]
    pub no_derived_masks: bool,
    /// Named here only to be refused with a reason: an option of TotalSegmentator.
    #[arg(long, alias = "force_split", hide = true)]
    pub force_split: bool,
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
        if self.force_split {
            return Err(Failure::new(
                "--force-split has no effect: images are never held whole, and are not divided",
                "leave it out, and draw the line with --ram",
            ));
        }
        if self.no_derived_masks && self.task != "body" {
            let message =
                format!("--no-derived-masks has no effect with {}: only body has such masks", self.task);
            return Err(Failure::new(message, "leave it out"));
        }
        if self.no_derived_masks && is_dicom_name(output) {
            let message = format!(
                "--no-derived-masks has no effect with {}: one file has no such masks",
                output.display()
            );
            return Err(Failure::new(message, "leave it out"));
        }
        if !self.roi_subset.is_empty() && !self.task.starts_with("total") {
            let message =
                format!("--roi-subset has no effect with {}: it is of tasks of the whole body", self.task);
            return Err(Failure::new(message, "leave it out"));
        }
        if self.segmentation_type.is_some() && !is_dicom_name(output) {
            let message = format!("--segmentation-type has no effect with {}", output.display());
            return Err(Failure::new(message, "leave it out, or let the output end in .dcm"));
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
            // A segmentation of DICOM is one file in any case.
            one_file: self.ml || is_dicom_name(output),
            segmentation_type: match self.segmentation_type {
                None | Some(DicomLabels::Labelmap) => SegmentationType::LabelMap,
                Some(DicomLabels::Binary) => SegmentationType::Binary,
            },
            extras: ExtraChoice {
                statistics: self.statistics,
                incomplete: self.stats_include_incomplete,
                preview: self.preview,
            },
            subset: self.roi_subset.clone(),
            body_seg: self.body_seg,
            robust_crop: self.robust_crop,
            remove_small_blobs: self.remove_small_blobs,
            derived: !self.no_derived_masks,
            weights: self.weights.clone(),
            overwrite: self.overwrite,
            ram: self.ram.ram,
            summed: self.held.summed(),
            ring: self.held.ring(),
            precision: self.held.precision(),
            threads: self.compute.threads.count(),
            backend: self.held.on(if self.plan {
                self.compute.open_to_plan()?
            } else {
                self.compute.open()?
            })?,
        })
    }
}
