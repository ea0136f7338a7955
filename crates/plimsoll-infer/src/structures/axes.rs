//! The principal axes of a structure, from moments of its voxels' positions.

/// Sums of voxel indices and of their products, exact.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    voxels: u64,
    /// Sums of depth, height and width.
    sums: [u128; 3],
    /// Sums of the products of depth and depth, depth and height, depth and width, height and height, height and width, width and width.
    products: [u128; 6],
}

/// The pairs of axes of the products.
const PAIRS: [[usize; 2]; 6] = [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]];

impl Moments {
    /// Adds the voxels of a row from `start` up to `end`.
    pub(super) fn add(&mut self, [plane, row]: [usize; 2], [start, end]: [usize; 2]) {
        let [z, y] = [plane, row].map(|index| index as u128);
        let [start, end] = [start, end].map(|index| index as u128);
        let count = end - start;
        /// The sum of all numbers below `end`, and of their squares.
        fn below(end: u128) -> [u128; 2] {
            let before = end.saturating_sub(1);
            [end * before / 2, end * before * (2 * end).saturating_sub(1) / 6]
        }
        let (to, from) = (below(end), below(start));
        let [sum, squares] = [to[0] - from[0], to[1] - from[1]];
        self.voxels += count as u64;
        let sums = [count * z, count * y, sum];
        let products = [count * z * z, count * z * y, z * sum, count * y * y, y * sum, squares];
        self.sums.iter_mut().zip(sums).for_each(|(all, of_run)| *all += of_run);
        self.products.iter_mut().zip(products).for_each(|(all, of_run)| *all += of_run);
    }

    /// The covariance of positions in mm², divided by the number of voxels.
    fn covariance(&self, spacing: [f64; 3]) -> [[f64; 3]; 3] {
        let mut covariance = [[0.0; 3]; 3];
        let count = u128::from(self.voxels);
        for ([one, other], product) in PAIRS.into_iter().zip(self.products) {
            // Whole numbers, so that nothing is lost far from the origin.
            let central = (count * product) as i128 - (self.sums[one] * self.sums[other]) as i128;
            let value = central as f64 / (count as f64 * count as f64) * spacing[one] * spacing[other];
            (covariance[one][other], covariance[other][one]) = (value, value);
        }
        covariance
    }
}

/// The lengths of the principal axes in mm, the longest first: four times the roots of the eigenvalues of the covariance.
pub(super) fn lengths(moments: &Moments, spacing: [f64; 3]) -> [f64; 3] {
    let mut values = eigenvalues(moments.covariance(spacing));
    values.sort_by(|one, other| other.total_cmp(one));
    // Rounding makes an eigenvalue of 0 negative.
    values.map(|value| 4.0 * value.max(0.0).sqrt())
}

/// The eigenvalues of a symmetric matrix, by Jacobi's rotations.
fn eigenvalues(mut matrix: [[f64; 3]; 3]) -> [f64; 3] {
    /// Rotations converge quadratically; a handful suffices.
    const SWEEPS: usize = 32;
    for _ in 0..SWEEPS {
        for [p, q] in [[0, 1], [0, 2], [1, 2]] {
            rotate(&mut matrix, p, q);
        }
    }
    std::array::from_fn(|axis| matrix[axis][axis])
}

/// Rotates the plane of two axes so that their element becomes 0.
fn rotate(matrix: &mut [[f64; 3]; 3], p: usize, q: usize) {
    if matrix[p][q] == 0.0 {
        return;
    }
    let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
    let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = tangent * cosine;
    for row in matrix.iter_mut() {
        (row[p], row[q]) = (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
    }
    let (mut of_p, mut of_q) = (matrix[p], matrix[q]);
    for (one, other) in of_p.iter_mut().zip(&mut of_q) {
        (*one, *other) = (cosine * *one - sine * *other, sine * *one + cosine * *other);
    }
    (matrix[p], matrix[q]) = (of_p, of_q);
    (matrix[p][q], matrix[q][p]) = (0.0, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_of_a_box_are_those_of_uniform_distributions() {
        let (mut moments, far) = (Moments::default(), 20_000);
        for z in 0..3 {
            for y in 0..5 {
                moments.add([far + z, far + y], [far, far + 9]);
            }
        }
        // The variance of n equal steps is (n² - 1) / 12.
        let expected = [9.0f64, 5.0, 3.0].map(|n| 4.0 * ((n * n - 1.0) / 12.0).sqrt());
        let found = lengths(&moments, [1.0; 3]);
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} {expected:?}");
    }

    #[test]
    fn eigenvalues_have_the_trace_and_the_determinant_of_the_matrix() {
        let [a, b, c] = eigenvalues([[4.0, 1.0, -2.0], [1.0, 3.0, 0.5], [-2.0, 0.5, 5.0]]);
        assert!((a + b + c - 12.0).abs() < 1e-12);
        assert!((a * b * c - 40.0).abs() < 1e-10, "{}", a * b * c);
    }
}
