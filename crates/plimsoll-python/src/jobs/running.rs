//! A job that runs on a thread of its own, while the thread that called it handles its events.
//!
//! Callbacks of Python then run on the caller's thread, where notebooks draw and signals arrive, and never inside of a step.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use plimsoll::{Context, Event, StopToken};
use plimsoll_parallel::{Panicked, catch_panic};
use plimsoll_run::CacheFolder;
use serde_json::Value;

use super::{Job, JobFailure};
use crate::Failure;

/// Events that may wait for the caller; a job waits when there are more.
const MOST_WAITING: usize = 256;

/// The result of a job; a panic is kept apart from failures.
type Outcome = Result<Result<String, Failure>, Panicked>;

/// A running job.
pub struct Running {
    thread: JoinHandle<Outcome>,
    events: Receiver<Value>,
    stop: StopToken,
}

/// The events of a job since the last call.
#[derive(Debug, PartialEq)]
pub struct Pending {
    /// The events as JSON, in order. Of the progress of a piece of work, the last.
    pub events: Vec<String>,
    /// `true` if no more follow.
    pub is_ended: bool,
}

impl Running {
    /// Starts a job.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(job: Job, arguments: String, cache: Option<CacheFolder>) -> Result<Running, Failure> {
        let (sender, events) = sync_channel(MOST_WAITING);
        let stop = StopToken::default();
        let asked = stop.clone();
        let run = move || {
            let mut context =
                Context::observed(move |event: &Event<'_>| send(&sender, event)).with_cache(cache);
            context.stop = asked;
            catch_panic(|| job(&arguments, &context))
        };
        let thread = Builder::new().name("plimsoll job".into()).spawn(run).map_err(|error| {
            JobFailure::failed(
                format!("no thread can be started: {error}"),
                Some("end other programs, or raise `ulimit -u`".into()),
            )
        })?;
        Ok(Running { thread, events, stop })
    }

    /// Asks the job to end as soon as its results are saved.
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Waits for events, at most for this time.
    pub fn pending(&mut self, at_most: Duration) -> Pending {
        let first = match self.events.recv_timeout(at_most) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => return Pending { events: Vec::new(), is_ended: false },
            Err(RecvTimeoutError::Disconnected) => return Pending { events: Vec::new(), is_ended: true },
        };
        let waiting: Vec<Value> =
            std::iter::once(first).chain(self.events.try_iter().take(MOST_WAITING)).collect();
        let mut advanced = BTreeSet::new();
        let is_last = |event: &Value| match (event["event"].as_str(), event["work"].as_u64()) {
            (Some("advanced"), Some(work)) => advanced.insert(work),
            _ => true,
        };
        let mut events: Vec<Value> = waiting.into_iter().rev().filter(is_last).collect();
        events.reverse();
        Pending { events: events.iter().map(Value::to_string).collect(), is_ended: false }
    }

    /// Waits for the end of the job, whose events are all handled.
    ///
    /// # Errors
    /// Returns [`Panicked`] if the job panicked.
    pub fn finish(self) -> Outcome {
        // A job that still waits for room would never end.
        drop(self.events);
        self.thread.join().map_err(|_| Panicked)?
    }
}

/// Sends an event to the caller. If it is gone, nobody handles events.
fn send(sender: &SyncSender<Value>, event: &Event<'_>) {
    if let Some(event) = super::events::written(event) {
        let _ = sender.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// All events of a job, and its outcome.
    fn run(job: Job) -> (Vec<Value>, Outcome) {
        let mut running = Running::start(job, "7".into(), None).unwrap();
        let mut events = Vec::new();
        loop {
            let pending = running.pending(LONG);
            events.extend(pending.events.iter().map(|event| serde_json::from_str(event).unwrap()));
            if pending.is_ended {
                return (events, running.finish());
            }
        }
    }

    #[test]
    fn events_arrive_in_order_and_the_result_follows() {
        let job: Job = |arguments, context| {
            context.note("first");
            // More than may wait.
            for number in 0..3 * MOST_WAITING {
                context.warn(format_args!("‹ram={number}MiB›"));
            }
            Ok(format!("{arguments}!"))
        };
        let (events, outcome) = run(job);
        assert_eq!(events.len(), 1 + 3 * MOST_WAITING);
        assert_eq!(events[0], serde_json::json!({ "event": "note", "text": "first" }));
        assert_eq!(events[3]["text"], "ram=\"2MiB\"");
        assert_eq!(outcome, Ok(Ok("7!".into())));
    }

    #[test]
    fn a_slow_caller_sees_the_last_progress_of_each_work() {
        let job: Job = |_, context| {
            let progress = context.work("reading", 3);
            (1..=3).for_each(|done| progress.set(done, String::new()));
            Ok(String::new())
        };
        let mut running = Running::start(job, String::new(), None).unwrap();
        while !running.thread.is_finished() {
            std::thread::yield_now();
        }
        let pending = running.pending(LONG);
        let names: Vec<String> = pending
            .events
            .iter()
            .map(|event| {
                let event: Value = serde_json::from_str(event).unwrap();
                format!("{} {}", event["event"].as_str().unwrap(), event["done"])
            })
            .collect();
        assert_eq!(names, ["began 0", "advanced 3", "ended 0"]);
    }

    #[test]
    fn a_stopped_job_ends_although_no_one_reads_its_events() {
        let job: Job = |_, context| {
            while !context.stop.is_asked() {
                context.note("working");
            }
            (0..2 * MOST_WAITING).for_each(|_| context.note("saving"));
            Ok("saved".into())
        };
        let mut running = Running::start(job, String::new(), None).unwrap();
        assert!(!running.pending(LONG).is_ended);
        running.stop();
        assert_eq!(running.finish(), Ok(Ok("saved".into())));
    }

    #[test]
    fn a_panic_is_no_result() {
        let job: Job = |_, _| panic!("a fault");
        assert_eq!(run(job), (Vec::new(), Err(Panicked)));
    }
}
