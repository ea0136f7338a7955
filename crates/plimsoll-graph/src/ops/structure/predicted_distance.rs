//! Distances to what is predicted.

use serde::{Deserialize, Serialize};

use super::{expect_probabilities_and_labels, for_each_counted};
use crate::op::expect_operands;
use crate::ops::conv::grid;
use crate::{Array, Cost, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// The exact Euclidean distance of each voxel to the mask of each class, which is where its probability is above ½ and the
/// voxel counts. Outside the mask it is the distance to its nearest voxel, infinite where the mask is empty; inside it is 0
/// or, if `signed`, minus the distance to the nearest voxel outside, −∞ where there is none.
///
/// Operands: probabilities `[N, C−1, D, H, W]`, labels `[N, 1, D, H, W]`. Result: distances, like the probabilities. There is
/// no gradient: the mask is constant but for jumps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedDistance {
    /// From one voxel to the next along depth, height and width.
    pub spacing: [f64; 3],
    /// `true` if distances inside the mask are wanted.
    pub signed: bool,
    /// A label that marks voxels to leave out of masks.
    pub ignore: Option<u8>,
}

const NAME: &str = "predicted_distance";
/// Operations of a voxel: about what the transform takes, by the rates of streaming ops.
const FLOPS: u64 = 60;

/// The definition: of all voxels, the least distance to one in the mask and to one that is not; brute force.
fn distances(mask: &[bool], extent: [usize; 3], spacing: [f64; 3]) -> Vec<f64> {
    let places: Vec<[f64; 3]> = grid(extent)
        .map(|(d, h, w)| [d as f64 * spacing[0], h as f64 * spacing[1], w as f64 * spacing[2]])
        .collect();
    let nearest = |from: usize, other: bool| {
        let squares = places.iter().zip(mask).filter(|(_, inside)| **inside == other);
        let squares = squares.map(|(to, _)| (0..3).map(|axis| (to[axis] - places[from][axis]).powi(2)).sum());
        squares.fold(f64::INFINITY, f64::min).sqrt()
    };
    (0..mask.len()).map(|from| if mask[from] { -nearest(from, false) } else { nearest(from, true) }).collect()
}

impl Rule for PredictedDistance {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_probabilities_and_labels(NAME, inputs[0], inputs[1])?;
        Ok(vec![Signature::new(inputs[0].shape.clone(), Kind::Volume)])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let streaming = Cost::streaming(inputs, outputs);
        Cost { flops: streaming.flops * FLOPS * (1 + u64::from(self.signed)), bytes: 3 * streaming.bytes }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let shape = &inputs[0].shape;
        let mut mask = vec![false; shape.count()];
        for_each_counted(shape, inputs[1], self.ignore, |at, _| mask[at] = inputs[0].data[at] > 0.5);
        let channels = mask.chunks_exact(shape.voxels().max(1));
        let signed = channels.flat_map(|mask| distances(mask, shape.spatial(), self.spacing));
        let data = signed.map(|d| if self.signed { d } else { d.max(0.0) }).collect();
        vec![Array { shape: results[0].clone(), data }]
    }
}
