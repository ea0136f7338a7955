//! Memory that is sent and received.

use std::fmt;

/// Bytes that are sent or received, aligned for numbers of up to 64 bits. While they are in flight, the communicator owns them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Segment {
    words: Vec<u64>,
    bytes: usize,
}

impl Segment {
    /// A segment of this many zeros. The caller reserves its memory.
    pub fn zeroed(bytes: usize) -> Segment {
        Segment { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes }
    }

    /// A segment with a copy of some bytes.
    pub fn copy_of(bytes: &[u8]) -> Segment {
        let mut segment = Segment::zeroed(bytes.len());
        segment.bytes_mut().copy_from_slice(bytes);
        segment
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if it has no byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes. Slices of numbers can be cast from them.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = bytemuck::cast_slice(&self.words);
        all.get(..self.bytes).unwrap_or(all)
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        let bytes = self.bytes.min(all.len());
        all.split_at_mut(bytes).0
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment of {} bytes", self.bytes)
    }
}
