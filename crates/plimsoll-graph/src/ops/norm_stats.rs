//! Statistics for instance normalisation.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume};
use crate::{Array, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// Mean μ and reciprocal standard deviation 1/√(σ² + ε) of each channel of each sample, over its voxels (σ² divided by their
/// number, as `InstanceNorm3d` does). Operand: `[N, C, D, H, W]` with more than one voxel, since one alone has no variance
/// (PyTorch refuses it too). Result: `[N, C, 2]`, f32.
///
/// Its gradient is part of that of [`Normalise`](super::Normalise); there is none by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormStats {
    /// Added to the variance.
    pub epsilon: f32,
}

const NAME: &str = "norm_stats";

impl Rule for NormStats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        if shape.voxels() < 2 {
            let expected = "one voxel has no variance: at least two are needed".into();
            return Err(GraphError::Shape {
                op: NAME,
                operand: "the operand",
                found: shape.clone(),
                expected,
            });
        }
        let result = Shape(vec![shape.batch(), shape.channels(), 2]);
        Ok(vec![Signature::new(result, Kind::Statistics)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = inputs[0].shape.voxels();
        let mut statistics = Array::zeros(results[0].clone());
        for (plane, pair) in inputs[0].data.chunks(voxels).zip(statistics.data.chunks_mut(2)) {
            let mean = plane.iter().sum::<f64>() / voxels as f64;
            let variance = plane.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / voxels as f64;
            pair[0] = mean;
            pair[1] = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
        }
        vec![statistics]
    }
}
