//! A communicator that makes progress in a thread of its own, while its rank computes.
//!
//! Messages of an MPI library move on only while one of its functions is called, and one thread must call all of them. That thread is one of its own
//! here. It takes commands, tests what is in flight, and hands finished segments back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, NodePlace, Tag, Transfer, check_rank};
use crate::error::RanksError;
use crate::segment::Segment;

/// Tests without a pause while the rank waits, before the thread gives its processor to others.
const SPINS: u32 = 2000;

/// The pause between tests after these, and while the rank computes.
const PAUSE: Duration = Duration::from_micros(100);

/// A command of the rank.
enum Command {
    Begin { number: u64, peer: usize, tag: Tag, segment: Segment, is_received: bool },
    Patience(Duration),
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
    in_flight: BTreeMap<u64, usize>,
    /// Segments that are no longer in flight and were not waited for.
    ended: BTreeMap<u64, Segment>,
    next: u64,
    /// `true` while the rank waits, so that the thread need not leave it the processor.
    is_waiting: Arc<AtomicBool>,
    failure: Option<RanksError>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    size: usize,
    node: NodePlace,
}

/// Opens a communicator in a thread of its own, and returns one that passes everything on to it. Its messages move on while the caller computes.
///
/// # Errors
/// Returns the error of `open`, or an error if there is no thread.
pub(crate) fn in_background(
    patience: Duration,
    open: impl FnOnce() -> Result<Box<dyn Communicator>, RanksError> + Send + 'static,
) -> Result<Box<dyn Communicator + Send>, RanksError> {
    let (commands, received) = mpsc::channel();
    let (sender, finished) = mpsc::channel();
    let (opened, is_open) = mpsc::channel();
    let is_waiting = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&is_waiting);
    let run = move || match open() {
        Ok(communicator) => {
            let (rank, size, node) = (communicator.rank(), communicator.size(), communicator.node());
            // Without a receiver the rank is gone, and there is no command.
            if opened.send(Ok(Place { rank, size, node })).is_ok() {
                Progress { communicator, commands: received, finished: sender, waits }.run();
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
        in_flight: BTreeMap::new(),
        ended: BTreeMap::new(),
        next: 0,
        is_waiting,
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
}

impl Progress {
    /// Carries out commands until the rank is gone or aborts.
    fn run(mut self) {
        let mut in_flight = Vec::new();
        if let Err(error) = self.serve(&mut in_flight) {
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
        let mut idle = 0;
        loop {
            let command = match in_flight.is_empty() {
                true => self.commands.recv().map_err(|_| TryRecvError::Disconnected),
                false if idle <= SPINS && self.waits.load(Ordering::Relaxed) => self.commands.try_recv(),
                false => self.commands.recv_timeout(PAUSE).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
            };
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
                Ok(Command::Abort(status)) => {
                    self.communicator.abort(status);
                    return Ok(());
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            idle = if self.finish(in_flight)? { 0 } else { idle + 1 };
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
        let mut last = Instant::now();
        let mut waited = Ok(());
        while waited.is_ok() && !is_true(self) {
            let left = self.patience.saturating_sub(last.elapsed());
            waited = match self.finished.recv_timeout(left) {
                Ok(finished) => {
                    last = Instant::now();
                    self.note(finished)
                }
                Err(RecvTimeoutError::Timeout) => {
                    let (rank, limit) = (self.place.rank, self.patience);
                    Err(RanksError::NoProgress { rank, peer: for_rank, limit })
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
        self.in_flight.contains_key(&transfer.0) || self.ended.contains_key(&transfer.0)
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
            true => Ok(self.ended.contains_key(&transfer.0)),
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
        self.wait_until(peer, |rank| transfers.iter().any(|transfer| rank.ended.contains_key(&transfer.0)))
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
mod tests {
    use super::*;
    use crate::thread_ranks;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Runs a function on ranks that work in the background, and returns their results by rank.
    fn on_ranks<T: Send>(
        size: usize,
        patience: Duration,
        run: impl Fn(&mut dyn Communicator) -> T + Sync,
    ) -> Vec<T> {
        thread::scope(|scope| {
            let run = &run;
            let start = |rank: crate::ThreadRank| {
                scope.spawn(move || {
                    let mut rank = in_background(patience, move || Ok(Box::new(rank) as _)).unwrap();
                    run(rank.as_mut())
                })
            };
            let threads: Vec<_> = thread_ranks(size, patience).into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn messages_and_collective_operations_are_those_of_the_communicator() {
        let found = on_ranks(3, PATIENCE, |rank| {
            let (own, size) = (rank.rank(), rank.size());
            let (to, from) = ((own + 1) % size, (own + size - 1) % size);
            let received = rank.receive(from, Tag::from_u8(1), Segment::zeroed(3)).unwrap();
            let sent = rank.send(to, Tag::from_u8(1), Segment::copy_of(&[own as u8; 3])).unwrap();
            rank.wait_any(&[&sent, &received]).unwrap();
            let around = rank.wait(received).unwrap();
            rank.wait(sent).unwrap();
            rank.barrier().unwrap();
            let gathered = rank.gather(1, &vec![own as u8; own], 2).unwrap();
            let all = Segment::copy_of(&[if own == 1 { 7 } else { 0 }]);
            let all = rank.broadcast(1, all).unwrap();
            (around.bytes().to_vec(), gathered.len(), all.bytes()[0])
        });
        assert_eq!(found, [(vec![2; 3], 0, 7), (vec![0; 3], 3, 7), (vec![1; 3], 0, 7)]);
    }

    #[test]
    fn messages_arrive_while_the_receiver_computes() {
        on_ranks(2, PATIENCE, |rank| {
            let (own, peer) = (rank.rank(), 1 - rank.rank());
            if own == 1 {
                let received = rank.receive(peer, Tag::from_u8(1), Segment::zeroed(1)).unwrap();
                let start = Instant::now();
                while !rank.is_done(&received).unwrap() {
                    assert!(start.elapsed() < PATIENCE);
                }
                assert_eq!(rank.wait(received).unwrap().bytes(), [5]);
            } else {
                let sent = rank.send(peer, Tag::from_u8(1), Segment::copy_of(&[5])).unwrap();
                rank.wait(sent).unwrap();
            }
        });
    }

    #[test]
    fn errors_of_the_communicator_reach_the_rank_and_stay() {
        let late = Duration::from_millis(50);
        let found = on_ranks(2, late, |rank| {
            if rank.rank() == 1 {
                return Vec::new();
            }
            let absent = rank.send(2, Tag::from_u8(1), Segment::default()).unwrap_err();
            let never = rank.receive(1, Tag::from_u8(1), Segment::zeroed(1)).unwrap();
            let late = rank.wait(never).unwrap_err();
            vec![absent, late]
        });
        let limit = late;
        let expected =
            [RanksError::NoRank { rank: 2, size: 2 }, RanksError::NoProgress { rank: 0, peer: 1, limit }];
        assert_eq!(found[0], expected);

        let found = on_ranks(2, PATIENCE, |rank| {
            let peer = 1 - rank.rank();
            let sent = rank.send(peer, Tag::from_u8(1), Segment::zeroed(8)).unwrap();
            let received = rank.receive(peer, Tag::from_u8(1), Segment::zeroed(4)).unwrap();
            let first = rank.wait(received).unwrap_err();
            let again = rank.wait(sent).err().or_else(|| rank.barrier().err()).unwrap();
            (first, again)
        });
        for (rank, (first, again)) in found.into_iter().enumerate() {
            assert_eq!(first, RanksError::Length { rank, peer: 1 - rank, expected: 4, found: 8 });
            assert_eq!(first, again);
        }
    }

    #[test]
    fn an_abort_reaches_the_others() {
        let found = on_ranks(2, PATIENCE, |rank| {
            if rank.rank() == 0 {
                rank.abort(3);
                return None;
            }
            rank.barrier().err()
        });
        assert_eq!(found[1], Some(RanksError::Aborted { rank: 0, status: 3 }));
    }

    #[test]
    fn an_error_while_opening_is_returned() {
        let opened = in_background(PATIENCE, || Err(RanksError::OpenedBefore));
        assert_eq!(opened.err(), Some(RanksError::OpenedBefore));
    }
}
