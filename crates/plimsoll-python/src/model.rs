//! Models of any origin, for images in memory and in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll::backend::DeviceName;
use plimsoll::model_steps;
use plimsoll_data::{Case, Channel, ChannelFile, Dataset, FoundImages, Reading};
use plimsoll_infer::{
    ArrayImage, ArrayOutput, ArrayPredictor, CaseEstimate, CaseInput, CaseOutput, CaseRequest, InferError,
    MemoryLabels, PredictOptions, PredictPlan, Predictor, Progress, WindowWeights,
};
use plimsoll_memory::{Budget, Bytes, Mapped, System, limits};
use plimsoll_models::nnunet::NnUnetChoice;
use plimsoll_models::{Answers, OpenOptions, OpenedModel, SegmentationModel};
use plimsoll_plan::Backend;
use plimsoll_postprocess::{Step, VoxelGrid, process, process_file};
use plimsoll_report::contents;
use plimsoll_run::{CheckpointKind, FoldName};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeFile};
use serde::Serialize;

use crate::Failure;
use crate::jobs::Files;

/// The options of a model and of its predictions.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// The folds by name; empty for all.
    pub folds: Vec<String>,
    /// `final`, `best`, `latest` or `previous`, or the name of a file of nnU-Net.
    pub checkpoint: Option<String>,
    /// The share of a window from one to the next at most.
    pub step: f64,
    /// Weights voxels by a Gaussian, for models that do not define their own weights.
    pub gaussian: bool,
    /// Mirrors windows; `None` for the default of the model's kind.
    pub mirror: Option<bool>,
    /// The windows that the network takes at once.
    pub window_batch: usize,
    /// The number of threads.
    pub threads: usize,
    /// The device by its name: `cpu`, `cuda`, `cuda:1`.
    pub device: String,
    /// The limit of the device's own memory.
    pub vram: Option<Bytes>,
    /// Applies the model's own steps of post-processing.
    pub postprocessing: bool,
}

impl ModelOptions {
    fn check(&self) -> Result<(), Failure> {
        match self.step > 0.0 && self.step <= 1.0 {
            true => Ok(()),
            false => {
                Err(Failure::argument("step", format!("is {}, but must be above 0 and at most 1", self.step)))
            }
        }
    }

    /// The options of opening the files.
    ///
    /// # Errors
    /// If a fold has no name of one.
    pub fn opening(&self) -> Result<OpenOptions, Failure> {
        let folds = self.folds.iter().map(|fold| fold.parse::<FoldName>());
        let folds = folds.collect::<Result<Vec<_>, _>>();
        let folds = folds.map_err(|error| Failure::argument("folds", format!("are unknown: {error}")))?;
        let mut options = OpenOptions { fold: None, ..OpenOptions::default() };
        if let [fold] = folds[..] {
            options.fold = Some(fold);
        }
        options.nnunet.folds = folds;
        let kinds = [
            ("final", CheckpointKind::Final),
            ("best", CheckpointKind::Best),
            ("latest", CheckpointKind::Latest),
            ("previous", CheckpointKind::Previous),
        ];
        if let Some(name) = &self.checkpoint {
            let plain = name.trim_end_matches(".pth").trim_start_matches("checkpoint_");
            let known = kinds.iter().find(|(kind, _)| *kind == plain);
            options.checkpoint = known.map_or(CheckpointKind::Final, |(_, kind)| *kind);
            let file = known.map_or_else(|| name.clone(), |_| format!("checkpoint_{plain}.pth"));
            options.nnunet = NnUnetChoice { checkpoint: file, ..options.nnunet };
        }
        Ok(options)
    }
}

/// The description of a model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelDescription {
    /// `run`, `file`, `nnunet`, `monai` or `hd-bet`.
    pub kind: &'static str,
    /// The folder or the file.
    pub path: PathBuf,
    /// The names of its channels.
    pub channels: Vec<String>,
    /// The names and values of its labels, or of regions that it writes.
    pub labels: Vec<(String, u16)>,
    /// Depth, height, width of a window.
    pub window: [usize; 3],
    /// The number of networks whose logits are averaged.
    pub folds: usize,
    /// The network in a few lines.
    pub lines: Vec<String>,
    /// The configuration whose labels it takes beside the image, of a cascade.
    pub previous: Option<String>,
}

/// A model by its files and options.
pub struct ArrayModel {
    options: ModelOptions,
    device: DeviceName,
    description: ModelDescription,
    channels: Vec<Channel>,
    file_ending: String,
    /// `true` if labels have 16 bits.
    wide: bool,
    steps: Vec<Step>,
}

