//! The ranks of one training: what they agree on, and the numbers that they exchange.

use std::time::Duration;

use plimsoll_memory::Bytes;
use plimsoll_nn::RankPlace;
use plimsoll_ranks::{Communicator, RanksError, Segment, Tag, Transfer};

/// The memory of all numbers that a rank has in flight, unless messages between many ranks would be too short.
const IN_FLIGHT: usize = 8 << 20;
/// The fewest elements of a message.
const SHORTEST: usize = 4096;
/// The most elements of a message.
const LONGEST: usize = 1 << 18;
/// The most messages in flight to one rank, and the number of other ranks from which on it is one.
const LONGEST_WINDOW: usize = 4;
const PEERS: usize = 8;

/// Gradients of a shard, to the owner of a tensor.
pub(crate) const GRADIENTS: Tag = Tag::from_u8(1);
/// Values that each rank passes on to the next.
pub(crate) const PASSED_ON: Tag = Tag::from_u8(2);
/// Values that the first rank stores.
const STORED: Tag = Tag::from_u8(3);

/// The place of a process among the ranks that train together.
pub struct RankedRun<'a> {
    /// The communication with the other ranks.
    pub communicator: &'a mut dyn Communicator,
    /// The longest wait for another rank once all have begun; `None` for the communicator's own.
    pub patience: Option<Duration>,
}

/// This process among the ranks of a training.
pub(crate) struct Ranks<'a> {
    communicator: &'a mut dyn Communicator,
    place: RankPlace,
}

/// The wishes of ranks at the end of a step, which hold for all if one has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The run ends.
    pub(crate) stop: bool,
    /// A checkpoint is written.
    pub(crate) checkpoint: bool,
}

/// The messages that a rank has in flight to each other rank, and as many from it: several between few ranks, so that a link never waits for the
/// next one.
pub(crate) fn window(ranks: usize) -> usize {
    (PEERS / ranks.saturating_sub(1).max(1)).clamp(1, LONGEST_WINDOW)
}

/// The messages that a rank has in flight to the next rank of the ring, and as many from the previous one.
pub(crate) fn ring_window(ranks: usize) -> usize {
    window(ranks) * ranks.saturating_sub(1)
}

/// The most messages of a rank in flight: those that it sends and those that it receives.
fn messages_in_flight(ranks: usize) -> usize {
    2 * ring_window(ranks)
}

/// The elements of a message between `ranks` ranks: fewer for more of them, so that the memory in flight does not grow.
pub(crate) fn message_elements(ranks: usize) -> usize {
    (IN_FLIGHT / size_of::<f32>() / messages_in_flight(ranks).max(1)).clamp(SHORTEST, LONGEST)
}

/// The memory of messages in flight.
pub(crate) fn message_bytes(ranks: usize) -> Bytes {
    Bytes::from_len(messages_in_flight(ranks) * message_elements(ranks) * size_of::<f32>())
}

/// The bytes of a rank's wishes.
pub(crate) const WISHES_BYTES: usize = 2;

impl<'a> Ranks<'a> {
    pub(crate) fn new(communicator: &'a mut dyn Communicator) -> Ranks<'a> {
        let place = RankPlace { rank: communicator.rank(), ranks: communicator.size() };
        Ranks { communicator, place }
    }

    pub(crate) fn place(&self) -> RankPlace {
        self.place
    }

    /// Returns `true` for the rank that writes the files of the run.
    pub(crate) fn is_first(&self) -> bool {
        self.place.rank == 0
    }

    /// Returns `true` if there is no other rank.
    pub(crate) fn is_alone(&self) -> bool {
        self.place.ranks == 1
    }

    /// Sets the longest wait for another rank.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.communicator.set_patience(patience);
    }

    /// Waits until all ranks are here.
    pub(crate) fn meet(&mut self) -> Result<(), RanksError> {
        self.communicator.barrier()
    }

    /// Returns the bytes of all ranks one after the other. All ranks pass the same number of bytes.
    pub(crate) fn all_gather(&mut self, own: &[u8]) -> Result<Vec<u8>, RanksError> {
        if self.is_alone() {
            return Ok(own.to_vec());
        }
        Ok(self.communicator.all_gather(own, own.len())?.bytes().to_vec())
    }

    /// The wishes of all ranks together.
    pub(crate) fn agree(&mut self, own: Wishes) -> Result<Wishes, RanksError> {
        if self.is_alone() {
            return Ok(own);
        }
        let own: [u8; WISHES_BYTES] = [u8::from(own.stop), u8::from(own.checkpoint)];
        let all = self.all_gather(&own)?;
        let any = |which: usize| all.chunks_exact(WISHES_BYTES).any(|wishes| wishes[which] != 0);
        Ok(Wishes { stop: any(0), checkpoint: any(1) })
    }

    /// Begins to send a segment.
    pub(crate) fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        self.communicator.send(to, tag, segment)
    }

    /// Begins to receive a segment.
    pub(crate) fn receive(
        &mut self,
        from: usize,
        tag: Tag,
        segment: Segment,
    ) -> Result<Transfer, RanksError> {
        self.communicator.receive(from, tag, segment)
    }

    /// Returns `true` if a segment has arrived or is sent.
    pub(crate) fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        self.communicator.is_done(transfer)
    }

    /// Waits until a segment has arrived or is sent, and returns it.
    pub(crate) fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.communicator.wait(transfer)
    }

    /// Waits until one of several segments has arrived or is sent.
    pub(crate) fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        self.communicator.wait_any(transfers)
    }

    /// Removes the segments that are sent. Returns `true` if there is one.
    pub(crate) fn end_sent(&mut self, sending: &mut Vec<Transfer>) -> Result<bool, RanksError> {
        let (mut at, before) = (0, sending.len());
        while at < sending.len() {
            match self.communicator.is_done(&sending[at])? {
                true => drop(self.communicator.wait(sending.remove(at))?),
                false => at += 1,
            }
        }
        Ok(sending.len() < before)
    }

    /// Sends values to the first rank.
    pub(crate) fn send_stored(&mut self, values: &[f32]) -> Result<(), RanksError> {
        for values in values.chunks(message_elements(self.place.ranks)) {
            let segment = Segment::copy_of(bytemuck::cast_slice(values));
            let sent = self.communicator.send(0, STORED, segment)?;
            self.communicator.wait(sent)?;
        }
        Ok(())
    }

    /// Receives values that another rank sends with [`send_stored`](Self::send_stored).
    pub(crate) fn receive_stored(&mut self, from: usize, values: &mut [f32]) -> Result<(), RanksError> {
        for values in values.chunks_mut(message_elements(self.place.ranks)) {
            let segment = Segment::zeroed(size_of_val(values));
            let receiving = self.communicator.receive(from, STORED, segment)?;
            let segment = self.communicator.wait(receiving)?;
            values.copy_from_slice(bytemuck::cast_slice(segment.bytes()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_flight_take_little_memory_for_any_number_of_ranks() {
        assert_eq!(message_bytes(1), Bytes::ZERO);
        for ranks in [2, 3, 16, 100] {
            assert!(message_bytes(ranks) <= Bytes::from_len(IN_FLIGHT), "{ranks}");
        }
        assert!(message_bytes(1024) <= Bytes::mib(32));
    }
}
