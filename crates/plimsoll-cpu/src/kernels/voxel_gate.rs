//! Maps times a factor for each voxel, and the sum over channels that is the gradient of the factor.

use super::planes::Planes;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Each voxel times the factor of its place and sample.
pub(crate) struct VoxelGate<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    /// Blocks of a sample.
    pub(crate) of_sample: usize,
    /// `[block][voxel][16]`
    pub(crate) map: Ptr<T>,
    /// `[sample][voxel][16]`, of which the first element is the factor.
    pub(crate) factors: Ptr<T>,
    /// Like the map, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for VoxelGate<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        let first = block / self.of_sample * self.planes.voxels;
        for voxel in voxels {
            let place = (block * self.planes.voxels + voxel) * LANES;
            // SAFETY: `task < tasks`, so the block and its voxels are the planes', and there is a factor for each voxel of each sample.
            // Tasks write disjoint voxels, each after it is read.
            unsafe {
                let factor = (*self.factors.0.add((first + voxel) * LANES)).to_f32();
                let value = T::load::<S>(self.map.0.add(place));
                T::store::<S>(self.result.0.add(place), S::mul(value, S::splat(factor)));
            }
        }
    }
}

/// The sum over the channels of each voxel of the products of two maps.
pub(crate) struct VoxelProducts<T> {
    /// One block for each sample: the result's.
    pub(crate) planes: Planes,
    /// Blocks of a sample of the maps.
    pub(crate) of_sample: usize,
    /// `[sample][block][voxel][16]`
    pub(crate) maps: [Ptr<T>; 2],
    /// `[sample][voxel][16]`: the sum, then zeroes.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for VoxelProducts<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (sample, range) = self.planes.chunk(task);
        let [a, b] = self.maps;
        for voxel in range {
            // SAFETY: `task < tasks`, so the sample and its voxels are the planes', and the maps have `of_sample` blocks of these voxels for
            // each sample. Tasks write disjoint voxels.
            unsafe {
                let mut sum = S::zero();
                for block in sample * self.of_sample..(sample + 1) * self.of_sample {
                    let place = (block * self.planes.voxels + voxel) * LANES;
                    sum = S::fma(T::load::<S>(a.0.add(place)), T::load::<S>(b.0.add(place)), sum);
                }
                let mut lanes = [0.0; LANES];
                lanes[0] = S::to_array(sum).iter().sum();
                let to = (sample * self.planes.voxels + voxel) * LANES;
                T::store::<S>(self.result.0.add(to), S::load(lanes.as_ptr()));
            }
        }
    }
}
