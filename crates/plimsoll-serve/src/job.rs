//! A request on the thread that plans and predicts: its image, its plan, its labels.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use plimsoll::{
    Context, Error, MemoryLimit, PredictRequest, PredictionPlan, StepChoice, StopToken, VolumeOptions,
    plan_prediction, plan_segmentation, predict, segment,
};
use plimsoll_dicom::{SegmentationRequest, SegmentationType, Series};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_remedy::{Change, Limit};
use plimsoll_run::CheckpointKind;
use plimsoll_volume::VolumeFile;
use serde::Serialize;

use crate::archive::{self, ArchiveContent, too_large};
use crate::content::Content;
use crate::models::{Labeller, ServedModel};
use crate::problem::{Problem, Translator};
use crate::service::Service;
use crate::workspace::Workspace;

/// The bytes of a voxel of a decoded series at most.
const MOST_OF_VOXEL: u64 = 4;
/// The most doublings of the limit to find one that suffices.
const MOST_DOUBLED: u32 = 8;
/// The longest text in an attribute of a segmentation.
const MOST_LETTERS: usize = 64;

/// The form of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelForm {
    /// A label map of NIfTI, on the grid of the image.
    Nifti,
    /// A DICOM segmentation that refers to the slices of the series.
    DicomSeg,
}

impl LabelForm {
    /// The names of forms.
    pub(crate) const NAMES: [&str; 2] = ["nifti", "dicom-seg"];

    /// The form of a name.
    pub(crate) fn from_name(name: &str) -> Option<LabelForm> {
        match name {
            "nifti" => Some(LabelForm::Nifti),
            "dicom-seg" => Some(LabelForm::DicomSeg),
            _ => None,
        }
    }
}

/// A request that was received.
pub(crate) struct Job {
    pub(crate) service: Arc<Service>,
    pub(crate) model: Arc<ServedModel>,
    pub(crate) workspace: Arc<Workspace>,
    /// The image: a file in the workspace, or of the user.
    pub(crate) source: PathBuf,
    pub(crate) form: LabelForm,
    pub(crate) stop: StopToken,
}

/// The plan of a request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlanReply {
    pub(crate) model: String,
    /// The memory that the prediction would hold, with the share of the transport.
    pub(crate) planned_ram_bytes: Bytes,
    /// The least limit of the server with which the request would be accepted.
    pub(crate) needed_ram_bytes: Bytes,
    /// The limit of the server.
    pub(crate) ram_limit_bytes: Bytes,
    pub(crate) windows: usize,
    /// The predicted duration of the network's forward passes.
    pub(crate) predicted_seconds: f64,
}

/// A request whose plan fits.
pub(crate) struct Prepared {
    job: Job,
    /// The image, or the folder of the files of its channels.
    image: PathBuf,
    /// The place of the series that the image was written from.
    series: Option<PathBuf>,
    warnings: Vec<String>,
    pub(crate) plan: PlanReply,
}

/// The labels of a request, which are removed with its folder.
pub(crate) struct Labels {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) file: PathBuf,
    pub(crate) form: LabelForm,
    pub(crate) plan: PlanReply,
    pub(crate) seconds: f64,
    /// Warnings about the image, such as lossy compression.
    pub(crate) warnings: Vec<String>,
}

