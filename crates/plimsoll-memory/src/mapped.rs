//! Buffers of whole pages, mapped when they are created and unmapped when they are dropped.
//!
//! A general-purpose allocator often keeps freed memory, so the resident size stays after a large buffer is freed. A
//! mapping is returned to the system at once, so the ledger agrees with the resident size.

#![allow(unsafe_code, reason = "slices over mapped pages")]

use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use memmap2::{MmapMut, MmapRaw};

use crate::{Budget, Bytes, OverBudget, Reservation};

/// Why a buffer could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The budget has no room for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// The length does not fit the address space.
    #[error("a buffer of {count} elements of {size} bytes does not fit the address space")]
    TooLarge {
        /// The number of elements requested.
        count: usize,
        /// Bytes of one element.
        size: usize,
    },
    /// The operating system refused the mapping.
    #[error("the system refused to map {bytes} for {holder}")]
    Refused {
        /// The requesting holder.
        holder: String,
        /// The bytes requested.
        bytes: Bytes,
        /// The operating system's error.
        source: io::Error,
    },
}

impl MapError {
    /// A remedy. A higher limit helps only where the budget refused, not where the system did.
    pub fn remedy(&self) -> String {
        match self {
            MapError::OverBudget(refused) => refused.remedy(),
            MapError::TooLarge { .. } => "make the input smaller".into(),
            MapError::Refused { .. } => {
                "end other programs, or raise the limit of the address space (`ulimit -v`)".into()
            }
        }
    }
}

/// A zeroed buffer of `T` that is reserved from a budget for as long as it lives. Pages, small or
/// huge, become resident when they are first written.
#[derive(Debug)]
pub struct Mapped<T> {
    /// The pages; `None` for a buffer without elements.
    map: Option<MmapRaw>,
    len: usize,
    reservation: Reservation,
    element: PhantomData<T>,
}

impl<T: Pod> Mapped<T> {
    /// A buffer of `len` zeroes, reserved under the name `holder`.
    ///
    /// # Errors
    /// If the budget has no room for it now, or the system refuses the mapping.
    pub fn zeroed(budget: &Budget, holder: &str, len: usize) -> Result<Mapped<T>, MapError> {
        let reservation = budget.reserve(holder, Self::bytes(len)?)?;
        Self::within(reservation, len)
    }

    /// A buffer of `len` zeroes inside a reservation that is already held.
    ///
    /// # Errors
    /// If the reservation is smaller than the buffer, or the system refuses the mapping.
    pub fn within(reservation: Reservation, len: usize) -> Result<Mapped<T>, MapError> {
        let bytes = Self::bytes(len)?;
        reservation.check_covers(bytes)?;
        let map = match bytes {
            Bytes::ZERO => None,
            // The size was checked when it was computed: it came from a `usize`.
            Bytes(size) => {
                let map = MmapMut::map_anon(size as usize).map_err(|source| MapError::Refused {
                    holder: reservation.holder().into(),
                    bytes,
                    source,
                })?;
                ask_for_huge_pages(&map);
                Some(MmapRaw::from(map))
            }
        };
        Ok(Mapped { map, len, reservation, element: PhantomData })
    }

    /// The bytes that a buffer of `len` elements reserves: whole pages.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(len: usize) -> Result<Bytes, MapError> {
        const PAGE: usize = 4096;
        let size = size_of::<T>();
        len.checked_mul(size)
            .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .map(Bytes::from_len)
            .ok_or(MapError::TooLarge { count: len, size })
    }

    /// Returns the address of the first element. It is aligned for `T`, valid for reads and writes of all elements, and stays
    /// the same until the buffer is dropped.
    ///
    /// It is derived from the mapping, not from a borrow of the buffer, so that slices of the buffer that are taken in between
    /// do not invalidate it. Nobody may hold such a slice while the address is used.
    pub fn start(&self) -> *mut T {
        match &self.map {
            Some(map) => map.as_mut_ptr().cast(),
            None => NonNull::dangling().as_ptr(),
        }
    }

    /// The bytes reserved for this buffer.
    pub fn reserved(&self) -> Bytes {
        self.reservation.bytes()
    }
}

/// Huge pages save kernels that stream over large buffers most address translation misses. The system may decline, and
/// never makes more resident than is mapped.
#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_huge_pages(map: &MmapMut) {
    let _ = map.advise(memmap2::Advice::HugePage);
}

/// Other systems, and the interpreter that checks for undefined behaviour, know no advice.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_pages(_: &MmapMut) {}

impl<T: Pod> Deref for Mapped<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and valid for `len` elements, as `within` has mapped pages for them. The pages are zeroed,
        // and any bits are a `T: Pod`. The borrow of `self` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl<T: Pod> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_over_the_limit_is_refused_before_it_is_mapped() {
        let budget = Budget::new(Bytes::mib(1));
        assert!(matches!(Mapped::<u8>::zeroed(&budget, "test", 2 << 20), Err(MapError::OverBudget(_))));
        assert!(matches!(
            Mapped::<u64>::zeroed(&budget, "test", usize::MAX / 4),
            Err(MapError::TooLarge { .. })
        ));
        assert!(Mapped::<u8>::zeroed(&budget, "test", 0).unwrap().is_empty());
    }
}
