//! A rank whose long segments go through its card.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::thread;
use std::time::{Duration, Instant};

use super::NcclOptions;
use super::channel::{Channel, End, Job};
use super::functions::{ID_BYTES, NcclLibrary, SUCCESS, UniqueId};
use super::lanes::{LaneSizes, Lanes};
use super::notice::{NOTICE_BYTES, Notice};
use crate::communicator::{Communicator, NodePlace, Tag, Transfer, check_rank};
use crate::entries::Entries;
use crate::error::RanksError;
use crate::segment::Segment;

/// Rounds without a pause before a waiting rank gives its processor to others.
const SPINS: u32 = 2000;

/// The pause between rounds after these.
const PAUSE: Duration = Duration::from_micros(100);

/// A segment in flight.
enum InFlight {
    /// A segment of the other communicator.
    Other {
        peer: usize,
        transfer: Transfer,
    },
    /// A segment that goes through the cards, or waits for the other end.
    Card {
        peer: usize,
    },
    Done(Segment),
}

/// The messages between this rank and another.
#[derive(Default)]
struct Peer {
    /// The receipt of its next notice; `None` after its last.
    notice: Option<Transfer>,
    /// Segments that are offered to it, and those that it has offered by their tags and lengths, in their order.
    offered: VecDeque<(Tag, Job)>,
    offers: VecDeque<(Tag, usize)>,
    /// Segments that are expected from it.
    expected: VecDeque<(Tag, Job)>,
}

/// A rank whose long segments go through its card.
pub(super) struct NcclRank {
    control: Box<dyn Communicator + Send>,
    library: NcclLibrary,
    /// Leaked if communication has failed: the card may still use them.
    lanes: ManuallyDrop<Box<dyn Lanes>>,
    peers: Vec<Peer>,
    /// Two to each other rank: `2 · peer`, and `2 · peer + 1` from it; fewer after an error.
    channels: Entries<usize, Channel>,
    /// Notices on their way.
    notices: Vec<Transfer>,
    in_flight: Entries<u64, InFlight>,
    next: u64,
    options: NcclOptions,
    /// `true` once communication has failed: the other ranks may wait for this one.
    has_failed: bool,
}

impl NcclRank {
    /// Opens all channels. Takes the other communicator only if that succeeds.
    pub(super) fn open(
        control: &mut Option<Box<dyn Communicator + Send>>,
        library: NcclLibrary,
        lanes: Box<dyn Lanes>,
        options: NcclOptions,
    ) -> Result<NcclRank, RanksError> {
        let Some(taken) = control.take() else { return Err(RanksError::OpenedBefore) };
        let size = taken.size();
        let mut rank = NcclRank {
            control: taken,
            library,
            lanes: ManuallyDrop::new(lanes),
            peers: (0..size).map(|_| Peer::default()).collect(),
            channels: Entries::default(),
            notices: Vec::new(),
            in_flight: Entries::default(),
            next: 0,
            options,
            has_failed: false,
        };
        match rank.open_channels() {
            Ok(()) => Ok(rank),
            Err(error) => {
                rank.abort_channels();
                // Whoever has it aborts the job; this rank has nothing left to abort.
                *control = Some(std::mem::replace(&mut rank.control, Box::new(crate::alone())));
                Err(error)
            }
        }
    }

    fn place(&self) -> (usize, usize) {
        (self.control.rank(), self.control.size())
    }

