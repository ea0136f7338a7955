//! A rank of MPI.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};

use super::functions::{Functions, Handle, Status};
use crate::communicator::{Communicator, NodePlace, Tag, Transfer, check_rank};
use crate::entries::Entries;
use crate::error::RanksError;
use crate::launch::Launch;
use crate::mpi_options::{LARGEST_MESSAGE, MpiOptions};
use crate::segment::Segment;

/// Tests without a pause before a waiting rank gives its processor to others.
const SPINS: u32 = 2000;

/// The pause between tests after these.
const PAUSE: Duration = Duration::from_micros(100);

/// A message of a segment that is in flight.
struct Message<H> {
    request: H,
    /// The bytes that are expected.
    bytes: usize,
}

/// A segment in flight, which MPI reads or writes meanwhile.
struct InFlight<H> {
    segment: Segment,
    peer: usize,
    is_received: bool,
    /// The messages that are not finished, the first first.
    messages: Vec<Message<H>>,
}

/// A rank of MPI. It is not `Send`: MPI is initialised, called and finalised by one thread.
pub(super) struct MpiRank<H: Handle> {
    functions: Functions<H>,
    rank: usize,
    size: usize,
    node: NodePlace,
    patience: Duration,
    largest_message: usize,
    in_flight: Entries<u64, InFlight<H>>,
    next: u64,
    /// `true` once communication has failed: the other ranks may wait for this one.
    has_failed: bool,
    _thread: PhantomData<*const ()>,
}

impl<H: Handle> MpiRank<H> {
    /// Initialises MPI, and checks what it says.
    pub(super) fn start(
        functions: Functions<H>,
        library: String,
        launch: &Launch,
        options: &MpiOptions,
    ) -> Result<MpiRank<H>, RanksError> {
        let needed = functions.constants.funneled;
        let mut provided = 0;
        // SAFETY: null arguments are allowed since MPI 2; the process has not initialised MPI before.
        let started = unsafe {
            (functions.init_thread)(std::ptr::null_mut(), std::ptr::null_mut(), needed, &mut provided)
        };
        let mut rank = MpiRank {
            functions,
            rank: launch.rank,
            size: 1,
            node: NodePlace { rank: 0, size: 1 },
            patience: options.patience,
            largest_message: options.largest_message.clamp(1, LARGEST_MESSAGE),
            in_flight: Entries::default(),
            next: 0,
            has_failed: false,
            _thread: PhantomData,
        };
        rank.check("MPI_Init_thread", started)?;
        // Until here errors end the process; from here on functions return them.
        let world = rank.functions.handles.world;
        // SAFETY: both handles are constants of the interface.
        let set =
            unsafe { (rank.functions.comm_set_errhandler)(world, rank.functions.handles.errors_return) };
        rank.check("MPI_Comm_set_errhandler", set)?;
        if provided < needed {
            return Err(RanksError::ThreadLevel { library, provided, needed });
        }
        (rank.rank, rank.size) = rank.place_in(world)?;
        if let Some(expected) = launch.size.filter(|expected| *expected != rank.size) {
            let (launcher, found) = (launch.launcher, rank.size);
            return Err(RanksError::OtherSize { launcher, expected, library, found });
        }
        rank.node = rank.find_node()?;
        Ok(rank)
    }

    /// Turns the code of a function into an error. After one, the job can only be aborted.
    fn check(&mut self, call: &'static str, code: c_int) -> Result<(), RanksError> {
        if code == 0 {
            return Ok(());
        }
        self.has_failed = true;
        Err(RanksError::Failed { rank: self.rank, call, text: self.functions.text(code) })
    }

    /// The number of a rank as MPI takes it.
    fn number_of(&self, rank: usize) -> Result<c_int, RanksError> {
        c_int::try_from(rank).map_err(|_| RanksError::NoRank { rank, size: self.size })
    }

