//! The watch of each rank over the one before it.
//!
//! A rank that waits for another one notices that nothing comes. A rank that computes cases of its own for an hour does not, and a rank that is
//! waited for may be slow and sound. So the thread of messages of each rank tells the next one regularly if its process advances, and listens to
//! the one before it, the first rank to the last. The rank after one that hangs names it and ends the job, whatever either of them computes.
//!
//! A process advances if it uses processor time or moves bytes of files, or if it waits for other ranks. What stops it is thereby noticed for every
//! phase alike: a stopped process, a file system that does not answer, threads that wait for each other. A loop without end is not.

use std::time::{Duration, Instant};

use crate::communicator::{Communicator, Tag, Transfer};
use crate::error::RanksError;
use crate::segment::Segment;
use crate::watch::{Effort, Watch};

/// The notice of a rank that is watched no longer.
const END: u64 = u64::MAX;
/// The most bytes of a host's name.
const LONGEST_HOST: usize = 256;
/// The longest wait until all ranks have begun.
const BEGINNING: Duration = Duration::from_secs(24 * 3600);
/// The notices in the time after which a rank hangs, and the least and the longest time between two of them.
const NOTICES: u32 = 40;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// The share of a processor that a process uses at least if it advances: this part of the time. Threads that only look for events use less.
const LEAST_SHARE: u32 = 100;
/// The bytes of files that a process moves at least if it advances without a processor.
const LEAST_BYTES: u64 = 64 << 10;
/// The pause between two looks at the end.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest wait for a rank that is watched, in units of the patience: it ends ranks that all wait for each other.
const WATCHED_WAIT: u32 = 120;

/// The longest wait for another rank.
pub(crate) fn longest_wait(patience: Duration, is_watched: bool) -> Duration {
    if is_watched { patience.saturating_mul(WATCHED_WAIT) } else { patience }
}

/// The watch in the thread of messages.
pub(crate) struct Watcher {
    watch: Watch,
    patience: Duration,
    period: Duration,
    last: Instant,
    rank: usize,
    next: usize,
    previous: usize,
    /// The node of the previous rank.
    host: String,
    /// The number that changes whenever this process has advanced, and its effort at that moment.
    own: u64,
    mark: Option<Effort>,
    is_excused: bool,
    sending: Option<Transfer>,
    /// The next notice of the previous rank; `None` after its last.
    expected: Option<Transfer>,
    /// The last number of the previous rank, and how long this rank has run since it changed.
    heard: u64,
    quiet: Duration,
}

