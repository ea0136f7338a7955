//! f16 and bf16 arithmetic, one at a time and in pairs.
//!
//! All operands are numbers of f64, in which products are exact and sums are rounded to odd, so that the rounding to the
//! format is the only one.

use super::float::{larger, smaller};
use super::rounding::{BF16, F16, Format, Mode, from_bf16, from_f16, narrow, saturate, sum};
use super::{Function, binary, ternary, unary};
use crate::parse::{Opcode, ParseError};
use crate::types::{Kind, Type};

/// The format of a type of 16 bits.
pub(crate) fn format(kind: Type) -> Format {
    if kind.kind == Kind::Bfloat { BF16 } else { F16 }
}

/// The number that 16 bits of this type denote.
pub(crate) fn decode(bits: u64, kind: Type) -> f64 {
    f64::from(if kind.kind == Kind::Bfloat { from_bf16(bits & 0xffff) } else { from_f16(bits & 0xffff) })
}

/// The treatment of operands and results.
#[derive(Clone, Copy)]
struct Style {
    kind: Type,
    flush: bool,
    saturate: bool,
    /// Negative results become zeros.
    relu: bool,
}

impl Style {
    fn input(self, bits: u64) -> f64 {
        let value = decode(bits, self.kind);
        // Subnormal numbers of f16 are normal in f32: those below 2⁻¹⁴.
        let tiny = value.abs() < 1.0 / 16384.0;
        if self.flush && self.kind.kind == Kind::Float && tiny { 0.0_f64.copysign(value) } else { value }
    }

    fn output(self, value: f64) -> u64 {
        let value = if self.saturate { saturate(value) } else { value };
        let bits = narrow(value, format(self.kind), Mode::NearestEven);
        if self.relu && bits & 0x8000 != 0 && !value.is_nan() {
            return 0;
        }
        if self.flush && self.kind.kind == Kind::Float && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
    }
}

/// Applies `function` to one element or to both of a pair.
fn each(pair: bool, function: impl Fn(u32) -> u64) -> u64 {
    if pair { function(0) | function(16) << 16 } else { function(0) }
}

/// The function of an f16 or bf16 instruction.
pub(crate) fn function(opcode: &mut Opcode<'_>, kind: Type) -> Result<Option<Function>, ParseError> {
    match opcode.rounding() {
        None | Some(Mode::NearestEven) => {}
        Some(_) => return Err(opcode.error("16-bit arithmetic is rounded to nearest (.rn) only")),
    }
    let style =
        Style { kind, flush: opcode.has("ftz"), saturate: opcode.has("sat"), relu: opcode.has("relu") };
    let pair = kind.pair;
    let one = |function: fn(f64) -> f64| {
        unary(move |a| each(pair, |at| style.output(function(style.input(a >> at)))))
    };
    let two = |function: fn(f64, f64) -> f64| {
        binary(move |a, b| {
            each(pair, |at| style.output(function(style.input(a >> at), style.input(b >> at))))
        })
    };
    let name = opcode.name;
    Ok(Some(match name {
        "add" => two(sum),
        "sub" => two(|a, b| sum(a, -b)),
        "mul" => two(|a, b| a * b),
        "fma" => ternary(move |a, b, c| {
            each(pair, |at| {
                style.output(sum(style.input(a >> at) * style.input(b >> at), style.input(c >> at)))
            })
        }),
        "min" | "max" => {
            let function: fn(f64, f64) -> f64 = match (opcode.name, opcode.has("NaN")) {
                ("min", false) => smaller,
                ("max", false) => larger,
                ("min", true) => |a, b| {
                    if a.is_nan() {
                        a
                    } else if b.is_nan() {
                        b
                    } else {
                        smaller(a, b)
                    }
                },
                _ => |a, b| {
                    if a.is_nan() {
                        a
                    } else if b.is_nan() {
                        b
                    } else {
                        larger(a, b)
                    }
                },
            };
            two(function)
        }
        "neg" => unary(move |a| each(pair, |at| (a >> at & 0xffff) ^ 0x8000)),
        "abs" => unary(move |a| each(pair, |at| a >> at & 0x7fff)),
        "ex2" if opcode.has("approx") => one(f64::exp2),
        "tanh" if opcode.has("approx") => one(f64::tanh),
        _ => return Ok(None),
    }))
}
