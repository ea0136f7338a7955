//! Pulling a patch: reading the part of the stored images that it touches, and interpolating once.

use std::fmt;
use std::path::PathBuf;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::{
    Outside, PullError, SourceBlock, VolumeError, VoxelBox, VoxelMap, pull_cubic, pull_labels, pull_linear,
    sample_cubic, sample_labels, sample_linear,
};

use crate::mask::OUTSIDE;
use crate::patch::augmentation::ImageInterpolation;
use crate::patch::recipe::{Recipe, rows};
use crate::patch::separable::slab_length;
use crate::patch::source::CaseSource;
use crate::patch::tiles::{Tiling, TooSmall, is_contiguous, within};
use plimsoll_random::{Draws, Purpose};

/// A thread's memory for parts of source images while it interpolates: reserved once, of fixed size.
pub struct Scratch {
    voxels: Mapped<f32>,
}

impl Scratch {
    /// 8 MiB, a cube of 128 voxels in f32: more is needed only for filters along the axes of patches with larger planes.
    pub const DEFAULT: Bytes = Bytes::mib(8);

    /// The scratch that suffices for patches of a shape, of images with at most `largest` voxels: twice the
    /// patch, which is more than a patch at the image's own spacing reads when it is rotated by thirty degrees
    /// about an axis; at most the largest image beside a patch, and at most [`DEFAULT`](Scratch::DEFAULT).
    /// Patches that read more are pulled in pieces. It is at least what filters along an axis need.
    pub fn for_patches(patch: [usize; 3], largest: usize) -> Bytes {
        const LEAST: Bytes = Bytes(64 << 10);
        let voxels = patch.iter().fold(2usize, |product, extent| product.saturating_mul(*extent));
        // What is not contiguous in a patch is put together beside what is read.
        let enough = voxels.min(largest.saturating_add(voxels / 2)).saturating_mul(size_of::<f32>());
        let slab =
            Bytes::from_len(slab_length(patch).saturating_mul(size_of::<f32>()).next_multiple_of(4096));
        Bytes::from_len(enough.next_multiple_of(4096)).clamp(LEAST, Scratch::DEFAULT).max(slab)
    }

    /// Scratch of `bytes`, rounded up to whole pages, reserved from `budget` for as long as it lives.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub fn new(budget: &Budget, bytes: Bytes) -> Result<Scratch, MapError> {
        Ok(Scratch { voxels: Mapped::zeroed(budget, "scratch", Scratch::elements(bytes))? })
    }

    /// The bytes that scratch of `bytes` reserves.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub fn reserves(bytes: Bytes) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(Scratch::elements(bytes))
    }

    /// The memory itself.
    pub(crate) fn memory(&mut self) -> &mut [f32] {
        &mut self.voxels
    }

    fn elements(bytes: Bytes) -> usize {
        usize::try_from(bytes.0).unwrap_or(usize::MAX).div_ceil(size_of::<f32>())
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({})", self.voxels.reserved())
    }
}

/// Why a patch could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A file cannot be read.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// An image's shape has changed since the data set was inspected.
    #[error("{path} has shape {found:?}, but had {expected:?} when the data set was inspected")]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its shape (depth, height, width) as stored.
        found: [usize; 3],
        /// Its shape when inspected.
        expected: [usize; 3],
    },
    /// The scratch is too small even for one voxel of the patch.
    #[error("{path}: one voxel of a patch reads {needed} of the image, but the scratch has {found}")]
    ScratchTooSmall {
        /// The file.
        path: PathBuf,
        /// The bytes needed at least.
        needed: Bytes,
        /// The bytes of the scratch.
        found: Bytes,
    },
    /// The scratch is too small to filter the patch along its axes.
    #[error("filters along the axes of a patch need {needed} of scratch, but it has {found}")]
    ScratchForFilters {
        /// The bytes needed.
        needed: Bytes,
        /// The bytes of the scratch.
        found: Bytes,
    },
    /// A buffer's length differs from the patch's.
    #[error("the buffer for a patch of {expected} values has {found}")]
    BufferLength {
        /// Values of the patch.
        expected: usize,
        /// Values of the buffer.
        found: usize,
    },
    /// Labels were requested, but the case has none.
    #[error("the case has no label map")]
    NoLabel,
    /// The map cannot be resampled through.
    #[error("{path}: {problem}")]
    Interpolation {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        problem: Box<PullError>,
    },
}

impl PatchError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PatchError::Volume(problem) => problem.remedy(),
            PatchError::Changed { .. } => Some("inspect the data set again".into()),
            PatchError::ScratchTooSmall { needed, .. } | PatchError::ScratchForFilters { needed, .. } => {
                Some(format!("raise the scratch to {needed} at least; {} is usual", Scratch::DEFAULT))
            }
            PatchError::Interpolation { problem, .. } => problem.remedy(),
            PatchError::BufferLength { .. } | PatchError::NoLabel => None,
        }
    }
}

