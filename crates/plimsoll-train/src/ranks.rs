//! The ranks of one training: what they agree on, and the numbers that they exchange.

use std::time::Duration;

use plimsoll_memory::Bytes;
use plimsoll_nn::RankPlace;
use plimsoll_ranks::{Communicator, Messages, RanksError, Segment, Tag, Traffic, Transfer};

/// The memory of all numbers that a rank has in flight, unless messages between many ranks would be too short.
const IN_FLIGHT: usize = 8 << 20;
/// The fewest elements of a message.
const SHORTEST: usize = 4096;
/// The most elements of a message.
const LONGEST: usize = 1 << 18;

/// Gradients of a shard, to the owner of a tensor.
const GRADIENTS: Tag = Tag::from_u8(1);
/// Values that each rank passes on to the next.
const PASSED_ON: Tag = Tag::from_u8(2);
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

/// The segments that are in flight while gradients of one stretch of each rank's tensors are exchanged.
pub(crate) struct GradientExchange {
    received: Vec<Option<Transfer>>,
    sent: Vec<Transfer>,
}

/// The elements of a message between `ranks` ranks: fewer for more of them, so that the memory in flight does not grow.
pub(crate) fn message_elements(ranks: usize) -> usize {
    let messages = (2 * ranks.saturating_sub(1)).max(1);
    (IN_FLIGHT / size_of::<f32>() / messages).clamp(SHORTEST, LONGEST)
}

/// The memory of messages in flight.
pub(crate) fn message_bytes(ranks: usize) -> Bytes {
    let messages = 2 * ranks.saturating_sub(1);
    Bytes::from_len(messages * message_elements(ranks) * size_of::<f32>())
}

/// The messages of a rank in an exchange of `bytes` bytes of each rank among all: a gather at the first rank, and a broadcast from there.
pub(crate) fn all_gather_traffic(place: RankPlace, bytes: usize) -> Traffic {
    let RankPlace { rank, ranks } = place;
    Traffic::of_gather(rank, ranks, 0, bytes) + Traffic::of_broadcast(rank, ranks, 0, bytes * ranks)
}

/// The neighbours of a rank while values of one rank are passed around the ring.
pub(crate) struct Neighbours {
    /// The rank that sends them to this one; `None` at the owner of the values.
    pub(crate) previous: Option<usize>,
    /// The rank that this one passes them on to; `None` at the last.
    pub(crate) next: Option<usize>,
}

impl Neighbours {
    pub(crate) fn new(place: RankPlace, owner: usize) -> Neighbours {
        let RankPlace { rank, ranks } = place;
        let (previous, next) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        Neighbours { previous: (rank != owner).then_some(previous), next: (next != owner).then_some(next) }
    }

    /// The messages of a rank while `elements` values are passed on.
    pub(crate) fn traffic(&self, ranks: usize, elements: usize) -> Traffic {
        let count = elements.div_ceil(message_elements(ranks)) as u64;
        let messages = Messages { count, bytes: (elements * size_of::<f32>()) as u64 };
        let if_any = |peer: Option<usize>| peer.map_or(Messages::default(), |_| messages);
        Traffic { sent: if_any(self.next), received: if_any(self.previous) }
    }
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
        let gathered = self.communicator.gather(0, own, own.len())?;
        let mut all = Segment::zeroed(own.len() * self.place.ranks);
        for (bytes, gathered) in all.bytes_mut().chunks_mut(own.len().max(1)).zip(&gathered) {
            bytes.copy_from_slice(gathered.bytes());
        }
        Ok(self.communicator.broadcast(0, all)?.bytes().to_vec())
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

    /// Copies the values of the rank `owner` to all ranks. Each rank passes them on to the next, so that all links work at once.
    pub(crate) fn spread(&mut self, owner: usize, values: &mut [f32]) -> Result<(), RanksError> {
        if self.is_alone() {
            return Ok(());
        }
        let Neighbours { previous, next } = Neighbours::new(self.place, owner);
        let mut sending: Option<Transfer> = None;
        for values in values.chunks_mut(message_elements(self.place.ranks)) {
            if let Some(previous) = previous {
                let segment = Segment::zeroed(size_of_val(values));
                let receiving = self.communicator.receive(previous, PASSED_ON, segment)?;
                let segment = self.communicator.wait(receiving)?;
                values.copy_from_slice(bytemuck::cast_slice(segment.bytes()));
            }
            if let Some(next) = next {
                if let Some(sent) = sending.take() {
                    self.communicator.wait(sent)?;
                }
                let segment = Segment::copy_of(bytemuck::cast_slice(values));
                sending = Some(self.communicator.send(next, PASSED_ON, segment)?);
            }
        }
        if let Some(sent) = sending {
            self.communicator.wait(sent)?;
        }
        Ok(())
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

    /// Begins to receive `elements` gradients from each other rank.
    pub(crate) fn receive_gradients(&mut self, elements: usize) -> Result<GradientExchange, RanksError> {
        let RankPlace { rank, ranks } = self.place;
        let mut received = Vec::with_capacity(ranks);
        for peer in 0..ranks {
            let is_expected = peer != rank && elements > 0;
            let segment = || Segment::zeroed(elements * size_of::<f32>());
            received.push(match is_expected {
                true => Some(self.communicator.receive(peer, GRADIENTS, segment())?),
                false => None,
            });
        }
        Ok(GradientExchange { received, sent: Vec::with_capacity(ranks) })
    }

    /// Begins to send gradients, which `fill` writes, to another rank.
    pub(crate) fn send_gradients<E: From<RanksError>>(
        &mut self,
        exchange: &mut GradientExchange,
        to: usize,
        elements: usize,
        fill: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if elements > 0 {
            let mut segment = Segment::zeroed(elements * size_of::<f32>());
            fill(bytemuck::cast_slice_mut(segment.bytes_mut()))?;
            exchange.sent.push(self.communicator.send(to, GRADIENTS, segment)?);
        }
        Ok(())
    }

    /// The gradients of another rank; `None` if none were expected.
    pub(crate) fn received(
        &mut self,
        exchange: &mut GradientExchange,
        from: usize,
    ) -> Result<Option<Segment>, RanksError> {
        match exchange.received.get_mut(from).and_then(Option::take) {
            Some(transfer) => Ok(Some(self.communicator.wait(transfer)?)),
            None => Ok(None),
        }
    }

    /// Waits until all gradients are sent.
    pub(crate) fn finish(&mut self, exchange: GradientExchange) -> Result<(), RanksError> {
        for sent in exchange.sent {
            self.communicator.wait(sent)?;
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
