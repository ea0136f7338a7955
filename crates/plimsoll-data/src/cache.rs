//! Decoded volumes, shared by all threads, within a budget.
//!
//! A volume is kept in its stored type until another needs the space; the least recently used one is evicted first, but
//! never one that is in use. With access points, volumes are not evicted for one whose regions cost little in its file. A volume that
//! does not fit is not cached: its regions are read from the file. The cache therefore affects the speed of a patch, never its contents.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Content, Geometry, IndexFolder, StoredVolume, VolumeError, VolumeFile};
use serde::Serialize;

use crate::Case;

/// Decoded volumes within a budget.
pub struct VolumeCache {
    budget: Budget,
    /// The budget for decoding the pictures of one case.
    decoding: Budget,
    state: Mutex<CacheState>,
    /// Signals that a volume was read, or could not be.
    settled: Condvar,
    /// Beside which file compressed images are decompressed that it has no room for.
    spills_beside: Option<PathBuf>,
    /// The folder of access points of compressed images that the cache has no room for.
    indexes: Option<IndexFolder>,
}

#[derive(Default)]
struct CacheState {
    entries: HashMap<PathBuf, Entry>,
    /// The known facts about each file, so that one that does not fit is not opened again to find out.
    known: HashMap<PathBuf, Known>,
    /// Incremented with every request.
    clock: u64,
    limit: Bytes,
    hits: u64,
    misses: u64,
    bypasses: u64,
    evictions: u64,
}

/// The known facts about a file.
#[derive(Clone, Copy)]
struct Known {
    /// The bytes that its volume reserves.
    size: Bytes,
    /// `true` if reading a region of the file costs little more than its bytes, with access points if it is
    /// compressed.
    has_cheap_regions: bool,
    /// Its grid.
    geometry: Geometry,
}

enum Entry {
    /// A thread is reading it.
    Loading,
    Ready {
        volume: Arc<StoredVolume>,
        last_used: u64,
    },
}

/// Counters of a cache, and the bytes it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStatistics {
    /// Requests that found the volume in memory, or another thread reading it.
    pub hits: u64,
    /// Requests that read the volume.
    pub misses: u64,
    /// Requests without room for the volume, so that regions were read from the file.
    pub bypasses: u64,
    /// Volumes that were evicted.
    pub evictions: u64,
    /// Held now.
    pub now: Bytes,
    /// The largest amount ever held.
    pub peak: Bytes,
    /// The largest amount that may be held.
    pub limit: Bytes,
}

/// The way in which a request is served.
enum Turn {
    Use(Arc<StoredVolume>),
    /// Read the volume within this part of the budget.
    Read(Budget),
    Bypass,
}

impl VolumeCache {
    /// A cache that holds at most `budget`, which nothing else should use.
    pub fn new(budget: Budget) -> VolumeCache {
        let state = CacheState { limit: budget.limit(), ..CacheState::default() };
        let decoding = Budget::new(Bytes::ZERO);
        VolumeCache {
            budget,
            decoding,
            state: Mutex::new(state),
            settled: Condvar::new(),
            spills_beside: None,
            indexes: None,
        }
    }

    /// With room in which pictures are decoded, one case at a time: at least
    /// [`decoding_bytes`](crate::CaseFingerprint::decoding_bytes) of the case that takes the most.
    pub fn decoding_within(self, decoding: Budget) -> VolumeCache {
        VolumeCache { decoding, ..self }
    }

    /// Compressed images that it has no room for are decompressed into files without a name beside this one, so that each region of them
    /// is not decompressed again from the beginning.
    pub fn spilling_beside(self, path: &Path) -> VolumeCache {
        VolumeCache { spills_beside: Some(path.into()), ..self }
    }

    /// Regions of compressed images that it has no room for are read from access points, which are kept in this folder, and found there
    /// if they are not known yet. Volumes are then not evicted for others whose regions cost little.
    pub fn indexed_in(self, folder: IndexFolder) -> VolumeCache {
        VolumeCache { indexes: Some(folder), ..self }
    }

    /// The folder of access points.
    pub(crate) fn indexes(&self) -> Option<&IndexFolder> {
        self.indexes.as_ref()
    }

    /// The folder for decompressed copies of images that the cache has no room for.
    pub(crate) fn spills_beside(&self) -> Option<&Path> {
        self.spills_beside.as_deref()
    }

