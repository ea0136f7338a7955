//! The description that each op gives of itself, and the checks that their rules share.

use serde::{Deserialize, Serialize};

use crate::interpret::Array;
use crate::{DType, GraphError, Kind, Node, Op, Shape, Tape, TensorId, TensorInfo};

/// The shape, dtype and kind of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Logical shape.
    pub shape: Shape,
    /// Type of a stored element.
    pub dtype: DType,
    /// The kind of its values.
    pub kind: Kind,
}

impl Signature {
    /// An f32 result.
    pub fn new(shape: Shape, kind: Kind) -> Signature {
        Signature { shape, dtype: DType::F32, kind }
    }

    /// A volume of any float type.
    pub fn volume(shape: Shape, dtype: DType) -> Signature {
        Signature { shape, dtype, kind: Kind::Volume }
    }

    /// An f32 table.
    pub fn table(shape: impl Into<Vec<usize>>) -> Signature {
        Signature::new(Shape(shape.into()), Kind::Table)
    }

    /// Like another tensor.
    pub fn like(tensor: &TensorInfo) -> Signature {
        Signature { shape: tensor.shape.clone(), dtype: tensor.dtype, kind: tensor.kind }
    }

    /// Returns `true` if a tensor is what this says.
    pub(crate) fn is_of(&self, tensor: &TensorInfo) -> bool {
        (&self.shape, self.dtype, self.kind) == (&tensor.shape, tensor.dtype, tensor.kind)
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} of {} {}", self.kind, self.dtype, self.shape)
    }
}

/// The cost of one node by its definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Bytes read and written, each operand once.
    pub bytes: u64,
}

impl Cost {
    /// An op that does a few operations per element and is bound by memory.
    pub fn streaming(inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let all = || inputs.iter().chain(outputs);
        Cost {
            flops: outputs.iter().map(|t| t.shape.count() as u64).sum(),
            bytes: all().map(|t| (t.shape.count() as u64).saturating_mul(t.dtype.bytes() as u64)).sum(),
        }
    }
}

/// The description of an op.
pub trait Rule {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The results that it makes, beside the operands it updates. All operands have possible shapes (no extent is zero).
    ///
    /// # Errors
    /// Returns an error if the operands do not fit, by number, kind, dtype or shape, or an attribute is impossible.
    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError>;

    /// The operands that it updates in place (parameters, states): its first results, in this order.
    fn updates(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Appends to the tape the nodes that carry the gradients of the results to the operands.
    ///
    /// # Errors
    /// Returns an error if there is no gradient with respect to an operand that needs one, or it would be wrong.
    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        match node.inputs.iter().find(|id| tape.needs(**id)) {
            None => Ok(()),
            Some(_) => Err(GraphError::NoGradient { op: self.name(), operand: "its operands" }),
        }
    }

    /// The cost of a node.
    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost::streaming(inputs, outputs)
    }

    /// Returns `true` if it is worth computing its results twice instead of keeping them: not what changes a state, what is small and
    /// taken of everything, or a constant.
    fn may_be_recomputed(&self) -> bool {
        true
    }

    /// The definition: computes all results from the operands in f64. Results of updated operands come first. Called only with
    /// operands that [`Rule::infer`] accepts.
    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array>;
}

/// Checks the number of operands.
pub(crate) fn expect_operands(op: &'static str, found: usize, expected: usize) -> Result<(), GraphError> {
    if found == expected {
        return Ok(());
    }
    Err(GraphError::OperandCount { op, expected: expected.to_string(), found })
}

/// Checks that an operand has the shape that it must have.
pub(crate) fn expect_shape(
    op: &'static str,
    operand: &'static str,
    found: &Shape,
    expected: &Shape,
) -> Result<(), GraphError> {
    if found == expected {
        return Ok(());
    }
    Err(GraphError::Shape { op, operand, found: found.clone(), expected: format!("{expected} is needed") })
}

