//! The sources of a convolution: volumes that are read unchanged, or normalised and activated while they are read.

use plimsoll_graph::DType;

use crate::kernel::Ptr;
use crate::kernels::patch::{BlockNorm, Blocks, ImageSource, SourceBlock};
use crate::layout::blocks;
use crate::lower::{Context, Places};
use crate::ops::NormAct;
use crate::simd::{Element, LANES};

/// The way a source is read.
///
/// A normalised and activated feature map is cheap to compute and as large as the one it is computed from, so it need never be
/// stored: the convolution reads the raw map and applies normalisation and activation on the way in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// The source as it is stored. Operand: the source.
    Plain,
    /// A source with the result of [`NormAct`]. Operands: the operands of the node.
    NormAct(NormAct),
}

impl Load {
    /// Returns the number of operands of a source.
    pub(crate) fn operands(self) -> usize {
        match self {
            Load::Plain => 1,
            Load::NormAct(norm) => norm.operands(),
        }
    }
}

/// A source of blocks or rows of a node: where its operands are, and its extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceRef {
    load: Load,
    /// The place of its first operand.
    first: usize,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
    dtype: DType,
}

impl SourceRef {
    /// Returns the source at the operands of a node from `first` on.
    pub(crate) fn new(cx: &Context<'_>, load: Load, first: usize) -> SourceRef {
        let info = cx.input(first);
        let (channels, voxels) = (info.shape.channels(), info.shape.voxels());
        SourceRef { load, first, channels, voxels, dtype: info.dtype }
    }

    /// Returns several sources in succession, and the index of the operand behind them.
    pub(crate) fn all(cx: &Context<'_>, loads: &[Load]) -> (Vec<SourceRef>, usize) {
        let mut first = 0;
        let sources = loads.iter().map(|load| {
            let source = SourceRef::new(cx, *load, first);
            first += load.operands();
            source
        });
        (sources.collect(), first)
    }

    /// Its data.
    pub(crate) fn data<T>(&self, places: &Places) -> Ptr<T> {
        places.input(self.first)
    }

    /// The normalisations of its blocks, if it has any.
    pub(crate) fn norms(&self, places: &Places) -> Vec<BlockNorm> {
        let Load::NormAct(NormAct { slope, affine }) = self.load else { return Vec::new() };
        let count = blocks(self.channels);
        let statistics = places.input::<f32>(self.first + 1);
        let affine =
            affine.then(|| (places.input::<f32>(self.first + 2), places.input::<f32>(self.first + 3)));
        (0..count)
            // SAFETY: statistics, scale and shift of so many channels have `count` blocks in their layouts.
            .map(|block| unsafe {
                BlockNorm {
                    statistics: statistics.add(block * 2 * LANES),
                    statistics_stride: count * 2 * LANES,
                    affine: affine.map(|(a, b)| (a.add(block * LANES), b.add(block * LANES))),
                    slope,
                }
            })
            .collect()
    }

    /// Its blocks of channels.
    pub(crate) fn views<T: Element>(&self, places: &Places) -> Vec<SourceBlock<T>> {
        let count = blocks(self.channels);
        let norms = self.norms(places);
        let block_elements = self.voxels * LANES;
        (0..count)
            .map(|block| SourceBlock {
                // SAFETY: a volume in blocks has `count` of them in each sample.
                data: unsafe { places.input::<T>(self.first).add(block * block_elements) },
                sample_stride: count * block_elements,
                norm: norms.get(block).copied(),
            })
            .collect()
    }

    /// The source as an image, if it is stored in rows.
    pub(crate) fn image(&self, places: &Places) -> ImageSource {
        ImageSource { data: places.input(self.first), channels: self.channels, voxels: self.voxels }
    }
}

/// The blocks of all of some sources, in order.
pub(crate) fn all_views<T: Element>(sources: &[SourceRef], places: &Places) -> Vec<SourceBlock<T>> {
    sources.iter().flat_map(|source| source.views(places)).collect()
}

/// The same, as they are stored; all sources of an op have one dtype.
pub(crate) fn stored_blocks(sources: &[SourceRef], places: &Places) -> Blocks {
    match sources.first().map(|source| source.dtype) {
        Some(DType::Bf16) => Blocks::Bf16(all_views(sources, places)),
        _ => Blocks::F32(all_views(sources, places)),
    }
}

/// Channels of each source.
pub(crate) fn channels_of(sources: &[SourceRef]) -> Vec<usize> {
    sources.iter().map(|source| source.channels).collect()
}
