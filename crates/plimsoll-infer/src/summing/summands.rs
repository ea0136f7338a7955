//! The summed quantity of each voxel where windows overlap: logits, or the features from which a head computes logits.
//!
//! A head of one tap is one linear function for all voxels, and the shares of the windows over a voxel come to one. So the head of the
//! mean of features is the mean of the logits, and of many classes there are far fewer features than logits to hold. The head is
//! then applied once to each voxel, and not in each window over it.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::SegmentationModel;
use plimsoll_nn::Headless;
use plimsoll_parallel::{Loop, widest};
use plimsoll_run::{LoadOptions, read_some_parameters};

use crate::error::InferError;
use crate::options::Summed;
use crate::summing::sums::Sum;

impl Summed {
    /// So many times as many classes as features are worth summing these: below it, logits of two planes and the head's time take back
    /// much of what is saved.
    const WORTH: usize = 2;

    /// Returns the better quantity for a head of these features and classes, or for a network without such a head, and a number of folds: several folds have
    /// several heads.
    pub(crate) fn best(head: Option<[usize; 2]>, folds: usize) -> Summed {
        match head {
            Some([features, classes]) if folds == 1 && classes >= Summed::WORTH * features => {
                Summed::Features
            }
            _ => Summed::Logits,
        }
    }
}

/// A head of one tap: logits\[c\] = bias\[c\] + Σ weights\[c\]\[i\] · features\[i\]
pub(crate) struct PointHead {
    outputs: usize,
    features: usize,
    /// `[output][feature]`, and then `[output]`.
    numbers: Mapped<f32>,
    /// A logit is at most so many times as large as the largest feature, where that is 1 or more.
    gain: f32,
}

impl PointHead {
    /// Reads the head of a model of one fold.
    ///
    /// # Errors
    /// Returns an error if the weights cannot be read, or the budget has no room.
    pub(crate) fn read(
        model: &SegmentationModel,
        of: &Headless,
        options: LoadOptions,
        budget: &Budget,
    ) -> Result<PointHead, InferError> {
        let shape = of.program.shape(of.weights);
        let (outputs, features) = (shape.dim(0), shape.dim(1));
        let mut numbers = Mapped::zeroed(budget, "the head", outputs.saturating_mul(features + 1))?;
        let (weights, bias) = numbers.split_at_mut(outputs * features);
        let mut wanted = vec![(of.weights, weights)];
        wanted.extend(of.bias.map(|id| (id, bias)));
        let net = model.net.as_architecture();
        let source = model.weights.first().ok_or_else(|| crate::error::internal("a fold has no weights"))?;
        read_some_parameters(source, net, &of.program, &mut wanted, options, budget)?;
        Ok(PointHead::new(outputs, features, numbers))
    }

    /// Makes a head of weights `[output][feature]` followed by a bias.
    pub(crate) fn new(outputs: usize, features: usize, numbers: Mapped<f32>) -> PointHead {
        let (weights, bias) = numbers.split_at(outputs * features);
        let gain = weights.chunks_exact(features).zip(bias).map(|(weights, bias)| {
            weights.iter().chain([bias]).map(|number| f64::from(number.abs())).sum::<f64>() as f32
        });
        let gain = gain.fold(1.0, f32::max);
        PointHead { outputs, features, numbers, gain }
    }

    /// The weights of an output, and its bias.
    fn weights_of_output(&self, output: usize) -> (&[f32], f32) {
        let (weights, bias) = self.numbers.split_at(self.outputs * self.features);
        (&weights[output * self.features..][..self.features], bias[output])
    }

    /// Returns the number of its logits.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Numbers of the room that [`line`](PointHead::line) takes.
    pub(crate) fn room(&self) -> usize {
        self.features.saturating_mul(PIECE)
    }

    /// Makes the logits `[output][voxel]` of a line of voxels, whose features lie in a plane `[feature][voxel]` of `voxels`
    /// voxels from `first` on.
    pub(crate) fn line<S: Sum>(
        &self,
        plane: &[S],
        voxels: usize,
        first: usize,
        logits: &mut [f32],
        room: &mut [f32],
    ) {
        let length = logits.len() / self.outputs.max(1);
        let (features, _) = room.as_chunks_mut::<PIECE>();
        for from in (0..length).step_by(PIECE) {
            let count = PIECE.min(length - from);
            for (number, feature) in features.iter_mut().enumerate() {
                S::widen(&plane[number * voxels + first + from..][..count], &mut feature[..count]);
            }
            let logits = &mut *logits;
            widest(Piece { head: self, features, logits, length, of: from..from + count });
        }
    }
}

