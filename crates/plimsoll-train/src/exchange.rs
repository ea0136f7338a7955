//! The gradients of one shard of each rank on their way to the owners of the tensors, while a program computes them.
//!
//! Each rank sends every other the gradients that this one owns, in the order in which they are complete. An owner adds a message once it is here from
//! all ranks and its own part is computed, in the order of the ranks, which is the order of their shards.

use std::collections::VecDeque;

use plimsoll_plan::Engine;
use plimsoll_ranks::{RanksError, Segment, Transfer};

use crate::TrainError;
use crate::gradient_sums::{OwnedSums, add};
use crate::ranks::{GRADIENTS, Ranks, window};
use crate::stream::{Division, Stream};

/// A message from another rank.
enum Received {
    Coming(Transfer),
    Here(Segment),
}

/// The messages between this rank and another.
#[derive(Default)]
struct Peer {
    /// The number of the next message that it gets.
    next: usize,
    sending: Vec<Transfer>,
    /// The messages from it that are not added, in their order.
    received: VecDeque<Received>,
}

impl Peer {
    /// The messages that have neither left nor come.
    fn in_flight(&self) -> impl Iterator<Item = &Transfer> {
        let coming = self.received.iter().filter_map(|received| match received {
            Received::Coming(transfer) => Some(transfer),
            Received::Here(_) => None,
        });
        self.sending.iter().chain(coming)
    }
}

/// An exchange of gradients.
pub(crate) struct Exchange<'a> {
    rank: usize,
    streams: &'a [Stream],
    division: &'a Division,
    /// The number of launches after which each message of each rank is computed.
    ready: &'a [Vec<usize>],
    window: usize,
    peers: Vec<Peer>,
    /// The messages with this rank's own gradients that each other rank is expected to send, and those that are added.
    expected: usize,
    added: usize,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        rank: usize,
        streams: &'a [Stream],
        division: &'a Division,
        ready: &'a [Vec<usize>],
    ) -> Exchange<'a> {
        let ranks = division.ranks();
        let peers = (0..ranks).map(|_| Peer::default()).collect();
        let window = window(ranks);
        Exchange { rank, streams, division, ready, window, peers, expected: 0, added: 0 }
    }

    /// The other ranks.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.peers.len()).filter(move |peer| *peer != rank)
    }

    /// Begins to receive the first messages.
    pub(crate) fn begin(&mut self, ranks: &mut Ranks<'_>) -> Result<(), RanksError> {
        while self.expected < self.division.count(self.rank).min(self.added + self.window) {
            let elements = self.division.stretch(self.rank, self.expected).len();
            for peer in self.others() {
                let segment = Segment::zeroed(elements * size_of::<f32>());
                let transfer = ranks.receive(peer, GRADIENTS, segment)?;
                self.peers[peer].received.push_back(Received::Coming(transfer));
            }
            self.expected += 1;
        }
        Ok(())
    }

    /// Sends what is computed after some launches, and adds what is here. Returns `true` if there was something.
    pub(crate) fn progress(
        &mut self,
        launches: usize,
        engine: &dyn Engine,
        sums: &mut OwnedSums,
        ranks: &mut Ranks<'_>,
    ) -> Result<bool, TrainError> {
        let mut is_any = false;
        for peer in self.others() {
            is_any |= self.send(peer, launches, engine, ranks)?;
            for received in &mut self.peers[peer].received {
                if let Received::Coming(transfer) = received
                    && ranks.is_done(transfer)?
                {
                    let transfer = std::mem::replace(received, Received::Here(Segment::default()));
                    if let Received::Coming(transfer) = transfer {
                        *received = Received::Here(ranks.wait(transfer)?);
                    }
                    is_any = true;
                }
            }
        }
        while self.is_here(launches) {
            self.add(engine, sums)?;
            is_any = true;
        }
        self.begin(ranks)?;
        Ok(is_any)
    }

    /// Sends a rank the messages that are computed, as many as may be in flight. Returns `true` if one was sent or has left.
    fn send(
        &mut self,
        to: usize,
        launches: usize,
        engine: &dyn Engine,
        ranks: &mut Ranks<'_>,
    ) -> Result<bool, TrainError> {
        let peer = &mut self.peers[to];
        let mut is_any = ranks.end_sent(&mut peer.sending)?;
        while peer.sending.len() < self.window
            && self.ready[to].get(peer.next).is_some_and(|ready| *ready <= launches)
        {
            let stretch = self.division.stretch(to, peer.next);
            let mut segment = Segment::zeroed(stretch.len() * size_of::<f32>());
            self.streams[to].read(engine, stretch, bytemuck::cast_slice_mut(segment.bytes_mut()))?;
            peer.sending.push(ranks.send(to, GRADIENTS, segment)?);
            peer.next += 1;
            is_any = true;
        }
        Ok(is_any)
    }

    /// Returns `true` if the next message of this rank's tensors is here from all ranks.
    fn is_here(&self, launches: usize) -> bool {
        let own = self.ready[self.rank].get(self.added);
        own.is_some_and(|ready| *ready <= launches)
            && self.others().all(|peer| matches!(self.peers[peer].received.front(), Some(Received::Here(_))))
    }

    /// Adds the next message of this rank's tensors, rank by rank.
    fn add(&mut self, engine: &dyn Engine, sums: &mut OwnedSums) -> Result<(), TrainError> {
        let stretch = self.division.stretch(self.rank, self.added);
        let OwnedSums { values, own } = sums;
        let own = &mut own[..stretch.len()];
        self.streams[self.rank].read(engine, stretch.clone(), own)?;
        let values = &mut values[stretch];
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            if rank == self.rank {
                add(values, own);
            } else if let Some(Received::Here(segment)) = peer.received.pop_front() {
                add(values, bytemuck::cast_slice(segment.bytes()));
            }
        }
        self.added += 1;
        Ok(())
    }

    /// Sends and adds the rest after the last launch.
    pub(crate) fn finish(
        mut self,
        launches: usize,
        engine: &dyn Engine,
        sums: &mut OwnedSums,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        loop {
            if self.progress(launches, engine, sums, ranks)? {
                continue;
            }
            let in_flight: Vec<&Transfer> = self.peers.iter().flat_map(Peer::in_flight).collect();
            // Nothing is in flight only if all is sent and added: what could be sent was, and what is expected comes.
            if in_flight.is_empty() {
                return Ok(());
            }
            ranks.wait_any(&in_flight)?;
        }
    }
}
