//! Integer arithmetic of 16, 32 and 64 bits.

use super::{Function, binary, ternary, unary};
use crate::parse::{Opcode, ParseError};
use crate::types::{Kind, Type};

/// An integer type of the host that represents one of PTX.
pub(crate) trait Whole: Copy + 'static {
    /// The low bits of a register.
    fn from_bits(bits: u64) -> Self;
    /// Its bits, with zeros above.
    fn bits(self) -> u64;
}

macro_rules! whole {
    ($($kind:ty, $unsigned:ty;)*) => {$(
        impl Whole for $kind {
            fn from_bits(bits: u64) -> Self {
                bits as $kind
            }
            fn bits(self) -> u64 {
                self as $unsigned as u64
            }
        }
    )*};
}
whole! {
    i8, u8; u8, u8;
    i16, u16; u16, u16;
    i32, u32; u32, u32;
    i64, u64; u64, u64;
}

fn one<T: Whole>(function: impl Fn(T) -> T + Send + Sync + 'static) -> Function {
    unary(move |a| function(T::from_bits(a)).bits())
}

fn two<T: Whole>(function: impl Fn(T, T) -> T + Send + Sync + 'static) -> Function {
    binary(move |a, b| function(T::from_bits(a), T::from_bits(b)).bits())
}

fn three<T: Whole>(function: impl Fn(T, T, T) -> T + Send + Sync + 'static) -> Function {
    ternary(move |a, b, c| function(T::from_bits(a), T::from_bits(b), T::from_bits(c)).bits())
}

/// Writes the expression for the host's type of each integer type.
macro_rules! for_type {
    ($kind:expr, $T:ident => $function:expr) => {
        match ($kind.kind, $kind.bits) {
            (Kind::Signed, 16) => {
                type $T = i16;
                Some($function)
            }
            (Kind::Signed, 32) => {
                type $T = i32;
                Some($function)
            }
            (Kind::Signed, 64) => {
                type $T = i64;
                Some($function)
            }
            (Kind::Unsigned | Kind::Bits, 16) => {
                type $T = u16;
                Some($function)
            }
            (Kind::Unsigned | Kind::Bits, 32) => {
                type $T = u32;
                Some($function)
            }
            (Kind::Unsigned | Kind::Bits, 64) => {
                type $T = u64;
                Some($function)
            }
            _ => None,
        }
    };
}

/// The part of a product that is kept.
#[derive(Clone, Copy)]
enum Part {
    Low,
    High,
    Whole,
}

const PARTS: [(&str, Part); 3] = [("lo", Part::Low), ("hi", Part::High), ("wide", Part::Whole)];

/// The function of an integer instruction.
pub(crate) fn function(opcode: &mut Opcode<'_>, kind: Type) -> Result<Option<Function>, ParseError> {
    let signed = kind.kind == Kind::Signed;
    let name = opcode.name;
    Ok(match name {
        "add" | "sub" if opcode.has("sat") => match (opcode.name, kind.kind, kind.bits) {
            ("add", Kind::Signed, 32) => Some(two(i32::saturating_add)),
            ("sub", Kind::Signed, 32) => Some(two(i32::saturating_sub)),
            _ => None,
        },
        "add" => for_type!(kind, T => two(T::wrapping_add)),
        "sub" => for_type!(kind, T => two(T::wrapping_sub)),
        "mul" => match opcode.choice(&PARTS)? {
            Part::Low => for_type!(kind, T => two(T::wrapping_mul)),
            Part::High => for_type!(kind, T => two(|a: T, b: T| high(a as i128, b as i128, T::BITS) as T)),
            Part::Whole => wide_product(kind),
        },
        "mad" => match opcode.choice(&PARTS)? {
            Part::Low => for_type!(kind, T => three(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c))),
            Part::High => for_type!(kind, T => three(|a: T, b: T, c: T| {
                (high(a as i128, b as i128, T::BITS) as T).wrapping_add(c)
            })),
            Part::Whole => wide_sum(kind),
        },
        "mul24" if opcode.has("lo") && kind.bits == 32 => Some(if signed {
            binary(|a, b| ((low24(a) * low24(b)) as u32).into())
        } else {
            binary(|a, b| ((a & 0xff_ffff) * (b & 0xff_ffff)) & 0xffff_ffff)
        }),
        "sad" => for_type!(kind, T => three(|a: T, b: T, c: T| {
            c.wrapping_add(if a < b { b.wrapping_sub(a) } else { a.wrapping_sub(b) })
        })),
        // What division by zero gives is left open; cards give all ones.
        "div" => for_type!(kind, T => two(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) })),
        "rem" => for_type!(kind, T => two(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_rem(b) })),
        "min" => for_type!(kind, T => two(|a: T, b: T| a.min(b))),
        "max" => for_type!(kind, T => two(|a: T, b: T| a.max(b))),
        "neg" if signed => for_type!(kind, T => one(|a: T| (0 as T).wrapping_sub(a))),
        "abs" if signed => match kind.bits {
            16 => Some(one(i16::wrapping_abs)),
            32 => Some(one(i32::wrapping_abs)),
            64 => Some(one(i64::wrapping_abs)),
            _ => None,
        },
        _ => None,
    })
}

fn low24(bits: u64) -> i64 {
    ((bits as i64) << 40) >> 40
}

/// The upper half of a product of two integers of this width in bits.
fn high(a: i128, b: i128, bits: u32) -> i128 {
    // Wraps only for unsigned factors of 64 bits, whose product has the right bits nevertheless.
    a.wrapping_mul(b) >> bits
}

fn wide_product(kind: Type) -> Option<Function> {
    Some(match (kind.kind, kind.bits) {
        (Kind::Signed, 16) => binary(|a, b| (i32::from(a as i16) * i32::from(b as i16)) as u32 as u64),
        (Kind::Signed, 32) => binary(|a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        (Kind::Unsigned, 16) => binary(|a, b| u64::from(u32::from(a as u16) * u32::from(b as u16))),
        (Kind::Unsigned, 32) => binary(|a, b| u64::from(a as u32) * u64::from(b as u32)),
        _ => return None,
    })
}

fn wide_sum(kind: Type) -> Option<Function> {
    Some(match (kind.kind, kind.bits) {
        (Kind::Signed, 16) => ternary(|a, b, c| {
            u64::from((i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32)
        }),
        (Kind::Signed, 32) => {
            ternary(|a, b, c| (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64)
        }
        (Kind::Unsigned, 16) => {
            ternary(|a, b, c| u64::from((u32::from(a as u16) * u32::from(b as u16)).wrapping_add(c as u32)))
        }
        (Kind::Unsigned, 32) => {
            ternary(|a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c))
        }
        _ => return None,
    })
}

/// Four products of bytes, added to a third operand.
pub(crate) fn dot_product(types: &[Type]) -> Option<Function> {
    let [a, b] = types else { return None };
    if a.bits != 32 || b.bits != 32 || a.is_float() || b.is_float() {
        return None;
    }
    let (a_signed, b_signed) = (a.kind == Kind::Signed, b.kind == Kind::Signed);
    let byte = |bits: u64, index: u32, signed: bool| {
        let byte = (bits >> (8 * index)) as u8;
        if signed { i64::from(byte as i8) } else { i64::from(byte) }
    };
    Some(ternary(move |a, b, c| {
        let sum: i64 = (0..4).map(|index| byte(a, index, a_signed) * byte(b, index, b_signed)).sum();
        u64::from((c as u32).wrapping_add(sum as u32))
    }))
}
