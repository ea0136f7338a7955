//! Segmenting an object that prompts mark, with a model of nnInteractive.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_infer::{
    InteractiveError, InteractiveOptions, InteractivePlan, InteractiveSession, PassKind, PromptMask,
};
use plimsoll_memory::{Budget, Bytes, Mapped, resident};
use plimsoll_models::nnunet::InteractiveModel;
use plimsoll_plan::Backend;
use plimsoll_run::FoldName;
use plimsoll_volume::{ElementType, VolumeFile, VolumeWriter, VoxelBox};
use serde::Serialize;

use crate::backend::{DeviceName, default_threads};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// A prompt: voxels in the order depth, height, width as the file has them, or a file on the grid of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A voxel.
    Point {
        /// The voxel.
        at: [i64; 3],
        /// `true` if it belongs to the object.
        include: bool,
    },
    /// A box.
    Box {
        /// The first voxel.
        start: [i64; 3],
        /// The voxel past the last along each axis.
        end: [i64; 3],
        /// `true` if it is around the object.
        include: bool,
    },
    /// A mask of lines.
    Scribble {
        /// The file.
        file: PathBuf,
        /// `true` if they belong to the object.
        include: bool,
    },
    /// A mask of a filled contour.
    Lasso {
        /// The file.
        file: PathBuf,
        /// `true` if it is around the object.
        include: bool,
    },
    /// A segmentation to begin with, which removes all prompts before it.
    Initial {
        /// The file.
        file: PathBuf,
    },
}

impl Prompt {
    /// The file of the prompt.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Prompt::Scribble { file, .. } | Prompt::Lasso { file, .. } | Prompt::Initial { file } => {
                Some(file)
            }
            Prompt::Point { .. } | Prompt::Box { .. } => None,
        }
    }
}

/// A request to segment an object.
#[derive(Clone)]
pub struct InteractRequest {
    /// The image, of one channel.
    pub image: PathBuf,
    /// The folder of a model of nnInteractive.
    pub model: PathBuf,
    /// The fold; `None` for the only one.
    pub fold: Option<FoldName>,
    /// The label map: 1 for the object.
    pub output: PathBuf,
    /// The prompts in order. The object is predicted after each.
    pub prompts: Vec<Prompt>,
    /// Zooms out if the object continues beyond a patch.
    pub auto_zoom: bool,
    /// Replaces an existing label map.
    pub overwrite: bool,
    /// The memory limit; `None` for what the machine leaves.
    pub ram: Option<Bytes>,
    /// Threads of kernels.
    pub threads: usize,
    /// The backend that runs the network.
    pub backend: Arc<dyn Backend>,
}

impl InteractRequest {
    /// A request with defaults, on the processor.
    ///
    /// # Errors
    /// Returns an error if the processor has no kernels.
    pub fn new(
        image: impl Into<PathBuf>,
        model: impl Into<PathBuf>,
        output: impl Into<PathBuf>,
        prompts: Vec<Prompt>,
    ) -> Outcome<InteractRequest> {
        let threads = default_threads();
        Ok(InteractRequest {
            image: image.into(),
            model: model.into(),
            fold: None,
            output: output.into(),
            prompts,
            auto_zoom: true,
            overwrite: false,
            ram: None,
            threads,
            backend: DeviceName::Cpu.open(threads, None)?,
        })
    }
}

/// The result of a prompt.
#[derive(Clone, Debug, Serialize)]
pub struct Prompted {
    /// Passes through the network.
    pub passes: usize,
    /// The voxels of the image along each axis for one of the coarse patch.
    pub zoom: f64,
    /// Voxels of the object.
    pub object_voxels: u64,
    /// The duration.
    pub seconds: f64,
}

/// The result of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Interacted {
    /// The label map.
    pub output: PathBuf,
    /// The licence of the model; `None` if it is unknown.
    pub license: Option<String>,
    /// The result of each prompt.
    pub prompts: Vec<Prompted>,
    /// The plan of the memory.
    pub plan: InteractivePlan,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

/// Plans the memory of a session with an image, from its header alone.
///
/// # Errors
/// Returns an error if the model or the header cannot be read, or the limit is too low.
pub fn plan_interaction(request: &InteractRequest, context: &Context) -> Outcome<InteractivePlan> {
    let budget = Budget::new(context.limits(request.ram).limit);
    let Opened { session, image, .. } = open(request, &budget)?;
    Ok(session.plan(image.geometry().shape())?)
}

