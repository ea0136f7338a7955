//! Label maps of sheared grids on grids whose axes are at right angles, which other programs can open.
//!
//! The axes of the new grid follow from the axes of the old one by Gram and Schmidt's method, from the width on: the width keeps its direction
//! and its step, the height loses what is along the width, and the depth what is along both. So a slice stays a slice, at the same place
//! along the normal of its plane, and only moves within that plane; of a series that was taken with a tilted gantry, each slice keeps its
//! pixels. The new grid is as large as all slices need.

use std::path::Path;

use plimsoll_memory::{Budget, MapError, Mapped};
use plimsoll_volume::{Affine, Geometry, GeometryError};

use crate::{LabelMap, PostprocessError};

/// The cosine of two axes from which they count as sheared: more than the rounding of an affine in f32, and less than what moves a voxel.
const SHEARED: f64 = 1e-5;

/// The most that rounding moves a coordinate, in voxels: an affine in f32 over a thousand slices.
const ROUNDING: f64 = 1e-4;

/// Reads a label map and writes it under another name, on a grid at right angles: each voxel has the label of the nearest one of the old
/// grid, and 0 outside of it. A map whose grid is at right angles keeps its voxels. Returns whether the grid is another.
///
/// # Errors
/// Returns the errors of [`LabelMap::read`] and [`LabelMap::write`], and an error if the budget has no room for both grids, or the new one is too large. Nothing is
/// written then.
pub fn make_orthogonal(from: &Path, to: &Path, budget: &Budget) -> Result<bool, PostprocessError> {
    let made = || {
        let map = LabelMap::read(from, budget)?;
        let Some(orthogonal) = Orthogonal::find(map.geometry())? else {
            map.write(to, budget)?;
            return Ok(false);
        };
        let labels = orthogonal.resample(map.labels(), budget)?;
        map.on(orthogonal.geometry, labels).write(to, budget)?;
        Ok(true)
    };
    made().map_err(|error: PostprocessError| error.in_map(from))
}

/// A grid at right angles, and how its voxels lie in a sheared one.
struct Orthogonal {
    /// The new grid.
    geometry: Geometry,
    shape: [usize; 3],
    /// By how many voxels along the width the old grid moves with each row and with each slice, and along the height with each slice.
    shears: [f64; 3],
    /// The old position along height and width of the first voxel of the new grid.
    first: [f64; 2],
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns `true` if two axes of a grid are not at right angles.
pub fn is_sheared(geometry: &Geometry) -> bool {
    let rows = geometry.affine().0;
    let column = |axis: usize| rows.map(|row| row[axis]);
    let lengths = geometry.spacing().0;
    [(0, 1), (0, 2), (1, 2)]
        .into_iter()
        .any(|(a, b)| (dot(column(a), column(b)) / (lengths[a] * lengths[b])).abs() > SHEARED)
}

impl Orthogonal {
    /// Returns the grid at right angles for a sheared grid; `None` if its axes are at right angles already.
    ///
    /// # Errors
    /// Returns an error if the new grid would have more voxels than a volume may have.
    fn find(sheared: &Geometry) -> Result<Option<Orthogonal>, GeometryError> {
        if !is_sheared(sheared) {
            return Ok(None);
        }
        let shape = sheared.shape();
        let rows = sheared.affine().0;
        let [depth, height, width] = [0, 1, 2].map(|axis| rows.map(|row| row[axis]));
        let origin = rows.map(|row| row[3]);
        let share = |of: [f64; 3], along: [f64; 3]| dot(of, along) / dot(along, along);
        let without = |of: [f64; 3], share: f64, along: [f64; 3]| -> [f64; 3] {
            std::array::from_fn(|axis| of[axis] - share * along[axis])
        };
        let by_row = share(height, width);
        let height = without(height, by_row, width);
        let (by_slice, along) = (share(depth, width), share(depth, height));
        let depth = without(without(depth, by_slice, width), along, height);
        // Voxel (d, h, w) of the old grid is at (d, h + along · d, w + by_row · h + by_slice · d) on one at right angles of the same origin.
        let last = |axis: usize| (shape[axis] - 1) as f64;
        let ends = |moves: &[f64]| -> [f64; 2] {
            moves.iter().fold([0.0, 0.0], |[low, high], end| [low + end.min(0.0), high + end.max(0.0)])
        };
        let [low_height, high_height] = ends(&[along * last(0)]);
        let [low_width, high_width] = ends(&[by_slice * last(0), by_row * last(1)]);
        let first = [low_height, low_width].map(|low| (low + ROUNDING).floor());
        let end = [high_height + last(1), high_width + last(2)].map(|high| (high - ROUNDING).ceil());
        let count = |axis: usize| (end[axis] - first[axis]) as usize + 1;
        let place: [f64; 3] =
            std::array::from_fn(|axis| origin[axis] + first[0] * height[axis] + first[1] * width[axis]);
        let affine = Affine([0, 1, 2].map(|row| [depth[row], height[row], width[row], place[row]]));
        let geometry = Geometry::new([shape[0], count(0), count(1)], affine)?;
        Ok(Some(Orthogonal { geometry, shape, shears: [by_row, by_slice, along], first }))
    }

