//! Decompressing deflate (RFC 1951), a piece at a time, so that it can begin and end between any two blocks.

use std::io;

use plimsoll_disk::File;

use super::huffman::{CodeLengths, Distances, Literals, invalid};
use super::input::BitInput;
use super::marks::Marks;
use super::turns::{TURN, Tables, Turns, copy};

/// The farthest that matches reach back.
pub(super) const WINDOW: usize = 32 << 10;

/// Bytes that are decompressed behind the window before it is moved.
const AHEAD: usize = 96 << 10;

/// The order in which lengths of the codes of lengths are stored.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The state of the next bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// The header of a block, which may be the last.
    Header,
    /// This number of bytes without compression.
    Stored(usize),
    /// Codes.
    Coded,
    /// Nothing: the last block has ended.
    None,
}

/// The reason for a stop of the decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// All requested bytes are decompressed.
    Enough,
    /// A block has ended that is not the last.
    Boundary,
    /// The last block has ended.
    End,
}

/// A decompressor with its window.
pub(super) struct Inflater {
    pub(super) input: BitInput,
    literals: Literals,
    distances: Distances,
    code_lengths: CodeLengths,
    /// Tells whether the tables hold the fixed codes.
    is_fixed: bool,
    /// The window, and what was decompressed behind it.
    out: Box<[u8]>,
    /// The end of the decompressed bytes.
    end: usize,
    /// Before which no match reaches.
    floor: usize,
    block: Block,
    is_last: bool,
    /// The bytes of the window at an access point that are used behind it.
    pub(super) marks: Marks,
}

impl Inflater {
    pub(super) fn new(file: File) -> Inflater {
        Inflater {
            input: BitInput::new(file),
            literals: Literals::new(),
            distances: Distances::new(),
            code_lengths: CodeLengths::new(),
            is_fixed: false,
            out: vec![0; WINDOW + AHEAD + TURN].into_boxed_slice(),
            end: 0,
            floor: 0,
            block: Block::None,
            is_last: true,
            marks: Marks::default(),
        }
    }

    /// Begins with the first block of a stream, before which nothing is known.
    pub(super) fn begin(&mut self) {
        (self.block, self.is_last) = (Block::Header, false);
        self.floor = self.end;
    }

    /// Begins with a block that `window` bytes precede, which are written here.
    pub(super) fn begin_behind(&mut self, window: usize) -> &mut [u8] {
        (self.block, self.is_last) = (Block::Header, false);
        (self.floor, self.end) = (0, window);
        &mut self.out[..window]
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        (self.block, self.is_last, self.floor, self.end) = (Block::None, true, 0, 0);
    }

    /// The end of the decompressed bytes among those that are [`kept`](Self::kept).
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// The decompressed bytes that are still there.
    pub(super) fn kept(&self) -> &[u8] {
        &self.out[..self.end]
    }

    /// The bytes that matches behind this point may copy: up to a window of decompressed bytes.
    pub(super) fn window(&self) -> &[u8] {
        &self.out[self.floor.max(self.end.saturating_sub(WINDOW))..self.end]
    }

    /// Returns `true` if a block begins here.
    pub(super) fn is_between_blocks(&self) -> bool {
        self.block == Block::Header && !self.is_last
    }

    /// Drops all but a window of what was decompressed, if there would be no room for more. Returns how many bytes were dropped.
    pub(super) fn make_room(&mut self) -> usize {
        if self.end + TURN < self.out.len() {
            return 0;
        }
        let dropped = self.end - WINDOW;
        self.out.copy_within(dropped..self.end, 0);
        self.end = WINDOW;
        self.floor = self.floor.saturating_sub(dropped);
        self.marks.moved(dropped);
        dropped
    }

    /// Decompresses until `wanted` more bytes are there, or as many as there is room for, or a block ends. There may be a few more bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, ends, or is not deflate. The bytes that were decompressed before
    /// are available.
    pub(super) fn inflate(&mut self, wanted: usize) -> io::Result<Stop> {
        let until = self.end.saturating_add(wanted).min(self.out.len() - TURN);
        while self.end < until {
            match self.block {
                Block::None => return Ok(Stop::End),
                Block::Header => self.header()?,
                Block::Stored(0) => self.block = Block::Header,
                Block::Stored(left) => {
                    let most = left.min(until - self.end);
                    let count = self.input.copy(&mut self.out[self.end..self.end + most])?;
                    self.end += count;
                    self.block = Block::Stored(left - count);
                    if left > count {
                        continue;
                    }
                    self.block = Block::Header;
                }
                Block::Coded => {
                    if !self.coded(until)? {
                        return Ok(Stop::Enough);
                    }
                    self.block = Block::Header;
                }
            }
            if self.block == Block::Header {
                if self.is_last {
                    self.block = Block::None;
                    return Ok(Stop::End);
                }
                return Ok(Stop::Boundary);
            }
        }
        Ok(Stop::Enough)
    }

