//! Looking ahead in a buffered file, and passing over a part of it.

use std::io::{self, BufRead, BufReader, Read};

use plimsoll_disk::File;

/// Reads the bytes of a file from its present place on, as many as `to` has or the file; the place stays.
pub(crate) fn peek(file: &mut BufReader<File>, to: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // The first read may give a single byte.
        let read = file.read(rest)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    file.seek_relative(-(filled as i64))?;
    Ok(filled)
}

/// Passes over bytes of a reader.
///
/// # Errors
/// Returns an error if it ends before, or cannot be read.
pub(crate) fn pass(from: &mut impl BufRead, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let there = from.fill_buf()?.len();
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let step = usize::try_from(count).unwrap_or(usize::MAX).min(there);
        from.consume(step);
        count -= step as u64;
    }
    Ok(())
}
