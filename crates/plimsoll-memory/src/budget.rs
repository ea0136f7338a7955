//! The memory limit, and the ledger of who holds what under it.
//!
//! A [`Budget`] is a memory limit in bytes. Code that allocates in proportion to the data first reserves the bytes
//! under a name, and keeps the [`Reservation`] for as long as the memory. Long-lived memory is reserved with
//! [`Budget::reserve`], which grants or refuses immediately. Short-lived tasks, of which many may run at a time,
//! reserve with [`Budget::reserve_in_turn`]: a request that does not fit now waits for other tasks to end, first come,
//! first served; one that can never fit beside the long-lived reservations is refused immediately. A task reserves
//! once, for everything it needs, before it starts. No task waits while it holds a reservation, so tasks cannot
//! deadlock.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::Bytes;

/// A memory limit in bytes and the ledger of reservations under it. Clones are handles to the same ledger.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    limit: Bytes,
    ledger: Mutex<Ledger>,
    freed: Condvar,
    /// The reservation in the parent budget, if this budget is a part of another.
    _part_of: Option<Reservation>,
}

#[derive(Default)]
struct Ledger {
    used: Bytes,
    /// The share of `used` that short-lived tasks hold. A task waits only for this share.
    by_tasks: Bytes,
    peak: Bytes,
    holders: BTreeMap<Arc<str>, HolderUse>,
    queue: VecDeque<u64>,
    next_ticket: u64,
}

/// The use of a budget by one holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderUse {
    /// The holder's name.
    pub holder: String,
    /// Held now.
    pub now: Bytes,
    /// The largest amount ever held at one time.
    pub peak: Bytes,
}

/// A request that exceeds what the limit leaves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OverBudget {
    /// The requesting holder.
    pub holder: String,
    /// The bytes requested.
    pub needed: Bytes,
    /// The bytes free now.
    pub free: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// The largest holders now, the largest first.
    pub top: Vec<HolderUse>,
}

impl OverBudget {
    /// The refused request among an error and its causes, if there is one.
    pub fn among_causes<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a OverBudget> {
        successors(Some(error), |&error| error.source()).find_map(|cause| cause.downcast_ref())
    }

    /// The remedy for a limit of memory: the bytes that are missing, in whole MiB. Requests that follow may need more.
    pub fn remedy(&self) -> String {
        self.remedy_for("‹ram›")
    }

    /// The same for a limit that another parameter sets.
    pub fn remedy_for(&self, parameter: &str) -> String {
        let missing = (self.needed - self.free).0.div_ceil(1 << 20).max(1);
        format!("raise {parameter} by at least {missing} MiB")
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverBudget { holder, needed, free, limit, top } = self;
        write!(f, "{holder} needs {needed}, but {free} of {limit} is free")?;
        for (i, held) in top.iter().enumerate() {
            let lead = if i == 0 { "; held by" } else { "," };
            write!(f, "{lead} {} {}", held.holder, held.now)?;
        }
        Ok(())
    }
}

impl Budget {
    /// A budget of `limit` bytes with nothing held.
    pub fn new(limit: Bytes) -> Budget {
        Budget::with_parent(limit, None)
    }

    fn with_parent(limit: Bytes, part_of: Option<Reservation>) -> Budget {
        Budget {
            shared: Arc::new(Shared {
                limit,
                ledger: Mutex::default(),
                freed: Condvar::new(),
                _part_of: part_of,
            }),
        }
    }

    /// Reserves `bytes` for `holder`, without waiting.
    ///
    /// # Errors
    /// If they are not free now.
    pub fn reserve(&self, holder: &str, bytes: Bytes) -> Result<Reservation, OverBudget> {
        let mut ledger = self.shared.lock();
        if bytes > self.shared.limit - ledger.used {
            return Err(self.refuse(&ledger, holder, bytes));
        }
        let granted = self.grant(&mut ledger, holder, bytes, false);
        // A waiting task may now be impossible to satisfy.
        self.shared.freed.notify_all();
        Ok(granted)
    }

