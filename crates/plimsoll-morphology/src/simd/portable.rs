//! Blocks in portable Rust, and blocks composed of two narrower ones.
#![allow(unsafe_code, reason = "a proof for a pair is one for its halves")]

use plimsoll_parallel::{each, each_index};

use super::vector::{Simd, Supported};

/// Two narrower blocks as one, with the same instruction set.
#[derive(Clone, Copy)]
pub(super) struct Pair<A>(A, A);

impl<A: Simd> Simd for Pair<A> {
    type Index = (A::Index, A::Index);
    const WIDTH: usize = 2 * A::WIDTH;

    #[inline(always)]
    fn bits(on: Supported<Self>, bytes: &[u8; 64]) -> u64 {
        A::bits(half_support(on), bytes)
    }
    #[inline(always)]
    fn distances(on: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self {
        let low = boundaries & lanes::<A>();
        let high = boundaries >> A::WIDTH;
        let width = A::WIDTH as f32;
        let behind_low = if high == 0 { right + width } else { high.trailing_zeros() as f32 };
        let before_high = if low == 0 { left + width } else { (A::WIDTH as u32 - low.ilog2()) as f32 };
        Pair(
            A::distances(half_support(on), low, left, behind_low),
            A::distances(half_support(on), high, before_high, right),
        )
    }
    #[inline(always)]
    fn only(self, bits: u32) -> Self {
        Pair(self.0.only(bits & lanes::<A>()), self.1.only(bits >> A::WIDTH))
    }
    #[inline(always)]
    fn only_equal(self, labels: &[u32], label: u32) -> Self {
        Pair(self.0.only_equal(labels, label), self.1.only_equal(&labels[A::WIDTH..], label))
    }
    #[inline(always)]
    fn negated(self, bits: u32) -> Self {
        Pair(self.0.negated(bits & lanes::<A>()), self.1.negated(bits >> A::WIDTH))
    }
    #[inline(always)]
    fn load(on: Supported<Self>, from: &[f32]) -> Self {
        Pair(A::load(half_support(on), from), A::load(half_support(on), &from[A::WIDTH..]))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        self.0.store(to);
        self.1.store(&mut to[A::WIDTH..]);
    }
    #[inline(always)]
    fn splat(on: Supported<Self>, value: f32) -> Self {
        Pair(A::splat(half_support(on), value), A::splat(half_support(on), value))
    }
    #[inline(always)]
    fn index(on: Supported<Self>, value: u32) -> Self::Index {
        (A::index(half_support(on), value), A::index(half_support(on), value))
    }
    #[inline(always)]
    fn store_index(index: Self::Index, to: &mut [u32]) {
        A::store_index(index.0, to);
        A::store_index(index.1, &mut to[A::WIDTH..]);
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Pair(self.0.plus(other.0), self.1.plus(other.1))
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        Pair(self.0.times(other.0), self.1.times(other.1))
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        Pair(self.0.lesser(other.0), self.1.lesser(other.1))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Pair(self.0.greater(other.0), self.1.greater(other.1))
    }
    #[inline(always)]
    fn root(self) -> Self {
        Pair(self.0.root(), self.1.root())
    }
    #[inline(always)]
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index) {
        self.0.lower(index, &mut lowest.0, &mut at.0);
        self.1.lower(index, &mut lowest.1, &mut at.1);
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        self.0.greater(self.1).greatest()
    }
    #[inline(always)]
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index) {
        let (a, b) = (A::sort_index(index.0, other.0), A::sort_index(index.1, other.1));
        ((a.0, b.0), (a.1, b.1))
    }
    #[inline(always)]
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32) {
        A::range(A::sort_index(low.0, low.1).0, A::sort_index(high.0, high.1).1)
    }
}

/// The proof for the halves of a pair.
#[inline(always)]
fn half_support<A>(_: Supported<Pair<A>>) -> Supported<A> {
    // SAFETY: the instruction set of a pair is the one of its halves.
    unsafe { Supported::assert() }
}

/// A bit for each lane.
#[inline(always)]
fn lanes<A: Simd>() -> u32 {
    (1 << A::WIDTH) - 1
}

/// Eight lanes in portable Rust.
#[derive(Clone, Copy)]
pub(super) struct Eight([f32; 8]);

