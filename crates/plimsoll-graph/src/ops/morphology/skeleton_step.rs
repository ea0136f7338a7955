//! One step of a soft skeleton.

use serde::{Deserialize, Serialize};

use super::box_extreme::add_gradient;
use super::{BoxExtreme, Extreme, cost_of};
use crate::op::{expect_f32_volume, expect_operands, expect_shape, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The way in which the voxels that an opening removes join the skeleton so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Union {
    /// s + relu(d − s d), as clDice has it (Shit et al. 2021).
    Probabilistic,
    /// s + relu(d − s): the larger of the two, as in the skeleton of Lantuéjoul.
    Maximum,
}

/// With d = relu(x − dilation of the erosion by 3³), what the opening of x removes: the union of the skeleton so far with d;
/// at the beginning, d. Operands: x, its erosion, and after the first step the skeleton so far. Result: the skeleton.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkeletonStep {
    /// `true` if there is no skeleton yet.
    pub first: bool,
    /// The way in which d joins it.
    pub union: Union,
}

/// The gradient of [`SkeletonStep`], without the gradient of the erosion, which is [`BoxExtreme`]'s of minus the first result.
/// Operands: the gradient of its result, then its operands. Results: the gradients of x and of the skeleton so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkeletonStepGrad {
    /// The step.
    pub of: SkeletonStep,
}

const NAME: &str = "skeleton_step";
const GRAD: &str = "skeleton_step_grad";

const DILATION: BoxExtreme = BoxExtreme { radius: 1, extreme: Extreme::Max };

impl SkeletonStep {
    /// Checks the operands of a step.
    fn expect(self, op: &'static str, operands: &[&TensorInfo]) -> Result<(), GraphError> {
        for operand in operands {
            expect_f32_volume(op, "an operand", operand)?;
            expect_shape(op, "an operand", &operand.shape, &operands[0].shape)?;
        }
        Ok(())
    }

    /// x − dilation of its erosion at each voxel, and the skeleton so far.
    fn residue(self, operands: &[&Array]) -> impl Fn(usize) -> (f64, f64) {
        let opening = DILATION.evaluate(&operands[1..2], std::slice::from_ref(&operands[1].shape));
        let (x, skeleton) = (operands[0].data.clone(), operands.get(2).map(|s| s.data.clone()));
        move |i| (x[i] - opening[0].data[i], skeleton.as_ref().map_or(0.0, |skeleton| skeleton[i]))
    }

    /// The growth of the skeleton, which is added if it is above zero.
    fn growth(self, d: f64, s: f64) -> f64 {
        match self.union {
            Union::Probabilistic => d - s * d,
            Union::Maximum => d - s,
        }
    }
}

impl Rule for SkeletonStep {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 3 - usize::from(self.first))?;
        self.expect(NAME, inputs)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(ds) = upstream(tape, node, 0) else { return Ok(()) };
        let operands: Vec<_> = [ds].into_iter().chain(node.inputs.iter().copied()).collect();
        let gradients = tape.push(SkeletonStepGrad { of: *self }, &operands)?;
        let (x, eroded) = (node.inputs[0], node.inputs[1]);
        if tape.needs(eroded) {
            add_gradient(tape, DILATION, eroded, gradients[0], -1.0)?;
        }
        if tape.needs(x) {
            tape.add(x, gradients[0])?;
        }
        if let Some(skeleton) = node.inputs.get(2).filter(|id| tape.needs(**id)) {
            tape.add(*skeleton, gradients[1])?;
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(18, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let residue = self.residue(inputs);
        vec![Array::from_fn(results[0].clone(), |i| {
            let (d, s) = residue(i);
            s + self.growth(d.max(0.0), s).max(0.0)
        })]
    }
}

impl Rule for SkeletonStepGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 4 - usize::from(self.of.first))?;
        self.of.expect(GRAD, inputs)?;
        Ok(vec![Signature::like(inputs[0]); 2 - usize::from(self.of.first)])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(24, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let residue = self.of.residue(&inputs[1..]);
        // Slopes of the result by d and by s; the slope of relu at zero is zero.
        let slopes = |i: usize| {
            let (d, s) = residue(i);
            let (removed, grows) = (d > 0.0, self.of.growth(d.max(0.0), s) > 0.0);
            let (by_d, by_s) = match (grows, self.of.union) {
                (false, _) => (0.0, 1.0),
                (true, Union::Probabilistic) => (1.0 - s, 1.0 - d.max(0.0)),
                (true, Union::Maximum) => (1.0, 0.0),
            };
            [if removed { by_d } else { 0.0 }, by_s]
        };
        let gradient = |(result, shape): (usize, &Shape)| {
            Array::from_fn(shape.clone(), |i| inputs[0].data[i] * slopes(i)[result])
        };
        results.iter().enumerate().map(gradient).collect()
    }
}
