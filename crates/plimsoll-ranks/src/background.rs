//! A communicator that makes progress in a thread of its own, while its rank computes.
//!
//! Messages of an MPI library move on only while one of its functions is called, and one thread must call all of them. That thread is one of its own
//! here. It takes commands, tests what is in flight, and hands finished segments back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, NodePlace, Tag, Transfer, check_rank};
use crate::entries::Entries;
use crate::error::RanksError;
use crate::segment::Segment;
use crate::watch::Watch;
use crate::watcher::{Watcher, longest_wait};

/// Tests without a pause while the rank waits, before the thread gives its processor to others.
const SPINS: u32 = 2000;

/// The pause between tests after these.
const PAUSE: Duration = Duration::from_micros(100);

/// The longest pause while the rank computes. Each test takes a part of its core, so pauses double until something finishes. Messages do not stop
/// meanwhile: the system's buffers hold what a network of 1 Gbit/s carries in many pauses.
const LONGEST_PAUSE: Duration = Duration::from_micros(1600);

/// The status of a job that ends because a rank hangs.
const FAILED: i32 = 1;

/// A command of the rank.
enum Command {
    Begin {
        number: u64,
        peer: usize,
        tag: Tag,
        segment: Segment,
        is_received: bool,
    },
    Patience(Duration),
    /// The rank waits from now on, so a pause ends.
    Hurry,
    Abort(i32),
}

/// A segment that is no longer in flight, or the error that ended all communication.
type Finished = Result<(u64, Segment), RanksError>;

/// The communication of a rank, whose messages a thread moves on.
struct BackgroundRank {
    place: Place,
    patience: Duration,
    commands: Sender<Command>,
    finished: Receiver<Finished>,
    /// The peers of segments that are in flight.
    in_flight: Entries<u64, usize>,
    /// Segments that are no longer in flight and were not waited for.
    ended: Entries<u64, Segment>,
    next: u64,
    /// `true` while the rank waits, so that the thread need not leave it the processor.
    is_waiting: Arc<AtomicBool>,
    /// Set if the rank has rested since the thread last looked.
    has_rested: Arc<AtomicBool>,
    failure: Option<RanksError>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    size: usize,
    node: NodePlace,
    is_watched: bool,
}

/// Opens a communicator in a thread of its own, and returns one that passes everything on to it. Its messages move on while the caller computes.
/// With a watch the thread ends the job if the rank before this one hangs.
///
/// # Errors
/// Returns the error of `open`, or an error if there is no thread.
pub(crate) fn in_background(
    patience: Duration,
    watch: Option<Watch>,
    open: impl FnOnce() -> Result<Box<dyn Communicator>, RanksError> + Send + 'static,
) -> Result<Box<dyn Communicator + Send>, RanksError> {
    let (commands, received) = mpsc::channel();
    let (sender, finished) = mpsc::channel();
    let (opened, is_open) = mpsc::channel();
    let is_waiting = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&is_waiting);
    let has_rested = Arc::new(AtomicBool::new(false));
    let rested = Arc::clone(&has_rested);
    let begin = move || {
        let mut communicator = open()?;
        let watch = watch.filter(|_| communicator.size() > 1);
        let begin = |watch: Watch| Watcher::begin(communicator.as_mut(), &watch, patience);
        let watcher = watch.map(begin).transpose()?;
        Ok::<_, RanksError>((communicator, watcher))
    };
    let run = move || match begin() {
        Ok((communicator, watcher)) => {
            let (rank, size, node) = (communicator.rank(), communicator.size(), communicator.node());
            // The patience of a wait for cards is not extended: their queues may wait for each other.
            let is_watched = watcher.is_some();
            // Without a receiver the rank is gone, and there is no command.
            if opened.send(Ok(Place { rank, size, node, is_watched })).is_ok() {
                Progress { communicator, commands: received, finished: sender, waits, rested, watcher }.run();
            }
        }
        Err(error) => drop(opened.send(Err(error))),
    };
    let thread = thread::Builder::new().name("messages".into()).spawn(run);
    let thread = thread.map_err(|error| RanksError::NoThread { text: error.to_string() })?;
    let place = is_open.recv().map_err(|_| RanksError::NoThread { text: "it has ended".into() })??;
    Ok(Box::new(BackgroundRank {
        place,
        patience,
        commands,
        finished,
        in_flight: Entries::default(),
        ended: Entries::default(),
        next: 0,
        is_waiting,
        has_rested,
        failure: None,
        thread: Some(thread),
    }))
}

