//! Sources of convolutions on tensor cores: as they are stored, or normalised and activated when they are staged.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_plan::Unsupported;

use super::MOST_SOURCES;
use super::tiling::channels_of_chunk;
use crate::lower::{Context, Operand, PACK_BYTES, Stretch, address_or_null};
use crate::ops::NormAct;

/// Channels of a piece that a thread stages and normalises at once.
const PIECE: usize = 8;

/// Returns `true` if a map of this number of channels can be normalised while it is staged: all its pieces are whole.
pub(crate) fn normalises_channels(channels: usize) -> bool {
    channels.is_multiple_of(PIECE)
}

/// A source among the operands of a node.
pub(super) struct Source<'a> {
    pub(super) map: Operand<'a>,
    norm: Option<(NormAct, Vec<Operand<'a>>)>,
}

impl<'a> Source<'a> {
    /// The first operands of a node, each as it is stored or as [`NormAct`] would make it of its own operands; and the operands behind them.
    pub(super) fn all<'o>(
        operands: &'o [Operand<'a>],
        loads: &[Option<NormAct>],
    ) -> (Vec<Source<'a>>, &'o [Operand<'a>]) {
        let mut rest = operands;
        let sources = loads.iter().map(|load| {
            let (own, after) = rest.split_at(load.map_or(1, NormAct::operands));
            rest = after;
            Source { map: own[0], norm: load.map(|norm| (norm, own[1..].to_vec())) }
        });
        (sources.collect(), rest)
    }
}

/// `Sources` of the kernels.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SourceParameters {
    maps: [u64; MOST_SOURCES],
    statistics: [u64; MOST_SOURCES],
    scale: [u64; MOST_SOURCES],
    shift: [u64; MOST_SOURCES],
    slope: [f32; MOST_SOURCES],
    pub(super) channels: [u32; MOST_SOURCES],
    /// 1 for sources that are stored as f32, and rounded when they are staged.
    is_wide: [u32; MOST_SOURCES],
}

/// Chunks of the channels of sources, by what threads do with them.
#[derive(Clone, Copy, Default)]
pub(super) struct Chunks {
    /// Copied in pieces of 16 bytes.
    pub(super) copied: usize,
    /// Staged number by number: channels that are no whole pieces, and f32 that is rounded.
    pub(super) by_number: usize,
    /// Changed once they are staged: normalised, or rounded to tf32.
    pub(super) changed: usize,
}

impl Chunks {
    pub(super) fn new(sources: &[Source<'_>], multiplied: DType) -> Chunks {
        let mut all = Chunks::default();
        for source in sources {
            let channels = source.map.info.shape.channels();
            let own = channels.div_ceil(channels_of_chunk(multiplied));
            let is_copied = source.map.info.dtype == multiplied
                && (channels * multiplied.bytes()).is_multiple_of(PACK_BYTES);
            *(if is_copied { &mut all.copied } else { &mut all.by_number }) += own;
            if source.norm.is_some() || multiplied == DType::F32 {
                all.changed += own;
            }
        }
        all
    }

    pub(super) fn count(self) -> usize {
        self.copied + self.by_number
    }
}

/// Returns the parameters that describe sources to kernels which multiply numbers of `multiplied`, and the memory that they read.
///
/// # Errors
/// Returns an error if there are too many sources, or one is too large, or is both rounded and normalised when it is staged.
pub(super) fn parameters(
    cx: &Context<'_>,
    sources: &[Source<'_>],
    multiplied: DType,
) -> Result<(SourceParameters, Vec<Stretch>), Unsupported> {
    let maps: Vec<Operand<'_>> = sources.iter().map(|source| source.map).collect();
    let (addresses, channels) = super::sources(cx, &maps)?;
    let none = [0; MOST_SOURCES];
    let slope = [1.0; MOST_SOURCES];
    let is_wide = [0; MOST_SOURCES];
    let mut parameters = SourceParameters {
        maps: addresses,
        statistics: none,
        scale: none,
        shift: none,
        slope,
        channels,
        is_wide,
    };
    let mut reads = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        reads.push(source.map.at);
        let is_wide = source.map.info.dtype != multiplied;
        parameters.is_wide[i] = u32::from(is_wide);
        let Some((norm, operands)) = &source.norm else { continue };
        if is_wide {
            return Err(cx.unsupported("a map that is stored as f32 and normalised when it is read"));
        }
        let address = |place: usize| address_or_null(operands.get(place));
        parameters.statistics[i] = address(0);
        parameters.scale[i] = address(1);
        parameters.shift[i] = address(2);
        parameters.slope[i] = norm.slope;
        reads.extend(operands.iter().map(|operand| operand.at));
    }
    Ok((parameters, reads))
}
