//! Percentiles as NumPy computes them by default.

/// The percentile (0 to 100) of a sorted, non-empty list, interpolated linearly between the two nearest values. It is
/// computed from the nearer of the two, as NumPy does, so that the results are bitwise equal.
pub(crate) fn from_sorted<T>(sorted: &[T], percent: f64, value: impl Fn(&T) -> f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = percent / 100.0 * last as f64;
    let lower = (at.floor() as usize).min(last);
    let fraction = at - lower as f64;
    let (a, b) = (value(&sorted[lower]), value(&sorted[(lower + 1).min(last)]));
    let step = b - a;
    if fraction < 0.5 { a + step * fraction } else { b - step * (1.0 - fraction) }
}

/// The percentile of a non-empty list in any order.
pub(crate) fn from_values(values: impl Iterator<Item = f64>, percent: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    from_sorted(&sorted, percent, |value| *value)
}
