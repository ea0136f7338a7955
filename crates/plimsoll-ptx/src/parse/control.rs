//! Jumps, moves, comparisons, predicates.

use super::body::Body;
use super::operand::Operand;
use super::{Opcode, ParseError};
use crate::function::compare::{classify, relate, relation, select_by_sign};
use crate::function::{self, Function, unary};
use crate::instruction::{Flag, Logic, Operation};
use crate::lanes::low;
use crate::machine::windows;
use crate::types::Kind;

const LOGIC: [(&str, Logic); 3] = [("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)];

/// The operation, if it is one of these.
pub(crate) fn parse(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Option<Operation>, ParseError> {
    Ok(Some(match opcode.name {
        "bra" => {
            opcode.has("uni");
            let Some(Operand::Name(label)) = operands.first() else {
                return Err(body.error("`bra` needs a label"));
            };
            body.jump(vec![(*label).to_owned()]);
            Operation::Branch { target: 0 }
        }
        "brx" => {
            opcode.has("idx");
            opcode.has("uni");
            let index = body.value(operands, 0)?;
            let table = match operands.get(1) {
                Some(Operand::Name(name)) => body.table(name),
                _ => None,
            };
            let labels = table.ok_or_else(|| body.error("`brx.idx` needs a list of targets before it"))?;
            body.jump(labels);
            Operation::Switch { index, targets: Vec::new() }
        }
        "ret" | "exit" => {
            opcode.has("uni");
            Operation::Exit
        }
        "trap" => Operation::Trap,
        "mov" => mov(body, opcode, operands)?,
        "selp" => {
            let kind = opcode.only_type()?;
            let to = body.result(operands, 0)?.0;
            let (a, b) = (body.value(operands, 1)?, body.value(operands, 2)?);
            Operation::Select { to, a, b, flag: body.flag(operands, 3)?, keep: low(kind.width()) }
        }
        "setp" => setp(body, opcode, operands)?,
        "set" => set(body, opcode, operands)?,
        "testp" => {
            let test = classify(opcode)?;
            let to = predicate(body, operands, 0)?;
            let a = body.value(operands, 1)?;
            Operation::Compare { to, opposite: None, a, b: a, test, also: None }
        }
        "slct" => {
            let Function::Ternary(function) = select_by_sign(opcode)? else { return Ok(None) };
            let to = body.result(operands, 0)?.0;
            let (a, b, c) = (body.value(operands, 1)?, body.value(operands, 2)?, body.value(operands, 3)?);
            Operation::Ternary { to, a, b, c, function }
        }
        "and" | "or" | "xor" | "not" if body.is_predicate(operands.first()) => {
            opcode.only_type()?;
            let to = predicate(body, operands, 0)?;
            let a = body.flag(operands, 1)?;
            if opcode.name == "not" {
                let a = Flag { negated: !a.negated, ..a };
                Operation::Combine { to, a, b: a, logic: Logic::First }
            } else {
                let logic =
                    LOGIC.iter().find(|(name, _)| *name == opcode.name).map_or(Logic::Xor, |one| one.1);
                Operation::Combine { to, a, b: body.flag(operands, 2)?, logic }
            }
        }
        "cvta" => cvta(body, opcode, operands)?,
        "membar" | "fence" => {
            let publishes = opcode.has("proxy") && opcode.has("async") && !opcode.has("global");
            opcode.drop_starting("");
            if publishes { Operation::ProxyFence } else { Operation::Nothing }
        }
        "nanosleep" | "prefetch" | "prefetchu" | "pmevent" => {
            opcode.drop_starting("");
            Operation::Nothing
        }
        _ => return Ok(None),
    }))
}

/// The predicate register that an operand names, to be written.
pub(crate) fn predicate(body: &mut Body, operands: &[Operand<'_>], at: usize) -> Result<usize, ParseError> {
    match operands.get(at) {
        Some(Operand::Name(name)) => body.predicate_slot(name),
        _ => Err(body.error("a predicate was expected for the result")),
    }
}

fn mov(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
    let kind = opcode.only_type()?;
    if kind.kind == Kind::Predicate {
        let a = body.flag(operands, 1)?;
        return Ok(Operation::Combine { to: predicate(body, operands, 0)?, a, b: a, logic: Logic::First });
    }
    if kind.bits > 64 {
        return Err(opcode.unknown());
    }
    if let Some(Operand::List(list)) = operands.first() {
        let bits = kind.width() / list.len().max(1) as u32;
        return Ok(Operation::Unpack {
            to: body.results(operands, 0)?,
            from: body.value(operands, 1)?,
            bits,
        });
    }
    let to = body.result(operands, 0)?.0;
    if let Some(Operand::List(list)) = operands.get(1) {
        let bits = kind.width() / list.len().max(1) as u32;
        return Ok(Operation::Pack { to, from: body.values(operands, 1)?, bits });
    }
    Ok(Operation::Move { to, from: body.value(operands, 1)?, keep: low(kind.width()) })
}

fn setp(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
    let relation = relation(opcode)?;
    let logic = opcode.one_of(&LOGIC);
    let flushed = opcode.has("ftz");
    let kind = opcode.only_type()?;
    let (to, opposite) = match operands.first() {
        Some(Operand::Both(first, second)) => {
            (body.predicate_slot(first)?, Some(body.predicate_slot(second)?))
        }
        _ => (predicate(body, operands, 0)?, None),
    };
    let (a, b) = (body.value(operands, 1)?, body.value(operands, 2)?);
    let unknown = || opcode.error(format!("`{relation}` is no comparison of this type"));
    let test = relate(relation, kind, flushed, 0).ok_or_else(unknown)?;
    if kind.pair {
        let upper = relate(relation, kind, flushed, 16).ok_or_else(unknown)?;
        let (Some(opposite), None) = (opposite, logic) else { return Err(opcode.unknown()) };
        return Ok(Operation::CompareBoth { to: [to, opposite], a, b, tests: [test, upper] });
    }
    let also = match logic {
        Some(logic) => Some((logic, body.flag(operands, 3)?)),
        None => None,
    };
    Ok(Operation::Compare { to, opposite, a, b, test, also })
}

fn set(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
    let relation = relation(opcode)?;
    let flushed = opcode.has("ftz");
    let types = opcode.types();
    let &[result, kind] = types.as_slice() else { return Err(opcode.unknown()) };
    if kind.pair || result.bits != 32 || operands.len() != 3 {
        return Err(opcode.unknown());
    }
    let test = relate(relation, kind, flushed, 0).ok_or_else(|| opcode.unknown())?;
    let yes = if result.is_float() { u64::from(1.0_f32.to_bits()) } else { 0xffff_ffff };
    let to = body.result(operands, 0)?.0;
    Ok(Operation::Set { to, a: body.value(operands, 1)?, b: body.value(operands, 2)?, test, yes })
}

/// Between the addresses of a space and generic ones, which lie in a window for each space.
fn cvta(body: &mut Body, opcode: &mut Opcode<'_>, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
    let to_space = opcode.has("to");
    let window = opcode.choice(&[
        ("global", 0),
        ("const", 0),
        ("shared", windows::SHARED),
        ("shared::cta", windows::SHARED),
        ("local", windows::LOCAL),
        ("param", windows::PARAMETERS),
    ])?;
    if opcode.only_type()?.bits != 64 {
        return Err(opcode.unknown());
    }
    let to = body.result(operands, 0)?.0;
    let a = body.value(operands, 1)?;
    let moved: Function = if to_space {
        unary(move |address| address.wrapping_sub(window))
    } else {
        unary(move |address| address.wrapping_add(window))
    };
    match moved {
        function::Function::Unary(function) => Ok(Operation::Unary { to, a, function }),
        _ => Err(opcode.unknown()),
    }
}
