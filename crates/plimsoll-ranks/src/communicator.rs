//! The communication between the ranks of a job.
//!
//! An implementation sends and receives segments without blocking. All collective operations are built on that here, once: their messages
//! are in the same order everywhere, and hangs are detected in one place, [`Communicator::wait`].

use std::thread;
use std::time::Duration;

use crate::error::RanksError;
use crate::segment::Segment;
use crate::traffic::TreePlace;

/// The number that tells messages between two ranks apart. Messages of one tag arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(u16);

/// The bytes of a length, which precedes gathered bytes.
pub(crate) const LENGTH_BYTES: usize = size_of::<u64>();

/// The first tag of collective operations. Every MPI library has tags up to 32,767.
const COLLECTIVE: u16 = 1 << 14;

impl Tag {
    const BARRIER: Tag = Tag(COLLECTIVE);
    const BROADCAST: Tag = Tag(COLLECTIVE + 1);
    const LENGTH: Tag = Tag(COLLECTIVE + 2);
    const GATHER: Tag = Tag(COLLECTIVE + 3);
    /// Notices about segments that go through cards, and identifiers of channels.
    #[cfg(unix)]
    pub(crate) const NOTICE: Tag = Tag(COLLECTIVE + 4);
    #[cfg(unix)]
    pub(crate) const CARD_ID: Tag = Tag(COLLECTIVE + 5);
    /// Notices of ranks that watch over each other.
    #[cfg(any(unix, test))]
    pub(crate) const WATCH: Tag = Tag(COLLECTIVE + 6);

    /// The tag of a number; `None` from 16,384, which collective operations use.
    pub fn new(number: u16) -> Option<Tag> {
        (number < COLLECTIVE).then_some(Tag(number))
    }

    /// The tag of a small number.
    pub const fn from_u8(number: u8) -> Tag {
        Tag(u16::from_le_bytes([number, 0]))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns `true` for a tag of collective operations.
    #[cfg(unix)]
    pub(crate) fn is_collective(self) -> bool {
        self.0 >= COLLECTIVE
    }
}

/// A segment in flight.
#[derive(Debug)]
#[must_use = "a segment in flight belongs to the communicator until it is waited for"]
pub struct Transfer(pub(crate) u64);

/// The place of a rank among the ranks on its node, which share the node's memory and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// The number of this rank on its node, from 0.
    pub rank: usize,
    /// The number of ranks on the node.
    pub size: usize,
}

/// The communication of one rank with the others of its job.
///
/// After an error a job cannot go on: each rank reports its error and [aborts](Self::abort).
pub trait Communicator {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// The place on this node.
    fn node(&self) -> NodePlace;

    /// Sets the longest time that this rank waits without progress.
    fn set_patience(&mut self, patience: Duration);

    /// Returns `true` if a rank that hangs is noticed without a wait for it, so that waits may be longer than the patience.
    fn is_watched(&self) -> bool {
        false
    }

    /// Begins to send a segment.
    ///
    /// # Errors
    /// Returns an error if there is no such rank, or communication fails.
    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError>;

    /// Begins to receive a segment of exactly this length.
    ///
    /// # Errors
    /// Returns an error if there is no such rank, or communication fails.
    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError>;

    /// Makes progress, and returns `true` if a segment has arrived, or may be changed after it was sent.
    ///
    /// # Errors
    /// Returns an error if communication fails, or a message has another length.
    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError>;

    /// Waits until a segment has arrived, or may be changed after it was sent, and returns it.
    ///
    /// # Errors
    /// Returns an error if communication fails, a message has another length, or nothing happens for too long.
    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError>;

    /// Waits until at least one of several segments has arrived, or may be changed after it was sent. Returns at once if there is none.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError>;

    /// Sleeps because this rank has nothing to do until others have: no rank that watches over it misses its progress meanwhile.
    fn rest(&mut self, pause: Duration) {
        thread::sleep(pause);
    }