impl Watcher {
    /// Begins to watch. All ranks call this at once.
    ///
    /// # Errors
    /// Returns an error if communication fails.
    pub(crate) fn begin(
        communicator: &mut dyn Communicator,
        watch: &Watch,
        patience: Duration,
    ) -> Result<Watcher, RanksError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        communicator.set_patience(BEGINNING);
        let name = watch.host.as_bytes();
        let hosts = communicator.all_gather(name.get(..LONGEST_HOST).unwrap_or(name), LONGEST_HOST)?;
        communicator.set_patience(patience);
        let previous = (rank + size - 1) % size;
        let host = hosts.bytes().chunks(LONGEST_HOST).nth(previous);
        let host = host.ok_or(RanksError::NoRank { rank: previous, size })?;
        let mut watcher = Watcher {
            watch: watch.clone(),
            patience,
            period: (patience / NOTICES).clamp(SHORTEST, LONGEST),
            last: Instant::now(),
            rank,
            next: (rank + 1) % size,
            previous,
            host: String::from_utf8_lossy(host).trim_end_matches('\0').to_owned(),
            own: 0,
            mark: (watch.effort)(),
            is_excused: true,
            sending: None,
            expected: None,
            heard: 0,
            quiet: Duration::ZERO,
        };
        watcher.expect(communicator)?;
        Ok(watcher)
    }

    /// The time between two looks.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Tells the next rank if this one advances, and listens to the previous one, if it is time. `is_excused` states that this rank waits for
    /// others, or did so since the last look.
    ///
    /// # Errors
    /// Returns an error if the previous rank hangs, which is reported before, or communication fails.
    pub(crate) fn look(
        &mut self,
        communicator: &mut dyn Communicator,
        is_excused: impl FnOnce() -> bool,
    ) -> Result<(), RanksError> {
        let elapsed = self.last.elapsed();
        if elapsed < self.period {
            return Ok(());
        }
        self.is_excused |= is_excused();
        self.note(elapsed);
        if self.is_sent(communicator)? {
            self.tell(communicator)?;
        }
        self.listen(communicator)
    }

    /// Ends the watch: tells the next rank, and waits until the previous one has ended it too.
    ///
    /// # Errors
    /// Returns the errors of [`look`](Self::look).
    pub(crate) fn end(mut self, communicator: &mut dyn Communicator) -> Result<(), RanksError> {
        while !self.is_sent(communicator)? {
            std::thread::sleep(PAUSE);
        }
        self.send(communicator, END)?;
        while self.expected.is_some() || !self.is_sent(communicator)? {
            std::thread::sleep(PAUSE);
            let elapsed = self.last.elapsed();
            self.note(elapsed);
            self.listen(communicator)?;
        }
        Ok(())
    }

    /// Adds the time since the last look to the time without news. A job may be suspended as a whole, so what is longer than two periods does not
    /// count.
    fn note(&mut self, elapsed: Duration) {
        self.last = Instant::now();
        self.quiet += elapsed.min(2 * self.period);
    }

    fn expect(&mut self, communicator: &mut dyn Communicator) -> Result<(), RanksError> {
        let room = Segment::zeroed(size_of::<u64>());
        self.expected = Some(communicator.receive(self.previous, Tag::WATCH, room)?);
        Ok(())
    }

    fn send(&mut self, communicator: &mut dyn Communicator, number: u64) -> Result<(), RanksError> {
        let notice = Segment::copy_of(&number.to_le_bytes());
        self.sending = Some(communicator.send(self.next, Tag::WATCH, notice)?);
        Ok(())
    }

    /// Returns `true` if no notice is on its way.
    fn is_sent(&mut self, communicator: &mut dyn Communicator) -> Result<bool, RanksError> {
        let Some(sending) = self.sending.take() else { return Ok(true) };
        match communicator.is_done(&sending)? {
            true => drop(communicator.wait(sending)?),
            false => self.sending = Some(sending),
        }
        Ok(self.sending.is_none())
    }

    fn tell(&mut self, communicator: &mut dyn Communicator) -> Result<(), RanksError> {
        let effort = (self.watch.effort)();
        let has_worked = |(now, mark): (Effort, Effort)| {
            now.processor.saturating_sub(mark.processor) >= self.patience / LEAST_SHARE
                || now.bytes.saturating_sub(mark.bytes) >= LEAST_BYTES
        };
        if self.is_excused || effort.zip(self.mark).is_none_or(has_worked) {
            (self.own, self.mark, self.is_excused) = (self.own + 1, effort, false);
        }
        self.send(communicator, self.own)
    }

    fn listen(&mut self, communicator: &mut dyn Communicator) -> Result<(), RanksError> {
        while let Some(expected) = self.expected.take() {
            if !communicator.is_done(&expected)? {
                self.expected = Some(expected);
                break;
            }
            let notice = communicator.wait(expected)?;
            let (rank, peer) = (self.rank, self.previous);
            let number = notice.bytes().first_chunk().ok_or(RanksError::Notice { rank, peer })?;
            match u64::from_le_bytes(*number) {
                END => return Ok(()),
                number if number != self.heard => (self.heard, self.quiet) = (number, Duration::ZERO),
                _ => {}
            }
            self.expect(communicator)?;
        }
        if self.expected.is_none() || self.quiet <= self.patience {
            return Ok(());
        }
        let (peer, host, limit) = (self.previous, self.host.clone(), self.patience);
        let hang = RanksError::Hangs { peer, host, limit };
        (self.watch.report)(&hang);
        Err(hang)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;
    use crate::background::in_background;
    use crate::{ThreadRank, thread_ranks};

    const PATIENCE: Duration = Duration::from_millis(400);
    /// Longer than any rank is silent before it is named.
    const LONG: Duration = Duration::from_millis(1500);

    /// A rank whose effort is what its test sets.
    struct Rank {
        communicator: Box<dyn Communicator + Send>,
        milliseconds: Arc<AtomicU64>,
        bytes: Arc<AtomicU64>,
        /// Set while the rank has nothing to do for the job.
        is_idle: Arc<AtomicBool>,
        reports: Arc<Mutex<Vec<RanksError>>>,
    }

    impl Rank {
        /// Works for a long time, of which it uses a processor.
        fn compute(&self) {
            let begin = Instant::now();
            while begin.elapsed() < LONG {
                self.compute_a_little();
            }
        }

        fn compute_a_little(&self) {
            thread::sleep(Duration::from_millis(20));
            self.milliseconds.fetch_add(20, Ordering::Relaxed);
        }

        /// Repeats `work` until a hang is reported. A busy machine may take longer than the patience for that.
        fn until_a_report(&self, work: impl Fn()) {
            let begin = Instant::now();
            while self.reports.lock().unwrap().is_empty() && begin.elapsed() < 40 * LONG {
                work();
            }
        }
    }

    /// Runs a function on watched ranks, and returns their results and the reported hangs.
    fn on_ranks<T: Send>(size: usize, run: impl Fn(&mut Rank) -> T + Sync) -> (Vec<T>, Vec<RanksError>) {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let one = |number: usize, rank: ThreadRank| {
            let [milliseconds, bytes] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
            let is_idle = Arc::new(AtomicBool::new(false));
            let effort = {
                let (milliseconds, bytes) = (Arc::clone(&milliseconds), Arc::clone(&bytes));
                let is_idle = Arc::clone(&is_idle);
                move || {
                    let processor = Duration::from_millis(milliseconds.load(Ordering::Relaxed));
                    let effort = Effort { processor, bytes: bytes.load(Ordering::Relaxed) };
                    (!is_idle.load(Ordering::Relaxed)).then_some(effort)
                }
            };
            let (reports, noted) = (Arc::clone(&reports), Arc::clone(&reports));
            let report = move |error: &RanksError| reports.lock().unwrap().push(error.clone());
            let watch =
                Watch { host: format!("node {number}"), effort: Arc::new(effort), report: Arc::new(report) };
            let communicator = in_background(PATIENCE, Some(watch), move || Ok(Box::new(rank) as _)).unwrap();
            run(&mut Rank { communicator, milliseconds, bytes, is_idle, reports: noted })
        };
        let results = thread::scope(|scope| {
            let one = &one;
            let ranks = thread_ranks(size, PATIENCE).into_iter().enumerate();
            let threads: Vec<_> =
                ranks.map(|(number, rank)| scope.spawn(move || one(number, rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let reports = reports.lock().unwrap().clone();
        (results, reports)
    }

    #[test]
    fn a_rank_that_hangs_is_named_while_all_others_compute() {
        for hangs in 0..3 {
            let (ended, reports) = on_ranks(3, |rank| {
                match rank.communicator.rank() == hangs {
                    true => rank.until_a_report(|| thread::sleep(Duration::from_millis(20))),
                    false => rank.until_a_report(|| rank.compute_a_little()),
                }
                rank.communicator.barrier()
            });
            let named = RanksError::Hangs { peer: hangs, host: format!("node {hangs}"), limit: PATIENCE };
            assert_eq!(reports, [named]);
            assert!(ended.iter().all(Result::is_err), "{ended:?}");
        }
    }

    #[test]
    fn ranks_that_wait_for_one_that_computes_longer_than_the_patience_are_not_named() {
        let (ended, reports) = on_ranks(3, |rank| {
            match rank.communicator.rank() {
                0 => rank.compute(),
                1 => {
                    let begin = Instant::now();
                    while begin.elapsed() < LONG {
                        rank.communicator.rest(Duration::from_millis(10));
                    }
                }
                _ => {}
            }
            rank.communicator.barrier()
        });
        assert_eq!((ended, reports), (vec![Ok(()); 3], vec![]));
    }

    #[test]
    fn a_rank_that_only_moves_bytes_is_not_named() {
        let (ended, reports) = on_ranks(2, |rank| {
            let begin = Instant::now();
            while begin.elapsed() < LONG {
                thread::sleep(Duration::from_millis(100));
                rank.bytes.fetch_add(LEAST_BYTES, Ordering::Relaxed);
            }
            rank.communicator.barrier()
        });
        assert_eq!((ended, reports), (vec![Ok(()); 2], vec![]));
    }

    #[test]
    fn a_rank_without_work_of_the_job_is_not_named() {
        let (ended, reports) = on_ranks(2, |rank| {
            rank.is_idle.store(true, Ordering::Relaxed);
            thread::sleep(LONG);
            rank.is_idle.store(false, Ordering::Relaxed);
            rank.communicator.barrier()
        });
        assert_eq!((ended, reports), (vec![Ok(()); 2], vec![]));
    }

    #[test]
    fn a_rank_may_end_long_before_another() {
        let (_, reports) = on_ranks(3, |rank| {
            if rank.communicator.rank() == 1 {
                rank.compute();
            }
        });
        assert_eq!(reports, []);
    }
}
