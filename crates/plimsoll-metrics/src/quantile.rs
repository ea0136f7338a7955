//! Quantiles.

/// Returns the quantile at a share (from 0 to 1) of `count` sorted numbers, interpolated linearly between the two nearest, or `None` if
/// `count` is 0. This is the definition of `numpy.quantile`, but it interpolates always from the lower neighbour, so the last bit may differ.
pub fn quantile(count: usize, sorted: impl Fn(usize) -> f64, share: f64) -> Option<f64> {
    let rank = share * count.checked_sub(1)? as f64;
    let (below, above) = (sorted(rank.floor() as usize), sorted((rank.ceil() as usize).min(count - 1)));
    // Equal neighbours need no interpolation, which would give NaN for infinities.
    Some(if below == above { below } else { below + (above - below) * rank.fract() })
}
