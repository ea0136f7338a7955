//! Dropout of whole samples.

use plimsoll_graph::ops::{NOISE, Noise, SampleDrop as Op};

use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Elements of a task.
const CHUNK: usize = 1 << 15;

/// result = source, times a factor for each sample.
pub(crate) struct SampleDrop<T> {
    pub(crate) op: Op,
    /// `[NOISE]`
    pub(crate) noise: Ptr<f32>,
    /// `[sample][of_sample]`
    pub(crate) source: Ptr<T>,
    /// Like the source, which it may alias.
    pub(crate) result: Ptr<T>,
    pub(crate) batch: usize,
    /// Stored elements of a sample.
    pub(crate) of_sample: usize,
}

impl<T: Element> Kernel for SampleDrop<T> {
    fn tasks(&self) -> usize {
        self.batch * self.of_sample.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.of_sample.div_ceil(CHUNK);
        let (sample, chunk) = (task / chunks, task % chunks);
        // SAFETY: the noise is a table of `NOISE` numbers; any numbers make some key.
        let noise = Noise::from_table(unsafe { *self.noise.0.cast::<[f32; NOISE]>() });
        let factor = self.op.factor(noise, sample);
        let end = sample * self.of_sample + self.of_sample.min((chunk + 1) * CHUNK);
        let mut place = sample * self.of_sample + chunk * CHUNK;
        // SAFETY: `task < tasks`, so the sample is one of the batch and its elements end at `end`; places, and sixteen elements
        // from them on where these are read at a time, are below it. Tasks write disjoint ones, each after it is read.
        unsafe {
            while place + LANES <= end {
                let x = T::load::<S>(self.source.0.add(place));
                T::store::<S>(self.result.0.add(place), S::mul(x, S::splat(factor)));
                place += LANES;
            }
            for place in place..end {
                let x = (*self.source.0.add(place)).to_f32();
                *self.result.0.add(place) = T::from_f32(x * factor);
            }
        }
    }
}