/// The result of planning a prediction.
#[derive(Clone, Debug, Serialize)]
pub struct ImagePlan {
    /// The plan within the limit.
    pub plan: PredictPlan,
    /// The lowest limit that suffices.
    pub least_ram_bytes: Bytes,
}

impl ArrayModel {
    /// Reads the description of a model and checks the options.
    ///
    /// # Errors
    /// If there is no model at the path, it cannot label voxels, or an option is out of bounds.
    pub fn open(path: &Path, options: ModelOptions) -> Result<ArrayModel, Failure> {
        options.check()?;
        let device = options
            .device
            .parse()
            .map_err(|text: String| Failure::argument("device", format!("is none of {text}")))?;
        let budget = Budget::new(limits(&System::default(), None).limit);
        let opened = OpenedModel::open(path, &options.opening()?, &budget)?;
        let kind = match &opened {
            OpenedModel::Run { .. } | OpenedModel::Pairs { .. } => "run",
            OpenedModel::File { .. } => "file",
            OpenedModel::NnUnet { .. } => "nnunet",
            OpenedModel::Monai { .. } => "monai",
            OpenedModel::HdBet { .. } => "hd-bet",
            OpenedModel::Deepbet { .. } => "deepbet",
        };
        if options.folds.len() > 1 && !["nnunet", "hd-bet"].contains(&kind) {
            return Err(Failure::argument(
                "folds",
                "has several folds, which only models of nnU-Net and of HD-BET choose from",
            ));
        }
        let steps = match options.postprocessing {
            true => model_steps(path)?.map(|(_, steps)| steps).unwrap_or_default(),
            false => Vec::new(),
        };
        let (path, lines) = (opened.path().to_path_buf(), opened.lines());
        let previous = opened.previous().map(String::from);
        let model = opened.into_segmentation()?;
        if options.mirror == Some(true) && model.mirror_axes == [false; 3] {
            let why = "has no effect: the model was not trained with mirrored images; leave it out";
            return Err(Failure::argument("use_mirroring", why));
        }
        let description = ModelDescription {
            kind,
            path,
            channels: model.channels.iter().map(|channel| channel.name.clone()).collect(),
            labels: labels_of(&model),
            window: model.patch,
            folds: model.weights.len(),
            lines,
            previous,
        };
        let wide = model.answers.largest() > u16::from(u8::MAX);
        let SegmentationModel { channels, file_ending, .. } = model;
        Ok(ArrayModel { options, device, description, channels, file_ending, wide, steps })
    }

    /// The description of the model.
    pub fn description(&self) -> &ModelDescription {
        &self.description
    }

    /// The options.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// The ending of the names of its images, with the dot.
    pub fn file_ending(&self) -> &str {
        &self.file_ending
    }

    /// The backend that runs its network.
    ///
    /// # Errors
    /// If there is no such device, or it has too little memory.
    pub fn backend(&self) -> Result<Arc<dyn Backend>, Failure> {
        Ok(self.device.open(self.options.threads, self.options.vram)?)
    }

    /// The options of predictions.
    pub fn predict_options(&self) -> PredictOptions {
        let ModelOptions { step, gaussian, mirror, window_batch, threads, .. } = self.options;
        // The defaults of nnU-Net and of this program.
        let mirror = mirror.unwrap_or(self.description.kind == "nnunet");
        let window_weights = if gaussian { WindowWeights::Gaussian } else { WindowWeights::Constant };
        PredictOptions { window_batch, window_weights, ..PredictOptions::new(step, mirror, threads) }
    }

    /// Returns `true` if labels have 16 bits.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Reads the network for predictions within a budget, which does not count the code of the process.
    ///
    /// # Errors
    /// If the budget has no room for it, a file is damaged, or the model is the later stage of a cascade.
    pub fn load(&self, budget: &Budget) -> Result<ArrayPredictor, Failure> {
        let ModelDescription { path, previous, .. } = &self.description;
        if let Some(previous) = previous {
            return Err(Failure::Failed {
                message: format!(
                    "{} is a later stage of a cascade, which takes labels of {previous} beside the image",
                    path.display()
                ),
                remedy: Some(
                    "predict a folder of files with predict_folder, which runs the earlier stage first"
                        .into(),
                ),
            });
        }
        let model = OpenedModel::open(path, &self.options.opening()?, budget)?.into_segmentation()?;
        let options = self.predict_options();
        let predictor = Predictor::in_host_process(model, options, self.backend()?, budget)?;
        Ok(ArrayPredictor::new(predictor))
    }

