//! `cvt`: between all pairs of types, with every rounding and saturation.

use super::half::{decode, format};
use super::rounding::{
    F32, Format, Mode, TF32, directed, f32_bits, f32_of, f64_bits, flush, narrow, odd, saturate,
};
use super::{Function, binary, unary};
use crate::lanes::{extend_sign, low};
use crate::parse::{Opcode, ParseError};
use crate::types::{Kind, Type};

/// The modifiers of a conversion.
#[derive(Clone, Copy)]
struct Style {
    /// The rounding of the result, if it is a float.
    mode: Mode,
    /// To a whole number.
    whole: Option<Mode>,
    flush: bool,
    saturate: bool,
    relu: bool,
}

/// The function of `cvt`.
pub(crate) fn function(opcode: &mut Opcode<'_>) -> Result<Function, ParseError> {
    let whole = opcode.one_of(&[
        ("rni", Mode::NearestEven),
        ("rzi", Mode::TowardsZero),
        ("rmi", Mode::Down),
        ("rpi", Mode::Up),
    ]);
    let style = Style {
        mode: opcode.rounding().unwrap_or(Mode::NearestEven),
        whole,
        flush: opcode.has("ftz"),
        saturate: opcode.has("sat") || opcode.has("satfinite"),
        relu: opcode.has("relu"),
    };
    let types = opcode.types();
    let &[to, from] = types.as_slice() else { return Err(opcode.unknown()) };
    if from.pair || to.bits == 128 || from.bits == 128 || from.kind == Kind::Tf32 {
        return Err(opcode.unknown());
    }
    if to.pair {
        if from.bits != 32 || !from.is_float() {
            return Err(opcode.unknown());
        }
        // The first operand becomes the upper half.
        let half = Type { pair: false, ..to };
        return Ok(binary(move |a, b| {
            let element = |bits| from_number(f64::from(f32_of(bits)), half, style);
            element(a) << 16 | element(b)
        }));
    }
    Ok(match (to.is_float(), from.is_float()) {
        (false, false) => whole_to_whole(to, from, style.saturate),
        (true, false) => whole_to_number(to, from, style),
        (false, true) => unary(move |a| to_whole(number(a, from, style), to, from, style)),
        (true, true) if to.kind == from.kind && to.bits == from.bits && whole.is_none() => unary(move |a| {
            if style.saturate || style.relu || style.flush {
                from_number(number(a, from, style), to, style)
            } else {
                a & low(to.bits)
            }
        }),
        (true, true) => unary(move |a| {
            let value = number(a, from, style);
            from_number(style.whole.map_or(value, |mode| to_integer(value, mode)), to, style)
        }),
    })
}

/// The number that a register holds.
fn number(bits: u64, kind: Type, style: Style) -> f64 {
    match kind.bits {
        16 => decode(bits, kind),
        32 if style.flush => f64::from(flush(f32_of(bits))),
        32 => f64::from(f32_of(bits)),
        _ => f64::from_bits(bits),
    }
}

/// A number as the bits of a float type.
fn from_number(value: f64, to: Type, style: Style) -> u64 {
    let value = if style.saturate && to.kind != Kind::Tf32 { saturate(value) } else { value };
    let value = if style.relu && value <= 0.0 { 0.0 } else { value };
    let rounded = |format: Format| narrow(value, format, style.mode);
    match (to.kind, to.bits) {
        (Kind::Tf32, _) => rounded(TF32) << 13,
        (_, 16) => rounded(format(to)),
        (_, 32) => {
            let bits = rounded(F32);
            if style.flush { f32_bits(flush(f32_of(bits))) } else { bits }
        }
        _ => f64_bits(value),
    }
}

fn to_integer(value: f64, mode: Mode) -> f64 {
    match mode {
        Mode::NearestEven => value.round_ties_even(),
        Mode::NearestAway => value.round(),
        Mode::TowardsZero => value.trunc(),
        Mode::Down => value.floor(),
        Mode::Up => value.ceil(),
    }
}

/// A number as an integer, brought into the range of the type. What is not a number becomes zero, or the highest bit
/// alone where either type has 64 bits.
fn to_whole(value: f64, to: Type, from: Type, style: Style) -> u64 {
    if value.is_nan() {
        return if to.bits == 64 || from.bits == 64 { 1 << (to.bits - 1) } else { 0 };
    }
    let value = to_integer(value, style.whole.unwrap_or(Mode::TowardsZero));
    match (to.kind == Kind::Signed, to.bits) {
        (true, 8) => (value as i8 as u8).into(),
        (true, 16) => (value as i16 as u16).into(),
        (true, 32) => (value as i32 as u32).into(),
        (true, _) => value as i64 as u64,
        (false, 8) => (value as u8).into(),
        (false, 16) => (value as u16).into(),
        (false, 32) => (value as u32).into(),
        (false, _) => value as u64,
    }
}

/// The integer that a register holds.
fn integer(bits: u64, kind: Type) -> i128 {
    if kind.kind == Kind::Signed {
        i128::from(extend_sign(bits, kind.bits) as i64)
    } else {
        i128::from(bits & low(kind.bits))
    }
}

fn whole_to_whole(to: Type, from: Type, saturated: bool) -> Function {
    let (keep, seen) = (low(to.bits), low(from.bits));
    if !saturated {
        return if from.kind == Kind::Signed {
            unary(move |a| extend_sign(a, from.bits) & keep)
        } else {
            unary(move |a| a & seen & keep)
        };
    }
    let (lowest, highest) = if to.kind == Kind::Signed {
        (-(1_i128 << (to.bits - 1)), (1_i128 << (to.bits - 1)) - 1)
    } else {
        (0, i128::from(keep))
    };
    unary(move |a| integer(a, from).clamp(lowest, highest) as u64 & keep)
}

fn whole_to_number(to: Type, from: Type, style: Style) -> Function {
    if to.kind == Kind::Float && to.bits == 32 && style.mode == Mode::NearestEven && !style.saturate {
        return if from.kind == Kind::Signed {
            unary(move |a| f32_bits(extend_sign(a, from.bits) as i64 as f32))
        } else {
            unary(move |a| f32_bits((a & low(from.bits)) as f32))
        };
    }
    unary(move |a| {
        let exact = integer(a, from);
        let nearest = exact as f64;
        let error = (exact - nearest as i128) as f64;
        if to.bits == 64 {
            return f64_bits(directed(nearest, error, style.mode));
        }
        from_number(odd(nearest, error), to, style)
    })
}
