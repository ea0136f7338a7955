//! One class of a prediction and of its reference, cropped to its bounding box.
//!
//! Scores of shape need memory per voxel. They are computed inside the bounding box of prediction and reference
//! together, one class at a time.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::VoxelBox;

use crate::compare::{CaseFiles, copy_region};
use crate::{Confusion, LabelMaps, MetricError};

/// The margin of background around the box, in voxels.
const MARGIN: usize = 1;

/// A class as two masks (0 and 1) inside the box of both, with a margin of background along every axis of the grid that
/// has more than one voxel. The grid is three-dimensional, or an image, which has depth 1 whichever its flat axis is.
#[derive(Debug)]
pub struct ClassMasks {
    shape: [usize; 3],
    spacing: [f64; 3],
    counted_voxels: u64,
    prediction: Mapped<u8>,
    reference: Mapped<u8>,
}

/// A class in a grid, of which some voxels may not be counted.
#[derive(Clone, Copy)]
pub(crate) struct CountedClass<'a> {
    /// The labels of its voxels.
    pub(crate) labels: &'a [u8],
    /// The number of voxels of the grid that are counted.
    pub(crate) counted_voxels: u64,
}

impl ClassMasks {
    /// Crops a class from two label maps of `shape` (depth, height, width) with voxels `spacing` mm apart. Uses 2 bytes
    /// per voxel of the box from `budget`.
    ///
    /// # Errors
    /// Returns an error if a map's length does not match the shape or the memory is not available.
    pub fn new(
        class: u8,
        prediction: &[u8],
        reference: &[u8],
        shape: [usize; 3],
        spacing: [f64; 3],
        budget: &Budget,
    ) -> Result<ClassMasks, MetricError> {
        let [_, height, width] = shape;
        let needed = VoxelBox::whole(shape).voxel_count();
        if needed != Some(prediction.len()) || needed != Some(reference.len()) {
            let found = [prediction.len(), reference.len()];
            return Err(MetricError::Length { found, shape });
        }
        let plane = height * width;
        let mut confusion = Confusion::default();
        let planes = prediction.chunks(plane.max(1)).zip(reference.chunks(plane.max(1)));
        for (z, (prediction, reference)) in planes.enumerate() {
            confusion.add_plane(z, width, reference, prediction);
        }
        let bounds = confusion.bounds(&[class]).unwrap_or(VoxelBox { start: [0; 3], shape: [0; 3] });
        let maps = LabelMaps { prediction, reference, shape, spacing };
        ClassMasks::copy(&[class], &confusion, &maps, bounds, budget)
    }

    /// Crops classes that are taken as one from two label maps, whose lengths match their shape, given their bounding box.
    pub(crate) fn copy(
        classes: &[u8],
        confusion: &Confusion,
        maps: &LabelMaps<'_>,
        bounds: VoxelBox,
        budget: &Budget,
    ) -> Result<ClassMasks, MetricError> {
        let LabelMaps { prediction, reference, shape, spacing } = *maps;
        let labels = MaskLabels { classes, ignore: confusion.ignored(), counted_voxels: confusion.voxels() };
        ClassMasks::cut(labels, shape, spacing, bounds, budget, |region, planes| {
            copy_region(prediction, shape, region, planes.0);
            copy_region(reference, shape, region, planes.1);
            Ok(())
        })
    }

    /// Reads a class from two files, given its bounding box. Ignored voxels belong to neither mask.
    pub(crate) fn read(
        class: CountedClass<'_>,
        files: &mut CaseFiles,
        bounds: VoxelBox,
        budget: &Budget,
    ) -> Result<ClassMasks, MetricError> {
        let (shape, spacing) = (files.geometry().shape(), files.spacing());
        let CountedClass { labels, counted_voxels } = class;
        let labels = MaskLabels { classes: labels, ignore: files.ignore(), counted_voxels };
        ClassMasks::cut(labels, shape, spacing, bounds, budget, |region, planes| {
            files.read(region, planes.0, planes.1)
        })
    }

