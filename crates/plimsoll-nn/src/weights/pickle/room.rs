//! Room in a budget for data whose size is known only while they are read.

use plimsoll_memory::{Budget, Bytes, Reservation};

use super::Refusal;

/// The number of bytes that are reserved at a time.
const STEP: u64 = 64 << 10;

/// Bytes of a budget that are taken as they turn out to be needed.
pub(crate) struct Room<'a> {
    budget: &'a Budget,
    holder: &'static str,
    needed: u64,
    held: Option<Reservation>,
}

impl<'a> Room<'a> {
    /// Nothing yet.
    pub(crate) fn new(budget: &'a Budget, holder: &'static str) -> Room<'a> {
        Room { budget, holder, needed: 0, held: None }
    }

    /// Reserves more bytes, beside those already reserved.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.needed = self.needed.saturating_add(bytes);
        if self.held.as_ref().is_none_or(|held| held.bytes() < Bytes(self.needed)) {
            self.held = None;
            let bytes = Bytes(self.needed.saturating_add(STEP - 1) / STEP * STEP);
            self.held = Some(self.budget.reserve(self.holder, bytes).map_err(Refusal::OverBudget)?);
        }
        Ok(())
    }

    /// Returns the reservation.
    pub(crate) fn into_held(self) -> Option<Reservation> {
        self.held
    }
}
