//! Random numbers that depend only on their purpose.
//!
//! A sequential generator has a state that a run would have to save and threads would have to share. Here every use has
//! its own stream, keyed by seed, step, sample and purpose. The streams are ChaCha with 8 rounds (Bernstein 2008), a
//! portable algorithm. The purposes of all crates are listed here, so that no two of them share a stream.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Beta, Distribution, StandardNormal};

/// The purpose of a stream. The discriminants are part of the key and must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The case and the position of a patch.
    Place = 1,
    /// Rotation, scale, mirroring.
    Space = 2,
    /// Parameters of intensity augmentations.
    Intensity = 3,
    /// Noise, voxel by voxel.
    Noise = 4,
    /// The shapes of a phantom.
    Phantom = 5,
    /// The augmentation of a two-dimensional image.
    Image = 6,
    /// The noise that an erased rectangle is filled with.
    Erasing = 7,
    /// The partner of a mixed sample, and its share.
    Mixing = 8,
    /// The order in which groups of cases are assigned to folds.
    Folds = 9,
    /// The control points of an elastic deformation.
    Deformation = 10,
}

/// One stream.
pub struct Draws(ChaCha8Rng);

impl Draws {
    /// The stream of this key. `group` separates uses that have the same steps and samples.
    pub fn new(seed: u64, purpose: Purpose, group: u32, step: u64, sample: u64) -> Draws {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&step.to_le_bytes());
        key[16..24].copy_from_slice(&sample.to_le_bytes());
        key[24..28].copy_from_slice(&(purpose as u32).to_le_bytes());
        key[28..].copy_from_slice(&group.to_le_bytes());
        Draws(ChaCha8Rng::from_seed(key))
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform number in the range `[low, high)`.
    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A uniform integer below `count`, which must not be 0. The bias of the multiplication is less than `count` ÷ 2⁶⁴.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.0.next_u64()) * count as u128) >> 64) as usize
    }

    /// From the beta distribution with both parameters `alpha`; `None` unless it is positive and finite.
    pub fn beta(&mut self, alpha: f64) -> Option<f64> {
        Some(Beta::new(alpha, alpha).ok()?.sample(&mut self.0))
    }

    /// Exchanges items so that each order is equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// From the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f32 {
        StandardNormal.sample(&mut self.0)
    }
}

/// Mixes a number so that every bit of the result depends on every bit of the input (the finaliser of SplitMix64;
/// Steele, Lea and Flood 2014).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_key_selects_another_stream() {
        let first =
            |seed, purpose, group, step, sample| Draws::new(seed, purpose, group, step, sample).unit();
        let reference = first(1, Purpose::Place, 0, 2, 3);
        assert_eq!(reference, first(1, Purpose::Place, 0, 2, 3));
        for other in [
            first(2, Purpose::Place, 0, 2, 3),
            first(1, Purpose::Space, 0, 2, 3),
            first(1, Purpose::Place, 1, 2, 3),
            first(1, Purpose::Place, 0, 3, 3),
            first(1, Purpose::Place, 0, 2, 4),
        ] {
            assert_ne!(reference, other);
        }
    }

    #[test]
    fn integers_are_drawn_uniformly() {
        let mut draws = Draws::new(1, Purpose::Place, 0, 0, 0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[draws.below(7)] += 1;
        }
        // Five standard deviations of a count with mean 10 000.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 470), "{counts:?}");
    }

    #[test]
    fn every_order_of_three_items_is_drawn_equally_often() {
        let mut draws = Draws::new(1, Purpose::Folds, 0, 0, 0);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..60_000 {
            let mut items = [0, 1, 2];
            draws.shuffle(&mut items);
            *counts.entry(items).or_insert(0u32) += 1;
        }
        // Five standard deviations of a count with mean 10 000.
        assert!(counts.len() == 6 && counts.values().all(|count| count.abs_diff(10_000) < 460), "{counts:?}");
    }

    #[test]
    fn the_beta_distribution_has_its_moments() {
        let mut draws = Draws::new(1, Purpose::Mixing, 0, 0, 0);
        let drawn: Vec<f64> = (0..50_000).filter_map(|_| draws.beta(0.2)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        // The variance of Beta(α, α) is 1 / (4 (2α + 1)).
        assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 5.6).abs() < 0.005, "{mean} {variance}");
        assert_eq!(draws.beta(0.0), None);
    }
}
