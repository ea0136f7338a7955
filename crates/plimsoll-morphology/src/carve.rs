//! Buffers carved from one block of memory, so that a task's memory is reserved in one step.

use bytemuck::Pod;

/// The alignment of every buffer: a cache line, in bytes.
pub(crate) const LINE: usize = 64;

/// Takes buffers from the front of a block of memory.
pub(crate) struct Carver<'a> {
    rest: &'a mut [u8],
}

impl<'a> Carver<'a> {
    /// A carver of memory of any alignment, which must have [`LINE`] − 1 bytes more than the buffers need.
    pub(crate) fn new(memory: &'a mut [u8]) -> Carver<'a> {
        let offset = memory.as_ptr().align_offset(LINE);
        Carver { rest: &mut memory[offset..] }
    }

    /// A buffer of `len` elements, of [`bytes_of`] bytes. Its contents are unspecified.
    pub(crate) fn take<T: Pod>(&mut self, len: usize) -> &'a mut [T] {
        let (taken, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes_of::<T>(len));
        self.rest = rest;
        bytemuck::cast_slice_mut(&mut taken[..len * size_of::<T>()])
    }

    /// The remaining memory.
    pub(crate) fn rest(self) -> &'a mut [u8] {
        self.rest
    }
}

/// The bytes of `len` elements in whole cache lines. Saturates where that overflows, which no buffer can satisfy.
pub(crate) fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>()).saturating_add(LINE - 1) / LINE * LINE
}

/// The sum of the bytes of several buffers; saturating.
pub(crate) fn sum(bytes: impl IntoIterator<Item = usize>) -> usize {
    bytes.into_iter().fold(0, usize::saturating_add)
}
