//! Counts of right and wrong voxels.

use serde::{Deserialize, Serialize};

use super::loss::for_each_voxel;
use super::softmax_stats::expect_logits_and_labels;
use crate::op::expect_operands;
use crate::{Array, DType, GraphError, Rule, Shape, Signature, TensorInfo};

/// True positives, false positives and false negatives of each class, over samples and voxels, of the class with the largest
/// logit (the first of equals). Operands: logits, labels. Result: `[C, 3]`, f64: exact for any number of voxels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardCounts {
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

const NAME: &str = "hard_counts";

impl Rule for HardCounts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        let (_, classes) = expect_logits_and_labels(NAME, inputs[0], inputs[1])?;
        Ok(vec![Signature { dtype: DType::F64, ..Signature::table([classes, 3]) }])
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut counts = Array::zeros(results[0].clone());
        for_each_voxel(inputs[0], inputs[1], self.ignore, |voxel| {
            let (p, label) = (&voxel.p, voxel.label);
            let mut best = 0;
            for (class, probability) in p.iter().enumerate() {
                if *probability > p[best] {
                    best = class;
                }
            }
            match best == label {
                true => counts.data[3 * label] += 1.0,
                false => {
                    counts.data[3 * best + 1] += 1.0;
                    counts.data[3 * label + 2] += 1.0;
                }
            }
        });
        vec![counts]
    }
}
