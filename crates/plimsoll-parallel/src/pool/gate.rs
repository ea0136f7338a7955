//! The barrier of a pool: one word by which a job is opened to threads, entered, left and closed.
//!
//! The word has the number of threads inside, a flag that the job may be entered, the number of threads it is for, and
//! a number by which threads distinguish one job from the next. The job is never read while it is replaced, for these
//! reasons:
//!
//! - Who enters adds one and looks at what the word was. Only if it was open does the thread read the job, and it stays
//!   counted until it has done with it; if it was closed, the thread takes the one back and touches nothing.
//! - Who owns the pool replaces the job only when the word was closed and nobody was inside. From then on until it is opened
//!   again, whoever enters finds it closed.
//! - Opening and leaving are read-modify-writes with release, entering and the owner's look at the count are acquires,
//!   and read-modify-writes continue the release sequence of those before: writes of the owner before opening are
//!   visible inside, and writes inside are visible to the owner after the count has reached 0.
//!
//! Threads that come late, because they slept, find the word closed: nobody waits for them.
//!
//! Sleeping: those who wait to enter and the owner, who waits for the last to leave, sleep apart, so that none is woken
//! for the other. Who wants to sleep counts itself as asleep, then reads the word again; who changes the word reads
//! that count afterwards. All four are sequentially consistent, so at least one of the two sees the other. The second
//! read and the sleep are under a mutex that the waker takes, too, so that no call falls between them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The bits that count the threads inside of the job.
const INSIDE: u64 = (1 << 16) - 1;
/// The bit that is set if the job may be entered.
const OPEN: u64 = 1 << 16;
/// The pool is dropped: threads end.
const STOP: u64 = 1 << 17;
/// From here on, sixteen bits: how many threads the job is for.
const WANTED: u32 = 18;
/// From here on: the number of the job. That it comes round after 2³⁰ jobs does no harm: a thread that slept for so long
/// would leave one job to the others.
const JOB: u32 = 34;

/// The time that a thread polls for a change before it sleeps: the time between two kernels of a step, and no longer
/// than a thread takes to fall asleep and be woken.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock.
const LOOKS: usize = 32;

/// The most threads that a job can be for.
pub(super) const MOST_WANTED: usize = INSIDE as usize;

/// Those who sleep until the word changes.
#[derive(Debug, Default)]
struct Sleepers {
    count: AtomicUsize,
    changed: Condvar,
}

/// The word, and those who sleep until it changes.
#[derive(Debug, Default)]
pub(super) struct Gate {
    word: AtomicU64,
    mutex: Mutex<()>,
    /// Threads that wait for a job.
    entering: Sleepers,
    /// The owner, who waits until nobody is inside.
    closing: Sleepers,
    /// The time to poll before sleeping.
    spin: Duration,
}

/// The number of the job that a thread was last inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobNumber(u64);

impl JobNumber {
    /// Before the first.
    pub(super) const NONE: JobNumber = JobNumber(0);

    fn from_word(word: u64) -> JobNumber {
        JobNumber(word >> JOB)
    }
}

impl Gate {
    /// Closed. Threads look before they sleep only if each of `threads` has a core: otherwise who looks keeps a core from who
    /// works.
    pub(super) fn new(threads: usize) -> Gate {
        // The system's answer reads files of the process's control groups, which takes longer than a small kernel.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        Gate { spin: if threads <= cores { SPIN } else { Duration::ZERO }, ..Gate::default() }
    }

    /// Returns `true` if threads poll before they sleep.
    pub(super) fn looks(&self) -> bool {
        !self.spin.is_zero()
    }

    /// Opens the next job to threads with numbers below `wanted`, at most [`MOST_WANTED`], and wakes all that sleep: the
    /// others sleep again. What is written before is seen by who enters. For the owner of the pool, while the gate is closed.
    pub(super) fn open(&self, wanted: usize) {
        debug_assert!(wanted <= MOST_WANTED, "{wanted} threads");
        let word = self.word.load(Ordering::Relaxed);
        // Only the owner changes what is above the count, so nothing of it changes between this and the addition. A thread that
        // looks in while the gate is closed changes the count alone.
        let next = ((word >> JOB) + 1) << JOB | (wanted as u64) << WANTED | OPEN;
        self.word.fetch_add(next.wrapping_sub(word & !INSIDE), Ordering::SeqCst);
        self.wake(&self.entering);
    }

    /// Closes it, and waits until nobody is inside: what was done there is seen from here on.
    pub(super) fn close(&self) {
        let before = self.word.fetch_and(!OPEN, Ordering::SeqCst);
        if before & INSIDE != 0 {
            self.until(&self.closing, |word| word & INSIDE == 0);
        }
    }

    /// Waits for a job other than `last`, and enters it. None when the pool is dropped.
    pub(super) fn enter(&self, thread: usize, last: JobNumber) -> Option<JobNumber> {
        let is_for_me = |word: u64| {
            let wanted = (word >> WANTED & INSIDE) as usize;
            word & OPEN != 0 && thread < wanted && JobNumber::from_word(word) != last
        };
        loop {
            let seen = self.until(&self.entering, |word| word & STOP != 0 || is_for_me(word));
            if seen & STOP != 0 {
                return None;
            }
            let found = self.word.fetch_add(1, Ordering::SeqCst);
            if found & OPEN != 0 {
                return Some(JobNumber::from_word(found));
            }
            // It was closed meanwhile.
            self.leave();
        }
    }

    /// Leaves the job. The thread's writes inside are visible to the owner.
    pub(super) fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        if before & INSIDE == 1 && before & OPEN == 0 {
            self.wake(&self.closing);
        }
    }

    /// Ends all threads that wait to enter.
    pub(super) fn stop(&self) {
        self.word.fetch_or(STOP, Ordering::SeqCst);
        self.wake(&self.entering);
    }

    fn wake(&self, sleepers: &Sleepers) {
        if sleepers.count.load(Ordering::SeqCst) > 0 {
            drop(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
            sleepers.changed.notify_all();
        }
    }

    /// Waits for a word: looks for a short time, then sleeps among `sleepers`.
    fn until(&self, sleepers: &Sleepers, wanted: impl Fn(u64) -> bool) -> u64 {
        if self.looks() {
            let start = Instant::now();
            loop {
                for _ in 0..LOOKS {
                    let word = self.word.load(Ordering::SeqCst);
                    if wanted(word) {
                        return word;
                    }
                    std::hint::spin_loop();
                }
                if start.elapsed() >= self.spin {
                    break;
                }
            }
        }
        let mut lock = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.count.fetch_add(1, Ordering::SeqCst);
        let word = loop {
            let word = self.word.load(Ordering::SeqCst);
            if wanted(word) {
                break word;
            }
            lock = sleepers.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        };
        sleepers.count.fetch_sub(1, Ordering::SeqCst);
        word
    }
}