/// Segments an object, one prompt after the other, and writes its label map.
///
/// # Errors
/// Returns an error if a file cannot be read or written, a prompt cannot be used, the limit is too low, or the context's stop token is set.
/// Nothing is written then.
pub fn interact(request: &InteractRequest, context: &Context) -> Outcome<Interacted> {
    let budget = Budget::new(context.limits(request.ram).limit);
    if request.output.exists() && !request.overwrite {
        let message = format!("{} already exists", request.output.display());
        return Err(Error::new(message, "‹overwrite› replaces it"));
    }
    if request.prompts.is_empty() {
        let hint = "give one prompt at least, such as a point of the object";
        return Err(Error::new("there is no prompt", hint));
    }
    let Opened { mut session, mut image, license } = open(request, &budget)?;
    let shape = image.geometry().shape();
    image.decode(&budget)?;
    let plan = session.set_image(shape, &mut |to| Ok(image.region_f32(0, VoxelBox::whole(shape), to)?))?;
    let progress = context.work("prompts", request.prompts.len() as u64);
    let mut prompts = Vec::with_capacity(request.prompts.len());
    for (done, prompt) in (1..).zip(&request.prompts) {
        let began = Instant::now();
        add(&mut session, prompt, shape, &budget)?;
        let (mut passes, mut zoom) = (0, 1.0);
        session.predict(context.stop.flag(), &mut |pass| {
            passes += 1;
            if let PassKind::Coarse { zoom: seen, .. } = pass.kind {
                zoom = seen;
            }
            progress.show(format!("{passes} passes"));
        })?;
        let (object_voxels, seconds) = (session.object_voxels(), began.elapsed().as_secs_f64());
        prompts.push(Prompted { passes, zoom, object_voxels, seconds });
        progress.set(done, String::new());
    }
    drop(progress);
    write(&session, &image, &request.output, &budget)?;
    let output = request.output.clone();
    Ok(Interacted { output, license, prompts, plan, peak_rss_bytes: resident()?.peak })
}

struct Opened {
    session: InteractiveSession,
    image: VolumeFile,
    license: Option<String>,
}

fn open(request: &InteractRequest, budget: &Budget) -> Outcome<Opened> {
    let image = VolumeFile::open(&request.image)?;
    if image.channels() != 1 {
        return Err(InteractiveError::Channels { found: image.channels() }.into());
    }
    let model = InteractiveModel::open(&request.model, request.fold, budget)?;
    let license = model.license.clone();
    let options = InteractiveOptions { threads: request.threads, auto_zoom: request.auto_zoom };
    let session = InteractiveSession::new(model, options, Arc::clone(&request.backend), budget)?;
    Ok(Opened { session, image, license })
}

/// Adds a prompt to a session.
fn add(session: &mut InteractiveSession, prompt: &Prompt, shape: [usize; 3], budget: &Budget) -> Outcome {
    let Some(file) = prompt.file() else {
        match prompt {
            Prompt::Point { at, include } => session.add_point(*at, *include)?,
            Prompt::Box { start, end, include } => session.add_box(*start, *end, *include)?,
            Prompt::Scribble { .. } | Prompt::Lasso { .. } | Prompt::Initial { .. } => {}
        }
        return Ok(());
    };
    let mut labels = VolumeFile::open_labels(file)?;
    let found = labels.geometry().shape();
    if found != shape {
        let expected = shape;
        return Err(plimsoll_infer::InferError::OtherShape { path: file.into(), found, expected }.into());
    }
    let mut voxels = Mapped::<u8>::zeroed(budget, "prompts", shape.iter().product())?;
    labels.decode(budget)?;
    labels.region_labels(0, VoxelBox::whole(shape), &mut voxels)?;
    let mask = PromptMask { start: [0; 3], shape, voxels: &voxels };
    match prompt {
        Prompt::Scribble { include, .. } => session.add_scribble(mask, *include)?,
        Prompt::Lasso { include, .. } => session.add_lasso(mask, *include)?,
        Prompt::Initial { .. } => session.add_initial_segmentation(&voxels)?,
        Prompt::Point { .. } | Prompt::Box { .. } => {}
    }
    Ok(())
}

/// Writes the label map, plane by plane.
fn write(session: &InteractiveSession, image: &VolumeFile, to: &Path, budget: &Budget) -> Outcome {
    let geometry = image.geometry();
    let [depth, height, width] = geometry.shape();
    let _writing = budget.reserve("files being written", VolumeWriter::BYTES)?;
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let mut writer = VolumeWriter::create(to, geometry, 1, ElementType::U8, image.header())?;
    for depth in 0..depth {
        session.write_plane(depth, &mut plane)?;
        writer.write_planes(&plane)?;
    }
    Ok(writer.finish()?)
}
