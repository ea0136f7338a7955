//! The output of planes of labels: directly into their sink, or through a queue from which a separate thread writes them and compresses them
//! if necessary.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::error::{InferError, internal};
use crate::labels::label_sink::LabelSink;

/// The stack of the thread that writes: buffers are on the heap.
const STACK: usize = 256 << 10;

/// The most that planes of a queue take.
const MOST: Bytes = Bytes::mib(32);

/// The most planes of a queue: of small planes more would only be allocated one by one.
const MOST_PLANES: usize = 64;

/// The least planes of a queue: one is written while the other is filled.
const LEAST_PLANES: usize = 2;

/// A sink that another thread can fill.
type Sink<'scope> = &'scope mut (dyn LabelSink + Send);

/// Labels on their way to a sink.
pub(crate) enum LabelOutput<'scope> {
    Direct(Sink<'scope>),
    Queued(Queue<'scope>),
}

/// Planes that wait for being written.
pub(crate) struct Queue<'scope> {
    full: SyncSender<Message>,
    empty: Receiver<Mapped<u8>>,
    writer: ScopedJoinHandle<'scope, Result<(), InferError>>,
}

enum Message {
    Plane(Mapped<u8>),
    /// All planes were sent.
    Finish,
}

/// Bytes of the queue that is wanted for a file of so many planes of so many bytes, and of the least that is of use.
///
/// # Errors
/// Returns an error if a plane does not fit the address space.
pub(crate) fn queue_bytes(planes: usize, plane: usize) -> Result<[Bytes; 2], MapError> {
    let of_plane = Mapped::<u8>::bytes(plane)?.0.max(1);
    let within_most = usize::try_from(MOST.0 / of_plane).unwrap_or(usize::MAX);
    let wanted = planes.min(within_most).clamp(LEAST_PLANES, MOST_PLANES);
    Ok([wanted, LEAST_PLANES]
        .map(|planes| Bytes(of_plane.saturating_mul(planes as u64)) + Bytes::from_len(STACK)))
}

impl<'scope> LabelOutput<'scope> {
    /// Labels that go to a sink in planes of so many bytes, by a queue within `bytes` if that is room for one.
    ///
    /// # Errors
    /// Returns an error if the budget does not have these bytes.
    pub(crate) fn start(
        writer: Sink<'scope>,
        plane: usize,
        bytes: Bytes,
        budget: &Budget,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<LabelOutput<'scope>, MapError> {
        let of_plane = Mapped::<u8>::bytes(plane)?;
        let planes =
            usize::try_from((bytes - Bytes::from_len(STACK)).0 / of_plane.0.max(1)).unwrap_or(usize::MAX);
        if planes < LEAST_PLANES {
            return Ok(LabelOutput::Direct(writer));
        }
        let memory = budget.part("labels to be written", bytes)?;
        let stack = memory.reserve("stack", Bytes::from_len(STACK))?;
        // No more than there are planes, and one message that there are no more.
        let (full, waiting) = sync_channel(planes + 1);
        let (free, empty) = sync_channel(planes);
        for _ in 0..planes {
            // The receiver is here, and has room for all.
            let _ = free.send(Mapped::zeroed(&memory, "labels to be written", plane)?);
        }
        // The writer comes by a channel, so that it is still here if the system refuses a thread.
        let (hand_over, handed) = sync_channel::<Sink<'scope>>(1);
        let work = move || {
            let _stack = stack;
            // Without a writer there is nothing to do.
            let Ok(writer) = handed.recv() else { return Ok(()) };
            for message in &waiting {
                match message {
                    Message::Plane(plane) => {
                        writer.write_planes(&plane)?;
                        // Where nobody waits for it any more, it is not needed.
                        let _ = free.send(plane);
                    }
                    Message::Finish => return writer.finish(),
                }
            }
            // The case was given up: the file never gets its name.
            Ok(())
        };
        let thread = thread::Builder::new().name("labels".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, work) {
            Err(_) => Ok(LabelOutput::Direct(writer)),
            Ok(thread) => match hand_over.send(writer) {
                Ok(()) => Ok(LabelOutput::Queued(Queue { full, empty, writer: thread })),
                Err(refused) => Ok(LabelOutput::Direct(refused.0)),
            },
        }
    }

    /// Takes the next plane, once there is room for it.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub(crate) fn write_plane(&mut self, labels: &[u8]) -> Result<(), InferError> {
        match self {
            LabelOutput::Direct(writer) => writer.write_planes(labels),
            LabelOutput::Queued(queue) => {
                // A writer that has ended says why when it is finished.
                let Ok(mut plane) = queue.empty.recv() else { return Err(internal(ENDED)) };
                plane.copy_from_slice(labels);
                queue.full.send(Message::Plane(plane)).map_err(|_| internal(ENDED))
            }
        }
    }

    /// Waits until the file is complete and has its name.
    ///
    /// # Errors
    /// Returns an error if the disk fails, or planes are missing.
    pub(crate) fn finish(self) -> Result<(), InferError> {
        match self {
            LabelOutput::Direct(writer) => writer.finish(),
            LabelOutput::Queued(queue) => {
                let told = queue.full.send(Message::Finish);
                drop(queue.full);
                match queue.writer.join() {
                    Ok(Ok(())) => told.map_err(|_| internal(ENDED)),
                    Ok(Err(error)) => Err(error),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
    }

    /// Why the writer has ended before all planes were there; `error` if it has not.
    pub(crate) fn cause_of(self, error: InferError) -> InferError {
        let LabelOutput::Queued(queue) = self else { return error };
        drop(queue.full);
        match queue.writer.join() {
            Ok(Ok(())) => error,
            Ok(Err(cause)) => cause,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

const ENDED: &str = "the thread that writes labels has ended";
