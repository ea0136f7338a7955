//! Tensors of one rank that are sent in messages, one tensor after the other.

use std::ops::Range;

use plimsoll_graph::TensorId;
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};

/// A tensor that its owner sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentTensor {
    pub(crate) program: ProgramId,
    pub(crate) tensor: TensorId,
    pub(crate) elements: usize,
    /// The rank that has its values.
    pub(crate) owner: usize,
}

/// The tensors of one rank, whose elements follow each other.
#[derive(Default)]
pub(crate) struct Stream {
    /// The tensors, each with the number of its first element.
    tensors: Vec<(SentTensor, usize)>,
    elements: usize,
}

impl Stream {
    /// The streams of all ranks, with the tensors of each in the given order.
    pub(crate) fn by_owner(tensors: impl IntoIterator<Item = SentTensor>, ranks: usize) -> Vec<Stream> {
        let mut streams: Vec<Stream> = (0..ranks).map(|_| Stream::default()).collect();
        for tensor in tensors {
            let stream = &mut streams[tensor.owner];
            stream.tensors.push((tensor, stream.elements));
            stream.elements += tensor.elements;
        }
        streams
    }

    /// The number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// The elements of a tensor, `None` if it is of another stream.
    pub(crate) fn elements_of(&self, tensor: TensorId) -> Option<Range<usize>> {
        let mut all = self.tensors.iter();
        let (found, start) = all.find(|(found, _)| found.tensor == tensor)?;
        Some(*start..start + found.elements)
    }

    /// The tensors that a stretch touches, each with its elements and their places in the stretch.
    pub(crate) fn pieces(
        &self,
        stretch: Range<usize>,
    ) -> impl Iterator<Item = (SentTensor, Range<usize>, Range<usize>)> {
        let first = self.tensors.partition_point(|(tensor, start)| start + tensor.elements <= stretch.start);
        let touched = self.tensors[first..].iter().take_while({
            let end = stretch.end;
            move |(_, start)| *start < end
        });
        let pieces = touched.map(move |(tensor, start)| {
            let (from, to) = (stretch.start.max(*start), stretch.end.min(start + tensor.elements));
            (*tensor, from - start..to - start, from - stretch.start..to - stretch.start)
        });
        pieces.filter(|(_, elements, _)| !elements.is_empty())
    }

    /// Reads a stretch.
    pub(crate) fn read(
        &self,
        engine: &dyn Engine,
        stretch: Range<usize>,
        values: &mut [f32],
    ) -> Result<(), EngineError> {
        for (SentTensor { program, tensor, .. }, elements, places) in self.pieces(stretch) {
            let values = HostSliceMut::F32(&mut values[places]);
            engine.read_from(program, tensor, elements.start, values)?;
        }
        Ok(())
    }

    /// Writes a stretch.
    pub(crate) fn write(
        &self,
        engine: &mut dyn Engine,
        stretch: Range<usize>,
        values: &[f32],
    ) -> Result<(), EngineError> {
        for (SentTensor { program, tensor, .. }, elements, places) in self.pieces(stretch) {
            engine.write_at(program, tensor, elements.start, HostSlice::F32(&values[places]))?;
        }
        Ok(())
    }
}

/// The messages in which the elements of all streams are sent.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    /// The elements of each rank's stream.
    elements: Vec<usize>,
    /// The most elements of a message.
    length: usize,
}

impl Division {
    /// The division of streams of some elements into messages of `length` at most.
    pub(crate) fn new(elements: Vec<usize>, length: usize) -> Division {
        Division { elements, length }
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.elements.len()
    }

    /// The elements of a rank's stream.
    pub(crate) fn elements(&self, rank: usize) -> usize {
        self.elements[rank]
    }

    /// The most elements of a message.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The number of messages with the elements of a rank.
    pub(crate) fn count(&self, rank: usize) -> usize {
        self.elements[rank].div_ceil(self.length)
    }

    /// The most messages with the elements of any rank.
    pub(crate) fn longest(&self) -> usize {
        (0..self.ranks()).map(|rank| self.count(rank)).max().unwrap_or(0)
    }

    /// The elements of a message.
    pub(crate) fn stretch(&self, rank: usize, message: usize) -> Range<usize> {
        let (first, all) = (message * self.length, self.elements[rank]);
        first.min(all)..(first + self.length).min(all)
    }

    /// The rank with the most elements; the first of several.
    pub(crate) fn largest(&self) -> usize {
        (0..self.ranks()).rev().max_by_key(|rank| self.elements[*rank]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(number: u32, elements: usize, owner: usize) -> SentTensor {
        SentTensor { program: ProgramId::new(0), tensor: TensorId(number), elements, owner }
    }

    #[test]
    fn a_stretch_touches_the_tensors_that_have_its_elements() {
        let tensors = [tensor(0, 5, 1), tensor(1, 3, 0), tensor(2, 4, 1), tensor(3, 2, 1)];
        let streams = Stream::by_owner(tensors, 2);
        assert_eq!([streams[0].elements(), streams[1].elements()], [3, 11]);
        let pieces = |stretch: Range<usize>| {
            let all = streams[1].pieces(stretch);
            all.map(|(sent, elements, places)| (sent.tensor.index(), elements, places)).collect::<Vec<_>>()
        };
        assert_eq!(pieces(0..4), [(0, 0..4, 0..4)]);
        assert_eq!(pieces(4..11), [(0, 4..5, 0..1), (2, 0..4, 1..5), (3, 0..2, 5..7)]);
        assert_eq!(pieces(6..8), [(2, 1..3, 0..2)]);
        assert_eq!(pieces(3..3), []);
        assert_eq!(streams[1].elements_of(TensorId(2)), Some(5..9));
        assert_eq!(streams[1].elements_of(TensorId(1)), None);
    }

    #[test]
    fn messages_cover_a_stream_once() {
        let division = Division::new(vec![10, 0, 7], 4);
        let stretches = [0, 1, 2].map(|rank| {
            let messages = 0..division.count(rank);
            messages.map(|message| division.stretch(rank, message)).collect::<Vec<_>>()
        });
        assert_eq!(stretches, [vec![0..4, 4..8, 8..10], vec![], vec![0..4, 4..7]]);
        assert!(division.stretch(2, 2).is_empty());
        assert_eq!((division.longest(), division.largest()), (3, 0));
    }
}
