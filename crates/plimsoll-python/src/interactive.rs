//! Interactive sessions on images in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll::backend::DeviceName;
use plimsoll_infer::{
    InteractiveError, InteractiveOptions, InteractivePlan, InteractiveSession, PassKind, PromptMask,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::InteractiveModel;
use plimsoll_remedy::render;
use plimsoll_run::FoldName;
use plimsoll_volume::{ElementType, Scaling, VoxelBox, decode_f32};
use serde::Serialize;

use crate::{Failure, Keywords};

/// The options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The fold by name; `None` for the only one.
    pub fold: Option<String>,
    /// Zooms out if the object continues beyond a patch.
    pub auto_zoom: bool,
    /// Threads of kernels.
    pub threads: usize,
    /// The device by name.
    pub device: String,
    /// The limit of the device's own memory.
    pub vram: Option<Bytes>,
}

/// The description of a session's model.
#[derive(Clone, Debug, Serialize)]
pub struct SessionDescription {
    /// The folder.
    pub path: PathBuf,
    /// Depth, height, width of a patch.
    pub patch: [usize; 3],
    /// The kinds of prompts that it knows.
    pub prompts: Vec<&'static str>,
    /// The thickness of scribbles in voxels along each axis.
    pub scribble_thickness: [f64; 3],
    /// The licence of the weights, if it is known.
    pub license: Option<String>,
    /// A description in lines.
    pub lines: Vec<String>,
}

/// A kind of mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// Lines.
    Scribble,
    /// A filled contour.
    Lasso,
}

/// A session, whose code the budget does not count.
pub struct ArraySession {
    session: InteractiveSession,
    description: SessionDescription,
}

impl ArraySession {
    /// Opens a model within a budget.
    ///
    /// # Errors
    /// If there is no model at the path, an option is out of bounds, or the budget has no room.
    pub fn open(path: &Path, options: &SessionOptions, budget: &Budget) -> Result<ArraySession, Failure> {
        let SessionOptions { fold, auto_zoom, threads, device, vram } = options;
        let fold = match fold {
            None => None,
            Some(name) => {
                let wrong = || Failure::argument("fold", format!("is {name}, but must be a number or all"));
                Some(name.parse::<FoldName>().map_err(|_| wrong())?)
            }
        };
        let device: DeviceName = device
            .parse()
            .map_err(|text: String| Failure::argument("device", format!("is none of {text}")))?;
        let model = InteractiveModel::open(path, fold, budget)?;
        let description = SessionDescription {
            path: model.folder.clone(),
            patch: model.patch(),
            prompts: model.channels.kinds(),
            scribble_thickness: model.prompts.scribble_thickness,
            license: model.license.clone(),
            lines: model.lines(),
        };
        let options = InteractiveOptions { threads: *threads, auto_zoom: *auto_zoom };
        let backend = device.open(*threads, *vram)?;
        let session = InteractiveSession::in_host_process(model, options, backend, budget)?;
        Ok(ArraySession { session, description })
    }

    /// The description of the model.
    pub fn description(&self) -> &SessionDescription {
        &self.description
    }

    /// The session.
    pub fn session(&mut self) -> &mut InteractiveSession {
        &mut self.session
    }

    /// Sets an image of stored voxels `[depth][height][width]`.
    ///
    /// # Errors
    /// If the voxels do not have the shape, cannot be normalised, or the limit is too low.
    pub fn set_image(
        &mut self,
        shape: [usize; 3],
        element: ElementType,
        voxels: &[u8],
    ) -> Result<InteractivePlan, Failure> {
        let expected = shape.iter().product::<usize>().checked_mul(element.size());
        if expected != Some(voxels.len()) {
            return Err(Failure::argument("image", "does not have the voxels of its shape"));
        }
        let plan = self.session.set_image(shape, &mut |to| {
            // Lengths were compared.
            let _ = decode_f32(element, Scaling::NONE, voxels, to);
            Ok(())
        })?;
        Ok(plan)
    }

    /// Adds a mask that begins at a voxel.
    ///
    /// # Errors
    /// If it marks no voxel, is not within the image, or the model does not know its kind.
    pub fn add_mask(&mut self, kind: MaskKind, mask: PromptMask<'_>, include: bool) -> Result<(), Failure> {
        match kind {
            MaskKind::Scribble => self.session.add_scribble(mask, include)?,
            MaskKind::Lasso => self.session.add_lasso(mask, include)?,
        }
        Ok(())
    }

    /// Predicts the object. `observe` receives the number of the pass, and the passes that are known so far.
    ///
    /// # Errors
    /// If there is no image, memory is refused or `stop` is set.
    pub fn predict(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<VoxelBox>, Failure> {
        let mut passes = 0;
        let changed = self.session.predict(stop, &mut |pass| {
            passes += 1;
            let left = match pass.kind {
                PassKind::Coarse { .. } => 0,
                PassKind::Refinement { number, of, .. } => of - number - 1,
            };
            observe(passes, passes + left);
        })?;
        Ok(changed)
    }
}

impl From<InteractiveError> for Failure {
    fn from(error: InteractiveError) -> Failure {
        match error {
            InteractiveError::Infer(error) => error.into(),
            other => {
                let remedy = other.remedy().map(|text| render(&text, &Keywords));
                Failure::Failed { message: render(&other.to_string(), &Keywords), remedy }
            }
        }
    }
}
