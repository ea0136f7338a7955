//! Cases as nnU-Net's networks see them, window by window.
//!
//! nnU-Net transposes an image, cuts it to the box that is not zero, normalises it, and resizes it as a whole by a cubic spline. Here
//! none of that is done to a whole image: a [`PreparedCase`] reads what a window is made of with a margin, from which the spline's
//! coefficients follow to the last bits of f32 whatever lies beyond, and holds scratch of a fixed size. What does depend on all of
//! the image is found in one pass over it before: the mask, statistics inside the mask, and the ranges that results are clipped to.

mod earlier;
mod error;
mod kept_image;
mod lines;
mod normalised;
mod rule;
mod spaced_case;
mod survey;
mod window;
mod window_source;
mod zoom;
mod zoomed_case;
mod zoomed_image;
mod zoomed_source;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox};

pub use error::PrepareError;
pub use kept_image::KeptImage;
pub use normalised::Normalising;
pub use spaced_case::{SpacedCase, SpacedGrid};
pub use window_source::WindowSource;
pub use zoomed_case::{ZoomedCase, ZoomedGrid, ZoomedRoom, Zooming};
pub use zoomed_image::ZoomedImage;

use crate::mask::Mask;
use crate::moments::Moments;
use crate::prepare::earlier::Earlier;
use crate::prepare::rule::{Lattice, ResizeRule};
use crate::prepare::survey::Ranges;
pub(crate) use crate::prepare::survey::Survey;
use crate::prepare::window::{Channel, Part, cleared};
use crate::{
    Case, CaseFingerprint, CaseSource, ChannelStatistics, Intensity, IntensityProperties, Interpolation,
    LabelTies, NnUnetSteps, NoStatistics, Normalisation, Planes, Scratch, StepOrder, TargetGrid, VolumeCache,
    resampled_shape,
};

/// The scratch of a [`PreparedCase`]: a cube of a hundred voxels twice, as one axis after the other is resized.
pub const PREPARED_SCRATCH: Bytes = Scratch::DEFAULT;

/// Planes of which statistics are taken at a time: the splines of each part read a margin of its neighbours.
const SLAB: usize = 16;

/// The grid of a case's windows, with the maps from stored voxels and of logits back: everything that follows
/// from the stored grid alone.
#[derive(Clone, Debug)]
pub struct PreparedGrid {
    grid: TargetGrid,
    spacing: Spacing,
    target: Spacing,
    images: ResizeRule,
    labels: ResizeRule,
}

impl PreparedGrid {
    /// The grid of a case with a stored grid, whose channels are zero outside of its box `nonzero`. `stated` is
    /// the stored spacing (depth, height, width) in the file, which an oblique affine has only approximately.
    ///
    /// # Errors
    /// If the steps are impossible.
    pub fn new(
        stored: &Geometry,
        stated: Spacing,
        nonzero: VoxelBox,
        steps: &NnUnetSteps,
    ) -> Result<PreparedGrid, PrepareError> {
        let nonzero = match steps.order {
            StepOrder::NnUnet => nonzero,
            StepOrder::HdBet => VoxelBox::whole(stored.shape()),
        };
        let first = if steps.reorients { stored.canonical().1 } else { Reorientation::IDENTITY };
        let found = stored.shape()[0];
        match steps.planes {
            Planes::One if found != 1 => return Err(PrepareError::SeveralPlanes { found }),
            Planes::Several if found == 1 => return Err(PrepareError::OnePlane),
            Planes::Any | Planes::One | Planes::Several => {}
        }
        let refused = PrepareError::Transposed { found: steps.transposed };
        if steps.transposed.iter().any(|axis| *axis > 2) {
            return Err(refused);
        }
        let axes = steps.transposed.map(|axis| first.source_axis()[axis]);
        let flip = steps.transposed.map(|axis| first.flip()[axis]);
        let Some(reorientation) = Reorientation::new(axes, flip) else { return Err(refused) };
        for (what, resizing) in [("logits", steps.logits), ("labels", steps.labels)] {
            if [resizing.order, resizing.order_across].contains(&Interpolation::Cubic) {
                return Err(PrepareError::Cubic { what });
            }
        }
        let from = reorientation.shape(nonzero.shape);
        let spacing = Spacing(axes.map(|axis| stated.0[axis]));
        let target = steps.spacing.for_image(spacing);
        let to = resampled_shape(from, spacing, target);
        let cropped = Lattice { shape: from, spacing };
        let resized = Lattice { shape: to, spacing: target };
        let back = ResizeRule::new(steps.logits, resized, cropped);
        let takes_nearest = |axis: usize| back.along[axis] == Some(Interpolation::Nearest);
        let rule = |resizing| ResizeRule::new(resizing, cropped, resized);
        let grid = TargetGrid::over(stored.shape(), nonzero, reorientation, to, [0, 1, 2].map(takes_nearest));
        Ok(PreparedGrid {
            grid: match steps.order {
                StepOrder::NnUnet => grid,
                StepOrder::HdBet => grid.whose_middle(resampled_shape(to, target, spacing)),
            },
            spacing,
            target,
            images: rule(steps.images),
            labels: rule(steps.labels),
        })
    }

