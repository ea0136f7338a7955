//! Messages from one rank to another through their cards: a communicator of NCCL and a lane.
//!
//! Both ends issue the same messages in the same order, and no channel waits for another one. So channels cannot block each other, whatever the
//! order in which ranks send and receive.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::functions::{Comm, IN_PROGRESS, NcclLibrary, SUCCESS, UniqueId};
use super::lanes::Lanes;
use crate::error::RanksError;
use crate::segment::Segment;

/// The end of a channel at this rank. Each is also the number of the rank in the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender = 0,
    Receiver = 1,
}

/// A segment that both ends have agreed on.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) segment: Segment,
    /// The bytes that are issued, and those that have arrived or left.
    issued: usize,
    done: usize,
}

impl Job {
    pub(super) fn new(number: u64, segment: Segment) -> Job {
        Job { number, segment, issued: 0, done: 0 }
    }
}

/// A part of a segment in a buffer.
struct Piece {
    buffer: usize,
    bytes: usize,
}

/// One end of a channel.
pub(super) struct Channel {
    rank: usize,
    peer: usize,
    end: End,
    lane: usize,
    comm: Comm,
    /// The segments in their order, the first of which is in flight.
    jobs: VecDeque<Job>,
    /// The parts that are issued, in their order.
    pieces: VecDeque<Piece>,
    next_buffer: usize,
    /// `true` while the library has not yet enqueued the last part.
    is_launching: bool,
}

// SAFETY: a communicator belongs to no thread: the library allows calls by one thread at a time, and a channel has one owner.
unsafe impl Send for Channel {}

impl Channel {
    /// Begins to make a channel.
    pub(super) fn begin(
        library: &NcclLibrary,
        id: UniqueId,
        rank: usize,
        peer: usize,
        end: End,
        lane: usize,
    ) -> Result<Channel, RanksError> {
        let (comm, code) = library.begin_comm(id, end as c_int);
        let channel = Channel {
            rank,
            peer,
            end,
            lane,
            comm,
            jobs: VecDeque::new(),
            pieces: VecDeque::new(),
            next_buffer: 0,
            is_launching: false,
        };
        match code {
            SUCCESS | IN_PROGRESS if !comm.is_null() => Ok(channel),
            code => {
                let error = channel.failed(library, "ncclCommInitRankConfig", code);
                channel.abort(library);
                Err(error)
            }
        }
    }

    fn failed(&self, library: &NcclLibrary, call: &'static str, code: c_int) -> RanksError {
        let text = library.text(code, self.comm);
        RanksError::NcclFailed { rank: self.rank, peer: self.peer, call, text }
    }

    /// Returns `true` if nothing of the library goes on in the background.
    pub(super) fn is_settled(&self, library: &NcclLibrary, call: &'static str) -> Result<bool, RanksError> {
        match library.state(self.comm) {
            SUCCESS => Ok(true),
            IN_PROGRESS => Ok(false),
            code => Err(self.failed(library, call, code)),
        }
    }

    /// Adds a segment behind all others.
    pub(super) fn push(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    /// Returns `true` if no segment is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Issues what has a buffer, and returns the segments that are done.
    pub(super) fn progress(
        &mut self,
        library: &NcclLibrary,
        lanes: &mut dyn Lanes,
    ) -> Result<Vec<Job>, RanksError> {
        if self.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let card = |rank| move |error| RanksError::Card { rank, text: format!("{error}") };
        // An error of the other end shows here even if nothing moves.
        if self.is_settled(library, self.call())? && self.is_launching {
            self.launched(lanes).map_err(card(self.rank))?;
        }
        while !self.is_launching && self.pieces.len() < lanes.sizes().buffers {
            let Some(job) = self.jobs.iter().position(|job| job.issued < job.segment.len()) else { break };
            self.issue(job, library, lanes)?;
        }
        let mut ended = Vec::new();
        loop {
            while self.jobs.front().is_some_and(|job| job.done == job.segment.len()) {
                ended.extend(self.jobs.pop_front());
            }
            let launched = self.pieces.len() - usize::from(self.is_launching);
            let Some(Piece { buffer, bytes }) = self.pieces.front().filter(|_| launched > 0) else { break };
            let (buffer, bytes) = (*buffer, *bytes);
            if !lanes.is_done(self.lane, buffer).map_err(card(self.rank))? {
                break;
            }
            self.pieces.pop_front();
            let Some(job) = self.jobs.front_mut() else { break };
            let places = job.done..job.done + bytes;
            if self.end == End::Receiver {
                let source = &lanes.host(self.lane, buffer)[..bytes];
                job.segment.bytes_mut()[places.clone()].copy_from_slice(source);
            }
            job.done = places.end;
        }
        Ok(ended)
    }

    fn call(&self) -> &'static str {
        match self.end {
            End::Sender => "ncclSend",
            End::Receiver => "ncclRecv",
        }
    }

