//! Ranks within one process: one for a process that runs alone, and several threads for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, NodePlace, Tag, Transfer, check_rank};
use crate::entries::Entries;
use crate::error::RanksError;
use crate::segment::Segment;

/// The end points of a message, and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    from: usize,
    to: usize,
    tag: Tag,
}

/// The messages between the ranks.
struct Shared {
    mail: Mutex<Mail>,
    changed: Condvar,
}

#[derive(Default)]
struct Mail {
    messages: Entries<Route, VecDeque<Segment>>,
    /// The rank that has ended the job, and its status.
    aborted: Option<(usize, i32)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Messages are whole whenever the lock is free.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A segment in flight.
enum InFlight {
    /// Its bytes are on their way or have arrived.
    Done(Segment),
    Receiving(Route, Segment),
}

/// A rank within a process.
pub struct ThreadRank {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
    /// By number, so that receivers of the same route are served in the order in which they were called.
    in_flight: Entries<u64, InFlight>,
    next: u64,
    patience: Duration,
}

/// The ranks of a job within one process, each of which is moved to a thread of its own.
pub fn thread_ranks(size: usize, patience: Duration) -> Vec<ThreadRank> {
    let shared = Arc::new(Shared { mail: Mutex::default(), changed: Condvar::new() });
    let rank = |rank| ThreadRank {
        rank,
        size,
        shared: Arc::clone(&shared),
        in_flight: Entries::default(),
        next: 0,
        patience,
    };
    (0..size).map(rank).collect()
}

/// The rank of a process that runs alone.
pub fn alone() -> ThreadRank {
    let shared = Arc::new(Shared { mail: Mutex::default(), changed: Condvar::new() });
    // Messages to itself are there at once, or never.
    ThreadRank { rank: 0, size: 1, shared, in_flight: Entries::default(), next: 0, patience: Duration::ZERO }
}

impl ThreadRank {
    fn begin(&mut self, transfer: InFlight) -> Transfer {
        self.next += 1;
        self.in_flight.insert(self.next, transfer);
        Transfer(self.next)
    }

    /// Hands arrived messages to their receivers. Returns `true` if there was one.
    fn progress(&mut self, mail: &mut Mail) -> Result<bool, RanksError> {
        if let Some((rank, status)) = mail.aborted {
            return Err(RanksError::Aborted { rank, status });
        }
        let mut is_any = false;
        for transfer in self.in_flight.values_mut() {
            let InFlight::Receiving(route, segment) = transfer else { continue };
            let Some(arrived) = mail.messages.get_mut(route).and_then(VecDeque::pop_front) else { continue };
            let (expected, found) = (segment.len(), arrived.len());
            if expected != found {
                return Err(RanksError::Length { rank: self.rank, peer: route.from, expected, found });
            }
            *transfer = InFlight::Done(arrived);
            is_any = true;
        }
        Ok(is_any)
    }

