//! The faults of a program.

use crate::{DType, Kind, Shape};

/// Why a node cannot be added to a program, or a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An op has another number of operands than it takes.
    #[error("{op} takes {expected} operands, but {found} were given")]
    OperandCount {
        /// The op.
        op: &'static str,
        /// Its size in bytes.
        expected: String,
        /// The number it got.
        found: usize,
    },
    /// An operand's shape does not fit.
    #[error("{op}: {operand} has shape {found}, but {expected}")]
    Shape {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its shape.
        found: Shape,
        /// The expectation.
        expected: String,
    },
    /// An operand's kind does not fit.
    #[error("{op}: {operand} is {found}, but must be {expected}")]
    Kind {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its kind.
        found: Kind,
        /// The expectation.
        expected: &'static str,
    },
    /// An operand's elements are of another type.
    #[error("{op}: {operand} is stored as {found}, but must be {expected}")]
    DType {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its type.
        found: DType,
        /// The expectation.
        expected: &'static str,
    },
    /// An attribute of an op is impossible.
    #[error("{op}: {attribute} is {found}, but {expected}")]
    Attribute {
        /// The op.
        op: &'static str,
        /// The attribute.
        attribute: &'static str,
        /// Its value.
        found: String,
        /// The possible values.
        expected: String,
    },
    /// A tensor is impossible by itself.
    #[error("the program `{program}`: invalid tensor `{tensor}`: {why}")]
    Tensor {
        /// The program.
        program: String,
        /// The tensor.
        tensor: String,
        /// The fault.
        why: String,
    },
    /// A node does not have the results that its op makes.
    #[error("the program `{program}`, node {node}: {op} produces {expected}, but the node has {found}")]
    Results {
        /// The program.
        program: String,
        /// The node's place.
        node: usize,
        /// The op.
        op: &'static str,
        /// The result of the op.
        expected: String,
        /// The result that the node declares.
        found: String,
    },
    /// Channels cannot be cut into groups.
    #[error(
        "{op}: groups is {groups}, but must divide the inputs {sources:?} and the {outputs} outputs, \
         and be 1 with several sources"
    )]
    Groups {
        /// The op.
        op: &'static str,
        /// Groups asked for.
        groups: usize,
        /// Channels of each source.
        sources: Vec<usize>,
        /// Channels of the result.
        outputs: usize,
    },
    /// A gradient was asked through an op that has none, or whose gradient would be wrong here.
    #[error("{op} has no gradient with respect to {operand}")]
    NoGradient {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// A program was run without one of its inputs.
    #[error("the program `{program}` needs a value for `{tensor}`")]
    MissingValue {
        /// The program.
        program: String,
        /// The tensor.
        tensor: String,
    },
    /// A node reads what no earlier node has written, writes what is written already, or names what is not there.
    #[error("the program `{program}`, node {node}: {what} `{tensor}`")]
    Order {
        /// The program.
        program: String,
        /// The node's place.
        node: usize,
        /// The fault.
        what: &'static str,
        /// The tensor.
        tensor: String,
    },
}