    fn cut(
        MaskLabels { classes, ignore, counted_voxels }: MaskLabels<'_>,
        grid: [usize; 3],
        spacing: [f64; 3],
        bounds: VoxelBox,
        budget: &Budget,
        mut read: impl FnMut(VoxelBox, (&mut [u8], &mut [u8])) -> Result<(), MetricError>,
    ) -> Result<ClassMasks, MetricError> {
        let padded = shape_with_margin(grid, bounds);
        let voxels = padded.iter().product();
        let mut prediction = Mapped::<u8>::zeroed(budget, "mask of the prediction", voxels)?;
        let mut reference = Mapped::<u8>::zeroed(budget, "mask of the reference", voxels)?;
        let [depth, height, width] = bounds.shape;
        let mut planes = Mapped::<u8>::zeroed(budget, "evaluation", 2 * height * width)?;
        let (first, second) = planes.split_at_mut(height * width);
        let margin = grid.map(margin);
        let is_of: [u8; 256] = std::array::from_fn(|label| {
            let label = label as u8;
            u8::from(ignore != Some(label) && classes.contains(&label))
        });
        for z in 0..depth {
            let [z0, y0, x0] = bounds.start;
            let region = VoxelBox { start: [z0 + z, y0, x0], shape: [1, height, width] };
            read(region, (&mut *first, &mut *second))?;
            if let Some(ignore) = ignore {
                mask_out(ignore, first, second);
            }
            for (labels, mask) in [(&*first, &mut prediction), (&*second, &mut reference)] {
                for (y, row) in labels.chunks_exact(width).enumerate() {
                    let at = ((z + margin[0]) * padded[1] + y + margin[1]) * padded[2] + margin[2];
                    for (voxel, label) in mask[at..at + width].iter_mut().zip(row) {
                        *voxel = is_of[usize::from(*label)];
                    }
                }
            }
        }
        let (shape, spacing) = with_flat_axis_first(grid, padded, spacing);
        Ok(ClassMasks { shape, spacing, counted_voxels, prediction, reference })
    }

    /// Depth, height, width of the masks.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The spacing in millimetres, in the same order.
    pub fn spacing(&self) -> [f64; 3] {
        self.spacing
    }

    /// The number of voxels of the whole grid, without those that are ignored.
    pub fn counted_voxels(&self) -> u64 {
        self.counted_voxels
    }

    /// Returns `true` if the grid has one voxel along an axis.
    pub fn is_image(&self) -> bool {
        self.shape[0] == 1
    }

    /// The mask of the prediction.
    pub fn prediction(&self) -> &[u8] {
        &self.prediction
    }

    /// The mask of the reference.
    pub fn reference(&self) -> &[u8] {
        &self.reference
    }
}

/// The labels that become masks.
struct MaskLabels<'a> {
    /// The labels that are taken as one class.
    classes: &'a [u8],
    /// The label of the reference whose voxels belong to neither mask.
    ignore: Option<u8>,
    /// The number of voxels of the grid that are not ignored.
    counted_voxels: u64,
}

/// Gives the ignored label to the prediction wherever the reference has it, so that these voxels belong to no class of either.
fn mask_out(ignore: u8, prediction: &mut [u8], reference: &[u8]) {
    for (predicted, _) in prediction.iter_mut().zip(reference).filter(|(_, label)| **label == ignore) {
        *predicted = ignore;
    }
}

fn margin(length: usize) -> usize {
    if length > 1 { MARGIN } else { 0 }
}

/// The shape of the masks of a class in this box of a grid.
pub(crate) fn shape_with_margin(grid: [usize; 3], bounds: VoxelBox) -> [usize; 3] {
    if bounds.is_empty() {
        return [0; 3];
    }
    std::array::from_fn(|axis| bounds.shape[axis] + 2 * margin(grid[axis]))
}

/// Moving an axis of one voxel does not change the order of voxels, so it is made the first.
fn with_flat_axis_first(grid: [usize; 3], shape: [usize; 3], spacing: [f64; 3]) -> ([usize; 3], [f64; 3]) {
    let Some(flat) = grid.iter().position(|length| *length == 1) else { return (shape, spacing) };
    let others: Vec<usize> = (0..3).filter(|axis| *axis != flat).collect();
    let order = [flat, others[0], others[1]];
    (order.map(|axis| shape[axis]), order.map(|axis| spacing[axis]))
}
