//! Connected components.
//!
//! Union-find over runs of rows. The first pass joins runs that touch, the second numbers the trees in the order of
//! their first voxels, the third writes the numbers. Threads process slabs of slices, which are then joined at their
//! boundaries; the numbers do not depend on the number of slabs.

use plimsoll_memory::{Budget, MapError, Mapped};

use crate::grid::{check_length, check_numbered};
use crate::runs::RunKind;
use crate::slabs::{Slab, Slabs};
use crate::{Connectivity, Label, MorphologyError};

/// The voxels that form a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// Connected foreground voxels of any label. As `scipy.ndimage.label`.
    Foreground,
    /// Connected voxels of the same label other than background. As `cc3d.connected_components`.
    SameLabel,
}

/// Numbers the components of a mask of `shape` (depth, height, width): each voxel of `labels` becomes the number of its
/// component, from 1, or 0 for background. Components are numbered in the order of their first voxels. Returns the
/// number of components.
///
/// Uses 16 bytes per voxel of a slice and thread from `budget`, beside the output.
///
/// # Errors
/// Returns an error if a length does not fit the shape, there are more voxels than 32 bits can number, there are no threads, or the
/// memory is not available.
pub fn components<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    connectivity: Connectivity,
    region: Region,
    labels: &mut [u32],
    budget: &Budget,
    threads: usize,
) -> Result<u32, MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the buffer of labels", labels.len(), shape)?;
    check_numbered(shape)?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    if mask.is_empty() {
        return Ok(0);
    }
    let kind = match region {
        Region::Foreground => RunKind::Foreground,
        Region::SameLabel => RunKind::Label,
    };
    let mut memory = Mapped::<u8>::zeroed(budget, "runs of a mask", Slabs::bytes(shape, threads))?;
    let mut slabs = Slabs::new(&mask, kind, shape, threads, &mut memory);
    slabs.grow(connectivity, labels);
    let count = number(&mut slabs, labels);
    slabs.each(labels, fill);
    Ok(count)
}

/// Replaces the parent at the head of each run by the number of its component. Returns the number of components.
fn number(slabs: &mut Slabs<'_>, labels: &mut [u32]) -> u32 {
    let mut count = 0;
    for slab in slabs.iter_mut() {
        slab.rows(|_, first, runs| {
            for run in runs {
                let head = first + run.start as usize;
                let parent = labels[head] as usize;
                labels[head] = if parent == head {
                    count += 1;
                    count
                } else {
                    // The parent precedes the run, so it has its number already.
                    labels[parent]
                };
            }
        });
    }
    count
}

/// Writes the number at the head of each run to the whole run, and 0 elsewhere.
fn fill(slab: &mut Slab<'_>, labels: &mut [u32]) {
    let (base, width) = slab.base();
    slab.rows(|_, first, runs| {
        let row = &mut labels[first - base..][..width];
        let mut at = 0;
        for run in runs {
            let (start, end) = (run.start as usize, run.end as usize);
            row[at..start].fill(0);
            let number = row[start];
            row[start..end].fill(number);
            at = end;
        }
        row[at..].fill(0);
    });
}

/// The number of voxels of each component, by its number; the background's is the first. `labels` are at most `count`,
/// as [`components`] returns them; others are not counted.
///
/// # Errors
/// Returns an error if 8 bytes per component are not available.
pub fn component_sizes(labels: &[u32], count: u32, budget: &Budget) -> Result<Mapped<u64>, MapError> {
    let mut sizes = Mapped::<u64>::zeroed(budget, "sizes of components", count as usize + 1)?;
    for run in labels.chunk_by(|a, b| a == b) {
        if let Some(size) = run.first().and_then(|label| sizes.get_mut(*label as usize)) {
            *size += run.len() as u64;
        }
    }
    Ok(sizes)
}

/// The number of the largest component, the first of equally large ones; `None` if there is none. `sizes` are the sizes from
/// [`component_sizes`].
pub fn largest_component(sizes: &[u64]) -> Option<u32> {
    let components = sizes.iter().enumerate().skip(1);
    let largest = components.max_by_key(|(number, size)| (**size, std::cmp::Reverse(*number)))?;
    u32::try_from(largest.0).ok()
}
