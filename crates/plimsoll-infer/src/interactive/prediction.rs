//! A prediction: a coarse segmentation around the newest prompt, zoomed out while it continues beyond its patch, and its refinement.

use std::sync::atomic::AtomicBool;

use plimsoll_models::nnunet::REFINED_MARGIN;
use plimsoll_volume::VoxelBox;

use crate::interactive::bits::BitMask;
use crate::interactive::border::changes_at_border;
use crate::interactive::coarse::{Coarse, REFINEMENT, clipped};
use crate::interactive::cover::Boxes;
use crate::interactive::error::InteractiveError;
use crate::interactive::opening::open;
use crate::interactive::session::{InteractiveSession, Scene, check_going};
use crate::interactive::sight::{Previous, Sight, Zoomed};
use crate::interactive::zoom::{MOST_ZOOM, ZOOM_STEP, scaled, start};

/// A prediction that a prompt asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pending {
    centre: [usize; 3],
    zoom: f64,
    /// Refines the whole previous segmentation, not only its changes.
    whole: bool,
}

impl Pending {
    /// A prediction around a voxel.
    pub(crate) fn at(centre: [usize; 3]) -> Pending {
        Pending { centre, zoom: 1.0, whole: false }
    }

    /// A prediction around a box, of which a patch sees at least a third of its extent more.
    pub(crate) fn around(within: VoxelBox, patch: [usize; 3]) -> Pending {
        let VoxelBox { start, shape } = within;
        let middle = |axis: usize| (2 * start[axis] + shape[axis]) as f64 / 2.0;
        let zoom = |axis: usize| (shape[axis] + patch[axis] / 3) as f64 / patch[axis] as f64;
        Pending {
            centre: std::array::from_fn(|axis| middle(axis).round_ties_even() as usize),
            zoom: (0..3).map(zoom).fold(1.0, f64::max),
            whole: false,
        }
    }

    /// A prediction that refines all of a segmentation around its box.
    pub(crate) fn of_all(within: VoxelBox, patch: [usize; 3]) -> Pending {
        Pending { whole: true, ..Pending::around(within, patch) }
    }
}

/// A pass through the network.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The kind of the pass.
    pub kind: PassKind,
    /// The input `[channel][depth][height][width]`: the image, then the prompts.
    pub input: &'a [f32],
    /// The logits `[background, object][depth][height][width]`.
    pub logits: &'a [f32],
}

/// The kind of a pass through the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PassKind {
    /// A patch around the newest prompt, maybe zoomed out.
    Coarse {
        /// The voxel in its centre.
        centre: [usize; 3],
        /// The voxels of the image along each axis for one of the patch.
        zoom: f64,
    },
    /// A patch at full resolution.
    Refinement {
        /// Its first voxel, which may be outside of the image.
        start: [i64; 3],
        /// Its number, from 0.
        number: usize,
        /// The number of patches that are refined.
        of: usize,
    },
}

impl InteractiveSession {
    /// Predicts the object with all prompts, around the newest one. Returns the box in which the segmentation may have changed, or `None` if
    /// no prompt was added since the last prediction. `observe` receives each pass.
    ///
    /// # Errors
    /// Returns an error if there is no image, the network's output is not finite, memory is refused or `stop` is set. The segmentation is
    /// unchanged then, and the prompts remain.
    pub fn predict(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Pass<'_>),
    ) -> Result<Option<VoxelBox>, InteractiveError> {
        if self.scene.is_none() {
            return Err(InteractiveError::NoImage);
        }
        let Some(pending) = self.pending else { return Ok(None) };
        let at = self.coarse_pass(pending, stop, observe)?;
        let changed = match at.zoom == 1.0 {
            true => self.accept(at),
            false => self.refine(pending, at, stop, observe)?,
        };
        self.pending = None;
        Ok(changed)
    }

