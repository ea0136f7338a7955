//! The passes along height and depth: along a column of n voxels, the lower envelope of n parabolas, `result[y] = min
//! over i of values[i] + costs[|y − i|]`, for a block of adjacent columns.
//!
//! Beyond the crossing of two parabolas the one with the later apex is lower, so the apex of the lowest parabola never
//! decreases with y. Once it is known for two rows, it lies between the two for all rows in between. Rows are therefore
//! processed in the order 0, n − 1, then the middle, the quarters, the eighths and so on, and each has only few
//! candidate apexes, for all lanes together: from the smallest apex of any lane in the row above to the largest in the
//! row below. Candidates whose cost alone exceeds the row's own values are skipped. Only every eighth row is processed
//! this way; the seven rows in between are processed together, with the same candidates. There is no stack and no
//! lane-dependent branch; the inner loop is an addition and a minimum.
//!
//! Sums of squares below 2²⁴ are exact in `f32`. Above, rounding can only confuse parabolas that are equal to within
//! rounding in the row where the apex is chosen; as the root of the envelope changes by at most one step per row, they
//! are then equal to within rounding in every row that the choice affects, for fewer than 2²⁴ rows.

use std::iter;
use std::ops::Range;

use super::store::Store;
use crate::simd::{LANES, Simd, Supported};

/// The stride of the rows whose apexes are searched for.
const STEP: usize = 8;

/// The rows in between, which are processed together.
const BETWEEN: usize = STEP - 1;

/// The rows in between that are processed together in a column, or run, that has no more, as in small structures.
const FEW: usize = 3;

/// The range over all lanes of the lowest parabola's index in the list of candidates.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Apexes {
    least: u32,
    greatest: u32,
}

/// The costs of distances along an axis of `n` voxels.
#[derive(Clone, Copy)]
pub(super) struct Axis<'a> {
    /// The cost of distance 1.
    weight: f32,
    /// The costs of the distances from `−(n − 1 + BETWEEN)` to `n − 1 + BETWEEN`.
    costs: &'a [f32],
}

impl<'a> Axis<'a> {
    /// The length of `costs` for columns of `n` rows.
    pub(super) fn costs_len(n: usize) -> usize {
        2 * (n - 1 + BETWEEN) + 1
    }

    /// Fills the table for columns of up to `n` rows, in units in which distance 1 costs `weight`.
    pub(super) fn new(weight: f32, costs: &'a mut [f32]) -> Axis<'a> {
        let middle = costs.len() / 2;
        for (at, cost) in costs.iter_mut().enumerate() {
            let distance = at.abs_diff(middle) as f64;
            *cost = (distance * distance * f64::from(weight)) as f32;
        }
        Axis { weight, costs }
    }

    /// The costs of the distances 0, 1, 2, and so on.
    pub(super) fn forward(&self) -> &'a [f32] {
        self.costs_from(0)
    }

    /// The costs to the rows 0, 1, 2, and so on, from row `y`.
    #[inline(always)]
    fn costs_from(&self, y: usize) -> &'a [f32] {
        &self.costs[self.costs.len() / 2 - y..]
    }
}

/// Scratch for columns of `n` rows.
pub(super) struct EnvelopeScratch<'a> {
    /// `n` elements.
    pub(super) apexes: &'a mut [Apexes],
    /// `n` elements: the candidates, rows whose parabolas are not infinite.
    pub(super) rows: &'a mut [u32],
    /// `n + 1` elements: the number of `rows` below each row.
    pub(super) rank: &'a mut [u32],
}

/// The runs of rows that are not all zero. A row of zeroes separates the rows on its two sides.
pub(super) fn runs(greatest: &[f32]) -> impl Iterator<Item = Range<usize>> {
    iter::successors(next_run(greatest, 0), |run| next_run(greatest, run.end))
}

/// Not inlined, because its loops would compete with the kernels for registers.
#[inline(never)]
fn next_run(greatest: &[f32], from: usize) -> Option<Range<usize>> {
    let first = from + greatest[from..].iter().position(|greatest| *greatest > 0.0)?;
    let more = greatest[first..].iter().position(|greatest| *greatest == 0.0);
    Some(first..more.map_or(greatest.len(), |more| first + more))
}

/// A run with the rows of zeroes on its sides, if it does not reach the end of the `n` rows.
pub(super) fn with_ends(run: &Range<usize>, n: usize) -> Range<usize> {
    run.start.saturating_sub(1)..(run.end + 1).min(n)
}

/// Adjacent columns of a run, see [`with_ends`].
pub(super) struct Columns<'a, 'w> {
    /// The values, row by row: zero where a voxel is a site itself. A row is infinite in all lanes or in none. Rows that are
    /// all infinite or zero need not have been written.
    pub(super) values: &'a mut [[f32; LANES]],
    /// The maximum of each row.
    pub(super) greatest: &'a [f32],
    pub(super) axis: Axis<'a>,
    /// Scratch for at least as many rows.
    pub(super) scratch: &'a mut EnvelopeScratch<'w>,
}

