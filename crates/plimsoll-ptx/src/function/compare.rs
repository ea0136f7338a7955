//! Comparisons: `setp`, `set`, `testp`, `slct`.

use super::half::decode;
use super::rounding::{f32_of, flush};
use super::{Function, ternary};
use crate::instruction::Test;
use crate::lanes::{extend_sign, low};
use crate::parse::{Opcode, ParseError};
use crate::types::{Kind, Type};

fn test(function: impl Fn(u64, u64) -> bool + Send + Sync + 'static) -> Test {
    Box::new(move |a, b| {
        let mut mask = 0;
        for (lane, (&a, &b)) in a.iter().zip(b).enumerate() {
            mask |= u32::from(function(a, b)) << lane;
        }
        mask
    })
}

const RELATIONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

/// The relation that `opcode` names.
pub(crate) fn relation(opcode: &mut Opcode<'_>) -> Result<&'static str, ParseError> {
    RELATIONS
        .into_iter()
        .find(|name| opcode.has(name))
        .ok_or_else(|| opcode.error(format!("`{}` names no comparison", opcode.name)))
}

/// The test of a relation between two values of a type. `shift` selects an element of a pair.
pub(crate) fn relate(relation: &str, kind: Type, flushed: bool, shift: u32) -> Option<Test> {
    if kind.is_float() {
        return match kind.bits {
            16 => numbers(relation, move |bits| decode(bits >> shift, kind)),
            32 if flushed => numbers(relation, |bits| f64::from(flush(f32_of(bits)))),
            32 => numbers(relation, |bits| f64::from(f32_of(bits))),
            _ => numbers(relation, f64::from_bits),
        };
    }
    let bits = kind.bits;
    if kind.kind == Kind::Signed {
        return integers(relation, move |value| extend_sign(value, bits) as i64);
    }
    let mask = low(bits);
    let relation = match relation {
        "lo" => "lt",
        "ls" => "le",
        "hi" => "gt",
        "hs" => "ge",
        other => other,
    };
    integers(relation, move |value| value & mask)
}

fn integers<T: Ord>(relation: &str, read: impl Fn(u64) -> T + Copy + Send + Sync + 'static) -> Option<Test> {
    Some(match relation {
        "eq" => test(move |a, b| read(a) == read(b)),
        "ne" => test(move |a, b| read(a) != read(b)),
        "lt" => test(move |a, b| read(a) < read(b)),
        "le" => test(move |a, b| read(a) <= read(b)),
        "gt" => test(move |a, b| read(a) > read(b)),
        "ge" => test(move |a, b| read(a) >= read(b)),
        _ => return None,
    })
}

/// The relations that end in `u` hold if either side is not a number; the others, all but `nan`, do not.
fn numbers(relation: &str, read: impl Fn(u64) -> f64 + Copy + Send + Sync + 'static) -> Option<Test> {
    let ordered = move |a: u64, b: u64| !read(a).is_nan() && !read(b).is_nan();
    Some(match relation {
        "eq" => test(move |a, b| read(a) == read(b)),
        "ne" => test(move |a, b| ordered(a, b) && read(a) != read(b)),
        "lt" => test(move |a, b| read(a) < read(b)),
        "le" => test(move |a, b| read(a) <= read(b)),
        "gt" => test(move |a, b| read(a) > read(b)),
        "ge" => test(move |a, b| read(a) >= read(b)),
        "equ" => test(move |a, b| !ordered(a, b) || read(a) == read(b)),
        "neu" => test(move |a, b| read(a) != read(b)),
        "ltu" => test(move |a, b| !ordered(a, b) || read(a) < read(b)),
        "leu" => test(move |a, b| !ordered(a, b) || read(a) <= read(b)),
        "gtu" => test(move |a, b| !ordered(a, b) || read(a) > read(b)),
        "geu" => test(move |a, b| !ordered(a, b) || read(a) >= read(b)),
        "num" => test(ordered),
        "nan" => test(move |a, b| !ordered(a, b)),
        _ => return None,
    })
}

/// A test of the class of a number, which may be subnormal in its format.
type Class = fn(f64, bool) -> bool;

/// `testp`: what kind of number it is. The second operand is ignored.
pub(crate) fn classify(opcode: &mut Opcode<'_>) -> Result<Test, ParseError> {
    let kinds: [(&str, Class); 6] = [
        ("finite", |value, _| value.is_finite()),
        ("infinite", |value, _| value.is_infinite()),
        ("number", |value, _| !value.is_nan()),
        ("notanumber", |value, _| value.is_nan()),
        ("normal", |value, subnormal| value.is_finite() && value != 0.0 && !subnormal),
        ("subnormal", |_, subnormal| subnormal),
    ];
    let class = opcode.choice(&kinds)?;
    Ok(match opcode.only_type()?.bits {
        32 => test(move |a, _| class(f64::from(f32_of(a)), f32_of(a).is_subnormal())),
        _ => test(move |a, _| class(f64::from_bits(a), f64::from_bits(a).is_subnormal())),
    })
}

/// `slct`: the first operand where the third is not negative, else the second.
pub(crate) fn select_by_sign(opcode: &mut Opcode<'_>) -> Result<Function, ParseError> {
    let flushed = opcode.has("ftz");
    let types = opcode.types();
    let &[value, sign] = types.as_slice() else { return Err(opcode.unknown()) };
    let keep = low(value.width());
    Ok(match sign.kind {
        Kind::Signed => ternary(move |a, b, c| if c as i32 >= 0 { a & keep } else { b & keep }),
        _ => ternary(move |a, b, c| {
            let c = if flushed { flush(f32_of(c)) } else { f32_of(c) };
            if c >= 0.0 { a & keep } else { b & keep }
        }),
    })
}
