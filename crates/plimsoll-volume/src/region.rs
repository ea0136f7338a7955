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

/// The runs of `region` within a grid whose voxels are decoded in boxes of the shape `chunks`: all runs in one box after the other. Without
/// boxes, as [`runs`].
pub(crate) fn runs_by_chunk(
    shape: [usize; 3],
    region: VoxelBox,
    chunks: Option<[usize; 3]>,
) -> impl Iterator<Item = Run> {
    boxes(region, chunks.unwrap_or(shape)).flat_map(move |part| {
        let is_all = part == region;
        let inside =
            VoxelBox { start: std::array::from_fn(|axis| part.start[axis] - region.start[axis]), ..part };
        let whole = is_all.then(|| runs(shape, region));
        let rows = (!is_all).then(|| {
            rows(shape, part)
                .zip(rows(region.shape, inside))
                .map(move |(source, start)| Run { source, region: start..start + part.shape[2] })
        });
        whole.into_iter().flatten().chain(rows.into_iter().flatten())
    })
}

/// The parts of a region in the boxes, of this shape and side by side from voxel 0 on, that it meets.
fn boxes(region: VoxelBox, shape: [usize; 3]) -> impl Iterator<Item = VoxelBox> {
    let shape = shape.map(|extent| extent.max(1));
    let end: [usize; 3] = std::array::from_fn(|axis| region.start[axis] + region.shape[axis]);
    let first: [usize; 3] = std::array::from_fn(|axis| region.start[axis] / shape[axis]);
    let counts: [usize; 3] = std::array::from_fn(|axis| match region.shape[axis] {
        0 => 0,
        _ => end[axis].div_ceil(shape[axis]) - first[axis],
    });
    (0..counts.iter().product()).map(move |number: usize| {
        let at = [number / (counts[1] * counts[2]), number / counts[2] % counts[1], number % counts[2]];
        let begin: [usize; 3] = std::array::from_fn(|axis| (first[axis] + at[axis]) * shape[axis]);
        VoxelBox::between(
            std::array::from_fn(|axis| begin[axis].max(region.start[axis])),
            std::array::from_fn(|axis| (begin[axis].saturating_add(shape[axis])).min(end[axis])),
        )
    })
}

/// The linear index of the first voxel of each row of a region, within a grid of a shape.
fn rows([_, height, width]: [usize; 3], region: VoxelBox) -> impl Iterator<Item = usize> {
    let [d, h, w] = region.start;
    (0..region.shape[0]).flat_map(move |depth| {
        (0..region.shape[1]).map(move |row| ((d + depth) * height + h + row) * width + w)
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
        fn runs_by_chunk_visit_each_voxel_once_and_one_chunk_after_the_other(
            start in prop::array::uniform3(0usize..5),
            shape in prop::array::uniform3(0usize..5),
            more in prop::array::uniform3(0usize..3),
            chunks in prop::array::uniform3(1usize..4),
        ) {
            let grid: [usize; 3] = std::array::from_fn(|axis| start[axis] + shape[axis] + more[axis]);
            let region = VoxelBox { start, shape };
            let mut visited = vec![None; shape.iter().product()];
            let mut seen = Vec::new();
            for run in runs_by_chunk(grid, region, Some(chunks)) {
                for (to, source) in run.region.clone().zip(run.source..) {
                    prop_assert_eq!(visited[to].replace(source), None);
                    let voxel = [source / (grid[1] * grid[2]), source / grid[2] % grid[1], source % grid[2]];
                    let chunk: [usize; 3] = std::array::from_fn(|axis| voxel[axis] / chunks[axis]);
                    if seen.last() != Some(&chunk) {
                        prop_assert!(!seen.contains(&chunk));
                        seen.push(chunk);
                    }
                }
            }
            let expected: Vec<Option<usize>> = runs(grid, region)
                .flat_map(|run| (run.source..run.source + run.region.len()).map(Some))
                .collect();
            prop_assert_eq!(visited, expected);
        }

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
