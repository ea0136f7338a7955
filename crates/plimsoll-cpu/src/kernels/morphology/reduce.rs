//! Sums over volumes, chunk by chunk, and their gradients.

use crate::kernel::{Kernel, Ptr};
use crate::kernels::voxels::CHUNK;
use crate::simd::{LANES, Simd};

/// Elements that are added up in f32 before they go on in f64.
const BLOCK: usize = 1024;

/// Chunks that `elements` elements are divided into.
pub(crate) fn chunks(elements: usize) -> usize {
    elements.div_ceil(CHUNK)
}

/// The elements of a chunk, in blocks: first and end of each.
#[inline(always)]
fn blocks(chunk: usize, elements: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = elements.min((chunk + 1) * CHUNK);
    (chunk * CHUNK..end).step_by(BLOCK).map(move |first| (first, end.min(first + BLOCK)))
}

/// The elements of a chunk, sixteen at a time: the first of each, and how many there are.
#[inline(always)]
fn sixteens(chunk: usize, elements: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = elements.min((chunk + 1) * CHUNK);
    (chunk * CHUNK..end).step_by(LANES).map(move |first| (first, LANES.min(end - first)))
}

/// The sum of the lanes in f64.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn lanes<S: Simd>(v: S::V) -> f64 {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe { S::to_array(v) }.iter().map(|x| f64::from(*x)).sum()
}

/// Σ a b and Σ a of each chunk of each sample.
pub(crate) struct Overlaps {
    /// `[sample][element]`
    pub(crate) a: Ptr<f32>,
    /// Like a.
    pub(crate) b: Ptr<f32>,
    pub(crate) batch: usize,
    /// Elements of a sample.
    pub(crate) elements: usize,
    /// The result, `[task][2]`.
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for Overlaps {
    fn tasks(&self) -> usize {
        self.batch * chunks(self.elements)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (sample, chunk) = (task / chunks(self.elements), task % chunks(self.elements));
        let mut sums = [0.0f64; 2];
        // SAFETY: `task < tasks`, so the sample is below `batch`; blocks end at `elements`. Each task has two sums of its
        // own.
        unsafe {
            let (a, b) = (self.a.add(sample * self.elements), self.b.add(sample * self.elements));
            for (first, end) in blocks(chunk, self.elements) {
                let (mut overlap, mut size) = (S::zero(), S::zero());
                for place in (first..end).step_by(LANES) {
                    let count = LANES.min(end - place);
                    let x = S::load_first(a.0.add(place), count);
                    overlap = S::fma(x, S::load_first(b.0.add(place), count), overlap);
                    size = S::add(size, x);
                }
                sums[0] += lanes::<S>(overlap);
                sums[1] += lanes::<S>(size);
            }
            *self.partial.0.add(task * 2) = sums[0];
            *self.partial.0.add(task * 2 + 1) = sums[1];
        }
    }
}

/// u₀ · other + u₁ for each sample, or without u₁.
pub(crate) struct OverlapSlopes {
    /// `[sample][element]`
    pub(crate) other: Ptr<f32>,
    /// `[sample][2]`
    pub(crate) upstream: Ptr<f32>,
    pub(crate) by_first: bool,
    pub(crate) batch: usize,
    pub(crate) elements: usize,
    /// Like the other operand, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for OverlapSlopes {
    fn tasks(&self) -> usize {
        self.batch * chunks(self.elements)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (sample, chunk) = (task / chunks(self.elements), task % chunks(self.elements));
        // SAFETY: `task < tasks`, so the sample is below `batch`; `place + count` is at most `elements`. Tasks write
        // disjoint elements, each after it is read.
        unsafe {
            let factor = S::splat(*self.upstream.0.add(sample * 2));
            let alone = if self.by_first { *self.upstream.0.add(sample * 2 + 1) } else { 0.0 };
            for (place, count) in sixteens(chunk, self.elements) {
                let at = sample * self.elements + place;
                let other = S::load_first(self.other.0.add(at), count);
                S::store_first(self.result.0.add(at), S::fma(factor, other, S::splat(alone)), count);
            }
        }
    }
}

/// Labels of a volume of some channels. Any label may be stored.
#[derive(Clone, Copy)]
pub(crate) struct Labels {
    /// `[sample][voxel]`
    pub(crate) labels: Ptr<u8>,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
    /// Labels that are not below this do not count.
    pub(crate) classes: usize,
    /// A label that does not count.
    pub(crate) ignore: Option<u8>,
}

impl Labels {
    /// Channels of all samples.
    pub(crate) fn parts(&self) -> usize {
        self.batch * self.channels
    }

