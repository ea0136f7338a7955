//! Labels that were decided on a grid of their own: the image of that grid before, and the way back to the stored one after.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, PrepareError, TargetGrid, ZoomedImage};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{ElementType, Spacing, StoredVolume, VolumeFile, VolumeWriter, VoxelBox};

use crate::cases::believable::{self, ImageGrid};
use crate::error::{InferError, internal, unreadable};
use crate::labels::label_maps::{go_on, writing};

/// The grid of the image of a case, or of a box of it, at a spacing or at that which it has: in the canonical orientation.
///
/// # Errors
/// Returns an error if the image cannot be read, or its spacing cannot be meant.
pub fn zoomed_image(
    case: &Case,
    within: Option<VoxelBox>,
    spacing: Option<Spacing>,
) -> Result<ZoomedImage, InferError> {
    let image = case.images.first().ok_or_else(|| unreadable(case))?;
    let geometry = *VolumeFile::open(&image.path)?.geometry();
    let (canonical, reorientation) = geometry.canonical();
    let covered = within.map_or(canonical.shape(), |within| reorientation.shape(within.shape));
    let own = canonical.spacing();
    let image = ImageGrid { shape: covered, spacing: own };
    believable::check(case, image, spacing.unwrap_or(own))?;
    Ok(ZoomedImage::new(&geometry, within, spacing))
}

/// Writes the image of a case on such a grid, as `.nii` in f32.
///
/// # Errors
/// Returns the errors of [`ZoomedImage::write`].
pub fn write_zoomed(
    case: &Case,
    image: &ZoomedImage,
    to: &Path,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    image.write(case, to, budget, stop).map_err(|problem| match problem {
        PrepareError::Stopped => InferError::Interrupted { case: case.id.clone() },
        source => InferError::Prepare { case: case.id.clone(), source: Box::new(source) },
    })
}

/// Writes labels of 8 bits on the grid of a zoomed image as labels on the grid of the stored `image`, whose header is kept: each voxel takes the
/// nearest one, and beyond what is covered there is background. The zoomed labels are held, a byte for each voxel, and a stored plane.
///
/// # Errors
/// Returns an error if a file cannot be read or written, the labels are not on the grid, the budget has no room, or `stop` is set.
pub fn labels_as_stored(
    labels: &Path,
    grid: &TargetGrid,
    image: &Path,
    to: &Path,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let template = VolumeFile::open(image)?;
    let geometry = *template.geometry();
    let zoomed = StoredVolume::read(labels, budget, "labels")?;
    let (found, expected) = (zoomed.geometry().shape(), grid.shape());
    if found != expected || zoomed.element_type() != ElementType::U8 {
        return Err(InferError::OtherShape { path: labels.into(), found, expected });
    }
    if geometry.shape() != grid.stored_shape() {
        let (found, expected) = (geometry.shape(), grid.stored_shape());
        return Err(InferError::OtherShape { path: image.into(), found, expected });
    }
    let [_, height, width] = expected;
    let strides = [height * width, width, 1];
    // Where in the zoomed labels a stored voxel is found, along each stored axis; none where it is not covered.
    let places = [0, 1, 2].map(|axis| {
        let stride = strides[grid.axis_of(axis).0];
        let count = geometry.shape()[axis];
        (0..count)
            .map(|index| grid.place(axis, index).map(|place| place as usize * stride))
            .collect::<Vec<Option<usize>>>()
    });
    let [depths, heights, widths] = &places;
    let _writing = writing(1, budget)?;
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", heights.len() * widths.len())?;
    let mut writer = VolumeWriter::create(to, &geometry, 1, ElementType::U8, template.header())
        .map_err(InferError::Write)?;
    for depth in depths {
        go_on(to, stop)?;
        plane.fill(0);
        if let Some(depth) = depth {
            for (row, height) in plane.chunks_mut(widths.len().max(1)).zip(heights) {
                let Some(height) = height else { continue };
                for (label, width) in row.iter_mut().zip(widths) {
                    // Beyond what is covered there is background.
                    let Some(width) = width else { continue };
                    let found = zoomed.bytes().get(depth + height + width);
                    *label = *found.ok_or_else(|| internal("a voxel beyond its grid is looked up"))?;
                }
            }
        }
        writer.write_planes(&plane).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}