impl Eight {
    #[inline(always)]
    fn zip(self, other: Eight, operation: impl Fn(f32, f32) -> f32) -> Eight {
        Eight(each_index(|lane| operation(self.0[lane], other.0[lane])))
    }
}

impl Simd for Eight {
    type Index = [u32; 8];
    const WIDTH: usize = 8;

    #[inline(always)]
    fn bits(_: Supported<Self>, bytes: &[u8; 64]) -> u64 {
        let mut bits = 0;
        for (at, byte) in bytes.iter().enumerate() {
            bits |= u64::from(*byte != 0) << at;
        }
        bits
    }
    #[inline(always)]
    fn distances(_: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self {
        let mut lanes = NEAR[boundaries as usize];
        for (at, lane) in lanes.iter_mut().enumerate() {
            let from_left = left + (at + 1) as f32;
            let from_right = right + (8 - at) as f32;
            let outer = if from_left < from_right { from_left } else { from_right };
            *lane = if *lane < outer { *lane } else { outer };
        }
        Eight(lanes)
    }
    #[inline(always)]
    fn only(mut self, bits: u32) -> Self {
        for (at, lane) in self.0.iter_mut().enumerate() {
            *lane = if bits >> at & 1 == 1 { *lane } else { 0.0 };
        }
        self
    }
    #[inline(always)]
    fn only_equal(mut self, labels: &[u32], label: u32) -> Self {
        for (lane, other) in self.0.iter_mut().zip(labels) {
            *lane = if *other == label { *lane } else { 0.0 };
        }
        self
    }
    #[inline(always)]
    fn negated(mut self, bits: u32) -> Self {
        for (at, lane) in self.0.iter_mut().enumerate() {
            *lane = if bits >> at & 1 == 1 { -*lane } else { *lane };
        }
        self
    }
    #[inline(always)]
    fn load(_: Supported<Self>, from: &[f32]) -> Self {
        let from = &from[..8];
        Eight(each_index(|lane| from[lane]))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..8].copy_from_slice(&self.0);
    }
    #[inline(always)]
    fn splat(_: Supported<Self>, value: f32) -> Self {
        Eight([value; 8])
    }
    #[inline(always)]
    fn index(_: Supported<Self>, value: u32) -> Self::Index {
        [value; 8]
    }
    #[inline(always)]
    fn store_index(index: Self::Index, to: &mut [u32]) {
        to[..8].copy_from_slice(&index);
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn root(self) -> Self {
        Eight(each(self.0, f32::sqrt))
    }
    #[inline(always)]
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index) {
        for ((value, lowest), at) in self.0.into_iter().zip(&mut lowest.0).zip(at) {
            let lower = value < *lowest;
            *lowest = if lower { value } else { *lowest };
            *at = if lower { index } else { *at };
        }
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        self.0.into_iter().fold(0.0, f32::max)
    }
    #[inline(always)]
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index) {
        let (mut low, mut high) = (index, index);
        for lane in 0..8 {
            low[lane] = (index[lane] as i32).min(other[lane] as i32) as u32;
            high[lane] = (index[lane] as i32).max(other[lane] as i32) as u32;
        }
        (low, high)
    }
    #[inline(always)]
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32) {
        let (mut least, mut greatest) = (i32::MAX, i32::MIN);
        for lane in 0..8 {
            least = least.min(low[lane] as i32);
            greatest = greatest.max(high[lane] as i32);
        }
        (least, greatest)
    }
}

/// For eight boundary bits, the distance of each lane to the other side of the nearest one among these bits; infinite
/// if there is none. A lane after a boundary is one further from the other side than from the boundary.
pub(super) static NEAR: [[f32; 8]; 256] = near();

const fn near() -> [[f32; 8]; 256] {
    let mut table = [[f32::INFINITY; 8]; 256];
    let mut code = 0;
    while code < 256 {
        let mut lane = 0;
        while lane < 8 {
            let mut boundary = 0;
            while boundary < 8 {
                let distance = if boundary <= lane { lane - boundary + 1 } else { boundary - lane } as f32;
                if code >> boundary & 1 == 1 && distance < table[code][lane] {
                    table[code][lane] = distance;
                }
                boundary += 1;
            }
            lane += 1;
        }
        code += 1;
    }
    table
}
