//! f32 and f64 arithmetic with one rounding.

use super::rounding::{
    F32, Mode, directed_sum, f32_bits, f32_of, f64_bits, flush, narrow, odd, saturate, sum,
};
use super::{Function, binary, ternary, unary};
use crate::parse::{Opcode, ParseError};
use crate::types::Type;

/// The rounding of an f32 instruction.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub mode: Mode,
    /// Subnormal operands and results count as zeros.
    pub flush: bool,
    /// Results are brought into the interval from 0 to 1.
    pub saturate: bool,
}

impl Style {
    fn input(self, bits: u64) -> f32 {
        if self.flush { flush(f32_of(bits)) } else { f32_of(bits) }
    }

    fn output(self, value: f32) -> u64 {
        let value = if self.flush { flush(value) } else { value };
        f32_bits(if self.saturate { saturate(f64::from(value)) as f32 } else { value })
    }

    /// From a value that was rounded to odd.
    fn rounded(self, value: f64) -> u64 {
        self.output(f32_of(narrow(value, F32, self.mode)))
    }
}

/// Returns a function of one operand.
pub(crate) fn one(style: Style, function: impl Fn(f32) -> f32 + Send + Sync + 'static) -> Function {
    if !style.flush && !style.saturate {
        return unary(move |a| f32_bits(function(f32_of(a))));
    }
    unary(move |a| style.output(function(style.input(a))))
}

fn two(style: Style, function: impl Fn(f32, f32) -> f32 + Send + Sync + 'static) -> Function {
    if !style.flush && !style.saturate {
        return binary(move |a, b| f32_bits(function(f32_of(a), f32_of(b))));
    }
    binary(move |a, b| style.output(function(style.input(a), style.input(b))))
}

/// In another mode than to nearest: from the exact value, rounded to odd in f64.
fn directed(style: Style, function: impl Fn(f64, f64) -> f64 + Send + Sync + 'static) -> Function {
    binary(move |a, b| style.rounded(function(f64::from(style.input(a)), f64::from(style.input(b)))))
}

/// The smaller, where what is not a number counts for nothing and −0 is smaller than +0.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || (b < a) || (a == b && b.is_sign_negative()) { b } else { a }
}

/// The larger, like [`smaller`].
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || (b > a) || (a == b && b.is_sign_positive()) { b } else { a }
}

