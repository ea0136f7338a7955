//! Exact tests of images that one of two classifiers gets right and the other does not.

/// A product is scaled back by this before it overflows.
const SCALE: i32 = 512;

/// Steps up to which all sums of signs are enumerated.
const ENUMERATED_UP_TO: u64 = 100_000_000;

/// McNemar's exact test (1947): of the images that only one of both gets right, `first` by the one and `second` by the other, each would be either's
/// with probability ½ if both were as good. Both sides, as `statsmodels`' `mcnemar(exact=True)`.
pub fn mcnemar(first: u64, second: u64) -> f64 {
    let (all, least) = (first + second, first.min(second));
    // C(all, least), divided by powers of 2^SCALE as it grows.
    let (mut product, mut scaled) = (1.0f64, 0i32);
    for step in 1..=least {
        product *= (all - least + step) as f64 / step as f64;
        if product > 2f64.powi(SCALE) {
            product *= 2f64.powi(-SCALE);
            scaled += 1;
        }
    }
    // Σ C(all, k) / C(all, least) for k ≤ least.
    let (mut sum, mut term) = (0.0, 1.0);
    for k in (0..=least).rev() {
        sum += term;
        term *= k as f64 / (all - k + 1) as f64;
        if term < sum * f64::EPSILON * 1e-3 {
            break;
        }
    }
    let exponent = i64::from(SCALE) * i64::from(scaled) - all as i64 + 1;
    let half = |exponent: i64| 2f64.powi(exponent.clamp(-2000, 2000) as i32);
    // In two halves, neither of which vanishes before the whole does.
    (product * half(exponent / 2) * sum * half(exponent - exponent / 2)).min(1.0)
}

/// The exact test of a sum of differences whose signs would be either with probability ½ (Fisher 1935): the share of all assignments of signs
/// whose sum is at least as far from zero. Differences are whole numbers: how many more of a classifier's repeats get an image right, so that with one
/// repeat each it is [`mcnemar`]. Of very many it is the normal approximation.
pub fn sign_flip(differences: &[i64]) -> f64 {
    // Room for all, which is what is reserved: collected after a filter, it would grow to more.
    let mut sizes: Vec<u64> = Vec::with_capacity(differences.len());
    sizes.extend(differences.iter().map(|d| d.unsigned_abs()).filter(|d| *d > 0));
    let unit = sizes.iter().copied().fold(0, greatest_common_divisor);
    if unit == 0 {
        return 1.0;
    }
    if sizes.iter().all(|size| *size == unit) {
        let positive = differences.iter().filter(|d| **d > 0).count() as u64;
        return mcnemar(positive, sizes.len() as u64 - positive);
    }
    sizes.iter_mut().for_each(|size| *size /= unit);
    let sum = differences.iter().sum::<i64>().unsigned_abs() / unit;
    let all: u64 = sizes.iter().sum();
    if all.saturating_mul(sizes.len() as u64) > ENUMERATED_UP_TO {
        let squares: f64 = sizes.iter().map(|size| (size * size) as f64).sum();
        return (2.0 * crate::normal::above(sum as f64 / squares.sqrt())).min(1.0);
    }
    // The share of assignments by the sum of what is positive; the sum of all signs is twice that less `all`.
    let mut shares = vec![0.0; all as usize + 1];
    shares[0] = 1.0;
    let mut most = 0;
    for size in sizes.into_iter().map(|size| size as usize) {
        most += size;
        for positive in (0..=most).rev() {
            let with = if positive >= size { shares[positive - size] } else { 0.0 };
            shares[positive] = 0.5 * (shares[positive] + with);
        }
    }
    let far = shares.iter().enumerate().filter(|(positive, _)| (2 * *positive as u64).abs_diff(all) >= sum);
    far.map(|(_, share)| share).sum::<f64>().min(1.0)
}

/// Bytes that [`sign_flip`] and its differences take at most, of so many images, none of which differs by more than `most`.
///
/// Sums are enumerated where their number times the number of images is at most [`ENUMERATED_UP_TO`], and there are at most `most` sums for each
/// image: so there are no more than the root of the product of both limits.
pub(super) fn sign_flip_bytes(images: usize, most: u64) -> usize {
    let of_all = (ENUMERATED_UP_TO as f64 * most as f64).sqrt();
    let sums = of_all.min(images as f64 * most as f64) as usize + 1;
    images * (size_of::<i64>() + size_of::<u64>()) + sums * size_of::<f64>()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_is_reserved_for_every_sum_that_is_enumerated() {
        for (images, most) in [(1, 1), (3, 7), (100, 10_000), (10_000, 1), (9_999, 100), (1_000_000, 25)] {
            // As many sums as may be enumerated, of images that differ by at most so much.
            let sums = (images * most).min(ENUMERATED_UP_TO / images) as usize + 1;
            let images = images as usize;
            let (found, held) = (sign_flip_bytes(images, most), images * 16 + sums * 8);
            assert!(found >= held, "{images} images, {most}: {found} of {held} bytes");
        }
        assert!(sign_flip_bytes(1_000_000, 25) < 17 << 20);
    }
}
