//! The memory of the device.

use std::ops::Range;

use crate::machine::windows;

/// One allocation, with a note for each byte whether it was ever written.
#[derive(Clone)]
pub struct Memory {
    bytes: Vec<u8>,
    /// A bit for each byte.
    written: Vec<u64>,
}

impl Memory {
    /// `bytes` zeros, none of which counts as written.
    pub fn new(bytes: usize) -> Memory {
        Memory { bytes: vec![0; bytes], written: vec![0; bytes.div_ceil(64)] }
    }

    /// The address of its first byte, for kernels. A multiple of 256.
    pub fn base(&self) -> u64 {
        windows::GLOBAL
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Makes it longer, by bytes that count as unwritten, or shorter. Addresses stay.
    pub fn resize(&mut self, bytes: usize) {
        let before = self.bytes.len().min(bytes);
        self.bytes.resize(bytes, 0);
        self.written.resize(bytes.div_ceil(64), 0);
        // Of what was shortened before, something may be noted in the last word.
        self.mark(before..bytes.next_multiple_of(64), false);
    }

    /// Copies `bytes` to `offset`, from the host.
    ///
    /// # Panics
    /// Panics if they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.mark(offset..offset + bytes.len(), true);
    }

    /// Copies to the host. Bytes that were never written may be read; they are what they are.
    ///
    /// # Panics
    /// Panics if the memory ends before.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes[offset..offset + bytes.len()]);
    }

    /// Counts these bytes as unwritten from now on. What they hold stays.
    ///
    /// # Panics
    /// Panics if they are not all within the memory.
    pub fn forget(&mut self, range: Range<usize>) {
        assert!(range.end <= self.bytes.len(), "{range:?} of {} bytes", self.bytes.len());
        self.mark(range, false);
    }

    /// Returns `true` if all of these bytes were written.
    ///
    /// # Panics
    /// Panics if they are not all within the memory.
    pub fn is_written(&self, mut range: Range<usize>) -> bool {
        range.all(|at| self.written[at / 64] >> (at % 64) & 1 == 1)
    }

    fn mark(&mut self, range: Range<usize>, written: bool) {
        let mut at = range.start;
        while at < range.end {
            let count = (64 - at % 64).min(range.end - at);
            let bits = crate::lanes::low(count as u32) << (at % 64);
            let word = &mut self.written[at / 64];
            *word = if written { *word | bits } else { *word & !bits };
            at += count;
        }
    }

    /// The bits of an aligned access of at most 64 bytes.
    fn bits(offset: usize, bytes: usize) -> u64 {
        crate::lanes::low(bytes as u32) << (offset % 64)
    }

    /// An aligned load of at most 64 bytes by a kernel; nothing if some were never written.
    pub(crate) fn load(&self, offset: usize, bytes: usize) -> Option<&[u8]> {
        let bits = Self::bits(offset, bytes);
        if self.written.get(offset / 64)? & bits != bits {
            return None;
        }
        self.bytes.get(offset..offset + bytes)
    }

    /// An aligned store of at most 64 bytes by a kernel, within the memory.
    pub(crate) fn store(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(word) = self.written.get_mut(offset / 64) {
            *word |= Self::bits(offset, bytes.len());
        }
        if let Some(place) = self.bytes.get_mut(offset..offset + bytes.len()) {
            crate::machine::copy(place, bytes);
        }
    }
}
