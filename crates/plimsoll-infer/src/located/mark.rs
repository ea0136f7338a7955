//! Marks: what a network's logits mark, its largest component, and the same on the stored grid with its holes filled.

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_morphology::{
    Connectivity, MorphologyError, Region, component_sizes, components, largest_component,
};
use plimsoll_volume::VoxelBox;

use crate::error::{InferError, internal};
use crate::located::sampling::NetworkAxes;

/// Bytes for each voxel of a mark while its components are found and its holes filled: one of the mark, four of the number of its component,
/// and one for sizes of components, of which there is at most one for eight voxels.
const BYTES_PER_VOXEL: u64 = 6;
/// Bytes for each voxel of a slice and thread meanwhile.
const BYTES_PER_SLICE_VOXEL: u64 = 16;
/// The bytes by which whole pages exceed that.
const PAGES: Bytes = Bytes(64 << 10);

/// The most bytes that a mark of a shape takes until it is written.
pub(super) fn bytes(shape: [usize; 3], threads: usize) -> Bytes {
    let [depth, height, width] = shape.map(|extent| extent as u64);
    let slice = height.saturating_mul(width);
    let voxels = depth.saturating_mul(slice).saturating_mul(BYTES_PER_VOXEL);
    let slices = slice.saturating_mul(BYTES_PER_SLICE_VOXEL).saturating_mul(threads.max(1) as u64);
    Bytes(voxels.saturating_add(slices).saturating_add(slice)) + PAGES
}

/// Keeps the largest component of a mark, connected by corners, and of equally large ones the first. Returns `false` if there is none.
///
/// # Errors
/// Returns an error if there is no room.
pub(super) fn keep_largest(
    mark: &mut [u8],
    shape: [usize; 3],
    budget: &Budget,
    threads: usize,
) -> Result<bool, InferError> {
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", mark.len())?;
    let (by, of) = (Connectivity::Corners, Region::Foreground);
    let count = components(mark, shape, by, of, &mut numbers, budget, threads).map_err(refused)?;
    let sizes = component_sizes(&numbers, count, budget)?;
    let largest = largest_component(&sizes);
    mark.iter_mut().zip(numbers.iter()).for_each(|(mark, number)| *mark = (Some(*number) == largest).into());
    Ok(largest.is_some())
}

/// Brings the mark of a grid over a box to the box as it is stored, keeps its largest component, and fills the holes of that which do not reach
/// the faces of the box. `None` if nothing is marked.
///
/// # Errors
/// Returns an error if there is no room.
pub(super) fn stored_mark(
    mark: &[u8],
    extent: [usize; 3],
    axes: &NetworkAxes,
    within: &VoxelBox,
    budget: &Budget,
    threads: usize,
) -> Result<Option<Mapped<u8>>, InferError> {
    let shape = axes.stored_box(within).shape;
    let voxels = shape.iter().product();
    let mut stored = Mapped::<u8>::zeroed(budget, "a mark", voxels)?;
    let [deep, high, wide] = [0, 1, 2].map(|axis| {
        let step = axes.step(extent, axis);
        let indices = axes.grid_indices(within, extent, axis);
        indices.into_iter().map(|index| index * step).collect::<Vec<_>>()
    });
    let rows = deep.iter().flat_map(|deep| high.iter().map(move |high| deep + high));
    for (row, first) in stored.chunks_exact_mut(shape[2].max(1)).zip(rows) {
        row.iter_mut().zip(&wide).for_each(|(voxel, step)| *voxel = mark[first + step]);
    }
    if !keep_largest(&mut stored, shape, budget, threads)? {
        return Ok(None);
    }
    fill(&mut stored, shape, budget, threads)?;
    Ok(Some(stored))
}

/// Fills the holes of a mark: components of the background, connected by faces, that do not reach a face of its grid.
fn fill(mark: &mut [u8], shape: [usize; 3], budget: &Budget, threads: usize) -> Result<(), InferError> {
    mark.iter_mut().for_each(|voxel| *voxel = (*voxel == 0).into());
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", mark.len())?;
    let (by, of) = (Connectivity::Faces, Region::Foreground);
    let count = components(mark, shape, by, of, &mut numbers, budget, threads).map_err(refused)?;
    let mut is_open = Mapped::<u8>::zeroed(budget, "holes", count as usize + 1)?;
    let [_, height, width] = shape;
    for (place, number) in numbers.iter().enumerate() {
        let at = [place / (height * width), place / width % height, place % width];
        if (0..3).any(|axis| at[axis] == 0 || at[axis] + 1 == shape[axis]) {
            is_open[*number as usize] = 1;
        }
    }
    // The mark itself has the number 0.
    is_open[0] = 0;
    mark.iter_mut().zip(numbers.iter()).for_each(|(voxel, number)| *voxel = 1 - is_open[*number as usize]);
    Ok(())
}

fn refused(error: MorphologyError) -> InferError {
    match error {
        MorphologyError::Memory(error) => error.into(),
        _ => internal("a mark cannot be labelled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_component_by_corners_stays_and_holes_within_it_are_filled() {
        let budget = Budget::new(Bytes::mib(1));
        let shape = [5, 5, 7];
        let shell = |d: usize, h: usize, w: usize| {
            let inside = (0..5).contains(&d) && h < 5 && w < 5;
            inside
                && [d, h, w].iter().any(|at| *at == 1 || *at == 3)
                && ![d, h, w].iter().any(|at| [0, 4].contains(at))
        };
        let at = |place: usize| (place / 35, place / 7 % 5, place % 7);
        let is_hole = |place: usize| at(place) == (2, 2, 2);
        let mut mark: Vec<u8> = (0..175)
            .map(|place| {
                let (d, h, w) = at(place);
                u8::from(shell(d, h, w) || (d, h, w) == (0, 0, 6))
            })
            .collect();
        assert_eq!(mark.iter().filter(|voxel| **voxel == 1).count(), 27);
        assert!(keep_largest(&mut mark, shape, &budget, 2).unwrap());
        assert_eq!(mark.iter().filter(|voxel| **voxel == 1).count(), 26);
        fill(&mut mark, shape, &budget, 2).unwrap();
        assert!((0..175).filter(|place| is_hole(*place)).all(|place| mark[place] == 1));
        assert_eq!(mark.iter().filter(|voxel| **voxel == 1).count(), 27);
        assert!(!keep_largest(&mut [0; 8], [2; 3], &budget, 1).unwrap());
    }

    #[test]
    fn a_mark_takes_no_more_than_planned() {
        // Every other voxel along each axis: as many components as there can be.
        let shape = [31, 33, 35];
        let mut mark: Vec<u8> = (0..31 * 33 * 35)
            .map(|place| {
                u8::from([place / (33 * 35), place / 35 % 33, place % 35].iter().all(|at| at % 2 == 0))
            })
            .collect();
        let planned = bytes(shape, 2);
        let budget = Budget::new(planned);
        let _mark = budget.reserve("the mark", Bytes::from_len(mark.len())).unwrap();
        assert!(keep_largest(&mut mark, shape, &budget, 2).unwrap());
        assert_eq!(mark.iter().filter(|voxel| **voxel == 1).count(), 1);
        fill(&mut mark, shape, &budget, 2).unwrap();
    }
}
