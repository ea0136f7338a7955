//! Barriers, and instructions that exchange values within a warp.

use super::body::Body;
use super::control::predicate;
use super::operand::Operand;
use super::{Opcode, ParseError, memory};
use crate::instruction::{Operation, Reduction, ShuffleMode, VoteMode};

/// The operation, if it is one of these.
pub(crate) fn parse(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Option<Operation>, ParseError> {
    Ok(Some(match opcode.name {
        "bar" | "barrier" => barrier(body, opcode, operands)?,
        "shfl" => {
            synchronised(opcode)?;
            let mode = opcode.choice(&[
                ("up", ShuffleMode::Up),
                ("down", ShuffleMode::Down),
                ("bfly", ShuffleMode::Butterfly),
                ("idx", ShuffleMode::Index),
            ])?;
            opcode.only_type()?;
            let (to, inside) = result_and_predicate(body, operands)?;
            let (a, lane) = (body.value(operands, 1)?, body.value(operands, 2)?);
            let (clamp, mask) = (body.value(operands, 3)?, body.value(operands, 4)?);
            Operation::Shuffle { to, inside, a, lane, clamp, mask, mode }
        }
        "vote" => {
            synchronised(opcode)?;
            let mode = opcode.choice(&[
                ("all", VoteMode::All),
                ("any", VoteMode::Any),
                ("uni", VoteMode::Uniform),
                ("ballot", VoteMode::Ballot),
            ])?;
            opcode.only_type()?;
            let to = match mode {
                VoteMode::Ballot => body.result(operands, 0)?.0,
                _ => predicate(body, operands, 0)?,
            };
            Operation::Vote { to, flag: body.flag(operands, 1)?, mask: body.value(operands, 2)?, mode }
        }
        "match" => {
            synchronised(opcode)?;
            let all = opcode.choice(&[("all", true), ("any", false)])?;
            opcode.only_type()?;
            let (to, same) = result_and_predicate(body, operands)?;
            let (a, mask) = (body.value(operands, 1)?, body.value(operands, 2)?);
            if all { Operation::MatchAll { to, same, a, mask } } else { Operation::MatchAny { to, a, mask } }
        }
        "redux" => {
            synchronised(opcode)?;
            let update = memory::reduction(opcode)?;
            let to = body.result(operands, 0)?.0;
            Operation::ReduceWarp { to, a: body.value(operands, 1)?, mask: body.value(operands, 2)?, update }
        }
        "activemask" => {
            opcode.only_type()?;
            Operation::ActiveMask { to: body.result(operands, 0)?.0 }
        }
        _ => return Ok(None),
    }))
}

fn synchronised(opcode: &mut Opcode<'_>) -> Result<(), ParseError> {
    if opcode.has("sync") { Ok(()) } else { Err(opcode.error("only the form with .sync is known")) }
}

fn result_and_predicate(
    body: &mut Body,
    operands: &[Operand<'_>],
) -> Result<(usize, Option<usize>), ParseError> {
    match operands.first() {
        Some(Operand::Both(value, flag)) => {
            Ok((body.result_of(&Operand::Name(value))?.0, Some(body.predicate_slot(flag)?)))
        }
        _ => Ok((body.result(operands, 0)?.0, None)),
    }
}

fn barrier(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Operation, ParseError> {
    opcode.has("cta");
    opcode.has("aligned");
    if opcode.has("warp") {
        opcode.has("sync");
        return Ok(Operation::WarpBarrier { mask: body.value(operands, 0)? });
    }
    if opcode.has("red") {
        let count = opcode.has("popc");
        let all = opcode.has("and");
        opcode.has("or");
        opcode.only_type()?;
        let reduce = if count {
            Reduction::Count(body.result(operands, 0)?.0)
        } else if all {
            Reduction::And(predicate(body, operands, 0)?)
        } else {
            Reduction::Or(predicate(body, operands, 0)?)
        };
        let last = operands.len() - 1;
        let threads = if last == 3 { Some(body.value(operands, 2)?) } else { None };
        let id = body.value(operands, 1)?;
        let flag = body.flag(operands, last)?;
        return Ok(Operation::Barrier { id, threads, reduce: Some((reduce, flag)), arrive: false });
    }
    let arrive = opcode.has("arrive");
    if !arrive && !opcode.has("sync") {
        return Err(opcode.unknown());
    }
    let id = body.value(operands, 0)?;
    let threads = if operands.len() > 1 { Some(body.value(operands, 1)?) } else { None };
    if arrive && threads.is_none() {
        return Err(body.error("`bar.arrive` needs the number of threads"));
    }
    Ok(Operation::Barrier { id, threads, reduce: None, arrive })
}