    /// The room in which the files of the case of `path` are decoded, once no other case uses it.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn decoding_room(&self, path: &Path) -> Result<Budget, VolumeError> {
        match self.decoding.reserve_in_turn("decoding of pictures", self.decoding.limit()) {
            Ok(room) => Ok(room.into_budget()),
            Err(problem) => Err(VolumeError::Memory { path: path.into(), problem: Box::new(problem.into()) }),
        }
    }

    /// Notes that no access points of a file are known after a search for them, as where they cannot be stored.
    pub(crate) fn has_no_points(&self, path: &Path) {
        if let Some(known) = self.lock().known.get_mut(path) {
            known.has_cheap_regions = false;
        }
    }

    /// The whole volume of a file, read if it is not cached. `None` if it is larger than the cache, or the volumes that
    /// would have to be evicted are in use: the caller then reads regions from the file. Threads that request the same
    /// volume wait while one of them reads it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn get(&self, path: &Path) -> Result<Option<Arc<StoredVolume>>, VolumeError> {
        self.get_unless(path, Content::Intensities, &self.decoding, &AtomicBool::new(false))
    }

    /// Returns the volume of a file as [`get`](Self::get) does, decoded as `content`. Once `stop` is set,
    /// reading ends early and returns no volume. A picture is decoded within `room`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn get_unless(
        &self,
        path: &Path,
        content: Content,
        room: &Budget,
        stop: &AtomicBool,
    ) -> Result<Option<Arc<StoredVolume>>, VolumeError> {
        let known = self.known(path, content)?;
        let part = match self.turn(path, known) {
            Turn::Use(volume) => return Ok(Some(volume)),
            Turn::Bypass => return Ok(None),
            Turn::Read(part) => part,
        };
        let reading = Reading { cache: self, path };
        let read = StoredVolume::read_unless(path, content, &part, "volumes", room, stop);
        let mut state = self.lock();
        let result = read.map(|volume| {
            let volume = Arc::new(volume?);
            let last_used = state.tick();
            state.entries.insert(path.into(), Entry::Ready { volume: Arc::clone(&volume), last_used });
            Some(volume)
        });
        drop(state);
        // If the read failed, this lets other threads try.
        drop(reading);
        result
    }

    /// Reads the images and labels of a case that are not there, as long as that evicts nothing. `false` if there was no room for all of them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn fill(&self, case: &Case, stop: &AtomicBool) -> Result<bool, VolumeError> {
        let Some(first) = case.files().next() else { return Ok(true) };
        let room = self.decoding_room(first)?;
        let files = case.image_files().map(|path| (path, Content::Intensities));
        let on = Some(self.known(first, Content::Intensities)?.geometry);
        let label = case.label.as_deref().map(|path| (path, Content::Segments { on }));
        for (path, content) in files.chain(label) {
            let Known { size, .. } = self.known(path, content)?;
            let state = self.lock();
            let is_there = state.entries.contains_key(path);
            let has_room = self.budget.used() + size <= state.limit;
            drop(state);
            if is_there {
                continue;
            }
            if !has_room || self.get_unless(path, content, &room, stop)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Limits the cache to `bytes` (and the budget) from now on, and evicts volumes that are not in use until it is
    /// below. Returns the bytes still held: volumes in use are kept.
    pub fn shrink_to(&self, bytes: Bytes) -> Bytes {
        let mut state = self.lock();
        state.limit = bytes.min(self.budget.limit());
        while self.budget.used() > state.limit && state.evict() {}
        self.budget.used()
    }

    /// The counters so far, and the bytes held.
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

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // The state is consistent between any two statements that can panic, so a poisoned lock can still be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, path: &Path, content: Content) -> Result<Known, VolumeError> {
        if let Some(known) = self.lock().known.get(path) {
            return Ok(*known);
        }
        let file = VolumeFile::open_as(path, content)?;
        // A volume that cannot be addressed does not fit either.
        let size = StoredVolume::reserves(file.stored_bytes()).unwrap_or(Bytes(u64::MAX));
        let known = Known { size, has_cheap_regions: file.has_cheap_regions(), geometry: *file.geometry() };
        self.lock().known.insert(path.into(), known);
        Ok(known)
    }

    fn turn(&self, path: &Path, known: Known) -> Turn {
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
                None => return self.make_room(&mut state, path, known),
            }
        }
    }

    fn make_room(&self, state: &mut CacheState, path: &Path, known: Known) -> Turn {
        let Known { size, has_cheap_regions, .. } = known;
        let idle = state.entries.values().filter_map(Entry::idle_bytes).sum::<Bytes>();
        // Of cases that are drawn at random, those that are here are as likely to be next as those that are not. So where regions cost
        // little in the file, decoding one whole volume after the other would cost time and find no more of them.
        let stays = self.indexes.is_some() && has_cheap_regions && self.budget.used() + size > state.limit;
        // Evict nothing if it would not be enough.
        if stays || self.budget.used() - idle + size > state.limit {
            state.bypasses += 1;
            return Turn::Bypass;
        }
        while self.budget.used() + size > state.limit && state.evict() {}
        // A part of its own: the volume cannot exceed the size it was announced with, and its bytes are held until its
        // last user drops it.
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

impl CacheState {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Evicts the least recently used volume that is not in use. Returns whether there was one.
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
    /// The bytes that evicting this would free; `None` if it is in use.
    fn idle_bytes(&self) -> Option<Bytes> {
        match self {
            // A count of one can only grow under the lock.
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

/// Guards the read of a volume: even if the reading thread panics, waiting threads are woken.
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
