//! Numbers at the beginning of bytes.

/// The first bytes, and what follows them.
///
/// # Errors
/// Returns an error if there are fewer.
pub(super) fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), String> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or("it ends early")?;
    Ok((*first, rest))
}

/// A number whose lowest byte is the first.
pub(super) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
