//! Dropout whose choice of elements follows from counters alone.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_table, expect_volume, upstream};
use crate::{Array, GraphError, Node, Op, Rule, Shape, Signature, Tape, TensorInfo};

/// y = x / (1 − p) where an element is kept, and 0 · x elsewhere; each is kept with probability 1 − p (Srivastava et al. 2014). Or so
/// channel by channel, all voxels alike (Tompson et al. 2015), as `torch.nn.Dropout3d` does.
///
/// Operands: a volume `[N, C, D, H, W]`; a [`Noise`] `[5]`. Result: like the volume. Which elements are kept is a function
/// of the noise, the layer, and the element's sample, channel and voxel. So it is the same when it is computed again, in a
/// batch or in parts of it, and the gradient is the same op on the gradient of the result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// The probability that an element is dropped, below 1.
    pub p: f32,
    /// Tells the dropouts of a program from each other.
    pub layer: u32,
    /// `true` if the choice is made for each channel of a sample, not for each element.
    pub whole_channels: bool,
}

/// The source of the random choices of one run of a program, as a table of floats: a key in four parts of 16 bits, and
/// the index in the batch of the program's first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// The key.
    pub key: u64,
    /// The first sample's number in its batch.
    pub first_sample: u32,
}

/// Floats of a [`Noise`].
pub const NOISE: usize = 5;

impl Noise {
    /// The noise of one step of a run: its key is the hash by SplitMix64 (Steele et al. 2014) of seed and step.
    pub fn for_step(seed: u64, step: u64, first_sample: u32) -> Noise {
        let key = mix(mix(seed.wrapping_add(GOLDEN)) ^ step);
        Noise { key, first_sample }
    }

    /// The noise as a table. Samples are numbered below 2²⁴.
    pub fn to_table(self) -> [f32; NOISE] {
        let part = |place: u32| f32::from((self.key >> (16 * place)) as u16);
        [part(0), part(1), part(2), part(3), self.first_sample as f32]
    }

    /// From a table.
    pub fn from_table(table: [f32; NOISE]) -> Noise {
        let part = |place: usize| (table[place] as u64) << (16 * place);
        Noise { key: part(0) | part(1) | part(2) | part(3), first_sample: table[4] as u32 }
    }

    /// From an operand that [`Rule::infer`] has accepted.
    pub(super) fn from_array(table: &Array) -> Noise {
        Noise::from_table(std::array::from_fn(|i| table.data[i] as f32))
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random number below which an element that is dropped with probability `p` is dropped.
pub(super) fn threshold(p: f32) -> u32 {
    (f64::from(p) * f64::from(u32::MAX)).round() as u32
}

/// The factor of kept elements, so that the mean stays.
pub(super) fn scale(p: f32) -> f32 {
    1.0 / (1.0 - p)
}

impl Dropout {
    /// An element is dropped if its random number is below this.
    pub fn threshold(&self) -> u32 {
        threshold(self.p)
    }

    /// The factor of kept elements.
    pub fn scale(&self) -> f32 {
        scale(self.p)
    }

    /// The counter from which [`philox`] generates the random numbers of four channels of a voxel: the numbers of channel
    /// group ⌊channel / 4⌋. If whole channels are dropped, all voxels have the counter of the first.
    pub fn counter(&self, sample: u32, group: u32, voxel: u32) -> [u32; 4] {
        [if self.whole_channels { 0 } else { voxel }, group, sample, self.layer]
    }
}

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") of several counters at once: word
/// `i` of each is in `counters[i]`.
#[inline(always)]
pub fn philox<const N: usize>(mut counters: [[u32; N]; 4], key: u64) -> [[u32; N]; 4] {
    let mut keys = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let [first, second, third, fourth] = counters;
        let mut next = [[0; N]; 4];
        for lane in 0..N {
            let product = u64::from(first[lane]) * 0xD251_1F53;
            let other = u64::from(third[lane]) * 0xCD9E_8D57;
            next[0][lane] = (other >> 32) as u32 ^ second[lane] ^ keys[0];
            next[1][lane] = other as u32;
            next[2][lane] = (product >> 32) as u32 ^ fourth[lane] ^ keys[1];
            next[3][lane] = product as u32;
        }
        counters = next;
        keys = [keys[0].wrapping_add(0x9E37_79B9), keys[1].wrapping_add(0xBB67_AE85)];
    }
    counters
}

const NAME: &str = "dropout";

/// Checks that an attribute is a probability with which something can be dropped.
pub(super) fn expect_probability(
    op: &'static str,
    attribute: &'static str,
    found: f32,
) -> Result<(), GraphError> {
    if (0.0..1.0).contains(&found) {
        return Ok(());
    }
    let expected = "a probability from 0 to below 1 is needed".into();
    Err(GraphError::Attribute { op, attribute, found: found.to_string(), expected })
}

/// Infers the result of an op that drops a part of a volume with a probability. Operands: the volume, and the noise of the step.
pub(super) fn infer_dropped(
    op: &'static str,
    p: f32,
    inputs: &[&TensorInfo],
) -> Result<Vec<Signature>, GraphError> {
    expect_operands(op, inputs.len(), 2)?;
    expect_probability(op, "p", p)?;
    expect_volume(op, "the operand", inputs[0])?;
    expect_table(op, "the noise", inputs[1], &[NOISE])?;
    Ok(vec![Signature::like(inputs[0])])
}

/// Writes the gradient of an op that drops a part of a volume: the same op, with the same noise, on the gradient.
pub(super) fn dropped_gradient(op: impl Into<Op>, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
    if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) {
        let dx = tape.push(op, &[dy, node.inputs[1]])?[0];
        tape.add(node.inputs[0], dx)?;
    }
    Ok(())
}

