//! Loads, stores, atomic operations, asynchronous copies.

use super::body::Body;
use super::operand::Operand;
use super::{Opcode, ParseError};
use crate::function::rounding::{f32_bits, f32_of, f64_bits};
use crate::instruction::{Access, CopyAsync, Operation, Space, Update};
use crate::types::{Kind, Type};

const SPACES: [(&str, Space); 8] = [
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("const", Space::Constant),
    ("param", Space::Parameter),
    ("param::entry", Space::Parameter),
    ("generic", Space::Generic),
];

/// Order, scope and cache policy: this machine runs one instruction after the other, so all are honoured.
const HINTS: [&str; 17] = [
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "cta",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "L1::no_allocate",
];

fn drop_hints(opcode: &mut Opcode<'_>) -> bool {
    for hint in HINTS {
        opcode.has(hint);
    }
    opcode.drop_starting("L1::");
    let policy = opcode.has("L2::cache_hint");
    opcode.drop_starting("L2::");
    policy
}

/// The operation, if it is one of these.
pub(crate) fn parse(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Option<Operation>, ParseError> {
    let name = opcode.name;
    Ok(Some(match name {
        "ld" | "ldu" => Operation::Load(load(body, opcode, operands)?),
        "st" => Operation::Store(store(body, opcode, operands)?),
        "atom" | "red" => atomic(body, opcode, operands)?,
        "isspacep" => {
            let space = opcode.choice(&SPACES)?;
            let to = super::control::predicate(body, operands, 0)?;
            Operation::IsSpace { to, a: body.value(operands, 1)?, space }
        }
        "cp" if opcode.has("async") => copy(body, opcode, operands)?,
        _ => return Ok(None),
    }))
}

fn space(opcode: &mut Opcode<'_>, body: &mut Body, operand: Option<&Operand<'_>>) -> Space {
    let written = opcode.one_of(&SPACES).unwrap_or(Space::Generic);
    match operand {
        // A variable is addressed within its own space, even where the instruction names none.
        Some(Operand::Address(name, _)) if written == Space::Generic => {
            body.space_of(name).unwrap_or(Space::Generic)
        }
        _ => written,
    }
}

fn element(opcode: &mut Opcode<'_>) -> Result<Type, ParseError> {
    let kind = opcode.only_type()?;
    if kind.bits > 64 || kind.kind == Kind::Predicate { Err(opcode.unknown()) } else { Ok(kind) }
}

fn vector(opcode: &mut Opcode<'_>) -> usize {
    opcode.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
}

fn load(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Access, ParseError> {
    drop_hints(opcode);
    let constant = opcode.has("nc") || opcode.name == "ldu";
    let space = space(opcode, body, operands.get(1));
    let count = vector(opcode);
    let kind = element(opcode)?;
    let slots = body.results(operands, 0)?;
    if slots.len() != count {
        return Err(body.error(format!("{} registers for {count} elements", slots.len())));
    }
    let first = match operands.first() {
        Some(Operand::List(list)) => list.first(),
        other => other,
    };
    let register = first.map_or(Ok(64), |first| body.result_of(first).map(|(_, bits)| bits))?;
    let extend = (kind.kind == Kind::Signed && register > kind.bits).then_some(register);
    let bytes = kind.width() as usize / 8;
    Ok(Access { space, address: body.address(operands, 1)?, bytes, slots, extend, constant })
}

fn store(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Access, ParseError> {
    drop_hints(opcode);
    let space = space(opcode, body, operands.first());
    let count = vector(opcode);
    let kind = element(opcode)?;
    let slots = body.values(operands, 1)?;
    if slots.len() != count {
        return Err(body.error(format!("{} registers for {count} elements", slots.len())));
    }
    let bytes = kind.width() as usize / 8;
    Ok(Access { space, address: body.address(operands, 0)?, bytes, slots, extend: None, constant: false })
}

/// Parses the operation of an atomic instruction, and returns it with `true` if it is a sum of floats.
fn update(opcode: &mut Opcode<'_>, kind: Type) -> Option<(Update, bool)> {
    let names = ["add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"];
    let name = names.into_iter().find(|name| opcode.has(name))?;
    let update: Update = match (name, kind.kind, kind.bits) {
        ("exch", _, _) => |_, new, _| new,
        ("cas", _, 64) => |old, expected, new| if old == expected { new } else { old },
        ("cas", _, 16) => |old, expected, new| if old == expected & 0xffff { new & 0xffff } else { old },
        ("cas", _, _) => |old, expected, new| if old == expected & 0xffff_ffff { new } else { old },
        ("and", _, _) => |old, b, _| old & b,
        ("or", _, _) => |old, b, _| old | b,
        ("xor", _, _) => |old, b, _| old ^ b,
        ("inc", _, 32) => |old, limit, _| if old >= limit & 0xffff_ffff { 0 } else { old + 1 },
        ("dec", _, 32) => |old, limit, _| {
            let limit = limit & 0xffff_ffff;
            if old == 0 || old > limit { limit } else { old - 1 }
        },
        ("add", Kind::Float, 32) => |old, b, _| f32_bits(f32_of(old) + f32_of(b)),
        ("add", Kind::Float, 64) => |old, b, _| f64_bits(f64::from_bits(old) + f64::from_bits(b)),
        ("add", Kind::Unsigned | Kind::Signed, _) => |old, b, _| old.wrapping_add(b),
        ("min", Kind::Unsigned, 32) => |old, b, _| old.min(b & 0xffff_ffff),
        ("max", Kind::Unsigned, 32) => |old, b, _| old.max(b & 0xffff_ffff),
        ("min", Kind::Unsigned, 64) => |old, b, _| old.min(b),
        ("max", Kind::Unsigned, 64) => |old, b, _| old.max(b),
        ("min", Kind::Signed, 32) => |old, b, _| u64::from((old as i32).min(b as i32) as u32),
        ("max", Kind::Signed, 32) => |old, b, _| u64::from((old as i32).max(b as i32) as u32),
        ("min", Kind::Signed, 64) => |old, b, _| (old as i64).min(b as i64) as u64,
        ("max", Kind::Signed, 64) => |old, b, _| (old as i64).max(b as i64) as u64,
        _ => return None,
    };
    Some((update, name == "add" && kind.is_float()))
}

fn atomic(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Operation, ParseError> {
    drop_hints(opcode);
    let reduces = opcode.name == "red";
    let at = usize::from(!reduces);
    let space = space(opcode, body, operands.get(at));
    let kind = element(opcode)?;
    let (update, float_sum) = update(opcode, kind).ok_or_else(|| opcode.unknown())?;
    let to = if reduces { None } else { Some(body.result(operands, 0)?.0) };
    let address = body.address(operands, at)?;
    let first = body.value(operands, at + 1)?;
    let second = if operands.len() > at + 2 { body.value(operands, at + 2)? } else { first };
    let bytes = kind.width() as usize / 8;
    Ok(Operation::Atomic { space, address, bytes, to, operands: [first, second], update, float_sum })
}

/// The bits of a small operation on a warp's registers: `redux.sync`.
pub(crate) fn reduction(opcode: &mut Opcode<'_>) -> Result<Update, ParseError> {
    let kind = opcode.only_type()?;
    let (update, _) = update(opcode, kind).ok_or_else(|| opcode.unknown())?;
    if kind.is_float() { Err(opcode.unknown()) } else { Ok(update) }
}

fn copy(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
    if opcode.has("commit_group") {
        return Ok(Operation::CommitGroup);
    }
    if opcode.has("wait_all") {
        return Ok(Operation::WaitAll);
    }
    if opcode.has("wait_group") {
        return match operands.first() {
            Some(Operand::Number(count)) => Ok(Operation::WaitGroup(*count as usize)),
            _ => Err(body.error("`cp.async.wait_group` needs a number")),
        };
    }
    let all = opcode.has("ca");
    let policy = drop_hints(opcode);
    let shared = opcode.has("shared") || opcode.has("shared::cta");
    if !shared || !opcode.has("global") {
        return Err(opcode.unknown());
    }
    let bytes = match operands.get(2) {
        Some(Operand::Number(bytes @ (4 | 8 | 16))) if all || *bytes == 16 => *bytes as usize,
        _ => return Err(body.error("`cp.async` copies 4, 8 or 16 bytes, and only 16 with .cg")),
    };
    let mut copy = CopyAsync {
        to: body.address(operands, 0)?,
        from: body.address(operands, 1)?,
        bytes,
        read: None,
        ignore: None,
    };
    let rest = operands.len() - usize::from(policy);
    if rest > 3 {
        if body.is_predicate(operands.get(3)) {
            copy.ignore = Some(body.flag(operands, 3)?);
        } else {
            copy.read = Some(body.value(operands, 3)?);
        }
    }
    Ok(Operation::CopyAsync(copy))
}
