//! Masks that are no slices, such as views of arrays with any strides, read row by row.

use plimsoll_parallel::{each, each_index};

use crate::rows::{Bits, Rows, WORD, foreground_boundaries, only_label, words};
use crate::simd::{Instructions, Kernel, LANES, Simd, Supported};

/// A mask in any memory layout and of any integer type.
pub trait Voxels: Sync {
    /// Depth, height, width.
    fn shape(&self) -> [usize; 3];

    /// Reads the labels of consecutive voxels of a row, the first of which is at `[z, y, x]`. The background is 0. Different labels have
    /// different numbers, unless only foreground and background are told apart.
    fn read(&self, first: [usize; 3], labels: &mut [u32]);
}

/// Access to a mask by rows.
pub(crate) struct VoxelRows<'a, V>(pub(crate) &'a V);

impl<V: Voxels> VoxelRows<'_, V> {
    /// Reads voxels by the number of the first in C order. They may span several rows of the mask, whose axes of one voxel the rows of a
    /// transform leave out.
    fn read(&self, mut start: usize, mut labels: &mut [u32]) {
        let [_, height, width] = self.0.shape();
        while !labels.is_empty() {
            let x = start % width;
            let (part, rest) = labels.split_at_mut(labels.len().min(width - x));
            self.0.read([start / (height * width), start / width % height, x], part);
            start += part.len();
            labels = rest;
        }
    }
}

impl<V: Voxels> Rows for VoxelRows<'_, V> {
    fn bits(&self, instructions: Instructions, start: usize, width: usize, all_labels: bool, bits: Bits<'_>) {
        instructions.run(ReadRows { rows: self, start, width, all_labels, bits });
    }

    fn numbers(&self, start: usize, lanes: &mut [u32; LANES], busy: usize) {
        self.read(start, &mut lanes[..busy]);
        let last = lanes[busy - 1];
        lanes[busy..].fill(last);
    }

    fn number(&self, at: usize) -> u32 {
        let mut label = [0];
        self.read(at, &mut label);
        label[0]
    }

    /// The address of a voxel is unknown.
    fn prefetch(&self, _: usize) {}
}

struct ReadRows<'a, 'b, V> {
    rows: &'a VoxelRows<'a, V>,
    start: usize,
    width: usize,
    all_labels: bool,
    bits: Bits<'b>,
}

impl<V: Voxels> Kernel for ReadRows<'_, '_, V> {
    #[inline(always)]
    fn run<S: Simd>(self, on: Supported<S>) {
        let ReadRows { rows, start, width, all_labels, bits } = self;
        let words = words(width);
        let mut boundary = bits.boundary.map(|boundary| boundary.chunks_exact_mut(words));
        let mut soles = bits.soles.map(|soles| soles.chunks_exact_mut(width.div_ceil(LANES)));
        for (row, foreground) in bits.foreground.chunks_exact_mut(words).enumerate() {
            let first = start + row * width;
            let mut boundary = boundary.as_mut().and_then(Iterator::next);
            let mut soles = soles.as_mut().and_then(Iterator::next);
            let mut left = None;
            for (at, word) in foreground.iter_mut().enumerate() {
                let mut labels = [0; WORD];
                let busy = WORD.min(width - at * WORD);
                rows.read(first + at * WORD, &mut labels[..busy]);
                *word = S::bits(on, &each(labels, |label| u8::from(label != 0)));
                if let Some(boundary) = boundary.as_mut().filter(|_| all_labels) {
                    boundary[at] = label_boundaries(on, &labels, left, busy);
                }
                if let Some(soles) = soles.as_mut() {
                    let pieces = soles[at * WORD / LANES..].iter_mut().zip(labels[..busy].chunks(LANES));
                    for (piece, (sole, labels)) in pieces.enumerate() {
                        *sole = only_label(labels, (*word >> (piece * LANES)) as u32);
                    }
                }
                left = Some(labels[WORD - 1]);
            }
            if let Some(boundary) = boundary.filter(|_| !all_labels) {
                foreground_boundaries(width, foreground, boundary);
            }
        }
    }
}

/// A bit for each of the first `busy` labels that differs from its left neighbour; the first voxel of a row has none.
#[inline(always)]
fn label_boundaries<S: Simd>(on: Supported<S>, labels: &[u32; WORD], left: Option<u32>, busy: usize) -> u64 {
    let mut before = [left.unwrap_or(labels[0]); WORD];
    before[1..].copy_from_slice(&labels[..WORD - 1]);
    let differs = S::bits(on, &each_index(|at| u8::from(labels[at] != before[at])));
    differs & (u64::MAX >> (WORD - busy))
}
