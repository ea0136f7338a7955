//! The first pass, along the width: the distance of each voxel to the nearest one of another label in its row.
//!
//! A row is reduced to bits: is a voxel foreground, and does its label differ from its left neighbour's? The nearest
//! other voxel to the left lies just before the last such boundary, the nearest to the right just after the next;
//! boundaries are found by counting leading and trailing zeroes.

use super::states::{self, State};
use super::store::NO_FEATURE;
use crate::rows::WORD;
use crate::simd::{LANES, Simd, Supported};

/// The lowest bits of a word, one per lane of a piece.
const LANE_BITS: u64 = u64::MAX >> (WORD - LANES);

/// The pieces of a row, `stride` apart in their tiles.
pub(super) struct Pieces<'a> {
    /// The values; of pieces that are [`State::Zero`] they are not written.
    pub(super) values: &'a mut [[f32; LANES]],
    /// Their maximum, zero before; unspecified if some are negative.
    pub(super) greatest: &'a mut [f32],
    pub(super) stride: usize,
    /// See [`State`]; [`State::Zero`] before.
    pub(super) states: &'a mut [u8],
}

/// The position of a boundary that does not exist.
const NOWHERE: u64 = u64::MAX;

/// The bits of one row, one element per word.
pub(super) struct Row<'a> {
    /// See [`crate::rows::Bits`].
    pub(super) foreground: &'a [u64],
    /// See [`crate::rows::Bits`].
    pub(super) boundary: &'a [u64],
    /// Scratch, one element per word: the position of the first boundary after it, or [`NOWHERE`].
    pub(super) next: &'a mut [u64],
}

impl Row<'_> {
    /// Squared distances in units of `weight`⁻¹, to pieces of `LANES`. The remaining lanes of the last piece repeat the
    /// last voxel, so that idle lanes never differ from a busy one. Background voxels are zero or, if `signed`, have
    /// distances too, and distances of foreground voxels are negated; no piece is then marked as zero.
    #[inline(always)]
    pub(super) fn distances<S: Simd>(
        &mut self,
        on: Supported<S>,
        width: usize,
        weight: f32,
        signed: bool,
        to: Pieces<'_>,
    ) {
        let Pieces { values, greatest, stride, states } = to;
        let uniform = self.boundary.iter().all(|bits| *bits == 0);
        if uniform && !signed {
            if self.foreground[0] != 0 {
                for at in 0..width.div_ceil(LANES) {
                    values[at * stride] = [f32::INFINITY; LANES];
                    greatest[at * stride] = f32::INFINITY;
                    states::set(states, at, State::Mixed);
                }
            }
            return;
        }
        let mut next = NOWHERE;
        for (at, (bits, behind)) in self.boundary.iter().zip(self.next.iter_mut()).enumerate().rev() {
            *behind = next;
            next = if *bits == 0 { next } else { (at * WORD) as u64 + u64::from(bits.trailing_zeros()) };
        }
        let mut last = NOWHERE;
        for (word, (&boundary, &inside)) in self.boundary.iter().zip(self.foreground).enumerate() {
            let first = word * WORD;
            for (shift, first) in (0..WORD).step_by(LANES).zip((first..width).step_by(LANES)) {
                let inside = (inside >> shift & LANE_BITS) as u32;
                if inside == 0 && !signed {
                    continue;
                }
                let before = boundary & ((1 << shift) - 1);
                let last = if before == 0 { last } else { (word * WORD) as u64 + u64::from(before.ilog2()) };
                let left = if last == NOWHERE { f32::INFINITY } else { (first as u64 - last) as f32 };
                // In two steps, because a shift by the full width overflows.
                let behind = boundary >> shift >> (LANES - 1) >> 1;
                let right = match self.next[word] {
                    _ if behind != 0 => behind.trailing_zeros() as f32,
                    NOWHERE => f32::INFINITY,
                    next => (next - (first + LANES) as u64) as f32,
                };
                let here = (boundary >> shift & LANE_BITS) as u32;
                let distance = S::distances(on, here, left, right);
                let squared = distance.times(distance).times(S::splat(on, weight));
                let squared = if signed { squared.negated(inside) } else { squared.only(inside) };
                let piece = first / LANES;
                let lanes = &mut values[piece * stride];
                squared.store(lanes);
                let busy = width - first;
                if busy < LANES {
                    let idle = lanes[busy - 1];
                    lanes[busy..].fill(idle);
                }
                greatest[piece * stride] = squared.greatest();
                states::set(states, piece, State::Mixed);
            }
            if boundary != 0 {
                last = (word * WORD) as u64 + u64::from(boundary.ilog2());
            }
        }
    }

    /// The number of the nearest voxel of another label, in the same layout as [`Row::distances`]. The row's first
    /// voxel has the number `start`. Of two equally near ones it is the left; [`NO_FEATURE`] if there is none.
    #[inline(always)]
    pub(super) fn features<'t>(
        &mut self,
        width: usize,
        start: u32,
        signed: bool,
        to: impl Iterator<Item = &'t mut [u32; LANES]>,
    ) {
        let next_from = |at: usize| (at..width).find(|at| bit(self.boundary, *at));
        let mut x = 0;
        let (mut left, mut right) = (None, next_from(0));
        for lanes in to {
            let mut last = NO_FEATURE;
            for lane in lanes {
                if x < width {
                    if right == Some(x) {
                        left = right;
                        right = next_from(x + 1);
                    }
                    last = if !signed && !bit(self.foreground, x) {
                        start + x as u32
                    } else {
                        match (left, right) {
                            (Some(left), Some(right)) if x + 1 - left > right - x => start + right as u32,
                            (Some(left), _) => start + left as u32 - 1,
                            (None, Some(right)) => start + right as u32,
                            (None, None) => NO_FEATURE,
                        }
                    };
                    x += 1;
                }
                *lane = last;
            }
        }
    }
}

#[inline(always)]
fn bit(words: &[u64], at: usize) -> bool {
    words[at / WORD] >> (at % WORD) & 1 != 0
}
