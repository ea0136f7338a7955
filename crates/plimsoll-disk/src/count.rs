//! The length of a file before it is written.

use std::io::{self, Write};

/// Counts the bytes that would be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCount(pub u64);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