/// A piece of a line whose logits `[output][voxel of the line]` are made, compiled for each width of vectors that processors have: with the same
/// operations on each number in the same order, so that logits have the same bits.
struct Piece<'a> {
    head: &'a PointHead,
    features: &'a [[f32; PIECE]],
    logits: &'a mut [f32],
    /// Voxels of the line, and voxels of the piece.
    length: usize,
    of: Range<usize>,
}

impl Loop for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const LANES: usize>(mut self) {
        match LANES {
            16 => self.all::<{ 16 * VECTORS }>(),
            8 => self.all::<{ 8 * VECTORS }>(),
            _ => self.all::<{ 4 * VECTORS }>(),
        }
    }
}

impl Piece<'_> {
    /// The logits of all outputs, of `BLOCK` voxels at a time.
    #[inline(always)]
    fn all<const BLOCK: usize>(&mut self) {
        let mut output = 0;
        while output < self.head.outputs {
            let done = if TOGETHER <= self.head.outputs - output { TOGETHER } else { 1 };
            match done {
                TOGETHER => self.products::<BLOCK, TOGETHER>(output),
                _ => self.products::<BLOCK, 1>(output),
            }
            output += done;
        }
    }

    /// The logits of `N` outputs. A sum begins with the bias and goes through the features in their order.
    #[inline(always)]
    fn products<const BLOCK: usize, const N: usize>(&mut self, first: usize) {
        let of: [(&[f32], f32); N] =
            std::array::from_fn(|number| self.head.weights_of_output(first + number));
        let mut logits = [[0.0; PIECE]; N];
        for from in (0..PIECE).step_by(BLOCK) {
            let mut sums = of.map(|(_, bias)| [bias; BLOCK]);
            for (number, feature) in self.features.iter().enumerate() {
                let feature = &feature[from..from + BLOCK];
                for ((weights, _), sums) in of.iter().zip(&mut sums) {
                    let weight = weights[number];
                    // Products and sums are rounded one by one at every width.
                    sums.iter_mut().zip(feature).for_each(|(sum, feature)| *sum += weight * feature);
                }
            }
            for (logits, sums) in logits.iter_mut().zip(&sums) {
                logits[from..from + BLOCK].copy_from_slice(sums);
            }
        }
        for (number, logits) in logits.iter().enumerate() {
            let to = &mut self.logits[(first + number) * self.length..][self.of.clone()];
            to.copy_from_slice(&logits[..self.of.len()]);
        }
    }
}

/// Voxels whose features are made wide at a time.
const PIECE: usize = 64;
/// Vectors of voxels, and outputs, whose sums are in registers at a time.
const VECTORS: usize = 2;
const TOGETHER: usize = 4;

/// The summed quantity, with the head that computes logits from the means.
#[derive(Clone)]
pub(crate) enum Summands {
    /// So many logits.
    Logits(usize),
    /// The features of a head.
    Features(Arc<PointHead>),
}

impl Summands {
    /// Numbers that are summed of each voxel.
    pub(crate) fn channels(&self) -> usize {
        match self {
            Summands::Logits(outputs) => *outputs,
            Summands::Features(head) => head.features,
        }
    }

    /// Returns the kind of quantity.
    pub(crate) fn summed(&self) -> Summed {
        match self {
            Summands::Logits(_) => Summed::Logits,
            Summands::Features(_) => Summed::Features,
        }
    }

    /// The head that makes logits of the means, if they are not.
    pub(crate) fn head(&self) -> Option<&Arc<PointHead>> {
        match self {
            Summands::Logits(_) => None,
            Summands::Features(head) => Some(head),
        }
    }

    /// Numbers from here on are refused: they cannot be summed, or their logits could not be compared.
    pub(crate) fn limit<S: Sum>(&self) -> f32 {
        match self {
            Summands::Logits(_) => S::LARGEST,
            Summands::Features(head) => S::LARGEST.min(f32::LARGEST / head.gain),
        }
    }
}

/// Returns a head with these weights and biases, for tests.
#[cfg(test)]
pub(crate) fn head_of(weights: &[&[f32]], bias: &[f32], budget: &Budget) -> PointHead {
    let features = weights.first().map_or(0, |weights| weights.len());
    let mut numbers = Mapped::zeroed(budget, "the head", weights.len() * (features + 1)).unwrap();
    let all = weights.iter().flat_map(|weights| weights.iter()).chain(bias);
    numbers.iter_mut().zip(all).for_each(|(number, of)| *number = *of);
    PointHead::new(weights.len(), features, numbers)
}

