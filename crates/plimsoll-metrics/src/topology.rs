//! Betti errors: components, tunnels and cavities that a prediction has too many or too few.

use plimsoll_memory::Budget;
use plimsoll_morphology::{Betti, Topology, betti_numbers};

use crate::{ClassMasks, MetricError};

/// The Betti numbers of a prediction and its reference. Foreground is connected at corners, background at faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BettiNumbers {
    /// Those of the prediction.
    pub prediction: Betti,
    /// Those of the reference.
    pub reference: Betti,
}

fn numbers(betti: Betti) -> [u64; 3] {
    [betti.components, betti.tunnels, betti.cavities]
}

impl BettiNumbers {
    /// Computes both. Uses slightly more than 4 bytes per voxel from `budget`.
    ///
    /// # Errors
    /// Returns an error if there are more voxels than 32 bits can number, or the memory is not available.
    pub fn count(masks: &ClassMasks, budget: &Budget, threads: usize) -> Result<BettiNumbers, MetricError> {
        let of = |mask| betti_numbers(mask, masks.shape(), Topology::Corners, budget, threads);
        Ok(BettiNumbers { prediction: of(masks.prediction())?, reference: of(masks.reference())? })
    }

    /// |Δβ₀|, |Δβ₁|, |Δβ₂|: the Betti errors over the whole volume, not the mean over patches that some papers report.
    pub fn errors(&self) -> [u64; 3] {
        let (prediction, reference) = (numbers(self.prediction), numbers(self.reference));
        std::array::from_fn(|dimension| prediction[dimension].abs_diff(reference[dimension]))
    }

    /// 1 − Σ |Δβ| / Σ (β of prediction + β of reference): an analogue of Dice for Betti numbers, 1 for the same
    /// topology and 0 if one mask is empty. NaN if both are. This definition is our own; there is no established one.
    pub fn score(&self) -> f64 {
        let sum = |numbers: [u64; 3]| numbers.iter().sum::<u64>() as f64;
        1.0 - sum(self.errors()) / (sum(numbers(self.prediction)) + sum(numbers(self.reference)))
    }
}
