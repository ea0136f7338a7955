//! Prepared images, kept in 8 bits within a budget, shared by all threads.
//!
//! Nothing is evicted. Each image is used once an epoch, in another order each time; what was used longest ago is then no
//! likelier to be the last one needed than any other, and a cache that evicts by use misses almost always as soon as it is a
//! little too small. One that keeps what came first serves the share of requests that it has room for. It affects the speed of
//! a sample, never its contents.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

/// Prepared images of the cases of a data set, all made by one pipeline.
#[derive(Debug)]
pub struct PreparedCache {
    budget: Budget,
    cases: Box<[OnceLock<CachedImage>]>,
    _index: Reservation,
    /// In bytes; at most the budget.
    limit: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct CachedImage {
    samples: Box<[u8]>,
    _reservation: Reservation,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedStatistics {
    /// Requests that found the image.
    pub hits: u64,
    /// Requests that did not.
    pub misses: u64,
    /// Images that are kept.
    pub kept: usize,
    /// Bytes held now.
    pub now: Bytes,
    /// The most that may be held.
    pub limit: Bytes,
}

impl PreparedCache {
    /// The bytes of the list of `cases` images.
    pub fn list_bytes(cases: usize) -> Bytes {
        Bytes::from_len(cases.saturating_mul(size_of::<OnceLock<CachedImage>>()))
    }

    /// A cache for `cases` images that holds at most `budget`, which nothing else should use. Its list, which it has whether or
    /// not there is room for an image, is reserved from `of_run`.
    ///
    /// # Errors
    /// If the budget of the run has no room for the list of images.
    pub fn new(budget: Budget, cases: usize, of_run: &Budget) -> Result<PreparedCache, OverBudget> {
        let index = of_run.reserve("list of prepared images", PreparedCache::list_bytes(cases))?;
        let cases = (0..cases).map(|_| OnceLock::new()).collect();
        let limit = AtomicU64::new(budget.limit().0);
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(PreparedCache { budget, cases, _index: index, limit, hits, misses })
    }

    /// The image of a case, if it is kept.
    pub fn get(&self, case: usize) -> Option<&[u8]> {
        let found = self.cases.get(case).and_then(OnceLock::get);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found.map(|held| &*held.samples)
    }

    /// Keeps the image of a case if there is room, and none is kept of it yet.
    pub fn insert(&self, case: usize, samples: &[u8]) {
        let Some(place) = self.cases.get(case) else { return };
        let held = self.budget.used() + Bytes::from_len(samples.len());
        if place.get().is_some() || held.0 > self.limit.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(reservation) = self.budget.reserve("prepared images", Bytes::from_len(samples.len())) {
            // If another thread was faster, this copy and its reservation are dropped again.
            let _ = place.set(CachedImage { samples: samples.into(), _reservation: reservation });
        }
    }

    /// Keeps nothing more once `bytes` are held; what is kept stays.
    pub fn limit_to(&self, bytes: Bytes) {
        self.limit.store(bytes.min(self.budget.limit()).0, Ordering::Relaxed);
    }

    /// The counters so far.
    pub fn statistics(&self) -> PreparedStatistics {
        PreparedStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            kept: self.cases.iter().filter(|case| case.get().is_some()).count(),
            now: self.budget.used(),
            limit: Bytes(self.limit.load(Ordering::Relaxed)),
        }
    }
}
