//! A vector for each voxel, added to maps, and the sums over samples that are its gradient.

use super::planes::Planes;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// The rows of a table, one for each voxel.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Numbers of a row.
    pub(crate) channels: usize,
    /// `[voxel][channel]`
    pub(crate) table: Ptr<f32>,
}

impl Rows {
    /// The place of the channels of a block in the row of a voxel, and their number.
    #[inline(always)]
    fn place(&self, voxel: usize, block: usize) -> (usize, usize) {
        (voxel * self.channels + block * LANES, LANES.min(self.channels - block * LANES))
    }
}

/// Each voxel plus the row of its place.
pub(crate) struct AddPositions<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    /// Blocks of a sample.
    pub(crate) of_sample: usize,
    /// `[block][voxel][16]`
    pub(crate) map: Ptr<T>,
    pub(crate) rows: Rows,
    /// Like the map, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for AddPositions<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        for voxel in voxels {
            let place = (block * self.planes.voxels + voxel) * LANES;
            let (row, count) = self.rows.place(voxel, block % self.of_sample);
            // SAFETY: `task < tasks`, so the block and its voxels are the planes'; the table has a row for each voxel, with `count` channels of
            // this block. Tasks write disjoint voxels, each after it is read.
            unsafe {
                let position = S::load_first(self.rows.table.0.add(row), count);
                let value = S::add(T::load::<S>(self.map.0.add(place)), position);
                T::store::<S>(self.result.0.add(place), value);
            }
        }
    }
}

/// The sum over samples of the voxels of a map, as rows.
pub(crate) struct PositionSums<T> {
    /// The blocks of one sample.
    pub(crate) planes: Planes,
    pub(crate) batch: usize,
    /// `[sample][block][voxel][16]`
    pub(crate) map: Ptr<T>,
    /// The result.
    pub(crate) rows: Rows,
}

impl<T: Element> Kernel for PositionSums<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        let Planes { blocks, voxels: all } = self.planes;
        for voxel in voxels {
            let (row, count) = self.rows.place(voxel, block);
            // SAFETY: `task < tasks`, so the block and its voxels are the planes', of which the map has as many for each sample; the table has a
            // row for each voxel, with `count` channels of this block. Tasks write disjoint parts of rows.
            unsafe {
                let mut sum = S::zero();
                for sample in 0..self.batch {
                    let place = ((sample * blocks + block) * all + voxel) * LANES;
                    sum = S::add(sum, T::load::<S>(self.map.0.add(place)));
                }
                S::store_first(self.rows.table.0.add(row), sum, count);
            }
        }
    }
}
