//! Entries of tables of codes, which have all that decoding needs, so that one look-up and two shifts take a code with all
//! bits that belong to it.

/// The length of the shortest match.
pub(super) const SHORTEST: usize = 3;

/// The most literals of one entry.
pub(super) const MOST_LITERALS: usize = 3;

/// An entry of any table.
pub(super) trait Entry: Copy {
    /// A code without a meaning.
    const NOTHING: Self;

    /// The entry with a code of this length in bits.
    fn with_bits(self, bits: u32) -> Self;

    /// An entry for codes that are longer than the first table has bits: their second table begins here, and has `1 << bits` entries.
    fn second_table(begin: usize, bits: usize) -> Self;
}

/// The meaning of the next bits of literals and lengths: up to three literals, and a match behind them. Where several codes fit into the
/// bits of the table, one entry has them all: most bytes of noisy voxels are single literals, each between two short matches.
///
/// From the lowest bit on: all bits that are taken (8), bits of codes alone (8), a mask of bits that are added to the length (8), the
/// number of literals (4), flags (4), the literals (24), the length less three (8).
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal(u64);

impl Literal {
    const MATCH: u64 = 1 << 28;
    const LONG: u64 = 1 << 29;
    const STOP: u64 = 1 << 30;
    /// The end of a block.
    pub(super) const END: Literal = Literal(Literal::STOP);

    pub(super) fn new(value: u8) -> Literal {
        Literal(u64::from(value) << 32 | 1 << 24)
    }

    /// A match of this length, to which this number of bits is added.
    pub(super) fn length(first: u16, extra: u8) -> Literal {
        let (more, extra) = (u64::from(first) - SHORTEST as u64, u64::from(extra));
        Literal(Literal::MATCH | more << 56 | ((1 << extra) - 1) << 16 | extra)
    }

    /// The entry for this one, of literals alone, followed by the next: not more than [`MOST_LITERALS`].
    pub(super) fn then(self, next: Literal) -> Literal {
        let literals = (next.0 >> 32 & 0xff_ffff) << (8 * self.literals());
        // No field grows beyond its bits, since this has neither flags nor a mask.
        let counts = (self.0 & 0xffff_ffff) + (next.0 & 0xffff_ffff);
        Literal(self.0 >> 32 << 32 | literals << 32 | next.0 >> 56 << 56 | counts)
    }

    /// All bits that are taken, those that are added to the length included.
    pub(super) fn bits(self) -> u32 {
        self.0 as u32 & 0xff
    }

    /// The bits of codes, behind which are those that are added to the length.
    pub(super) fn code_bits(self) -> u32 {
        self.0 as u32 >> 8 & 0xff
    }

    /// The number of literals.
    pub(super) fn literals(self) -> usize {
        (self.0 >> 24) as usize & 0xf
    }

    /// The literals, and behind them what is none.
    pub(super) fn bytes(self) -> [u8; MOST_LITERALS + 1] {
        ((self.0 >> 32) as u32).to_le_bytes()
    }

    pub(super) fn is_match(self) -> bool {
        self.0 & Literal::MATCH != 0
    }

    /// The length of the match, of the bits that this entry is of.
    pub(super) fn length_of(self, bits: u64) -> usize {
        let added = bits >> (self.code_bits() & 63) & (self.0 >> 16 & 0xff);
        (self.0 >> 56) as usize + SHORTEST + added as usize
    }

    /// Returns `true` if it has neither literals nor a match: the code is longer, ends the block, or is none.
    pub(super) fn is_rare(self) -> bool {
        self.0 & (Literal::LONG | Literal::STOP) != 0
    }

    /// Returns `true` if the code continues in a second table.
    pub(super) fn is_long(self) -> bool {
        self.0 & Literal::LONG != 0
    }

    /// Returns `true` if it ends a block.
    pub(super) fn is_end(self) -> bool {
        self.0 & Literal::STOP != 0 && self.0 >> 32 == 0
    }

    /// The position in the second table, of the bits behind the bits of the first.
    pub(super) fn second(self, bits: u64) -> usize {
        (self.0 >> 32) as usize + (bits & self.0 >> 16 & 0xff) as usize
    }
}

impl Entry for Literal {
    const NOTHING: Literal = Literal(Literal::STOP | 1 << 32);

    fn with_bits(self, bits: u32) -> Literal {
        Literal(self.0 + u64::from(bits << 8 | bits))
    }

    fn second_table(begin: usize, bits: usize) -> Literal {
        Literal(Literal::LONG | (begin as u64) << 32 | ((1 << bits) - 1) << 16)
    }
}

/// A distance, or how long a code is.
///
/// From the lowest bit on: all bits that are taken (8), bits of the code alone (8), flags (16), a mask of bits that are added to the value
/// (16), the value (16).
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(u64);

impl Number {
    const LONG: u64 = 1 << 30;
    const STOP: u64 = 1 << 31;

    /// A value, to which this number of bits is added.
    pub(super) fn new(value: u16, extra: u8) -> Number {
        Number(u64::from(value) << 48 | ((1 << extra) - 1) << 32 | u64::from(extra))
    }

    /// All bits that are taken, those that are added to the value included.
    pub(super) fn bits(self) -> u32 {
        self.0 as u32 & 0xff
    }

    /// The number, of the bits that this entry is of.
    pub(super) fn value_of(self, bits: u64) -> usize {
        let added = bits >> (self.0 as u32 >> 8 & 63) & (self.0 >> 32 & 0xffff);
        (self.0 >> 48) as usize + added as usize
    }

    /// Returns `true` if it is no number: the code is longer, or is none.
    pub(super) fn is_rare(self) -> bool {
        self.0 & (Number::LONG | Number::STOP) != 0
    }

    /// Returns `true` if the code continues in a second table.
    pub(super) fn is_long(self) -> bool {
        self.0 & Number::LONG != 0
    }

    /// The position in the second table, of the bits behind the bits of the first.
    pub(super) fn second(self, bits: u64) -> usize {
        (self.0 >> 48) as usize + (bits & self.0 >> 32 & 0xffff) as usize
    }
}

impl Entry for Number {
    const NOTHING: Number = Number(Number::STOP);

    fn with_bits(self, bits: u32) -> Number {
        Number(self.0 + u64::from(bits << 8 | bits))
    }

    fn second_table(begin: usize, bits: usize) -> Number {
        Number(Number::LONG | (begin as u64) << 48 | ((1 << bits) - 1) << 32)
    }
}
