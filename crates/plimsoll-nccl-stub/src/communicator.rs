//! Communicators of two ranks, whose messages are files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const INVALID_USAGE: i32 = 5;
pub(crate) const REMOTE_ERROR: i32 = 6;
pub(crate) const IN_PROGRESS: i32 = 7;

/// The time between looks at a file.
const PAUSE: Duration = Duration::from_micros(50);

/// Communicators that are neither destroyed nor aborted.
pub(crate) static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// One end of a communicator.
pub(crate) struct Comm {
    folder: PathBuf,
    place: i32,
    state: AtomicI32,
    messages: AtomicU64,
    is_aborted: AtomicBool,
}

impl Comm {
    pub(crate) fn new(folder: PathBuf, place: i32) -> Comm {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Comm {
            folder,
            place,
            state: AtomicI32::new(IN_PROGRESS),
            messages: AtomicU64::new(0),
            is_aborted: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> i32 {
        self.state.load(Ordering::SeqCst)
    }

    pub(crate) fn set_state(&self, state: i32) {
        self.state.store(state, Ordering::SeqCst);
    }

    /// The number of the next message.
    pub(crate) fn count(&self) -> u64 {
        self.messages.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn remove_folder(&self) {
        if self.place == 1 {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// Waits until both ends are here.
    pub(crate) fn join(self: &Arc<Comm>) {
        let comm = Arc::clone(self);
        thread::spawn(move || {
            let joined = |place: i32| comm.folder.join(format!("joined {place}"));
            let has_joined = fs::write(joined(comm.place), []).is_ok();
            if has_joined && comm.wait_for(&joined(1 - comm.place), true) {
                comm.set_state(SUCCESS);
            }
        });
    }

    /// Waits until a file exists or does not. Returns `false` if the communicator is aborted before.
    fn wait_for(&self, file: &Path, exists: bool) -> bool {
        while file.exists() != exists {
            if self.is_aborted.load(Ordering::SeqCst) {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    fn message(&self, number: u64) -> PathBuf {
        self.folder.join(format!("message {number}"))
    }

    /// Sends a message, and waits until it is received.
    pub(crate) fn send(&self, number: u64, bytes: &[u8]) {
        let (unfinished, message) = (self.folder.join("unfinished"), self.message(number));
        let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &message));
        match written {
            Ok(()) => drop(self.wait_for(&message, false)),
            // The other end has removed the folder.
            Err(_) => self.set_state(REMOTE_ERROR),
        }
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, number: u64, bytes: &mut [u8]) {
        let message = self.message(number);
        if self.wait_for(&message, true) {
            match fs::read(&message) {
                Ok(found) if found.len() == bytes.len() => bytes.copy_from_slice(&found),
                Ok(_) | Err(_) => self.set_state(INVALID_USAGE),
            }
            let _ = fs::remove_file(&message);
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}
