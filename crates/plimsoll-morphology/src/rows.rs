//! Access to a mask of any label type by rows: as bits, and as numbers.
//!
//! Algorithms are compiled once and not per label type, so they read rows through the trait object [`Rows`].

use plimsoll_parallel::prefetch;
use plimsoll_parallel::{each, each_index};

use crate::Label;
use crate::simd::{Instructions, Kernel, LANES, Simd, Supported};

/// The bits of a word.
pub(crate) const WORD: usize = u64::BITS as usize;

/// The value of [`Bits::soles`] for a piece with several labels.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// The number of words of a row.
pub(crate) fn words(width: usize) -> usize {
    width.div_ceil(WORD)
}

/// Rows as bits, each of [`words`] elements; the first voxel of a row is the lowest bit of the first, and bits past the
/// last voxel are 0.
pub(crate) struct Bits<'a> {
    /// `true` if a voxel is foreground.
    pub(crate) foreground: &'a mut [u64],
    /// `true` if a voxel's label differs from its left neighbour's; `None` if not needed.
    pub(crate) boundary: Option<&'a mut [u64]>,
    /// For each [`LANES`] voxels of a row, or the rest at its end, their only label beside the background; 0 if all are
    /// background, [`SEVERAL`] if there are several. `None` if not needed.
    pub(crate) soles: Option<&'a mut [u32]>,
}

/// A mask that is read by rows.
pub(crate) trait Rows: Sync {
    /// Reads as many rows from voxel `start` as `bits` has room for, with boundaries between all labels or only between
    /// foreground and background.
    fn bits(&self, instructions: Instructions, start: usize, width: usize, all_labels: bool, bits: Bits<'_>);

    /// The labels of up to [`LANES`] voxels from `start`; the remaining lanes repeat the last one.
    fn numbers(&self, start: usize, lanes: &mut [u32; LANES], busy: usize);

    /// The label of a voxel.
    fn number(&self, at: usize) -> u32;

    /// Prefetches up to [`LANES`] voxels from `start`, of which [`Rows::number`] will read one.
    fn prefetch(&self, start: usize);
}

impl<L: Label> Rows for &[L] {
    fn bits(&self, instructions: Instructions, start: usize, width: usize, all_labels: bool, bits: Bits<'_>) {
        instructions.run(Read { voxels: &self[start..], width, all_labels, bits });
    }

    fn numbers(&self, start: usize, lanes: &mut [u32; LANES], busy: usize) {
        let labels = &self[start..start + busy];
        for (lane, label) in lanes.iter_mut().zip(labels) {
            *lane = label.number();
        }
        lanes[busy..].fill(labels[busy - 1].number());
    }

    fn number(&self, at: usize) -> u32 {
        self[at].number()
    }

    fn prefetch(&self, start: usize) {
        prefetch(self.as_ptr().wrapping_add(start), LANES);
    }
}

struct Read<'a, L> {
    voxels: &'a [L],
    width: usize,
    all_labels: bool,
    bits: Bits<'a>,
}

impl<L: Label> Kernel for Read<'_, L> {
    #[inline(always)]
    fn run<S: Simd>(self, on: Supported<S>) {
        let words = words(self.width);
        let foreground = self.bits.foreground.chunks_exact_mut(words);
        let Some(boundary) = self.bits.boundary else {
            for (row, foreground) in self.voxels.chunks_exact(self.width).zip(foreground) {
                read_foreground(on, row, foreground);
            }
            return;
        };
        let boundary = boundary.chunks_exact_mut(words);
        let mut soles = self.bits.soles.map(|soles| soles.chunks_exact_mut(self.width.div_ceil(LANES)));
        for (row, (foreground, boundary)) in
            self.voxels.chunks_exact(self.width).zip(foreground.zip(boundary))
        {
            read_foreground(on, row, foreground);
            // Most rows of a small structure's mask.
            if foreground.iter().all(|word| *word == 0) {
                boundary.fill(0);
                soles.as_mut().and_then(Iterator::next).into_iter().for_each(|soles| soles.fill(0));
                continue;
            }
            if self.all_labels {
                label_boundaries(on, row, boundary);
            } else {
                foreground_boundaries(row.len(), foreground, boundary);
            }
            if let Some(soles) = soles.as_mut().and_then(Iterator::next) {
                only_labels(row, foreground, soles);
            }
        }
    }
}