/// The work of the thread.
struct Progress {
    communicator: Box<dyn Communicator>,
    commands: Receiver<Command>,
    finished: Sender<Finished>,
    waits: Arc<AtomicBool>,
    rested: Arc<AtomicBool>,
    watcher: Option<Watcher>,
}

impl Progress {
    /// Carries out commands until the rank is gone or aborts.
    fn run(mut self) {
        let mut in_flight = Vec::new();
        if let Err(error) = self.serve(&mut in_flight) {
            if matches!(error, RanksError::Hangs { .. }) {
                // It is reported, and the rank may compute for long before it asks.
                let _ = self.finished.send(Err(error));
                self.communicator.abort(FAILED);
                return;
            }
            // If the rank is gone, dropping the communicator aborts the job.
            let _ = self.finished.send(Err(error));
            // After an error the only command that counts is to abort.
            while let Ok(command) = self.commands.recv() {
                if let Command::Abort(status) = command {
                    self.communicator.abort(status);
                    return;
                }
            }
        }
    }

    fn serve(&mut self, in_flight: &mut Vec<(u64, Transfer)>) -> Result<(), RanksError> {
        let (mut idle, is_watched) = (0u32, self.communicator.is_watched());
        loop {
            let within = |pause: Duration| {
                self.commands.recv_timeout(pause).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                })
            };
            let command = match (in_flight.is_empty(), &self.watcher) {
                (true, None) => self.commands.recv().map_err(|_| TryRecvError::Disconnected),
                (true, Some(watcher)) => within(watcher.period()),
                (false, _) if idle <= SPINS && self.waits.load(Ordering::Relaxed) => self.commands.try_recv(),
                (false, _) if self.waits.load(Ordering::Relaxed) => within(PAUSE),
                (false, _) => within(LONGEST_PAUSE.min(PAUSE * (1 << idle.min(10)))),
            };
            let has_rested = || self.rested.swap(false, Ordering::Relaxed);
            let is_excused = || has_rested() | self.waits.load(Ordering::Relaxed);
            match &mut self.watcher {
                Some(watcher) => watcher.look(self.communicator.as_mut(), is_excused)?,
                // The watch is another thread's, below this one.
                None if is_watched && is_excused() => self.communicator.rest(Duration::ZERO),
                None => {}
            }
            match command {
                Ok(Command::Begin { number, peer, tag, segment, is_received }) => {
                    let transfer = match is_received {
                        true => self.communicator.receive(peer, tag, segment)?,
                        false => self.communicator.send(peer, tag, segment)?,
                    };
                    in_flight.push((number, transfer));
                    idle = 0;
                    continue;
                }
                Ok(Command::Patience(patience)) => self.communicator.set_patience(patience),
                Ok(Command::Hurry) => idle = 0,
                Ok(Command::Abort(status)) => {
                    self.communicator.abort(status);
                    return Ok(());
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let watcher = self.watcher.take();
                    return watcher.map_or(Ok(()), |watcher| watcher.end(self.communicator.as_mut()));
                }
            }
            idle = if self.finish(in_flight)? { 0 } else { idle.saturating_add(1) };
            if idle > 0 {
                thread::yield_now();
            }
        }
    }

    /// Hands finished segments back. Returns `true` if there is one.
    fn finish(&mut self, in_flight: &mut Vec<(u64, Transfer)>) -> Result<bool, RanksError> {
        let (mut at, mut is_any) = (0, false);
        while at < in_flight.len() {
            if !self.communicator.is_done(&in_flight[at].1)? {
                at += 1;
                continue;
            }
            let (number, transfer) = in_flight.remove(at);
            let segment = self.communicator.wait(transfer)?;
            is_any = true;
            // Without a receiver the next command says that the rank is gone.
            let _ = self.finished.send(Ok((number, segment)));
        }
        Ok(is_any)
    }
}

impl BackgroundRank {
    fn begin(
        &mut self,
        peer: usize,
        tag: Tag,
        segment: Segment,
        is_received: bool,
    ) -> Result<Transfer, RanksError> {
        check_rank(peer, self.place.size)?;
        self.check()?;
        self.next += 1;
        let number = self.next;
        let sent = self.commands.send(Command::Begin { number, peer, tag, segment, is_received });
        if sent.is_err() {
            return Err(self.lost());
        }
        self.in_flight.insert(number, peer);
        Ok(Transfer(number))
    }

