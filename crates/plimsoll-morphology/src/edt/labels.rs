//! The passes along height and depth for tiles with many labels: for each voxel, the nearest one of any other label.
//!
//! For a given voxel, a voxel of the same label in its column contributes its known distance, and one of another label
//! is a site itself. The values thus depend on the voxel, and apexes are not ordered as they are for one label; so rows
//! are searched outward until the distance alone exceeds the minimum found.

use super::envelope::Axis;
use super::store::Store;
use crate::simd::{LANES, Simd, Supported};

/// Rows that are searched before the stopping criterion is checked again.
const STRIDE: usize = 4;

/// Adjacent columns of several labels.
pub(super) struct LabelColumns<'a> {
    /// For each voxel, its distance to another label so far; zero for background.
    pub(super) values: &'a [[f32; LANES]],
    /// The maximum of each row.
    pub(super) greatest: &'a [f32],
    /// Its label.
    pub(super) labels: &'a [[u32; LANES]],
    pub(super) axis: Axis<'a>,
}

/// Writes the labels other than background to `few`, in order of appearance. Returns their number; `None` if they do
/// not fit.
#[inline(always)]
pub(super) fn distinct(labels: &[[u32; LANES]], few: &mut [u32]) -> Option<usize> {
    let mut count = 0;
    for row in labels {
        while let Some(label) = unlisted_label(row, &few[..count]) {
            *few.get_mut(count)? = label;
            count += 1;
        }
    }
    Some(count)
}

/// The first label of `row` that is neither background nor in `known`.
#[inline(always)]
fn unlisted_label(row: &[u32; LANES], known: &[u32]) -> Option<u32> {
    let mut unlisted = *row;
    for label in known {
        for lane in &mut unlisted {
            *lane = if *lane == *label { 0 } else { *lane };
        }
    }
    let any = unlisted.iter().fold(0, |any, lane| any | lane);
    if any == 0 { None } else { unlisted.into_iter().find(|lane| *lane != 0) }
}

struct Found {
    lowest: [f32; LANES],
    apexes: [u32; LANES],
}

impl LabelColumns<'_> {
    /// Writes the minimum of `value + cost` for each voxel, row by row, to `store`, except for rows of zeroes. An apex
    /// is the row of another voxel, or of the voxel itself.
    #[inline(always)]
    pub(super) fn nearest<S: Simd>(&self, on: Supported<S>, store: &Store<'_>) {
        let n = self.values.len();
        let costs = self.axis.forward();
        for (y, own) in self.values.iter().enumerate() {
            let mut found = Found { lowest: *own, apexes: [y as u32; LANES] };
            let mut distance = 1;
            let mut greatest = self.greatest[y];
            if greatest == 0.0 {
                continue;
            }
            while distance < n && costs[distance] < greatest {
                for (distance, &cost) in costs.iter().enumerate().skip(distance).take(STRIDE) {
                    if distance <= y {
                        self.try_row(y, y - distance, cost, &mut found);
                    }
                    if y + distance < n {
                        self.try_row(y, y + distance, cost, &mut found);
                    }
                }
                distance += STRIDE;
                greatest = S::load(on, &found.lowest).greatest();
            }
            store.row(y, S::load(on, &found.lowest));
            store.apexes(y, &found.apexes);
        }
    }

    #[inline(always)]
    fn try_row(&self, y: usize, row: usize, cost: f32, found: &mut Found) {
        let (own, other, values) = (&self.labels[y], &self.labels[row], &self.values[row]);
        for lane in 0..LANES {
            let value = if own[lane] == other[lane] { values[lane] } else { 0.0 } + cost;
            let lower = value < found.lowest[lane];
            found.lowest[lane] = if lower { value } else { found.lowest[lane] };
            found.apexes[lane] = if lower { row as u32 } else { found.apexes[lane] };
        }
    }
}
