//! Decoding where nothing is rare: turns of a few literals and a match, with all state in registers.

use super::entry::{Literal, Number};
use super::huffman::{DISTANCE_BITS, Distances, LITERAL_BITS, Literals};

/// Bytes of a copy that are written at once.
const STEP: usize = 16;

/// The most that one turn writes: three literals, a match, and what copying it in steps writes more.
pub(super) const TURN: usize = 4 + 258 + STEP;

/// Bits that are at hand when a turn begins.
const AT_HAND: u32 = 56;

// What is left of them when the longest turn has ended is enough to look up the next one: a turn takes codes of the first tables alone, with up to 5
// and 13 bits that are added.
const _: () = assert!(LITERAL_BITS + 5 + DISTANCE_BITS + 13 + LITERAL_BITS <= AT_HAND);

/// The state of decoding between two turns.
pub(super) struct Turns {
    /// The next bits, as in [`BitInput`](super::input::BitInput), and how many of them.
    pub(super) bits: u64,
    pub(super) count: u32,
    /// The byte of the input that goes into them next.
    pub(super) at: usize,
    /// The end of the decompressed bytes.
    pub(super) end: usize,
}

/// The tables of the codes of a block.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) literals: &'a [Literal; 8192],
    pub(super) distances: &'a [Number; 2048],
}

impl Turns {
    /// Takes turns until there are bytes up to `until` or a few more, fewer than 8 bytes of the input are left, or what comes next is rare: a
    /// long code, the end of the block, an error, or a match from before `lowest`, which is not behind the end.
    #[inline(never)]
    pub(super) fn run(
        &mut self,
        tables: Tables<'_>,
        input: &[u8],
        out: &mut [u8],
        until: usize,
        lowest: usize,
    ) {
        let Tables { literals, distances } = tables;
        let Turns { mut bits, mut count, mut at, mut end } = *self;
        let until = until.min(out.len().saturating_sub(TURN));
        let load = |bits: &mut u64, count: &mut u32, at: &mut usize| {
            let word = input.get(*at..)?.first_chunk()?;
            *bits |= u64::from_le_bytes(*word) << *count;
            *at += ((63 ^ *count) >> 3) as usize;
            *count |= AT_HAND;
            Some(())
        };
        if load(&mut bits, &mut count, &mut at).is_none() {
            return;
        }
        // Each turn looks up the entry of the next before bits are loaded for that, so that neither waits for the other.
        let mut entry = Literals::first(literals, bits);
        while end < until && load(&mut bits, &mut count, &mut at).is_some() && !entry.is_rare() {
            let bytes = entry.bytes();
            out[end..end + bytes.len()].copy_from_slice(&bytes);
            let behind = bits >> (entry.bits() & 63);
            let begin = end + entry.literals();
            if !entry.is_match() {
                (bits, count, end) = (behind, count - entry.bits(), begin);
                entry = Literals::first(literals, bits);
                continue;
            }
            let further = Distances::first(distances, behind);
            if further.is_rare() {
                break;
            }
            let length = entry.length_of(bits);
            let distance = further.value_of(behind);
            if distance > begin.wrapping_sub(lowest) {
                break;
            }
            (bits, count) = (behind >> (further.bits() & 63), count - entry.bits() - further.bits());
            entry = Literals::first(literals, bits);
            copy(out, begin - distance, begin, length);
            end = begin + length;
        }
        *self = Turns { bits, count, at, end };
    }
}

/// Copies `length` bytes from `source` on to `end` on, one after the other, of which the first may be among the last. Up to 15 bytes more
/// are written.
#[inline(always)]
pub(super) fn copy(out: &mut [u8], source: usize, end: usize, length: usize) {
    if end - source < STEP {
        return copy_near(out, source, end, length);
    }
    let mut copied = 0;
    let mut step = |copied: usize| {
        let read = out[source + copied..].first_chunk::<STEP>().copied();
        read.map(|step| out[end + copied..end + copied + STEP].copy_from_slice(&step))
    };
    // Most matches are shorter.
    if step(0).is_some() && length > STEP {
        copied += STEP;
        while copied < length && step(copied).is_some() {
            copied += STEP;
        }
    }
}

/// Copies like [`copy`], where a step would read what it writes.
#[inline(never)]
fn copy_near(out: &mut [u8], source: usize, end: usize, length: usize) {
    let distance = end - source;
    if distance == 1 {
        let byte = out[source];
        return out[end..end + length].fill(byte);
    }
    // Repeated until a step fits between what is read and what is written.
    let repeated = distance * STEP.div_ceil(distance);
    for at in 0..length.min(repeated) {
        out[end + at] = out[source + at];
    }
    if length > repeated {
        copy(out, source, end + repeated, length - repeated);
    }
}
