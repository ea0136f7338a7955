//! The thread that plans and predicts. It works on one request at a time, so that the plan of a prediction bounds the process.
//!
//! A request has two turns. It is planned before any prediction that waits, so that a client soon knows whether the limit has room; then it is
//! predicted after those that were accepted before it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use plimsoll::StopToken;
use tokio::sync::oneshot;

use crate::shares::WORKER_STACK;

/// The order in which a task is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    /// Before all predictions that wait: a plan.
    First,
    /// After those that were submitted before: a prediction, with its predicted duration.
    InOrder {
        /// The predicted duration.
        seconds: f64,
    },
}

struct Task {
    stop: StopToken,
    seconds: f64,
    work: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct State {
    plans: VecDeque<Task>,
    predictions: VecDeque<Task>,
    /// The stop token and the predicted seconds of the task that runs.
    running: Option<(StopToken, f64)>,
    is_closing: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Tasks run without the lock: whoever panicked has left the queues as they were.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread, and the tasks that wait for it. Dropping it ends the thread after the task that runs, which is asked to stop.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Worker> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let builder = thread::Builder::new().name("predictions".into()).stack_size(WORKER_STACK);
        let thread = Some(builder.spawn(move || work(&own))?);
        Ok(Worker { shared, thread })
    }

    /// Queues work. The receiver fails if the work is cancelled before it begins, panics, or the service ends.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        turn: Turn,
        stop: &StopToken,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let work = Box::new(move || {
            // A client that is gone receives nothing.
            let _ = sender.send(work());
        });
        let mut state = self.shared.lock();
        if state.is_closing {
            return receiver;
        }
        match turn {
            Turn::First => state.plans.push_back(Task { stop: stop.clone(), seconds: 0.0, work }),
            Turn::InOrder { seconds } => {
                state.predictions.push_back(Task { stop: stop.clone(), seconds, work });
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        receiver
    }

    /// Drops the tasks that were asked to stop before they began, with their folders.
    pub(crate) fn drop_cancelled(&self) {
        let mut dropped = Vec::new();
        let mut state = self.shared.lock();
        let State { plans, predictions, .. } = &mut *state;
        for queue in [plans, predictions] {
            let (left, gone) = std::mem::take(queue).into_iter().partition(|task| !task.stop.is_asked());
            *queue = left;
            dropped.push(gone);
        }
        drop(state);
        let _: Vec<VecDeque<Task>> = dropped;
    }

    /// The predicted seconds of all predictions that run or wait.
    pub(crate) fn seconds_ahead(&self) -> f64 {
        let state = self.shared.lock();
        let running = state.running.as_ref().map(|(_, seconds)| *seconds).into_iter();
        running.chain(state.predictions.iter().map(|task| task.seconds)).fold(0.0, |all, one| all + one)
    }

    /// Tasks that wait.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.shared.lock();
        state.plans.len() + state.predictions.len()
    }

    /// Returns `true` if the service is ending.
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.lock().is_closing
    }

    /// Waits for the task that runs, with all that it holds, after [`close`](Worker::close).
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.shared.lock();
        while state.running.is_some() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Drops all tasks that wait, and asks the one that runs to stop. Nothing is accepted from now on.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closing = true;
        let dropped = (std::mem::take(&mut state.plans), std::mem::take(&mut state.predictions));
        if let Some((stop, _)) = &state.running {
            stop.ask();
        }
        drop(state);
        drop(dropped);
        self.shared.changed.notify_all();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
        // A task that holds the service may be the last to drop it, on this very thread.
        let is_own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !is_own(thread)) {
            // It catches panics of tasks, and has none of its own.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let task = loop {
            if state.is_closing {
                return;
            }
            if let Some(task) = state.plans.pop_front().or_else(|| state.predictions.pop_front()) {
                break task;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let Task { stop, seconds, work } = task;
        state.running = Some((stop.clone(), seconds));
        drop(state);
        if !stop.is_asked() {
            // A fault in one request is no reason to end the others: its receiver fails.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
        shared.lock().running = None;
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A worker whose first task waits until the sender is dropped.
    fn held() -> (Worker, mpsc::Sender<()>, oneshot::Receiver<()>) {
        let worker = Worker::start().unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let first = worker.submit(Turn::InOrder { seconds: 3.0 }, &StopToken::default(), move || {
            begun.send(()).unwrap();
            let _ = held.recv();
        });
        has_begun.recv().unwrap();
        (worker, hold, first)
    }

    #[test]
    fn plans_come_before_predictions_that_wait() {
        let (worker, hold, _first) = held();
        let order = Arc::new(Mutex::new(Vec::new()));
        let submit = |turn, name: &'static str| {
            let order = Arc::clone(&order);
            worker.submit(turn, &StopToken::default(), move || order.lock().unwrap().push(name))
        };
        let one = submit(Turn::InOrder { seconds: 1.0 }, "one");
        let two = submit(Turn::InOrder { seconds: 2.0 }, "two");
        let plan = submit(Turn::First, "plan");
        assert_eq!((worker.seconds_ahead(), worker.waiting()), (6.0, 3));
        drop(hold);
        for receiver in [one, two, plan] {
            receiver.blocking_recv().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["plan", "one", "two"]);
    }

    #[test]
    fn a_cancelled_task_never_begins_and_a_panic_ends_only_its_own() {
        let (worker, hold, first) = held();
        let cancelled = StopToken::default();
        let never = worker.submit(Turn::First, &cancelled, || panic!("it was cancelled"));
        cancelled.ask();
        worker.drop_cancelled();
        assert!(never.blocking_recv().is_err());
        let fails = worker.submit(Turn::First, &StopToken::default(), || panic!("a fault on purpose"));
        let after = worker.submit(Turn::First, &StopToken::default(), || 7);
        drop(hold);
        first.blocking_recv().unwrap();
        assert!(fails.blocking_recv().is_err());
        assert_eq!(after.blocking_recv(), Ok(7));
    }

    #[test]
    fn closing_stops_the_task_that_runs_and_drops_the_others() {
        let worker = Worker::start().unwrap();
        let stop = StopToken::default();
        let own = stop.clone();
        let (begun, has_begun) = mpsc::channel();
        let running = worker.submit(Turn::First, &stop, move || {
            begun.send(()).unwrap();
            while !own.is_asked() {
                thread::yield_now();
            }
        });
        has_begun.recv().unwrap();
        let waiting = worker.submit(Turn::First, &StopToken::default(), || ());
        worker.close();
        assert!(waiting.blocking_recv().is_err());
        running.blocking_recv().unwrap();
        assert!(worker.submit(Turn::First, &StopToken::default(), || ()).blocking_recv().is_err());
    }
}