    fn state(&self, transfer: &Transfer) -> Result<&InFlight, RanksError> {
        self.in_flight.get(&transfer.0).ok_or(RanksError::NoTransfer { rank: self.rank })
    }
}

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn node(&self) -> NodePlace {
        NodePlace { rank: self.rank, size: self.size }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn send(&mut self, to: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        check_rank(to, self.size)?;
        let route = Route { from: self.rank, to, tag };
        self.shared.lock().messages.get_or_insert(route, VecDeque::new()).push_back(segment.clone());
        self.shared.changed.notify_all();
        Ok(self.begin(InFlight::Done(segment)))
    }

    fn receive(&mut self, from: usize, tag: Tag, segment: Segment) -> Result<Transfer, RanksError> {
        check_rank(from, self.size)?;
        Ok(self.begin(InFlight::Receiving(Route { from, to: self.rank, tag }, segment)))
    }

    fn is_done(&mut self, transfer: &Transfer) -> Result<bool, RanksError> {
        let shared = Arc::clone(&self.shared);
        self.progress(&mut shared.lock())?;
        Ok(matches!(self.state(transfer)?, InFlight::Done(_)))
    }

    fn wait(&mut self, transfer: Transfer) -> Result<Segment, RanksError> {
        self.wait_any(&[&transfer])?;
        match self.in_flight.remove(&transfer.0) {
            Some(InFlight::Done(segment)) => Ok(segment),
            _ => Err(RanksError::NoTransfer { rank: self.rank }),
        }
    }

    fn wait_any(&mut self, transfers: &[&Transfer]) -> Result<(), RanksError> {
        let shared = Arc::clone(&self.shared);
        let mut mail = shared.lock();
        let mut last = Instant::now();
        loop {
            if self.progress(&mut mail)? {
                last = Instant::now();
            }
            let mut awaited = None;
            for transfer in transfers {
                match self.state(transfer)? {
                    InFlight::Receiving(route, _) => awaited = awaited.or(Some(route.from)),
                    InFlight::Done(_) => return Ok(()),
                }
            }
            let Some(peer) = awaited else { return Ok(()) };
            let Some(left) = self.patience.checked_sub(last.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(RanksError::NoProgress { rank: self.rank, peer, limit: self.patience });
            };
            let waited = shared.changed.wait_timeout(mail, left);
            mail = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn abort(&mut self, status: i32) {
        self.shared.lock().aborted.get_or_insert((self.rank, status));
        self.shared.changed.notify_all();
    }
}

impl Drop for ThreadRank {
    fn drop(&mut self) {
        // The others would wait for a thread that has panicked.
        if thread::panicking() {
            self.abort(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Runs a function on all ranks, and returns their results by rank.
    fn on_ranks<T: Send>(
        size: usize,
        patience: Duration,
        run: impl Fn(&mut ThreadRank) -> T + Sync,
    ) -> Vec<T> {
        thread::scope(|scope| {
            let ranks = thread_ranks(size, patience);
            let run = &run;
            let threads: Vec<_> =
                ranks.into_iter().map(|mut rank| scope.spawn(move || run(&mut rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn tag(number: u16) -> Tag {
        Tag::new(number).unwrap()
    }

    #[test]
    fn collective_operations_reach_all_ranks_for_any_number_of_them() {
        for size in 1..=9 {
            for root in [0, size / 2, size - 1] {
                let results = on_ranks(size, PATIENCE, |rank| {
                    let own: Vec<u8> = (0..rank.rank() * 3).map(|at| (at + rank.rank()) as u8).collect();
                    let gathered = rank.gather(root, &own, 100)?;
                    let content = if rank.rank() == root { 42u8 } else { 0 };
                    let sent = rank.broadcast(root, Segment::copy_of(&[content; 11]))?;
                    rank.barrier()?;
                    Ok::<_, RanksError>((gathered, sent))
                });
                for (rank, result) in results.into_iter().enumerate() {
                    let (gathered, sent) = result.unwrap();
                    assert_eq!(sent.bytes(), [42; 11], "rank {rank} of {size} from {root}");
                    let lengths: Vec<usize> = gathered.iter().map(Segment::len).collect();
                    let expected: Vec<usize> = (0..size).map(|rank| 3 * rank).collect();
                    assert_eq!(lengths, if rank == root { expected } else { Vec::new() });
                    assert!(
                        gathered.iter().enumerate().all(|(rank, bytes)| bytes
                            .bytes()
                            .first()
                            .is_none_or(|first| *first == rank as u8))
                    );
                }
            }
        }
    }

    #[test]
    fn all_ranks_have_the_bytes_of_each_followed_by_zeros() {
        for size in 1..=5 {
            let results = on_ranks(size, PATIENCE, |rank| rank.all_gather(&vec![7; rank.rank()], 4));
            let of_rank = |rank: usize| (0..4).map(move |at| if at < rank { 7 } else { 0 });
            let expected: Vec<u8> = (0..size).flat_map(of_rank).collect();
            for all in results {
                assert_eq!(all.unwrap().bytes(), expected, "{size} ranks");
            }
        }
        let none = on_ranks(2, PATIENCE, |rank| rank.all_gather(&[], 0));
        assert!(none.into_iter().all(|all| all.unwrap().is_empty()));
        // A rank that passes too much is named by itself, before it sends anything.
        let results =
            on_ranks(2, Duration::from_millis(50), |rank| rank.all_gather(&[1; 3][..2 + rank.rank()], 2));
        assert_eq!(results[1], Err(RanksError::TooLong { rank: 1, peer: 1, bytes: 3, most: 2 }));
    }

    #[test]
    fn no_rank_leaves_a_barrier_before_all_have_come() {
        let arrived = std::sync::atomic::AtomicUsize::new(0);
        let seen = on_ranks(5, PATIENCE, |rank| {
            thread::sleep(Duration::from_millis(10 * rank.rank() as u64));
            arrived.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            rank.barrier().unwrap();
            arrived.load(std::sync::atomic::Ordering::SeqCst)
        });
        assert_eq!(seen, [5; 5]);
    }

    #[test]
    fn messages_of_a_tag_keep_their_order_and_tags_are_apart() {
        let results = on_ranks(2, PATIENCE, |rank| {
            let peer = 1 - rank.rank();
            if rank.rank() == 0 {
                for (number, content) in [(1, 10u8), (2, 20), (1, 11), (2, 21)] {
                    let sent = rank.send(peer, tag(number), Segment::copy_of(&[content])).unwrap();
                    assert_eq!(
                        rank.wait(sent).unwrap().bytes(),
                        [content],
                        "the sender gets its segment back"
                    );
                }
                return Vec::new();
            }
            let all: Vec<Transfer> = [2, 1, 1, 2]
                .map(|number| rank.receive(peer, tag(number), Segment::zeroed(1)).unwrap())
                .into();
            // The last is waited for first, which must not take the message of the first.
            let received = all.into_iter().rev().map(|transfer| rank.wait(transfer).unwrap().bytes()[0]);
            received.collect()
        });
        assert_eq!(results[1], [21, 11, 10, 20]);
    }

    #[test]
    fn a_rank_that_does_not_answer_is_named() {
        let limit = Duration::from_millis(50);
        let results = on_ranks(3, limit, |rank| match rank.rank() {
            0 => {
                let receiving = rank.receive(2, tag(0), Segment::zeroed(1)).unwrap();
                assert!(!rank.is_done(&receiving).unwrap());
                rank.wait(receiving).err()
            }
            _ => None,
        });
        assert_eq!(results[0], Some(RanksError::NoProgress { rank: 0, peer: 2, limit }));
        let said = results[0].as_ref().unwrap().to_string();
        assert_eq!(said, "rank 0 waited 0.05 s for rank 2 without progress");
    }

    #[test]
    fn an_abort_ends_all_ranks() {
        let results = on_ranks(3, PATIENCE, |rank| match rank.rank() {
            1 => {
                rank.abort(7);
                None
            }
            _ => rank.barrier().err(),
        });
        let aborted = Some(RanksError::Aborted { rank: 1, status: 7 });
        assert_eq!(results, [aborted.clone(), None, aborted]);
    }

    #[test]
    fn a_message_of_another_length_is_an_error_of_its_receiver() {
        let results = on_ranks(2, PATIENCE, |rank| match rank.rank() {
            0 => rank.send(1, tag(3), Segment::zeroed(5)).and_then(|sent| rank.wait(sent)),
            _ => rank.receive(0, tag(3), Segment::zeroed(4)).and_then(|receiving| rank.wait(receiving)),
        });
        assert_eq!(results[1], Err(RanksError::Length { rank: 1, peer: 0, expected: 4, found: 5 }));
        let too_long = on_ranks(2, PATIENCE, |rank| rank.gather(0, &[0; 9], 8));
        assert_eq!(too_long[0], Err(RanksError::TooLong { rank: 0, peer: 1, bytes: 9, most: 8 }));
    }

    #[test]
    fn a_process_alone_is_a_rank_of_one() {
        let mut rank = alone();
        assert_eq!((rank.rank(), rank.size(), rank.node()), (0, 1, NodePlace { rank: 0, size: 1 }));
        rank.barrier().unwrap();
        assert_eq!(rank.gather(0, &[1, 2], 2).unwrap(), [Segment::copy_of(&[1, 2])]);
        assert_eq!(rank.broadcast(0, Segment::copy_of(&[3])).unwrap().bytes(), [3]);
        let sent = rank.send(0, tag(0), Segment::copy_of(&[4])).unwrap();
        let received = rank.receive(0, tag(0), Segment::zeroed(1)).unwrap();
        assert_eq!(rank.wait(received).unwrap().bytes(), [4]);
        rank.wait(sent).unwrap();
        assert!(matches!(
            rank.send(1, tag(0), Segment::default()),
            Err(RanksError::NoRank { rank: 1, size: 1 })
        ));
    }
}
