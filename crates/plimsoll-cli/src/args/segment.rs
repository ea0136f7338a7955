//! `plimsoll segment`: TotalSegmentator's tasks.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll::{DicomForm, ExtraChoice, SegmentRequest};
use plimsoll_dicom::{SegmentationType, is_dicom_name};
use plimsoll_models::total_segmentator::{Mode, ModelSize, weights_in_home};

use super::Inference;
use crate::failure::{Failure, Outcome};

/// The form of labels in a DICOM file: a segmentation of a Segmentation Type, or structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DicomLabels {
    /// One frame for each slice, with a label in each pixel, compressed
    Labelmap,
    /// A mask of one bit for each label and slice that has it: larger, and known to older readers
    Binary,
    /// No pixels, but the outline of each label in each slice, as radiotherapy has structures (RTSTRUCT)
    Rtstruct,
}

/// The size of a task's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// The networks that every task has
    Big,
    /// Smaller networks, which total_v3 has
    Small,
}

/// Images to segment as TotalSegmentator does it.
#[derive(Debug, ClapArgs)]
pub struct Segment {
    /// The task: total, total_mr, lung_vessels, … [default: total]. Several, like total,body,lung_vessels, share the image and the search for
    /// regions of interest, and each writes into OUT under its name.
    #[arg(value_name = "TASK", value_delimiter = ',')]
    pub named: Vec<String>,
    /// The same as an option, also -ta [default: total].
    #[arg(long, value_name = "TASK", conflicts_with = "named", value_delimiter = ',')]
    pub task: Vec<String>,
    /// A .nii.gz or .nii image, a folder of .nii.gz images, or one series of DICOM: a folder, a ZIP archive, or a file of many slices.
    #[arg(short, long, value_name = "IN", required_unless_present = "list")]
    pub input: Option<PathBuf>,
    /// The folder of masks, one for each label; with --ml the label map, .nii.gz, .nii, or .seg.nrrd for 3D Slicer. For a folder of images,
    /// a folder of these. For a DICOM series also a DICOM segmentation, .dcm, with or without --ml.
    #[arg(short, long, value_name = "OUT", required_unless_present = "list")]
    pub output: Option<PathBuf>,
    /// Write one file with all labels, and their names in its header, instead of a mask for each.
    #[arg(long)]
    pub ml: bool,
    /// The form of labels in a DICOM file [default: labelmap].
    #[arg(long, visible_alias = "segmentation_type", value_name = "TYPE")]
    pub segmentation_type: Option<DicomLabels>,
    /// Measure the volume in mm³ and the mean intensity of each label, in statistics.json in the folder of masks, or with
    /// --ml in NAME.statistics.json beside the label map. Labels that touch the border of the image are 0 in both.
    #[arg(short, long)]
    pub statistics: bool,
    /// Measure labels that touch the border of the image, too.
    #[arg(long, visible_alias = "stats_include_incomplete", requires = "statistics")]
    pub stats_include_incomplete: bool,
    /// Write a table with a row for each label: its volume, PyRadiomics' features of its shape, and the first-order features of the
    /// intensities inside it. report.csv in the folder of masks, or with --ml NAME.report.csv beside the label map.
    #[arg(long)]
    pub report: bool,
    /// Draw three slices with the labels: NAME.preview.png beside the label map, or preview.png in the folder of masks.
    #[arg(short, long)]
    pub preview: bool,
    /// Segment at 3 mm, if the task has a model for it.
    #[arg(long, conflicts_with = "fastest")]
    pub fast: bool,
    /// Segment at 6 mm, or at 3 mm if the task has no coarser model.
    #[arg(long)]
    pub fastest: bool,
    /// Only these labels of a task of the whole body: a coarser model finds their region, the image is cropped to it, and only the models that
    /// have them are run.
    #[arg(long, visible_alias = "roi_subset", value_name = "LABEL", num_args = 1.., value_delimiter = ',')]
    pub roi_subset: Vec<String>,
    /// The same, with a model at 3 mm that finds the region: --roi-subset with --robust-crop.
    #[arg(
        long,
        visible_alias = "roi_subset_robust",
        value_name = "LABEL",
        num_args = 1..,
        value_delimiter = ',',
        conflicts_with_all = ["roi_subset", "robust_crop"]
    )]
    pub roi_subset_robust: Vec<String>,
    /// Bring logits to the grid of the image and decide labels there, as nnU-Net does it, instead of labels: smoother borders, more
    /// windows to interpolate.
    #[arg(
        long,
        visible_aliases = ["higher_order_resampling", "high_order_resampling"]
    )]
    pub higher_order_resampling: bool,
    /// The size of the networks of total_v3 [default: big].
    #[arg(long, visible_alias = "model_size", value_name = "SIZE")]
    pub model_size: Option<Size>,
    /// Crop the image to the body first, which a model at 6 mm finds: useful with much air around it.
    #[arg(long, visible_alias = "body_seg")]
    pub body_seg: bool,
    /// Find the region for the crop at 3 mm instead of 6.
    #[arg(long, visible_alias = "robust_crop")]
    pub robust_crop: bool,
    /// Remove components of labels of up to this many mm³, on the grid of the networks [default of the volume: 200].
    #[arg(long, visible_alias = "remove_small_blobs", value_name = "MM3", num_args = 0..=1, default_missing_value = "200")]
    pub remove_small_blobs: Option<f64>,
    /// Write only the masks of labels: for the task `body`, no masks of the whole body and its skin.
    #[arg(long, visible_alias = "no_derived_masks", conflicts_with = "ml")]
    pub no_derived_masks: bool,
    /// The folder of weights [default: TOTALSEG_WEIGHTS_PATH, or nnunet/results in TOTALSEG_HOME_DIR or ~/.totalsegmentator].
    #[arg(long, value_name = "DIR")]
    pub weights: Option<PathBuf>,
    /// List the tasks with their labels, and show which weights exist.
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub inference: Inference,
}

