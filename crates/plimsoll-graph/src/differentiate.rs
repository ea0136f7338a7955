//! Reverse-mode differentiation, op by op.

use std::collections::HashMap;

use crate::ops::{Add, Fill};
use crate::{GraphError, Node, Op, Program, TensorId};

/// The reverse pass while it is being written.
pub struct Tape<'p> {
    program: &'p mut Program,
    /// For each tensor, `true` if it depends on a tensor whose gradient was requested.
    needs: Vec<bool>,
    gradients: HashMap<TensorId, TensorId>,
}

impl Tape<'_> {
    /// The program so far.
    pub fn program(&self) -> &Program {
        self.program
    }

    /// Returns `true` if a gradient with respect to this tensor is of any use.
    pub fn needs(&self, tensor: TensorId) -> bool {
        self.needs.get(tensor.index()).copied().unwrap_or(false)
    }

    /// The gradient of a tensor as far as it is known: whole for the results of the node at hand, partial for its operands.
    pub fn gradient_of(&self, tensor: TensorId) -> Option<TensorId> {
        self.gradients.get(&tensor).copied()
    }

    /// The node that makes a tensor; none for inputs, parameters and states.
    pub fn maker(&self, tensor: TensorId) -> Option<&Node> {
        self.program.nodes.iter().rfind(|node| node.outputs.contains(&tensor))
    }

    /// Appends a node.
    ///
    /// # Errors
    /// Returns an error if the operands do not fit the op.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
        self.program.push(op, inputs)
    }

    /// Adds a gradient to what is known of a tensor's.
    ///
    /// # Errors
    /// Returns an error if the shapes differ.
    pub fn add(&mut self, tensor: TensorId, gradient: TensorId) -> Result<(), GraphError> {
        let whole = match self.gradient_of(tensor) {
            None => gradient,
            Some(known) => self.push(Add, &[known, gradient])?[0],
        };
        self.gradients.insert(tensor, whole);
        Ok(())
    }
}

/// Appends to a program the nodes that compute `scale` × ∂`of` / ∂t for each tensor t in `with_respect_to`, and returns the
/// gradients in that order (none where `of` does not depend on t).
///
/// # Errors
/// Returns an error if a needed gradient goes through an op that has none.
pub fn differentiate(
    program: &mut Program,
    of: TensorId,
    scale: f32,
    with_respect_to: &[TensorId],
) -> Result<Vec<Option<TensorId>>, GraphError> {
    let seed = program.push_one(Fill { value: scale, shape: program.shape(of).clone() }, &[])?;
    differentiate_from(program, of, seed, with_respect_to)
}

/// Differentiates as [`differentiate`] does, but a sum of the elements of `of`, each multiplied by its element of
/// another tensor of the same shape and dtype, which does not depend on t.
///
/// # Errors
/// Returns an error if a needed gradient goes through an op that has none, or the other tensor does not fit.
pub fn differentiate_from(
    program: &mut Program,
    of: TensorId,
    weights: TensorId,
    with_respect_to: &[TensorId],
) -> Result<Vec<Option<TensorId>>, GraphError> {
    differentiate_sum(program, &[(of, weights)], with_respect_to)
}

/// Differentiates as [`differentiate_from`] does, but the sum over several pairs of a tensor and the factors of its elements. The
/// factors may be derivatives by the tensor of a function that the program does not compute.
///
/// # Errors
/// Returns an error if a needed gradient goes through an op that has none, or factors do not fit their tensor.
pub fn differentiate_sum(
    program: &mut Program,
    pairs: &[(TensorId, TensorId)],
    with_respect_to: &[TensorId],
) -> Result<Vec<Option<TensorId>>, GraphError> {
    let mut needs = vec![false; program.tensors.len()];
    for id in with_respect_to {
        needs[id.index()] = true;
    }
    for node in &program.nodes {
        if node.inputs.iter().any(|id| needs[id.index()]) {
            for id in &node.outputs {
                needs[id.index()] = true;
            }
        }
    }
    let forward = program.nodes.clone();
    let mut tape = Tape { program, needs, gradients: HashMap::new() };
    for (of, weights) in pairs {
        tape.add(*of, *weights)?;
    }
    for node in forward.iter().rev() {
        if node.outputs.iter().any(|id| tape.gradient_of(*id).is_some()) {
            node.op.rule().gradient(&mut tape, node)?;
        }
    }
    Ok(with_respect_to.iter().map(|id| tape.gradient_of(*id)).collect())
}
