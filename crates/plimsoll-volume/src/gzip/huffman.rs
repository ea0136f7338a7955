//! Huffman codes of deflate, as tables that a few bits are looked up in (RFC 1951, section 3.2).
//!
//! A code that is not longer than the table's bits is found at once, a longer one in a second table that the first leads to.

use std::io;

use super::entry::{Entry, Literal, MOST_LITERALS, Number};
use super::input::BitInput;

/// The longest code.
const LONGEST: usize = 15;

/// Lengths of matches: (first length, extra bits) of the codes from 257 on.
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// Distances of matches: (first distance, extra bits) of the codes from 0 on.
const DISTANCES: [(u16, u8); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

fn literal_or_length(symbol: usize) -> Literal {
    match symbol {
        // Below 256 there is no other bit.
        0..256 => Literal::new(symbol as u8),
        256 => Literal::END,
        _ => LENGTHS
            .get(symbol - 257)
            .map_or(Literal::NOTHING, |(first, extra)| Literal::length(*first, *extra)),
    }
}

fn distance(symbol: usize) -> Number {
    DISTANCES.get(symbol).map_or(Number::NOTHING, |(first, extra)| Number::new(*first, *extra))
}

/// The tables of a code: `1 << BITS` entries, and behind them the second tables. `SIZE` is a power of two.
pub(super) struct Table<E, const BITS: u32, const SIZE: usize> {
    entries: Box<[E]>,
}

/// Bits of the first table of literals and lengths: a literal of noisy voxels and the length behind it fit into them.
pub(super) const LITERAL_BITS: u32 = 12;
/// Bits of the first table of distances.
pub(super) const DISTANCE_BITS: u32 = 9;

/// The table of literals and lengths: at most 143 second tables of 8 entries.
pub(super) type Literals = Table<Literal, LITERAL_BITS, 8192>;
/// The table of distances: at most 15 second tables of 64 entries.
pub(super) type Distances = Table<Number, DISTANCE_BITS, 2048>;
/// The table of the lengths of these codes, which have 7 bits at most.
pub(super) type CodeLengths = Table<Number, 7, 128>;

impl<E: Entry, const BITS: u32, const SIZE: usize> Table<E, BITS, SIZE> {
    pub(super) fn new() -> Self {
        Table { entries: vec![E::NOTHING; SIZE].into_boxed_slice() }
    }

    /// The entries, as an array whose indices are known to be within it.
    pub(super) fn view(&self) -> Option<&[E; SIZE]> {
        self.entries.first_chunk()
    }

    /// The entry of the next bits in the first table.
    pub(super) fn first(entries: &[E; SIZE], bits: u64) -> E {
        entries[bits as usize & ((1 << BITS) - 1)]
    }

    /// Fills the tables for codes of these lengths, by symbol; 0 for symbols that do not occur.
    fn fill(&mut self, lengths: &[u8], meaning: impl Fn(usize) -> E) -> io::Result<()> {
        let mut counts = [0u32; LONGEST + 1];
        lengths.iter().for_each(|length| counts[usize::from(*length)] += 1);
        counts[0] = 0;
        let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let mut left = 1i64;
        let mut next = [0u32; LONGEST + 2];
        for length in 1..=LONGEST {
            left = 2 * left - i64::from(counts[length]);
            if left < 0 {
                return Err(invalid("contradictory codes"));
            }
            next[length + 1] = (next[length] + counts[length]) << 1;
        }
        if left > 0 {
            // A code with one symbol, or none, may be incomplete (as zlib has it).
            if longest > 1 || BITS == 7 {
                return Err(invalid("an incomplete code"));
            }
            self.entries[..1 << BITS].fill(E::NOTHING.with_bits(1));
        }
        let root = BITS as usize;
        let behind = longest.saturating_sub(root);
        let mut end = 1 << root;
        let mut begun = [0u16; 1 << LITERAL_BITS];
        for (symbol, length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            let bits = usize::from(*length);
            let code = next[bits];
            next[bits] += 1;
            let reversed = (code.reverse_bits() >> (32 - bits)) as usize;
            let entry = meaning(symbol).with_bits(u32::from(*length));
            if bits <= root {
                self.entries[reversed..1 << root].iter_mut().step_by(1 << bits).for_each(|at| *at = entry);
                continue;
            }
            let prefix = reversed & ((1 << root) - 1);
            if begun[prefix] == 0 {
                begun[prefix] = end as u16;
                self.entries[prefix] = E::second_table(end, behind);
                end += 1 << behind;
            }
            let begin = usize::from(begun[prefix]);
            let table = &mut self.entries[begin..begin + (1 << behind)];
            table[reversed >> root..].iter_mut().step_by(1 << (bits - root)).for_each(|at| *at = entry);
        }
        Ok(())
    }
}

impl Literals {
    /// For codes of these lengths.
    pub(super) fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.fill(lengths, literal_or_length)?;
        // From behind, since the entries of what follows are before, which must be single still.
        for at in (0..1usize << LITERAL_BITS).rev() {
            let mut entry = self.entries[at];
            while !entry.is_rare() && !entry.is_match() && entry.literals() < MOST_LITERALS {
                let next = self.entries[at >> entry.bits()];
                if next.is_rare() || entry.bits() + next.code_bits() > LITERAL_BITS {
                    break;
                }
                entry = entry.then(next);
            }
            self.entries[at] = entry;
        }
        Ok(())
    }

    /// The entry in the second table that an entry leads to.
    pub(super) fn second(entries: &[Literal; 8192], entry: Literal, bits: u64) -> Literal {
        entries[entry.second(bits >> LITERAL_BITS) % entries.len()]
    }
}

impl Distances {
    /// For codes of these lengths.
    pub(super) fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.fill(lengths, distance)
    }

    /// The entry in the second table that an entry leads to.
    pub(super) fn second(entries: &[Number; 2048], entry: Number, bits: u64) -> Number {
        entries[entry.second(bits >> DISTANCE_BITS) % entries.len()]
    }
}

impl CodeLengths {
    /// For codes of these lengths.
    pub(super) fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.fill(lengths, |symbol| Number::new(symbol as u16, 0))
    }

    /// The next symbol.
    pub(super) fn next(&self, input: &mut BitInput) -> io::Result<usize> {
        input.ensure()?;
        let entry = self.entries[input.bits as usize % self.entries.len()];
        let symbol = entry.value_of(input.bits);
        input.take(entry.bits())?;
        Ok(symbol)
    }
}

pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
