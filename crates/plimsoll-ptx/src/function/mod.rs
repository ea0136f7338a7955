//! The computations of instructions, as functions of bits.
//!
//! Each takes and returns the bits of a register, zero-extended to 64; types narrower than their register read its low
//! bits. They are total: a lane that an instruction does not apply to is computed as well and thrown away.

pub(crate) mod approximate;
pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod rounding;

use crate::instruction::{Binary, Quaternary, Ternary, Unary};
use crate::parse::{Opcode, ParseError};

/// A function by the number of its operands.
pub(crate) enum Function {
    Unary(Unary),
    Binary(Binary),
    Ternary(Ternary),
    Quaternary(Quaternary),
}

/// Applies `function` to each lane.
pub(crate) fn unary(function: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Unary(Box::new(move |a| std::array::from_fn(|lane| function(a[lane]))))
}

/// Returns a function of two operands.
pub(crate) fn binary(function: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Binary(Box::new(move |a, b| std::array::from_fn(|lane| function(a[lane], b[lane]))))
}

/// Returns a function of three operands.
pub(crate) fn ternary(function: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Ternary(Box::new(move |a, b, c| {
        std::array::from_fn(|lane| function(a[lane], b[lane], c[lane]))
    }))
}

/// Returns a function of four operands.
pub(crate) fn quaternary(function: impl Fn(u64, u64, u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Quaternary(Box::new(move |a, b, c, d| {
        std::array::from_fn(|lane| function(a[lane], b[lane], c[lane], d[lane]))
    }))
}

/// The function of an arithmetic instruction; nothing if it is none, or none that is known.
pub(crate) fn arithmetic(opcode: &mut Opcode<'_>) -> Result<Option<Function>, ParseError> {
    if opcode.name == "cvt" {
        return convert::function(opcode).map(Some);
    }
    if let Some(function) = bits::function(opcode)? {
        return Ok(Some(function));
    }
    let mut types = opcode.types();
    // The packed integer dot product names the types of both factors.
    if opcode.name == "dp4a" {
        return Ok(integer::dot_product(&types));
    }
    let Some(kind) = types.pop().filter(|_| types.is_empty()) else { return Ok(None) };
    if !kind.is_float() {
        return integer::function(opcode, kind);
    }
    if kind.bits == 16 {
        return half::function(opcode, kind);
    }
    match approximate::function(opcode, kind)? {
        Some(function) => Ok(Some(function)),
        None => float::function(opcode, kind),
    }
}
