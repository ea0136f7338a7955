//! Steps on label maps.

use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_volume::Spacing;

use crate::boxes::{Part, around, boxes};
use crate::components::keep;
use crate::{LabelMap, LeastSize, PostprocessError, Step, close, holes};

/// The grid of a label map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoxelGrid {
    /// The extent along (depth, height, width), in voxels.
    pub shape: [usize; 3],
    /// The distance of voxels along (depth, height, width), in mm.
    pub spacing: Spacing,
}

/// Applies steps to the labels of a grid one after the other, and returns the number of voxels that changed, counted step by
/// step. Labels that are not in the map are ignored.
///
/// This needs up to 9 bytes for each voxel of the box around a label, which a closing extends by its radius on all sides.
///
/// # Errors
/// Returns an error if the budget has no room, the spacing is no length, or there are more voxels than 32 bits can number.
pub fn process(
    steps: &[Step],
    labels: &mut [u16],
    grid: VoxelGrid,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    let mut changed = 0;
    for step in steps {
        changed += process_step(step, labels, grid, budget, threads)?;
    }
    Ok(changed)
}

fn process_step(
    step: &Step,
    labels: &mut [u16],
    grid: VoxelGrid,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    let VoxelGrid { shape, spacing } = grid;
    let found = boxes(labels, shape, |label| step.labels().contains(label));
    let part = |within| Part { shape, within };
    // The labels of one group after the other: all at once, or each for itself.
    let of_groups = |labels: &mut [u16],
                     together: bool,
                     neighbours: crate::Neighbours,
                     is_kept: &dyn Fn(u64, u64) -> bool| {
        let connectivity = neighbours.into();
        if together {
            let Some(all) = around(found.values()) else { return Ok(0) };
            let is_among = |label| found.contains_key(&label);
            return keep(labels, part(all), is_among, connectivity, is_kept, budget, threads);
        }
        found.iter().try_fold(0, |removed, (label, own)| {
            let is_among = |other| other == *label;
            Ok(removed + keep(labels, part(*own), is_among, connectivity, is_kept, budget, threads)?)
        })
    };
    match step {
        Step::KeepLargest { together, neighbours, .. } => {
            of_groups(labels, *together, *neighbours, &|size, largest| size == largest)
        }
        Step::DropSmall { together, neighbours, least, .. } => {
            let voxel: f64 = spacing.0.iter().product();
            of_groups(labels, *together, *neighbours, &|size, _| match least {
                LeastSize::Voxels(voxels) => size >= *voxels,
                LeastSize::Mm3(mm3) => size as f64 * voxel >= *mm3,
            })
        }
        Step::FillHoles { .. } => found.iter().try_fold(0, |added, (label, own)| {
            Ok(added + holes::fill(labels, part(*own), *label, budget, threads)?)
        }),
        Step::Close { radius_mm, .. } => found.iter().try_fold(0, |added, (label, own)| {
            Ok(added + close::close(labels, part(*own), *label, *radius_mm, spacing, budget, threads)?)
        }),
    }
}

/// Reads a label map, applies steps to it, and writes it under another name. `unit` is the unit of lengths in its header in millimetres, if
/// it is not the one that the header states. Returns the number of voxels that changed, counted step by step.
///
/// # Errors
/// Returns the errors of [`LabelMap::read`], [`process`] and [`LabelMap::write`]. Nothing is written then.
pub fn process_file(
    from: &Path,
    to: &Path,
    steps: &[Step],
    unit: Option<f64>,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    let done = || {
        let mut map = LabelMap::read(from, budget)?;
        let grid = VoxelGrid { shape: map.geometry().shape(), spacing: map.spacing(unit) };
        let changed = process(steps, map.labels_mut(), grid, budget, threads)?;
        map.write(to, budget)?;
        Ok(changed)
    };
    done().map_err(|error: PostprocessError| error.in_map(from))
}
