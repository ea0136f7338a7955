//! The closed set of ops, and what each must say about itself.

use serde::{Deserialize, Serialize};

use crate::interpret::Array;
use crate::ops::{
    Accumulate, AdamW, Add, BoundaryL1, BoundaryL1Grad, BoxExtreme, BoxExtremeGrad, ChannelSum, ClDice,
    ClDiceGrad, CompositeLoss, CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad, Counted, CrossErosion,
    CrossErosionGrad, DistanceLoss, DistanceLossGrad, DownsampleLabels, Dropout, Fill, GradNorm, HardCounts,
    HeadCounts, HeadGrad, HeadStats, Join, LeakyRelu, LeakyReluGrad, MeanDifference, MeanDifferenceGrad,
    MeanPool, MeanPoolGrad, NormAct, NormActGrad, NormStats, OneHot, OverlapSums, OverlapSumsGrad,
    PredictedDistance, Probabilities, ProbabilitiesGrad, Sgd, SkeletonStep, SkeletonStepGrad, SoftRecall,
    SoftRecallGrad, SoftmaxStats, WeightedSum,
};
use crate::{DType, GraphError, Kind, Node, Shape, Tape, TensorId, TensorInfo};

/// The shape, dtype and kind of a result. The dtype of features is the program's precision, whatever is said here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Logical shape.
    pub shape: Shape,
    /// Type of a stored element.
    pub dtype: DType,
    /// What it holds.
    pub kind: Kind,
}

impl Signature {
    /// An f32 result (for features: of the program's precision).
    pub fn new(shape: Shape, kind: Kind) -> Signature {
        Signature { shape, dtype: DType::F32, kind }
    }

    /// Like another tensor.
    pub fn like(tensor: &TensorInfo) -> Signature {
        Signature { shape: tensor.shape.clone(), dtype: tensor.dtype, kind: tensor.kind.clone() }
    }
}

/// What one node costs.
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
            bytes: all().map(|t| (t.shape.count() * t.dtype.bytes()) as u64).sum(),
        }
    }
}

/// Whether it is worth computing an op's results twice instead of keeping them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Recompute {
    /// A pass over memory.
    Cheap,
    /// Arithmetic.
    Dear,
    /// It changes a state, or its result is the point of the program.
    Never,
}

/// What an op says about itself.
pub trait Rule {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// The results that it makes, beside the operands it updates.
    ///
    /// # Errors
    /// If the operands do not fit.
    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError>;

    /// The operands that it updates in place (parameters, states): its first results, in this order.
    fn updates(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Appends to the tape the nodes that carry the gradients of the results to the operands.
    ///
    /// # Errors
    /// If there is no gradient with respect to an operand that needs one.
    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        match node.inputs.iter().find(|id| tape.needs(**id)) {
            None => Ok(()),
            Some(_) => Err(GraphError::NoGradient { op: self.name(), operand: "its operands" }),
        }
    }

    /// What it costs.
    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost::streaming(inputs, outputs)
    }

    /// Pairs (result, operand) that may share one place if the operand is not needed afterwards: each element of the result
    /// depends on no element of the operand that is read after it is written.
    fn in_place(&self) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// Whether its results may be computed twice.
    fn recompute(&self) -> Recompute {
        Recompute::Cheap
    }

    /// The definition: computes all results from the operands in f64. Results of updated operands come first.
    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array>;
}

macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        /// An op with its attributes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each is documented where it is defined")]
        pub enum Op { $($name($name)),* }

        impl Op {
            /// What it says about itself.
            pub fn rule(&self) -> &dyn Rule {
                match self { $(Op::$name(op) => op),* }
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })*
    };
}

ops!(
    Accumulate,
    AdamW,
    Add,
    BoundaryL1,
    BoundaryL1Grad,
    BoxExtreme,
    BoxExtremeGrad,
    ChannelSum,
    ClDice,
    ClDiceGrad,
    CompositeLoss,
    CompositeLossGrad,
    Conv,
    ConvTranspose,
    ConvWeightGrad,
    Counted,
    CrossErosion,
    CrossErosionGrad,
    DistanceLoss,
    DistanceLossGrad,
    DownsampleLabels,
    Dropout,
    Fill,
    GradNorm,
    HardCounts,
    HeadCounts,
    HeadGrad,
    HeadStats,
    Join,
    LeakyRelu,
    LeakyReluGrad,
    MeanDifference,
    MeanDifferenceGrad,
    MeanPool,
    MeanPoolGrad,
    NormAct,
    NormActGrad,
    NormStats,
    OneHot,
    OverlapSums,
    OverlapSumsGrad,
    PredictedDistance,
    Probabilities,
    ProbabilitiesGrad,
    Sgd,
    SkeletonStep,
    SkeletonStepGrad,
    SoftRecall,
    SoftRecallGrad,
    SoftmaxStats,
    WeightedSum,
);

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
    fits: impl Fn(&Kind) -> bool,
    expected: &'static str,
) -> Result<(), GraphError> {
    if fits(&tensor.kind) {
        return Ok(());
    }
    Err(GraphError::Kind { op, operand, found: tensor.kind.clone(), expected })
}

/// Checks that an operand is a volume of features or an image, and says on which side it lies.
pub(crate) fn expect_volume(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<crate::Side, GraphError> {
    match tensor.kind.side() {
        Some(side) if tensor.shape.0.len() == 5 => Ok(side),
        Some(_) => Err(GraphError::Shape {
            op,
            operand,
            found: tensor.shape.clone(),
            expected: "five axes [N, C, D, H, W] are needed".into(),
        }),
        None => Err(GraphError::Kind {
            op,
            operand,
            found: tensor.kind.clone(),
            expected: "features or an image",
        }),
    }
}

/// The gradient of a node's result, where it has one.
pub(crate) fn upstream(tape: &Tape<'_>, node: &Node, result: usize) -> Option<TensorId> {
    tape.gradient_of(node.outputs[result])
}