    /// Reserves `bytes` for a task; if other tasks hold what it needs, waits in turn until they end. The task must hold no
    /// other reservation of this budget.
    ///
    /// # Errors
    /// Returns an error as soon as `bytes` exceed what the limit leaves beside the long-lived reservations.
    pub fn reserve_in_turn(&self, holder: &str, bytes: Bytes) -> Result<Reservation, OverBudget> {
        let mut ledger = self.shared.lock();
        let ticket = ledger.next_ticket;
        ledger.next_ticket += 1;
        ledger.queue.push_back(ticket);
        loop {
            if bytes > self.shared.limit - (ledger.used - ledger.by_tasks) {
                let refused = self.refuse(&ledger, holder, bytes);
                ledger.queue.retain(|waiting| *waiting != ticket);
                self.shared.freed.notify_all();
                return Err(refused);
            }
            if ledger.queue.front() == Some(&ticket) && bytes <= self.shared.limit - ledger.used {
                ledger.queue.pop_front();
                // The next in the queue may fit as well.
                self.shared.freed.notify_all();
                return Ok(self.grant(&mut ledger, holder, bytes, true));
            }
            ledger = self.shared.freed.wait(ledger).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets `bytes` aside as a budget of its own. This budget holds them under the name `part` until the last handle
    /// and reservation of the part are dropped.
    ///
    /// # Errors
    /// If they are not free now.
    pub fn part(&self, part: &str, bytes: Bytes) -> Result<Budget, OverBudget> {
        Ok(self.reserve(part, bytes)?.into_budget())
    }

    /// The limit.
    pub fn limit(&self) -> Bytes {
        self.shared.limit
    }

    /// The bytes held now.
    pub fn used(&self) -> Bytes {
        self.shared.lock().used
    }

    /// The bytes free now.
    pub fn free(&self) -> Bytes {
        self.shared.limit - self.used()
    }

    /// The largest amount ever held at one time.
    pub fn peak(&self) -> Bytes {
        self.shared.lock().peak
    }

    /// Every holder so far, by name.
    pub fn holders(&self) -> Vec<HolderUse> {
        self.shared.lock().holders.values().cloned().collect()
    }

    fn grant(&self, ledger: &mut Ledger, holder: &str, bytes: Bytes, by_task: bool) -> Reservation {
        ledger.used += bytes;
        if by_task {
            ledger.by_tasks += bytes;
        }
        ledger.peak = ledger.peak.max(ledger.used);
        let holder: Arc<str> = match ledger.holders.get_key_value(holder) {
            Some((name, _)) => Arc::clone(name),
            None => holder.into(),
        };
        let entry = ledger.holders.entry(Arc::clone(&holder)).or_default();
        if entry.holder.is_empty() {
            entry.holder = holder.to_string();
        }
        entry.now += bytes;
        entry.peak = entry.peak.max(entry.now);
        Reservation { shared: Arc::clone(&self.shared), holder, bytes, by_task }
    }

    fn refuse(&self, ledger: &Ledger, holder: &str, needed: Bytes) -> OverBudget {
        let mut top: Vec<HolderUse> =
            ledger.holders.values().filter(|held| held.now > Bytes::ZERO).cloned().collect();
        top.sort_by_key(|held| std::cmp::Reverse(held.now));
        top.truncate(4);
        OverBudget {
            holder: holder.into(),
            needed,
            free: self.shared.limit - ledger.used,
            limit: self.shared.limit,
            top,
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).field("holders", &self.holders()).finish()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // The ledger is consistent between any two statements that can panic, so a poisoned lock can still be used.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a budget, held until this is dropped.
pub struct Reservation {
    shared: Arc<Shared>,
    holder: Arc<str>,
    bytes: Bytes,
    by_task: bool,
}

impl Reservation {
    /// The bytes held.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The holder's name.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Turns the reserved bytes into a budget.
    pub fn into_budget(self) -> Budget {
        Budget::with_parent(self.bytes, Some(self))
    }

    /// Checks that `bytes` are within this reservation.
    ///
    /// # Errors
    /// If they are more.
    pub fn check_covers(&self, bytes: Bytes) -> Result<(), OverBudget> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(OverBudget {
            holder: self.holder.to_string(),
            needed: bytes,
            free: self.bytes,
            limit: self.bytes,
            top: Vec::new(),
        })
    }

    /// Releases all but `bytes`.
    pub fn shrink_to(&mut self, bytes: Bytes) {
        let back = self.bytes - bytes;
        if back > Bytes::ZERO {
            self.release(back);
            self.bytes = bytes;
        }
    }

    /// Parts `bytes` off as a reservation of its own for the same holder; all, if there are fewer.
    pub fn split_off(&mut self, bytes: Bytes) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes = self.bytes - bytes;
        let (shared, holder) = (Arc::clone(&self.shared), Arc::clone(&self.holder));
        Reservation { shared, holder, bytes, by_task: self.by_task }
    }

    /// Holds what was reserved in turn beyond the end of the task: those that wait no longer count on its being freed.
    #[must_use]
    pub fn keep(mut self) -> Reservation {
        if self.by_task {
            let mut ledger = self.shared.lock();
            ledger.by_tasks = ledger.by_tasks - self.bytes;
            drop(ledger);
            self.by_task = false;
            // A waiting task may now be impossible to satisfy.
            self.shared.freed.notify_all();
        }
        self
    }

    fn release(&self, bytes: Bytes) {
        let mut ledger = self.shared.lock();
        ledger.used = ledger.used - bytes;
        if self.by_task {
            ledger.by_tasks = ledger.by_tasks - bytes;
        }
        if let Some(entry) = ledger.holders.get_mut(&self.holder) {
            entry.now = entry.now - bytes;
        }
        drop(ledger);
        self.shared.freed.notify_all();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} for {})", self.bytes, self.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn an_impossible_request_fails_at_once_and_names_the_holders() {
        let budget = Budget::new(Bytes(100));
        let _arena = budget.reserve("arena", Bytes(30)).unwrap();
        let _task = budget.reserve_in_turn("reader", Bytes(60)).unwrap();
        let error = budget.reserve("cache", Bytes(11)).unwrap_err();
        assert_eq!(error.free, Bytes(10));
        assert_eq!(
            error.to_string(),
            "cache needs 11 B, but 10 B of 100 B is free; held by reader 60 B, arena 30 B"
        );
        // Not even the end of the reader would make room for this one beside the arena.
        assert!(budget.reserve_in_turn("large", Bytes(71)).is_err());
    }