    /// Reads the header of a block, and the tables of its codes.
    fn header(&mut self) -> io::Result<()> {
        self.is_last = self.input.take(1)? == 1;
        self.block = match self.input.take(2)? {
            0 => {
                self.input.align();
                let (length, complement) = (self.input.take(16)?, self.input.take(16)?);
                if length != !complement & 0xffff {
                    return Err(invalid("a stored block with two lengths"));
                }
                Block::Stored(length as usize)
            }
            1 => {
                self.fixed_codes()?;
                Block::Coded
            }
            2 => {
                self.is_fixed = false;
                self.codes()?;
                Block::Coded
            }
            _ => return Err(invalid("a block of an unknown kind")),
        };
        Ok(())
    }

    /// Takes the codes that need not be said (RFC 1951, section 3.2.6).
    fn fixed_codes(&mut self) -> io::Result<()> {
        if !self.is_fixed {
            let lengths: [u8; 288] = std::array::from_fn(|symbol| match symbol {
                0..144 => 8,
                144..256 => 9,
                256..280 => 7,
                _ => 8,
            });
            self.literals.set(&lengths)?;
            self.distances.set(&[5; 32])?;
            self.is_fixed = true;
        }
        Ok(())
    }

    /// Reads the codes of a block.
    fn codes(&mut self) -> io::Result<()> {
        let literals = self.input.take(5)? as usize + 257;
        let distances = self.input.take(5)? as usize + 1;
        let count = self.input.take(4)? as usize + 4;
        if literals > 286 || distances > 30 {
            return Err(invalid("more codes than symbols"));
        }
        let mut of_lengths = [0u8; ORDER.len()];
        for symbol in &ORDER[..count] {
            of_lengths[*symbol] = self.input.take(3)? as u8;
        }
        self.code_lengths.set(&of_lengths)?;
        let mut lengths = [0u8; 286 + 30];
        let all = literals + distances;
        let mut at = 0;
        while at < all {
            // The longest code is 7 bits; of fewer behind the end of the file, too many would be taken.
            let entry = self.code_lengths.next(&mut self.input)?;
            let (length, times) = match entry {
                length @ 0..16 => (length as u8, 1),
                16 if at == 0 => return Err(invalid("the first code length repeats a previous one")),
                16 => (lengths[at - 1], 3 + self.input.take(2)? as usize),
                17 => (0, 3 + self.input.take(3)? as usize),
                _ => (0, 11 + self.input.take(7)? as usize),
            };
            if at + times > all {
                return Err(invalid("too many code lengths"));
            }
            lengths[at..at + times].fill(length);
            at += times;
        }
        if lengths[256] == 0 {
            return Err(invalid("a block without an end"));
        }
        self.literals.set(&lengths[..literals])?;
        self.distances.set(&lengths[literals..all])
    }

    /// Decompresses codes until there are bytes up to `until` or a few more. `true` at the end of the block.
    fn coded(&mut self, until: usize) -> io::Result<bool> {
        let (Some(literals), Some(distances)) = (self.literals.view(), self.distances.view()) else {
            return Err(io::Error::other("tables of codes have another size"));
        };
        let (input, out) = (&mut self.input, &mut *self.out);
        while self.end < until {
            if input.at + 2 * size_of::<u64>() > input.limit() {
                input.load()?;
            }
            let mut turns = Turns { bits: input.bits, count: input.count, at: input.at, end: self.end };
            let lowest = self.floor.max(self.marks.below());
            turns.run(Tables { literals, distances }, input.file_bytes(), out, until, lowest);
            let Turns { bits, count, at, end } = turns;
            (input.bits, input.count, input.at, self.end) = (bits, count, at, end);
            if self.end >= until {
                break;
            }
            // One turn of everything that is rare: codes that are long, stand for nothing, or are behind the end of the file, where zeros
            // are; matches of the window before an access point; the end of the block.
            input.ensure()?;
            let mut entry = Literals::first(literals, input.bits);
            if entry.is_long() {
                entry = Literals::second(literals, entry, input.bits);
            }
            if entry.is_rare() {
                let is_end = entry.is_end();
                input.take(entry.bits())?;
                return if is_end { Ok(true) } else { Err(invalid("an invalid code")) };
            }
            let length = if entry.is_match() { entry.length_of(input.bits) } else { 0 };
            input.take(entry.bits())?;
            let begin = self.end + entry.literals();
            let bytes = entry.bytes();
            out[self.end..self.end + bytes.len()].copy_from_slice(&bytes);
            if length > 0 {
                input.ensure()?;
                let mut entry = Distances::first(distances, input.bits);
                if entry.is_long() {
                    entry = Distances::second(distances, entry, input.bits);
                }
                if entry.is_rare() {
                    input.take(entry.bits())?;
                    return Err(invalid("an invalid distance"));
                }
                let distance = entry.value_of(input.bits);
                input.take(entry.bits())?;
                if distance > begin - self.floor {
                    return Err(invalid("a distance beyond the first byte"));
                }
                let source = begin - distance;
                if source < self.marks.below() {
                    self.marks.mark(source, length);
                }
                copy(out, source, begin, length);
            }
            self.end = begin + length;
        }
        Ok(false)
    }
}
