//! Lists that grow with what a file has, and are reserved from the budget before they do.

use std::ops::Deref;

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

/// The fewest elements that there is room for, once there is one.
const LEAST: usize = 16;

/// A list, the room of which is reserved for as long as it lives.
#[derive(Debug)]
pub(crate) struct ReservedList<T> {
    items: Vec<T>,
    budget: Budget,
    holder: &'static str,
    held: Option<Reservation>,
}

impl<T> ReservedList<T> {
    /// An empty list, which holds nothing.
    pub(crate) fn new(budget: &Budget, holder: &'static str) -> ReservedList<T> {
        ReservedList { items: Vec::new(), budget: budget.clone(), holder, held: None }
    }

    /// Appends an element.
    ///
    /// # Errors
    /// Returns an error if the list has to grow, and the budget has no room for it.
    pub(crate) fn push(&mut self, item: T) -> Result<(), OverBudget> {
        if self.items.len() == self.items.capacity() {
            let room = self.items.capacity().saturating_mul(2).max(LEAST);
            let bytes = (room as u64).saturating_mul(size_of::<T>() as u64);
            // The old place is still held, since elements are copied from it.
            let held = self.budget.reserve(self.holder, Bytes(bytes))?;
            self.items.reserve_exact(room - self.items.len());
            self.held = Some(held);
        }
        self.items.push(item);
        Ok(())
    }

    /// Takes all elements out. Their room stays for others.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }

    /// Takes the last element out, if there is one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// The elements, to be changed or put in order.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T> Deref for ReservedList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_has_is_reserved_and_what_there_is_no_room_for_is_refused() {
        let budget = Budget::new(Bytes(1000));
        let mut list = ReservedList::new(&budget, "a list");
        // 16, then 32 and for a while 48 of 8 bytes; 64 and 32 are too many.
        let refused = (0u64..).find_map(|number| list.push(number).err().map(|_| number));
        assert_eq!(refused, Some(64));
        assert_eq!((budget.used(), list.len(), list[63]), (Bytes(512), 64, 63));
        drop(list);
        assert_eq!((budget.used(), budget.peak()), (Bytes::ZERO, Bytes(768)));
    }
}
