//! Ways to divide work among the threads of a pool: phases of units, and items that whoever is free takes.
#![allow(unsafe_code, reason = "each thread is given a state of its own from one slice")]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::{Parts, Pool};

/// A phase of work: units, of which `grain` are taken at a time.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The number of units.
    pub units: usize,
    /// The number of units that a thread takes at a time; not 0.
    pub grain: usize,
}

/// The states of threads, each held by one thread at a time.
struct States<'a, S>(Parts<'a, S>);

// SAFETY: the only way to a state is `States::state`, whose callers vouch that no two threads hold the same one; so a state moves from
// thread to thread, as `S: Send` allows, and is never shared.
unsafe impl<S: Send> Sync for States<'_, S> {}

impl<S> States<'_, S> {
    /// A state.
    ///
    /// # Safety
    /// While the result lives, nobody else holds the state of this number.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference exclusive")]
    unsafe fn state(&self, number: usize) -> &mut S {
        // SAFETY: this function's contract includes the contract of the call.
        unsafe { &mut self.0.part(number, 1)[0] }
    }
}

impl Pool {
    /// Runs `work(state, phase, units)` for all units of the first phase, then for all units of the next. A state is a thread's
    /// exclusive scratch; which one a unit gets must not change its result.
    ///
    /// # Panics
    /// Panics if there are fewer states than threads, if a grain is 0, or if `work` panics.
    pub fn run_phases<S: Send, const N: usize>(
        &self,
        states: &mut [S],
        phases: [Phase; N],
        work: impl Fn(&mut S, usize, Range<usize>) + Sync,
    ) {
        assert!(states.len() >= self.threads(), "{} states for {} threads", states.len(), self.threads());
        let states = States(Parts::new(states));
        for (number, Phase { units, grain }) in phases.into_iter().enumerate() {
            self.run(units.div_ceil(grain), &|portion, thread| {
                // SAFETY: no two calls at a time have the same `thread`, so nobody else holds its state.
                let state = unsafe { states.state(thread) };
                let start = portion * grain;
                work(state, number, start..units.min(start + grain));
            });
        }
    }

    /// Runs `work(item, state)` for each item, on at most one thread per state. Which thread takes an item is not fixed.
    ///
    /// # Panics
    /// Panics if there is no state, or if `work` panics.
    pub fn share<I: Send, S: Send>(
        &self,
        items: impl Iterator<Item = I> + Send,
        states: &mut [S],
        work: impl Fn(I, &mut S) + Sync,
    ) {
        assert!(!states.is_empty(), "no state to work with");
        let takers = states.len().min(self.threads());
        let (items, states) = (Mutex::new(items), States(Parts::new(states)));
        self.run(takers, &|taker, _| {
            // SAFETY: each task runs once, and `taker` is its number.
            let state = unsafe { states.state(taker) };
            loop {
                let item = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(item) = item else { return };
                work(item, state);
            }
        });
    }

    /// Runs `work` for each item. Which thread takes an item is not fixed.
    ///
    /// # Panics
    /// Panics if `work` panics.
    pub fn each<I: Send>(&self, items: impl Iterator<Item = I> + Send, work: impl Fn(I) + Sync) {
        let items = Mutex::new(items);
        self.run(self.threads(), &|_, _| {
            loop {
                let item = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(item) = item else { return };
                work(item);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_taken_once_however_many_threads_there_are() {
        for threads in 1..5 {
            let (mut items, mut taken) = (vec![0; 100], vec![0; threads]);
            let pool = Pool::new(threads).unwrap();
            pool.share(items.iter_mut(), &mut taken, |item, taken| {
                *item += 1;
                *taken += 1;
            });
            pool.each(items.iter_mut(), |item| *item += 1);
            assert_eq!((items, taken.iter().sum::<i32>()), (vec![2; 100], 100));
        }
    }

    #[test]
    fn a_phase_begins_when_the_one_before_has_ended() {
        for threads in 1..5 {
            let pool = Pool::new(threads).unwrap();
            let first: Vec<Mutex<usize>> = (0..103).map(|_| Mutex::new(0)).collect();
            let phases = [Phase { units: 103, grain: 10 }, Phase { units: 40, grain: 1 }];
            let mut states = vec![0; threads];
            pool.run_phases(&mut states, phases, |taken, phase, units| {
                *taken += units.len();
                match phase {
                    0 => units.for_each(|unit| *first[unit].lock().unwrap() += 1),
                    _ => assert!(first.iter().all(|unit| *unit.lock().unwrap() == 1)),
                }
            });
            assert_eq!(states.iter().sum::<usize>(), 143);
        }
    }
}
