//! A pass over one tile: columns side by side, whatever it is that is measured.

use std::ops::Range;

use super::Distance;
use super::envelope::{Axis, Columns, EnvelopeScratch};
use super::labels::{LabelColumns, distinct};
use super::passes::Data;
use super::scratch::Worker;
use super::store::{Features, Finish, Members, Part, Pass, Store};
use crate::simd::{LANES, Simd};

/// Where the columns come from and go to.
pub(super) struct Tile<'a> {
    /// Where they are in the worker's plane.
    pub(super) rows: Range<usize>,
    /// The number of the voxel of row 0 and lane 0.
    pub(super) start: usize,
    /// Voxels between a row and the next.
    pub(super) stride: usize,
    /// How many lanes are of the volume.
    pub(super) busy: usize,
    pub(super) axis: Axis<'a>,
    pub(super) pass: Pass<'a>,
}

/// The labels of a tile that are worth an envelope each; where there are more, regions are small and the nearest other label
/// is soon found by looking around.
const FEW: usize = 16;

impl Tile<'_> {
    /// The pass, in as many parts as it takes.
    #[inline(always)]
    pub(super) fn pass<S: Simd>(&self, data: &Data<'_>, worker: &mut Worker<'_>) {
        let Worker { part, part_greatest, apexes, rows, rank, .. } = worker;
        let values = &mut worker.plane[self.rows.clone()];
        let greatest = &worker.greatest[self.rows.clone()];
        let labels = worker.plane_labels.get(self.rows.clone()).unwrap_or_default();
        let finish = match self.pass {
            Pass::Inner { .. } => Finish { root: false, scale: 1.0 },
            Pass::Last(finish) => finish,
        };
        let store = Store {
            out: data.out,
            start: self.start,
            stride: self.stride,
            busy: self.busy,
            pass: self.pass,
            root: finish.root,
            scale: finish.scale,
            adds: false,
            part: None,
            features: data.job.features.then(|| Features {
                known: &worker.plane_features[self.rows.clone()],
                labels,
                to: data.features,
            }),
        };
        let mut few = [0; FEW];
        let parts = match data.job.distance {
            Distance::ToBackground => 1,
            Distance::Signed => 2,
            Distance::ToOtherLabel => match distinct(labels, greatest, &mut few) {
                Some(count) => count,
                None => {
                    let columns = LabelColumns { values, greatest, labels, axis: self.axis };
                    return columns.nearest::<S>(&store);
                }
            },
        };
        let n = values.len();
        if parts == 0 {
            (0..n).for_each(|y| store.zero(y));
        }
        for (at, label) in few.into_iter().take(parts).enumerate() {
            let (own, own_greatest, part) = match data.job.distance {
                Distance::ToBackground => (&mut *values, greatest, None),
                Distance::Signed => {
                    let negative = at == 1;
                    let sign = S::splat(if negative { -1.0 } else { 1.0 });
                    split(values, part, part_greatest, |_, values| {
                        S::load(values).times(sign).greater(S::splat(0.0))
                    });
                    let members = Members::Negative(negative, values);
                    let part_of = Part { greatest: None, members };
                    (&mut part[..n], &part_greatest[..n], Some(part_of))
                }
                Distance::ToOtherLabel => {
                    split(values, part, part_greatest, |y, values| {
                        // A row that is zero as a whole need not have been written.
                        let all = if greatest[y] > 0.0 { S::load(values) } else { S::splat(0.0) };
                        all.only_equal(&labels[y], label)
                    });
                    let members = Members::Label(label, labels);
                    let part_of = Part { greatest: Some(greatest), members };
                    (&mut part[..n], &part_greatest[..n], Some(part_of))
                }
            };
            let scratch = &mut EnvelopeScratch { apexes, rows, rank };
            let mut columns = Columns { values: own, greatest: own_greatest, axis: self.axis, scratch };
            let negative = matches!(part, Some(Part { members: Members::Negative(true, _), .. }));
            let scale = if negative { -store.scale } else { store.scale };
            columns.lower_envelope::<S>(&Store { scale, adds: at > 0, part, ..store });
        }
    }
}

/// Makes a part of a tile, and the greatest of each row, from the tile.
#[inline(always)]
fn split<S: Simd>(
    values: &[[f32; LANES]],
    part: &mut [[f32; LANES]],
    greatest: &mut [f32],
    own: impl Fn(usize, &[f32; LANES]) -> S,
) {
    for (y, (values, (part, greatest))) in values.iter().zip(part.iter_mut().zip(greatest)).enumerate() {
        let own = own(y, values);
        own.store(part);
        *greatest = own.greatest();
    }
}
