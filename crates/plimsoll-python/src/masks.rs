//! Components, holes and skeletons of masks.

use plimsoll_memory::{Bytes, Mapped};
use plimsoll_morphology::{
    Connectivity, Label, Recheck, Region, component_sizes, components, dilate, largest_component, skeletonize,
};

use crate::{Failure, Grid, Resources};

/// Returns the connectivity with this number of neighbours, as `cc3d` and the literature count them: 4 or 8 in images, 6, 18 or 26 in
/// volumes. In images 6 and 26 are accepted for 4 and 8, as the defaults of `cc3d`.
///
/// # Errors
/// If no connectivity of the rank has this number.
pub fn neighbours(rank: usize, count: u32) -> Result<Connectivity, Failure> {
    match (rank, count) {
        (2, 4 | 6) | (3, 6) => Ok(Connectivity::Faces),
        (3, 18) => Ok(Connectivity::Edges),
        (2, 8 | 26) | (3, 26) => Ok(Connectivity::Corners),
        _ => {
            let allowed = if rank == 2 { "4 or 8" } else { "6, 18 or 26" };
            Err(Failure::argument(
                "connectivity",
                format!("is {count}, but must be {allowed} for {rank} axes"),
            ))
        }
    }
}

/// Writes the number of its component to each voxel, from 1 in the order of the components' first voxels, or 0 for background. Returns
/// the number of components.
///
/// # Errors
/// If a length does not fit the grid or the budget has no room.
pub fn connected_components<L: Label>(
    mask: &[L],
    grid: &Grid,
    connectivity: Connectivity,
    region: Region,
    labels: &mut [u32],
    resources: &Resources,
) -> Result<u32, Failure> {
    let Resources { budget, threads } = resources;
    Ok(components(mask, grid.shape, connectivity, region, labels, budget, *threads)?)
}

/// Marks the voxels of the largest component of the foreground; of several equally large ones, the first.
///
/// # Errors
/// If a length does not fit the grid or the budget has no room for 4 bytes per voxel.
pub fn keep_largest_component<L: Label>(
    mask: &[L],
    grid: &Grid,
    connectivity: Connectivity,
    largest: &mut [bool],
    resources: &Resources,
) -> Result<(), Failure> {
    if largest.len() != mask.len() {
        let message = format!("has {} voxels, but the mask has {}", largest.len(), mask.len());
        return Err(Failure::argument("out", message));
    }
    let budget = &resources.budget;
    let mut labels = Mapped::<u32>::zeroed(budget, "components of a mask", mask.len())?;
    let count = connected_components(mask, grid, connectivity, Region::Foreground, &mut labels, resources)?;
    let sizes = component_sizes(&labels, count, budget)?;
    let kept = largest_component(&sizes);
    for (marked, label) in largest.iter_mut().zip(labels.iter()) {
        *marked = Some(*label) == kept;
    }
    Ok(())
}

/// Marks the foreground and its holes: background that is not connected to the border of the array.
///
/// # Errors
/// If a length does not fit the grid or the budget has no room.
pub fn fill_holes<L: Label>(
    mask: &[L],
    grid: &Grid,
    background: Connectivity,
    filled: &mut [bool],
    resources: &Resources,
) -> Result<(), Failure> {
    let Resources { budget, threads } = resources;
    Ok(plimsoll_morphology::fill_holes(mask, grid.shape, background, filled, budget, *threads)?)
}

/// Marks the skeleton of a mask, dilated a number of times by the neighbours that share a face.
///
/// # Errors
/// If a length does not fit the grid or the budget has no room: for a quarter of a byte per voxel, and with dilations one byte more.
pub fn dilated_skeleton<L: Label>(
    mask: &[L],
    grid: &Grid,
    recheck: Recheck,
    dilations: usize,
    dilated: &mut [bool],
    resources: &Resources,
) -> Result<(), Failure> {
    let Resources { budget, threads } = resources;
    skeletonize(mask, grid.shape, recheck, dilated, budget, *threads)?;
    if dilations == 0 {
        return Ok(());
    }
    let bytes = Bytes(dilated.len() as u64);
    let _held = budget.reserve("skeleton of a mask", bytes).map_err(Failure::OverLimit)?;
    let skeleton = dilated.to_vec();
    Ok(dilate(&skeleton, grid.shape, Connectivity::Faces, dilations, dilated, budget, *threads)?)
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Budget;

    use super::*;

    const GRID: Grid = Grid { shape: [1, 3, 4], spacing: [1.0; 3], rank: 2 };

    fn resources() -> Resources {
        Resources { budget: Budget::new(Bytes::mib(1)), threads: 2 }
    }

    #[test]
    fn neighbours_are_counted_as_in_the_literature() {
        assert_eq!(neighbours(2, 4).unwrap(), Connectivity::Faces);
        assert_eq!(neighbours(2, 26).unwrap(), Connectivity::Corners);
        assert_eq!(neighbours(3, 18).unwrap(), Connectivity::Edges);
        assert!(neighbours(3, 8).unwrap_err().to_string().contains("6, 18 or 26"));
        assert!(neighbours(2, 18).unwrap_err().to_string().contains("4 or 8"));
    }

    #[test]
    fn the_largest_component_is_kept_whatever_its_labels() {
        let mask: [u8; 12] = [5, 0, 0, 0, 0, 2, 3, 0, 7, 0, 0, 0];
        let mut largest = [false; 12];
        keep_largest_component(&mask, &GRID, Connectivity::Faces, &mut largest, &resources()).unwrap();
        let voxels: Vec<usize> = (0..12).filter(|at| largest[*at]).collect();
        assert_eq!(voxels, [5, 6]);
        keep_largest_component(&[0_u8; 12], &GRID, Connectivity::Faces, &mut largest, &resources()).unwrap();
        assert_eq!(largest, [false; 12]);
    }

    #[test]
    fn a_dilated_skeleton_is_the_skeleton_and_its_neighbours() {
        let grid = Grid { shape: [1, 5, 7], spacing: [1.0; 3], rank: 2 };
        // A bar of three rows thins to its middle row.
        let mask: Vec<u8> = (0..35).map(|at| u8::from((7..28).contains(&at))).collect();
        let marked = |dilations| {
            let mut out = [false; 35];
            dilated_skeleton(&mask, &grid, Recheck::Topology, dilations, &mut out, &resources()).unwrap();
            out
        };
        let skeleton = marked(0);
        assert!(skeleton[14..21].contains(&true));
        assert!((0..35).all(|at| !skeleton[at] || (14..21).contains(&at)));
        let once = marked(1);
        for at in 0..35 {
            let (y, x) = (at / 7, at % 7);
            let beside = (x > 0 && skeleton[at - 1]) || (x < 6 && skeleton[at + 1]);
            let above = (y > 0 && skeleton[at - 7]) || (y < 4 && skeleton[at + 7]);
            assert_eq!(once[at], skeleton[at] || beside || above, "{y} {x}");
        }
        let small = Resources { budget: Budget::new(Bytes(8)), threads: 1 };
        let refused = dilated_skeleton(&mask, &grid, Recheck::Topology, 1, &mut [false; 35], &small);
        assert!(matches!(refused, Err(Failure::OverLimit(_))), "{refused:?}");
    }

    #[test]
    fn labels_separate_components_only_where_it_is_asked() {
        let mask: [u16; 12] = [1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1];
        let count = |region| {
            let mut labels = [0; 12];
            connected_components(&mask, &GRID, Connectivity::Faces, region, &mut labels, &resources())
                .unwrap()
        };
        assert_eq!((count(Region::Foreground), count(Region::SameLabel)), (2, 3));
    }
}
