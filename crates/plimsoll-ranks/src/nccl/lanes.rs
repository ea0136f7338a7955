//! The streams and the buffers of a card through which messages go.

use std::ffi::c_void;

/// The most memory of all buffers of a rank, on its card and, once more, page-locked in its process.
const BUFFERS: usize = 8 << 20;
/// The fewest and the most bytes of a buffer.
const SHORTEST: usize = 16 << 10;
const LONGEST: usize = 1 << 20;

/// An error of a card, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LaneError(pub String);

/// The number and the size of a rank's lanes: one to each other rank, and one from each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSizes {
    /// The number of lanes.
    pub lanes: usize,
    /// The buffers of a lane: while one is sent, the next is filled.
    pub buffers: usize,
    /// The bytes of a buffer on the card, and of its copy in this process.
    pub bytes: usize,
}

impl LaneSizes {
    /// The lanes of a rank among `ranks`, which all have lanes of this size.
    pub fn new(ranks: usize) -> LaneSizes {
        let (lanes, buffers) = (2 * ranks.saturating_sub(1), 2);
        let bytes = (BUFFERS / (lanes * buffers).max(1)).clamp(SHORTEST, LONGEST) / 4096 * 4096;
        LaneSizes { lanes, buffers, bytes }
    }

    /// The bytes of all buffers on the card, and once more in this process.
    pub fn total(&self) -> usize {
        self.lanes * self.buffers * self.bytes
    }
}

/// The lanes of a card. Each is a stream, whose work runs in order and beside the work of other lanes, with some buffers. A buffer is memory of
/// the card, and page-locked memory of this process that is copied to it or from it.
///
/// # Safety
/// [`stream`](Self::stream) and [`address`](Self::address) are valid until this is dropped: a stream of the card, and so many bytes of its memory
/// as [`LaneSizes`] states, which nothing else uses.
pub unsafe trait Lanes: Send {
    /// The sizes with which the lanes were made.
    fn sizes(&self) -> LaneSizes;

    /// Makes the card the one that this thread uses.
    ///
    /// # Errors
    /// Returns an error if the card has failed.
    fn bind(&self) -> Result<(), LaneError>;

    /// The stream of a lane.
    fn stream(&self, lane: usize) -> *mut c_void;

    /// The address of a buffer on the card.
    fn address(&self, lane: usize, buffer: usize) -> u64;

    /// The bytes of a buffer in this process. Work that uses them has ended.
    fn host(&mut self, lane: usize, buffer: usize) -> &mut [u8];

    /// Enqueues a copy of the first bytes of a buffer to the card.
    ///
    /// # Errors
    /// Returns an error if the card has failed.
    fn upload(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError>;

    /// Enqueues a copy of the first bytes of a buffer from the card.
    ///
    /// # Errors
    /// Returns an error if the card has failed.
    fn download(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError>;

    /// Notes that all work of a buffer is enqueued.
    ///
    /// # Errors
    /// Returns an error if the card has failed.
    fn mark(&mut self, lane: usize, buffer: usize) -> Result<(), LaneError>;

    /// Returns `true` if all work of a buffer before its last mark has ended.
    ///
    /// # Errors
    /// Returns an error if the card has failed.
    fn is_done(&mut self, lane: usize, buffer: usize) -> Result<bool, LaneError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_take_little_memory_for_any_number_of_ranks() {
        assert_eq!(LaneSizes::new(1).total(), 0);
        assert_eq!(LaneSizes::new(2), LaneSizes { lanes: 2, buffers: 2, bytes: 1 << 20 });
        for ranks in 2..=super::super::most_ranks(super::super::MOST_QUEUES) {
            let sizes = LaneSizes::new(ranks);
            assert!(sizes.total() <= BUFFERS && sizes.bytes.is_multiple_of(4096), "{ranks}: {sizes:?}");
        }
    }
}