/// Checks an operand's kind.
pub(crate) fn expect_kind(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    kind: Kind,
) -> Result<(), GraphError> {
    if tensor.kind == kind {
        return Ok(());
    }
    let expected = match kind {
        Kind::Volume => "a volume",
        Kind::Labels => "labels",
        Kind::Weights => "weights",
        Kind::Channels => "one number per channel",
        Kind::Statistics => "statistics",
        Kind::Table => "a table",
    };
    Err(GraphError::Kind { op, operand, found: tensor.kind, expected })
}

fn expect_dtype(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    dtype: DType,
    expected: &'static str,
) -> Result<(), GraphError> {
    if tensor.dtype == dtype {
        return Ok(());
    }
    Err(GraphError::DType { op, operand, found: tensor.dtype, expected })
}

/// Checks that a volume can have the dtype that an op's attribute names for its result.
pub(crate) fn expect_volume_dtype(op: &'static str, dtype: DType) -> Result<(), GraphError> {
    if dtype.stores_volumes() {
        return Ok(());
    }
    let expected = "volumes are stored as f32, bf16 or f16".into();
    Err(GraphError::Attribute { op, attribute: "dtype", found: dtype.to_string(), expected })
}

/// Checks that an operand is a volume `[N, C, D, H, W]` of f32, bf16 or f16.
pub(crate) fn expect_volume(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<(), GraphError> {
    expect_kind(op, operand, tensor, Kind::Volume)?;
    if !tensor.dtype.stores_volumes() {
        return Err(GraphError::DType { op, operand, found: tensor.dtype, expected: "f32, bf16 or f16" });
    }
    expect_five_axes(op, operand, &tensor.shape)
}

/// Infers the result of an op on each element of one volume.
pub(crate) fn infer_pointwise(
    op: &'static str,
    inputs: &[&TensorInfo],
) -> Result<Vec<Signature>, GraphError> {
    expect_operands(op, inputs.len(), 1)?;
    expect_volume(op, "the operand", inputs[0])?;
    Ok(vec![Signature::like(inputs[0])])
}

/// Infers the result of the gradient of an op on each element of one volume. Operands: the gradient of that op's result, and
/// its operand or its result, which is `known`.
pub(crate) fn infer_pointwise_gradient(
    op: &'static str,
    known: &'static str,
    inputs: &[&TensorInfo],
) -> Result<Vec<Signature>, GraphError> {
    expect_operands(op, inputs.len(), 2)?;
    expect_volume(op, "the gradient", inputs[0])?;
    expect_like(op, known, inputs[1], inputs[0])?;
    Ok(vec![Signature::like(inputs[0])])
}

fn expect_five_axes(op: &'static str, operand: &'static str, shape: &Shape) -> Result<(), GraphError> {
    if shape.0.len() == 5 {
        return Ok(());
    }
    let expected = "five axes [N, C, D, H, W] are needed".into();
    Err(GraphError::Shape { op, operand, found: shape.clone(), expected })
}

/// Checks that an operand is a volume of f32: logits, probabilities, distances, and whatever losses read.
pub(crate) fn expect_f32_volume(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<(), GraphError> {
    expect_volume(op, operand, tensor)?;
    expect_dtype(op, operand, tensor, DType::F32, "f32")
}

/// Checks that an operand is labels `[N, 1, D, H, W]`.
pub(crate) fn expect_labels(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<(), GraphError> {
    expect_kind(op, operand, tensor, Kind::Labels)?;
    expect_dtype(op, operand, tensor, DType::U8, "u8")?;
    expect_five_axes(op, operand, &tensor.shape)?;
    let shape = &tensor.shape;
    expect_shape(op, operand, shape, &Shape::volume(shape.batch(), 1, shape.spatial()))
}

/// Checks that an operand is the labels of a volume.
pub(crate) fn expect_labels_of(
    op: &'static str,
    tensor: &TensorInfo,
    volume: &Shape,
) -> Result<(), GraphError> {
    expect_labels(op, "labels", tensor)?;
    expect_shape(op, "labels", &tensor.shape, &Shape::volume(volume.batch(), 1, volume.spatial()))
}

/// Checks that an operand has kind, dtype and shape of another.
pub(crate) fn expect_like(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    other: &TensorInfo,
) -> Result<(), GraphError> {
    expect_kind(op, operand, tensor, other.kind)?;
    if tensor.dtype != other.dtype {
        return Err(GraphError::DType { op, operand, found: tensor.dtype, expected: "like the others" });
    }
    expect_shape(op, operand, &tensor.shape, &other.shape)
}

/// Checks that an operand is an f32 table of a shape.
pub(crate) fn expect_table(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    shape: &[usize],
) -> Result<(), GraphError> {
    expect_table_of(op, operand, tensor, DType::F32, "f32")?;
    expect_shape(op, operand, &tensor.shape, &Shape(shape.to_vec()))
}

/// Checks that an operand is an f64 table of a shape: sums and counts of voxels.
pub(crate) fn expect_f64_table(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    shape: &[usize],
) -> Result<(), GraphError> {
    expect_table_of(op, operand, tensor, DType::F64, "f64")?;
    expect_shape(op, operand, &tensor.shape, &Shape(shape.to_vec()))
}

/// Checks that an operand is a table of a dtype, of any shape.
pub(crate) fn expect_table_of(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    dtype: DType,
    expected: &'static str,
) -> Result<(), GraphError> {
    expect_kind(op, operand, tensor, Kind::Table)?;
    expect_dtype(op, operand, tensor, dtype, expected)
}

/// Checks that an operand has one f32 for each of some channels.
pub(crate) fn expect_channels(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
    channels: usize,
) -> Result<(), GraphError> {
    expect_kind(op, operand, tensor, Kind::Channels)?;
    expect_dtype(op, operand, tensor, DType::F32, "f32")?;
    expect_shape(op, operand, &tensor.shape, &Shape(vec![channels]))
}

/// Checks that an operand is the f32 statistics of a volume.
pub(crate) fn expect_statistics(
    op: &'static str,
    tensor: &TensorInfo,
    volume: &Shape,
) -> Result<(), GraphError> {
    const OPERAND: &str = "the statistics";
    expect_kind(op, OPERAND, tensor, Kind::Statistics)?;
    expect_dtype(op, OPERAND, tensor, DType::F32, "f32")?;
    expect_shape(op, OPERAND, &tensor.shape, &Shape(vec![volume.batch(), volume.channels(), 2]))
}

/// Checks that an operand is f32 weights of a shape.
pub(crate) fn expect_weights(op: &'static str, tensor: &TensorInfo, shape: &Shape) -> Result<(), GraphError> {
    const OPERAND: &str = "weights";
    expect_kind(op, OPERAND, tensor, Kind::Weights)?;
    expect_dtype(op, OPERAND, tensor, DType::F32, "f32")?;
    expect_shape(op, OPERAND, &tensor.shape, shape)
}

/// Checks that an operand is something that is learned or follows it: f32 weights, channels or a table.
pub(crate) fn expect_learned(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<(), GraphError> {
    match tensor.kind {
        Kind::Weights | Kind::Channels | Kind::Table => expect_dtype(op, operand, tensor, DType::F32, "f32"),
        found => Err(GraphError::Kind { op, operand, found, expected: "weights, channels or a table" }),
    }
}

/// The gradient of a node's result, where it has one.
pub(crate) fn upstream(tape: &Tape<'_>, node: &Node, result: usize) -> Option<TensorId> {
    tape.gradient_of(node.outputs[result])
}

/// Adds the gradient of an op on each element of one volume: `grad` of the gradient of its result and its operand or its result, which is
/// `known`.
pub(crate) fn add_pointwise_gradient(
    tape: &mut Tape<'_>,
    node: &Node,
    grad: impl Into<Op>,
    known: TensorId,
) -> Result<(), GraphError> {
    let operand = node.inputs[0];
    if let Some(dz) = upstream(tape, node, 0).filter(|_| tape.needs(operand)) {
        let dx = tape.push(grad, &[dz, known])?[0];
        tape.add(operand, dx)?;
    }
    Ok(())
}
