//! Jobs on files: predictions of folders, TotalSegmentator's tasks, and archives of models.

use std::path::{Path, PathBuf};

use plimsoll::backend::DeviceName;
use plimsoll::{
    Context, DicomForm, ExtraChoice, ImportRequest, Part, PartError, PredictRequest, PredictionReport,
    SegmentRequest, SegmentationReport, StepChoice, VolumeOptions, dataset_around, import_models, predict,
    segment,
};
use plimsoll_dicom::SegmentationType;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::{Bytes, mapped_files};
use plimsoll_models::total_segmentator::{Mode, ModelSize, SegmentatorTask};
use plimsoll_report::contents;

use crate::Failure;
use crate::jobs::Files;
use crate::model::ArrayModel;

/// A folder of images to predict.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// The folder of images, or one image.
    pub input: PathBuf,
    /// The folder of label maps.
    pub output: PathBuf,
    /// Writes probabilities beside labels.
    pub probabilities: bool,
    /// Replaces existing label maps.
    pub overwrite: bool,
    /// The labels of the earlier stage of a cascade.
    pub earlier: Option<PathBuf>,
    /// The part of the images that is predicted, like `2/4`.
    pub part: Option<String>,
    /// The memory limit.
    pub ram: Option<Bytes>,
}

/// Predicts every image of a folder.
///
/// # Errors
/// If a path is wrong, or the limit is too low. Images that cannot be predicted are listed in the report.
pub fn predict_folder(
    model: &ArrayModel,
    options: &FolderOptions,
    context: &Context,
) -> Result<PredictionReport, Failure> {
    let opening = model.options().opening()?;
    let description = model.description();
    let files = Files::default()
        .read("the model", [&description.path])
        .read("the images", [&options.input])
        .read("the data set", &dataset_around(&options.input))
        .read("the labels of the earlier stage", &options.earlier)
        .write_into("output", Some(&options.output));
    files.expect_apart_from_data([description.path.as_path()], beside_code(options.ram))?;
    let context = files.check(context)?;
    let is_nnunet = description.kind == "nnunet";
    let request = PredictRequest {
        model: description.path.clone(),
        checkpoint: opening.checkpoint,
        volumes: VolumeOptions {
            nnunet: is_nnunet.then_some(opening.nnunet),
            earlier: options.earlier.clone(),
            probabilities: options.probabilities,
            postprocessing: match model.options().postprocessing {
                true => StepChoice::OfModel,
                false => StepChoice::None,
            },
            ..VolumeOptions::default()
        },
        input: options.input.clone(),
        output: options.output.clone(),
        overwrite: options.overwrite,
        options: model.predict_options(),
        part: part_of(options.part.as_deref())?,
        ram: beside_code(options.ram),
        backend: model.backend()?,
    };
    Ok(predict(&request, &context)?)
}

/// Reads a part.
fn part_of(text: Option<&str>) -> Result<Option<Part>, Failure> {
    let read =
        |text: &str| text.parse().map_err(|error: PartError| Failure::argument("part", error.to_string()));
    text.map(read).transpose()
}

/// Returns the limit of a job, which counts the code of the process, for a limit that does not.
fn beside_code(ram: Option<Bytes>) -> Option<Bytes> {
    let code = mapped_files().map_or(Bytes::ZERO, |files| files.mapped);
    ram.map(|ram| ram + code)
}

