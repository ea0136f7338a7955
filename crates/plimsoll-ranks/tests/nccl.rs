//! Ranks whose segments go through NCCL: a stub of its library, and threads that stand in for processes and for streams of cards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(unix)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_nccl_stub::{Fault, HostLanes, Stub};
use plimsoll_ranks::{
    Communicator, LaneSizes, NcclFailure, NcclLibrary, NcclOptions, NoNccl, RanksError, Segment, Tag,
    Transfer, agree_on_nccl, check_queues, open_nccl, thread_ranks,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Ranks with a stub of the library.
struct Site {
    stub: Stub,
    /// Bytes of buffers on cards.
    held: Arc<AtomicUsize>,
    patience: Duration,
    least: usize,
}

impl Site {
    /// A site in which all segments go through cards, also those without bytes.
    fn new() -> Site {
        Site { stub: Stub::new(), held: Arc::default(), patience: PATIENCE, least: 0 }
    }

    fn with(fault: Fault) -> Site {
        let site = Site::new();
        Site { stub: site.stub.with(fault), patience: Duration::from_millis(500), ..site }
    }

    /// Runs a function on all ranks, and returns their results by rank. A rank that cannot open its channels aborts.
    fn try_on_ranks<T: Send>(
        &self,
        size: usize,
        run: impl Fn(&mut dyn Communicator) -> T + Sync,
    ) -> Vec<Result<T, RanksError>> {
        let (run, options) = (&run, NcclOptions { patience: self.patience, least: self.least });
        thread::scope(|scope| {
            let start = |control| {
                scope.spawn(move || {
                    let lanes = Box::new(HostLanes::new(LaneSizes::new(size), &self.held));
                    let library = self.stub.load().unwrap();
                    match open_nccl(Box::new(control), library, lanes, options) {
                        Ok(mut rank) => Ok(run(rank.as_mut())),
                        Err(NcclFailure { error, mut control }) => {
                            control.abort(1);
                            Err(error)
                        }
                    }
                })
            };
            let threads: Vec<_> = thread_ranks(size, PATIENCE).into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Runs a function on all ranks, and checks that they leave nothing behind.
    fn on_ranks<T: Send>(&self, size: usize, run: impl Fn(&mut dyn Communicator) -> T + Sync) -> Vec<T> {
        let results = self.try_on_ranks(size, run).into_iter().map(Result::unwrap).collect();
        assert_eq!(self.held.load(Ordering::SeqCst), 0, "buffers on cards");
        // The stub's threads may have a communicator for some microseconds more.
        let start = Instant::now();
        while self.stub.communicators() > 0 {
            assert!(start.elapsed() < PATIENCE, "{} communicators", self.stub.communicators());
        }
        results
    }
}

fn tag(number: u16) -> Tag {
    Tag::new(number).unwrap()
}

fn content(rank: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + rank * 7) as u8).collect()
}

/// Sends segments of several lengths, in one buffer and in many, around a ring and to all.
fn exchange(rank: &mut dyn Communicator) {
    let (own, size) = (rank.rank(), rank.size());
    let (next, before) = ((own + 1) % size, (own + size - 1) % size);
    let buffer = LaneSizes::new(size).bytes;
    for (number, length) in [0, 1, buffer - 1, buffer, buffer + 1, 5 * buffer + 7].into_iter().enumerate() {
        let number = tag(number as u16);
        let received = rank.receive(before, number, Segment::zeroed(length)).unwrap();
        let sent = rank.send(next, number, Segment::copy_of(&content(own, length))).unwrap();
        while !rank.is_done(&received).unwrap() {}
        assert!(rank.wait(received).unwrap().bytes() == content(before, length), "{length} bytes");
        assert!(rank.wait(sent).unwrap().bytes() == content(own, length), "the segment comes back");
    }
    // All at once, waited for in another order.
    let lengths = [3 * buffer, 7, 0, 3000];
    let receives = lengths.map(|length| rank.receive(before, tag(9), Segment::zeroed(length)).unwrap());
    let sends =
        lengths.map(|length| rank.send(next, tag(9), Segment::copy_of(&content(own, length))).unwrap());
    for (received, length) in receives.into_iter().zip(lengths).rev() {
        assert!(rank.wait(received).unwrap().bytes() == content(before, length), "{length} bytes");
    }
    for sent in sends {
        rank.wait(sent).unwrap();
    }
    let all = rank.broadcast(size - 1, Segment::copy_of(&content(own, 5000))).unwrap();
    assert_eq!(all.bytes(), content(size - 1, 5000));
    let gathered = rank.gather(0, &content(own, own), size).unwrap();
    assert!(gathered.iter().enumerate().all(|(rank, bytes)| bytes.bytes() == content(rank, rank)));
    rank.barrier().unwrap();
}

#[test]
fn messages_between_one_to_four_ranks() {
    for size in 1..=4 {
        for least in [0, 1, 1000] {
            let site = Site { least, ..Site::new() };
            site.on_ranks(size, exchange);
        }
    }
}

#[test]
fn messages_of_a_tag_keep_their_order_and_tags_are_apart() {
    let results = Site::new().on_ranks(2, |rank| {
        let peer = 1 - rank.rank();
        if rank.rank() == 0 {
            let sent = [(1, 10u8), (2, 20), (1, 11), (2, 21)]
                .map(|(number, content)| rank.send(peer, tag(number), Segment::copy_of(&[content])).unwrap());
            for sent in sent {
                rank.wait(sent).unwrap();
            }
            return Vec::new();
        }
        // Another order of tags than the sender's.
        let all: Vec<Transfer> =
            [2, 1, 1, 2].map(|number| rank.receive(peer, tag(number), Segment::zeroed(1)).unwrap()).into();
        let received = all.into_iter().rev().map(|transfer| rank.wait(transfer).unwrap().bytes()[0]);
        received.collect()
    });
    assert_eq!(results[1], [21, 11, 10, 20]);
}

/// NCCL alone would block here: both ends of each pair send first, and wait for another tag than was sent first.
#[test]
fn no_order_of_sends_and_receives_blocks() {
    Site::new().on_ranks(4, |rank| {
        let (own, size) = (rank.rank(), rank.size());
        let others: Vec<usize> = (0..size).filter(|peer| *peer != own).collect();
        let length = 100_000;
        let send = |rank: &mut dyn Communicator, number| -> Vec<Transfer> {
            let send = |peer: &usize| rank.send(*peer, tag(number), Segment::copy_of(&content(own, length)));
            others.iter().map(send).map(Result::unwrap).collect()
        };
        let mut sent = send(rank, 1);
        sent.extend(send(rank, 2));
        for number in [2, 1] {
            // Each rank waits for the others in another order.
            for step in 0..others.len() {
                let peer = others[(step + own) % others.len()];
                let received = rank.receive(peer, tag(number), Segment::zeroed(length)).unwrap();
                assert!(rank.wait(received).unwrap().bytes() == content(peer, length));
            }
        }
        for sent in sent {
            rank.wait(sent).unwrap();
        }
    });
}

#[test]
fn a_segment_that_nobody_expects_does_not_hold_up_others() {
    let results = Site::new().on_ranks(2, |rank| {
        let peer = 1 - rank.rank();
        let late = rank.send(peer, tag(5), Segment::copy_of(&[5; 9])).unwrap();
        for round in 0..20 {
            let sent = rank.send(peer, tag(6), Segment::copy_of(&[round; 9])).unwrap();
            let received = rank.receive(peer, tag(6), Segment::zeroed(9)).unwrap();
            assert_eq!(rank.wait(received).unwrap().bytes(), [round; 9]);
            rank.wait(sent).unwrap();
        }
        let is_waiting = !rank.is_done(&late).unwrap();
        rank.barrier().unwrap();
        let received = rank.receive(peer, tag(5), Segment::zeroed(9)).unwrap();
        let received = rank.wait(received).unwrap();
        rank.wait(late).unwrap();
        (is_waiting, received.bytes().to_vec())
    });
    assert_eq!(results, vec![(true, vec![5; 9]); 2]);
}

#[test]
fn messages_arrive_while_the_receiver_computes() {
    Site::new().on_ranks(2, |rank| {
        let peer = 1 - rank.rank();
        if rank.rank() == 1 {
            let received = rank.receive(peer, tag(1), Segment::zeroed(1)).unwrap();
            let start = Instant::now();
            while !rank.is_done(&received).unwrap() {
                assert!(start.elapsed() < PATIENCE);
            }
            assert_eq!(rank.wait(received).unwrap().bytes(), [5]);
        } else {
            let sent = rank.send(peer, tag(1), Segment::copy_of(&[5])).unwrap();
            rank.wait(sent).unwrap();
        }
    });
}

#[test]
fn a_message_of_another_length_is_an_error_of_its_receiver() {
    let results = Site::new().try_on_ranks(2, |rank| match rank.rank() {
        0 => rank.send(1, tag(3), Segment::zeroed(5)).and_then(|sent| rank.wait(sent)),
        _ => rank.receive(0, tag(3), Segment::zeroed(4)).and_then(|receiving| rank.wait(receiving)),
    });
    assert_eq!(results[1], Ok(Err(RanksError::Length { rank: 1, peer: 0, expected: 4, found: 5 })));
    assert_eq!(results[0], Ok(Err(RanksError::Aborted { rank: 1, status: 1 })));
}

#[test]
fn a_rank_that_does_not_answer_is_named() {
    let site = Site { patience: Duration::from_millis(300), ..Site::new() };
    let results = site.try_on_ranks(3, |rank| match rank.rank() {
        0 => {
            let receiving = rank.receive(2, tag(0), Segment::zeroed(1)).unwrap();
            rank.wait(receiving).err()
        }
        _ => None,
    });
    let limit = site.patience;
    assert_eq!(results[0], Ok(Some(RanksError::NoProgress { rank: 0, peer: 2, limit })));
}

#[test]
fn an_abort_ends_all_ranks() {
    let results = Site::new().try_on_ranks(3, |rank| match rank.rank() {
        1 => {
            rank.abort(7);
            None
        }
        _ => {
            let receiving = rank.receive(1, tag(0), Segment::zeroed(1)).unwrap();
            rank.wait(receiving).err()
        }
    });
    let aborted = Ok(Some(RanksError::Aborted { rank: 1, status: 7 }));
    assert_eq!(results, [aborted.clone(), Ok(None), aborted]);
}

/// Passes some segments between two ranks, and returns the first error.
fn first_error(rank: &mut dyn Communicator) -> Option<RanksError> {
    let peer = 1 - rank.rank();
    let mut pass = || {
        let received = rank.receive(peer, tag(1), Segment::zeroed(100))?;
        let sent = rank.send(peer, tag(1), Segment::zeroed(100))?;
        rank.wait(received)?;
        rank.wait(sent)
    };
    let error = (0..10).find_map(|_| pass().err());
    // As a rank does that has reported its error.
    if error.is_some() {
        rank.abort(1);
    }
    error
}

#[test]
fn an_error_of_the_library_while_messages_are_on_their_way_ends_all_ranks() {
    let results = Site::with(Fault::Broken(4)).try_on_ranks(2, first_error);
    let errors: Vec<RanksError> = results.into_iter().map(|result| result.unwrap().unwrap()).collect();
    let first = errors.iter().find(|error| matches!(error, RanksError::NcclFailed { .. })).unwrap();
    assert!(
        first.to_string().contains("remote process exited or there was a network error: of the stub"),
        "{first}"
    );
    assert!(first.remedy().contains("NCCL_DEBUG=INFO") && first.remedy().contains("‹transport=mpi›"));
}

#[test]
fn a_message_that_never_arrives_is_noticed() {
    let results = Site::with(Fault::Stuck(3)).try_on_ranks(2, first_error);
    let is_late = |result: &Result<Option<RanksError>, _>| matches!(result, Ok(Some(RanksError::NoProgress { limit, .. })) if *limit == Duration::from_millis(500));
    assert!(results.iter().any(is_late), "{results:?}");
}

#[test]
fn a_message_that_cannot_be_sent_or_a_channel_that_cannot_be_made_is_an_error_with_a_remedy() {
    for (fault, call) in [(Fault::Unsent, "ncclSend"), (Fault::Refused, "ncclCommInitRankConfig")] {
        let results = Site::with(fault).try_on_ranks(2, |_| ());
        let errors: Vec<RanksError> = results.into_iter().map(Result::unwrap_err).collect();
        let is_named = |error: &RanksError| {
            let text = error.to_string();
            text.contains(call)
                && text.ends_with(": invalid usage: of the stub")
                && error.remedy().contains("‹transport=mpi›")
        };
        assert!(errors.iter().any(is_named), "{errors:?}");
    }
    let site = Site::with(Fault::Absent);
    let results = site.try_on_ranks(2, |_| ());
    let limit = site.patience;
    assert!(results.contains(&Err(RanksError::NoProgress { rank: 0, peer: 1, limit })), "{results:?}");
    assert_eq!(site.stub.communicators(), 0, "communicators of a failed start are aborted");
}

#[test]
fn a_library_that_is_missing_or_too_old_or_another_is_refused() {
    let old = Stub::new().with(Fault::Version(21_700)).load().unwrap_err();
    assert!(old.to_string().ends_with("libnccl.so.2 is NCCL 2.17.0, but 2.18.0 is needed"), "{old}");
    let other = NcclLibrary::load(&["libm.so.6".into()]).unwrap_err();
    assert_eq!(other.to_string(), "libm.so.6 is no NCCL library: it has no ncclGetVersion");
    for error in [old, other] {
        assert!(error.remedy().contains("LD_LIBRARY_PATH") && error.remedy().contains("‹transport=mpi›"));
    }
    assert_eq!(Stub::new().load().unwrap().version().to_string(), "2.27.3");
}

/// The agreement of ranks that answer by their number.
fn agreement(size: usize, answer: impl Fn(usize) -> Result<String, NoNccl> + Sync) -> Result<(), NoNccl> {
    let answer = &answer;
    let found: Vec<_> = thread::scope(|scope| {
        let agree = |mut rank: plimsoll_ranks::ThreadRank| {
            scope.spawn(move || {
                let own = answer(rank.rank());
                agree_on_nccl(&mut rank, own.as_deref()).unwrap()
            })
        };
        let threads: Vec<_> = thread_ranks(size, PATIENCE).into_iter().map(agree).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|other| *other == found[0]), "ranks differ: {found:?}");
    found[0].clone()
}

#[test]
fn all_ranks_use_nccl_or_none_does() {
    assert_eq!(agreement(4, |rank| Ok(format!("node {rank}"))), Ok(()));
    let none = agreement(3, |rank| match rank {
        1 => Err(NoNccl::NotLoaded { tried: "libnccl.so.2 (é)".repeat(500) }),
        _ => Ok(format!("node {rank}")),
    });
    let said = none.unwrap_err().to_string();
    assert!(said.starts_with("rank 1: no NCCL library can be loaded: libnccl.so.2 (é)"), "{said}");
    let shared = agreement(3, |rank| Ok(format!("node {}", rank % 2)));
    assert_eq!(shared.unwrap_err().to_string(), "ranks 0 and 2 have the same GPU, node 0");
    let queues = |ranks, queues| check_queues(ranks, queues).map_err(|error| error.to_string());
    assert_eq!([queues(4, 8), queues(16, 32), queues(1, 0)], [Ok(()), Ok(()), Ok(())]);
    let error = "there are 5 ranks, but the 8 queues of a GPU are enough for 4";
    assert_eq!(queues(5, 8), Err(error.into()));
    assert!(queues(17, 64).is_err(), "no card has more than 32");
}