    /// The rank in a communicator, and its size.
    fn place_in(&mut self, communicator: H) -> Result<(usize, usize), RanksError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid; the calls write a number each.
        let codes = unsafe {
            [
                (self.functions.comm_rank)(communicator, &mut rank),
                (self.functions.comm_size)(communicator, &mut size),
            ]
        };
        self.check("MPI_Comm_rank", codes[0])?;
        self.check("MPI_Comm_size", codes[1])?;
        match (usize::try_from(rank), usize::try_from(size)) {
            (Ok(rank), Ok(size)) if rank < size => Ok((rank, size)),
            _ => {
                self.has_failed = true;
                let text = format!("the library counts this process as rank {rank} of {size}");
                Err(RanksError::Failed { rank: self.rank, call: "MPI_Comm_rank", text })
            }
        }
    }

    /// The place among the ranks that share memory with this one.
    fn find_node(&mut self) -> Result<NodePlace, RanksError> {
        let handles = self.functions.handles;
        let mut node = handles.comm_null;
        let key = self.number_of(self.rank)?;
        // SAFETY: all handles are constants; the call, which all ranks make, writes a communicator.
        let split = unsafe {
            let shared = self.functions.constants.shared;
            (self.functions.comm_split_type)(handles.world, shared, key, handles.info_null, &mut node)
        };
        self.check("MPI_Comm_split_type", split)?;
        let (rank, size) = self.place_in(node)?;
        // SAFETY: the communicator was just made, and nothing uses it any more.
        let freed = unsafe { (self.functions.comm_free)(&mut node) };
        self.check("MPI_Comm_free", freed)?;
        Ok(NodePlace { rank, size })
    }

    /// Begins the messages of a segment.
    fn begin(
        &mut self,
        peer: usize,
        tag: Tag,
        segment: Segment,
        is_received: bool,
    ) -> Result<Transfer, RanksError> {
        check_rank(peer, self.size)?;
        let to = self.number_of(peer)?;
        self.next += 1;
        let number = self.next;
        let handles = self.functions.handles;
        let tag = c_int::from(tag.number());
        // From here on this communicator owns the segment, and leaks it rather than free it before MPI is done with it.
        let in_flight = self
            .in_flight
            .get_or_insert(number, InFlight { segment, peer, is_received, messages: Vec::new() });
        let bytes = in_flight.segment.bytes_mut();
        let (length, first) = (bytes.len(), bytes.as_mut_ptr());
        let mut at = 0;
        let mut code = 0;
        while code == 0 && (at < length || in_flight.messages.is_empty()) {
            let bytes = (length - at).min(self.largest_message);
            // At most 2³⁰.
            let count = bytes as c_int;
            let mut request = handles.request_null;
            // SAFETY: `at + bytes` is at most the length of the segment, whose memory does not move and is neither read nor written until the
            // request is done: `wait` hands the segment out after that, and `drop` leaks what is in flight.
            code = unsafe {
                let start = first.add(at);
                match is_received {
                    true => (self.functions.irecv)(
                        start.cast(),
                        count,
                        handles.byte,
                        to,
                        tag,
                        handles.world,
                        &mut request,
                    ),
                    false => (self.functions.isend)(
                        start.cast_const().cast(),
                        count,
                        handles.byte,
                        to,
                        tag,
                        handles.world,
                        &mut request,
                    ),
                }
            };
            if code == 0 {
                in_flight.messages.push(Message { request, bytes });
            }
            at += bytes;
        }
        self.check(if is_received { "MPI_Irecv" } else { "MPI_Isend" }, code)?;
        Ok(Transfer(number))
    }

    /// Tests the messages of a segment that are not finished. Returns how many are finished now.
    fn test(&mut self, number: u64) -> Result<usize, RanksError> {
        let rank = self.rank;
        let in_flight = self.in_flight.get_mut(&number).ok_or(RanksError::NoTransfer { rank })?;
        let mut finished = 0;
        let (mut call, mut code) = ("MPI_Test", 0);
        let mut other_length = None;
        while let Some(Message { request, bytes }) = in_flight.messages.first_mut() {
            let (mut is_done, mut status) = (0, Status::new());
            // SAFETY: the request was made by this library and is not done; the status has room for the status of any interface.
            code = unsafe { (self.functions.test)(request, &mut is_done, status.as_mut_ptr()) };
            if code != 0 || is_done == 0 {
                break;
            }
            if in_flight.is_received {
                let mut count = 0;
                call = "MPI_Get_count";
                // SAFETY: the call above has filled the status of a finished receive.
                code = unsafe {
                    (self.functions.get_count)(status.as_mut_ptr(), self.functions.handles.byte, &mut count)
                };
                // A count that is not defined is negative.
                let found = usize::try_from(count).ok();
                if code == 0 && found != Some(*bytes) {
                    let (peer, expected, found) = (in_flight.peer, *bytes, found.unwrap_or(0));
                    other_length = Some(RanksError::Length { rank, peer, expected, found });
                }
                if code != 0 || other_length.is_some() {
                    break;
                }
                call = "MPI_Test";
            }
            in_flight.messages.remove(0);
            finished += 1;
        }
        self.check(call, code)?;
        match other_length {
            Some(error) => {
                self.has_failed = true;
                Err(error)
            }
            None => Ok(finished),
        }
    }

    /// Returns `true` if a segment has no message in flight.
    fn has_ended(&self, number: u64) -> bool {
        self.in_flight.get(&number).is_none_or(|in_flight| in_flight.messages.is_empty())
    }
}