/// Fills a patch: `image` with normalised intensities `[channel][depth][height][width]`, interpolated as the recipe says, and
/// `labels` with `[depth][height][width]`, the arg max of their linearly interpolated one-hot encoding
/// ([`pull_labels`]). Outside of the image, normalised intensities are 0 and labels are background. A patch that is
/// neither rotated nor resampled copies voxels exactly.
///
/// Channels that are normalised inside of a mask are 0 outside of it: in the stored image, before it is interpolated, and in the patch
/// in the end, after all changes of intensities, where the mask is a label like others
/// (`MaskImageTransform` of nnU-Net). Without `labels` that last step is left out, as nnU-Net leaves it out in prediction.
///
/// Only the part of each image that the patch touches is read, in pieces that fit `scratch`; the result does not depend
/// on how many. A patch coarser than the source skips the voxels between its samples: there is no low-pass filter.
///
/// # Errors
/// If a file cannot be read or has changed since it was inspected, a buffer has the wrong length, or the scratch cannot
/// hold the voxels of one sample, or what filters along an axis need.
pub fn pull(
    recipe: &Recipe,
    source: &mut CaseSource,
    image: &mut [f32],
    mut labels: Option<&mut [u8]>,
    scratch: &mut Scratch,
) -> Result<(), PatchError> {
    let (voxels, mask) = (recipe.voxels(), source.mask());
    check_length(voxels * source.channels(), image.len())?;
    for (path, found) in source.shapes() {
        if found != recipe.stored_shape {
            return Err(PatchError::Changed { path: path.into(), found, expected: recipe.stored_shape });
        }
    }
    if let Some(labels) = labels.as_deref_mut() {
        check_length(voxels, labels.len())?;
        let image = source.label_map().ok_or(PatchError::NoLabel)?;
        let memory = bytemuck::cast_slice_mut(&mut scratch.voxels);
        let interpolator = Interpolator { affine: pull_labels, at_points: sample_labels, margin: 0 };
        let outside = if mask.is_some() { OUTSIDE } else { 0 };
        let layer = Layer { path: image.path().into(), outside, interpolator };
        pull_one(recipe, &layer, labels, memory, |region, voxels| {
            image.read(region, voxels)?;
            mask.iter().for_each(|mask| mask.runs.set_outside(region, voxels, OUTSIDE));
            Ok(())
        })?;
    }
    let interpolator = match recipe.interpolation {
        ImageInterpolation::Linear => {
            Interpolator { affine: pull_linear, at_points: sample_linear, margin: 0 }
        }
        ImageInterpolation::Cubic => Interpolator { affine: pull_cubic, at_points: sample_cubic, margin: 1 },
    };
    for (channel, out) in image.chunks_exact_mut(voxels.max(1)).enumerate() {
        let mask = mask.as_ref().filter(|mask| mask.has(channel));
        // Images are normalised before they are interpolated, so the value outside is 0 for every normalisation.
        let (image, channel) = source.channel(channel);
        let layer = Layer { path: image.path().into(), outside: 0.0, interpolator };
        pull_one(recipe, &layer, out, &mut scratch.voxels, |region, voxels| {
            image.read_f32(channel.index, region, voxels)?;
            channel.intensity.apply(voxels);
            mask.iter().for_each(|mask| mask.runs.set_outside(region, voxels, 0.0));
            Ok(())
        })?;
    }
    let stream = recipe.stream;
    let filters = recipe.change.needs_slab();
    if filters && scratch.voxels.len() < slab_length(recipe.patch) {
        let bytes = |values: usize| Bytes::from_len(values.saturating_mul(size_of::<f32>()));
        let (needed, found) = (bytes(slab_length(recipe.patch)), bytes(scratch.voxels.len()));
        return Err(PatchError::ScratchForFilters { needed, found });
    }
    recipe.change.apply(image, recipe.patch, &mut scratch.voxels, || {
        Draws::new(stream.seed, Purpose::Noise, stream.group, stream.step, stream.sample)
    });
    if let (Some(mask), Some(labels)) = (mask, labels) {
        for (channel, values) in image.chunks_exact_mut(voxels.max(1)).enumerate() {
            if mask.has(channel) {
                let outside = values.iter_mut().zip(&*labels).filter(|(_, label)| **label == OUTSIDE);
                outside.for_each(|(value, _)| *value = 0.0);
            }
        }
        labels.iter_mut().filter(|label| **label == OUTSIDE).for_each(|label| *label = 0);
    }
    Ok(())
}