    /// The other ranks.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = self.place();
        (0..size).filter(move |peer| *peer != rank)
    }

    fn card(&self) -> impl Fn(super::LaneError) -> RanksError + use<> {
        let rank = self.control.rank();
        move |error| RanksError::Card { rank, text: error.to_string() }
    }

    fn open_channels(&mut self) -> Result<(), RanksError> {
        let (rank, size) = self.place();
        self.lanes.bind().map_err(self.card())?;
        if self.lanes.sizes() != LaneSizes::new(size) {
            let text = format!("it has {:?}, which are not the lanes of {size} ranks", self.lanes.sizes());
            return Err(RanksError::Card { rank, text });
        }
        // In round n each rank opens a channel to the rank n behind it, and one from the rank n before it. None waits for a later round.
        for distance in 1..size {
            let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
            let ids = self.exchange_ids(to, from)?;
            for (id, peer, end) in [(ids[0], to, End::Sender), (ids[1], from, End::Receiver)] {
                let lane = self.channels.len();
                let channel = Channel::begin(&self.library, id, rank, peer, end, lane)?;
                self.channels.insert(2 * peer + end as usize, channel);
            }
            let opened = [2 * to, 2 * from + 1];
            self.wait_until(to, |rank| {
                let settled = |channel: &Channel| channel.is_settled(&rank.library, "ncclCommInitRankConfig");
                let mut channels = opened.iter().filter_map(|at| rank.channels.get(at));
                channels.try_fold(true, |all, channel| Ok(settled(channel)? && all))
            })?;
        }
        // The library connects two cards, and allocates memory for that, with their first message.
        for channel in self.channels.values_mut() {
            channel.push(Job::new(0, Segment::zeroed(1)));
        }
        let first = self.others().next().unwrap_or(rank);
        self.wait_until(first, |rank| {
            for channel in rank.channels.values_mut() {
                channel.progress(&rank.library, rank.lanes.as_mut())?;
            }
            Ok(rank.channels.values().all(Channel::is_idle))
        })?;
        for peer in self.others() {
            self.expect_notice(peer)?;
        }
        Ok(())
    }

    /// Exchanges the identifiers of the channel to one rank, which this one chooses, and of the channel from another.
    fn exchange_ids(&mut self, to: usize, from: usize) -> Result<[UniqueId; 2], RanksError> {
        let mut own = UniqueId([0; ID_BYTES]);
        // SAFETY: the call writes an identifier to the given address.
        let code = unsafe { (self.library.get_unique_id)(&mut own) };
        if code != SUCCESS {
            let text = self.library.text(code, std::ptr::null_mut());
            return Err(RanksError::NcclFailed {
                rank: self.control.rank(),
                peer: to,
                call: "ncclGetUniqueId",
                text,
            });
        }
        let received = self.control.receive(from, Tag::CARD_ID, Segment::zeroed(ID_BYTES))?;
        let sent = self.control.send(to, Tag::CARD_ID, Segment::copy_of(&own.0))?;
        let received = self.control.wait(received)?;
        self.control.wait(sent)?;
        let mut other = UniqueId([0; ID_BYTES]);
        other.0.copy_from_slice(received.bytes());
        Ok([own, other])
    }

    /// Repeats something until it is true. `peer` is named if that takes too long.
    fn wait_until(
        &mut self,
        peer: usize,
        mut is_true: impl FnMut(&mut NcclRank) -> Result<bool, RanksError>,
    ) -> Result<(), RanksError> {
        let (start, mut rounds) = (Instant::now(), 0);
        while !is_true(self)? {
            pause(self.control.as_mut(), &mut rounds);
            if start.elapsed() > self.options.patience {
                let (rank, limit) = (self.control.rank(), self.options.patience);
                return Err(RanksError::NoProgress { rank, peer, limit });
            }
        }
        Ok(())
    }

    fn expect_notice(&mut self, peer: usize) -> Result<(), RanksError> {
        let notice = self.control.receive(peer, Tag::NOTICE, Segment::zeroed(NOTICE_BYTES))?;
        self.peers[peer].notice = Some(notice);
        Ok(())
    }

    fn notify(&mut self, peer: usize, notice: Notice) -> Result<(), RanksError> {
        self.notices.push(self.control.send(peer, Tag::NOTICE, notice.write())?);
        Ok(())
    }

    fn begin(&mut self, peer: usize, tag: Tag, segment: Segment, end: End) -> Result<Transfer, RanksError> {
        let (rank, size) = self.place();
        check_rank(peer, size)?;
        self.next += 1;
        let number = self.next;
        let bytes = segment.len();
        if bytes < self.options.least || peer == rank || tag.is_collective() {
            let transfer = match end {
                End::Sender => self.control.send(peer, tag, segment)?,
                End::Receiver => self.control.receive(peer, tag, segment)?,
            };
            self.in_flight.insert(number, InFlight::Other { peer, transfer });
            return Ok(Transfer(number));
        }
        self.in_flight.insert(number, InFlight::Card { peer });
        let job = (tag, Job::new(number, segment));
        match end {
            End::Sender => {
                self.peers[peer].offered.push_back(job);
                self.notify(peer, Notice::Offer { tag, bytes })?;
            }
            End::Receiver => {
                self.peers[peer].expected.push_back(job);
                self.accept(peer, tag)?;
            }
        }
        Ok(Transfer(number))
    }

    /// Accepts the first offer of a tag if one is expected.
    fn accept(&mut self, peer: usize, tag: Tag) -> Result<(), RanksError> {
        let Peer { offers, expected, .. } = &mut self.peers[peer];
        let offer = offers.iter().position(|(offered, _)| *offered == tag);
        let place = expected.iter().position(|(expected, _)| *expected == tag);
        let (Some(offer), Some(place)) = (offer, place) else { return Ok(()) };
        let (Some((_, found)), Some((_, job))) = (offers.remove(offer), expected.remove(place)) else {
            return Ok(());
        };
        let (rank, expected) = (self.control.rank(), job.segment.len());
        if found != expected {
            return Err(RanksError::Length { rank, peer, expected, found });
        }
        self.channel(peer, End::Receiver)?.push(job);
        self.notify(peer, Notice::Accept { tag })
    }

    fn channel(&mut self, peer: usize, end: End) -> Result<&mut Channel, RanksError> {
        let rank = self.control.rank();
        self.channels.get_mut(&(2 * peer + end as usize)).ok_or(RanksError::NoTransfer { rank })
    }

    /// Reads the notices that have come. Returns `true` if there was one.
    fn read_notices(&mut self) -> Result<bool, RanksError> {
        let mut is_any = false;
        for peer in self.others() {
            while let Some(notice) = &self.peers[peer].notice
                && self.control.is_done(notice)?
                && let Some(notice) = self.peers[peer].notice.take()
            {
                is_any = true;
                let notice = self.control.wait(notice)?;
                let rank = self.control.rank();
                match Notice::read(&notice) {
                    Some(Notice::Offer { tag, bytes }) => {
                        self.peers[peer].offers.push_back((tag, bytes));
                        self.accept(peer, tag)?;
                    }
                    Some(Notice::Accept { tag }) => {
                        let offered = &mut self.peers[peer].offered;
                        let place = offered.iter().position(|(offered, _)| *offered == tag);
                        let job = place.and_then(|place| offered.remove(place));
                        let (_, job) = job.ok_or(RanksError::Notice { rank, peer })?;
                        self.channel(peer, End::Sender)?.push(job);
                    }
                    Some(Notice::End) => break,
                    None => return Err(RanksError::Notice { rank, peer }),
                }
                self.expect_notice(peer)?;
            }
        }
        Ok(is_any)
    }

    /// Moves all messages on. Returns `true` if something has happened.
    fn progress(&mut self) -> Result<bool, RanksError> {
        let mut is_any = self.read_notices()?;
        let mut at = 0;
        while at < self.notices.len() {
            match self.control.is_done(&self.notices[at])? {
                true => drop(self.control.wait(self.notices.swap_remove(at))?),
                false => at += 1,
            }
        }
        for channel in self.channels.values_mut() {
            for job in channel.progress(&self.library, self.lanes.as_mut())? {
                self.in_flight.insert(job.number, InFlight::Done(job.segment));
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Notes an error, after which the job can only be aborted.
    fn noted<T>(&mut self, result: Result<T, RanksError>) -> Result<T, RanksError> {
        self.has_failed |= result.is_err();
        result
    }

    fn is_here(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        match self.in_flight.get(&transfer.0) {
            Some(InFlight::Other { transfer, .. }) => self.control.is_done(transfer),
            Some(InFlight::Card { .. }) => Ok(false),
            Some(InFlight::Done(_)) => Ok(true),
            None => Err(RanksError::NoTransfer { rank: self.control.rank() }),
        }
    }

    fn wait_for_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        let (mut last, mut rounds) = (Instant::now(), 0);
        loop {
            let is_any = self.progress()?;
            for transfer in transfers {
                if self.is_here(transfer)? {
                    return Ok(());
                }
            }
            let Some(first) = transfers.first() else { return Ok(()) };
            if is_any {
                (last, rounds) = (Instant::now(), 0);
                continue;
            }
            pause(self.control.as_mut(), &mut rounds);
            if last.elapsed() > self.options.patience {
                let (rank, limit) = (self.control.rank(), self.options.patience);
                let peer = match self.in_flight.get(&first.0) {
                    Some(InFlight::Other { peer, .. } | InFlight::Card { peer }) => *peer,
                    Some(InFlight::Done(_)) | None => rank,
                };
                return Err(RanksError::NoProgress { rank, peer, limit });
            }
        }
    }

    /// Ends what the channels do. What the library cannot end dies with the process.
    fn abort_channels(&mut self) {
        self.has_failed = true;
        while let Some((_, channel)) = self.channels.pop_first() {
            channel.abort(&self.library);
        }
    }

    /// Closes the channels together with the other ranks, whenever these come to it.
    fn close(&mut self) -> Result<(), RanksError> {
        for peer in self.others() {
            self.notify(peer, Notice::End)?;
        }
        let mut rounds = 0;
        while !self.notices.is_empty() || self.peers.iter().any(|peer| peer.notice.is_some()) {
            if !self.progress()? {
                pause(self.control.as_mut(), &mut rounds);
            }
        }
        // No channel has a message in flight: a rank ends only when its own have ended.
        for channel in self.channels.values() {
            channel.finalize(&self.library);
        }
        for channel in self.channels.values() {
            let mut rounds = 0;
            while !channel.is_settled(&self.library, "ncclCommFinalize")? {
                pause(self.control.as_mut(), &mut rounds);
            }
        }
        while let Some((_, channel)) = self.channels.pop_first() {
            channel.destroy(&self.library);
        }
        Ok(())
    }
}

/// Waits a little, at first not at all.
fn pause(control: &mut dyn Communicator, rounds: &mut u32) {
    *rounds = rounds.saturating_add(1);
    match *rounds > SPINS {
        true => control.rest(PAUSE),
        false => thread::yield_now(),
    }
}

impl Communicator for NcclRank {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn size(&self) -> usize {
        self.control.size()
    }

    fn node(&self) -> NodePlace {
        self.control.node()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.options.patience = patience;
        self.control.set_patience(patience);
    }

    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        let begun = self.begin(to, tag, segment, End::Sender);
        self.noted(begun)
    }

    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        let begun = self.begin(from, tag, segment, End::Receiver);
        self.noted(begun)
    }

    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        let is_done = self.progress().and_then(|_| self.is_here(transfer));
        self.noted(is_done)
    }

    fn rest(&mut self, pause: Duration) {
        self.control.rest(pause);
    }

    fn is_watched(&self) -> bool {
        self.control.is_watched()
    }

    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.wait_any(&[&transfer])?;
        let ended = match self.in_flight.remove(&transfer.0) {
            Some(InFlight::Other { transfer, .. }) => self.control.wait(transfer),
            Some(InFlight::Done(segment)) => Ok(segment),
            Some(InFlight::Card { .. }) | None => Err(RanksError::NoTransfer { rank: self.rank() }),
        };
        self.noted(ended)
    }

    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        let waited = self.wait_for_any(transfers);
        self.noted(waited)
    }

    fn abort(&mut self, status: i32) {
        self.abort_channels();
        self.control.abort(status);
    }
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        let is_idle = self.in_flight.values().all(|in_flight| matches!(in_flight, InFlight::Done(_)));
        if self.has_failed || !is_idle || thread::panicking() || self.close().is_err() {
            self.abort(1);
            return;
        }
        // SAFETY: they are not used afterwards, and their last work has ended.
        unsafe { ManuallyDrop::drop(&mut self.lanes) };
    }
}
