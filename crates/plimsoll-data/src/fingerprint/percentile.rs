//! Percentiles as NumPy computes them by default.

/// The value below which `percent` of 100 of a sorted, not empty, list lie, interpolated linearly between the two
/// nearest. The sum is taken from the nearer end, as NumPy does, so that the result is the same to the last bit.
pub(crate) fn of_sorted<T>(sorted: &[T], percent: f64, value: impl Fn(&T) -> f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = percent / 100.0 * last as f64;
    let lower = (at.floor() as usize).min(last);
    let fraction = at - lower as f64;
    let (a, b) = (value(&sorted[lower]), value(&sorted[(lower + 1).min(last)]));
    let step = b - a;
    if fraction < 0.5 { a + step * fraction } else { b - step * (1.0 - fraction) }
}

/// The same of a list in any order.
pub(crate) fn of(values: impl Iterator<Item = f64>, percent: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    of_sorted(&sorted, percent, |value| *value)
}