    /// Chunks of all channels of all samples.
    fn tasks(&self) -> usize {
        self.parts() * chunks(self.voxels)
    }

    /// The channel among the channels of all samples, and the chunk.
    fn place(&self, task: usize) -> (usize, usize) {
        (task / chunks(self.voxels), task % chunks(self.voxels))
    }

    /// Labels of at most sixteen voxels; those that do not count, and lanes beyond, are `usize::MAX`.
    ///
    /// # Safety
    /// `part` is below [`Labels::parts`], `voxel + count` at most `voxels` and `count` at most sixteen; the labels are as
    /// the field says, and initialised.
    #[inline(always)]
    unsafe fn load(&self, part: usize, voxel: usize, count: usize) -> [usize; LANES] {
        let mut labels = [u8::MAX; LANES];
        // SAFETY: the sample of a part is below `batch`, and has `count` voxels from `voxel` on, as this function's
        // contract says.
        unsafe {
            let from = self.labels.0.add(part / self.channels * self.voxels + voxel);
            std::ptr::copy_nonoverlapping(from, labels.as_mut_ptr(), count);
        }
        let ignored = self.ignore.map_or(usize::MAX, usize::from);
        let mut counted = [usize::MAX; LANES];
        for i in 0..LANES {
            let label = usize::from(labels[i]);
            if i < count && label < self.classes && label != ignored {
                counted[i] = label;
            }
        }
        counted
    }

    /// 1 where a voxel counts, else 0.
    ///
    /// # Safety
    /// [`Labels::load`]'s contract.
    #[inline(always)]
    unsafe fn counts(&self, part: usize, voxel: usize, count: usize) -> [f32; LANES] {
        // SAFETY: this function's contract includes the contract of the call.
        let labels = unsafe { self.load(part, voxel, count) };
        let mut counts = [0.0; LANES];
        for i in 0..LANES {
            counts[i] = if labels[i] == usize::MAX { 0.0 } else { 1.0 };
        }
        counts
    }
}

/// 1 where the label names the channel's class, else 0.
pub(crate) struct Classes {
    pub(crate) labels: Labels,
    /// `[part][voxel]`
    pub(crate) result: Ptr<f32>,
}

impl Kernel for Classes {
    fn tasks(&self) -> usize {
        self.labels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let Labels { channels, voxels, .. } = self.labels;
        let (part, chunk) = self.labels.place(task);
        for (voxel, count) in sixteens(chunk, voxels) {
            // SAFETY: `task < tasks`, so the part is below `parts`; `voxel + count` is at most `voxels`. Tasks write
            // disjoint voxels.
            unsafe {
                let labels = self.labels.load(part, voxel, count);
                let mut here = [0.0; LANES];
                for i in 0..LANES {
                    here[i] = if labels[i] == part % channels + 1 { 1.0 } else { 0.0 };
                }
                let to = self.result.0.add(part * voxels + voxel);
                S::store_first(to, S::load(here.as_ptr()), count);
            }
        }
    }
}

/// A volume where the label counts, else 0.
pub(crate) struct CountedOnly {
    pub(crate) labels: Labels,
    /// `[part][voxel]`
    pub(crate) x: Ptr<f32>,
    /// Like x, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for CountedOnly {
    fn tasks(&self) -> usize {
        self.labels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let voxels = self.labels.voxels;
        let (part, chunk) = self.labels.place(task);
        for (voxel, count) in sixteens(chunk, voxels) {
            let at = part * voxels + voxel;
            // SAFETY: `task < tasks`, so the part is below `parts`; `voxel + count` is at most `voxels`. Tasks write
            // disjoint voxels, each after it is read.
            unsafe {
                let counts = S::load(self.labels.counts(part, voxel, count).as_ptr());
                let x = S::load_first(self.x.0.add(at), count);
                S::store_first(self.result.0.add(at), S::where_positive(counts, x, S::zero()), count);
            }
        }
    }
}

/// Two volumes and labels.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) labels: Labels,
    pub(crate) threshold: Option<f32>,
    /// `[part][voxel]`
    pub(crate) a: Ptr<f32>,
    /// Like a.
    pub(crate) b: Ptr<f32>,
}