#[inline(always)]
fn read_foreground<L: Label, S: Simd>(on: Supported<S>, row: &[L], foreground: &mut [u64]) {
    let (whole, rest) = row.as_chunks::<WORD>();
    for (word, labels) in foreground.iter_mut().zip(whole) {
        *word = S::bits(on, &each(*labels, |label| u8::from(label.is_foreground())));
    }
    if let (Some(last), 1..) = (foreground.last_mut(), rest.len()) {
        *last = match row.last_chunk::<WORD>() {
            // Those that the word before has already are shifted out.
            Some(labels) => {
                S::bits(on, &each(*labels, |label| u8::from(label.is_foreground()))) >> (WORD - rest.len())
            }
            None => few_bits(rest.iter().map(|label| label.is_foreground())),
        };
    }
}

#[inline(always)]
fn label_boundaries<L: Label, S: Simd>(on: Supported<S>, row: &[L], boundary: &mut [u64]) {
    // The first voxel has no boundary on its left.
    let mut left = 0;
    for (at, word) in boundary.iter_mut().enumerate() {
        let (here, right) = (&row[at * WORD..], &row[at * WORD + 1..]);
        // Whether a voxel differs from its right neighbour.
        let differs = match (here.first_chunk::<WORD>(), right.first_chunk::<WORD>()) {
            (Some(here), Some(right)) => differing(on, here, right),
            _ => match (row[..row.len() - 1].last_chunk::<WORD>(), row.last_chunk::<WORD>()) {
                // Those that the word before has already are shifted out.
                (Some(before), Some(last)) if !right.is_empty() => {
                    differing(on, before, last) >> (WORD - right.len())
                }
                _ => few_bits(here.iter().zip(right).map(|(here, right)| here != right)),
            },
        };
        *word = differs << 1 | left;
        left = differs >> (WORD - 1);
    }
}

/// A bit for each voxel that differs from its neighbour.
#[inline(always)]
fn differing<L: Label, S: Simd>(on: Supported<S>, labels: &[L; WORD], neighbours: &[L; WORD]) -> u64 {
    S::bits(on, &each_index(|at| u8::from(labels[at] != neighbours[at])))
}

#[inline(always)]
fn only_labels<L: Label>(row: &[L], foreground: &[u64], soles: &mut [u32]) {
    let inside = |piece: usize| (foreground[piece * LANES / WORD] >> (piece * LANES % WORD)) as u32;
    let (whole, rest) = row.as_chunks::<LANES>();
    for (piece, (sole, labels)) in soles.iter_mut().zip(whole).enumerate() {
        *sole = only_label(labels, inside(piece));
    }
    if let Some(sole) = soles.get_mut(whole.len()) {
        *sole = only_label(rest, inside(whole.len()));
    }
}

#[inline(always)]
pub(crate) fn only_label<L: Label>(labels: &[L], inside: u32) -> u32 {
    let Some(first) = labels.get(inside.trailing_zeros() as usize) else { return 0 };
    // No early exit, so that the loop vectorises.
    let other = labels.iter().fold(false, |other, label| other | (label != first) & label.is_foreground());
    if other { SEVERAL } else { first.number() }
}

#[inline(always)]
pub(crate) fn foreground_boundaries(width: usize, foreground: &[u64], boundary: &mut [u64]) {
    // The first voxel has no boundary on its left.
    let mut left = foreground[0] & 1;
    for (boundary, foreground) in boundary.iter_mut().zip(foreground) {
        *boundary = foreground ^ (foreground << 1 | left);
        left = foreground >> (WORD - 1);
    }
    // There is no boundary past the last voxel.
    let idle = boundary.len() * WORD - width;
    if let Some(last) = boundary.last_mut() {
        *last = *last << idle >> idle;
    }
}

/// Packs up to [`WORD`] bits into a word.
#[inline(always)]
fn few_bits(flags: impl Iterator<Item = bool>) -> u64 {
    flags.enumerate().fold(0, |word, (at, flag)| word | u64::from(flag) << at)
}
