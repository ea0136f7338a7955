//! The ranks that validate a fold together: each computes cases of its own, and the first has the results of all.
//!
//! Ranks need different times, so nobody waits before its own cases are done, and then as long as others compute: how long a case takes is not
//! known. A rank that is killed ends all others by the launcher, and one that hangs by their watch over each other. A wish to stop goes to the first rank, which passes it on to all.

use std::time::Duration;

use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_ranks::{Communicator, RanksError, Segment, Tag, Transfer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::StopToken;
use crate::error::{Error, Outcome};

/// The notices of ranks. Trainings have the tags below.
const NOTICES: Tag = Tag::from_u8(16);
/// The most memory per byte of text while results are read.
const HELD_PER_BYTE: u64 = 8;
/// The time between two looks for notices.
const PAUSE: Duration = Duration::from_millis(10);

/// A notice between the first rank and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// Somebody asked the sender to stop.
    Stop,
    /// Another rank has ended its cases.
    Finished,
    /// The first rank has seen that all have ended their cases; the last notice to a rank.
    End { is_stopped: bool },
    /// The answer to the end; the last notice of a rank.
    Closed,
}

impl Notice {
    /// The number that is sent.
    fn number(self) -> u8 {
        match self {
            Notice::Stop => 0,
            Notice::Finished => 1,
            Notice::End { is_stopped: false } => 2,
            Notice::End { is_stopped: true } => 3,
            Notice::Closed => 4,
        }
    }

    /// The notice of a rank.
    fn read(segment: &Segment, from: usize) -> Outcome<Notice> {
        match segment.bytes() {
            [0] => Ok(Notice::Stop),
            [1] => Ok(Notice::Finished),
            [2] => Ok(Notice::End { is_stopped: false }),
            [3] => Ok(Notice::End { is_stopped: true }),
            [4] => Ok(Notice::Closed),
            _ => Err(Error::new(
                format!("rank {from} sent a notice that this version does not know"),
                "use one version on all nodes",
            )),
        }
    }
}

/// The place of this process among the ranks that validate a fold.
pub struct ValidatingRanks<'a> {
    communicator: &'a mut dyn Communicator,
    stop: StopToken,
    /// The next notice of each rank: of all others at the first, of the first at the others.
    expected: Vec<Option<Transfer>>,
    /// The ranks that have ended their cases, as the first knows.
    finished: Vec<bool>,
    /// No wish to stop can be sent any more, or it is sent.
    is_told: bool,
    /// The end, as the first rank has seen it.
    end: Option<bool>,
}

/// The results of all ranks.
pub struct Merged<T> {
    /// The results, in the order of all cases.
    pub all: Vec<T>,
    /// The reservation of the memory of these and of their texts; `None` if they are of this process.
    _memory: Option<Reservation>,
}