impl<H: Handle> Communicator for MpiRank<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn node(&self) -> NodePlace {
        self.node
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        self.begin(to, tag, segment, false)
    }

    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        self.begin(from, tag, segment, true)
    }

    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        self.test(transfer.0)?;
        Ok(self.has_ended(transfer.0))
    }

    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.wait_any(&[&transfer])?;
        let ended = self.in_flight.remove(&transfer.0);
        ended.map(|in_flight| in_flight.segment).ok_or(RanksError::NoTransfer { rank: self.rank })
    }

    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        let (mut last, mut idle) = (Instant::now(), 0);
        loop {
            let mut finished = 0;
            for transfer in transfers {
                finished += self.test(transfer.0)?;
                if self.has_ended(transfer.0) {
                    return Ok(());
                }
            }
            let Some(first) = transfers.first() else { return Ok(()) };
            if finished > 0 {
                (last, idle) = (Instant::now(), 0);
                continue;
            }
            idle += 1;
            if idle > SPINS {
                thread::sleep(PAUSE);
            } else {
                thread::yield_now();
            }
            if last.elapsed() > self.patience {
                self.has_failed = true;
                let peer = self.in_flight.get(&first.0).map_or(self.rank, |in_flight| in_flight.peer);
                return Err(RanksError::NoProgress { rank: self.rank, peer, limit: self.patience });
            }
        }
    }

    fn abort(&mut self, status: i32) {
        self.has_failed = true;
        // SAFETY: the communicator is a constant. The call ends this process, and asks the launcher to end the others.
        unsafe { (self.functions.abort)(self.functions.handles.world, status) };
    }
}

impl<H: Handle> Drop for MpiRank<H> {
    fn drop(&mut self) {
        let is_idle = self.in_flight.values().all(|in_flight| in_flight.messages.is_empty());
        if self.has_failed || !is_idle || thread::panicking() {
            // If the library cannot end the process, it may still read and write these.
            std::mem::forget(std::mem::take(&mut self.in_flight));
            self.abort(1);
            return;
        }
        // SAFETY: MPI was initialised by this thread, since the rank is not `Send`, and nothing is in flight. Its code is of no use any more.
        unsafe { (self.functions.finalize)() };
    }
}
