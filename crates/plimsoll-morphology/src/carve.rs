//! Buffers cut from one piece of memory, so that what a task needs is reserved at once.

use bytemuck::Pod;

/// Every buffer starts on a cache line.
pub(crate) const LINE: usize = 64;

/// Takes buffers from the front of a piece of memory.
pub(crate) struct Carver<'a> {
    rest: &'a mut [u8],
}

impl<'a> Carver<'a> {
    /// A carver of memory of any alignment, which has up to [`LINE`] − 1 bytes more than the buffers need.
    pub(crate) fn new(memory: &'a mut [u8]) -> Carver<'a> {
        let offset = memory.as_ptr().align_offset(LINE);
        Carver { rest: &mut memory[offset..] }
    }

    /// A buffer of `len` elements, which takes [`bytes_of`] them. What is in it means nothing.
    pub(crate) fn take<T: Pod>(&mut self, len: usize) -> &'a mut [T] {
        let (taken, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes_of::<T>(len));
        self.rest = rest;
        bytemuck::cast_slice_mut(&mut taken[..len * size_of::<T>()])
    }

    /// What has not been taken.
    pub(crate) fn rest(self) -> &'a mut [u8] {
        self.rest
    }
}

/// The bytes of `len` elements in whole cache lines; what does not fit the address space saturates, and no caller has that.
pub(crate) fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>()).saturating_add(LINE - 1) / LINE * LINE
}

/// What buffers take together.
pub(crate) fn sum(bytes: impl IntoIterator<Item = usize>) -> usize {
    bytes.into_iter().fold(0, usize::saturating_add)
}