    /// Issues the next part of a segment, through the next buffer, which is free.
    fn issue(&mut self, job: usize, library: &NcclLibrary, lanes: &mut dyn Lanes) -> Result<(), RanksError> {
        let (lane, buffer) = (self.lane, self.next_buffer);
        let job = &mut self.jobs[job];
        let bytes = (job.segment.len() - job.issued).min(lanes.sizes().bytes);
        let places = job.issued..job.issued + bytes;
        let card = |rank| move |error| RanksError::Card { rank, text: format!("{error}") };
        let (address, stream) = (lanes.address(lane, buffer), lanes.stream(lane));
        let code = match self.end {
            End::Sender => {
                lanes.host(lane, buffer)[..bytes].copy_from_slice(&job.segment.bytes()[places.clone()]);
                lanes.upload(lane, buffer, bytes).map_err(card(self.rank))?;
                // SAFETY: the buffer has that many bytes and is not written before this piece has left: it is the next one again only when the piece
                // is removed. The lanes outlive the channel's work, or are leaked.
                unsafe { library.enqueue_send(address, bytes, End::Receiver as c_int, self.comm, stream) }
            }
            End::Receiver => {
                // SAFETY: the buffer has that many bytes, and is read only when the piece has arrived. The lanes outlive the channel's work, or are leaked.
                unsafe { library.enqueue_receive(address, bytes, End::Sender as c_int, self.comm, stream) }
            }
        };
        job.issued = places.end;
        self.next_buffer = (buffer + 1) % lanes.sizes().buffers;
        self.pieces.push_back(Piece { buffer, bytes });
        match code {
            SUCCESS => self.launched(lanes).map_err(card(self.rank)),
            IN_PROGRESS => {
                self.is_launching = true;
                Ok(())
            }
            code => Err(self.failed(library, self.call(), code)),
        }
    }

    /// Enqueues what follows the last part, which the library has enqueued.
    fn launched(&mut self, lanes: &mut dyn Lanes) -> Result<(), super::LaneError> {
        self.is_launching = false;
        let Some(Piece { buffer, bytes }) = self.pieces.back() else { return Ok(()) };
        if self.end == End::Receiver {
            lanes.download(self.lane, *buffer, *bytes)?;
        }
        lanes.mark(self.lane, *buffer)
    }

    /// Begins to close the channel, which is idle at both ends.
    pub(super) fn finalize(&self, library: &NcclLibrary) {
        // SAFETY: the communicator exists, and nothing is in flight. Its state tells when this has ended.
        unsafe { (library.comm_finalize)(self.comm) };
    }

    /// Closes the channel.
    pub(super) fn destroy(self, library: &NcclLibrary) {
        // SAFETY: the communicator exists and is finalised, and this was its only owner. After an error there is nothing to be done.
        unsafe { (library.comm_destroy)(self.comm) };
    }

    /// Ends all that the channel does, at any time.
    pub(super) fn abort(self, library: &NcclLibrary) {
        if !self.comm.is_null() {
            // SAFETY: the communicator exists, and this was its only owner.
            unsafe { (library.comm_abort)(self.comm) };
        }
    }
}
