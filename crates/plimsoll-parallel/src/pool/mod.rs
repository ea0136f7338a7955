//! Threads that run the tasks of one kernel after another.
//!
//! The assignment of tasks to threads is not fixed; the result of a task must not depend on it. Nothing is allocated
//! after the threads are started.
#![allow(unsafe_code, reason = "a job is a function behind a pointer")]

mod gate;
mod log;
mod schedule;

use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_memory::watch_this_thread;

use gate::{Gate, JobNumber, MOST_WANTED};
pub use log::{LaunchTasks, TaskLog};
use schedule::claim;

/// The most threads of a pool.
pub const MOST_THREADS: usize = 1024;

const _: () = assert!(MOST_THREADS <= MOST_WANTED, "the gate counts the threads of a job");

/// A function of (task, thread) behind a pointer.
#[derive(Clone, Copy)]
struct Job {
    /// May be called with `data`, until [`Pool::run`] returns.
    call: unsafe fn(*const (), usize, usize),
    data: *const (),
    tasks: usize,
}

struct Shared {
    gate: Gate,
    /// Written while the gate is closed and nobody is inside, read inside.
    job: UnsafeCell<Option<Job>>,
    threads: usize,
    next_task: AtomicUsize,
    panicked: AtomicBool,
}

// SAFETY: what a job's `data` points to is `Sync` (`Pool::run` asks for it) and outlives the job (`Pool::run` waits for its
// end). `job` is written by the one who has set `Pool::running`, while the gate is closed and nobody is inside, and read inside
// alone; the gate orders both, as its file says.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`.
unsafe impl Send for Shared {}

impl Shared {
    fn new(threads: usize) -> Shared {
        Shared {
            gate: Gate::new(threads),
            job: UnsafeCell::new(None),
            threads,
            next_task: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
        }
    }

    /// Takes tasks until none is left.
    fn work(&self, job: Job, thread: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let next = self.next_task.load(Ordering::Relaxed);
                if next >= job.tasks {
                    return;
                }
                // Others may take some between the two lines: then these are a few more than they should be.
                let count = claim(job.tasks - next, self.threads);
                let first = self.next_task.fetch_add(count, Ordering::Relaxed);
                for task in first..job.tasks.min(first + count) {
                    // SAFETY: `data` is what `call` takes, and lives until `Pool::run` returns, which waits for this thread.
                    unsafe { (job.call)(job.data, task, thread) };
                }
            }
        }));
        if outcome.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// The mark of a running job, until this is dropped.
struct Running<'a>(&'a AtomicBool);

