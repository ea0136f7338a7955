//! The layouts of tensors in the arena.
//!
//! | tensor | layout |
//! |---|---|
//! | volume between convolutions `[N, C, D, H, W]` | [blocks](VolumeLayout::Blocks): `[N][C/16][D][H][W][16]`, the last block padded with zeroes |
//! | volume at the rim of a network, or that losses read | [rows](VolumeLayout::Rows): `[N][C][D][H][W]` |
//! | labels | `[N][D][H][W]` |
//! | weights of a convolution to blocks | `[O/16][reach][tap][inputs][16 out]`, see [`WeightBlocks`] |
//! | weights of a convolution to rows (a head) | `[O][I/16][16 in]` |
//! | channels `[C]` | `[C/16][16]` |
//! | statistics `[N, C, 2]` | `[N][C/16][mean 16][rstd 16]` |
//! | table | as it is |
//!
//! Programs say nothing of this: [`assign`] decides it from the ops that touch a tensor.
//!
//! The padding of a block is zero and stays zero: weights there are zero, so results are, so gradients are. (Where lanes of two
//! groups meet, gradients are not; they are set to zero.)
#![forbid(unsafe_code)]

pub(crate) mod assign;
pub(crate) mod rule;
mod weights;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_graph::{Shape, TensorInfo};

use crate::simd::LANES;
pub(crate) use weights::{Lanes, WeightBlocks};

/// The layout of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VolumeLayout {
    /// Row-major, a plane for each channel; f32 only.
    Rows,
    /// Channels in blocks of sixteen, the innermost axis.
    Blocks,
}

/// The layout of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Layout {
    /// In the logical order of its shape, with nothing between or behind: volumes in rows, labels, tables.
    Given,
    /// A volume in blocks.
    Blocks,
    /// A number per channel, padded to whole blocks.
    Channels,
    /// Statistics of whole blocks.
    Statistics,
    /// Weights of a convolution to blocks.
    Weights(Arc<WeightBlocks>),
    /// Weights of a convolution to rows, of sources with these numbers of channels, each padded by itself.
    HeadWeights(Vec<usize>),
}

/// Elements that follow each other in the logical order of a tensor's shape and are stored at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the first among the wanted elements.
    pub(crate) first: usize,
    /// The stored place of the first.
    pub(crate) place: usize,
    /// The distance between two of them.
    pub(crate) stride: usize,
    /// The number of elements.
    pub(crate) count: usize,
}

/// Calls `each` with the runs of some elements of a tensor whose rows have `extent` elements, stored at a distance of `stride`. `place` returns the
/// stored place of a row's first element.
fn rows(
    elements: Range<usize>,
    (extent, stride): (usize, usize),
    place: impl Fn(usize) -> usize,
    mut each: impl FnMut(Run),
) {
    let mut at = elements.start;
    while at < elements.end {
        let (row, first) = (at / extent, at % extent);
        let count = (elements.end - at).min(extent - first);
        each(Run { first: at - elements.start, place: place(row) + first * stride, stride, count });
        at += count;
    }
}

/// Calls `each` with the runs of some weights, `[outputs][inputs][taps]`, whose outputs lie side by side in blocks. The same rows of all outputs of a block follow one
/// another, so that each line of memory is used up while it is in a cache.
fn weight_rows(
    elements: Range<usize>,
    [inputs, taps]: [usize; 2],
    blocks: &WeightBlocks,
    mut each: impl FnMut(Run),
) {
    let of_output = inputs * taps;
    let mut output = elements.start / of_output;
    while output * of_output < elements.end {
        let next = (output / LANES + 1) * LANES;
        for input in 0..inputs {
            for output in output..next {
                let row = (output * inputs + input) * taps;
                let wanted = row.max(elements.start)..(row + taps).min(elements.end);
                if wanted.is_empty() {
                    continue;
                }
                let place = blocks.place(output, input, taps, wanted.start - row);
                let first = wanted.start - elements.start;
                each(Run { first, place, stride: blocks.tap(), count: wanted.len() });
            }
        }
        output = next;
    }
}

/// Blocks of sixteen that hold `channels`.
pub(crate) fn blocks(channels: usize) -> usize {
    channels.div_ceil(LANES)
}

/// Blocks that hold the channels of several sources, each padded by itself.
pub(crate) fn source_blocks(sources: &[usize]) -> usize {
    sources.iter().map(|channels| blocks(*channels)).sum()
}

fn taps(shape: &Shape) -> usize {
    shape.spatial().iter().product()
}

