//! The layout of the weights of a convolution to features: the blocks of channels that meet, and their lanes.
//!
//! A block of sixteen results is a sum over the blocks of sources that hold the inputs of its groups, `reach` of them from
//! `first` on: all of them without groups. Weights are `[O/16][reach][tap][inputs][16 out]`:
//!
//! - From features, with all sixteen lanes of a block as inputs. Where lanes of two groups meet, the weight is zero.
//! - From features in narrow groups, of 1, 2, 4 or 8 channels and as many outputs: a group lies within a block, and the
//!   inputs of a result are the inputs of its own group. Nothing is multiplied with zero.
//! - From an image, with its channels as inputs.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::{VolumeLayout, blocks};
use crate::simd::LANES;

/// The lanes of a source that a result is a sum over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Those of its blocks.
    Blocks,
    /// The inputs of its own group, this many.
    Own(usize),
    /// The channels of an image, this many.
    Image(usize),
}

/// The layout of the weights of a convolution to features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightBlocks {
    pub(crate) lanes: Lanes,
    /// Blocks of sources that each block of results reads.
    pub(crate) reach: usize,
    /// The first of them, for each block of results.
    pub(crate) first: Vec<usize>,
    groups: usize,
    /// Inputs and outputs of a group.
    width: [usize; 2],
    /// Block and lane of each input; each source begins a block.
    inputs: Vec<(usize, usize)>,
}

impl WeightBlocks {
    /// The layout for a convolution of sources with these numbers of channels.
    pub(crate) fn new(outputs: usize, sources: &[usize], groups: usize, from: VolumeLayout) -> WeightBlocks {
        let mut inputs = Vec::with_capacity(sources.iter().sum());
        let mut in_blocks = 0;
        for channels in sources {
            inputs.extend((0..*channels).map(|c| (in_blocks + c / LANES, c % LANES)));
            in_blocks += blocks(*channels);
        }
        let width = [inputs.len() / groups, outputs / groups];
        let narrow = groups > 1 && width[0] == width[1] && [1, 2, 4, 8].contains(&width[0]);
        let lanes = match from {
            VolumeLayout::Rows => Lanes::Image(inputs.len()),
            VolumeLayout::Blocks if narrow => Lanes::Own(width[0]),
            VolumeLayout::Blocks => Lanes::Blocks,
        };
        // The blocks of the inputs of the groups of a block of results.
        let meeting = |block: usize| -> Range<usize> {
            let end = outputs.min((block + 1) * LANES);
            let groups = block * LANES / width[1]..(end - 1) / width[1] + 1;
            inputs[groups.start * width[0]].0..inputs[groups.end * width[0] - 1].0 + 1
        };
        let meeting: Vec<Range<usize>> = match lanes {
            Lanes::Image(_) => vec![0..1; blocks(outputs)],
            _ => (0..blocks(outputs)).map(meeting).collect(),
        };
        // There is a block of results, since a convolution has at least one.
        let reach = meeting.iter().map(Range::len).fold(0, usize::max);
        let last = in_blocks.saturating_sub(reach);
        let first = meeting.iter().map(|blocks| blocks.start.min(last)).collect();
        WeightBlocks { lanes, reach, first, groups, width, inputs }
    }

    /// Inputs of each result in one block and tap.
    pub(crate) fn inputs(&self) -> usize {
        match self.lanes {
            Lanes::Blocks => LANES,
            Lanes::Own(inputs) | Lanes::Image(inputs) => inputs,
        }
    }

    /// Floats of a column of a gathered patch.
    pub(crate) fn column(&self) -> usize {
        match self.lanes {
            Lanes::Image(..=4) => 4,
            _ => LANES,
        }
    }

    /// For each input of an own group, which lane of a block it is, seen from each lane; nothing where lanes are not in groups
    /// of their own.
    pub(crate) fn own_lanes(&self) -> Vec<[i32; LANES]> {
        let Lanes::Own(width) = self.lanes else { return Vec::new() };
        let lane = |lane: usize, input: usize| (lane / width * width + input) as i32;
        (0..width).map(|input| std::array::from_fn(|at| lane(at, input))).collect()
    }

    /// The lanes of each block of sources that hold inputs, from the first on; others are zero.
    pub(crate) fn held_lanes(&self) -> Vec<usize> {
        let mut held = vec![0; self.inputs.last().map_or(0, |(block, _)| block + 1)];
        self.inputs.iter().for_each(|(block, lane)| held[*block] = lane + 1);
        held
    }

    /// The block of sources that an input is in.
    pub(crate) fn block_of(&self, input: usize) -> usize {
        self.inputs[input].0
    }

    pub(crate) fn out_blocks(&self) -> usize {
        self.first.len()
    }

    /// Floats of one tap.
    pub(crate) fn tap(&self) -> usize {
        self.inputs() * LANES
    }

    /// Floats of all.
    pub(crate) fn count(&self, taps: usize) -> usize {
        self.out_blocks() * self.reach * taps * self.tap()
    }

    /// Runs of blocks of results that read the same blocks of sources.
    pub(crate) fn runs(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        self.first
            .chunk_by(|a, b| a == b)
            .map(|run| {
                start += run.len();
                start - run.len()..start
            })
            .collect()
    }

    /// The place of the weight of an output and an input of its group.
    pub(crate) fn place(&self, output: usize, input: usize, taps: usize, tap: usize) -> usize {
        let channel = output / self.width[1] * self.width[0] + input;
        let (block, lane) = self.inputs[channel];
        let (pair, lane) = match self.lanes {
            // An input of the group of an output is in a block that its block reads: `first` and `reach` are made so.
            Lanes::Blocks => (output / LANES * self.reach + block - self.first[output / LANES], lane),
            Lanes::Own(_) => (output / LANES, input),
            Lanes::Image(_) => (output / LANES, channel),
        };
        ((pair * taps + tap) * self.inputs() + lane) * LANES + output % LANES
    }

    /// The place of a block of results and one of sources among all pairs, if they meet.
    pub(crate) fn pair(&self, output: usize, source: usize) -> Option<usize> {
        let at = source.checked_sub(self.first[output]).filter(|at| *at < self.reach)?;
        Some(output * self.reach + at)
    }

    /// Returns `true` if lanes of different groups have places of weights.
    pub(crate) fn connects_groups(&self) -> bool {
        let whole = self.width.iter().all(|width| width.is_multiple_of(LANES));
        match self.lanes {
            Lanes::Blocks => self.groups > 1 && !whole,
            Lanes::Own(_) => false,
            Lanes::Image(_) => self.groups > 1,
        }
    }

    /// The lanes of a block of results that an input belongs to: `at` of the blocks that it reads, `lane` of that.
    #[inline]
    pub(crate) fn met_by(&self, output: usize, at: usize, lane: usize) -> Range<usize> {
        let channel = (self.first[output] + at) * LANES + lane;
        if channel >= self.inputs.len() {
            return 0..0;
        }
        let first = channel / self.width[0] * self.width[1];
        let lane = |output_channel: usize| output_channel.saturating_sub(output * LANES).min(LANES);
        lane(first)..lane(first + self.width[1])
    }
}