impl Job {
    /// Brings the image into a form that predictions read, and plans it.
    pub(crate) fn prepare(self) -> Result<Prepared, Problem> {
        let (mut series, mut warnings) = (None, Vec::new());
        let content = match self.source.is_dir() {
            true => Content::Dicom,
            false => Content::detect(&self.source)?,
        };
        let image = match content {
            Content::Nifti => self.place("image.nii", &[".nii"])?,
            Content::NiftiGz => self.place("image.nii.gz", &[".nii.gz"])?,
            Content::Zip => match archive::look(&self.source, self.service.bounds().unpacked)? {
                ArchiveContent::Channels(channels) => {
                    let folder = self.workspace.file("images");
                    archive::unpack(&self.source, &channels, &folder, self.stop.flag())?;
                    folder
                }
                ArchiveContent::Slices => self.decode(&mut series, &mut warnings)?,
            },
            Content::Dicom => self.decode(&mut series, &mut warnings)?,
        };
        if self.form == LabelForm::DicomSeg && series.is_none() {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "labels as DICOM SEG refer to the slices of a DICOM series, and the image is none",
                "send the series, or ask for labels as NIfTI: `form=nifti`",
            ));
        }
        self.expect_believable(&image)?;
        let plan = self.plan(&image)?;
        Ok(Prepared { job: self, image, series, warnings, plan })
    }

    /// Gives an upload the name that its content asks for. A file of the user stays where it is, and must have such a name.
    fn place(&self, name: &str, endings: &[&str]) -> Result<PathBuf, Problem> {
        if !self.source.starts_with(self.workspace.path()) {
            let own = self.source.to_string_lossy();
            return match endings.iter().any(|ending| own.ends_with(ending)) {
                true => Ok(self.source.clone()),
                false => Err(Problem::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    format!("{own} has the content of a {} file, and another name", endings.join(" or ")),
                    "rename it",
                )),
            };
        }
        let to = self.workspace.file(name);
        plimsoll_disk::rename(&self.source, &to).map_err(|error| archive::full(&error))?;
        Ok(to)
    }

    /// Writes the series of an upload as an image of NIfTI.
    fn decode(&self, place: &mut Option<PathBuf>, warnings: &mut Vec<String>) -> Result<PathBuf, Problem> {
        // Labels are compressed as the image is. Labels of a segmentation are only read.
        let image = self.workspace.file(match self.form {
            LabelForm::Nifti => "image.nii.gz",
            LabelForm::DicomSeg => "image.nii",
        });
        let read = |budget: &Budget| -> Result<(Series, u64), Error> {
            let series = Series::find(&self.source, budget)?;
            if self.form == LabelForm::DicomSeg {
                series.expect_referable(budget)?;
            }
            let voxels =
                series.geometry().shape().iter().fold(1u64, |all, extent| all.saturating_mul(*extent as u64));
            Ok((series, voxels.saturating_mul(MOST_OF_VOXEL)))
        };
        let memory = self.memory()?;
        let (series, decoded) = read(&memory.budget).map_err(|error| self.refuse(&error))?;
        self.expect_unpacked(decoded)?;
        warnings.extend(series.warnings());
        let written = series.write(&image, &memory.budget, self.stop.flag());
        written.map_err(|error| self.refuse(&error.into()))?;
        *place = Some(self.source.clone());
        Ok(image)
    }

    /// Refuses an image that would be larger than the limit when it is unpacked, by its header alone.
    fn expect_believable(&self, image: &Path) -> Result<(), Problem> {
        let mut unpacked = 0u64;
        let mut add = |path: &Path| -> Result<(), Problem> {
            let file = VolumeFile::open(path).map_err(|error| self.refuse(&error.into()))?;
            unpacked = unpacked.saturating_add(file.stored_bytes());
            Ok(())
        };
        if image.is_dir() {
            let files = plimsoll_disk::entries(image).map_err(|error| archive::full(&error))?;
            for file in files {
                add(&file.map_err(|error| archive::full(&error))?)?;
            }
        } else {
            add(image)?;
        }
        self.expect_unpacked(unpacked)
    }

    fn expect_unpacked(&self, bytes: u64) -> Result<(), Problem> {
        let most = self.service.bounds().unpacked;
        if bytes > most.0 { Err(too_large(bytes, most)) } else { Ok(()) }
    }

    /// Plans the prediction of an image from its header.
    fn plan(&self, image: &Path) -> Result<PlanReply, Problem> {
        let shares = self.service.shares();
        let plans = match self.plans(image, shares.predictions)? {
            Ok(plans) => plans,
            Err(error) if lacks_room(&error) => return Err(self.least_limit(image, &error)),
            Err(error) => return Err(self.refuse(&error)),
        };
        self.expect_planned(&plans)?;
        let cases = || plans.iter().flat_map(|plan| &plan.cases);
        // An earlier stage of a cascade, or of a task, runs before the later one, so the larger of both counts.
        let planned = cases().map(|case| case.plan.total_bytes).max();
        let needed = cases().map(|case| case.least_ram_bytes).max();
        let (Some(planned), Some(needed)) = (planned, needed) else { return Err(Problem::internal()) };
        Ok(PlanReply {
            model: self.model.card.name.clone(),
            planned_ram_bytes: planned + shares.transport,
            needed_ram_bytes: needed + shares.transport,
            ram_limit_bytes: shares.limit,
            windows: cases().map(|case| case.plan.windows).sum(),
            predicted_seconds: cases().map(|case| case.plan.predicted_seconds).sum(),
        })
    }

    /// Plans all networks of the model below a limit.
    fn plans(&self, image: &Path, ram: Bytes) -> Result<Result<Vec<PredictionPlan>, Error>, Problem> {
        let context = self.context();
        Ok(match &self.model.labeller {
            Labeller::Model { path, is_nnunet } => {
                plan_prediction(&self.request(path, *is_nnunet, image, ram), &context)
            }
            Labeller::Task(task) => plan_segmentation(&task.request(self, image, ram)?, &context),
        })
    }

    /// Refuses an image that a plan refuses.
    fn expect_planned(&self, plans: &[PredictionPlan]) -> Result<(), Problem> {
        match plans.iter().flat_map(|plan| &plan.refused).next() {
            Some(refused) => Err(self.translator().image(&refused.error, &refused.hint)),
            None => Ok(()),
        }
    }

    /// The refusal of an image where the limit has no room for what a network needs beside any image: with the limit that a plan below a
    /// higher one names.
    fn least_limit(&self, image: &Path, refused: &Error) -> Problem {
        let limit = self.service.shares().predictions;
        for doubled in 1..=MOST_DOUBLED {
            let plans = match self.plans(image, Bytes(limit.0.saturating_mul(1 << doubled))) {
                Ok(Err(error)) if lacks_room(&error) => continue,
                Ok(Err(error)) => return self.refuse(&error),
                Ok(Ok(plans)) => plans,
                Err(problem) => return problem,
            };
            if let Err(problem) = self.expect_planned(&plans) {
                return problem;
            }
            let least = plans.iter().flat_map(|plan| &plan.cases).map(|case| case.least_ram_bytes).max();
            if let Some(least) = least {
                return self.translator().limit(refused, least);
            }
        }
        self.refuse(refused)
    }

    fn request(&self, model: &Path, is_nnunet: bool, image: &Path, ram: Bytes) -> PredictRequest {
        let Job { service, workspace, .. } = self;
        PredictRequest {
            model: model.into(),
            checkpoint: CheckpointKind::Final,
            volumes: VolumeOptions {
                nnunet: is_nnunet.then(Default::default),
                postprocessing: StepChoice::OfModel,
                unit: service.unit(),
                ..VolumeOptions::default()
            },
            input: image.into(),
            output: workspace.file("labels"),
            overwrite: false,
            options: service.options(is_nnunet),
            part: None,
            ram: Some(ram),
            backend: service.backend(),
        }
    }

    /// The surroundings of jobs, which observe nothing: events name files.
    fn context(&self) -> Context {
        let mut context = Context::default().with_cache(self.service.cache());
        context.stop = self.stop.clone();
        context
    }

    fn memory(&self) -> Result<MemoryLimit, Problem> {
        let (ram, threads) = (self.service.shares().predictions, self.service.threads());
        MemoryLimit::set(Some(ram), threads, &self.context()).map_err(|error| self.refuse(&error))
    }

    fn translator(&self) -> Translator<'_> {
        let words = self.service.words();
        Translator { words, limit: self.service.shares().limit, folder: self.workspace.path() }
    }

    fn refuse(&self, error: &Error) -> Problem {
        if self.stop.is_asked() { Problem::closing() } else { self.translator().job(error) }
    }
}

