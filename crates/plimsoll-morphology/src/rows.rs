//! A mask of any type of label, as algorithms see it: rows of bits, and numbers.
//!
//! Algorithms are compiled once and not once per type of label, so they ask for rows through [`Rows`].

use crate::Label;
use crate::simd::{Instructions, Kernel, LANES, Simd};

/// The bits of a word.
pub(crate) const WORD: usize = u64::BITS as usize;

/// Words for a row.
pub(crate) fn words(width: usize) -> usize {
    width.div_ceil(WORD)
}

/// Rows as bits, each of [`words`] elements; the first voxel of a row is the lowest bit of the first, and bits behind the last
/// voxel are 0.
pub(crate) struct Bits<'a> {
    /// Whether a voxel is foreground.
    pub(crate) foreground: &'a mut [u64],
    /// Whether a voxel's label differs from its left neighbour's; nothing if nobody wants to know.
    pub(crate) boundary: Option<&'a mut [u64]>,
}

/// A mask by rows.
pub(crate) trait Rows: Sync {
    /// As many rows from voxel `start` as there is room for, with boundaries between all labels or only between foreground and
    /// background.
    fn bits(&self, instructions: Instructions, start: usize, width: usize, all_labels: bool, bits: Bits<'_>);

    /// The labels of up to [`LANES`] voxels from `start`; what is left repeats the last of them.
    fn numbers(&self, start: usize, lanes: &mut [u32; LANES], busy: usize);

    /// The label of a voxel.
    fn number(&self, at: usize) -> u32;

    /// Where a voxel lies in memory, for [`crate::simd::prefetch`].
    fn bytes(&self) -> (*const [u8], usize);
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

    fn bytes(&self) -> (*const [u8], usize) {
        (std::ptr::slice_from_raw_parts(self.as_ptr().cast(), size_of_val(*self)), size_of::<L>())
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
    fn run<S: Simd>(self) {
        let words = words(self.width);
        let foreground = self.bits.foreground.chunks_exact_mut(words);
        let Some(boundary) = self.bits.boundary else {
            for (row, foreground) in self.voxels.chunks_exact(self.width).zip(foreground) {
                read_foreground::<L, S>(row, foreground);
            }
            return;
        };
        let boundary = boundary.chunks_exact_mut(words);
        for (row, (foreground, boundary)) in
            self.voxels.chunks_exact(self.width).zip(foreground.zip(boundary))
        {
            read_foreground::<L, S>(row, foreground);
            if self.all_labels {
                label_boundaries::<L, S>(row, boundary);
            } else {
                foreground_boundaries(row.len(), foreground, boundary);
            }
        }
    }
}

#[inline(always)]
fn read_foreground<L: Label, S: Simd>(row: &[L], foreground: &mut [u64]) {
    let (whole, rest) = row.as_chunks::<WORD>();
    for (word, labels) in foreground.iter_mut().zip(whole) {
        *word = S::bits(&labels.map(|label| u8::from(label.is_foreground())));
    }
    if let (Some(last), 1..) = (foreground.last_mut(), rest.len()) {
        *last = bits::<S>(rest.iter().map(|label| label.is_foreground()));
    }
}

#[inline(always)]
fn label_boundaries<L: Label, S: Simd>(row: &[L], boundary: &mut [u64]) {
    for (at, word) in boundary.iter_mut().enumerate() {
        // The first voxel's left neighbour is like itself.
        let first = (at * WORD).max(1);
        let last = (at * WORD + WORD).min(row.len());
        let labels = &row[first.min(last)..last];
        let lefts = &row[first - 1..];
        *word = bits::<S>(labels.iter().zip(lefts).map(|(label, left)| label != left));
        if at == 0 {
            *word <<= 1;
        }
    }
}

#[inline(always)]
fn foreground_boundaries(width: usize, foreground: &[u64], boundary: &mut [u64]) {
    // The first voxel's left neighbour is like itself.
    let mut left = foreground[0] & 1;
    for (boundary, foreground) in boundary.iter_mut().zip(foreground) {
        *boundary = foreground ^ (foreground << 1 | left);
        left = foreground >> (WORD - 1);
    }
    // The voxel behind the last has no label that could differ.
    let idle = boundary.len() * WORD - width;
    if let Some(last) = boundary.last_mut() {
        *last = *last << idle >> idle;
    }
}

/// Up to as many bits as a word has.
#[inline(always)]
fn bits<S: Simd>(flags: impl Iterator<Item = bool>) -> u64 {
    let mut bytes = [0; WORD];
    for (byte, flag) in bytes.iter_mut().zip(flags) {
        *byte = u8::from(flag);
    }
    S::bits(&bytes)
}
