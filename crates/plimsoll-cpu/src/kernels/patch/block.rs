//! One block of channels of a source, read as it is stored or through a normalisation.

use super::PatchShape;
use crate::kernel::Ptr;
use crate::simd::{Element, LANES, Simd};

/// The map through which one block of channels of a source is read: y ↦ lrelu(a · y + b).
#[derive(Clone, Copy)]
pub(crate) struct BlockNorm {
    /// Mean and reciprocal standard deviation, `[2][16]` for each sample.
    pub(crate) statistics: Ptr<f32>,
    /// Floats from one sample's to the next one's.
    pub(crate) statistics_stride: usize,
    /// Scale and shift, `[16]` each.
    pub(crate) affine: Option<(Ptr<f32>, Ptr<f32>)>,
    pub(crate) slope: f32,
}

/// One block of sixteen channels of a source.
#[derive(Clone, Copy)]
pub(crate) struct SourceBlock<T> {
    /// `[D][H][W][16]` for each sample.
    pub(crate) data: Ptr<T>,
    /// Elements from one sample to the next.
    pub(crate) sample_stride: usize,
    pub(crate) norm: Option<BlockNorm>,
}

/// a and b of y ↦ a · y + b.
#[derive(Clone, Copy)]
pub(crate) struct Affine<V> {
    pub(crate) a: V,
    pub(crate) b: V,
    pub(crate) slope: V,
}

impl BlockNorm {
    /// The map of a sample.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `sample` is one of the source's; statistics, scale and shift are as the
    /// fields say, and initialised.
    #[inline(always)]
    pub(crate) unsafe fn affine<S: Simd>(&self, sample: usize) -> Affine<S::V> {
        // SAFETY: the sample is one of the source's, as this function's contract says, so it has `[2][16]` statistics;
        // scale and shift have sixteen lanes.
        unsafe {
            let statistics = self.statistics.add(sample * self.statistics_stride).0;
            let (mean, rstd) = (S::load(statistics), S::load(statistics.add(LANES)));
            let (a, shift) = match self.affine {
                Some((scale, shift)) => (S::mul(rstd, S::load(scale.0)), S::load(shift.0)),
                None => (rstd, S::zero()),
            };
            Affine { a, b: S::sub(shift, S::mul(mean, a)), slope: S::splat(self.slope) }
        }
    }
}

/// The constants of a block of a sample: the map through which it is read, and the statistics behind it.
pub(crate) struct BlockConstants<V> {
    pub(crate) affine: Affine<V>,
    mean: V,
    rstd: V,
}

impl BlockNorm {
    /// The constants of a sample.
    ///
    /// # Safety
    /// The contract is the one of [`BlockNorm::affine`].
    #[inline(always)]
    pub(crate) unsafe fn constants<S: Simd>(&self, sample: usize) -> BlockConstants<S::V> {
        // SAFETY: the sample is one of the source's, as this function's contract says, so it has `[2][16]` statistics.
        unsafe {
            let statistics = self.statistics.add(sample * self.statistics_stride).0;
            BlockConstants {
                affine: self.affine::<S>(sample),
                mean: S::load(statistics),
                rstd: S::load(statistics.add(LANES)),
            }
        }
    }
}

impl<V: Copy> BlockConstants<V> {
    /// The constants of a block that is read as it is stored.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    pub(crate) unsafe fn stored<S: Simd<V = V>>() -> BlockConstants<V> {
        // SAFETY: the machine has the instruction set, as this function's contract says.
        let (zero, one) = unsafe { (S::zero(), S::splat(1.0)) };
        BlockConstants { affine: Affine { a: one, b: zero, slope: one }, mean: zero, rstd: one }
    }

    /// The normalised value x̂ of a stored value.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    pub(crate) unsafe fn normalised<S: Simd<V = V>>(&self, stored: V) -> V {
        // SAFETY: the machine has the instruction set, as this function's contract says.
        unsafe { S::mul(S::sub(stored, self.mean), self.rstd) }
    }

    /// The gradient of the stored value by the gradient g of the normalised and scaled one: r γ g − (mean + x̂ · product), where
    /// `means` are r · mean γ g and r · mean γ g x̂.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    pub(crate) unsafe fn gradient<S: Simd<V = V>>(&self, g: V, normalised: V, [mean, product]: [V; 2]) -> V {
        // SAFETY: the machine has the instruction set, as this function's contract says. a = r γ is the factor of the forward map.
        unsafe { S::sub(S::mul(self.affine.a, g), S::fma(normalised, product, mean)) }
    }
}

/// The change of values while they are read. It is a trait and not a closure, because a call in the innermost loop must
/// be inlined for the instruction set to apply to it.
pub(crate) trait Read<S: Simd, T> {
    /// The value as its reader sees it.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    unsafe fn read(&self, stored: S::V) -> S::V;
}

/// Values as they are stored.
pub(crate) struct AsStored;

impl<S: Simd, T> Read<S, T> for AsStored {
    #[inline(always)]
    unsafe fn read(&self, stored: S::V) -> S::V {
        stored
    }
}