    /// Returns the error that has ended communication, if there was one.
    fn check(&self) -> Result<(), RanksError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The error that ended the thread.
    fn lost(&mut self) -> RanksError {
        let unread = self.finished.try_iter().find_map(Result::err);
        let lost = unread.unwrap_or_else(|| RanksError::NoThread { text: "it has ended".into() });
        self.failure.get_or_insert(lost).clone()
    }

    fn note(&mut self, finished: Finished) -> Result<(), RanksError> {
        match finished {
            Ok((number, segment)) => {
                self.in_flight.remove(&number);
                self.ended.insert(number, segment);
                Ok(())
            }
            Err(error) => Err(self.failure.insert(error).clone()),
        }
    }

    /// Notes what has finished, without waiting.
    fn note_all(&mut self) -> Result<(), RanksError> {
        self.check()?;
        loop {
            match self.finished.try_recv() {
                Ok(finished) => self.note(finished)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(self.lost()),
            }
        }
    }

    /// Waits until something is true of the finished segments. `for_rank` is named if nothing finishes for too long.
    fn wait_until(&mut self, for_rank: usize, is_true: impl Fn(&Self) -> bool) -> Result<(), RanksError> {
        self.note_all()?;
        if is_true(self) {
            return Ok(());
        }
        self.is_waiting.store(true, Ordering::Relaxed);
        // If the thread has ended, what it has left behind says so.
        let _ = self.commands.send(Command::Hurry);
        let mut last = Instant::now();
        let mut waited = Ok(());
        let limit = longest_wait(self.patience, self.place.is_watched);
        while waited.is_ok() && !is_true(self) {
            let left = limit.saturating_sub(last.elapsed());
            waited = match self.finished.recv_timeout(left) {
                Ok(finished) => {
                    last = Instant::now();
                    self.note(finished)
                }
                Err(RecvTimeoutError::Timeout) => {
                    Err(RanksError::NoProgress { rank: self.place.rank, peer: for_rank, limit })
                }
                Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
            };
        }
        self.is_waiting.store(false, Ordering::Relaxed);
        waited
    }

    /// The peer of a segment in flight; this rank if it has ended.
    fn peer(&self, transfer: &Transfer) -> usize {
        self.in_flight.get(&transfer.0).copied().unwrap_or(self.place.rank)
    }

    fn is_known(&self, transfer: &Transfer) -> bool {
        self.in_flight.contains(&transfer.0) || self.ended.contains(&transfer.0)
    }
}

impl Communicator for BackgroundRank {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.size
    }

    fn node(&self) -> NodePlace {
        self.place.node
    }

    fn is_watched(&self) -> bool {
        self.place.is_watched
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
        // If the thread has ended, the next call says so.
        let _ = self.commands.send(Command::Patience(patience));
    }

    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        self.begin(to, tag, segment, false)
    }

    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        self.begin(from, tag, segment, true)
    }

    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        self.note_all()?;
        match self.is_known(transfer) {
            true => Ok(self.ended.contains(&transfer.0)),
            false => Err(RanksError::NoTransfer { rank: self.place.rank }),
        }
    }

    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.wait_any(&[&transfer])?;
        let ended = self.ended.remove(&transfer.0);
        ended.ok_or(RanksError::NoTransfer { rank: self.place.rank })
    }

    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        if !transfers.iter().all(|transfer| self.is_known(transfer)) {
            return Err(RanksError::NoTransfer { rank: self.place.rank });
        }
        let Some(peer) = transfers.first().map(|transfer| self.peer(transfer)) else { return Ok(()) };
        self.wait_until(peer, |rank| transfers.iter().any(|transfer| rank.ended.contains(&transfer.0)))
    }

    fn rest(&mut self, pause: Duration) {
        self.has_rested.store(true, Ordering::Relaxed);
        thread::sleep(pause);
        self.has_rested.store(true, Ordering::Relaxed);
    }

    fn abort(&mut self, status: i32) {
        // If the thread has ended, so has the job.
        let _ = self.commands.send(Command::Abort(status));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundRank {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort(1);
        }
        // The thread ends when no command can come, and closes the communicator.
        self.commands = mpsc::channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
