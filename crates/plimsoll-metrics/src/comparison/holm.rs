//! Holm's correction for several tests.

/// Corrects p values of tests that are done together, so that the probability of a single false one among those below α is at most α: the
/// k-th smallest of m, counted from 0, is multiplied by m − k, and none is smaller than one before it (Holm 1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|one, other| p[*one].total_cmp(&p[*other]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[index]).min(1.0);
        corrected[index] = largest;
    }
    corrected
}