impl<'a> ValidatingRanks<'a> {
    /// The ranks of a communicator. A token that is asked to stop at one of them is asked at all.
    pub fn new(communicator: &'a mut dyn Communicator, stop: &StopToken) -> ValidatingRanks<'a> {
        let (rank, size) = (communicator.rank(), communicator.size());
        ValidatingRanks {
            communicator,
            stop: stop.clone(),
            expected: (0..size).map(|_| None).collect(),
            finished: (0..size).map(|other| other == rank).collect(),
            is_told: false,
            end: None,
        }
    }

    /// Returns `true` for the rank that writes the files of the run.
    pub fn is_first(&self) -> bool {
        self.communicator.rank() == 0
    }

    /// The part of a list that this rank computes: every R-th of R ranks.
    pub fn own<T: Clone>(&self, all: &[T]) -> Vec<T> {
        all.iter().skip(self.communicator.rank()).step_by(self.communicator.size()).cloned().collect()
    }

    /// Tells all ranks whether the first one has something to compute, and begins if so.
    pub fn begin(&mut self, has_work: bool) -> Outcome<bool> {
        let own = [u8::from(has_work)];
        let all = self.communicator.all_gather(&own, own.len())?;
        let has_work = all.bytes().first() == Some(&1);
        if has_work {
            let size = self.communicator.size();
            let others = if self.is_first() { 1..size } else { 0..1 };
            for other in others {
                self.expect_notice(other)?;
            }
        }
        Ok(has_work)
    }

    fn expect_notice(&mut self, from: usize) -> Result<(), RanksError> {
        self.expected[from] = Some(self.communicator.receive(from, NOTICES, Segment::zeroed(1))?);
        Ok(())
    }

    fn send(&mut self, to: usize, notice: Notice) -> Result<(), RanksError> {
        let sent = self.communicator.send(to, NOTICES, Segment::copy_of(&[notice.number()]))?;
        self.communicator.wait(sent)?;
        Ok(())
    }

    /// Sends a notice to the other ranks that this one speaks with.
    fn send_all(&mut self, notice: Notice) -> Result<(), RanksError> {
        let others = if self.is_first() { 1..self.communicator.size() } else { 0..1 };
        others.into_iter().try_for_each(|other| self.send(other, notice))
    }

    /// Reads the notices that have arrived, and passes a wish to stop on. To be called now and then while this rank computes.
    pub fn exchange(&mut self) -> Outcome {
        for peer in 0..self.expected.len() {
            while let Some(transfer) = self.expected[peer].take() {
                if !self.communicator.is_done(&transfer)? {
                    self.expected[peer] = Some(transfer);
                    break;
                }
                match Notice::read(&self.communicator.wait(transfer)?, peer)? {
                    Notice::Stop => {
                        self.stop.ask();
                        // The first rank passes it on.
                        self.is_told |= !self.is_first();
                    }
                    Notice::Finished => self.finished[peer] = true,
                    Notice::End { is_stopped } => {
                        (self.end, self.is_told) = (Some(is_stopped), true);
                        break;
                    }
                    Notice::Closed => break,
                }
                self.expect_notice(peer)?;
            }
        }
        let is_alone = self.communicator.size() == 1;
        if self.stop.is_asked() && !self.is_told && !is_alone {
            self.is_told = true;
            self.send_all(Notice::Stop)?;
        }
        Ok(())
    }

    /// Waits until all ranks have ended their cases, and returns `true` if one of them was stopped; `is_stopped` is so if this one was.
    pub fn finish(&mut self, is_stopped: bool) -> Outcome<bool> {
        if self.communicator.size() == 1 {
            return Ok(is_stopped);
        }
        if !self.is_first() {
            // A wish to stop goes before.
            self.exchange()?;
            self.send(0, Notice::Finished)?;
            loop {
                self.exchange()?;
                if let Some(is_stopped) = self.end {
                    self.send(0, Notice::Closed)?;
                    return Ok(is_stopped);
                }
                self.communicator.rest(PAUSE);
            }
        }
        while !self.finished.iter().all(|is_finished| *is_finished) {
            self.exchange()?;
            self.communicator.rest(PAUSE);
        }
        let is_stopped = self.stop.is_asked();
        self.is_told = true;
        self.send_all(Notice::End { is_stopped })?;
        while self.expected.iter().any(Option::is_some) {
            self.exchange()?;
            self.communicator.rest(PAUSE);
        }
        Ok(is_stopped)
    }

    /// Merges the results of all ranks, one for each case of [`own`](Self::own), in the order of all cases. Returns them at the first rank, and
    /// `None` at the others.
    pub fn merge<T: Serialize + DeserializeOwned>(
        &mut self,
        own: Vec<T>,
        budget: &Budget,
    ) -> Outcome<Option<Merged<T>>> {
        if self.communicator.size() == 1 {
            return Ok(Some(Merged { all: own, _memory: None }));
        }
        let text = serde_json::to_vec(&own)?;
        let length = (text.len() as u64).to_le_bytes();
        let lengths = self.communicator.all_gather(&length, length.len())?;
        let lengths = lengths.bytes().as_chunks().0.iter().map(|length| u64::from_le_bytes(*length));
        let (most, all) =
            lengths.fold((0, 0u64), |(most, all), length| (length.max(most), all.saturating_add(length)));
        let needed = Bytes(all.saturating_mul(1 + HELD_PER_BYTE));
        let memory = self.is_first().then(|| budget.reserve("results of ranks", needed)).transpose()?;
        // The length of a text that a rank has in memory.
        let gathered = self.communicator.gather(0, &text, most as usize)?;
        let parts = gathered.iter().map(|text| serde_json::from_slice(text.bytes()));
        let parts = parts.collect::<Result<Vec<Vec<T>>, _>>()?;
        Ok(memory.map(|memory| Merged { all: in_order(parts), _memory: Some(memory) }))
    }
}

/// Puts the parts of all ranks, by rank, into the order of the list that they divide.
fn in_order<T>(parts: Vec<Vec<T>>) -> Vec<T> {
    let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(parts.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use plimsoll_ranks::{ThreadRank, thread_ranks};

    use super::*;

    /// Runs a function on ranks with a stop token each, and returns its results by rank.
    fn on_ranks<T: Send>(
        size: usize,
        run: impl Fn(&mut ValidatingRanks<'_>, &StopToken) -> T + Sync,
    ) -> Vec<T> {
        thread::scope(|scope| {
            let run = &run;
            let one = |mut rank: ThreadRank| {
                scope.spawn(move || {
                    let stop = StopToken::default();
                    run(&mut ValidatingRanks::new(&mut rank, &stop), &stop)
                })
            };
            // A rank that computes for longer is waited for all the same.
            let threads: Vec<_> =
                thread_ranks(size, Duration::from_millis(200)).into_iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn each_case_is_of_one_rank_and_results_are_in_the_order_of_all() {
        let cases: Vec<u32> = (0..7).collect();
        for size in [1, 2, 4, 9] {
            let parts = on_ranks(size, |ranks, _| ranks.own(&cases));
            assert_eq!(in_order(parts), cases);
        }
    }

    #[test]
    fn a_rank_waits_for_another_that_computes_longer_than_the_patience() {
        for slow in 0..3 {
            let ended = on_ranks(3, |ranks, _| {
                assert!(ranks.begin(ranks.is_first()).unwrap());
                if ranks.communicator.rank() == slow {
                    thread::sleep(Duration::from_millis(500));
                }
                let is_stopped = ranks.finish(false).unwrap();
                let (budget, own) = (Budget::new(Bytes::mib(1)), ranks.own(&[0.1, 2.0, 3e300, 4.0]));
                let merged = ranks.merge(own, &budget).unwrap();
                (is_stopped, merged.map(|merged| (merged.all, budget.used())))
            });
            // "[0.1,4.0]", "[2.0]" and "[3e+300]": 22 bytes, for each of which 8 more are held.
            assert_eq!(ended[0], (false, Some((vec![0.1, 2.0, 3e300, 4.0], Bytes(9 * 22)))));
            assert_eq!(ended[1..], [(false, None), (false, None)]);
        }
    }

    #[test]
    fn a_wish_to_stop_at_any_rank_reaches_all() {
        for asked in 0..3 {
            let ended = on_ranks(3, |ranks, stop| {
                ranks.begin(true).unwrap();
                let rank = ranks.communicator.rank();
                // Rank 2 has ended its cases before, and waits.
                if rank != 2 {
                    while !stop.is_asked() {
                        if rank == asked {
                            stop.ask();
                        }
                        ranks.exchange().unwrap();
                        thread::sleep(Duration::from_millis(1));
                    }
                } else if rank == asked {
                    stop.ask();
                }
                ranks.finish(stop.is_asked()).unwrap()
            });
            assert_eq!(ended, [true; 3], "rank {asked} was asked");
        }
    }

    #[test]
    fn nothing_is_exchanged_if_the_first_rank_has_nothing_to_compute() {
        assert_eq!(on_ranks(3, |ranks, _| ranks.begin(!ranks.is_first()).unwrap()), [false; 3]);
    }
}
