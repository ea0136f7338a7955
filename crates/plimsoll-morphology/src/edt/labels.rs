//! The other passes where there are many labels in a tile: for each voxel, the nearest one of any other label.
//!
//! Seen from a voxel, a voxel of the same label in its column counts with what is known of it, and one of another label is a
//! site itself. Every voxel thus has values of its own, and apexes are not ordered as they are for one label; so rows are
//! tried outwards until the distance alone is more than what has been found.

use super::envelope::Axis;
use super::store::Store;
use crate::simd::{LANES, Simd};

/// Rows that are tried before asking again whether to go on.
const STRIDE: usize = 4;

/// Columns side by side, of several labels.
pub(super) struct LabelColumns<'a> {
    /// For each voxel, what is known of its distance to another label; zero for background.
    pub(super) values: &'a [[f32; LANES]],
    /// The greatest of each row.
    pub(super) greatest: &'a [f32],
    /// Its label.
    pub(super) labels: &'a [[u32; LANES]],
    pub(super) axis: Axis<'a>,
}

/// Writes the labels other than background to `few`, in the order in which they are met. How many; nothing if they are more
/// than fit.
#[inline(always)]
pub(super) fn distinct(labels: &[[u32; LANES]], few: &mut [u32]) -> Option<usize> {
    let mut count = 0;
    for row in labels {
        while let Some(label) = stranger(row, &few[..count]) {
            *few.get_mut(count)? = label;
            count += 1;
        }
    }
    Some(count)
}

/// A label of `row` that is neither background nor `known`.
#[inline(always)]
fn stranger(row: &[u32; LANES], known: &[u32]) -> Option<u32> {
    let mut strange = *row;
    for label in known {
        for lane in &mut strange {
            *lane = if *lane == *label { 0 } else { *lane };
        }
    }
    let any = strange.iter().fold(0, |any, lane| any | lane);
    if any == 0 { None } else { strange.into_iter().find(|lane| *lane != 0) }
}

struct Found {
    lowest: [f32; LANES],
    apexes: [u32; LANES],
}

impl LabelColumns<'_> {
    /// The least of `value + cost` for each voxel, row by row, to `store`; not of the rows of zeroes. An apex is the row of
    /// another voxel, or of the voxel itself.
    #[inline(always)]
    pub(super) fn nearest<S: Simd>(&self, store: &Store<'_>) {
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
                greatest = S::load(&found.lowest).greatest();
            }
            store.row(y, S::load(&found.lowest));
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
