//! Closing with a ball: by distances, so that its cost does not depend on the radius and slices may be far apart.
//!
//! A voxel is in the closing of a mask if no ball around it that is free of the mask's dilation reaches it: the distance to the mask is
//! thresholded for the dilation, and the distance to what is not in that for the erosion.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{EdtOptions, edt, scratch_bytes};
use plimsoll_volume::Spacing;

use crate::PostprocessError;
use crate::boxes::Part;

/// Squared distances are in f32: a voxel whose distance is the radius is within it, whichever way it was rounded.
const ROUNDING: f64 = 1e-5;

/// Distances stay squared, which saves the roots.
const OPTIONS: EdtOptions =
    EdtOptions { distance: plimsoll_morphology::Distance::ToBackground, squared: true };

/// Extends a label into the background within its closing, and returns the number of voxels added. `part` is the box around the label, which
/// contains its closing.
pub(crate) fn close(
    labels: &mut [u16],
    part: Part,
    label: u16,
    radius_mm: f64,
    spacing: Spacing,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    // Room for the dilation on all sides, and a voxel more that is never in it. An image of one slice is closed as an image.
    let margin = [0, 1, 2].map(|axis| match part.shape[axis] {
        1 => 0,
        _ => ((radius_mm / spacing.0[axis]).ceil() as usize).saturating_add(1),
    });
    let inner = part.within.shape;
    let too_far = || PostprocessError::Radius { radius_mm, shape: inner };
    let mut shape = [0; 3];
    for axis in 0..3 {
        let sides = margin[axis].checked_mul(2).ok_or_else(too_far)?;
        shape[axis] = inner[axis].checked_add(sides).ok_or_else(too_far)?;
    }
    let voxels = shape[0].checked_mul(shape[1]).and_then(|area| area.checked_mul(shape[2]));
    let voxels = voxels.ok_or_else(too_far)?;
    let mut mask = Mapped::<u8>::zeroed(budget, "a mask", voxels)?;
    let mut distances = Mapped::<f32>::zeroed(budget, "distances", voxels)?;
    let mut scratch = Mapped::<u8>::zeroed(budget, "distances", scratch_bytes(shape, &OPTIONS, threads))?;
    let within = (radius_mm * radius_mm * (1.0 + ROUNDING)) as f32;

    // Where each row of the box begins in the larger one.
    let row_in_larger = |row: usize| {
        let (d, h) = (row / inner[1] + margin[0], row % inner[1] + margin[1]);
        (d * shape[1] + h) * shape[2] + margin[2]
    };
    mask.fill(1);
    for (row, range) in part.rows().enumerate() {
        let first = row_in_larger(row);
        for (voxel, own) in mask[first..first + inner[2]].iter_mut().zip(&labels[range]) {
            *voxel = u8::from(*own != label);
        }
    }
    edt(&mask, shape, spacing.0, &OPTIONS, &mut distances, &mut scratch, threads)?;
    mask.iter_mut().zip(distances.iter()).for_each(|(voxel, square)| *voxel = u8::from(*square <= within));
    edt(&mask, shape, spacing.0, &OPTIONS, &mut distances, &mut scratch, threads)?;
    let mut added = 0;
    for (row, range) in part.rows().enumerate() {
        let first = row_in_larger(row);
        for (voxel, square) in labels[range].iter_mut().zip(&distances[first..]) {
            if *voxel == 0 && *square > within {
                *voxel = label;
                added += 1;
            }
        }
    }
    Ok(added)
}
