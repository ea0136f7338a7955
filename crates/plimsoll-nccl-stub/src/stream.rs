//! Streams: threads that do work in order.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    has_ended: bool,
}

/// A stream. The library that tests load and the tests themselves are compiled from this source, so both know its layout.
pub(crate) struct Stream {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    pub(crate) fn new() -> Stream {
        let queue = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let own = Arc::clone(&queue);
        let run = move || {
            let (queue, changed) = &*own;
            loop {
                let mut locked = queue.lock().unwrap();
                let task = loop {
                    match locked.tasks.pop_front() {
                        Some(task) => break task,
                        None if locked.has_ended => return,
                        None => locked = changed.wait(locked).unwrap(),
                    }
                };
                drop(locked);
                task();
            }
        };
        Stream { queue, thread: Some(thread::spawn(run)) }
    }

    /// A function that adds work behind all that was added before.
    pub(crate) fn adder(&self) -> impl Fn(Task) + Send + use<> {
        let queue = Arc::clone(&self.queue);
        move |task| {
            queue.0.lock().unwrap().tasks.push_back(task);
            queue.1.notify_all();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.0.lock().unwrap().has_ended = true;
        self.queue.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
