//! Elastic deformation: a smooth random displacement of the voxels of a patch.
//!
//! Displacements are drawn on a coarse grid of control points and interpolated by cubic B-splines, as in the augmentation of the
//! first U-Net (Ronneberger et al. 2015). A weighted mean of control points is never longer than the longest of them, so that
//! the greatest displacement is known. nnU-Net has an elastic deformation of another kind, smoothed noise, which it turns off.

use plimsoll_random::Draws;

/// A displacement of each voxel of a patch, in voxels of the patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Deformation {
    patch: [usize; 3],
    /// Cells of the grid along each axis; 0 where displacements do not depend on the place along it.
    cells: [usize; 3],
    /// Control points `[depth][height][width]`, along each axis three more than cells, or one.
    points: Vec<[f64; 3]>,
}

impl Deformation {
    /// Draws one for patches of a shape, with control points `share` of an edge apart, the longest displacement of which is
    /// `magnitude` along each axis. Along `plane_axis` nothing is displaced, and displacements are the same.
    pub(super) fn draw(
        patch: [usize; 3],
        plane_axis: Option<usize>,
        share: f64,
        magnitude: [f64; 3],
        draws: &mut Draws,
    ) -> Deformation {
        // The cast saturates.
        let most = (1.0 / share).round().clamp(1.0, 32.0) as usize;
        let is_flat = |axis: usize| plane_axis == Some(axis) || patch[axis] < 2;
        let cells = [0, 1, 2].map(|axis| if is_flat(axis) { 0 } else { most });
        let count = cells.map(control_points).iter().product();
        let mut points: Vec<[f64; 3]> =
            (0..count).map(|_| std::array::from_fn(|_| f64::from(draws.normal()))).collect();
        for axis in 0..3 {
            let longest = points.iter().map(|point| point[axis].abs()).fold(0.0, f64::max);
            let factor = if is_flat(axis) || longest == 0.0 { 0.0 } else { magnitude[axis] / longest };
            points.iter_mut().for_each(|point| point[axis] *= factor);
        }
        Deformation { patch, cells, points }
    }

    /// The displaced indices of voxels `from..from + out.len()` of row (d, h) of the patch.
    pub(super) fn displaced_row(&self, d: usize, h: usize, from: usize, out: &mut [[f64; 3]]) {
        let counts = self.cells.map(control_points);
        let ((first_d, of_d), (first_h, of_h)) = (self.weights(0, d), self.weights(1, h));
        // Control points along the width, mixed for this row.
        let row: Vec<[f64; 3]> = (0..counts[2])
            .map(|w| {
                let mut sum = [0.0; 3];
                for (d, of_d) in of_d.iter().enumerate().take(counts[0]) {
                    for (h, of_h) in of_h.iter().enumerate().take(counts[1]) {
                        let point = &self.points[((first_d + d) * counts[1] + first_h + h) * counts[2] + w];
                        (0..3).for_each(|axis| sum[axis] += of_d * of_h * point[axis]);
                    }
                }
                sum
            })
            .collect();
        for (number, point) in out.iter_mut().enumerate() {
            let w = from + number;
            let (first, weights) = self.weights(2, w);
            *point = [d as f64, h as f64, w as f64];
            for (mixed, weight) in row[first..].iter().zip(weights) {
                (0..3).for_each(|axis| point[axis] += weight * mixed[axis]);
            }
        }
    }

    /// The first of the control points that a voxel depends on along an axis, and the weights of these.
    fn weights(&self, axis: usize, voxel: usize) -> (usize, [f64; 4]) {
        let cells = self.cells[axis];
        if cells == 0 {
            return (0, [1.0, 0.0, 0.0, 0.0]);
        }
        let place = voxel as f64 / (self.patch[axis] - 1) as f64 * cells as f64;
        let cell = (place as usize).min(cells - 1);
        let t = place - cell as f64;
        let (square, cube) = (t * t, t * t * t);
        let weights = [
            (1.0 - t).powi(3) / 6.0,
            (3.0 * cube - 6.0 * square + 4.0) / 6.0,
            (-3.0 * cube + 3.0 * square + 3.0 * t + 1.0) / 6.0,
            cube / 6.0,
        ];
        (cell, weights)
    }
}

fn control_points(cells: usize) -> usize {
    if cells == 0 { 1 } else { cells + 3 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_random::Purpose;

    fn displacements(of: &Deformation) -> Vec<[f64; 3]> {
        let [depth, height, width] = of.patch;
        let mut all = Vec::new();
        for d in 0..depth {
            for h in 0..height {
                let mut row = vec![[0.0; 3]; width];
                of.displaced_row(d, h, 0, &mut row);
                all.extend(
                    row.iter().enumerate().map(|(w, [a, b, c])| [a - d as f64, b - h as f64, c - w as f64]),
                );
            }
        }
        all
    }

    #[test]
    fn no_voxel_is_displaced_further_than_said_and_neighbours_by_nearly_as_much() {
        let mut draws = Draws::new(3, Purpose::Deformation, 0, 0, 0);
        let found = Deformation::draw([20, 24, 28], None, 0.25, [3.0, 2.0, 1.0], &mut draws);
        let all = displacements(&found);
        for (axis, most) in [3.0, 2.0, 1.0].into_iter().enumerate() {
            let longest = all.iter().map(|by| by[axis].abs()).fold(0.0, f64::max);
            assert!(longest <= most && longest > 0.2 * most, "{longest} of {most}");
            let step = all.windows(2).enumerate().filter(|(at, _)| at % 28 != 27);
            let steepest = step.map(|(_, pair)| (pair[1][axis] - pair[0][axis]).abs()).fold(0.0, f64::max);
            assert!(steepest < 0.35 * most, "{steepest} of {most} from one voxel to the next");
        }
        let mut part = [[0.0; 3]; 5];
        found.displaced_row(4, 5, 7, &mut part);
        let mut row = [[0.0; 3]; 28];
        found.displaced_row(4, 5, 0, &mut row);
        assert_eq!(part, row[7..12], "a part of a row is displaced as the row");
    }

    #[test]
    fn nothing_is_displaced_out_of_a_plane() {
        let mut draws = Draws::new(3, Purpose::Deformation, 0, 0, 1);
        let found = Deformation::draw([4, 12, 12], Some(0), 0.5, [2.0; 3], &mut draws);
        let all = displacements(&found);
        assert!(all.iter().all(|by| by[0] == 0.0));
        assert_eq!(all[..144], all[144..288], "planes are displaced alike");
    }
}
