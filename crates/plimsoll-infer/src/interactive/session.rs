//! A session: an image, the prompts of an object in it, and its segmentation.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Overhead, Reservation};
use plimsoll_models::nnunet::{ChannelPair, InteractiveModel, PromptChannels, PromptSettings};
use plimsoll_plan::Backend;
use plimsoll_volume::VoxelBox;

use crate::error::InferError;
use crate::interactive::bits::BitMask;
use crate::interactive::coarse::REFINEMENT;
use crate::interactive::error::{InteractiveError, SOLID_BOX};
use crate::interactive::image::NormalisedImage;
use crate::interactive::marks::{Marks, PromptMask, expect_length, fill};
use crate::interactive::network::{PATCHES, PatchNetwork, PlannedEngine};
use crate::interactive::plan::{ImageNeeds, InteractivePlan};
use crate::interactive::planes::Planes;
use crate::interactive::prediction::Pending;
use crate::interactive::profile::Profile;
use crate::interactive::prompts::{Drawn, MOST_PROMPTS, Mark, Prompts};
use crate::planning::engines::overhead;

/// The options of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InteractiveOptions {
    /// Threads that kernels run on, 1 at least.
    pub threads: usize,
    /// Zooms out if the object continues beyond a patch, and refines the result.
    pub auto_zoom: bool,
}

/// An image with the segmentation of an object.
pub(crate) struct Scene {
    pub(crate) image: NormalisedImage,
    pub(crate) segmentation: BitMask,
    /// The segmentation before the last prompt.
    earlier: BitMask,
    /// The memory of masks during a prediction.
    pub(crate) refinement: Budget,
}

/// The prompts before the last one.
enum EarlierPrompts {
    /// A part of the present ones.
    Mark(Mark),
    /// Others, which an initial segmentation has removed.
    Removed(Prompts),
}

/// The state before the last prompt, beside the segmentation.
struct Earlier {
    prompts: EarlierPrompts,
    pending: Option<Pending>,
}

/// A session with a model that segments what prompts mark.
///
/// A session has one image and one object at a time. Prompts add up until [`reset`](Self::reset); [`predict`](Self::predict) follows the
/// newest one and sees all. Coordinates are voxels of the image in the order depth, height, width.
pub struct InteractiveSession {
    pub(crate) channels: PromptChannels,
    pub(crate) network: PatchNetwork,
    pub(crate) planes: Planes,
    pub(crate) profile: Profile,
    pub(crate) prompts: Prompts,
    pub(crate) pending: Option<Pending>,
    pub(crate) auto_zoom: bool,
    pub(crate) scene: Option<Scene>,
    settings: PromptSettings,
    earlier: Option<Earlier>,
    budget: Budget,
    overhead: Reservation,
    /// The bytes that do not depend on an image.
    fixed: Bytes,
}

