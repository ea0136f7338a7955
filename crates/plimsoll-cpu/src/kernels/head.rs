//! Heads: from features to the logits of a few classes, voxel by voxel, and back.
//!
//! Features lie with channels innermost, logits with voxels innermost; between the two, squares of sixteen voxels by
//! sixteen channels are transposed in registers.

use super::patch::{Affine, SourceBlock, norm_act};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels of a task.
const CHUNK: usize = 2048;
/// Voxels of a part of a sum.
pub(crate) const PART: usize = 4 * CHUNK;
/// Classes whose sums are held in registers at a time.
const CLASSES: usize = 8;

/// A block of one sample, and how it is read.
struct Reader<V, T> {
    /// `[voxel][16]`
    data: *const T,
    affine: Option<Affine<V>>,
}

impl<V: Copy, T: Element> Reader<V, T> {
    /// # Safety
    /// The machine has the instruction set of `S`; the block's buffers are as its fields say, and `sample` is one of
    /// theirs.
    #[inline(always)]
    unsafe fn new<S: Simd<V = V>>(block: &SourceBlock<T>, sample: usize) -> Reader<V, T> {
        // SAFETY: the sample is one of the block's, as this function's contract says, so it begins in the block's buffer.
        unsafe {
            let affine = match &block.norm {
                Some(norm) => Some(norm.affine::<S>(sample)),
                None => None,
            };
            Reader { data: block.data.0.add(sample * block.sample_stride), affine }
        }
    }

    /// A voxel as its reader sees it.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `voxel` is one of the block's, which is valid for reads and initialised.
    #[inline(always)]
    unsafe fn voxel<S: Simd<V = V>>(&self, voxel: usize) -> V {
        // SAFETY: the voxel is one of the block's, as this function's contract says, and so has sixteen elements.
        unsafe {
            let stored = T::load::<S>(self.data.add(voxel * LANES));
            match &self.affine {
                Some(affine) => norm_act::<S, T>(affine, stored),
                None => stored,
            }
        }
    }
}

/// logits\[n,c,v\] = bias\[c\] + Σ weights\[c,i\] · features\[n,i,v\]
pub(crate) struct HeadLogits<T> {
    pub(crate) source: Vec<SourceBlock<T>>,
    /// `[class][block][16]`
    pub(crate) weights: Ptr<f32>,
    /// `[class]`
    pub(crate) bias: Option<Ptr<f32>>,
    /// The result, `[sample][class][voxel]`.
    pub(crate) logits: Ptr<f32>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
}

impl<T: Element> Kernel for HeadLogits<T> {
    fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (chunk, sample) = (task % chunks, task / chunks);
        let end = self.voxels.min((chunk + 1) * CHUNK);
        let mut first = chunk * CHUNK;
        while first < end {
            let count = LANES.min(end - first);
            for group in (0..self.classes).step_by(CLASSES) {
                // SAFETY: `first + count` is at most `voxels` and `group` is below `classes`; `task < tasks`, so the sample
                // is below `batch`.
                unsafe { self.square::<S>(sample, (first, count), group) };
            }
            first += count;
        }
    }
}

impl<T: Element> HeadLogits<T> {
    /// [`CLASSES`] classes from `group` on, or those that are left, of up to sixteen voxels.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `sample < batch`, `first + count <= voxels`, `count <= 16`, and
    /// `group < classes`.
    #[inline(always)]
    unsafe fn square<S: Simd>(&self, sample: usize, (first, count): (usize, usize), group: usize) {
        let classes = CLASSES.min(self.classes - group);
        // SAFETY: `group + c < classes`, `b` is below the number of blocks, and `first + i` is a voxel of the sample, as
        // this function's contract says.
        unsafe {
            let mut sums = [S::zero(); CLASSES];
            if let Some(bias) = self.bias {
                for (c, sum) in sums.iter_mut().enumerate().take(classes) {
                    *sum = S::splat(*bias.0.add(group + c));
                }
            }
            for (b, block) in self.source.iter().enumerate() {
                let reader = Reader::new::<S>(block, sample);
                let mut by_voxel = [[0.0; LANES]; LANES];
                for (i, lanes) in by_voxel.iter_mut().enumerate().take(count) {
                    *lanes = S::to_array(reader.voxel::<S>(first + i));
                }
                let weights = self.weights.0.add((group * self.source.len() + b) * LANES);
                for channel in 0..LANES {
                    let mut by_channel = [0.0; LANES];
                    for (x, lanes) in by_channel.iter_mut().zip(&by_voxel) {
                        *x = lanes[channel];
                    }
                    let x = S::load(by_channel.as_ptr());
                    for (c, sum) in sums.iter_mut().enumerate().take(classes) {
                        let w = S::splat(*weights.add(c * self.source.len() * LANES + channel));
                        *sum = S::fma(w, x, *sum);
                    }
                }
            }
            for (c, sum) in sums.into_iter().enumerate().take(classes) {
                let to = self.logits.0.add((sample * self.classes + group + c) * self.voxels + first);
                let lanes = S::to_array(sum);
                std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count);
            }
        }
    }
}