impl Rule for Dropout {
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
        let shape = &results[0];
        let (channels, voxels) = (shape.channels(), shape.voxels());
        let noise = Noise::from_array(inputs[1]);
        vec![Array::from_fn(shape.clone(), |place| {
            let (voxel, channel) = (place % voxels, place / voxels % channels);
            let sample = noise.first_sample.wrapping_add((place / voxels / channels) as u32);
            let counter = self.counter(sample, channel as u32 / 4, voxel as u32);
            let random = philox(counter.map(|word| [word]), noise.key)[channel % 4][0];
            let factor = if random < self.threshold() { 0.0 } else { f64::from(self.scale()) };
            inputs[0].data[place] * factor
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the authors' Random123 library.
    #[test]
    fn philox_gives_the_known_answers() {
        let of = |word: u32, key: u64| philox([[word]; 4], key).map(|[word]| word);
        assert_eq!(of(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(of(u32::MAX, u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn a_noise_survives_its_table() {
        for step in 0..100 {
            let noise = Noise::for_step(7, step, 3);
            assert_eq!(Noise::from_table(noise.to_table()), noise);
            assert_ne!(noise.key, Noise::for_step(7, step + 1, 3).key);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a mean over thousands of random numbers; other tests interpret the same code")]
    fn as_many_elements_are_dropped_as_is_asked_for_and_the_mean_is_kept() {
        let shape = Shape::volume(2, 5, [7, 9, 11]);
        let op = Dropout { p: 0.3, layer: 2, whole_channels: false };
        let ones = Array::from_fn(shape.clone(), |_| 1.0);
        let table = Noise::for_step(1, 2, 0).to_table();
        let noise = Array { shape: Shape(vec![NOISE]), data: table.map(f64::from).to_vec() };
        let result = op.evaluate(&[&ones, &noise], &[shape]).remove(0);
        let count = result.data.len() as f64;
        let dropped = result.data.iter().filter(|x| **x == 0.0).count() as f64 / count;
        // Four standard deviations.
        assert!((dropped - 0.3).abs() < 4.0 * (0.3 * 0.7 / count).sqrt(), "{dropped}");
        let mean = result.data.iter().sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "a mean over thousands of random numbers; other tests interpret the same code")]
    fn whole_channels_are_dropped_or_kept() {
        let shape = Shape::volume(8, 25, [2, 3, 4]);
        let op = Dropout { p: 0.3, layer: 2, whole_channels: true };
        let ones = Array::from_fn(shape.clone(), |_| 1.0);
        let table = Noise::for_step(1, 2, 0).to_table();
        let noise = Array { shape: Shape(vec![NOISE]), data: table.map(f64::from).to_vec() };
        let result = op.evaluate(&[&ones, &noise], &[shape]).remove(0);
        let planes: Vec<&[f64]> = result.data.chunks(24).collect();
        assert!(planes.iter().all(|plane| plane.iter().all(|x| *x == plane[0])));
        let dropped = planes.iter().filter(|plane| plane[0] == 0.0).count() as f64 / 200.0;
        assert!((dropped - 0.3).abs() < 4.0 * (0.3 * 0.7 / 200.0f64).sqrt(), "{dropped}");
    }
}