impl InteractiveSession {
    /// Reserves what does not depend on an image. The overhead of the process is taken from the budget as well.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, or the model's files are not sound.
    pub fn new(
        model: InteractiveModel,
        options: InteractiveOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<InteractiveSession, InteractiveError> {
        let process = overhead(options.threads.max(1), &*backend);
        InteractiveSession::beside(process, model, options, backend, budget)
    }

    /// A session in the process of another program, such as an interpreter, whose code the budget does not count.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn in_host_process(
        model: InteractiveModel,
        options: InteractiveOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<InteractiveSession, InteractiveError> {
        let threads = options.threads.max(1);
        let process = overhead(threads, &*backend) - Overhead::new(threads).code;
        InteractiveSession::beside(process, model, options, backend, budget)
    }

    fn beside(
        process: Bytes,
        model: InteractiveModel,
        options: InteractiveOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<InteractiveSession, InteractiveError> {
        let InteractiveModel { network, channels, prompts: settings, .. } = model;
        let overhead = budget.reserve("overhead", process).map_err(InferError::Overhead)?;
        let planes = Planes::new(network.patch, PATCHES, budget)?;
        let network = PatchNetwork::new(network, options.threads.max(1), backend, budget)?;
        Ok(InteractiveSession {
            channels,
            network,
            planes,
            profile: Profile::new(settings.point_radius),
            prompts: Prompts::new(),
            pending: None,
            auto_zoom: options.auto_zoom,
            scene: None,
            settings,
            earlier: None,
            fixed: budget.used(),
            budget: budget.clone(),
            overhead,
        })
    }

    /// The kinds of prompts that the model knows, and their channels.
    pub fn channels(&self) -> &PromptChannels {
        &self.channels
    }

    /// The thickness in voxels along each axis that scribbles should have.
    pub fn scribble_thickness(&self) -> [f64; 3] {
        self.settings.scribble_thickness
    }

    /// The shape of the image: depth, height, width.
    pub fn shape(&self) -> Option<[usize; 3]> {
        self.scene.as_ref().map(|scene| scene.image.shape())
    }

    /// The number of prompts of the object.
    pub fn prompts(&self) -> usize {
        self.prompts.len()
    }

    /// Turns zooming out on or off for later predictions.
    pub fn set_auto_zoom(&mut self, auto_zoom: bool) {
        self.auto_zoom = auto_zoom;
    }

    /// Plans the memory of an image of a shape. Nothing is allocated.
    ///
    /// # Errors
    /// Returns an error if the limit is too low for it, or the network cannot be planned.
    pub fn plan(&self, shape: [usize; 3]) -> Result<InteractivePlan, InteractiveError> {
        self.planned(shape).map(|(plan, _)| plan)
    }

    fn planned(&self, shape: [usize; 3]) -> Result<(InteractivePlan, PlannedEngine), InteractiveError> {
        if shape.contains(&0) {
            return Err(InteractiveError::NoVoxels { shape });
        }
        let needs = ImageNeeds::new(shape, self.network.patch())?;
        let (limit, weights) = (self.budget.limit(), self.network.weights_bytes());
        let beside = self.fixed + needs.total() + weights;
        let engine = self.network.plan_within(limit - beside)?;
        let plan = InteractivePlan {
            ram_budget_bytes: limit,
            overhead_bytes: self.overhead.bytes(),
            arena_bytes: engine.bytes,
            device_bytes: engine.device,
            patch_bytes: self.fixed - self.overhead.bytes(),
            weights_bytes: weights,
            image_bytes: needs.image,
            segmentation_bytes: needs.segmentation,
            refinement_bytes: needs.refinement,
            total_bytes: beside + engine.bytes,
            predicted_seconds_of_pass: engine.seconds,
        };
        if plan.total_bytes <= limit {
            return Ok((plan, engine));
        }
        let mut parts = String::new();
        for (number, (part, bytes)) in plan.parts().into_iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            // Writing to a text does not fail.
            let _ = write!(parts, "{between}{part} {bytes}");
        }
        let (case, needed) = ("the image".into(), plan.total_bytes);
        Err(InferError::Infeasible { case, needed, limit, parts, alternatives: Vec::new() }.into())
    }

    /// Sets an image, whose voxels `[depth][height][width]` the function writes, and removes the earlier image with its prompts and its
    /// segmentation. Returns the plan of its memory.
    ///
    /// Intensities are normalised as nnInteractive does it: by mean and standard deviation over the box around all voxels that are not 0. Give them as
    /// they are stored, without windowing.
    ///
    /// # Errors
    /// Returns an error if the limit is too low, weights or voxels cannot be read, or the intensities cannot be normalised. The session has
    /// no image then.
    pub fn set_image(
        &mut self,
        shape: [usize; 3],
        read: &mut dyn FnMut(&mut [f32]) -> Result<(), InteractiveError>,
    ) -> Result<InteractivePlan, InteractiveError> {
        self.scene = None;
        self.forget();
        let (plan, engine) = self.planned(shape)?;
        self.network.open(engine)?;
        let needs = ImageNeeds::new(shape, self.network.patch())?;
        let mask = || BitMask::new(shape, "segmentation", &self.budget);
        let (segmentation, earlier) = (mask()?, mask()?);
        let refinement = self.budget.part(REFINEMENT, needs.refinement)?;
        let image = NormalisedImage::read(shape, read, &self.budget)?;
        self.scene = Some(Scene { image, segmentation, earlier, refinement });
        Ok(plan)
    }

    fn forget(&mut self) {
        self.prompts = Prompts::new();
        self.pending = None;
        self.earlier = None;
    }

    fn scene(&self) -> Result<&Scene, InteractiveError> {
        self.scene.as_ref().ok_or(InteractiveError::NoImage)
    }

    /// The channel of a kind of prompt.
    fn channel(
        &self,
        prompt: &'static str,
        pair: Option<ChannelPair>,
        include: bool,
    ) -> Result<usize, InteractiveError> {
        match pair {
            Some(pair) => Ok(pair.channel(include)),
            None => Err(InteractiveError::Unsupported { prompt, known: self.channels.kinds().join(", ") }),
        }
    }

    /// Adds a point: a voxel of the object, or, without `include`, of its surroundings.
    ///
    /// # Errors
    /// Returns an error if the point is outside of the image, or the model knows no points. Nothing is added then.
    pub fn add_point(&mut self, at: [i64; 3], include: bool) -> Result<(), InteractiveError> {
        let prompt = "a point";
        let channel = self.channel(prompt, self.channels.point, include)?;
        let shape = self.scene()?.image.shape();
        let voxel: [usize; 3] = std::array::from_fn(|axis| usize::try_from(at[axis]).unwrap_or(usize::MAX));
        if (0..3).any(|axis| voxel[axis] >= shape[axis]) {
            return Err(InteractiveError::Outside { prompt, from: at, shape });
        }
        self.add(channel, Drawn::Point(at), Pending::at(voxel))
    }

    /// Adds a box of the voxels from `start` up to, not including, `end`, around the object or, without `include`, around what does not belong
    /// to it. Its part outside of the image is ignored.
    ///
    /// # Errors
    /// Returns an error if the box has no voxel in the image, or the model does not know such boxes. Nothing is added then.
    pub fn add_box(&mut self, start: [i64; 3], end: [i64; 3], include: bool) -> Result<(), InteractiveError> {
        if (0..3).any(|axis| end[axis] <= start[axis]) {
            return Err(InteractiveError::EmptyBox { start, end });
        }
        // Boxes in a slice work better, so that they are preferred where both kinds are possible.
        let is_flat = (0..3).any(|axis| end[axis].checked_sub(start[axis]) == Some(1));
        let (prompt, pair) = match (is_flat, self.channels.flat_box) {
            (true, Some(pair)) => ("a flat box", Some(pair)),
            (true, None) => ("a flat box", self.channels.solid_box),
            (false, _) => (SOLID_BOX, self.channels.solid_box),
        };
        let channel = self.channel(prompt, pair, include)?;
        let shape = self.scene()?.image.shape();
        let inside = |at: i64, axis: usize| usize::try_from(at).unwrap_or(0).min(shape[axis]);
        let within = VoxelBox::between(
            std::array::from_fn(|axis| inside(start[axis], axis)),
            std::array::from_fn(|axis| inside(end[axis], axis)),
        );
        if within.is_empty() {
            return Err(InteractiveError::Outside { prompt: "a box", from: start, shape });
        }
        let pending = Pending::around(within, self.network.patch());
        self.add(channel, Drawn::Box(within), pending)
    }

    /// Adds a scribble: lines through the object or, without `include`, beside it, in one slice and about as thick as
    /// [`scribble_thickness`](Self::scribble_thickness) says.
    ///
    /// # Errors
    /// Returns an error if the mask marks no voxel, is not within the image, or the model knows no scribbles. Nothing is added then.
    pub fn add_scribble(&mut self, mask: PromptMask<'_>, include: bool) -> Result<(), InteractiveError> {
        let channel = self.channel("a scribble", self.channels.scribble, include)?;
        self.add_mask("a scribble", channel, mask)
    }

    /// Adds a lasso: the filled contour of the object or, without `include`, of what does not belong to it, in one slice.
    ///
    /// # Errors
    /// Returns an error if the mask marks no voxel, is not within the image, or the model knows no lassos. Nothing is added then.
    pub fn add_lasso(&mut self, mask: PromptMask<'_>, include: bool) -> Result<(), InteractiveError> {
        let channel = self.channel("a lasso", self.channels.lasso, include)?;
        self.add_mask("a lasso", channel, mask)
    }

    fn add_mask(
        &mut self,
        prompt: &'static str,
        channel: usize,
        mask: PromptMask<'_>,
    ) -> Result<(), InteractiveError> {
        let Marks { start, mask } = mask.marks(prompt, self.scene()?.image.shape(), &self.budget)?;
        let pending = Pending::around(VoxelBox { start, shape: mask.shape() }, self.network.patch());
        self.add(channel, Drawn::Mask { start, mask }, pending)
    }

    fn add(&mut self, channel: usize, drawn: Drawn, pending: Pending) -> Result<(), InteractiveError> {
        if self.prompts.len() >= MOST_PROMPTS {
            return Err(InteractiveError::TooManyPrompts);
        }
        self.keep_earlier(EarlierPrompts::Mark(self.prompts.mark()))?;
        self.prompts.add(channel, drawn, self.settings.decay);
        self.pending = Some(pending);
        Ok(())
    }

    fn keep_earlier(&mut self, prompts: EarlierPrompts) -> Result<(), InteractiveError> {
        let scene = self.scene.as_mut().ok_or(InteractiveError::NoImage)?;
        scene.earlier.copy_from(&scene.segmentation);
        self.earlier = Some(Earlier { prompts, pending: self.pending });
        Ok(())
    }

    /// Begins with a segmentation of the whole image, `[depth][height][width]`, whose voxels belong to the object where they are not 0. All prompts are
    /// removed. The next prediction refines all of it, or, if another prompt comes before, follows that prompt.
    ///
    /// # Errors
    /// Returns an error if it has another shape than the image, or the model knows no initial segmentation. Nothing changes then.
    pub fn add_initial_segmentation(&mut self, voxels: &[u8]) -> Result<(), InteractiveError> {
        let prompt = "an initial segmentation";
        if !self.channels.initial {
            let known = self.channels.kinds().join(", ");
            return Err(InteractiveError::Unsupported { prompt, known });
        }
        expect_length(prompt, voxels, self.scene()?.image.shape())?;
        let removed = std::mem::replace(&mut self.prompts, Prompts::new());
        self.keep_earlier(EarlierPrompts::Removed(removed))?;
        let patch = self.network.patch();
        let scene = self.scene.as_mut().ok_or(InteractiveError::NoImage)?;
        scene.segmentation.clear();
        fill(&mut scene.segmentation, voxels);
        let bounds = scene.segmentation.bounds();
        self.pending = bounds.map(|bounds| Pending::of_all(bounds, patch));
        Ok(())
    }

    /// Returns to the state before the last prompt or initial segmentation, predictions since included. Returns `false` if that was undone already, or there
    /// was none since the image was set or the session was reset.
    pub fn undo(&mut self) -> bool {
        let (Some(Earlier { prompts, pending }), Some(scene)) = (self.earlier.take(), &mut self.scene) else {
            return false;
        };
        scene.segmentation.copy_from(&scene.earlier);
        match prompts {
            EarlierPrompts::Mark(mark) => self.prompts.return_to(mark),
            EarlierPrompts::Removed(prompts) => self.prompts = prompts,
        }
        self.pending = pending;
        true
    }

    /// Removes all prompts and the segmentation, for another object of the same image.
    pub fn reset(&mut self) {
        self.forget();
        if let Some(scene) = &mut self.scene {
            scene.segmentation.clear();
        }
    }

    /// Copies the segmentation `[depth][height][width]`: 1 for the object, else 0.
    ///
    /// # Errors
    /// Returns an error if there is no image, or the buffer has another length.
    pub fn write_segmentation(&self, to: &mut [u8]) -> Result<(), InteractiveError> {
        let scene = self.scene()?;
        let shape = scene.image.shape();
        expect_length("a segmentation", to, shape)?;
        let planes = to.chunks_exact_mut(shape[1] * shape[2]);
        planes.enumerate().try_for_each(|(depth, plane)| self.write_plane(depth, plane))
    }

    /// Copies a plane `[height][width]` of the segmentation.
    ///
    /// # Errors
    /// Returns an error if there is no image or no such plane, or the buffer has another length.
    pub fn write_plane(&self, depth: usize, to: &mut [u8]) -> Result<(), InteractiveError> {
        let scene = self.scene()?;
        let shape = scene.image.shape();
        let (prompt, plane) = ("a plane", [1, shape[1], shape[2]]);
        if depth >= shape[0] {
            let from = [i64::try_from(depth).unwrap_or(i64::MAX), 0, 0];
            return Err(InteractiveError::Outside { prompt, from, shape });
        }
        expect_length(prompt, to, plane)?;
        for (height, row) in to.chunks_exact_mut(shape[2]).enumerate() {
            for (width, value) in row.iter_mut().enumerate() {
                *value = u8::from(scene.segmentation.get([depth, height, width]));
            }
        }
        Ok(())
    }

    /// The number of voxels of the object.
    pub fn object_voxels(&self) -> u64 {
        self.scene.as_ref().map_or(0, |scene| scene.segmentation.count())
    }
}

/// Checks that a prediction was not stopped.
pub(crate) fn check_going(stop: &AtomicBool) -> Result<(), InteractiveError> {
    if stop.load(Ordering::Relaxed) { Err(InteractiveError::Stopped) } else { Ok(()) }
}