    /// Ends the job of all ranks with a status. Processes are killed, this one as well: report errors before.
    fn abort(&mut self, status: i32);

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    fn barrier(&mut self) -> Result<(), RanksError> {
        let (rank, size) = (self.rank(), self.size());
        // Dissemination: after round n each rank has heard of the 2ⁿ ranks before it.
        let mut distance = 1;
        while distance < size {
            let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
            let sent = self.send(to, Tag::BARRIER, Segment::default())?;
            let received = self.receive(from, Tag::BARRIER, Segment::default())?;
            self.wait(received)?;
            self.wait(sent)?;
            distance *= 2;
        }
        Ok(())
    }

    /// Copies the bytes of the rank `root` to all ranks, which pass a segment of the same length. Returns the segment.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    fn broadcast(&mut self, root: usize, segment: Segment) -> Result<Segment, RanksError> {
        let (rank, size) = (self.rank(), self.size());
        check_rank(root, size)?;
        let place = TreePlace::new(rank, size, root);
        let mut segment = segment;
        if let Some(parent) = place.parent() {
            let received = self.receive(parent, Tag::BROADCAST, segment)?;
            segment = self.wait(received)?;
        }
        for child in place.children() {
            let sent = self.send(child, Tag::BROADCAST, segment)?;
            segment = self.wait(sent)?;
        }
        Ok(segment)
    }

    /// Returns the bytes of all ranks, in their order, to the rank `root`, and none to the others. Each rank may pass another number of bytes,
    /// `most` at most.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait), and an error if a rank sends more.
    fn gather(&mut self, root: usize, bytes: &[u8], most: usize) -> Result<Vec<Segment>, RanksError> {
        let (rank, size) = (self.rank(), self.size());
        check_rank(root, size)?;
        if rank != root {
            let length = Segment::copy_of(&(bytes.len() as u64).to_le_bytes());
            let length = self.send(root, Tag::LENGTH, length)?;
            let sent = self.send(root, Tag::GATHER, Segment::copy_of(bytes))?;
            self.wait(length)?;
            self.wait(sent)?;
            return Ok(Vec::new());
        }
        let mut all = Vec::with_capacity(size);
        for peer in 0..size {
            if peer == root {
                all.push(Segment::copy_of(bytes));
                continue;
            }
            let received = self.receive(peer, Tag::LENGTH, Segment::zeroed(LENGTH_BYTES))?;
            let length = self.wait(received)?;
            let word = length.bytes().first_chunk();
            let other_length = RanksError::Length { rank, peer, expected: LENGTH_BYTES, found: length.len() };
            let length = u64::from_le_bytes(*word.ok_or(other_length)?);
            let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= most);
            let bytes = bytes.ok_or(RanksError::TooLong { rank, peer, bytes: length, most })?;
            let received = self.receive(peer, Tag::GATHER, Segment::zeroed(bytes))?;
            all.push(self.wait(received)?);
        }
        Ok(all)
    }

    /// Returns `most` bytes of each rank, in their order, to all ranks. Each may pass fewer bytes, which are followed by zeros. The caller
    /// reserves the memory of three times the bytes of all.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait), and an error if a rank passes more.
    fn all_gather(&mut self, bytes: &[u8], most: usize) -> Result<Segment, RanksError> {
        let (rank, size) = (self.rank(), self.size());
        if bytes.len() > most {
            return Err(RanksError::TooLong { rank, peer: rank, bytes: bytes.len() as u64, most });
        }
        let gathered = self.gather(0, bytes, most)?;
        let mut all = Segment::zeroed(most * size);
        for (place, gathered) in all.bytes_mut().chunks_mut(most.max(1)).zip(&gathered) {
            place.split_at_mut(gathered.len()).0.copy_from_slice(gathered.bytes());
        }
        drop(gathered);
        self.broadcast(0, all)
    }
}

/// Checks that a rank exists.
pub(crate) fn check_rank(rank: usize, size: usize) -> Result<(), RanksError> {
    if rank < size { Ok(()) } else { Err(RanksError::NoRank { rank, size }) }
}