    /// The grid of windows.
    pub fn grid(&self) -> &TargetGrid {
        &self.grid
    }

    /// The shape of the box that is not zero, and its spacing, along the network's axes.
    pub fn cropped(&self) -> ([usize; 3], Spacing) {
        (self.images.from, self.spacing)
    }

    /// The spacing that it is brought to.
    pub fn target(&self) -> Spacing {
        self.target
    }

    /// The extent of the parts in which statistics of the grid are taken.
    fn slab(&self) -> [usize; 3] {
        let [depth, height, width] = self.grid.shape();
        [depth.min(SLAB), height, width]
    }

    /// Bytes that a prepared case reserves while it is made and for as long as it lives, beside its cache.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(&self, steps: &NnUnetSteps, has_earlier: bool) -> Result<Bytes, PrepareError> {
        let covered = self.grid.covered();
        let mut bytes = Bytes::ZERO;
        if has_earlier || steps.channels.iter().any(inside_mask) {
            // Holes are filled with a second bit for each voxel.
            bytes = bytes + Mask::bytes(covered)? + Mask::bytes(covered)?;
        }
        if steps.order == StepOrder::HdBet {
            let voxels = self.slab().iter().product::<usize>();
            bytes += Mapped::<f32>::bytes(voxels.saturating_mul(steps.channels.len()))?;
        }
        let slices = self.images.across.map_or(1, |axis| self.images.from[axis]);
        // Ranges of each channel, and of the voxels outside of the mask beside the last.
        let ranges = Ranges::bytes(slices)?.0.saturating_mul(steps.channels.len() as u64 + 1);
        Ok(bytes + Survey::bytes(covered)? + Bytes(ranges))
    }
}

/// Returns `true` if a channel's statistics are taken over the mask. nnU-Net's other normalisations ignore it.
fn inside_mask(channel: &crate::MaskedNormalisation) -> bool {
    channel.inside_mask && channel.normalisation == Normalisation::ZScore
}

/// A case to prepare.
pub struct Preparing<'a> {
    /// The images.
    pub case: &'a Case,
    /// The fingerprint from an inspection of the images.
    pub fingerprint: &'a CaseFingerprint,
    /// How.
    pub steps: &'a NnUnetSteps,
    /// Intensities of the foreground of the data set that the model was trained on, by channel.
    pub foreground: &'a BTreeMap<usize, IntensityProperties>,
    /// The labels of an earlier network, on the stored grid, and how many labels above 0 there are.
    pub earlier: Option<(&'a Path, usize)>,
}

/// A channel, once it is known how it is normalised.
struct PreparedChannel {
    intensity: Intensity,
    is_masked: bool,
    ranges: Option<Ranges>,
}

/// A case whose windows can be pulled as nnU-Net's networks see them.
pub struct PreparedCase {
    place: PreparedGrid,
    source: CaseSource,
    channels: Vec<PreparedChannel>,
    mask: Option<Mask>,
    earlier_labels: usize,
    ties: LabelTies,
}

