//! Instructions on untyped bits: logic, shifts, fields, permutations, counts.

use super::{Function, binary, quaternary, ternary, unary};
use crate::lanes::low;
use crate::parse::{Opcode, ParseError};
use crate::types::Kind;

/// The mode by which `prmt` selects bytes.
#[derive(Clone, Copy)]
enum Permutation {
    Forward,
    Backward,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

/// The function of an instruction on bits; `opcode` is untouched if it is none.
pub(crate) fn function(opcode: &mut Opcode<'_>) -> Result<Option<Function>, ParseError> {
    Ok(Some(match opcode.name {
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "brev" | "popc" | "clz" | "bfe" | "bfi" => {
            typed(opcode)?
        }
        "bfind" => {
            let shift = opcode.has("shiftamt");
            let kind = opcode.only_type()?;
            find_leading(kind.bits, kind.kind == Kind::Signed, shift)
        }
        "shf" => funnel_shift(opcode)?,
        "prmt" => {
            let mode = opcode.one_of(&[
                ("f4e", Permutation::Forward),
                ("b4e", Permutation::Backward),
                ("rc8", Permutation::Replicate8),
                ("ecl", Permutation::EdgeLeft),
                ("ecr", Permutation::EdgeRight),
                ("rc16", Permutation::Replicate16),
            ]);
            opcode.only_type()?;
            ternary(move |a, b, selector| permute(a, b, selector, mode))
        }
        "lop3" => {
            opcode.only_type()?;
            // The fourth operand is the truth table: bit 4a + 2b + c is the result for bits a, b, c.
            quaternary(|a, b, c, table| {
                let term = |index: u64| {
                    let pick = |bits: u64, bit: u64| if index >> bit & 1 == 1 { bits } else { !bits };
                    if table >> index & 1 == 1 { pick(a, 2) & pick(b, 1) & pick(c, 0) } else { 0 }
                };
                (0..8).fold(0, |sum, index| sum | term(index)) & 0xffff_ffff
            })
        }
        _ => return Ok(None),
    }))
}

fn typed(opcode: &mut Opcode<'_>) -> Result<Function, ParseError> {
    let kind = opcode.only_type()?;
    let bits = kind.bits;
    let mask = low(bits);
    let signed = kind.kind == Kind::Signed;
    Ok(match (opcode.name, bits) {
        ("and", _) => binary(move |a, b| a & b & mask),
        ("or", _) => binary(move |a, b| (a | b) & mask),
        ("xor", _) => binary(move |a, b| (a ^ b) & mask),
        ("not", _) => unary(move |a| !a & mask),
        ("cnot", _) => unary(move |a| u64::from(a & mask == 0)),
        // Amounts are unsigned numbers of 32 bits; beyond the width all bits are shifted out.
        ("shl", 32) => binary(|a, b| u64::from((a as u32).checked_shl(b as u32).unwrap_or(0))),
        ("shl", _) => binary(move |a, b| a.checked_shl(b as u32).unwrap_or(0) & mask),
        ("shr", 32) if signed => binary(|a, b| u64::from((a as i32 >> (b as u32).min(31)) as u32)),
        ("shr", 16) if signed => binary(|a, b| u64::from((a as i16 >> (b as u32).min(15)) as u16)),
        ("shr", 64) if signed => binary(|a, b| (a as i64 >> (b as u32).min(63)) as u64),
        ("shr", 32) => binary(|a, b| u64::from((a as u32).checked_shr(b as u32).unwrap_or(0))),
        ("shr", _) if !signed => binary(move |a, b| (a & mask).checked_shr(b as u32).unwrap_or(0)),
        ("brev", 32) => unary(|a| u64::from((a as u32).reverse_bits())),
        ("brev", 64) => unary(u64::reverse_bits),
        ("popc", _) => unary(move |a| u64::from((a & mask).count_ones())),
        ("clz", 32) => unary(|a| u64::from((a as u32).leading_zeros())),
        ("clz", 64) => unary(|a| u64::from(a.leading_zeros())),
        ("bfe", 32 | 64) => ternary(move |a, start, length| extract(a & mask, start, length, bits, signed)),
        ("bfi", 32 | 64) => quaternary(move |a, b, start, length| {
            let start = (start & 0xff) as u32;
            let field = low((length & 0xff).min(64) as u32).checked_shl(start).unwrap_or(0);
            ((b & !field) | (a.checked_shl(start).unwrap_or(0) & field)) & mask
        }),
        _ => return Err(opcode.unknown()),
    })
}

fn extract(value: u64, start: u64, length: u64, bits: u32, signed: bool) -> u64 {
    let (start, length) = ((start & 0xff) as u32, (length & 0xff) as u32);
    if length == 0 {
        return 0;
    }
    // Beyond the field a signed one continues with its last bit, or with the register's last bit if it reaches beyond it.
    let sign = signed && value >> (start + length - 1).min(bits - 1) & 1 == 1;
    let present = bits.saturating_sub(start).min(length);
    let field = value.checked_shr(start).unwrap_or(0) & low(present);
    let above = if sign { low(bits) & !low(present) } else { 0 };
    field | above
}

/// Index of the highest bit that differs from the sign, or the distance of it from the top; all ones if there is none.
fn find_leading(bits: u32, signed: bool, shift: bool) -> Function {
    unary(move |a| {
        let a = a & low(bits);
        let a = if signed && a >> (bits - 1) & 1 == 1 { !a & low(bits) } else { a };
        if a == 0 {
            return 0xffff_ffff;
        }
        let at = 63 - u64::from(a.leading_zeros());
        if shift { u64::from(bits) - 1 - at } else { at }
    })
}

fn funnel_shift(opcode: &mut Opcode<'_>) -> Result<Function, ParseError> {
    let left = opcode.choice(&[("l", true), ("r", false)])?;
    let clamp = opcode.choice(&[("clamp", true), ("wrap", false)])?;
    opcode.only_type()?;
    Ok(ternary(move |a, b, amount| {
        let amount = amount & 0xffff_ffff;
        let amount = if clamp { amount.min(32) } else { amount & 31 };
        let both = (b & 0xffff_ffff) << 32 | (a & 0xffff_ffff);
        let shifted = if left { (both << amount) >> 32 } else { both >> amount };
        shifted & 0xffff_ffff
    }))
}

fn permute(a: u64, b: u64, selector: u64, mode: Option<Permutation>) -> u64 {
    let bytes = (b & 0xffff_ffff) << 32 | (a & 0xffff_ffff);
    let byte = |index: u64| bytes >> (8 * (index & 7)) & 0xff;
    let start = selector & 3;
    (0..4).fold(0, |word, at: u64| {
        let chosen = match mode {
            None => {
                let nibble = selector >> (4 * at) & 0xf;
                let chosen = byte(nibble);
                // With its top bit set a selector replicates the sign of the byte.
                if nibble & 8 == 0 {
                    chosen
                } else if chosen & 0x80 == 0 {
                    0
                } else {
                    0xff
                }
            }
            Some(Permutation::Forward) => byte(start + at),
            Some(Permutation::Backward) => byte((start + 8 - at) & 7),
            Some(Permutation::Replicate8) => byte(start),
            Some(Permutation::EdgeLeft) => byte(at.max(start)),
            Some(Permutation::EdgeRight) => byte(at.min(start)),
            Some(Permutation::Replicate16) => byte((start & 1) * 2 + (at & 1)),
        };
        word | chosen << (8 * at)
    })
}
