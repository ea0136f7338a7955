//! Threads that run the tasks of one kernel after another.
//!
//! Which thread takes which task is not fixed; what a task computes must not depend on it. Nothing is allocated after
//! the threads are started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use plimsoll_memory::watch_this_thread;

/// A function of (task, thread) behind a pointer.
#[derive(Clone, Copy)]
struct Job {
    /// May be called with `data`, until [`Pool::run`] returns.
    call: unsafe fn(*const (), usize, usize),
    data: *const (),
    tasks: usize,
}

// SAFETY: what `data` points to is `Sync` (`Pool::run` asks for it) and outlives the job (`Pool::run` waits for its end).
unsafe impl Send for Job {}

#[derive(Default)]
struct State {
    job: Option<Job>,
    /// Counts jobs, so that a thread takes each once.
    generation: u64,
    /// Threads still at work on the current job.
    busy: usize,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    started: Condvar,
    finished: Condvar,
    next_task: AtomicUsize,
    panicked: AtomicBool,
    /// Whether a job is under way. There is room for one.
    running: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes tasks until none is left.
    fn work(&self, job: Job, thread: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next_task.fetch_add(1, Ordering::Relaxed);
                if task >= job.tasks {
                    return;
                }
                // SAFETY: `data` is what `call` takes, and lives until `Pool::run` returns, which waits for this thread.
                unsafe { (job.call)(job.data, task, thread) };
            }
        }));
        if outcome.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// A fixed number of threads, the caller's among them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Kernels keep what is large in planned scratch, so their threads need little stack.
pub(crate) const STACK_BYTES: usize = 512 << 10;

impl Pool {
    /// Starts `threads − 1` threads in addition to the caller's.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared::default());
        let mut pool = Pool { shared, threads: Vec::new() };
        for thread in 1..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let handle = std::thread::Builder::new()
                .name(format!("kernel-{thread}"))
                .stack_size(STACK_BYTES)
                .spawn(move || serve(&shared, thread))?;
            pool.threads.push(handle);
        }
        Ok(pool)
    }

    /// Calls `f(task, thread)` for every task, and returns when all are done. No two calls at a time have the same thread,
    /// which is below the number of threads.
    ///
    /// # Panics
    /// If a task panics, or the pool is running already: tasks must not run others, nor two threads share a pool.
    pub(crate) fn run<F: Fn(usize, usize) + Sync>(&self, tasks: usize, f: &F) {
        /// # Safety
        /// `data` points to an `F` that lives until the call returns.
        unsafe fn call<F: Fn(usize, usize)>(data: *const (), task: usize, thread: usize) {
            // SAFETY: `data` points to an `F`, as this function's contract says.
            let f = unsafe { &*data.cast::<F>() };
            f(task, thread);
        }
        let job = Job { call: call::<F>, data: std::ptr::from_ref(f).cast(), tasks };
        let shared = &*self.shared;
        // A second job would take the first one's place while threads are still at work on that.
        assert!(!shared.running.swap(true, Ordering::Acquire), "a pool runs one kernel at a time");
        shared.next_task.store(0, Ordering::Relaxed);
        let helpers = self.threads.len().min(tasks.saturating_sub(1));
        if helpers > 0 {
            let mut state = shared.lock();
            state.job = Some(job);
            state.generation += 1;
            state.busy = self.threads.len();
            drop(state);
            shared.started.notify_all();
        }
        shared.work(job, 0);
        if helpers > 0 {
            let mut state = shared.lock();
            while state.busy > 0 {
                state = shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.job = None;
        }
        shared.running.store(false, Ordering::Release);
        assert!(!shared.panicked.swap(false, Ordering::Relaxed), "a kernel panicked on another thread");
    }
}

/// What a thread does until the pool is dropped.
fn serve(shared: &Shared, thread: usize) {
    // Kernels allocate nothing; if one did, it would count.
    let _watch = watch_this_thread();
    let mut done = 0;
    loop {
        let mut state = shared.lock();
        while state.generation == done && !state.stop {
            state = shared.started.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            return;
        }
        done = state.generation;
        let job = state.job;
        drop(state);
        if let Some(job) = job {
            shared.work(job, thread);
        }
        let mut state = shared.lock();
        state.busy -= 1;
        if state.busy == 0 {
            shared.finished.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.started.notify_all();
        for thread in self.threads.drain(..) {
            // A panic on that thread was reported by the run that it happened in.
            let _ = thread.join();
        }
    }
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
}
