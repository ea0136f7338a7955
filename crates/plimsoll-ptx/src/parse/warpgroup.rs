//! Products of matrices by warp groups.

use super::body::Body;
use super::operand::Operand;
use super::{Opcode, ParseError};
use crate::instruction::{MmaType, Operation, RowsOfA, Warpgroup, WarpgroupMma};
use crate::types::Kind;

/// The operation, if it is one of these.
pub(crate) fn parse(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Option<Operation>, ParseError> {
    if opcode.name != "wgmma" {
        return Ok(None);
    }
    let kinds =
        [("fence", "fence"), ("mma_async", "mma_async"), ("commit_group", "commit"), ("wait_group", "wait")];
    let kind = opcode.choice(&kinds)?;
    super::tensor::aligned(opcode)?;
    let operation = match (kind, operands) {
        ("mma_async", _) => Warpgroup::Multiply(multiply(body, opcode, operands)?),
        ("fence", []) => Warpgroup::Fence,
        ("commit", []) => Warpgroup::Commit,
        ("wait", [Operand::Number(groups)]) => Warpgroup::Wait(*groups as usize),
        ("wait", _) => return Err(body.error("`wgmma.wait_group` needs a number")),
        _ => return Err(body.error("it takes no operands")),
    };
    Ok(Some(Operation::Warpgroup(operation)))
}

fn multiply(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<WarpgroupMma, ParseError> {
    let columns = opcode
        .starting("m64n")
        .and_then(|shape| shape.strip_suffix("k16")?.parse().ok())
        .filter(|columns: &usize| columns.is_multiple_of(8) && (8..=256).contains(columns))
        .ok_or_else(|| opcode.unknown())?;
    let types = opcode.types();
    let &[d, a, b] = types.as_slice() else { return Err(opcode.unknown()) };
    let factors = match (a.kind, a.bits) {
        (Kind::Float, 16) => MmaType::Half,
        (Kind::Bfloat, 16) => MmaType::Bfloat,
        _ => return Err(opcode.unknown()),
    };
    if a != b || a.pair || (d.kind, d.bits) != (Kind::Float, 32) {
        return Err(opcode.unknown());
    }
    let sums = body.results(operands, 0)?;
    let a = match operands.get(1) {
        Some(Operand::List(_)) => RowsOfA::Registers(body.values(operands, 1)?),
        _ => RowsOfA::Shared(body.value(operands, 1)?),
    };
    let in_registers = match &a {
        RowsOfA::Registers(slots) => Some(slots.len()),
        RowsOfA::Shared(_) => None,
    };
    if sums.len() != columns / 2 || in_registers.is_some_and(|count| count != 4) {
        let counts = (sums.len(), in_registers.unwrap_or(0));
        return Err(body.error(format!("{counts:?} registers for D and A, not {:?}", (columns / 2, 4))));
    }
    // Signs of A and B, and which of those in shared memory are transposed.
    let signs = [sign(body, operands, 4)?, sign(body, operands, 5)?];
    let rest: Vec<bool> =
        (6..operands.len()).map(|at| choice(body, operands, at, [0, 1])).collect::<Result<_, _>>()?;
    let transposed = match (&a, rest.as_slice()) {
        (RowsOfA::Registers(_), &[b]) => [false, b],
        (RowsOfA::Shared(_), &[a, b]) => [a, b],
        _ => return Err(body.error("signs of A and B and which are transposed were expected")),
    };
    let multiply = WarpgroupMma {
        columns,
        factors,
        b: body.value(operands, 2)?,
        add: body.flag(operands, 3)?,
        negative: signs[0] != signs[1],
        transposed,
        sums,
        a,
    };
    body.kernel.multiplied.extend(multiply.registers());
    Ok(multiply)
}

/// Returns `true` if a number is −1, and `false` if it is 1.
fn sign(body: &Body, operands: &[Operand<'_>], at: usize) -> Result<bool, ParseError> {
    choice(body, operands, at, [1, -1])
}

/// Returns `true` if a number is the second of two, and `false` if it is the first.
fn choice(body: &Body, operands: &[Operand<'_>], at: usize, of: [i64; 2]) -> Result<bool, ParseError> {
    let found = match operands.get(at) {
        Some(Operand::Number(value)) => of.iter().position(|known| *known == *value as i64),
        _ => None,
    };
    let what = || body.error(format!("operand {} is to be one of {of:?}", at + 1));
    found.map(|found| found == 1).ok_or_else(what)
}