    /// Segments a patch around a prompt, zoomed out as far as its border asks for.
    fn coarse_pass(
        &mut self,
        Pending { centre, zoom, .. }: Pending,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Pass<'_>),
    ) -> Result<Zoomed, InteractiveError> {
        let InteractiveSession { network, planes, scene, prompts, profile, channels, .. } = self;
        let Scene { image, segmentation, .. } = scene.as_ref().ok_or(InteractiveError::NoImage)?;
        let patch = network.patch();
        let previous = Previous { mask: segmentation, origin: [0; 3] };
        let sight = Sight { image, prompts, profile, channels, previous, patch };
        let mut zoom = zoom.min(MOST_ZOOM);
        loop {
            check_going(stop)?;
            let scaled = scaled(patch, zoom);
            let at = Zoomed { start: start(centre, scaled), scaled, zoom };
            match scaled == patch {
                true => sight.patch_at(at.start, network.input()),
                false => sight.zoomed(at, planes, network.input()),
            }
            network.run(at.start)?;
            let (input, logits) = network.last_pass();
            observe(&Pass { kind: PassKind::Coarse { centre, zoom }, input, logits });
            let continues = self.auto_zoom
                && zoom < MOST_ZOOM
                && changes_at_border(
                    patch,
                    |voxel| network.is_object(voxel),
                    |voxel| sight.previous_at(&at, voxel),
                );
            if !continues {
                return Ok(at);
            }
            zoom = (zoom * ZOOM_STEP).min(MOST_ZOOM);
        }
    }

    /// Takes the segmentation of a patch as it is.
    fn accept(&mut self, at: Zoomed) -> Option<VoxelBox> {
        let scene = self.scene.as_mut()?;
        let patch = self.network.patch();
        let within = clipped(at.start, patch, scene.image.shape())?;
        for_each_voxel(within, |voxel| {
            let place = std::array::from_fn(|axis| (voxel[axis] as i64 - at.start[axis]) as usize);
            scene.segmentation.set(voxel, self.network.is_object(place));
        });
        Some(within)
    }

    /// Refines the changes of a coarse segmentation at full resolution.
    fn refine(
        &mut self,
        pending: Pending,
        at: Zoomed,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Pass<'_>),
    ) -> Result<Option<VoxelBox>, InteractiveError> {
        let InteractiveSession { network, scene, prompts, profile, channels, .. } = self;
        let Scene { image, segmentation, refinement, .. } =
            scene.as_mut().ok_or(InteractiveError::NoImage)?;
        let (patch, shape) = (network.patch(), image.shape());
        let coarse = Coarse::new(network, at, shape, refinement, stop)?;
        let changes = Changes { coarse: coarse.as_ref(), segmentation, budget: refinement, patch };
        let starts = changes.boxes(pending, stop)?;
        let hull = Hull::around(&starts, patch);
        let mut present = BitMask::new(hull.extents, REFINEMENT, refinement)?;
        if let Some(within) = clipped(hull.start, hull.extents, shape) {
            for_each_voxel(within, |voxel| present.set(hull.place(voxel), segmentation.get(voxel)));
            let seen = coarse.as_ref().and_then(|coarse| Some((coarse, coarse.seen.intersect(&within)?)));
            if let Some((coarse, seen)) = seen {
                for_each_voxel(seen, |voxel| present.set(hull.place(voxel), coarse.get(voxel)));
            }
        }
        drop(coarse);
        for (number, start) in starts.iter().enumerate() {
            check_going(stop)?;
            let previous = Previous { mask: &present, origin: hull.start };
            Sight { image, prompts, profile, channels, previous, patch }.patch_at(*start, network.input());
            network.run(*start)?;
            let (input, logits) = network.last_pass();
            let kind = PassKind::Refinement { start: *start, number, of: starts.len() };
            observe(&Pass { kind, input, logits });
            let first = std::array::from_fn(|axis| (start[axis] - hull.start[axis]) as usize);
            for_each_voxel(VoxelBox { start: first, shape: patch }, |place| {
                let own = std::array::from_fn(|axis| place[axis] - first[axis]);
                present.set(place, network.is_object(own));
            });
        }
        // Voxels of the hull that no patch has refined keep their segmentation.
        for start in &starts {
            if let Some(within) = clipped(*start, patch, shape) {
                for_each_voxel(within, |voxel| segmentation.set(voxel, present.get(hull.place(voxel))));
            }
        }
        Ok(clipped(hull.start, hull.extents, shape))
    }
}

