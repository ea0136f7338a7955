//! The bytes before an access point that are kept: those that the data behind it copies.

/// The used bytes of a window: the number of runs, for each the bytes before it and its own, then the bytes of all.
pub(super) fn pack(window: &[u8], runs: &[(usize, usize)]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(2 + 4 * runs.len() + window.len());
    // A window has fewer runs than 2^16, and its length fits as well.
    let mut number = |number: usize| packed.extend((number as u16).to_le_bytes());
    number(runs.len());
    let mut before = 0;
    for (first, end) in runs {
        number(first - before);
        number(end - first);
        before = *end;
    }
    runs.iter().for_each(|(first, end)| packed.extend(&window[*first..*end]));
    packed
}

/// Writes the used bytes into a window, zeros between them; none if that does not fit.
pub(super) fn unpack(packed: &[u8], window: &mut [u8]) -> Option<()> {
    let number =
        |at: usize| packed.get(at..)?.first_chunk().map(|bytes| usize::from(u16::from_le_bytes(*bytes)));
    let count = number(0)?;
    let mut bytes = packed.get(2 + 4 * count..)?;
    let mut at = 0;
    window.fill(0);
    for run in 0..count {
        let (gap, length) = (number(2 + 4 * run)?, number(4 + 4 * run)?);
        let (here, rest) = bytes.split_at_checked(length)?;
        window.get_mut(at + gap..at + gap + length)?.copy_from_slice(here);
        (at, bytes) = (at + gap + length, rest);
    }
    bytes.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::super::inflate::WINDOW;
    use super::*;

    #[test]
    fn the_used_bytes_of_a_window_come_back() {
        let window: Vec<u8> = (0..WINDOW).map(|at| (at % 251) as u8).collect();
        for runs in [vec![], vec![(0, WINDOW)], vec![(3, 4), (100, 200), (WINDOW - 1, WINDOW)]] {
            let packed = pack(&window, &runs);
            let mut back = vec![9; WINDOW];
            unpack(&packed, &mut back).unwrap();
            for (at, byte) in back.iter().enumerate() {
                let used = runs.iter().any(|(first, end)| (*first..*end).contains(&at));
                assert_eq!(*byte, if used { window[at] } else { 0 });
            }
            assert!(unpack(&packed, &mut back[1..]).is_none() || runs.is_empty());
            if !packed.is_empty() {
                assert!(unpack(&packed[..packed.len() - 1], &mut back).is_none());
            }
        }
    }
}
