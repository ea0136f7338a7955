//! Filling holes.

use plimsoll_memory::{Budget, Mapped};

use crate::carve::{Carver, bytes_of, sum};
use crate::forest::Forest;
use crate::grid::{check_length, check_numbered};
use crate::runs::RunKind;
use crate::slabs::Slabs;
use crate::{Connectivity, Label, MorphologyError};

/// Fills the holes of a mask of `shape` (depth, height, width): each voxel of `filled` becomes true if it is
/// foreground, or if it is in a component of the background, connected as `background` says, that does not reach the
/// border of the volume. With [`Connectivity::Faces`] as `scipy.ndimage.binary_fill_holes`. An axis of one voxel has no
/// border, so a volume of depth 1 is filled as an image.
///
/// Uses 4 bytes per voxel and 16 bytes per voxel of a slice and thread from `budget`, beside the output.
///
/// # Errors
/// Returns an error if a length does not fit the shape, there are more voxels than 32 bits can number, there are no threads, or the
/// memory is not available.
pub fn fill_holes<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    background: Connectivity,
    filled: &mut [bool],
    budget: &Budget,
    threads: usize,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the filled mask", filled.len(), shape)?;
    check_numbered(shape)?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    if mask.is_empty() {
        return Ok(());
    }
    let bytes = sum([bytes_of::<u32>(mask.len()), Slabs::bytes(shape, threads)]);
    let mut memory = Mapped::<u8>::zeroed(budget, "holes of a mask", bytes)?;
    let mut carver = Carver::new(&mut memory);
    let parents = carver.take::<u32>(mask.len());
    let mut slabs = Slabs::new(&mask, RunKind::Background, shape, threads, carver.rest());
    slabs.grow(background, parents);

    let mut forest = Forest::new(parents, 0);
    let outside = join_border(&mut slabs, shape, Border::Thick, &mut forest);
    for slab in slabs.iter_mut() {
        slab.rows(|_, first, runs| {
            let row = &mut filled[first..first + shape[2]];
            row.fill(true);
            for run in runs {
                let is_hole = outside != Some(forest.root(first + run.start as usize));
                row[run.start as usize..run.end as usize].fill(is_hole);
            }
        });
    }
    Ok(())
}

/// The axes of a volume that have a border.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    /// At both ends of each axis.
    All,
    /// Not along axes of one voxel.
    Thick,
}

/// Joins all trees that reach the border. Returns the root of the joined tree, if there is one.
pub(crate) fn join_border(
    slabs: &mut Slabs<'_>,
    shape: [usize; 3],
    border: Border,
    forest: &mut Forest<'_>,
) -> Option<usize> {
    let at_end = |axis: usize, at: usize| {
        (border == Border::All || shape[axis] > 1) && (at == 0 || at + 1 == shape[axis])
    };
    let mut outside = None;
    for slab in slabs.iter_mut() {
        slab.rows(|(z, y), first, runs| {
            for run in runs {
                let (start, last) = (run.start as usize, run.end as usize - 1);
                if at_end(0, z) || at_end(1, y) || at_end(2, start) || at_end(2, last) {
                    let head = first + start;
                    forest.join(head, *outside.get_or_insert(head));
                }
            }
        });
    }
    outside.map(|head| forest.root(head))
}