/// The folder of weights: the named one, or the one that TotalSegmentator itself uses with the same environment.
pub fn weights_folder(named: Option<&Path>) -> Outcome<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // Windows has another name for it.
    let home = set("HOME").or_else(|| set("USERPROFILE"));
    let folder = (named.map(PathBuf::from))
        .or_else(|| set("TOTALSEG_WEIGHTS_PATH"))
        .or_else(|| set("TOTALSEG_HOME_DIR").map(|home| weights_in_home(&home)))
        .or_else(|| home.map(|home| weights_in_home(&home.join(".totalsegmentator"))));
    folder.ok_or_else(|| {
        let message = "the folder of TotalSegmentator's weights is unknown: HOME is not set";
        Failure::new(message, "set TOTALSEG_HOME_DIR, or name the folder with --weights")
    })
}

impl Segment {
    /// The folder of weights.
    pub fn weights_folder(&self) -> Outcome<PathBuf> {
        weights_folder(self.weights.as_deref())
    }

    /// The request.
    pub fn request(&self) -> Outcome<SegmentRequest> {
        let (Some(input), Some(output)) = (&self.input, &self.output) else {
            return Err(Failure::new("no image is named", "name an image with -i and an output with -o"));
        };
        let named = if self.named.is_empty() { &self.task } else { &self.named };
        let tasks = if named.is_empty() { vec!["total".to_string()] } else { named.clone() };
        let other_than = |known: &str| tasks.iter().find(|task| *task != known);
        if let (Some(_), Some(task)) = (self.model_size, other_than("total_v3")) {
            let message = format!("--model-size has no effect with {task}: only total_v3 has two");
            return Err(Failure::new(message, "leave it out"));
        }
        if self.no_derived_masks && !tasks.iter().any(|task| task == "body") {
            let tasks = tasks.join(",");
            let message = format!("--no-derived-masks has no effect with {tasks}: only body has such masks");
            return Err(Failure::new(message, "leave it out"));
        }
        if self.no_derived_masks && is_dicom_name(output) {
            let message = format!(
                "--no-derived-masks has no effect with {}: one file has no such masks",
                output.display()
            );
            return Err(Failure::new(message, "leave it out"));
        }
        let is_robust = !self.roi_subset_robust.is_empty();
        let subset = if is_robust { &self.roi_subset_robust } else { &self.roi_subset };
        let of_parts = tasks.iter().find(|task| !task.starts_with("total"));
        if let (false, Some(task)) = (subset.is_empty(), of_parts) {
            let flag = if is_robust { "--roi-subset-robust" } else { "--roi-subset" };
            let message = format!("{flag} has no effect with {task}: it applies to tasks of the whole body");
            return Err(Failure::new(message, "leave it out"));
        }
        if self.segmentation_type.is_some() && !is_dicom_name(output) {
            let message = format!("--segmentation-type has no effect with {}", output.display());
            return Err(Failure::new(message, "leave it out, or let the output end in .dcm"));
        }
        Ok(SegmentRequest {
            tasks,
            mode: match (self.fast, self.fastest) {
                (true, _) => Mode::Fast,
                (_, true) => Mode::Fastest,
                _ => Mode::Default,
            },
            input: input.clone(),
            output: output.clone(),
            // A segmentation of DICOM is one file in any case.
            one_file: self.ml || is_dicom_name(output),
            dicom: match self.segmentation_type {
                None | Some(DicomLabels::Labelmap) => DicomForm::Segmentation(SegmentationType::LabelMap),
                Some(DicomLabels::Binary) => DicomForm::Segmentation(SegmentationType::Binary),
                Some(DicomLabels::Rtstruct) => DicomForm::Structures,
            },
            extras: ExtraChoice {
                statistics: self.statistics,
                incomplete: self.stats_include_incomplete,
                report: self.report,
                preview: self.preview,
            },
            subset: subset.clone(),
            body_seg: self.body_seg,
            robust_crop: self.robust_crop || is_robust,
            by_logits: self.higher_order_resampling,
            size: match self.model_size {
                None | Some(Size::Big) => ModelSize::Big,
                Some(Size::Small) => ModelSize::Small,
            },
            remove_small_blobs: self.remove_small_blobs,
            derived: !self.no_derived_masks,
            weights: self.weights_folder()?,
            overwrite: self.inference.overwrite,
            part: self.inference.part.part,
            ram: self.inference.ram.ram,
            // How far windows are apart follows from the task.
            options: self.inference.held.options(1.0, false, self.inference.compute.threads.count()),
            backend: self.inference.backend()?,
        })
    }
}
