//! Tests of the thread that moves messages on.

use std::sync::atomic::AtomicU32;

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
                let mut rank = in_background(patience, None, move || Ok(Box::new(rank) as _)).unwrap();
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

/// A rank without others that counts the tests of its messages, which finish when a number of tests is reached.
struct Counting {
    tests: Arc<AtomicU32>,
    enough: u32,
}

impl Communicator for Counting {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn node(&self) -> NodePlace {
        NodePlace { rank: 0, size: 1 }
    }

    fn set_patience(&mut self, _: Duration) {}

    fn send(&mut self, _: usize, _: Tag, _: Segment) -> Result<Transfer, RanksError> {
        Ok(Transfer(0))
    }

    fn receive(&mut self, _: usize, _: Tag, _: Segment) -> Result<Transfer, RanksError> {
        Ok(Transfer(0))
    }

    fn is_done(&mut self, _: &Transfer) -> Result<bool, RanksError> {
        Ok(self.tests.fetch_add(1, Ordering::Relaxed) + 1 >= self.enough)
    }

    fn wait(&mut self, _: Transfer) -> Result<Segment, RanksError> {
        Ok(Segment::default())
    }

    fn wait_any(&mut self, _: &[&Transfer]) -> Result<(), RanksError> {
        Ok(())
    }

    fn rest(&mut self, _: Duration) {}

    fn abort(&mut self, _: i32) {}
}

#[test]
fn tests_of_messages_are_rare_while_the_rank_computes() {
    const ENOUGH: u32 = 400;
    let tests = Arc::new(AtomicU32::new(0));
    let counting = Counting { tests: Arc::clone(&tests), enough: ENOUGH };
    let mut rank = in_background(PATIENCE, None, move || Ok(Box::new(counting) as _)).unwrap();
    let received = rank.receive(0, Tag::from_u8(1), Segment::default()).unwrap();
    let span = Duration::from_millis(200);
    thread::sleep(span);
    let while_computing = tests.load(Ordering::Relaxed);
    // A few for the first doubled pauses, then one for each longest pause at most.
    let most = 10 + span.as_micros() / LONGEST_PAUSE.as_micros();
    assert!((1..=most).contains(&u128::from(while_computing)), "{while_computing} tests");
    rank.wait(received).unwrap();
    assert_eq!(tests.load(Ordering::Relaxed), ENOUGH);
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
    let opened = in_background(PATIENCE, None, || Err(RanksError::OpenedBefore));
    assert_eq!(opened.err(), Some(RanksError::OpenedBefore));
}