fn check_length(expected: usize, found: usize) -> Result<(), PatchError> {
    if expected == found { Ok(()) } else { Err(PatchError::BufferLength { expected, found }) }
}

/// One channel of the image, or the label map.
struct Layer<T> {
    /// The file, for error messages.
    path: PathBuf,
    /// The value outside of the stored image.
    outside: T,
    interpolator: Interpolator<T>,
}

type ThroughMap<T> =
    fn(&SourceBlock<'_, T>, &VoxelMap, [usize; 3], Outside<T>, &mut [T]) -> Result<(), PullError>;
type AtPoints<T> = fn(&SourceBlock<'_, T>, &[[f64; 3]], Outside<T>, &mut [T]) -> Result<(), PullError>;

/// The interpolation of a layer.
#[derive(Clone, Copy)]
struct Interpolator<T> {
    /// Through an affine map.
    affine: ThroughMap<T>,
    /// At given source indices.
    at_points: AtPoints<T>,
    /// The voxels that are read beyond the neighbours of linear interpolation.
    margin: usize,
}

fn pull_one<T: Copy>(
    recipe: &Recipe,
    layer: &Layer<T>,
    out: &mut [T],
    memory: &mut [T],
    mut read: impl FnMut(VoxelBox, &mut [T]) -> Result<(), VolumeError>,
) -> Result<(), PatchError> {
    let path = &layer.path;
    let bytes = |elements: usize| Bytes::from_len(elements.saturating_mul(size_of::<T>()));
    let found = bytes(memory.len());
    let too_small = |TooSmall { needed }| PatchError::ScratchTooSmall {
        path: path.clone(),
        needed: bytes(needed),
        found,
    };
    let in_file =
        |problem: PullError| PatchError::Interpolation { path: path.clone(), problem: Box::new(problem) };
    let region = |part: &VoxelBox| recipe.region(part, layer.interpolator.margin);
    let tiling = Tiling::new(&recipe.map, &region, recipe.patch, memory.len());
    tiling.visit(too_small, &mut |tile| {
        let Some(region) = tile.region else {
            copy_rows(&tile.part, recipe.patch, |row| out[row].fill(layer.outside));
            return Ok(());
        };
        // Neither product overflows, as the tiling has checked.
        let (voxels, aside) = memory.split_at_mut(region.shape.iter().product());
        read(region, voxels)?;
        let block = SourceBlock::new(voxels, region, recipe.stored_shape).map_err(in_file)?;
        let count = tile.part.shape.iter().product::<usize>();
        if is_contiguous(&tile.part, recipe.patch) {
            let first = offset(tile.part.start, recipe.patch);
            return interpolate(recipe, layer, &block, &tile.part, &mut out[first..first + count])
                .map_err(in_file);
        }
        let aside = &mut aside[..count];
        interpolate(recipe, layer, &block, &tile.part, aside).map_err(in_file)?;
        let mut rows = aside.chunks_exact(tile.part.shape[2]);
        copy_rows(&tile.part, recipe.patch, |row| {
            if let Some(pulled) = rows.next() {
                out[row].copy_from_slice(pulled);
            }
        });
        Ok(())
    })
}

/// Interpolates a part of a patch, whose voxels go to `out` one after the other.
fn interpolate<T: Copy>(
    recipe: &Recipe,
    layer: &Layer<T>,
    block: &SourceBlock<'_, T>,
    part: &VoxelBox,
    out: &mut [T],
) -> Result<(), PullError> {
    let outside = Outside::Constant(layer.outside);
    let Some(deformation) = &recipe.deformation else {
        return (layer.interpolator.affine)(block, &within(&recipe.map, part), part.shape, outside, out);
    };
    let width = part.shape[2];
    let mut points = vec![[0.0; 3]; width];
    for ((d, h), row) in rows(part).zip(out.chunks_exact_mut(width)) {
        recipe.points(deformation, d, h, part.start[2], &mut points);
        (layer.interpolator.at_points)(block, &points, outside, row)?;
    }
    Ok(())
}

fn offset(start: [usize; 3], patch: [usize; 3]) -> usize {
    (start[0] * patch[1] + start[1]) * patch[2] + start[2]
}

/// Calls `copy` with the index range in the patch of each row of a part.
fn copy_rows(part: &VoxelBox, patch: [usize; 3], mut copy: impl FnMut(std::ops::Range<usize>)) {
    let [depth, height, width] = part.start;
    for d in depth..depth + part.shape[0] {
        for h in height..height + part.shape[1] {
            let first = offset([d, h, width], patch);
            copy(first..first + part.shape[2]);
        }
    }
}
