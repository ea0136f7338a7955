//! Components, holes and skeletons of masks.

use plimsoll_memory::Mapped;
use plimsoll_morphology::{Connectivity, Label, Region, component_sizes, components, largest_component};

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

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Budget, Bytes};

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
