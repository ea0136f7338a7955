//! Dropout of whole samples.

use serde::{Deserialize, Serialize};

use super::dropout::{Noise, dropped_gradient, infer_dropped, philox, scale, threshold};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// y = x / (1 − p) for a sample that is kept, else 0 · x; each is kept with probability 1 − p. On a branch beside a skip this is
/// stochastic depth (Huang et al. 2016, arXiv:1603.09382), also called drop path.
///
/// Operands: a volume `[N, C, D, H, W]`; a [`Noise`] `[5]`. Result: like the volume. As with [`Dropout`](super::Dropout), what is
/// kept follows from counters, so the gradient is the same op on the gradient of the result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleDrop {
    /// The probability that a sample is dropped, below 1.
    pub p: f32,
    /// Tells it from the other dropouts of a program.
    pub layer: u32,
}

impl SampleDrop {
    /// The factor of a sample; `sample` is its place in the program's volume.
    pub fn factor(&self, noise: Noise, sample: usize) -> f32 {
        let sample = noise.first_sample.wrapping_add(sample as u32);
        let [[random], ..] = philox([[0], [0], [sample], [self.layer]], noise.key);
        if random < threshold(self.p) { 0.0 } else { scale(self.p) }
    }
}

const NAME: &str = "sample_drop";

impl Rule for SampleDrop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_dropped(NAME, self.p, inputs)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        dropped_gradient(*self, tape, node)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let of_sample = results[0].count() / results[0].batch();
        let noise = Noise::from_array(inputs[1]);
        vec![Array::from_fn(results[0].clone(), |place| {
            inputs[0].data[place] * f64::from(self.factor(noise, place / of_sample))
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a mean over thousands of random numbers; other tests interpret the same code")]
    fn as_many_samples_are_dropped_as_is_asked_for_and_each_for_itself() {
        let op = SampleDrop { p: 0.3, layer: 5 };
        let of = |step: u64| op.factor(Noise::for_step(1, step, 0), 2);
        let count = 4000u64;
        let dropped = (0..count).filter(|step| of(*step) == 0.0).count() as f64 / count as f64;
        // Four standard deviations.
        assert!((dropped - 0.3).abs() < 4.0 * (0.3 * 0.7 / count as f64).sqrt(), "{dropped}");
        let noise = Noise::for_step(1, 2, 0);
        let later = Noise { first_sample: 1, ..noise };
        let alike = (0..64).all(|sample| op.factor(noise, sample + 1) == op.factor(later, sample));
        assert!(alike, "a sample has its factor in whatever part of the batch it comes");
    }
}
