//! Feature maps on grids that are coarser or finer by a factor: means over windows, linear interpolation, channels to voxels;
//! and on grids with a plane more.

pub(crate) mod avg_pool;
pub(crate) mod pad_front;
pub(crate) mod subpixel;
pub(crate) mod upsample;

/// Rows of a task.
const ROWS: usize = 16;

/// Rows along the width of all blocks of all samples of a grid, in tasks.
#[derive(Clone, Copy)]
struct Rows {
    /// Blocks of all samples.
    blocks: usize,
    extent: [usize; 3],
}

impl Rows {
    fn per_block(&self) -> usize {
        self.extent[0] * self.extent[1]
    }

    fn tasks(&self) -> usize {
        self.blocks * self.per_block().div_ceil(ROWS)
    }

    /// (Block of a sample, depth, height) of the rows of a task.
    #[inline(always)]
    fn in_task(&self, task: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (chunks, height) = (self.per_block().div_ceil(ROWS), self.extent[1]);
        let (block, first) = (task / chunks, task % chunks * ROWS);
        let end = self.per_block().min(first + ROWS);
        (first..end).map(move |row| (block, row / height, row % height))
    }

    /// The first voxel of a row.
    #[inline(always)]
    fn start(&self, block: usize, depth: usize, height: usize) -> usize {
        ((block * self.extent[0] + depth) * self.extent[1] + height) * self.extent[2]
    }
}
