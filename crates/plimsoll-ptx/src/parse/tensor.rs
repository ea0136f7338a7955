//! Loads of matrices and products of matrices by tensor cores.

use super::body::Body;
use super::operand::Operand;
use super::{Opcode, ParseError};
use crate::instruction::{Mma, MmaShape, MmaType, Operation, Space};
use crate::types::{Kind, Type};

/// The operation, if it is one of these.
pub(crate) fn parse(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Option<Operation>, ParseError> {
    match opcode.name {
        "ldmatrix" => load_matrix(body, opcode, operands).map(Some),
        "mma" => multiply(body, opcode, operands).map(Some),
        _ => Ok(None),
    }
}

/// Checks that an instruction is run by whole warps together.
pub(super) fn aligned(opcode: &mut Opcode<'_>) -> Result<(), ParseError> {
    if opcode.has("sync") && opcode.has("aligned") {
        Ok(())
    } else {
        Err(opcode.error("only the form with .sync.aligned is known"))
    }
}

fn load_matrix(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Operation, ParseError> {
    aligned(opcode)?;
    let transposed = opcode.has("trans");
    let shared = opcode.has("shared") || opcode.has("shared::cta");
    let space = if shared { Space::Shared } else { Space::Generic };
    let count = opcode.choice(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
    if !opcode.has("m8n8") || opcode.only_type()?.bits != 16 {
        return Err(opcode.unknown());
    }
    let to = body.results(operands, 0)?;
    if to.len() != count {
        return Err(body.error(format!("{} registers for {count} matrices", to.len())));
    }
    Ok(Operation::LoadMatrix { to, address: body.address(operands, 1)?, transposed, space })
}

fn multiply(
    body: &mut Body,
    opcode: &mut Opcode<'_>,
    operands: &[Operand<'_>],
) -> Result<Operation, ParseError> {
    aligned(opcode)?;
    let shape = opcode.choice(&[
        ("m16n8k16", MmaShape::M16N8K16),
        ("m16n8k8", MmaShape::M16N8K8),
        ("m16n8k4", MmaShape::M16N8K4),
        ("m8n8k4", MmaShape::M8N8K4),
    ])?;
    let (a_columns, b_rows) = layouts(opcode)?;
    let types = opcode.types();
    let &[d, a, b, c] = types.as_slice() else { return Err(opcode.unknown()) };
    let operand_type = match (a.kind, a.bits) {
        (Kind::Float, 16) => MmaType::Half,
        (Kind::Bfloat, 16) => MmaType::Bfloat,
        (Kind::Tf32, _) => MmaType::Tf32,
        _ => return Err(opcode.unknown()),
    };
    let sum = |kind: Type| match (kind.kind, kind.bits) {
        (Kind::Float, 32) => Some(true),
        (Kind::Float, 16) => Some(false),
        _ => None,
    };
    let (Some(c_f32), Some(d_f32)) = (sum(c), sum(d)) else { return Err(opcode.unknown()) };
    let volta = shape == MmaShape::M8N8K4;
    let known = match operand_type {
        // Sums that begin in f32 stay in f32.
        MmaType::Half if volta => d_f32 || !c_f32,
        MmaType::Half => matches!(shape, MmaShape::M16N8K8 | MmaShape::M16N8K16) && c_f32 == d_f32,
        MmaType::Bfloat => matches!(shape, MmaShape::M16N8K8 | MmaShape::M16N8K16) && c_f32 && d_f32,
        MmaType::Tf32 => matches!(shape, MmaShape::M16N8K4 | MmaShape::M16N8K8) && c_f32 && d_f32,
        MmaType::Whole => false,
    };
    if !known || a != b || ((a_columns || b_rows) && !volta) {
        return Err(opcode.unknown());
    }
    let mma = Mma {
        shape,
        operands: operand_type,
        sums_f32: (c_f32, d_f32),
        transposed: (a_columns, b_rows),
        d: body.results(operands, 0)?,
        a: body.values(operands, 1)?,
        b: body.values(operands, 2)?,
        c: body.values(operands, 3)?,
    };
    let sums = |f32: bool| match (volta, f32) {
        (true, true) => 8,
        (true, false) | (false, true) => 4,
        (false, false) => 2,
    };
    let (a_count, b_count) = match (shape, operand_type) {
        (MmaShape::M8N8K4, _) | (MmaShape::M16N8K4, _) if volta => (2, 2),
        (MmaShape::M16N8K16, _) | (MmaShape::M16N8K8, MmaType::Tf32) => (4, 2),
        _ => (2, 1),
    };
    let counts = [mma.d.len(), mma.a.len(), mma.b.len(), mma.c.len()];
    let expected = [sums(d_f32), a_count, b_count, sums(c_f32)];
    if counts != expected {
        return Err(body.error(format!("{counts:?} registers for D, A, B and C, not {expected:?}")));
    }
    Ok(Operation::Mma(mma))
}

/// Returns `true` for A if it is stored by columns, and for B if it is stored by rows.
fn layouts(opcode: &mut Opcode<'_>) -> Result<(bool, bool), ParseError> {
    // Two modifiers of the same names: the first is for A.
    let first = opcode.layout()?;
    let second = opcode.layout()?;
    Ok((first == "col", second == "row"))
}