impl PreparedCase {
    /// Opens the images of a case, and reads from all of them what no window has alone. Reserves no more than
    /// [`PreparedGrid::bytes`] from `budget`.
    ///
    /// # Errors
    /// If a file cannot be read, a channel cannot be normalised, the budget has no room, or `stop` is set.
    pub fn open(
        what: &Preparing<'_>,
        place: PreparedGrid,
        cache: &VolumeCache,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<PreparedCase, PrepareError> {
        let steps = what.steps;
        let (found, expected) = (what.case.images.len(), steps.channels.len());
        if found != expected || what.fingerprint.channels.len() != expected {
            return Err(PrepareError::Channels { found, expected });
        }
        let mut case = what.case.clone();
        case.label = what.earlier.map(|(path, _)| path.into());
        let unchanged = vec![Intensity::UNCHANGED; expected];
        let mut source = CaseSource::open_unless(&case, &unchanged, case.label.is_some(), cache, stop)?;
        check_shapes(&source, place.grid.stored_shape(), case.label.as_deref())?;
        let covered = place.grid.covered();
        let stored_axis = place.grid.reorientation().source_axis();
        let rule = &place.images;
        let across = rule.across.filter(|_| rule.overshoots()).map(|axis| stored_axis[axis]);
        let mut survey = Survey::new(covered, across, budget)?;
        let is_normalised_inside = steps.channels.iter().any(inside_mask);
        let mut mask = match what.earlier.is_some() || is_normalised_inside {
            true => Some(survey.mask(&mut source, budget, stop)?),
            false => None,
        };
        // nnU-Net 2.8.1 keeps the mask as a separate label among the labels of the earlier network, `crop_to_nonzero` only where there is no
        // other: what has a label counts as inside of it. To the channels of labels that makes no difference.
        if let (Some(mask), Some(labels)) =
            (mask.as_mut().filter(|_| is_normalised_inside), source.label_map())
        {
            survey.add_labels(mask, labels, stop)?;
        }
        let mut channels = Vec::with_capacity(expected);
        for (index, (channel, own)) in steps.channels.iter().zip(&what.fingerprint.channels).enumerate() {
            let normalisation = channel.normalisation;
            let is_masked = inside_mask(channel);
            let intensity = |own: &crate::ChannelStatistics| {
                let found = normalisation.intensity(own, what.foreground.get(&index));
                found.ok_or(NoStatistics { channel: index, normalisation })
            };
            let overshoots = place.images.overshoots();
            if steps.order == StepOrder::HdBet {
                // The spline is linear, so normalising what it is made of is normalising its result.
                let ranges = Ranges::whole_volume([own.min as f32, own.max as f32], budget)?;
                let ranges = Some(ranges).filter(|_| overshoots);
                channels.push(PreparedChannel { intensity: Intensity::UNCHANGED, is_masked: false, ranges });
                continue;
            }
            let (intensity, ranges) = if is_masked || (overshoots && survey.across.is_some()) {
                let of_channel = mask.as_ref().filter(|_| is_masked);
                let surveyed = survey.channel(&mut source, index, of_channel, budget, stop)?;
                let intensity = intensity(if is_masked { &surveyed.statistics } else { own })?;
                (intensity, Some(surveyed.normalised(intensity)))
            } else {
                let intensity = intensity(own)?;
                let mut range = [own.min as f32, own.max as f32];
                intensity.apply(&mut range);
                (intensity, Some(Ranges::whole_volume(range, budget)?))
            };
            channels.push(PreparedChannel { intensity, is_masked, ranges: ranges.filter(|_| overshoots) });
        }
        let earlier_labels = what.earlier.map_or(0, |(_, labels)| labels);
        Ok(PreparedCase { place, source, channels, mask, earlier_labels, ties: steps.ties })
    }

    /// Normalises the channels by statistics of all voxels of the grid, if the steps say so, which takes a pass over it. Reserves a part of
    /// [`PreparedGrid::bytes`] from `budget` meanwhile.
    ///
    /// # Errors
    /// If a file cannot be read, a channel cannot be normalised, the budget has no room, or `stop` is set.
    pub fn normalised_on_grid(
        mut self,
        what: &Preparing<'_>,
        scratch: &mut Scratch,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<PreparedCase, PrepareError> {
        if what.steps.order == StepOrder::NnUnet {
            return Ok(self);
        }
        let (count, [planes, height, width]) = (self.channels.len(), self.place.slab());
        let depth = self.place.grid.shape()[0];
        let mut slab = Mapped::<f32>::zeroed(budget, "planes of an image", count * planes * height * width)?;
        let mut moments = vec![Moments::NONE; count];
        for first in (0..depth).step_by(planes.max(1)) {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Stopped);
            }
            let window = [planes.min(depth - first), height, width];
            let voxels: usize = window.iter().product();
            let values = &mut slab[..count * voxels];
            self.window([first as i64, 0, 0], window, values, scratch)?;
            for (moments, values) in moments.iter_mut().zip(values.chunks_exact(voxels.max(1))) {
                *moments = moments.and(Moments::from_values(values));
            }
        }
        let channels = self.channels.iter_mut().zip(&what.steps.channels).zip(&moments);
        for (index, ((channel, step), own)) in channels.enumerate() {
            let normalisation = step.normalisation;
            let own = ChannelStatistics { mean: own.mean, std: own.deviation(), min: own.min, max: own.max };
            let found = normalisation.intensity(&own, what.foreground.get(&index));
            channel.intensity = found.ok_or(NoStatistics { channel: index, normalisation })?;
            if let Some(ranges) = &mut channel.ranges {
                ranges.normalise(channel.intensity);
            }
        }
        Ok(self)
    }