/// The function of an f32 or f64 instruction.
pub(crate) fn function(opcode: &mut Opcode<'_>, kind: Type) -> Result<Option<Function>, ParseError> {
    if kind.bits == 64 {
        return double(opcode);
    }
    let mode = opcode.rounding();
    let nearest = matches!(mode, None | Some(Mode::NearestEven));
    let style = Style {
        mode: mode.unwrap_or(Mode::NearestEven),
        flush: opcode.has("ftz"),
        saturate: opcode.has("sat"),
    };
    let name = opcode.name;
    Ok(Some(match name {
        "add" if nearest => two(style, |a, b| a + b),
        "sub" if nearest => two(style, |a, b| a - b),
        "mul" if nearest => two(style, |a, b| a * b),
        "fma" | "mad" if nearest && !style.flush && !style.saturate => {
            ternary(|a, b, c| f32_bits(f32_of(a).mul_add(f32_of(b), f32_of(c))))
        }
        "fma" | "mad" if nearest => {
            ternary(move |a, b, c| style.output(style.input(a).mul_add(style.input(b), style.input(c))))
        }
        "add" => directed(style, move |a, b| signed_zero(sum(a, b), a, b, style.mode)),
        "sub" => directed(style, move |a, b| signed_zero(sum(a, -b), a, -b, style.mode)),
        "mul" => directed(style, |a, b| a * b),
        "fma" | "mad" => ternary(move |a, b, c| {
            let product = f64::from(style.input(a)) * f64::from(style.input(b));
            let c = f64::from(style.input(c));
            style.rounded(signed_zero(sum(product, c), product, c, style.mode))
        }),
        // Approximations are as good as the correctly rounded quotient here.
        "div" if opcode.has("approx") || opcode.has("full") || (mode.is_some() && nearest) => {
            two(style, |a, b| a / b)
        }
        "div" if mode.is_some() => directed(style, |a, b| {
            let quotient = a / b;
            odd(quotient, quotient.mul_add(-b, a) / b)
        }),
        "rcp" if mode.is_some() && nearest => one(style, |a| 1.0 / a),
        "rcp" if mode.is_some() => unary(move |a| {
            let a = f64::from(style.input(a));
            let quotient = 1.0 / a;
            style.rounded(odd(quotient, quotient.mul_add(-a, 1.0) / a))
        }),
        "sqrt" if mode.is_some() && nearest => one(style, f32::sqrt),
        "sqrt" if mode.is_some() => unary(move |a| {
            let a = f64::from(style.input(a));
            let root = a.sqrt();
            style.rounded(odd(root, root.mul_add(-root, a)))
        }),
        "min" | "max" => {
            let (min, nan) = (opcode.name == "min", opcode.has("NaN"));
            two(style, move |a, b| {
                if nan && (a.is_nan() || b.is_nan()) {
                    return f32::NAN;
                }
                let (a, b) = (f64::from(a), f64::from(b));
                (if min { smaller(a, b) } else { larger(a, b) }) as f32
            })
        }
        "neg" => one(style, |a| -a),
        "abs" => one(style, f32::abs),
        "copysign" => binary(|a, b| (a & 0x8000_0000) | (b & 0x7fff_ffff)),
        _ => return Ok(None),
    }))
}

/// A sum of opposite numbers is −0 when rounded down.
fn signed_zero(sum: f64, a: f64, b: f64, mode: Mode) -> f64 {
    if sum == 0.0 && mode == Mode::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        sum
    }
}

/// f64. Only sums are rounded in other modes than to nearest.
fn double(opcode: &mut Opcode<'_>) -> Result<Option<Function>, ParseError> {
    let of = f64::from_bits;
    match opcode.rounding() {
        None | Some(Mode::NearestEven) => {}
        Some(mode) => {
            return match opcode.name {
                "add" => Ok(Some(binary(move |a, b| f64_bits(directed_sum(of(a), of(b), mode))))),
                "sub" => Ok(Some(binary(move |a, b| f64_bits(directed_sum(of(a), -of(b), mode))))),
                _ => Err(opcode.error("f64 arithmetic other than sums is rounded to nearest (.rn) only")),
            };
        }
    }
    let name = opcode.name;
    Ok(Some(match name {
        "add" => binary(move |a, b| f64_bits(of(a) + of(b))),
        "sub" => binary(move |a, b| f64_bits(of(a) - of(b))),
        "mul" => binary(move |a, b| f64_bits(of(a) * of(b))),
        "div" => binary(move |a, b| f64_bits(of(a) / of(b))),
        "fma" | "mad" => ternary(move |a, b, c| f64_bits(of(a).mul_add(of(b), of(c)))),
        "rcp" => {
            opcode.has("approx");
            opcode.has("ftz");
            unary(move |a| f64_bits(1.0 / of(a)))
        }
        "sqrt" => unary(move |a| f64_bits(of(a).sqrt())),
        "rsqrt" => {
            opcode.has("approx");
            opcode.has("ftz");
            unary(move |a| f64_bits(1.0 / of(a).sqrt()))
        }
        "min" => binary(move |a, b| f64_bits(smaller(of(a), of(b)))),
        "max" => binary(move |a, b| f64_bits(larger(of(a), of(b)))),
        "neg" => unary(move |a| f64_bits(-of(a))),
        "abs" => unary(move |a| f64_bits(of(a).abs())),
        "copysign" => binary(|a, b| (a & 1 << 63) | (b & !(1 << 63))),
        _ => return Ok(None),
    }))
}
