//! Decoded volumes, shared by all threads, within a budget.
//!
//! A volume is kept in its stored type until others need its place; the one that was longest not asked for goes first, but
//! never one that is in use. What does not fit is not kept: its regions are read from the file. So the cache changes how
//! long a patch takes, never what it is.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile};
use serde::Serialize;

/// Decoded volumes within a budget.
pub struct VolumeCache {
    budget: Budget,
    state: Mutex<State>,
    /// A volume was read, or could not be.
    settled: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<PathBuf, Entry>,
    /// What volumes of each file reserve, so that a file which does not fit is not opened again to find that out.
    sizes: HashMap<PathBuf, Bytes>,
    /// Grows with every request.
    clock: u64,
    limit: Bytes,
    hits: u64,
    misses: u64,
    bypasses: u64,
    evictions: u64,
}

enum Entry {
    /// Some thread is reading it.
    Loading,
    Ready {
        volume: Arc<StoredVolume>,
        last_used: u64,
    },
}

/// What a cache did and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStatistics {
    /// Requests that found the volume in memory, or another thread reading it.
    pub hits: u64,
    /// Requests for which it was read.
    pub misses: u64,
    /// Requests for which there was no room, so that regions were read from the file.
    pub bypasses: u64,
    /// Volumes that were dropped for others.
    pub evictions: u64,
    /// Held now.
    pub now: Bytes,
    /// The most ever held.
    pub peak: Bytes,
    /// The most that may be held.
    pub limit: Bytes,
}

/// What a thread is to do for a volume.
enum Turn {
    Use(Arc<StoredVolume>),
    /// Read it within this part of the budget.
    Read(Budget),
    Bypass,
}

impl VolumeCache {
    /// A cache that holds at most what `budget` does. Nothing else should use that budget.
    pub fn new(budget: Budget) -> VolumeCache {
        let state = State { limit: budget.line(), ..State::default() };
        VolumeCache { budget, state: Mutex::new(state), settled: Condvar::new() }
    }

    /// The whole volume of a file, read if it is not there yet. `None` if it is larger than the cache, or everything else
    /// that would have to go is in use: then read regions from the file. Threads that ask for the same volume wait while
    /// one of them reads it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn get(&self, path: &Path) -> Result<Option<Arc<StoredVolume>>, VolumeError> {
        let size = self.size(path)?;
        let part = match self.turn(path, size) {
            Turn::Use(volume) => return Ok(Some(volume)),
            Turn::Bypass => return Ok(None),
            Turn::Read(part) => part,
        };
        let reading = Reading { cache: self, path };
        let read = StoredVolume::read(path, &part, "volumes");
        let mut state = self.lock();
        let result = read.map(|volume| {
            let volume = Arc::new(volume);
            let last_used = state.tick();
            state.entries.insert(path.into(), Entry::Ready { volume: Arc::clone(&volume), last_used });
            Some(volume)
        });
        drop(state);
        // If it could not be read, others may try.
        drop(reading);
        result
    }

    /// Drops volumes that are not in use until at most `bytes` are held, and holds no more from now on (but never more
    /// than the budget). Returns what is still held: volumes in use stay.
    pub fn shrink_to(&self, bytes: Bytes) -> Bytes {
        let mut state = self.lock();
        state.limit = bytes.min(self.budget.line());
        while self.budget.used() > state.limit && state.evict() {}
        self.budget.used()
    }

    /// What the cache did so far and what it holds.
    pub fn statistics(&self) -> CacheStatistics {
        let state = self.lock();
        CacheStatistics {
            hits: state.hits,
            misses: state.misses,
            bypasses: state.bypasses,
            evictions: state.evictions,
            now: self.budget.used(),
            peak: self.budget.peak(),
            limit: state.limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the volume reserves.
    fn size(&self, path: &Path) -> Result<Bytes, VolumeError> {
        if let Some(size) = self.lock().sizes.get(path) {
            return Ok(*size);
        }
        let stored = VolumeFile::open(path)?.stored_bytes();
        // What cannot be addressed does not fit either.
        let size = StoredVolume::reserves(stored).unwrap_or(Bytes(u64::MAX));
        self.lock().sizes.insert(path.into(), size);
        Ok(size)
    }

    fn turn(&self, path: &Path, size: Bytes) -> Turn {
        let mut state = self.lock();
        loop {
            let now = state.tick();
            match state.entries.get_mut(path) {
                Some(Entry::Ready { volume, last_used }) => {
                    *last_used = now;
                    let volume = Arc::clone(volume);
                    state.hits += 1;
                    return Turn::Use(volume);
                }
                Some(Entry::Loading) => {
                    state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None => return self.make_room(&mut state, path, size),
            }
        }
    }

    fn make_room(&self, state: &mut State, path: &Path, size: Bytes) -> Turn {
        let idle = state.entries.values().filter_map(Entry::idle_bytes).sum::<Bytes>();
        // Nothing is dropped in vain.
        if self.budget.used() - idle + size > state.limit {
            state.bypasses += 1;
            return Turn::Bypass;
        }
        while self.budget.used() + size > state.limit && state.evict() {}
        // A part of its own: the volume cannot turn out larger than it was said to be, and its bytes are held until the
        // last user lets go of it.
        match self.budget.part("volumes", size) {
            Ok(part) => {
                state.misses += 1;
                state.entries.insert(path.into(), Entry::Loading);
                Turn::Read(part)
            }
            Err(_) => {
                state.bypasses += 1;
                Turn::Bypass
            }
        }
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Drops the volume that was longest not asked for, of those not in use. Whether there was one.
    fn evict(&mut self) -> bool {
        let idle = self.entries.iter().filter(|(_, entry)| entry.idle_bytes().is_some());
        let oldest = idle.min_by_key(|(_, entry)| entry.last_used()).map(|(path, _)| path.clone());
        match oldest {
            Some(path) => {
                self.entries.remove(&path);
                self.evictions += 1;
                true
            }
            None => false,
        }
    }
}

impl Entry {
    /// What would be free if this were dropped; `None` if it is in use.
    fn idle_bytes(&self) -> Option<Bytes> {
        match self {
            // Only under the lock can a count of one grow.
            Entry::Ready { volume, .. } if Arc::strong_count(volume) == 1 => Some(volume.reserved()),
            _ => None,
        }
    }

    fn last_used(&self) -> u64 {
        match self {
            Entry::Ready { last_used, .. } => *last_used,
            Entry::Loading => u64::MAX,
        }
    }
}

/// While a thread reads a volume. Whatever happens to the thread, those who wait for it are woken.
struct Reading<'a> {
    cache: &'a VolumeCache,
    path: &'a Path,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if matches!(state.entries.get(self.path), Some(Entry::Loading)) {
            state.entries.remove(self.path);
        }
        self.cache.settled.notify_all();
    }
}

impl fmt::Debug for VolumeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeCache").field("statistics", &self.statistics()).finish()
    }
}