impl<S: Simd, T: Element> Read<S, T> for Affine<S::V> {
    #[inline(always)]
    unsafe fn read(&self, stored: S::V) -> S::V {
        // SAFETY: the machine has the instruction set, as `Read::read` asks.
        unsafe { norm_act::<S, T>(self, stored) }
    }
}

/// The normalised and activated value, as it would be stored.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn norm_act<S: Simd, T: Element>(affine: &Affine<S::V>, y: S::V) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe { T::round::<S>(S::leaky(S::fma(affine.a, y, affine.b), affine.slope)) }
}

impl<T: Element> SourceBlock<T> {
    /// Gathers the patch of one block whose first position is `first` (depth, height).
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. This block's buffers are as its fields say, with the extent of the
    /// shape's source, and initialised; `sample` is one of its samples. `patch` is valid for writes of
    /// [`PatchShape::block`] floats.
    #[inline(always)]
    pub(crate) unsafe fn gather<S: Simd>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
    ) {
        // SAFETY: `affine` and `gather_read` ask for no more than this function does.
        unsafe {
            match &self.norm {
                None => self.gather_read::<S, _>(shape, sample, first, patch, &AsStored),
                Some(norm) => {
                    self.gather_read::<S, _>(shape, sample, first, patch, &norm.affine::<S>(sample));
                }
            }
        }
    }

    /// [`SourceBlock::gather`] of values that are changed by `read`.
    ///
    /// # Safety
    /// [`SourceBlock::gather`]'s contract.
    #[inline(always)]
    unsafe fn gather_read<S: Simd, R: Read<S, T>>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
        read: &R,
    ) {
        let width = shape.source[2];
        for (to, from) in shape.rows_read(first) {
            // SAFETY: `rows_read` yields rows of the source, of `width` columns of sixteen, and places of rows below
            // `PatchShape::block`, which the patch is as large as.
            unsafe {
                let data = self.data.add(sample * self.sample_stride).0.cast_const();
                let from = match from {
                    Some(row) => Some(data.add(row * width * LANES)),
                    None => None,
                };
                row::<S, T, R>(shape, patch.add(to), from, read);
            }
        }
    }

    /// Copies a run of voxels, as their reader sees them, in f32.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. This block's buffers are as its fields say, and initialised; `sample`
    /// and `voxels` are of it. `to` is valid for writes of sixteen floats for each voxel.
    #[inline(always)]
    pub(super) unsafe fn widen<S: Simd>(&self, sample: usize, voxels: std::ops::Range<usize>, to: *mut f32) {
        // SAFETY: `affine` and `widen_read` ask for no more than this function does.
        unsafe {
            match &self.norm {
                None => self.widen_read::<S, _>(sample, voxels, to, &AsStored),
                Some(norm) => self.widen_read::<S, _>(sample, voxels, to, &norm.affine::<S>(sample)),
            }
        }
    }

    /// [`SourceBlock::widen`] of values that are changed by `read`.
    ///
    /// # Safety
    /// [`SourceBlock::widen`]'s contract.
    #[inline(always)]
    unsafe fn widen_read<S: Simd, R: Read<S, T>>(
        &self,
        sample: usize,
        voxels: std::ops::Range<usize>,
        to: *mut f32,
        read: &R,
    ) {
        // SAFETY: `voxels` are the sample's and `to` has room for as many, as `widen`'s contract says; `i` is below their
        // number.
        unsafe {
            let from = self.data.0.add(sample * self.sample_stride + voxels.start * LANES);
            for i in 0..voxels.len() {
                S::store(to.add(i * LANES), read.read(T::load::<S>(from.add(i * LANES))));
            }
        }
    }
}

/// Fills one row of a patch.
///
/// # Safety
/// The machine has the instruction set of `S`. `to` is valid for writes of [`PatchShape::row`] floats of a shape of sixteen
/// lanes, and `from`, if there is a row, for reads of sixteen elements for each column of the source.
#[inline(always)]
unsafe fn row<S: Simd, T: Element, R: Read<S, T>>(
    shape: &PatchShape,
    to: *mut f32,
    from: Option<*const T>,
    read: &R,
) {
    let (step, columns, width) = (shape.step[2], shape.columns, shape.source[2] as isize);
    for phase in 0..shape.phases() {
        // Column c of a phase is at the place c · step + phase + low of the source.
        let place = |column: usize| (column * step + phase) as isize + shape.low[2];
        // SAFETY: `to` has `columns` columns for each stored phase; places of columns from `first` to `end` are at
        // least 0 and below the width of the source.
        unsafe {
            let to = to.add(phase * columns * LANES);
            let Some(from) = from else {
                for column in 0..columns {
                    S::store(to.add(column * LANES), S::zero());
                }
                continue;
            };
            let first = (0..columns).find(|column| place(*column) >= 0).unwrap_or(columns);
            let end = (first..columns).rev().find(|column| place(*column) < width).map_or(first, |c| c + 1);
            for column in 0..first {
                S::store(to.add(column * LANES), S::zero());
            }
            for column in first..end {
                let v = T::load::<S>(from.add(place(column) as usize * LANES));
                S::store(to.add(column * LANES), read.read(v));
            }
            for column in end..columns {
                S::store(to.add(column * LANES), S::zero());
            }
        }
    }
}