impl<'a> Running<'a> {
    /// # Panics
    /// Panics if a job is running already.
    fn begin(running: &'a AtomicBool) -> Running<'a> {
        assert!(!running.swap(true, Ordering::Acquire), "a pool runs one kernel at a time");
        Running(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A fixed number of threads, the caller's among them.
pub struct Pool {
    /// The other threads; `None` if there are none, so that a pool of one thread allocates nothing.
    others: Option<Others>,
    /// `true` while a job is under way. There is room for one.
    running: AtomicBool,
    /// The log of a pool that measures its tasks, which has no thread but the caller's.
    log: Option<Arc<TaskLog>>,
}

/// The threads of a pool besides the caller's.
struct Others {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The stack of a thread of [`Pool::new`]: kernels keep large data in planned scratch.
pub const STACK_BYTES: usize = 512 << 10;

impl Pool {
    /// Starts `threads − 1` threads in addition to the caller's, each with a stack of [`STACK_BYTES`].
    ///
    /// # Errors
    /// Returns an error if the system refuses a thread, or there are more than [`MOST_THREADS`].
    pub fn new(threads: usize) -> io::Result<Pool> {
        Pool::named(threads, "kernel", STACK_BYTES)
    }

    /// Starts threads as [`Pool::new`] does, with a name for debuggers and a stack of `stack_bytes` each.
    ///
    /// # Errors
    /// The same as for [`Pool::new`].
    pub fn named(threads: usize, name: &str, stack_bytes: usize) -> io::Result<Pool> {
        if threads > MOST_THREADS {
            let problem = format!("{threads} threads, more than {MOST_THREADS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        if threads <= 1 {
            return Ok(Pool::single());
        }
        let mut others = Others { shared: Arc::new(Shared::new(threads)), threads: Vec::new() };
        for thread in 1..threads {
            let shared = Arc::clone(&others.shared);
            let handle = std::thread::Builder::new()
                .name(format!("{name}-{thread}"))
                .stack_size(stack_bytes)
                .spawn(move || serve(&shared, thread))?;
            others.threads.push(handle);
        }
        Ok(Pool { others: Some(others), ..Pool::single() })
    }

    /// Uses the caller's thread alone. Allocates nothing.
    pub const fn single() -> Pool {
        Pool { others: None, running: AtomicBool::new(false), log: None }
    }

    /// Uses the caller's thread alone, and adds the time of each task to a log.
    pub fn logged(log: Arc<TaskLog>) -> Pool {
        Pool { log: Some(log), ..Pool::single() }
    }

    /// Starts threads as [`Pool::new`] does, and uses the caller's alone if the system refuses one.
    pub fn or_single(threads: usize) -> Pool {
        Pool::new(threads.min(MOST_THREADS)).unwrap_or_else(|_| Pool::single())
    }

    /// The number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.shared.threads)
    }

    /// Calls `f(task, thread)` for every task, and returns when all are done. No two calls at a time have the same thread,
    /// which is below the number of threads.
    ///
    /// # Panics
    /// Panics if a task panics, or the pool is running already: tasks must not run others, nor two threads share a
    /// pool.
    pub fn run<F: Fn(usize, usize) + Sync>(&self, tasks: usize, f: &F) {
        /// # Safety
        /// `data` points to an `F` that lives until the call returns.
        unsafe fn call<F: Fn(usize, usize)>(data: *const (), task: usize, thread: usize) {
            // SAFETY: `data` points to an `F`, as this function's contract says.
            let f = unsafe { &*data.cast::<F>() };
            f(task, thread);
        }
        // A second job would take the first one's place while threads are still at work on that; a log would wait for itself.
        let _running = Running::begin(&self.running);
        if let Some(log) = &self.log {
            return log.kernel(tasks, |task| f(task, 0));
        }
        let Some(Others { shared, .. }) = self.others.as_ref().filter(|_| tasks > 1) else {
            return (0..tasks).for_each(|task| f(task, 0));
        };
        let job = Job { call: call::<F>, data: std::ptr::from_ref(f).cast(), tasks };
        shared.next_task.store(0, Ordering::Relaxed);
        // SAFETY: the gate is closed and nobody is inside: so it was made, and so each job leaves it. `running` was set here,
        // so no other call writes.
        unsafe { *shared.job.get() = Some(job) };
        shared.gate.open(shared.threads.min(tasks));
        shared.work(job, 0);
        shared.gate.close();
        assert!(!shared.panicked.swap(false, Ordering::Relaxed), "a kernel panicked on another thread");
    }
}

/// Runs the tasks of jobs on a thread until the pool is dropped.
fn serve(shared: &Shared, thread: usize) {
    // Kernels allocate nothing; if one did, it would count.
    let _watch = watch_this_thread();
    let mut last = JobNumber::NONE;
    while let Some(number) = shared.gate.enter(thread, last) {
        last = number;
        // SAFETY: this thread is inside until it leaves, so the job is not replaced; it was written before the gate was opened.
        if let Some(job) = unsafe { *shared.job.get() } {
            shared.work(job, thread);
        }
        shared.gate.leave();
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.shared.gate.stop();
        for thread in self.threads.drain(..) {
            // A panic on that thread was reported by the run that it happened in.
            let _ = thread.join();
        }
    }
}

/// Measures the time of a kernel on `threads` threads beyond its tasks, in seconds: from waking the threads until each
/// has a task, and waiting for the last. The first number is for kernels that follow each other at once, the second
/// with a millisecond of rest before each, after which threads sleep; both are medians. There should be a core for each
/// thread: otherwise threads sleep at once and share cores, and both numbers include waking them.
///
/// # Errors
/// Returns an error if the threads cannot be started.
pub fn barrier_seconds(threads: usize) -> io::Result<[f64; 2]> {
    const WARM_UP: usize = 100;
    let pool = Pool::new(threads)?;
    // Without a core for each, who waits must let the others begin.
    let looks = pool.others.as_ref().is_some_and(|others| others.shared.gate.looks());
    let pause: fn() = if looks { std::hint::spin_loop } else { std::thread::yield_now };
    let median = |rounds: usize, rest: Option<Duration>| {
        let mut seconds = Vec::with_capacity(rounds + WARM_UP);
        for _ in 0..rounds + WARM_UP {
            rest.into_iter().for_each(std::thread::sleep);
            // A task ends when all have begun: so each thread has one.
            let begun = AtomicUsize::new(0);
            let start = Instant::now();
            pool.run(threads, &|_, _| {
                begun.fetch_add(1, Ordering::Relaxed);
                while begun.load(Ordering::Relaxed) < threads {
                    pause();
                }
            });
            seconds.push(start.elapsed().as_secs_f64());
        }
        let timed = &mut seconds[WARM_UP..];
        timed.sort_by(f64::total_cmp);
        timed[timed.len() / 2]
    };
    Ok([median(2000, None), median(200, Some(Duration::from_millis(1)))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_is_run_once_however_many_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            for tasks in [0, 1, 2, 100] {
                let sum = AtomicU64::new(0);
                pool.run(tasks, &|task, thread| {
                    assert!(thread < threads);
                    sum.fetch_add(1 << (task % 32), Ordering::Relaxed);
                });
                let expected: u64 = (0..tasks).map(|task| 1 << (task % 32)).sum();
                assert_eq!(sum.into_inner(), expected);
            }
        }
    }

    /// Jobs of all sizes one after the other, with rests in which threads fall asleep or are about to: each job's
    /// writes are its own, and all are visible when it ends.
    #[test]
    fn jobs_follow_each_other_whether_threads_look_or_sleep() {
        for threads in [2, 3, 8, 64] {
            let pool = Pool::new(threads).unwrap();
            let places: Vec<AtomicU64> = (0..200).map(|_| AtomicU64::new(0)).collect();
            for job in 1..1500u64 {
                let tasks = (job as usize * 7) % 200;
                pool.run(tasks, &|task, _| {
                    // Not atomic as a whole: a task that ran twice would be seen.
                    let before = places[task].load(Ordering::Relaxed);
                    places[task].store(before + job, Ordering::Relaxed);
                });
                if job % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(job % 300));
                }
            }
            for (place, sum) in places.iter().enumerate() {
                let expected: u64 = (1..1500u64).filter(|job| (*job as usize * 7) % 200 > place).sum();
                assert_eq!(sum.load(Ordering::Relaxed), expected, "{threads} threads, task {place}");
            }
        }
    }

    #[test]
    fn no_two_tasks_have_one_thread_at_a_time() {
        let pool = Pool::new(4).unwrap();
        let busy: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
        for _ in 0..200 {
            pool.run(33, &|_, thread| {
                assert!(!busy[thread].swap(true, Ordering::AcqRel));
                busy[thread].store(false, Ordering::Release);
            });
        }
    }

    #[test]
    fn a_panic_is_passed_on_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..20 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(50, &|task, _| assert!(task != 31, "task 31 fails on purpose"));
            }));
            assert!(outcome.is_err());
            let ran = AtomicUsize::new(0);
            pool.run(50, &|_, _| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 50);
        }
    }

    #[test]
    fn a_task_cannot_run_others_and_the_pool_goes_on() {
        let log = Arc::new(TaskLog::default());
        log.begin(0);
        for pool in [Pool::new(2).unwrap(), Pool::logged(log)] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(3, &|_, _| pool.run(1, &|_, _| ()));
            }));
            assert!(outcome.is_err());
            let ran = AtomicUsize::new(0);
            pool.run(3, &|_, _| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 3);
        }
    }

    #[test]
    fn more_threads_than_can_be_counted_are_refused() {
        let refused = Pool::new(MOST_THREADS + 1).err().unwrap();
        assert_eq!(refused.to_string(), "1025 threads, more than 1024");
    }
}
