//! The time that each task of each launch takes on one thread, and from that the time of launches on many.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_memory::thread_time;

use super::schedule::makespan;

/// The time of one launch: the least of all runs for each of its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchTasks {
    /// Seconds outside of tasks, which one thread spends however many there are; infinite before the first run.
    pub serial: f64,
    /// The seconds of each task of each kernel, in order.
    pub kernels: Vec<Vec<f64>>,
}

impl LaunchTasks {
    /// Seconds on one thread.
    pub fn seconds(&self) -> f64 {
        self.serial + self.kernels.iter().flatten().sum::<f64>()
    }

    /// Seconds on `threads` threads, if tasks take as long there: kernels one after the other, of each the tasks as the pool
    /// would hand them out, and a `barrier` (seconds) for each that more than one thread works on.
    pub fn seconds_on(&self, threads: usize, barrier: f64) -> f64 {
        let kernels = self.kernels.iter().map(|tasks| match threads.min(tasks.len()) {
            0 | 1 => tasks.iter().sum::<f64>(),
            _ => makespan(tasks, threads) + barrier,
        });
        self.serial + kernels.sum::<f64>()
    }
}

/// The log of an engine: filled as launches run, on one thread.
#[derive(Debug, Default)]
pub struct TaskLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    launches: Vec<LaunchTasks>,
    launch: usize,
    /// Kernels of this launch that have run.
    kernel: usize,
    /// The time it began.
    begun: f64,
    /// Seconds of its tasks so far.
    in_tasks: f64,
}

/// Seconds that this thread has been computing: what others take of the processor meanwhile is not counted.
fn computing() -> f64 {
    thread_time().as_secs_f64()
}

impl TaskLog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks of each launch, in order.
    pub fn launches(&self) -> Vec<LaunchTasks> {
        self.lock().launches.clone()
    }

    /// The launch that runs next.
    pub fn begin(&self, launch: usize) {
        let mut state = self.lock();
        let length = state.launches.len().max(launch + 1);
        state.launches.resize(length, LaunchTasks { serial: f64::INFINITY, kernels: Vec::new() });
        (state.launch, state.kernel, state.in_tasks, state.begun) = (launch, 0, 0.0, computing());
    }

    /// It has ended.
    pub fn end(&self) {
        let mut state = self.lock();
        let (launch, serial) = (state.launch, (computing() - state.begun - state.in_tasks).max(0.0));
        if let Some(launch) = state.launches.get_mut(launch) {
            launch.serial = launch.serial.min(serial);
        }
    }

    /// Runs the tasks of a kernel.
    pub(super) fn kernel(&self, tasks: usize, run: impl Fn(usize)) {
        let mut state = self.lock();
        let State { launches, launch, kernel, in_tasks, .. } = &mut *state;
        // A kernel that no launch was begun for is one of a measurement of its own.
        let Some(launch) = launches.get_mut(*launch) else { return (0..tasks).for_each(run) };
        if launch.kernels.len() <= *kernel {
            launch.kernels.resize(*kernel + 1, vec![f64::INFINITY; tasks]);
        }
        let least = &mut launch.kernels[*kernel];
        least.resize(tasks, f64::INFINITY);
        // One look at the clock for each task: the end of one is the start of the next.
        let mut start = computing();
        for (task, least) in least.iter_mut().enumerate() {
            run(task);
            let end = computing();
            let seconds = end - start;
            *least = least.min(seconds);
            *in_tasks += seconds;
            start = end;
        }
        *kernel += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_logged_by_launch_with_the_least_of_all_runs() {
        let log = TaskLog::default();
        let spin = |micros: u64| {
            let end = computing() + micros as f64 * 1e-6;
            while computing() < end {}
        };
        // The first and the last of five runs are slow. Of the others the least counts: a processor that something interrupts for
        // longer than `over` would have to be so in all three of them.
        let (slow, over) = (10_000, 3e-3);
        for run in 0..5u64 {
            let more = if run.is_multiple_of(4) { slow } else { 0 };
            for launch in 0..2 {
                log.begin(launch);
                for tasks in [3, 1] {
                    log.kernel(tasks, |task| spin(200 * (task as u64 + 1) + more));
                }
                spin(400 + more);
                log.end();
            }
        }
        let launches = log.launches();
        assert_eq!(launches.len(), 2);
        for launch in launches {
            assert_eq!(launch.kernels.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
            let tasks = launch.kernels.iter().flatten().zip([200e-6, 400e-6, 600e-6, 200e-6]);
            for (seconds, least) in tasks.chain([(&launch.serial, 400e-6)]) {
                assert!((0.99 * least..least + over).contains(seconds), "{seconds} is not {least}");
            }
        }
    }

    #[test]
    fn many_threads_share_tasks_and_pay_for_barriers() {
        let launch = LaunchTasks { serial: 1.0, kernels: vec![vec![1.0; 8], vec![2.0]] };
        assert_eq!(launch.seconds(), 11.0);
        assert_eq!(launch.seconds_on(1, 0.5), 11.0);
        assert_eq!(launch.seconds_on(4, 0.5), 1.0 + 2.0 + 0.5 + 2.0);
        assert_eq!(launch.seconds_on(64, 0.5), 1.0 + 1.0 + 0.5 + 2.0);
    }
}
