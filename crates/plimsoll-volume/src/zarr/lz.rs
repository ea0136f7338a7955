//! Blocks of LZ4 and of BloscLZ, which are copies of bytes that are decompressed already and literal bytes.

use super::bytes::{little, take};

/// Decompresses a block of LZ4 (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>) into a buffer that it fills.
///
/// # Errors
/// Returns an error in words if the block is damaged, or decompresses to more or fewer bytes.
pub(super) fn lz4(mut block: &[u8], to: &mut [u8]) -> Result<(), String> {
    /// The shortest match.
    const LEAST: usize = 4;
    /// A length that continues in the bytes that follow.
    const LONG: usize = 15;
    let mut filled = 0;
    loop {
        let ([token], rest) = take::<1>(block)?;
        block = rest;
        let literals = length(usize::from(token >> 4), LONG, &mut block)?;
        literal(&mut block, to, &mut filled, literals)?;
        if block.is_empty() {
            break;
        }
        let (distance, rest) = take::<2>(block)?;
        block = rest;
        let count = length(usize::from(token & 15), LONG, &mut block)?.saturating_add(LEAST);
        repeat(to, &mut filled, little(&distance) as usize, count)?;
    }
    expect_full(to, filled)
}

/// Decompresses what BloscLZ has made (<https://github.com/Blosc/c-blosc/blob/main/blosc/blosclz.c>), as [`lz4`].
///
/// # Errors
/// Returns the errors of [`lz4`].
pub(super) fn blosclz(mut block: &[u8], to: &mut [u8]) -> Result<(), String> {
    /// A length that continues, the shortest match, and the farthest that fits the first bytes.
    const LONG: usize = 6;
    const LEAST: usize = 3;
    const FAR: usize = 8191;
    let mut filled = 0;
    let ([first], rest) = take::<1>(block)?;
    block = rest;
    // The first code is of literals.
    let mut code = usize::from(first & 31);
    loop {
        if code < 32 {
            literal(&mut block, to, &mut filled, code + 1)?;
        } else {
            let count = length((code >> 5) - 1, LONG, &mut block)?.saturating_add(LEAST);
            let high = (code & 31) << 8;
            let ([low], rest) = take::<1>(block)?;
            block = rest;
            let mut distance = high + usize::from(low) + 1;
            if low == 255 && high == 31 << 8 {
                let ([above, below], rest) = take::<2>(block)?;
                block = rest;
                distance = (usize::from(above) << 8) + usize::from(below) + FAR + 1;
            }
            repeat(to, &mut filled, distance, count)?;
        }
        let Some((next, rest)) = block.split_first() else { break };
        (code, block) = (usize::from(*next), rest);
    }
    expect_full(to, filled)
}

/// A length that continues, if it is the longest of its bits, in bytes up to the first that is not 255.
fn length(start: usize, long: usize, block: &mut &[u8]) -> Result<usize, String> {
    let mut length = start;
    let mut goes_on = start == long;
    while goes_on {
        let ([more], rest) = take::<1>(block)?;
        *block = rest;
        length = length.saturating_add(usize::from(more));
        goes_on = more == 255;
    }
    Ok(length)
}

/// Copies bytes of the block.
fn literal(block: &mut &[u8], to: &mut [u8], filled: &mut usize, count: usize) -> Result<(), String> {
    let (bytes, rest) = block.split_at_checked(count).ok_or("it ends early")?;
    let length = to.len();
    let place = to.get_mut(*filled..).and_then(|to| to.get_mut(..count)).ok_or_else(|| too_long(length))?;
    place.copy_from_slice(bytes);
    (*block, *filled) = (rest, *filled + count);
    Ok(())
}

/// Copies the bytes at a distance before, which may overlap the copy.
fn repeat(to: &mut [u8], filled: &mut usize, distance: usize, count: usize) -> Result<(), String> {
    let from = filled.checked_sub(distance).filter(|_| distance > 0);
    let from = from.ok_or("it refers to bytes before its beginning")?;
    let end = filled.checked_add(count).filter(|end| *end <= to.len()).ok_or_else(|| too_long(to.len()))?;
    // A piece of the distance at first, then of twice that, and so on: the same bytes come again.
    while *filled < end {
        let step = (*filled - from).min(end - *filled);
        to.copy_within(from..from + step, *filled);
        *filled += step;
    }
    Ok(())
}

fn too_long(length: usize) -> String {
    format!("it unpacks to more than {length} bytes")
}

fn expect_full(to: &[u8], filled: usize) -> Result<(), String> {
    match filled == to.len() {
        true => Ok(()),
        false => Err(format!("it unpacks to {filled} bytes, not {}", to.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_may_go_on_into_themselves_and_lengths_into_more_bytes() {
        let mut to = [0; 41];
        // Two literals, a match of 4 + 15 + 15 bytes at distance 2, and five literals.
        lz4(&[0x2f, 7, 8, 2, 0, 15, 0x50, 1, 2, 3, 4, 5], &mut to).unwrap();
        assert_eq!(to[..6], [7, 8, 7, 8, 7, 8]);
        assert_eq!(to[34..], [7, 8, 1, 2, 3, 4, 5]);
        for damaged in [
            &[][..],
            &[0x2f, 7, 8, 3, 0, 15],
            &[0x2f, 7, 8, 0, 0, 15],
            &[0xf0, 255, 255],
            &[0x20, 7],
            &[0x10, 7],
        ] {
            assert!(lz4(damaged, &mut to).is_err() && blosclz(damaged, &mut to).is_err(), "{damaged:?}");
        }
    }
}