impl Prepared {
    /// Predicts the labels.
    pub(crate) fn predict(self) -> Result<Labels, Problem> {
        let start = Instant::now();
        let Prepared { job, image, series, mut warnings, plan } = self;
        let ram = job.service.shares().predictions;
        let written = match &job.model.labeller {
            Labeller::Model { path, is_nnunet } => {
                let report = predict(&job.request(path, *is_nnunet, &image, ram), &job.context())
                    .map_err(|error| job.refuse(&error))?;
                if let Some(failed) = report.failed.first() {
                    return Err(job.translator().image(&failed.error, &failed.hint));
                }
                warnings.extend(report.warnings.iter().map(|warning| warning.warning.clone()));
                report.cases.first().map(|case| case.file.clone())
            }
            Labeller::Task(task) => {
                // Of one image, a failure is the error.
                let report = segment(&task.request(&job, &image, ram)?, &job.context())
                    .map_err(|error| job.refuse(&error))?;
                let named = format!("{}: ", image.display());
                let unnamed = |warning: &String| warning.strip_prefix(&named).unwrap_or(warning).to_string();
                warnings.extend(report.warnings.iter().map(unnamed));
                report.images.first().map(|image| image.output.clone())
            }
        };
        let Some(written) = written else { return Err(Problem::internal()) };
        let file = match (job.form, series) {
            (LabelForm::DicomSeg, Some(series)) => job.encode(&series, &written)?,
            _ => written,
        };
        let seconds = start.elapsed().as_secs_f64();
        Ok(Labels { workspace: job.workspace, file, form: job.form, plan, seconds, warnings })
    }
}

impl Job {
    /// Writes labels as a segmentation of the series.
    fn encode(&self, series: &Path, labels: &Path) -> Result<PathBuf, Problem> {
        let to = self.workspace.file("labels.dcm");
        let memory = self.memory()?;
        let name: String = self.model.card.name.chars().take(MOST_LETTERS).collect();
        let algorithm: String = format!("Plimsoll {name}").chars().take(MOST_LETTERS).collect();
        let names = self.model.table();
        let request = SegmentationRequest {
            kind: SegmentationType::Binary,
            names: &names,
            description: &name,
            algorithm: &algorithm,
        };
        let write = || -> Result<(), Error> {
            let series = Series::find(series, &memory.budget)?;
            Ok(series.write_segmentation(labels, &to, &request, &memory.budget, self.stop.flag())?)
        };
        write().map_err(|error| self.refuse(&error))?;
        Ok(to)
    }
}

/// Returns `true` for an error whose remedy is a higher limit, of which nobody knows yet what it is.
fn lacks_room(error: &Error) -> bool {
    let is_higher = |change: &Change| matches!(change, Change::RaiseLimit { limit: Limit::Ram, to: None });
    error.remedy().changes().any(is_higher)
}