impl Pair {
    /// τ − a; without a threshold nothing is below it.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    unsafe fn below<S: Simd>(&self, x: S::V) -> S::V {
        // SAFETY: the machine has the instruction set, as this function's contract says.
        unsafe {
            match self.threshold {
                Some(threshold) => S::sub(S::splat(threshold), x),
                None => S::zero(),
            }
        }
    }
}

/// Σ |a − b|, Σ relu(τ − a) − relu(τ − b) and the voxels that count, of each chunk.
pub(crate) struct Differences {
    pub(crate) pair: Pair,
    /// The result, `[task][3]`.
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for Differences {
    fn tasks(&self) -> usize {
        self.pair.labels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let pair = &self.pair;
        let (part, chunk) = pair.labels.place(task);
        let mut sums = [0.0f64; 3];
        // SAFETY: `task < tasks`, so the part is below `parts`; blocks end at `voxels`. Each task has three sums of its
        // own.
        unsafe {
            let (a, b) = (pair.a.add(part * pair.labels.voxels), pair.b.add(part * pair.labels.voxels));
            for (first, end) in blocks(chunk, pair.labels.voxels) {
                let mut block = [S::zero(); 3];
                for voxel in (first..end).step_by(LANES) {
                    let count = LANES.min(end - voxel);
                    let counts = S::load(pair.labels.counts(part, voxel, count).as_ptr());
                    let (x, y) = (S::load_first(a.0.add(voxel), count), S::load_first(b.0.add(voxel), count));
                    let apart = S::max(S::sub(x, y), S::sub(y, x));
                    let zero = S::zero();
                    let below_x = S::max(pair.below::<S>(x), zero);
                    let below = S::sub(below_x, S::max(pair.below::<S>(y), zero));
                    block[0] = S::fma(counts, apart, block[0]);
                    block[1] = S::fma(counts, below, block[1]);
                    block[2] = S::add(block[2], counts);
                }
                for i in 0..3 {
                    sums[i] += lanes::<S>(block[i]);
                }
            }
            for i in 0..3 {
                *self.partial.0.add(task * 3 + i) = sums[i];
            }
        }
    }
}

/// The gradient by a.
pub(crate) struct DifferenceSlopes {
    pub(crate) pair: Pair,
    /// `[1]`
    pub(crate) upstream: Ptr<f32>,
    /// `[part][2]`
    pub(crate) factors: Ptr<f32>,
    /// Like a and b, either of which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for DifferenceSlopes {
    fn tasks(&self) -> usize {
        self.pair.labels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let pair = &self.pair;
        let (part, chunk) = pair.labels.place(task);
        // SAFETY: `task < tasks`, so the part is below `parts`; `voxel + count` is at most `voxels`. Tasks write disjoint
        // voxels, each after it is read.
        unsafe {
            let factor = |which: usize| *self.upstream.0 * *self.factors.0.add(part * 2 + which);
            let (up, down) = (S::splat(factor(0)), S::splat(-factor(0)));
            let (below, zero) = (S::splat(-factor(1)), S::zero());
            for (voxel, count) in sixteens(chunk, pair.labels.voxels) {
                let at = part * pair.labels.voxels + voxel;
                let counts = S::load(pair.labels.counts(part, voxel, count).as_ptr());
                let x = S::load_first(pair.a.0.add(at), count);
                let y = S::load_first(pair.b.0.add(at), count);
                let apart = S::where_less(y, x, up, S::where_less(x, y, down, zero));
                let below = S::where_positive(pair.below::<S>(x), below, zero);
                let gradient = S::mul(counts, S::add(apart, below));
                S::store_first(self.result.0.add(at), gradient, count);
            }
        }
    }
}