    #[test]
    fn a_waiting_task_is_refused_once_its_request_becomes_impossible() {
        let budget = Budget::new(Bytes(100));
        let task = budget.reserve_in_turn("first", Bytes(50)).unwrap();
        let second = budget.clone();
        let waiting = thread::spawn(move || second.reserve_in_turn("second", Bytes(60)).map(|_| ()));
        while budget.shared.lock().queue.is_empty() {
            thread::yield_now();
        }
        let _long = budget.reserve("arena", Bytes(50)).unwrap();
        assert!(waiting.join().unwrap().is_err());
        drop(task);
    }

    #[test]
    fn what_a_task_keeps_is_not_waited_for() {
        let budget = Budget::new(Bytes(100));
        let mut task = budget.reserve_in_turn("reader", Bytes(80)).unwrap();
        let mut result = task.split_off(Bytes(30));
        assert_eq!((task.bytes(), result.bytes(), budget.used()), (Bytes(50), Bytes(30), Bytes(80)));
        result.shrink_to(Bytes(20));
        let result = result.keep();
        assert_eq!(budget.used(), Bytes(70));
        // Once the task ends, 80 are free: as much as anybody can have from now on.
        assert!(budget.reserve_in_turn("large", Bytes(81)).is_err());
        drop(task);
        drop(budget.reserve_in_turn("next", Bytes(80)).unwrap());
        drop(result);
        assert_eq!(budget.used(), Bytes::ZERO);
        assert!(budget.reserve_in_turn("large", Bytes(100)).is_ok());
    }

