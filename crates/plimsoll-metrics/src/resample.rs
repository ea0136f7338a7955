//! Resamples of cases, drawn with replacement.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Draws a resample; the weight of a case is the number of times it is drawn. Each resample has its own random stream.
pub(crate) fn draw(seed: u64, resample: u64, weights: &mut [u32]) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = ChaCha8Rng::from_seed(key);
    random.set_stream(resample);
    let cases = weights.len();
    weights.fill(0);
    for _ in 0..cases {
        // The bias of the multiplication is less than cases ÷ 2⁶⁴.
        let case = ((u128::from(random.next_u64()) * cases as u128) >> 64) as usize;
        weights[case] += 1;
    }
}