    /// Returns the case whose channels are in files: one file with all channels, or a file for each.
    ///
    /// # Errors
    /// If there is no image, or the only path is a folder with several.
    pub fn case(&self, paths: &[PathBuf], budget: &Budget) -> Result<Case, Failure> {
        if let [path] = paths {
            let mut cases = self.cases(path, budget)?;
            let count = cases.len();
            return cases.pop().filter(|_| count == 1).ok_or_else(|| {
                Failure::argument(
                    "image",
                    format!("{} has {count} images; use predict_folder", path.display()),
                )
            });
        }
        let first = paths.first().ok_or_else(|| Failure::argument("image", "is an empty list"))?;
        let id = first.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let images = paths.iter().map(|path| ChannelFile { path: path.clone(), index: 0 }).collect();
        Ok(Case { id, images, label: None, reading: Reading::default() })
    }

    /// Returns the cases of a folder, or the one that a path is.
    ///
    /// # Errors
    /// If the path cannot be read or has no image.
    pub fn cases(&self, path: &Path, budget: &Budget) -> Result<Vec<Case>, Failure> {
        let ending = Dataset::input_ending(path, &self.file_ending)?;
        let found = Dataset::find_images(path, &self.channels, &ending, budget)?;
        let FoundImages { cases, refused, memory: _memory } = found;
        match refused.into_iter().next() {
            Some(refused) => Err(refused.error.into()),
            None => Ok(cases),
        }
    }

    /// Plans the prediction of an image in files, of which headers are read.
    ///
    /// # Errors
    /// If a header cannot be read, or the limit is too low.
    pub fn plan_files(
        &self,
        arrays: &mut ArrayPredictor,
        paths: &[PathBuf],
        probabilities: bool,
    ) -> Result<ImagePlan, Failure> {
        let case = self.case(paths, &arrays.budget())?;
        // Only their folder matters to a plan.
        let (labels, beside) = (Path::new("labels.nii.gz"), Path::new("labels.npz"));
        let probabilities = probabilities.then_some(beside);
        let request = CaseRequest { case: &case, earlier: None, within: None, labels, probabilities };
        let planned = arrays.predictor().plan_alone(&[request])?.pop();
        let CaseEstimate { plan, least_ram_bytes } =
            planned.ok_or_else(|| Failure::argument("image", "has no channel"))??;
        Ok(ImagePlan { plan, least_ram_bytes })
    }

    /// Predicts an image in memory.
    ///
    /// # Errors
    /// If the image does not fit the model, the limit is too low, or `stop` is set.
    pub fn predict_arrays(
        &self,
        arrays: &mut ArrayPredictor,
        image: &ArrayImage<'_>,
        output: ArrayOutput<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let ArrayOutput { labels, is_wide, probabilities } = output;
        let output = ArrayOutput { labels: &mut *labels, is_wide, probabilities };
        arrays.predict(image, output, stop, observe)?;
        self.process(arrays, &image.geometry, labels)
    }

    /// Predicts an image in files.
    ///
    /// # Errors
    /// If a file cannot be read, the image does not fit the model, the limit is too low, or `stop` is set.
    pub fn predict_case(
        &self,
        arrays: &mut ArrayPredictor,
        case: &Case,
        output: ArrayOutput<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let ArrayOutput { labels, is_wide, probabilities } = output;
        let geometry = geometry_of(case)?;
        let input = CaseInput { case, earlier: None, within: None };
        let mut sink = MemoryLabels::new(&mut *labels, is_wide);
        arrays.predictor().predict_to(
            input,
            CaseOutput { labels: &mut sink, probabilities },
            stop,
            observe,
        )?;
        self.process(arrays, &geometry, labels)
    }

    /// Predicts an image in files and writes its labels, and its probabilities beside them if they are wanted.
    ///
    /// # Errors
    /// If a file cannot be read or written, the image does not fit the model, the limit is too low, or `stop` is set. Nothing half-written is
    /// left.
    pub fn predict_to_file(
        &self,
        arrays: &mut ArrayPredictor,
        case: &Case,
        files: &OutputFiles<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let OutputFiles { labels, probabilities } = *files;
        self.expect_apart(case, files)?;
        let first = match (&self.steps[..], labels.file_name()) {
            ([], _) | (_, None) => labels.to_path_buf(),
            (_, Some(name)) => labels.with_file_name(format!("unprocessed_{}", name.to_string_lossy())),
        };
        let request = CaseRequest { case, earlier: None, within: None, labels: &first, probabilities };
        arrays.predictor().predict(&request, stop, observe)?;
        if first == labels {
            return Ok(());
        }
        let budget = arrays.budget();
        let processed = process_file(&first, labels, &self.steps, None, &budget, self.options.threads);
        let removed = plimsoll_disk::remove_file(&first);
        processed.map_err(|error| Failure::Failed { message: error.to_string(), remedy: error.remedy() })?;
        removed.map_err(|error| plimsoll::Error::at_path(&first, &error).into())
    }