impl Columns<'_, '_> {
    /// Writes the envelope, row by row, to `store`, except for rows of zeroes, which do not change.
    #[inline(always)]
    pub(super) fn lower_envelope<S: Simd>(&mut self, on: Supported<S>, store: &Store<'_>) {
        let n = self.values.len();
        let candidates = self.list();
        if candidates == 0 {
            // Without sites the run spans the whole column.
            (0..n).for_each(|y| store.infinite(y));
            return;
        }
        // Past the ends there is no row to bound the candidates.
        let all = Apexes { least: 0, greatest: candidates as u32 - 1 };
        self.decide(on, 0, all, all, store);
        let last = n - 1;
        if last > 0 {
            self.decide(on, last, self.scratch.apexes[0], all, store);
        }
        let mut step = n.next_power_of_two() / 2;
        while step >= STEP {
            for y in (step..last).step_by(2 * step) {
                let apexes = &self.scratch.apexes;
                let (above, below) = (apexes[y - step], apexes[(y + step).min(last)]);
                self.decide(on, y, above, below, store);
            }
            step /= 2;
        }
        for y in (0..last).step_by(STEP) {
            let next = (y + STEP).min(last);
            match next - (y + 1) {
                0 => {}
                1..=FEW => self.between::<S, FEW>(on, y + 1, next, store),
                _ => self.between::<S, BETWEEN>(on, y + 1, next, store),
            }
        }
    }

    /// Lists the candidates: rows that are not infinite. Returns their number.
    #[inline(always)]
    fn list(&mut self) -> usize {
        let EnvelopeScratch { rows, rank, .. } = &mut *self.scratch;
        let mut count = 0;
        for (y, (own, values)) in self.greatest.iter().zip(self.values.iter_mut()).enumerate() {
            rank[y] = count as u32;
            rows[count] = y as u32;
            count += usize::from(*own < f32::INFINITY);
            if *own == 0.0 {
                *values = [0.0; LANES];
            }
        }
        rank[self.greatest.len()] = count as u32;
        count
    }

    /// Returns the candidates from `least` to `greatest` that can be lower than `highest` in a row of `first..end`.
    #[inline(always)]
    fn within_reach(
        &self,
        first: usize,
        end: usize,
        highest: f32,
        least: usize,
        greatest: usize,
    ) -> (usize, usize) {
        // One more than the exact radius, to cover the rounding of the root.
        let radius = ((highest / self.axis.weight).sqrt() as usize).saturating_add(1);
        let near = self.scratch.rank[first.saturating_sub(radius)] as usize;
        let far = self.scratch.rank[end.saturating_add(radius).min(self.values.len())] as usize;
        let to = greatest.min(far - 1);
        (least.max(near).min(to), to)
    }

    /// Computes row `y`, whose candidates range from the smallest `above` to the largest `below`, and its apexes.
    #[inline(always)]
    fn decide<S: Simd>(
        &mut self,
        on: Supported<S>,
        y: usize,
        above: Apexes,
        below: Apexes,
        store: &Store<'_>,
    ) {
        let highest = self.greatest[y];
        if highest == 0.0 {
            let own = self.scratch.rank[y];
            self.scratch.apexes[y] = Apexes { least: own, greatest: own };
            return;
        }
        let (from, to) = self.within_reach(y, y + 1, highest, above.least as usize, below.greatest as usize);
        let costs = self.axis.costs_from(y);
        let mut lowest = S::splat(on, f32::INFINITY);
        let mut at = S::index(on, 0);
        for (place, &row) in self.scratch.rows[from..=to].iter().enumerate() {
            let value = S::load(on, &self.values[row as usize]).plus(S::splat(on, costs[row as usize]));
            value.lower((from + place) as u32, &mut lowest, &mut at);
        }
        let (least, greatest) = S::range(at, at);
        self.scratch.apexes[y] = Apexes { least: least as u32, greatest: greatest as u32 };
        store.row(y, lowest);
        if store.features.is_some() {
            self.give_apexes::<S>(y, at, store);
        }
    }

    /// The rows `first..end`, up to `N`, whose neighbours on both sides are known.
    #[inline(always)]
    fn between<S: Simd, const N: usize>(
        &mut self,
        on: Supported<S>,
        first: usize,
        end: usize,
        store: &Store<'_>,
    ) {
        let highest = self.greatest[first..end].iter().fold(0.0, |a, &b| if a < b { b } else { a });
        let least = self.scratch.apexes[first - 1].least as usize;
        let greatest = self.scratch.apexes[end].greatest as usize;
        let (from, to) = self.within_reach(first, end, highest, least, greatest);
        // All `N` rows are computed, even if there are fewer: the table is long enough.
        let costs = self.axis.costs_from(first + N - 1);
        let mut lowest = [S::splat(on, f32::INFINITY); N];
        let mut at = [S::index(on, 0); N];
        let candidates = self.scratch.rows[from..=to].iter();
        if store.features.is_some() {
            for (place, &row) in candidates.enumerate() {
                let values = S::load(on, &self.values[row as usize]);
                let costs = &costs[row as usize..][..N];
                for y in 0..N {
                    let value = values.plus(S::splat(on, costs[N - 1 - y]));
                    value.lower((from + place) as u32, &mut lowest[y], &mut at[y]);
                }
            }
        } else {
            for &row in candidates {
                let values = S::load(on, &self.values[row as usize]);
                let costs = &costs[row as usize..][..N];
                for y in 0..N {
                    lowest[y] = values.plus(S::splat(on, costs[N - 1 - y])).lesser(lowest[y]);
                }
            }
        }
        // Stored only now, so that they stay in registers until here.
        let mut rows = [[0.0; LANES]; N];
        for (lowest, row) in lowest.into_iter().zip(&mut rows) {
            lowest.store(row);
        }
        for (y, row) in (first..end).zip(&rows) {
            store.row(y, S::load(on, row));
        }
        if store.features.is_some() {
            for (y, at) in (first..end).zip(at) {
                self.give_apexes::<S>(y, at, store);
            }
        }
    }

    #[inline(always)]
    fn give_apexes<S: Simd>(&self, y: usize, places: S::Index, store: &Store<'_>) {
        let mut apexes = [0; LANES];
        S::store_index(places, &mut apexes);
        for apex in &mut apexes {
            *apex = self.scratch.rows[*apex as usize];
        }
        store.apexes(y, &apexes);
    }
}
