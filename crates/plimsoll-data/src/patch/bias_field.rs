//! A bias field, as of receiver coils in magnetic resonance imaging: intensities change smoothly in space.
//!
//! The model follows MONAI's `RandBiasField` (Van Leemput et al. 1999): the exponential of a polynomial of the third degree
//! in Legendre polynomials of the place, −1 to 1 from one end of the patch to the other.

use plimsoll_random::Draws;

use crate::patch::augmentation::Range;

/// The degree of the polynomial along each axis.
const DEGREE: usize = 3;
/// Terms whose degrees sum up to three at most.
const TERMS: usize = 20;

/// The coefficients of a bias field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BiasField([f64; TERMS]);

impl BiasField {
    /// Draws each coefficient from a range.
    pub(super) fn draw(range: Range, draws: &mut Draws) -> BiasField {
        BiasField(std::array::from_fn(|_| draws.between(range)))
    }

    /// Multiplies an image `[depth][height][width]` with the field.
    pub(super) fn apply(&self, values: &mut [f32], [depth, height, width]: [usize; 3]) {
        let along = |extent: usize| -> Vec<[f64; DEGREE + 1]> {
            (0..extent).map(|at| legendre(at, extent)).collect()
        };
        let (of_depth, of_height, of_width) = (along(depth), along(height), along(width));
        for (row, values) in values.chunks_exact_mut(width.max(1)).enumerate() {
            let (d, h) = (of_depth[row / height], of_height[row % height]);
            let mut of_row = [0.0; DEGREE + 1];
            for ([i, j, k], coefficient) in terms().zip(self.0) {
                of_row[k] += coefficient * d[i] * h[j];
            }
            for (value, w) in values.iter_mut().zip(&of_width) {
                let exponent: f64 =
                    of_row.iter().zip(w).map(|(factor, polynomial)| factor * polynomial).sum();
                *value *= exponent.exp() as f32;
            }
        }
    }
}

/// The degrees of each term along (depth, height, width), in MONAI's order.
fn terms() -> impl Iterator<Item = [usize; 3]> {
    (0..=DEGREE)
        .flat_map(|i| (0..=DEGREE - i).flat_map(move |j| (0..=DEGREE - i - j).map(move |k| [i, j, k])))
}

/// The Legendre polynomials of degree 0 to 3 at a voxel of a line, whose ends are −1 and 1. A line of one voxel has it in the middle.
fn legendre(at: usize, extent: usize) -> [f64; DEGREE + 1] {
    let x = if extent < 2 { 0.0 } else { 2.0 * at as f64 / (extent - 1) as f64 - 1.0 };
    [1.0, x, (3.0 * x * x - 1.0) / 2.0, (5.0 * x * x - 3.0) * x / 2.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_that_of_monai() {
        assert_eq!(terms().count(), TERMS);
        // numpy.polynomial.legendre.leggrid3d of the coefficients 0.01, 0.02, …, 0.2 in MONAI's order on 3 × 4 × 5 voxels.
        let field = BiasField(std::array::from_fn(|term| 0.01 * (term + 1) as f64));
        let mut values = vec![1.0; 60];
        field.apply(&mut values, [3, 4, 5]);
        for (at, expected) in ORACLE {
            assert!(
                (f64::from(values[at]).ln() - expected).abs() < 1e-6,
                "{at}: {} {expected}",
                values[at].ln()
            );
        }
    }

    /// Voxels of the patch, and the exponent of the field there.
    const ORACLE: [(usize, f64); 4] = [(0, -0.88), (7, -0.034_259_259), (33, -0.221_574_074), (59, 2.1)];
}