/// The options of a task of TotalSegmentator.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// The tasks.
    pub tasks: Vec<String>,
    /// An image, a folder of images, or a series of DICOM.
    pub input: PathBuf,
    /// The folder of masks, or the label map.
    pub output: PathBuf,
    /// Writes one label map instead of masks.
    pub one_file: bool,
    /// `default`, `fast` or `fastest`.
    pub mode: String,
    /// The labels that are wanted; empty for all.
    pub subset: Vec<String>,
    /// Cuts images to the body first.
    pub body_seg: bool,
    /// Finds the region of interest at 3 mm.
    pub robust_crop: bool,
    /// Resamples logits instead of labels.
    pub by_logits: bool,
    /// Uses the small networks.
    pub small: bool,
    /// The volume in mm³ up to which components are removed.
    pub remove_small_blobs: Option<f64>,
    /// Adds masks that are derived from others.
    pub derived: bool,
    /// Measures volumes and intensities.
    pub statistics: bool,
    /// Measures labels at the border of the image, too.
    pub incomplete: bool,
    /// Writes features of shape and intensities.
    pub report: bool,
    /// Draws a picture.
    pub preview: bool,
    /// `labelmap`, `binary` or `rtstruct`, for outputs in DICOM.
    pub dicom: String,
    /// The folder of weights.
    pub weights: PathBuf,
    /// Replaces existing files.
    pub overwrite: bool,
    /// The part of the images that is segmented, like `2/4`.
    pub part: Option<String>,
    /// The device by its name.
    pub device: String,
    /// The limit of the device's own memory.
    pub vram: Option<Bytes>,
    /// The number of threads.
    pub threads: usize,
    /// The memory limit.
    pub ram: Option<Bytes>,
}

/// Runs tasks of TotalSegmentator.
///
/// # Errors
/// If the task or a label is unknown, weights are missing, an option has no effect on the task, or an image cannot be segmented.
pub fn segment_images(options: SegmentOptions, context: &Context) -> Result<SegmentationReport, Failure> {
    let device: DeviceName =
        options.device.parse().map_err(|text| Failure::argument("device", format!("is none of {text}")))?;
    let mode = match options.mode.as_str() {
        "fast" => Mode::Fast,
        "fastest" => Mode::Fastest,
        _ => Mode::Default,
    };
    let dicom = match options.dicom.as_str() {
        "labelmap" => DicomForm::Segmentation(SegmentationType::LabelMap),
        "binary" => DicomForm::Segmentation(SegmentationType::Binary),
        "rtstruct" => DicomForm::Structures,
        other => {
            let text = format!("is \"{other}\", but must be \"labelmap\", \"binary\" or \"rtstruct\"");
            return Err(Failure::argument("segmentation_type", text));
        }
    };
    let files = Files::default().read("the images", [&options.input]).read("the weights", [&options.weights]);
    let files = match options.output.is_file() {
        true => files.write_as_allowed("output", &options.output, contents::OTHER),
        false => files.write_into("output", Some(&options.output)),
    };
    let context = files.check(context)?;
    let SegmentOptions { statistics, incomplete, report, preview, .. } = options;
    let request = SegmentRequest {
        tasks: options.tasks,
        mode,
        input: options.input,
        output: options.output,
        one_file: options.one_file,
        dicom,
        extras: ExtraChoice { statistics, incomplete, report, preview },
        subset: options.subset,
        body_seg: options.body_seg,
        robust_crop: options.robust_crop,
        by_logits: options.by_logits,
        size: if options.small { ModelSize::Small } else { ModelSize::Big },
        remove_small_blobs: options.remove_small_blobs,
        derived: options.derived,
        weights: options.weights,
        overwrite: options.overwrite,
        part: part_of(options.part.as_deref())?,
        ram: beside_code(options.ram),
        options: PredictOptions::new(0.5, false, options.threads),
        backend: device.open(options.threads, options.vram)?,
    };
    Ok(segment(&request, &context)?)
}

/// Returns the names of TotalSegmentator's tasks and of their labels.
///
/// # Errors
/// If the table of tasks is damaged.
pub fn tasks() -> Result<Vec<(String, Vec<String>)>, Failure> {
    let all = SegmentatorTask::all().map_err(Failure::from)?;
    Ok(all.iter().map(|(name, task)| (name.to_string(), task.classes.clone())).collect())
}

/// Extracts the models of an archive of nnU-Net into a folder, and returns their folders.
///
/// # Errors
/// If the archive has no model or cannot be read, or the folder cannot be written.
pub fn import_archive(archive: &Path, to: &Path) -> Result<Vec<PathBuf>, Failure> {
    let request = ImportRequest { from: archive.into(), to: to.into(), ram: None };
    let imported = import_models(&request, &Context::default())?;
    Ok(imported.models.into_iter().map(|model| model.folder).collect())
}
