//! Holes of a label.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{Connectivity, Region, components};

use crate::PostprocessError;
use crate::boxes::Part;

/// Gives a label the background within its holes, and returns how many voxels that were. `part` is the box around the label: what is not
/// the label there and touches a face of the box is connected with all that is out of it.
pub(crate) fn fill(
    labels: &mut [u16],
    part: Part,
    label: u16,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    let outside = part.mask(labels, |other| other != label, budget)?;
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", part.voxels())?;
    let shape = part.within.shape;
    let count =
        components(&outside, shape, Connectivity::Faces, Region::Foreground, &mut numbers, budget, threads)?;
    let mut is_open = Mapped::<u8>::zeroed(budget, "holes", count as usize + 1)?;
    // The label itself has number 0, and is no hole.
    is_open[0] = 1;
    // An image of one slice has no border across it.
    let has_border = part.shape.map(|length| length > 1);
    for (place, number) in numbers.iter().enumerate() {
        let at = [place / (shape[1] * shape[2]), place / shape[2] % shape[1], place % shape[2]];
        let is_at_end = |axis: usize| has_border[axis] && (at[axis] == 0 || at[axis] + 1 == shape[axis]);
        if is_at_end(0) || is_at_end(1) || is_at_end(2) {
            is_open[*number as usize] = 1;
        }
    }
    let mut added = 0;
    for (numbers, row) in numbers.chunks(shape[2].max(1)).zip(part.rows()) {
        for (number, voxel) in numbers.iter().zip(&mut labels[row]) {
            if *voxel == 0 && is_open[*number as usize] == 0 {
                *voxel = label;
                added += 1;
            }
        }
    }
    Ok(added)
}
