//! The shares of windows in the mean logit of a voxel.
//!
//! Windows stand at all combinations of their starts along the axes, so that the sum of all weights at a voxel is known before any window
//! is looked at: each logit is added as the share that it has of the mean. What is stored then is no larger than logits are, and is the
//! mean as soon as the last window is added. Where a voxel's weight is a product of one factor for each axis, so is the sum, and a share;
//! where products are raised to a least weight, sums are kept for the planes of the ring.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::summing::ring_shape::RingShape;
use crate::summing::windows::{Starts, Weights};

/// The share of each window in the mean of a voxel.
pub(crate) struct Shares {
    weights: Weights,
    starts: [Starts; 3],
    shape: RingShape,
    /// The number of passes of each window through networks: of each fold, for each mirrored copy.
    looks: usize,
    totals: Totals,
}

/// Sums of the weights of all windows.
enum Totals {
    /// At each place of the grid, along one axis after the other.
    Product(Mapped<f32>),
    /// `[plane of the ring][voxel of the plane]`, and how many planes were summed, in the order of passing.
    Planes(Mapped<f32>, usize),
}

/// The shares of the voxels of a window.
pub(crate) enum WindowShares<'a> {
    /// Along each axis: the share of a voxel is the product of three.
    Product([Vec<f32>; 3]),
    /// Its weight by the sum of all.
    Quotient { weights: &'a Weights, shape: RingShape, looks: f32, totals: &'a [f32] },
}

impl Shares {
    /// Numbers that are kept.
    fn count(shape: &RingShape, weights: &Weights) -> usize {
        match weights.is_product() {
            true => shape.grid.into_iter().fold(0, usize::saturating_add),
            false => shape.planes().saturating_mul(shape.plane()),
        }
    }

    /// Bytes that the shares of a ring reserve.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(shape: &RingShape, weights: &Weights) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(Shares::count(shape, weights))
    }

    /// Computes the shares of windows at all combinations of starts over a ring's grid, each with `looks` passes.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(crate) fn new(
        shape: RingShape,
        starts: [Starts; 3],
        weights: &Weights,
        looks: usize,
        budget: &Budget,
    ) -> Result<Shares, MapError> {
        let mut totals = Mapped::zeroed(budget, "shares of windows", Shares::count(&shape, weights))?;
        let totals = match weights.is_product() {
            false => Totals::Planes(totals, 0),
            true => {
                let mut rest = &mut totals[..];
                for (axis, (extent, starts)) in shape.grid.into_iter().zip(starts).enumerate() {
                    let (of_axis, behind) = rest.split_at_mut(extent);
                    for start in starts.iter() {
                        add(&mut of_axis[start..], &weights.of_window(axis, start, extent));
                    }
                    rest = behind;
                }
                Totals::Product(totals)
            }
        };
        Ok(Shares { weights: weights.clone(), starts, shape, looks: looks.max(1), totals })
    }

    /// The shares of the voxels of the window at `start`. Windows are asked for in the order of passing.
    pub(crate) fn at(&mut self, start: [usize; 3]) -> WindowShares<'_> {
        let Shares { weights, starts, shape, looks, totals } = self;
        let looks = *looks as f32;
        match totals {
            Totals::Product(totals) => {
                let first = [0, shape.grid[0], shape.grid[0] + shape.grid[1]];
                WindowShares::Product([0, 1, 2].map(|axis| {
                    let looks = if axis == 0 { looks } else { 1.0 };
                    let totals = &totals[first[axis] + start[axis]..];
                    let along = weights.of_window(axis, start[axis], shape.grid[axis]);
                    let along = along.iter().zip(totals);
                    along.map(|(weight, total)| weight / (total * looks)).collect()
                }))
            }
            Totals::Planes(totals, summed) => {
                let end = shape.turns_of(start).end;
                for turn in *summed..end {
                    sum_plane(totals, turn, shape, weights, starts);
                }
                *summed = end.max(*summed);
                WindowShares::Quotient { weights, shape: *shape, looks, totals }
            }
        }
    }
}

