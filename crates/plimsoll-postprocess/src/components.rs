//! Steps that keep some components of labels.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{Connectivity, Region, component_sizes, components};

use crate::PostprocessError;
use crate::boxes::Part;

/// Makes the components of labels that are not kept background, and returns how many voxels these were. `is_kept` is given the size of a
/// component and the number of the largest one.
pub(crate) fn keep(
    labels: &mut [u16],
    part: Part,
    is_among: impl Fn(u16) -> bool,
    connectivity: Connectivity,
    is_kept: impl Fn(u64, u64) -> bool,
    budget: &Budget,
    threads: usize,
) -> Result<u64, PostprocessError> {
    let mask = part.mask(labels, is_among, budget)?;
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", part.voxels())?;
    let shape = part.within.shape;
    let count = components(&mask, shape, connectivity, Region::Foreground, &mut numbers, budget, threads)?;
    let sizes = component_sizes(&numbers, count, budget)?;
    // The first is the background's.
    let Some(largest) = sizes.iter().skip(1).copied().max() else { return Ok(0) };
    let mut removed = 0;
    for (numbers, row) in numbers.chunks(shape[2].max(1)).zip(part.rows()) {
        for (number, label) in numbers.iter().zip(&mut labels[row]) {
            let is_dropped = *number != 0 && !is_kept(sizes[*number as usize], largest);
            if is_dropped {
                *label = 0;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
