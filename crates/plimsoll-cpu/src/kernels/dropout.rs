//! Dropout of features.

use plimsoll_graph::ops::{Dropout as Op, NOISE, Noise, philox};
use plimsoll_parallel::{each, pairs};

use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels of a task.
const CHUNK: usize = 1 << 11;
/// Channels that one counter gives random numbers for.
const GROUP: usize = 4;

/// result = source with elements dropped.
pub(crate) struct Dropout<T> {
    pub(crate) op: Op,
    /// `[NOISE]`
    pub(crate) noise: Ptr<f32>,
    /// `[sample][block][voxel][16]`
    pub(crate) source: Ptr<T>,
    /// Like the source, which it may alias.
    pub(crate) result: Ptr<T>,
    pub(crate) batch: usize,
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
}

impl<T: Element> Kernel for Dropout<T> {
    fn tasks(&self) -> usize {
        self.batch * self.blocks * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (block, chunk) = (task / chunks, task % chunks);
        let (sample, group) = (block / self.blocks, block % self.blocks * (LANES / GROUP));
        // SAFETY: the noise is a table of `NOISE` numbers; any numbers make some key.
        let noise = Noise::from_table(unsafe { *self.noise.0.cast::<[f32; NOISE]>() });
        let sample = noise.first_sample.wrapping_add(sample as u32);
        let (threshold, scale) = (self.op.threshold(), self.op.scale());
        let end = self.voxels.min((chunk + 1) * CHUNK);
        for first in (chunk * CHUNK..end).step_by(LANES) {
            let mut factors = [[0.0f32; LANES]; LANES];
            for of_block in 0..LANES / GROUP {
                let counter = self.op.counter(sample, (group + of_block) as u32, first as u32);
                let mut counters = each(counter, |word| [word; LANES]);
                if !self.op.whole_channels {
                    for voxel in 0..LANES {
                        counters[0][voxel] = counters[0][voxel].wrapping_add(voxel as u32);
                    }
                }
                let random = philox(counters, noise.key);
                for (channel, random) in random.iter().enumerate() {
                    for voxel in 0..LANES {
                        let factor = if random[voxel] < threshold { 0.0 } else { scale };
                        factors[voxel][of_block * GROUP + channel] = factor;
                    }
                }
            }
            for (voxel, factors) in pairs(first..end, &factors) {
                let place = (block * self.voxels + voxel) * LANES;
                // SAFETY: `task < tasks`, so the block is one of all samples', and `voxel < voxels`; no other task touches
                // the voxel, and it is written after it is read.
                unsafe {
                    let x = T::load::<S>(self.source.0.add(place));
                    T::store::<S>(self.result.0.add(place), S::mul(x, S::load(factors.as_ptr())));
                }
            }
        }
    }
}
