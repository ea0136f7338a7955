//! The approximations of the special function unit, for f32.
//!
//! They are computed in f64 and rounded to f32, so they are more accurate than on any card: a card may differ in the last
//! bits (the manual bounds the errors, at about 2⁻²² relative for most). A test of a kernel that uses them needs a
//! tolerance.

use super::Function;
use super::float::{Style, one};
use super::rounding::Mode;
use crate::parse::{Opcode, ParseError};
use crate::types::Type;

/// The function of an approximation; `opcode` is untouched if it is none.
pub(crate) fn function(opcode: &mut Opcode<'_>, kind: Type) -> Result<Option<Function>, ParseError> {
    if kind.bits != 32 {
        return Ok(None);
    }
    let name = opcode.name;
    let exact: fn(f64) -> f64 = match name {
        "ex2" => f64::exp2,
        "lg2" => f64::log2,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tanh" => f64::tanh,
        "rsqrt" => |a| 1.0 / a.sqrt(),
        "rcp" if opcode.has("approx") => |a| 1.0 / a,
        "sqrt" if opcode.has("approx") => f64::sqrt,
        _ => return Ok(None),
    };
    opcode.has("approx");
    let style = Style { mode: Mode::NearestEven, flush: opcode.has("ftz"), saturate: false };
    Ok(Some(one(style, move |a| exact(f64::from(a)) as f32)))
}
