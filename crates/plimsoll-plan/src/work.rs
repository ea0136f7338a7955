//! Counts the operations of planning, so that its growth can be stated without a clock.

use std::cell::Cell;

/// A count of operations: launches, values and stretches of memory that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Work(Cell<u64>);

impl Work {
    /// Adds operations.
    pub(crate) fn add(&self, operations: usize) {
        self.0.set(self.0.get().saturating_add(operations as u64));
    }

    /// The operations so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.get()
    }
}
