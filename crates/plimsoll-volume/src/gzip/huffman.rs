//! Huffman codes of deflate, as tables that a few bits are looked up in (RFC 1951, section 3.2).
//!
//! A code that is not longer than the table's bits is found at once, a longer one in a second table that the first leads to. Where
//! the codes of two literals fit together, one entry has both: most bytes of noisy voxels are literals.

use std::io;

use super::input::BitInput;

/// The longest code.
const LONGEST: usize = 15;

/// One entry of a table: how many bits its codes have, and what they stand for.
#[derive(Clone, Copy)]
pub(super) struct Entry(u32);

impl Entry {
    const LITERAL: u32 = 1 << 15;
    const PAIR: u32 = 1 << 14;
    const LONG: u32 = 1 << 13;
    const STOP: u32 = 1 << 12;
    /// A code that stands for nothing.
    const INVALID: Entry = Entry(Entry::STOP | 1 << 16);
    /// The end of a block.
    const END: Entry = Entry(Entry::STOP);

    fn new(value: u32, extra: u32) -> Entry {
        Entry(value << 16 | extra << 8)
    }

    fn with_bits(self, bits: u32) -> Entry {
        Entry(self.0 | bits)
    }

    /// The bits of the code, or of both.
    pub(super) fn bits(self) -> u32 {
        self.0 & 0x1f
    }

    /// The bits behind the code that are added to the value.
    pub(super) fn extra(self) -> u32 {
        self.0 >> 8 & 0xf
    }

    /// A length, a distance, or where the second table begins.
    pub(super) fn value(self) -> u32 {
        self.0 >> 16
    }

    pub(super) fn is_literal(self) -> bool {
        self.0 & Entry::LITERAL != 0
    }

    /// The literal, and a second one if there are two.
    pub(super) fn literals(self) -> ([u8; 2], usize) {
        let [.., first, second] = self.0.to_le_bytes();
        ([first, second], 1 + (self.0 & Entry::PAIR != 0) as usize)
    }

    /// Whether the code is longer, and goes on in a second table.
    pub(super) fn is_long(self) -> bool {
        self.0 & Entry::LONG != 0
    }

    /// Whether it is neither a literal nor a length or distance.
    pub(super) fn is_stop(self) -> bool {
        self.0 & Entry::STOP != 0
    }

    pub(super) fn is_end(self) -> bool {
        self.is_stop() && self.value() == 0
    }
}

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

fn literal_or_length(symbol: usize) -> Entry {
    match symbol {
        // Below 256 there is no other bit.
        0..256 => Entry(Entry::LITERAL | (symbol as u32) << 16),
        256 => Entry::END,
        _ => LENGTHS
            .get(symbol - 257)
            .map_or(Entry::INVALID, |(first, extra)| Entry::new(u32::from(*first), u32::from(*extra))),
    }
}

fn distance(symbol: usize) -> Entry {
    let known = DISTANCES.get(symbol);
    known.map_or(Entry::INVALID, |(first, extra)| Entry::new(u32::from(*first), u32::from(*extra)))
}

/// The tables of a code: `1 << BITS` entries, and behind them the second tables. `SIZE` is a power of two.
pub(super) struct Table<const BITS: u32, const SIZE: usize> {
    entries: Box<[Entry]>,
}

/// Of literals and lengths: at most 143 second tables of 16 entries.
pub(super) type Literals = Table<11, 8192>;
/// Of distances: at most 15 second tables of 128 entries.
pub(super) type Distances = Table<8, 4096>;
/// Of the lengths of these codes, which have 7 bits at most.
pub(super) type CodeLengths = Table<7, 128>;

impl<const BITS: u32, const SIZE: usize> Table<BITS, SIZE> {
    pub(super) fn new() -> Self {
        Table { entries: vec![Entry::INVALID; SIZE].into_boxed_slice() }
    }

    /// The entries, as an array whose indices are known to be within it.
    pub(super) fn view(&self) -> Option<&[Entry; SIZE]> {
        self.entries.first_chunk()
    }

    /// The entry of the next bits in the first table.
    pub(super) fn first(entries: &[Entry; SIZE], bits: u64) -> Entry {
        entries[bits as usize & ((1 << BITS) - 1)]
    }

    /// The entry in the second table that an entry leads to.
    pub(super) fn second(entries: &[Entry; SIZE], entry: Entry, bits: u64) -> Entry {
        let place = (bits >> BITS) as usize & ((1 << entry.extra()) - 1);
        entries[(entry.value() as usize + place) % SIZE]
    }

    /// Fills the tables for codes of these lengths, by symbol; 0 for symbols that do not occur.
    fn fill(&mut self, lengths: &[u8], meaning: impl Fn(usize) -> Entry) -> io::Result<()> {
        let mut counts = [0u32; LONGEST + 1];
        lengths.iter().for_each(|length| counts[usize::from(*length)] += 1);
        counts[0] = 0;
        let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let mut left = 1i64;
        let mut next = [0u32; LONGEST + 2];
        for length in 1..=LONGEST {
            left = 2 * left - i64::from(counts[length]);
            if left < 0 {
                return Err(invalid("codes that exclude each other"));
            }
            next[length + 1] = (next[length] + counts[length]) << 1;
        }
        if left > 0 {
            // A code with one symbol, or none, may be incomplete (as zlib has it).
            if longest > 1 || BITS == 7 {
                return Err(invalid("an incomplete code"));
            }
            self.entries[..1 << BITS].fill(Entry::INVALID.with_bits(1));
        }
        let root = BITS as usize;
        let behind = longest.saturating_sub(root);
        let mut end = 1 << root;
        let mut begun = [0u16; 1 << 11];
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
                self.entries[prefix] = Entry(Entry::new(end as u32, behind as u32).0 | Entry::LONG);
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
        // From behind, since the entry of what follows is one before, which must be single still.
        for at in (0..1usize << 11).rev() {
            let first = self.entries[at];
            if !first.is_literal() {
                continue;
            }
            let second = self.entries[at >> first.bits()];
            let bits = first.bits() + second.bits();
            if second.is_literal() && bits <= 11 {
                let literals = first.value() | second.value() << 8;
                self.entries[at] = Entry(Entry::LITERAL | Entry::PAIR | literals << 16 | bits);
            }
        }
        Ok(())
    }
}

impl Distances {
    /// For codes of these lengths.
    pub(super) fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.fill(lengths, distance)
    }
}

impl CodeLengths {
    /// For codes of these lengths.
    pub(super) fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.fill(lengths, |symbol| Entry::new(symbol as u32, 0))
    }

    /// The next symbol.
    pub(super) fn next(&self, input: &mut BitInput) -> io::Result<u32> {
        input.ensure()?;
        let entry = self.entries[input.bits as usize % self.entries.len()];
        input.take(entry.bits())?;
        Ok(entry.value())
    }
}

pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
