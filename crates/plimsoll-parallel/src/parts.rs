//! Slices that several threads write at once.
#![allow(unsafe_code, reason = "parts of one slice are given to several threads")]

use std::marker::PhantomData;

/// A slice whose disjoint parts are written by several threads.
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: the only ways to the elements are `part`, whose callers vouch that no two threads hold the same element, and `read`,
// which shares elements as `T: Sync` allows.
unsafe impl<T: Send + Sync> Sync for Parts<'_, T> {}
// SAFETY: a `&mut [T]` could be sent.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Takes the whole slice.
    pub fn new(whole: &'a mut [T]) -> Parts<'a, T> {
        Parts { start: whole.as_mut_ptr(), len: whole.len(), whole: PhantomData }
    }

    /// The address of an element, for [`prefetch`](crate::prefetch); it may lie beyond the slice.
    #[inline(always)]
    pub fn address(&self, at: usize) -> *const T {
        self.start.wrapping_add(at)
    }

    /// `len` elements from `start`, to be read only.
    ///
    /// # Safety
    /// While the result lives, no [`Parts::part`] that overlaps it may live, on any thread.
    ///
    /// # Panics
    /// Panics if the ranges are not within the slice.
    #[inline(always)]
    pub unsafe fn read(&self, start: usize, len: usize) -> &[T] {
        self.check(start, len);
        // SAFETY: within the slice, as was just checked; not written, as the caller vouches; alive, as `'a` outlives `self`.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }
    }

    /// `len` elements from `start`.
    ///
    /// # Safety
    /// While the result lives, nothing else that overlaps it may live, on any thread.
    ///
    /// # Panics
    /// Panics if the ranges are not within the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        self.check(start, len);
        // SAFETY: within the slice, as was just checked; alone, as the caller vouches; alive, as `'a` outlives `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }

    #[inline(always)]
    fn check(&self, start: usize, len: usize) {
        assert!(start <= self.len && len <= self.len - start, "{len} elements from {start} of {}", self.len);
    }
}
