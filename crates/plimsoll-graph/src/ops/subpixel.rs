//! Channels to voxels, smoothed: the second half of sub-pixel upsampling.

use serde::{Deserialize, Serialize};

use super::upsample::{doubled, halved, unfit};
use crate::op::{expect_operands, expect_volume, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Spreads channels over the voxels of a grid that is twice as fine along k axes, then takes means over 2 voxels along each of them:
/// what MONAI's `SubpixelUpsample` does behind its convolution (Shi et al. 2016, with the pooling of Aitken et al. 2017).
///
/// Operand: a volume `[N, 2ᵏ C, D, H, W]`. Result: `[N, C, 2D, 2H, 2W]` along those axes, of its dtype. With
/// s(c, v) = x(2ᵏ c + p, ⌊v / 2⌋), where the bits of p are the parities of v along the axes, the first axis' bit the highest, and s = 0
/// outside: y(c, v) = 2⁻ᵏ Σ s(c, v − δ) over δ in {0, 1}ᵏ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subpixel {
    /// For depth, height and width, `true` if the axis is doubled.
    pub axes: [bool; 3],
}

/// The gradient of [`Subpixel`]. Operand: the gradient of its result. Result: the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubpixelGrad {
    /// Those of the [`Subpixel`].
    pub axes: [bool; 3],
}

const NAME: &str = "subpixel";
const GRAD: &str = "subpixel_grad";

impl Subpixel {
    /// 2ᵏ for k axes.
    pub fn parts(self) -> usize {
        1 << self.axes.iter().filter(|axis| **axis).count()
    }

    /// The number, among the 2ᵏ channels, of the channel that the voxel at a place of the fine grid comes from.
    pub fn part(self, fine: [usize; 3]) -> usize {
        (0..3).filter(|axis| self.axes[*axis]).fold(0, |part, axis| part * 2 + fine[axis] % 2)
    }

    /// Calls `visit(fine voxel, part, coarse voxel)` for all that the first is the mean of.
    fn for_each_term(self, coarse: [usize; 3], mut visit: impl FnMut(usize, usize, usize)) {
        let factor = self.axes.map(|doubled| 1 + usize::from(doubled));
        let fine = [0, 1, 2].map(|axis| coarse[axis] * factor[axis]);
        for (voxel, (d, h, w)) in grid(fine).enumerate() {
            for (dd, dh, dw) in grid(factor) {
                let at = [d.checked_sub(dd), h.checked_sub(dh), w.checked_sub(dw)];
                let [Some(d), Some(h), Some(w)] = at else { continue };
                let from = ((d / factor[0]) * coarse[1] + h / factor[1]) * coarse[2] + w / factor[2];
                visit(voxel, self.part([d, h, w]), from);
            }
        }
    }
}

impl Rule for Subpixel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        if !shape.channels().is_multiple_of(self.parts()) {
            let expected = format!("a multiple of {} channels is needed", self.parts());
            return Err(unfit(NAME, shape, &expected));
        }
        let output = doubled(shape.spatial(), self.axes)
            .ok_or_else(|| unfit(NAME, shape, "a smaller one is needed"))?;
        let shape = Shape::volume(shape.batch(), shape.channels() / self.parts(), output);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) {
            let dx = tape.push(SubpixelGrad { axes: self.axes }, &[dy])?[0];
            tape.add(node.inputs[0], dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (coarse, fine, parts) = (&inputs[0].shape, &results[0], self.parts());
        let mut result = Array::zeros(fine.clone());
        for plane in 0..fine.batch() * fine.channels() {
            self.for_each_term(coarse.spatial(), |to, part, from| {
                let value = inputs[0].data[(plane * parts + part) * coarse.voxels() + from];
                result.data[plane * fine.voxels() + to] += value / parts as f64;
            });
        }
        vec![result]
    }
}

impl Rule for SubpixelGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let input = halved(shape.spatial(), self.axes)
            .ok_or_else(|| unfit(GRAD, shape, "doubled axes have even extents"))?;
        let channels = shape.channels().checked_mul(Subpixel { axes: self.axes }.parts());
        let channels = channels.ok_or_else(|| unfit(GRAD, shape, "fewer channels are needed"))?;
        Ok(vec![Signature::volume(Shape::volume(shape.batch(), channels, input), inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (fine, coarse) = (&inputs[0].shape, &results[0]);
        let forward = Subpixel { axes: self.axes };
        let parts = forward.parts();
        let mut result = Array::zeros(coarse.clone());
        for plane in 0..fine.batch() * fine.channels() {
            forward.for_each_term(coarse.spatial(), |from, part, to| {
                let value = inputs[0].data[plane * fine.voxels() + from] / parts as f64;
                result.data[(plane * parts + part) * coarse.voxels() + to] += value;
            });
        }
        vec![result]
    }
}