    /// Checks that no output is the model, the image, or a file of the data set that the model was trained on.
    fn expect_apart(&self, case: &Case, outputs: &OutputFiles<'_>) -> Result<(), Failure> {
        let images: Vec<PathBuf> = case.image_files().map(Path::to_path_buf).collect();
        let model = &self.description.path;
        let files = Files::default().read("the model", [model]).read("the image", &images).write_as_allowed(
            "output",
            outputs.labels,
            contents::OTHER,
        );
        let files = match outputs.probabilities {
            Some(probabilities) => files.write_as_allowed("output", probabilities, contents::OTHER),
            None => files,
        };
        files.expect_apart()?;
        files.expect_apart_from_data([model.as_path()], None)
    }

    /// Applies the model's steps of post-processing to labels.
    fn process(
        &self,
        arrays: &mut ArrayPredictor,
        geometry: &Geometry,
        labels: &mut [u8],
    ) -> Result<(), Failure> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let count = geometry.voxel_count();
        let grid = VoxelGrid { shape: geometry.shape(), spacing: geometry.spacing() };
        // The engine of the prediction leaves its memory to the steps.
        arrays.predictor().make_room(arrays_limit(count));
        let budget = arrays.budget();
        let mut wide = Mapped::<u16>::zeroed(&budget, "labels of post-processing", count)?;
        let size = labels.len().checked_div(count).unwrap_or(0);
        for (to, label) in wide.iter_mut().zip(labels.chunks_exact(size.max(1))) {
            *to = match *label {
                [low, high] => u16::from_ne_bytes([low, high]),
                [label, ..] => label.into(),
                [] => 0,
            };
        }
        process(&self.steps, &mut wide, grid, &budget, self.options.threads)
            .map_err(|error| Failure::Failed { message: error.to_string(), remedy: error.remedy() })?;
        for (label, from) in labels.chunks_exact_mut(size.max(1)).zip(wide.iter()) {
            match label {
                [low, high] => [*low, *high] = from.to_ne_bytes(),
                // Steps make no label that was not there.
                _ => label.fill(*from as u8),
            }
        }
        Ok(())
    }
}

/// The most bytes that labels of 16 bits and steps on them take.
fn arrays_limit(voxels: usize) -> Bytes {
    Bytes::from_len(voxels.saturating_mul(11))
}

/// The files of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct OutputFiles<'a> {
    /// The label map.
    pub labels: &'a Path,
    /// Probabilities in an `.npz` file, if they are wanted.
    pub probabilities: Option<&'a Path>,
}

/// The names and values of a model's labels.
fn labels_of(model: &SegmentationModel) -> Vec<(String, u16)> {
    let names = model.outputs.iter().cloned();
    match &model.answers {
        Answers::Classes(_) => names.zip(0..).collect(),
        Answers::Regions(values) => names.zip(values.iter().copied()).collect(),
    }
}

/// Returns the grid of a case.
///
/// # Errors
/// If its first file cannot be read.
pub fn geometry_of(case: &Case) -> Result<Geometry, Failure> {
    let first = case.images.first().ok_or_else(|| Failure::argument("image", "has no channel"))?;
    let file = VolumeFile::open(&first.path).map_err(InferError::from)?;
    Ok(*file.geometry())
}

/// Returns the type of voxels with this name: `u8`, `f32`.
///
/// # Errors
/// If there is none.
pub fn element_type(name: &str) -> Result<ElementType, Failure> {
    let found = ElementType::ALL.into_iter().find(|element| element.name() == name);
    found.ok_or_else(|| Failure::argument("image", format!("has voxels of the unknown type {name}")))
}

/// Returns the grid of an image in memory: its rows x, y and z map depth, height, width and 1 to millimetres.
///
/// # Errors
/// If an axis is empty, or the affine is not finite and invertible.
pub fn geometry(shape: [usize; 3], affine: [f64; 12]) -> Result<Geometry, Failure> {
    // As precise as the copy keeps it, so that a plan is of the same grid.
    let row = |first: usize| std::array::from_fn(|column| f64::from(affine[first + column] as f32));
    Geometry::new(shape, Affine([row(0), row(4), row(8)]))
        .map_err(|error| Failure::argument("affine", format!("cannot be used: {error}")))
}

/// Returns the budget of a prediction: what a limit allows, or else what the machine leaves.
pub fn budget_within(ram: Option<Bytes>) -> Budget {
    Budget::new(limits(&System::default(), ram).limit)
}