    /// The channels of a window: the channels of the image, then of earlier labels.
    pub fn channels(&self) -> usize {
        self.channels.len() + self.earlier_labels
    }
}

impl WindowSource for PreparedCase {
    fn grid(&self) -> &TargetGrid {
        self.place.grid()
    }

    fn window(
        &mut self,
        from: [i64; 3],
        window: [usize; 3],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), PrepareError> {
        let voxels = cleared(out, self.channels(), window)?;
        let Some(part) = Part::within_window(self.place.grid.shape(), from, window) else { return Ok(()) };
        let (images, earlier) = out.split_at_mut(voxels * self.channels.len());
        for (index, out) in images.chunks_exact_mut(voxels.max(1)).enumerate() {
            let channel = &self.channels[index];
            let (image, found) = self.source.channel(index);
            let path = image.path().to_path_buf();
            let pulling = Channel {
                grid: &self.place.grid,
                rule: &self.place.images,
                ranges: channel.ranges.as_ref(),
                mask: self.mask.as_ref().filter(|_| channel.is_masked),
                path: &path,
            };
            pulling.pull(part, out, window, scratch.memory(), &mut |region, values| {
                image.read_f32(found.index, region, values)?;
                channel.intensity.apply(values);
                Ok(())
            })?;
        }
        if let (Some(mask), Some(image)) = (&self.mask, self.source.label_map()) {
            let labels = Earlier {
                grid: &self.place.grid,
                rule: &self.place.labels,
                mask,
                labels: self.earlier_labels,
                ties: self.ties,
            };
            let memory = bytemuck::cast_slice_mut(scratch.memory());
            labels.pull(part, earlier, window, memory, image)?;
        }
        Ok(())
    }
}

/// Checks that all files have the shape that was inspected.
fn check_shapes(
    source: &CaseSource,
    expected: [usize; 3],
    earlier: Option<&Path>,
) -> Result<(), PrepareError> {
    let files = source.shapes().count();
    for (number, (path, found)) in source.shapes().enumerate() {
        if found != expected && earlier.is_some() && number + 1 == files {
            return Err(PrepareError::EarlierShape { path: path.into(), found, expected });
        }
        if found != expected {
            return Err(PrepareError::Patch(crate::PatchError::Changed {
                path: path.into(),
                found,
                expected,
            }));
        }
    }
    Ok(())
}