    #[test]
    fn waiting_tasks_are_served_in_turn() {
        let budget = Budget::new(Bytes(100));
        let all = budget.reserve_in_turn("first", Bytes(100)).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        // A large request before a small one: the small one fits earlier, but does not overtake.
        for (name, bytes) in [("large", 90), ("small", 20)] {
            let (thread_budget, thread_order) = (budget.clone(), Arc::clone(&order));
            waiting.push(thread::spawn(move || {
                let held = thread_budget.reserve_in_turn(name, Bytes(bytes)).unwrap();
                thread_order.lock().unwrap().push(name);
                thread::sleep(Duration::from_millis(5));
                drop(held);
            }));
            while budget.shared.lock().queue.len() < waiting.len() {
                thread::yield_now();
            }
        }
        let mut all = all;
        all.shrink_to(Bytes(50));
        thread::sleep(Duration::from_millis(20));
        assert!(order.lock().unwrap().is_empty());
        drop(all);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), ["large", "small"]);
    }

    #[test]
    fn a_part_has_a_limit_of_its_own() {
        let budget = Budget::new(Bytes(100));
        let cache = budget.part("cache", Bytes(40)).unwrap();
        assert_eq!(budget.free(), Bytes(60));
        assert!(cache.reserve("volume", Bytes(41)).is_err());
        let held = cache.reserve("volume", Bytes(40)).unwrap();
        drop(cache);
        assert_eq!(budget.free(), Bytes(60), "held while anything of the part is");
        drop(held);
        assert_eq!(budget.free(), Bytes(100));
    }

    proptest! {
        #[test]
        fn what_holders_hold_is_what_is_used(steps in prop::collection::vec((0usize..4, 0usize..3, 1u64..40), 1..60)) {
            let budget = Budget::new(Bytes(200));
            let names = ["arena", "cache", "loader"];
            let sum = |budget: &Budget| budget.holders().iter().map(|holder| holder.now).sum::<Bytes>();
            let (mut held, mut parts) = (Vec::new(), Vec::new());
            for (what, which, bytes) in steps {
                match what {
                    0 => held.extend(budget.reserve(names[which], Bytes(bytes)).ok()),
                    // What is reserved inside of a part is held by the part, once.
                    1 => parts.extend(budget.part(names[which], Bytes(bytes)).ok().map(|part| {
                        let inner = part.reserve("inside", Bytes(bytes / 2)).unwrap();
                        (part, inner)
                    })),
                    2 => held.iter_mut().for_each(|held: &mut Reservation| held.shrink_to(Bytes(bytes))),
                    _ => {
                        held.pop();
                        parts.pop();
                    }
                }
                prop_assert_eq!(sum(&budget), budget.used());
                for (part, _) in &parts {
                    prop_assert_eq!(sum(part), part.used());
                }
            }
            drop((held, parts));
            prop_assert_eq!(budget.used(), Bytes::ZERO);
        }

        #[test]
        fn threads_never_hold_more_than_the_limit(sizes in prop::collection::vec(1u64..60, 1..40)) {
            let budget = Budget::new(Bytes(100));
            let held = AtomicU64::new(0);
            thread::scope(|scope| {
                for chunk in sizes.chunks(10) {
                    let (budget, held) = (&budget, &held);
                    scope.spawn(move || for size in chunk {
                        let reservation = budget.reserve_in_turn("worker", Bytes(*size)).unwrap();
                        let now = held.fetch_add(*size, Ordering::SeqCst) + size;
                        assert!(now <= 100);
                        held.fetch_sub(*size, Ordering::SeqCst);
                        drop(reservation);
                    });
                }
            });
            prop_assert_eq!(budget.used(), Bytes::ZERO);
            prop_assert!(budget.peak() <= Bytes(100));
        }
    }
}