    /// Labels on the new grid: each voxel has the label of the nearest voxel of the old grid, and 0 outside of it.
    fn resample(&self, labels: &[u16], budget: &Budget) -> Result<Mapped<u16>, MapError> {
        let [_, old_height, old_width] = self.shape;
        let [depth, height, width] = self.geometry.shape();
        let [by_row, by_slice, along] = self.shears;
        let mut resampled =
            Mapped::<u16>::zeroed(budget, "labels on an orthogonal grid", depth * height * width)?;
        let (old_planes, planes) = (old_height * old_width, height * width);
        let slices = labels.chunks(old_planes).zip(resampled.chunks_mut(planes));
        for (d, (from, to)) in slices.enumerate() {
            for (h, row) in to.chunks_mut(width).enumerate() {
                let at = self.first[0] + h as f64 - along * d as f64;
                let Some(old_row) = nearest(at, old_height) else { continue };
                let old = &from[old_row * old_width..][..old_width];
                let start = self.first[1] - by_row * at - by_slice * d as f64;
                for (w, label) in row.iter_mut().enumerate() {
                    if let Some(old_column) = nearest(start + w as f64, old_width) {
                        *label = old[old_column];
                    }
                }
            }
        }
        Ok(resampled)
    }
}

/// The voxel nearest to a position along an axis of `count` voxels; `None` outside of all.
fn nearest(at: f64, count: usize) -> Option<usize> {
    let rounded = (at + 0.5 + ROUNDING).floor();
    (rounded >= 0.0 && rounded < count as f64).then_some(rounded as usize)
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;

    use super::*;

    /// The label of a ball in the world, at a voxel of a grid.
    fn ball(geometry: &Geometry, centre: [f64; 3], radius: f64) -> Vec<u16> {
        let [depth, height, width] = geometry.shape();
        let mut labels = Vec::with_capacity(depth * height * width);
        for d in 0..depth {
            for h in 0..height {
                for w in 0..width {
                    let at = geometry.voxel_to_world([d as f64, h as f64, w as f64]);
                    let apart: f64 = at.iter().zip(centre).map(|(a, b)| (a - b).powi(2)).sum();
                    labels.push(u16::from(apart.sqrt() < radius));
                }
            }
        }
        labels
    }

    fn resampled(sheared: &Geometry, labels: &[u16]) -> (Geometry, Vec<u16>) {
        let found = Orthogonal::find(sheared).unwrap().unwrap();
        let labels = found.resample(labels, &Budget::new(Bytes::mib(64))).unwrap();
        (found.geometry, labels.to_vec())
    }

    #[test]
    fn slices_of_a_tilted_gantry_move_by_whole_pixels_and_keep_them() {
        // Each slice lies 2 rows further along the height, which is by 3 mm for 5 mm of depth.
        let affine = Affine([[0.0, 0.0, -0.8, 9.0], [3.0, 1.5, 0.0, -7.0], [5.0, 0.0, 0.0, 2.0]]);
        let sheared = Geometry::new([3, 4, 5], affine).unwrap();
        let labels: Vec<u16> = (1..=60).collect();
        let (grid, found) = resampled(&sheared, &labels);
        assert_eq!(grid.shape(), [3, 8, 5]);
        assert_eq!(grid.affine().0, [[0.0, 0.0, -0.8, 9.0], [0.0, 1.5, 0.0, -7.0], [5.0, 0.0, 0.0, 2.0]]);
        assert!(!is_sheared(&grid));
        for d in 0..3 {
            for h in 0..8 {
                for w in 0..5 {
                    let old = h as i64 - 2 * d as i64;
                    let expected =
                        if (0..4).contains(&old) { labels[(d * 4 + old as usize) * 5 + w] } else { 0 };
                    assert_eq!(found[(d * 8 + h) * 5 + w], expected, "{d} {h} {w}");
                }
            }
        }
    }

    #[test]
    fn every_voxel_has_the_label_of_the_old_voxel_that_its_place_in_the_world_is_in() {
        // All three shears, with both signs, and an oblique orientation with a reflection.
        let (sine, cosine) = 0.3_f64.sin_cos();
        for sign in [1.0, -1.0] {
            let steps = [[0.4 * sign, -0.7, 2.5], [-0.3 * sign, 1.1, 0.0], [-0.9, 0.0, 0.0]];
            let turned = steps.map(|[x, y, z]| [cosine * x - sine * z, y, sine * x + cosine * z]);
            let rows: [[f64; 4]; 3] = std::array::from_fn(|row| {
                [turned[0][row], turned[1][row], turned[2][row], [5.0, -3.0, 11.0][row]]
            });
            let sheared = Geometry::new([12, 21, 26], Affine(rows)).unwrap();
            let centre = sheared.voxel_to_world([5.3, 9.6, 13.2]);
            let labels = ball(&sheared, centre, 7.0);
            let (grid, found) = resampled(&sheared, &labels);
            assert!(!is_sheared(&grid));
            let [depth, height, width] = grid.shape();
            let mut inside = 0;
            for (place, label) in found.iter().enumerate() {
                let index = [place / (height * width), place / width % height, place % width];
                let at = sheared.world_to_voxel(grid.voxel_to_world(index.map(|index| index as f64)));
                let [d, h, w] = at.map(f64::round);
                let is_inside =
                    [d, h, w].iter().zip(sheared.shape()).all(|(at, count)| *at >= 0.0 && *at < count as f64);
                let expected = if is_inside { labels[((d * 21.0 + h) * 26.0 + w) as usize] } else { 0 };
                inside += usize::from(is_inside);
                assert_eq!(*label, expected, "{index:?} is at {at:?}");
            }
            assert_eq!(depth, 12);
            // No voxel of the old grid is lost: both have the same volume, but for the border.
            assert!(inside.abs_diff(12 * 21 * 26) < 12 * 2 * (21 + 26), "{inside}");
            // The ball is where it was, up to a voxel at its surface.
            let truth = ball(&grid, centre, 7.0);
            let differ = truth.iter().zip(&found).filter(|(a, b)| a != b).count();
            let volume = truth.iter().filter(|label| **label == 1).count();
            assert!(volume > 400 && differ * 6 < volume, "{differ} of {volume}");
        }
    }

    #[test]
    fn a_grid_at_right_angles_stays_as_it_is() {
        let affine = Affine([[0.0, 0.0, 0.5, 0.0], [0.0, -0.5, 0.0, 0.0], [2.0, 1e-7, 0.0, 0.0]]);
        let geometry = Geometry::new([4, 5, 6], affine).unwrap();
        assert!(Orthogonal::find(&geometry).unwrap().is_none());
    }
}
