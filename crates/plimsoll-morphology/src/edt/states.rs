//! The states of pieces between the passes, in two bits each.

use std::iter;
use std::ops::Range;

/// The state of a piece, a row of a tile, between the passes. Pieces that are all zero are final; those that are all +∞
/// are only written by the last pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Zero,
    /// Finite values.
    Mixed,
    Infinite,
    /// Finite values of voxels with several labels beside the background.
    Several,
}

/// The states of a byte.
const PER_BYTE: usize = 4;

/// The bits of a state.
const BITS: u8 = 0b11;

impl State {
    fn bits(self) -> u8 {
        match self {
            State::Zero => 0b00,
            State::Mixed => 0b01,
            State::Infinite => 0b10,
            State::Several => 0b11,
        }
    }

    fn from_bits(bits: u8) -> State {
        match bits & BITS {
            0b00 => State::Zero,
            0b01 => State::Mixed,
            0b10 => State::Infinite,
            _ => State::Several,
        }
    }
}

/// The bytes that the states of `pieces` pieces of a row take. A byte belongs to one row alone.
pub(super) fn bytes(pieces: usize) -> usize {
    pieces.div_ceil(PER_BYTE)
}

/// The state of a piece of a row.
#[inline(always)]
pub(super) fn get(row: &[u8], piece: usize) -> State {
    State::from_bits(row[piece / PER_BYTE] >> (2 * (piece % PER_BYTE)))
}

/// Sets the state of a piece of a row.
#[inline(always)]
pub(super) fn set(row: &mut [u8], piece: usize, state: State) {
    let shift = 2 * (piece % PER_BYTE);
    let byte = &mut row[piece / PER_BYTE];
    *byte = *byte & !(BITS << shift) | state.bits() << shift;
}

/// The pieces of a row that are not zero, with their states, among the pieces of some tiles.
#[inline(always)]
pub(super) fn busy(row: &[u8], tiles: Range<usize>) -> impl Iterator<Item = (usize, State)> {
    let (first, end) = (tiles.start / PER_BYTE, bytes(tiles.end));
    row[first..end].iter().enumerate().flat_map(move |(at, byte)| {
        let mut byte = *byte;
        iter::from_fn(move || {
            let shift = if byte == 0 { return None } else { byte.trailing_zeros() & !1 };
            let state = State::from_bits(byte >> shift);
            byte &= !(BITS << shift);
            Some(((first + at) * PER_BYTE + shift as usize / 2, state))
        })
        .filter({
            let tiles = tiles.clone();
            move |(tile, _)| tiles.contains(tile)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_were_set() {
        let all = [State::Several, State::Zero, State::Infinite, State::Mixed];
        let expected: Vec<State> = (0..11).map(|piece| all[piece * 7 / 3 % 4]).collect();
        let mut row = vec![0; bytes(expected.len())];
        assert_eq!(row.len(), 3);
        for state in all {
            (0..expected.len()).for_each(|piece| set(&mut row, piece, state));
            assert!((0..expected.len()).all(|piece| get(&row, piece) == state));
        }
        expected.iter().enumerate().for_each(|(piece, state)| set(&mut row, piece, *state));
        for tiles in [0..11, 3..9, 4..5, 10..11, 5..5] {
            let busy: Vec<_> = busy(&row, tiles.clone()).collect();
            let not_zero = tiles.map(|piece| (piece, expected[piece]));
            assert_eq!(busy, not_zero.filter(|(_, state)| *state != State::Zero).collect::<Vec<_>>());
        }
    }
}
