//! The trait that kernels are written over: a block of lanes, and the operations on it.

use std::marker::PhantomData;

/// Lanes of a block.
pub(crate) const LANES: usize = 32;

/// The body of a kernel. `run` and everything that it calls in its loops must be `#[inline(always)]`: code that is not
/// inlined is compiled for the target's baseline instruction set.
pub(crate) trait Kernel {
    /// Runs the body with blocks of type `S`.
    fn run<S: Simd>(self, on: Supported<S>);
}

/// Proof that this machine has the instruction set of `S`. Blocks are only made with one, so whoever has a block or an index has
/// the proof, and their methods are safe to call.
pub(crate) struct Supported<S>(PhantomData<fn() -> S>);

impl<S> Clone for Supported<S> {
    fn clone(&self) -> Supported<S> {
        *self
    }
}

impl<S> Copy for Supported<S> {}

impl<S> Supported<S> {
    /// Asserts that this machine has the instruction set of `S`.
    ///
    /// # Safety
    /// It has.
    #[inline(always)]
    pub(super) unsafe fn assert() -> Supported<S> {
        Supported(PhantomData)
    }
}

/// A block of numbers. It is made with a proof that the machine has its instruction set.
pub(crate) trait Simd: Copy {
    /// A block of integers, made with a proof as well.
    type Index: Copy;
    /// The number of lanes.
    const WIDTH: usize;

    /// A bit per byte, set if the byte is not 0; the first byte gives the lowest bit.
    fn bits(on: Supported<Self>, bytes: &[u8; 64]) -> u64;
    /// The distance of each lane to the other side of the nearest boundary, in lanes. Bit `i` of `boundaries` marks one
    /// between lanes `i − 1` and `i`; the last one before the block is `left` lanes before the front of lane 0, the
    /// first one after it is `right` lanes after the end of the last lane. Infinite if there is none.
    fn distances(on: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self;
    /// `self` where the lane's bit is set, 0 elsewhere.
    fn only(self, bits: u32) -> Self;
    /// `self` where the lane's label is `label`, 0 elsewhere.
    fn only_equal(self, labels: &[u32], label: u32) -> Self;
    /// `−self` where the lane's bit is set, `self` elsewhere.
    fn negated(self, bits: u32) -> Self;
    /// Loads the first [`Simd::WIDTH`] elements of `from`.
    fn load(on: Supported<Self>, from: &[f32]) -> Self;
    /// Stores to the first [`Simd::WIDTH`] elements of `to`.
    fn store(self, to: &mut [f32]);
    /// Broadcasts a number to all lanes.
    fn splat(on: Supported<Self>, value: f32) -> Self;
    /// Broadcasts an integer to all lanes.
    fn index(on: Supported<Self>, value: u32) -> Self::Index;
    /// Stores to the first [`Simd::WIDTH`] elements of `to`.
    fn store_index(index: Self::Index, to: &mut [u32]);
    /// The proof with which `self` was made.
    #[inline(always)]
    fn proof(self) -> Supported<Self> {
        // SAFETY: `self` was made with a proof that the machine has the instruction set.
        unsafe { Supported::assert() }
    }
    /// The sum of each lane.
    fn plus(self, other: Self) -> Self;
    /// The product of each lane.
    fn times(self, other: Self) -> Self;
    /// The minimum of each lane; no lane is NaN.
    fn lesser(self, other: Self) -> Self;
    /// The square root of each lane.
    fn root(self) -> Self;
    /// In each lane in which `self` is less than `lowest`, sets `lowest` to `self` and `at` to `index`.
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index);
    /// The maximum of each lane; no lane is NaN.
    fn greater(self, other: Self) -> Self;
    /// The maximum of all lanes, none of which is negative or NaN.
    fn greatest(self) -> f32;
    /// The minimum and the maximum of each lane, as signed integers.
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index);
    /// The minimum of all lanes of `low` and the maximum of all lanes of `high`, as signed integers.
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32);
}
