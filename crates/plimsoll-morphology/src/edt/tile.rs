//! A pass over one tile of adjacent columns, for every kind of distance.

use std::ops::Range;

use super::buffers::Buffers;
use super::envelope::{Axis, Columns, EnvelopeScratch, runs, with_ends};
use super::job::Distance;
use super::labels::{LabelColumns, distinct};
use super::scratch::Worker;
use super::store::{Features, Finish, Members, Pass, Store};
use crate::rows::SEVERAL;
use crate::simd::{LANES, Simd, Supported};

/// A tile: where its columns are read from and written to.
pub(super) struct Tile<'a> {
    /// Its rows in the worker's plane.
    pub(super) rows: Range<usize>,
    /// The number of the voxel of row 0 and lane 0.
    pub(super) start: usize,
    /// Voxels from one row to the next.
    pub(super) stride: usize,
    /// The number of lanes within the volume.
    pub(super) busy: usize,
    pub(super) axis: Axis<'a>,
    pub(super) pass: Pass<'a>,
}

/// Up to this many labels in a tile get an envelope each; with more labels, regions are small and a search outward
/// finds the nearest other label quickly.
const FEW: usize = 16;

/// Scratch for a part of some rows, and for its envelope.
struct PartScratch<'a, 'w> {
    values: &'a mut [[f32; LANES]],
    greatest: &'a mut [f32],
    scratch: EnvelopeScratch<'w>,
}

impl Tile<'_> {
    /// Runs the pass, run by run, each in as many parts as needed.
    #[inline(always)]
    pub(super) fn pass<S: Simd>(&self, on: Supported<S>, data: &Buffers<'_>, worker: &mut Worker<'_>) {
        let values = &mut worker.plane[self.rows.clone()];
        let greatest = &worker.greatest[self.rows.clone()];
        let soles = worker.soles.get(self.rows.clone()).unwrap_or_default();
        let known = worker.plane_features.get(self.rows.clone()).unwrap_or_default();
        let store = self.store(data, known);
        let n = values.len();
        let Worker { part, part_greatest, labels, apexes, rows, rank, .. } = worker;
        let mut room = PartScratch {
            values: part,
            greatest: part_greatest,
            scratch: EnvelopeScratch { apexes, rows, rank },
        };
        if data.job.distance == Distance::Signed {
            return self.signs(on, values, &mut room, &store);
        }
        let mut done = 0;
        for run in runs(greatest) {
            store.keep(done..run.start);
            done = run.end;
            let ends = with_ends(&run, n);
            let store = store.skipping(ends.start);
            let (values, greatest) = (&mut values[ends.clone()], &greatest[ends.clone()]);
            // Empty if there are only two labels.
            let (sole, run) = (soles.get(run.start), soles.get(run).unwrap_or_default());
            if sole == Some(&SEVERAL) || run.iter().any(|other| Some(other) != sole) {
                let labels = &mut labels[..ends.len()];
                for (y, (lanes, greatest)) in ends.zip(labels.iter_mut().zip(greatest)) {
                    if *greatest == 0.0 {
                        *lanes = [0; LANES];
                    } else {
                        data.mask.numbers(self.start + y * self.stride, lanes, self.busy);
                    }
                }
                self.labels(on, values, greatest, labels, &mut room, &store);
            } else {
                let mut columns = Columns { values, greatest, axis: self.axis, scratch: &mut room.scratch };
                columns.lower_envelope(on, &store);
            }
        }
        store.keep(done..n);
    }

    /// The output of all rows.
    #[inline(always)]
    fn store<'a>(&'a self, data: &Buffers<'a>, known: &'a [[u32; LANES]]) -> Store<'a> {
        let Finish { root, scale } = match self.pass {
            Pass::Inner { .. } => Finish { root: false, scale: 1.0 },
            Pass::Last(finish) => finish,
        };
        Store {
            out: data.out,
            start: self.start,
            stride: self.stride,
            busy: self.busy,
            pass: self.pass,
            root,
            scale,
            part: None,
            features: data.job.features.then_some(Features { known, labels: &[], to: data.features }),
        }
    }

    /// A run of several labels.
    #[inline(always)]
    fn labels<S: Simd>(
        &self,
        on: Supported<S>,
        values: &[[f32; LANES]],
        greatest: &[f32],
        labels: &[[u32; LANES]],
        room: &mut PartScratch<'_, '_>,
        store: &Store<'_>,
    ) {
        let mut few = [0; FEW];
        let Some(count) = distinct(labels, &mut few) else {
            let features = store.features.map(|features| Features { labels, ..features });
            let columns = LabelColumns { values, greatest, labels, axis: self.axis };
            return columns.nearest(on, &Store { features, ..*store });
        };
        (0..values.len()).filter(|y| greatest[*y] > 0.0).for_each(|y| store.clear(y));
        for &label in &few[..count] {
            let own = |y: usize| {
                // Rows that are all zero need not have been written.
                let all = if greatest[y] > 0.0 { S::load(on, &values[y]) } else { S::splat(on, 0.0) };
                all.only_equal(&labels[y], label)
            };
            let store = Store { part: Some(Members::Label(label, labels)), ..*store };
            room.envelope(on, self.axis, values.len(), own, &store);
        }
    }

    /// All rows of signed distances.
    #[inline(always)]
    fn signs<S: Simd>(
        &self,
        on: Supported<S>,
        values: &[[f32; LANES]],
        room: &mut PartScratch<'_, '_>,
        store: &Store<'_>,
    ) {
        let (mut outside, mut inside) = (S::splat(on, 0.0), S::splat(on, 0.0));
        for row in values {
            outside = outside.greater(S::load(on, row));
            inside = inside.greater(S::load(on, row).times(S::splat(on, -1.0)));
        }
        let there = [outside.greatest() > 0.0, inside.greatest() > 0.0];
        let both = there == [true; 2];
        if both {
            (0..values.len()).for_each(|y| store.clear(y));
        }
        for (sign, there) in [1.0, -1.0].into_iter().zip(there) {
            if !there {
                continue;
            }
            let own = |y: usize| S::load(on, &values[y]).times(S::splat(on, sign)).greater(S::splat(on, 0.0));
            let part = both.then_some(Members::Negative(sign < 0.0, values));
            let store = Store { part, scale: sign * store.scale, ..*store };
            room.envelope(on, self.axis, values.len(), own, &store);
        }
    }
}

impl PartScratch<'_, '_> {
    /// Adds the envelope of `n` rows of a part, which has its own runs.
    #[inline(always)]
    fn envelope<S: Simd>(
        &mut self,
        on: Supported<S>,
        axis: Axis<'_>,
        n: usize,
        rows: impl Fn(usize) -> S,
        store: &Store<'_>,
    ) {
        let (values, greatest) = (&mut self.values[..n], &mut self.greatest[..n]);
        for (y, (values, greatest)) in values.iter_mut().zip(greatest.iter_mut()).enumerate() {
            let row = rows(y);
            row.store(values);
            *greatest = row.greatest();
        }
        for run in runs(greatest) {
            let ends = with_ends(&run, n);
            let (values, greatest) = (&mut values[ends.clone()], &greatest[ends.clone()]);
            let mut columns = Columns { values, greatest, axis, scratch: &mut self.scratch };
            columns.lower_envelope(on, &store.skipping(ends.start));
        }
    }
}