/// features\[n,i,v\] = Σ weights\[c,i\] · logits\[n,c,v\], and what they are added to: the gradient of the features.
pub(crate) struct HeadBack<T> {
    /// `[sample][class][voxel]`
    pub(crate) logits: Ptr<f32>,
    /// `[class][block][16]`
    pub(crate) weights: Ptr<f32>,
    /// Like `features`, which may alias it.
    pub(crate) added_to: Option<Ptr<T>>,
    /// The result, `[sample][block][voxel][16]`.
    pub(crate) features: Ptr<T>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
    /// Voxels from one block of features to the next: more than `voxels` where these are a part of a sample.
    pub(crate) block_stride: usize,
}

impl<T: Element> Kernel for HeadBack<T> {
    fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (chunk, sample) = (task % chunks, task / chunks);
        for block in 0..self.blocks {
            for voxel in chunk * CHUNK..self.voxels.min((chunk + 1) * CHUNK) {
                // SAFETY: class, block and voxel are below the extents of the buffers, and so is the sample, since `task <
                // tasks`; tasks write disjoint voxels.
                unsafe {
                    let mut sum = S::zero();
                    for class in 0..self.classes {
                        let g = *self.logits.0.add((sample * self.classes + class) * self.voxels + voxel);
                        let w = S::load(self.weights.0.add((class * self.blocks + block) * LANES));
                        sum = S::fma(w, S::splat(g), sum);
                    }
                    let place = ((sample * self.blocks + block) * self.block_stride + voxel) * LANES;
                    if let Some(added_to) = self.added_to {
                        sum = S::add(T::load::<S>(added_to.0.add(place)), sum);
                    }
                    T::store::<S>(self.features.0.add(place), sum);
                }
            }
        }
    }
}

/// weights\[c,i\] = Σ logits\[n,c,v\] · features\[n,i,v\], in parts that [`SumParts`](super::weight_grad::SumParts) adds
/// up.
pub(crate) struct HeadWeightGrad<T> {
    pub(crate) source: Vec<SourceBlock<T>>,
    /// `[sample][class][voxel]`
    pub(crate) logits: Ptr<f32>,
    /// The result, `[part][class][block][16]`.
    pub(crate) partial: Ptr<f32>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
}

impl<T: Element> HeadWeightGrad<T> {
    /// Parts that the sums are divided into.
    pub(crate) fn parts(batch: usize, voxels: usize) -> usize {
        batch * voxels.div_ceil(PART)
    }
}

impl<T: Element> Kernel for HeadWeightGrad<T> {
    fn tasks(&self) -> usize {
        Self::parts(self.batch, self.voxels)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let parts = self.voxels.div_ceil(PART);
        let (part, sample) = (task % parts, task / parts);
        let voxels = part * PART..self.voxels.min((part + 1) * PART);
        let blocks = self.source.len();
        for group in (0..self.classes).step_by(CLASSES) {
            let classes = CLASSES.min(self.classes - group);
            for (b, block) in self.source.iter().enumerate() {
                // SAFETY: `group + c < classes`, `voxel < voxels`, and the sample is below `batch`, since `task < tasks`,
                // the number of parts; tasks write disjoint ones.
                unsafe {
                    let reader = Reader::new::<S>(block, sample);
                    let mut sums = [S::zero(); CLASSES];
                    let logits = self.logits.0.add((sample * self.classes + group) * self.voxels);
                    for voxel in voxels.clone() {
                        let x = reader.voxel::<S>(voxel);
                        for (c, sum) in sums.iter_mut().enumerate().take(classes) {
                            *sum = S::fma(S::splat(*logits.add(c * self.voxels + voxel)), x, *sum);
                        }
                    }
                    for (c, sum) in sums.into_iter().enumerate().take(classes) {
                        let place = (task * self.classes + group + c) * blocks + b;
                        S::store(self.partial.0.add(place * LANES), sum);
                    }
                }
            }
        }
    }
}
