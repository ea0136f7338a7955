//! The contiguous runs of memory that make up a box of a grid.

use std::ops::Range;

use crate::VoxelBox;

/// Voxels that are contiguous both in the grid and in the box.
pub(crate) struct Run {
    /// The linear index of the first voxel in the grid.
    pub(crate) source: usize,
    /// The linear indices in the box.
    pub(crate) region: Range<usize>,
}

/// The runs of `region` within a grid of `shape`, in order and as few as possible: the whole box, its planes, or its
/// rows. The region must lie within the grid.
pub(crate) fn runs(shape: [usize; 3], region: VoxelBox) -> impl Iterator<Item = Run> {
    let [_, height, width] = shape;
    let whole_rows = region.shape[2] == width;
    let whole_planes = whole_rows && region.shape[1] == height;
    // The number of planes of the box, and of pieces of each plane, that are visited one by one.
    let (planes, pieces) = match (whole_planes, whole_rows) {
        (true, _) => (1, 1),
        (false, true) => (region.shape[0], 1),
        (false, false) => (region.shape[0], region.shape[1]),
    };
    let voxels: usize = region.shape.iter().product();
    let length = if voxels == 0 { 0 } else { voxels / (planes * pieces) };
    let visited = if voxels == 0 { 0 } else { planes * pieces };
    (0..visited).map(move |run| {
        let (plane, piece) = (run / pieces, run % pieces);
        let row = (region.start[0] + plane) * height + region.start[1] + piece;
        Run { source: row * width + region.start[2], region: run * length..(run + 1) * length }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_planes_and_rows_are_read_at_once() {
        let count = |start, shape| runs([4, 5, 6], VoxelBox { start, shape }).count();
        assert_eq!(count([0, 0, 0], [4, 5, 6]), 1);
        assert_eq!(count([1, 0, 0], [2, 5, 6]), 1);
        assert_eq!(count([1, 2, 0], [2, 3, 6]), 2);
        assert_eq!(count([1, 2, 1], [2, 3, 4]), 6);
        assert_eq!(count([1, 2, 1], [2, 0, 4]), 0);
    }

    proptest! {
        #[test]
        fn runs_visit_each_voxel_of_the_box_once_in_order(
            start in prop::array::uniform3(0usize..5),
            shape in prop::array::uniform3(0usize..5),
            more in prop::array::uniform3(0usize..3),
        ) {
            let grid: [usize; 3] = std::array::from_fn(|axis| start[axis] + shape[axis] + more[axis]);
            let mut visited = Vec::new();
            for run in runs(grid, VoxelBox { start, shape }) {
                prop_assert_eq!(run.region.start, visited.len());
                visited.extend(run.region.clone().map(|i| run.source + i - run.region.start));
            }
            let mut expected = Vec::new();
            for d in start[0]..start[0] + shape[0] {
                for h in start[1]..start[1] + shape[1] {
                    expected.extend((start[2]..start[2] + shape[2]).map(|w| (d * grid[1] + h) * grid[2] + w));
                }
            }
            prop_assert_eq!(visited, expected);
        }
    }
}