/// Sums the weights of all windows at the voxels of a plane, which takes the place of one that has passed.
fn sum_plane(totals: &mut [f32], turn: usize, shape: &RingShape, weights: &Weights, starts: &[Starts; 3]) {
    let place = shape.turn(turn);
    let [first, second] = shape.plane_axes();
    let plane = &mut totals[shape.slot(turn) * shape.plane()..][..shape.plane()];
    plane.fill(0.0);
    for start in starts[shape.axis].iter() {
        // Windows that do not have this plane.
        let Some(at) = place.checked_sub(start).filter(|at| *at < shape.window[shape.axis]) else { continue };
        for down in starts[first].iter() {
            for right in starts[second].iter() {
                let columns = shape.held_of(second, right);
                if columns.is_empty() {
                    continue;
                }
                for row in shape.held_of(first, down) {
                    let mut voxel = [0; 3];
                    (voxel[shape.axis], voxel[first], voxel[second]) =
                        (place, down + row, right + columns.start);
                    let to = &mut plane[shape.in_plane(voxel)..][..columns.len()];
                    for (total, column) in to.iter_mut().zip(columns.clone()) {
                        let mut voxel = [0; 3];
                        (voxel[shape.axis], voxel[first], voxel[second]) = (at, row, column);
                        *total += weights.at(voxel);
                    }
                }
            }
        }
    }
}

impl WindowShares<'_> {
    /// The shares of voxels of the window at `start` that follow each other along its height (1) or width (2), from one of them on.
    pub(crate) fn fill(&self, start: [usize; 3], first: [usize; 3], axis: usize, shares: &mut [f32]) {
        match self {
            WindowShares::Product(of) => {
                let [d, h, w] = first;
                let along = &of[axis][first[axis]..];
                let others = match axis {
                    1 => of[0][d] * of[2][w],
                    _ => of[0][d] * of[1][h],
                };
                shares.iter_mut().zip(along).for_each(|(share, along)| *share = others * along);
            }
            WindowShares::Quotient { weights, shape, looks, totals } => {
                for (number, share) in shares.iter_mut().enumerate() {
                    let mut voxel = first;
                    voxel[axis] += number;
                    let place = [0, 1, 2].map(|axis| start[axis] + voxel[axis]);
                    let slot = shape.slot(shape.turn(place[shape.axis]));
                    let total = totals[slot * shape.plane() + shape.in_plane(place)];
                    *share = weights.at(voxel) / (total * looks);
                }
            }
        }
    }
}

fn add(to: &mut [f32], terms: &[f32]) {
    to.iter_mut().zip(terms).for_each(|(to, term)| *to += term);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summing::ring_shape::Tile;
    use crate::summing::windows::gaussian;

    #[test]
    fn the_shares_of_all_windows_at_a_voxel_come_to_one() {
        let (grid, window, looks) = ([17, 9, 23], [8, 9, 5], 6);
        let budget = Budget::new(Bytes::mib(1));
        let starts = [0, 1, 2].map(|axis| Starts::new(grid[axis], window[axis], 0.3));
        for (least, axis, reversed) in
            [(0.0, 0, false), (0.0, 1, true), (0.1, 0, false), (0.1, 1, true), (0.1, 2, false)]
        {
            let tile = Tile::whole([0; 2]);
            let shape =
                RingShape { grid, axis, reversed, window, activation: None, begins_with_image: false, tile };
            let shape = RingShape { tile: Tile::whole(shape.plane_axes().map(|axis| grid[axis])), ..shape };
            let weights = Weights { along: gaussian(window), least, margin: 0 };
            let mut shares = Shares::new(shape, starts, &weights, looks, &budget).unwrap();
            assert_eq!(budget.used(), Shares::bytes(&shape, &weights).unwrap());
            let mut sums = vec![0.0f64; grid.iter().product()];
            let mut all = Vec::new();
            for d in starts[0].iter() {
                for h in starts[1].iter() {
                    all.extend(starts[2].iter().map(|w| [d, h, w]));
                }
            }
            all.sort_by_key(|start| shape.turns_of(*start).start);
            for start in all {
                let of = shares.at(start);
                for d in 0..window[0] {
                    for h in 0..window[1] {
                        let mut row = vec![0.0; window[2]];
                        of.fill(start, [d, h, 0], 2, &mut row);
                        for (w, share) in row.into_iter().enumerate() {
                            let at = [start[0] + d, start[1] + h, start[2] + w];
                            sums[(at[0] * grid[1] + at[1]) * grid[2] + at[2]] +=
                                f64::from(share) * looks as f64;
                        }
                    }
                }
            }
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{least} along {axis}");
        }
    }
}