impl Layout {
    /// Stored elements of a tensor, padding included.
    pub(crate) fn count(&self, tensor: &TensorInfo) -> usize {
        let shape = &tensor.shape;
        match self {
            Layout::Given => shape.count(),
            Layout::Blocks => shape.batch() * blocks(shape.channels()) * shape.voxels() * LANES,
            Layout::Channels => blocks(shape.dim(0)) * LANES,
            Layout::Statistics => shape.dim(0) * blocks(shape.dim(1)) * 2 * LANES,
            Layout::Weights(blocks) => blocks.count(taps(shape)),
            Layout::HeadWeights(sources) => shape.dim(0) * source_blocks(sources) * LANES * taps(shape),
        }
    }

    /// Bytes of a tensor.
    pub(crate) fn bytes(&self, tensor: &TensorInfo) -> usize {
        self.count(tensor) * tensor.dtype.bytes()
    }

    /// Calls `each` with the runs of some elements, which are numbered in the logical order of the tensor's shape. Runs come in the order in which memory is
    /// accessed the fastest.
    pub(crate) fn each_run(&self, tensor: &TensorInfo, elements: Range<usize>, each: impl FnMut(Run)) {
        let shape = &tensor.shape;
        match self {
            Layout::Given | Layout::Channels => rows(elements, (shape.count(), 1), |_| 0, each),
            Layout::Blocks => {
                let (channels, voxels) = (shape.channels(), shape.voxels());
                let place = |row: usize| {
                    let (sample, channel) = (row / channels, row % channels);
                    let block = sample * blocks(channels) + channel / LANES;
                    block * voxels * LANES + channel % LANES
                };
                rows(elements, (voxels, LANES), place, each);
            }
            Layout::Statistics => {
                let channels = shape.dim(1);
                let place = |row: usize| {
                    let (sample, channel) = (row / channels, row % channels);
                    let block = sample * blocks(channels) + channel / LANES;
                    block * 2 * LANES + channel % LANES
                };
                rows(elements, (2, LANES), place, each);
            }
            Layout::Weights(blocks) => {
                weight_rows(elements, [shape.dim(1), taps(shape)], blocks, each);
            }
            Layout::HeadWeights(sources) => {
                let (taps, inputs) = (taps(shape), shape.dim(1));
                // Each source begins a block.
                let stored = source_blocks(sources) * LANES;
                let mut lanes = Vec::with_capacity(inputs);
                let mut first = 0;
                for channels in sources {
                    lanes.extend((0..*channels).map(|c| first + c));
                    first += blocks(*channels) * LANES;
                }
                let place = |row: usize| row / inputs * taps * stored + lanes[row % inputs];
                rows(elements, (taps, stored), place, each);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_graph::{DType, Kind, Role};

    use super::*;

    #[test]
    fn runs_of_weights_have_each_wanted_element_once_at_its_place() {
        let cases = [
            (WeightBlocks::new(40, &[17, 5], 1, VolumeLayout::Blocks), [40, 22, 3, 3, 3]),
            (WeightBlocks::new(32, &[32], 4, VolumeLayout::Blocks), [32, 8, 1, 3, 3]),
            (WeightBlocks::new(24, &[24], 2, VolumeLayout::Blocks), [24, 12, 1, 1, 1]),
            (WeightBlocks::new(20, &[3], 1, VolumeLayout::Rows), [20, 3, 3, 3, 3]),
        ];
        for (blocks, shape) in cases {
            let shape = Shape(shape.to_vec());
            let (inputs, taps) = (shape.dim(1), taps(&shape));
            let (all, dtype) = (shape.count(), DType::F32);
            let info = TensorInfo { name: "w".into(), shape, dtype, role: Role::Input, kind: Kind::Weights };
            let layout = Layout::Weights(Arc::new(blocks.clone()));
            for wanted in [0..all, 0..1, 5..5, all / 3..all / 2, all - 7..all, 17..all - 1] {
                let mut places = vec![None; wanted.len()];
                layout.each_run(&info, wanted.clone(), |run| {
                    for at in 0..run.count {
                        let before = places[run.first + at].replace(run.place + at * run.stride);
                        assert_eq!(before, None);
                    }
                });
                for (place, element) in places.into_iter().zip(wanted.clone()) {
                    let (row, tap) = (element / taps, element % taps);
                    let expected = blocks.place(row / inputs, row % inputs, taps, tap);
                    assert_eq!(place, Some(expected), "{element} of {wanted:?}");
                }
            }
        }
    }
}