/// The changes of a coarse segmentation.
struct Changes<'a> {
    coarse: Option<&'a Coarse>,
    segmentation: &'a BitMask,
    budget: &'a plimsoll_memory::Budget,
    patch: [usize; 3],
}

impl Changes<'_> {
    /// The first voxels of the patches that are refined: those that cover the changes, or the one around the prompt if there are none.
    fn boxes(&self, pending: Pending, stop: &AtomicBool) -> Result<Vec<[i64; 3]>, InteractiveError> {
        let around_prompt = vec![start(pending.centre, self.patch)];
        let Some(coarse) = self.coarse else { return Ok(around_prompt) };
        let mut mask = BitMask::new(coarse.seen.shape, REFINEMENT, self.budget)?;
        let first = coarse.seen.start;
        for_each_voxel(coarse.seen, |voxel| {
            let place = std::array::from_fn(|axis| voxel[axis] - first[axis]);
            mask.set(place, coarse.mask.get(place) != self.segmentation.get(voxel));
        });
        open(&mut mask, REFINEMENT, self.budget)?;
        let mut origin = first;
        if let Some(bounds) = self.segmentation.bounds().filter(|_| pending.whole) {
            let planned = coarse.seen.around(&bounds);
            let mut all = BitMask::new(planned.shape, REFINEMENT, self.budget)?;
            for_each_voxel(planned, |voxel| {
                let place = std::array::from_fn(|axis| voxel[axis] - planned.start[axis]);
                let is_change = coarse.seen.contains_voxel(voxel)
                    && mask.get(std::array::from_fn(|axis| voxel[axis] - first[axis]));
                all.set(place, is_change || self.segmentation.get(voxel));
            });
            (mask, origin) = (all, planned.start);
        }
        check_going(stop)?;
        let centres = Boxes { extents: self.patch, margin: REFINED_MARGIN }.cover(&mut mask, stop)?;
        if centres.is_empty() {
            return Ok(around_prompt);
        }
        let around =
            |centre: [usize; 3]| start(std::array::from_fn(|axis| centre[axis] + origin[axis]), self.patch);
        Ok(centres.into_iter().map(around).collect())
    }
}

impl Coarse {
    fn get(&self, voxel: [usize; 3]) -> bool {
        self.mask.get(std::array::from_fn(|axis| voxel[axis] - self.seen.start[axis]))
    }
}

/// The smallest box around some patches.
struct Hull {
    start: [i64; 3],
    extents: [usize; 3],
}

impl Hull {
    fn around(starts: &[[i64; 3]], patch: [usize; 3]) -> Hull {
        let ends = |axis: usize| {
            let along = || starts.iter().map(move |start| start[axis]);
            (along().min().unwrap_or(0), along().max().unwrap_or(0))
        };
        Hull {
            start: std::array::from_fn(|axis| ends(axis).0),
            extents: std::array::from_fn(|axis| {
                let (first, last) = ends(axis);
                (last - first) as usize + patch[axis]
            }),
        }
    }

    /// The place of a voxel of the image.
    fn place(&self, voxel: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| (voxel[axis] as i64 - self.start[axis]) as usize)
    }
}

/// Calls a function with each voxel of a box.
fn for_each_voxel(within: VoxelBox, mut call: impl FnMut([usize; 3])) {
    let VoxelBox { start, shape } = within;
    for depth in start[0]..start[0] + shape[0] {
        for height in start[1]..start[1] + shape[1] {
            for width in start[2]..start[2] + shape[2] {
                call([depth, height, width]);
            }
        }
    }
}