#[cfg(test)]
mod tests {
    use half::f16;
    use plimsoll_memory::Bytes;

    use super::*;

    #[test]
    fn features_are_summed_of_one_fold_with_twice_as_many_classes_as_features() {
        assert_eq!(Summed::best(Some([32, 64]), 1), Summed::Features);
        assert_eq!(Summed::best(Some([32, 63]), 1), Summed::Logits);
        assert_eq!(Summed::best(Some([32, 118]), 5), Summed::Logits, "each fold has a head of its own");
        assert_eq!(Summed::best(None, 1), Summed::Logits);
    }

    #[test]
    fn a_head_is_a_product_of_weights_and_features_and_a_bias() {
        let budget = Budget::new(Bytes::mib(4));
        let number = |at: usize| ((at * 37 % 101) as f32 - 50.0) / 32.0;
        for (outputs, features, voxels, first, length) in
            [(5, 3, 200, 17, 150), (2, 7, 64, 0, 64), (1, 1, 9, 4, 1)]
        {
            let weights: Vec<Vec<f32>> = (0..outputs)
                .map(|output| (0..features).map(|feature| number(output * 11 + feature * 3 + 1)).collect())
                .collect();
            let bias: Vec<f32> = (0..outputs).map(|output| number(output + 1000)).collect();
            let rows: Vec<&[f32]> = weights.iter().map(|weights| &weights[..]).collect();
            let head = head_of(&rows, &bias, &budget);
            let plane: Vec<f32> = (0..features * voxels).map(|at| number(at + 7)).collect();
            let halves: Vec<f16> = plane.iter().map(|number| f16::from_f32(*number)).collect();
            let (mut wide, mut narrow) = (vec![0.0; outputs * length], vec![0.0; outputs * length]);
            let mut room = vec![f32::NAN; head.room()];
            head.line(&plane[..], voxels, first, &mut wide, &mut room);
            head.line(&halves[..], voxels, first, &mut narrow, &mut room);
            // All numbers are multiples of 1/32 below 2, which half precision has exactly.
            assert_eq!(wide, narrow);
            for output in 0..outputs {
                for at in 0..length {
                    let terms = (0..features).map(|feature| {
                        f64::from(weights[output][feature]) * f64::from(plane[feature * voxels + first + at])
                    });
                    let expected = f64::from(bias[output]) + terms.sum::<f64>();
                    assert!((f64::from(wide[output * length + at]) - expected).abs() < 1e-5);
                }
            }
        }
    }

    /// Whatever vectors this processor has.
    #[test]
    fn logits_have_the_bits_of_products_and_sums_one_after_the_other() {
        let budget = Budget::new(Bytes::mib(4));
        let number = |at: usize| (at as f32 * 0.37).sin() * 3.0;
        // Outputs that fill groups and some that do not; lines that fill pieces and one that does not.
        let (outputs, features, length) = (TOGETHER * 3 + 3, 33, PIECE * 2 + 21);
        let weights: Vec<Vec<f32>> = (0..outputs)
            .map(|output| (0..features).map(|feature| number(output * 57 + feature)).collect())
            .collect();
        let bias: Vec<f32> = (0..outputs).map(|output| number(output + 5000)).collect();
        let rows: Vec<&[f32]> = weights.iter().map(|weights| &weights[..]).collect();
        let head = head_of(&rows, &bias, &budget);
        let plane: Vec<f32> = (0..features * length).map(|at| number(at + 9000)).collect();
        let mut logits = vec![f32::NAN; outputs * length];
        head.line(&plane[..], length, 0, &mut logits, &mut vec![f32::NAN; head.room()]);
        for output in 0..outputs {
            for at in 0..length {
                let terms = weights[output].iter().zip(plane.iter().skip(at).step_by(length));
                let expected = terms.fold(bias[output], |sum, (weight, feature)| sum + weight * feature);
                assert_eq!(logits[output * length + at].to_bits(), expected.to_bits(), "{output}, {at}");
            }
        }
    }

    #[test]
    fn features_are_refused_whose_logits_would_be() {
        let budget = Budget::new(Bytes::mib(1));
        let head = head_of(&[&[3.0, -4.0], &[0.5, 0.0]], &[1.0, 0.0], &budget);
        let features = Summands::Features(Arc::new(head));
        assert_eq!(features.limit::<f32>(), 1e30 / 8.0);
        assert_eq!(features.limit::<f16>(), 65_000.0);
        assert_eq!(Summands::Logits(2).limit::<f32>(), 1e30);
        assert_eq!((features.channels(), features.summed()), (2, Summed::Features));
    }
}
