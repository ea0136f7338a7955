//! Logits of windows on their way to planes of labels.
//!
//! Windows are taken in rows. After each row, the planes of logits that no later row touches are finished, the stored planes
//! that lie between finished ones are written, and what no stored plane needs any more makes room in the ring.

use half::f16;
use plimsoll_data::TargetGrid;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_run::{Answers, Interpolated, SegmentationModel, Windows};

use crate::export::{Export, Wanted, lead, order};
use crate::ring::{Activation, Ring, RingShape, Room, WindowLogits};
use crate::shares::Shares;
use crate::sums::RingStorage;
use crate::windows::{Starts, Weights};

/// Where windows of a case stand: in rows that begin at the same place of the axis along which planes pass through the ring.
pub(crate) struct Rows {
    pub(crate) shape: RingShape,
    /// Voxels of the ring before the image along each axis.
    pub(crate) lead: [usize; 3],
    /// Where rows begin.
    along: Starts,
    /// Where windows of a row begin along the axes of a plane.
    across: [Starts; 2],
}

impl Rows {
    /// Of windows over a case, the share `step` of a window apart at most. An image smaller than a window is looked at through one that reaches beyond it.
    #[cfg(test)]
    pub(crate) fn new(grid: &TargetGrid, window: [usize; 3], classes: usize, step: f64) -> Rows {
        let place = |_, extent, window| Starts::new(extent, window, step);
        Rows::placed(grid, window, (classes, None), place)
    }

    /// Of a model's windows over a case, as far apart as it says, or else the share `step` of a window at most.
    pub(crate) fn of_model(grid: &TargetGrid, model: &SegmentationModel, step: f64) -> Rows {
        let activation = match (model.interpolated, &model.answers) {
            (Interpolated::Logits, _) => None,
            (Interpolated::Probabilities, Answers::Classes(_)) => Some(Activation::Softmax),
            (Interpolated::Probabilities, Answers::Regions(_)) => Some(Activation::Sigmoid),
        };
        let place = |axis: usize, extent, window| match model.windows {
            Windows::Even => Starts::new(extent, window, step),
            Windows::Fixed { overlap, .. } => Starts::fixed(extent, window, overlap[axis]),
        };
        Rows::placed(grid, model.patch, (model.answers.outputs(), activation), place)
    }

    fn placed(
        grid: &TargetGrid,
        window: [usize; 3],
        (classes, activation): (usize, Option<Activation>),
        place: impl Fn(usize, usize, usize) -> Starts,
    ) -> Rows {
        let (axis, reversed) = order(grid);
        let extent = [0, 1, 2].map(|axis| grid.shape()[axis].max(window[axis]));
        let shape = RingShape { classes, grid: extent, axis, reversed, window, activation };
        let starts = |axis: usize| place(axis, extent[axis], window[axis]);
        let across = shape.plane_axes().map(starts);
        Rows { shape, lead: lead(grid, &shape), along: starts(axis), across }
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> usize {
        self.along.count()
    }

    /// Windows of the case.
    pub(crate) fn windows(&self) -> usize {
        self.across.iter().fold(self.count(), |windows, starts| windows.saturating_mul(starts.count()))
    }

    /// Where windows begin along each axis.
    fn starts(&self) -> [Starts; 3] {
        let mut starts = [self.along; 3];
        for (axis, across) in self.shape.plane_axes().into_iter().zip(self.across) {
            starts[axis] = across;
        }
        starts
    }

    /// Where a row begins along the axis of passing.
    fn place(&self, row: usize) -> usize {
        self.along.at(if self.shape.reversed { self.count() - 1 - row } else { row })
    }

    /// The starts of the windows of a row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = [usize; 3]> + use<> {
        let (axis, [first, second]) = (self.shape.axis, self.shape.plane_axes());
        let (place, [down, right]) = (self.place(row), self.across);
        down.iter().flat_map(move |a| {
            right.iter().map(move |b| {
                let mut start = [0; 3];
                (start[axis], start[first], start[second]) = (place, a, b);
                start
            })
        })
    }

    /// The planes before this one, in the order of passing, are finished after a row.
    fn finished_after(&self, row: usize) -> usize {
        let extent = self.shape.grid[self.shape.axis];
        match row + 1 < self.count() {
            // The next row's first plane, in the order of passing.
            true if self.shape.reversed => extent - self.shape.window[self.shape.axis] - self.place(row + 1),
            true => self.place(row + 1),
            false => extent,
        }
    }
}

/// How logits are summed.
#[derive(Clone, Copy)]
pub(crate) struct Summing {
    /// How sums are stored.
    pub(crate) storage: RingStorage,
    /// How often each window is looked at: by each fold of weights, in each way that it is mirrored.
    pub(crate) looks: usize,
    /// On how many threads.
    pub(crate) threads: usize,
}

/// The ring, whichever way it stores sums.
enum Sums {
    F32(Ring<f32>),
    F16(Ring<f16>),
}

/// The ring, and the way out of it.
pub(crate) struct Stream {
    sums: Sums,
    shares: Shares,
    export: Export,
    labels: Mapped<u8>,
    /// `[row][output][column]` of a plane; nothing if none are wanted.
    probabilities: Mapped<f32>,
    /// Of each thread.
    rooms: Vec<Mapped<f32>>,
    finished: usize,
    written: usize,
    cleared: usize,
}

impl Stream {
    /// Bytes that the stream of a case reserves.
    pub(crate) fn bytes(
        grid: &TargetGrid,
        rows: &Rows,
        wanted: Wanted<'_>,
        (weights, summing): (&Weights, Summing),
    ) -> Result<Bytes, MapError> {
        let rooms = Bytes(Export::room_bytes(grid, wanted)?.0.saturating_mul(summing.threads as u64));
        let probabilities = Mapped::<f32>::bytes(Export::probabilities_of_plane(grid, wanted))?;
        let labels = Mapped::<u8>::bytes(Stream::label_plane(grid, wanted))?;
        let ring = rows.shape.bytes(summing.storage)? + Shares::bytes(&rows.shape, weights)?;
        Ok(ring + labels + probabilities + Export::bytes(grid) + rooms)
    }

    /// Bytes of a plane of labels.
    fn label_plane(grid: &TargetGrid, wanted: Wanted<'_>) -> usize {
        let [_, height, width] = grid.stored_shape();
        height.saturating_mul(width).saturating_mul(wanted.label_bytes())
    }

    /// Reserves what a case needs, whose windows are weighted by `weights`.
    pub(crate) fn new(
        grid: &TargetGrid,
        rows: &Rows,
        wanted: Wanted<'_>,
        (weights, summing): (&Weights, Summing),
        budget: &Budget,
    ) -> Result<Stream, MapError> {
        let Summing { storage, looks, threads } = summing;
        let export = Export::new(grid, rows.shape, wanted.answers, budget)?;
        let probabilities = Export::probabilities_of_plane(grid, wanted);
        Ok(Stream {
            sums: match storage {
                RingStorage::F32 => Sums::F32(Ring::new(rows.shape, budget)?),
                RingStorage::F16 => Sums::F16(Ring::new(rows.shape, budget)?),
            },
            shares: Shares::new(rows.shape, rows.starts(), weights, looks, budget)?,
            labels: Mapped::zeroed(budget, "labels", Stream::label_plane(grid, wanted))?,
            probabilities: Mapped::zeroed(budget, "probabilities", probabilities)?,
            rooms: (0..threads).map(|_| export.room(wanted, budget)).collect::<Result<_, _>>()?,
            export,
            finished: 0,
            written: 0,
            cleared: 0,
        })
    }

    /// How sums are stored.
    pub(crate) fn storage(&self) -> RingStorage {
        match self.sums {
            Sums::F32(_) => RingStorage::F32,
            Sums::F16(_) => RingStorage::F16,
        }
    }

    /// Adds the logits `[class][d][h][w]` of the window at `start`, mirrored along some axes. `read` copies as many of them as there is room
    /// for, from one on. Returns whether all can be summed; if not, some are missing.
    ///
    /// # Errors
    /// If `read` fails.
    pub(crate) fn add<E: Send>(
        &mut self,
        (start, mirrored): ([usize; 3], [bool; 3]),
        rooms: &mut [Room<E>],
        read: impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<bool, E> {
        let logits = WindowLogits { start, mirrored, shares: self.shares.of(start) };
        match &mut self.sums {
            Sums::F32(ring) => ring.add(&logits, rooms, read),
            Sums::F16(ring) => ring.add(&logits, rooms, read),
        }
    }

    /// Says that all windows of a row have been added; passes the planes of labels that this decides to a function, in their order, with
    /// the plane's probabilities `[row][output][column]` if they are wanted.
    pub(crate) fn finish_row<E>(
        &mut self,
        rows: &Rows,
        row: usize,
        mut write: impl FnMut(&[u8], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let finished = rows.finished_after(row);
        match &mut self.sums {
            Sums::F32(ring) => ring.finish(self.finished, finished, &mut self.rooms),
            Sums::F16(ring) => ring.finish(self.finished, finished, &mut self.rooms),
        }
        self.finished = self.finished.max(finished);
        while self.written < self.export.planes() && self.export.is_ready(self.written, finished) {
            self.decide(self.written);
            write(&self.labels, &self.probabilities)?;
            self.written += 1;
        }
        let needed = self.export.first_needed(self.written).min(finished);
        match &mut self.sums {
            Sums::F32(ring) => ring.clear_before(self.cleared, needed, &mut self.rooms),
            Sums::F16(ring) => ring.clear_before(self.cleared, needed, &mut self.rooms),
        }
        self.cleared = self.cleared.max(needed);
        Ok(())
    }

    /// Makes the labels of a stored plane, and its probabilities if they are wanted.
    fn decide(&mut self, plane: usize) {
        let Stream { sums, export, labels, probabilities, rooms, .. } = self;
        match sums {
            Sums::F32(ring) => export.labels(ring, plane, labels, rooms),
            Sums::F16(ring) => export.labels(ring, plane, labels, rooms),
        }
        if !probabilities.is_empty() {
            match sums {
                Sums::F32(ring) => export.probabilities(ring, plane, probabilities, rooms),
                Sums::F16(ring) => export.probabilities(ring, plane, probabilities, rooms),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::mirror;
    use crate::windows::gaussian;
    use plimsoll_volume::{Affine, Geometry, Reorientation, Spacing};
    use proptest::prelude::*;

    /// A number for each class and voxel of a window that nothing else explains.
    fn logit(start: [usize; 3], class: usize, at: [usize; 3]) -> f32 {
        let [a, b, c] = [0, 1, 2].map(|axis| (start[axis] * 31 + at[axis]) as f32);
        (a * 0.7 + class as f32).sin() + (b * 1.3 + 2.0 * class as f32).cos() + (c * 0.9 - class as f32).sin()
    }

    fn voxels(shape: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
        let [depth, height, width] = shape;
        (0..depth * height * width).map(move |i| [i / (height * width), i / width % height, i % width])
    }

    /// Sums over the whole volume, in f64, by the definition: the weighted mean of all windows that cover a voxel.
    fn whole(rows: &Rows, weights: &[Vec<f32>; 3]) -> Vec<[f64; 2]> {
        let grid = rows.shape.grid;
        let mut sums = vec![[0.0; 2]; grid.iter().product()];
        let mut total = vec![0.0; sums.len()];
        for start in (0..rows.count()).flat_map(|row| rows.row(row)) {
            for at in voxels(rows.shape.window) {
                let place = [0, 1, 2].map(|axis| start[axis] + at[axis]);
                let voxel = (place[0] * grid[1] + place[1]) * grid[2] + place[2];
                let weight: f64 = (0..3).map(|axis| f64::from(weights[axis][at[axis]])).product();
                total[voxel] += weight;
                for (class, sum) in sums[voxel].iter_mut().enumerate() {
                    *sum += weight * f64::from(logit(start, class, at));
                }
            }
        }
        sums.iter().zip(total).map(|(sum, weight)| sum.map(|sum| sum / weight)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn planes_of_labels_are_those_of_logits_summed_over_the_whole_volume(
            shape in prop::array::uniform3(1usize..14),
            window in prop::array::uniform3(1usize..7),
            order in Just([0usize, 1, 2]).prop_shuffle(),
            flip: [bool; 3],
            spacing in prop::array::uniform3(0.6..2.0f64),
            step in 0.2..=1.0f64,
            mirrored: [bool; 3],
            threads in 1usize..4,
            in_halves: bool,
        ) {
            let canonical = Geometry::new(shape, Affine::from_spacing(Spacing([1.5, 1.0, 0.8]))).unwrap();
            let stored = Reorientation::new(order, flip).unwrap().geometry(&canonical);
            let grid = TargetGrid::new(&stored, Spacing(spacing));
            let rows = Rows::new(&grid, window, 2, step);
            let weights = gaussian(window);
            let all = Weights { along: weights.clone(), least: 0.0 };
            let budget = Budget::new(Bytes(1 << 26));
            let answers = Answers::Classes(2);
            let wanted = Wanted { answers: &answers, probabilities: false };
            let storage = if in_halves { RingStorage::F16 } else { RingStorage::F32 };
            let summing = Summing { storage, looks: 1, threads };
            let mut stream = Stream::new(&grid, &rows, wanted, (&all, summing), &budget).unwrap();
            prop_assert_eq!(budget.used(), Stream::bytes(&grid, &rows, wanted, (&all, summing)).unwrap());
            let mut rooms: Vec<Room<()>> =
                (0..threads).map(|_| Room::new(window, &budget).unwrap()).collect();
            let mut labels: Vec<u8> = Vec::new();
            for row in 0..rows.count() {
                for start in rows.row(row) {
                    let mut logits = Vec::new();
                    for class in 0..2 {
                        logits.extend(voxels(window).map(|at| logit(start, class, at)));
                    }
                    // What a network says of a mirrored window is mirrored too.
                    let mut said = vec![0.0; logits.len()];
                    mirror(&logits, &mut said, window, mirrored);
                    let read = |from: usize, to: &mut [f32]| {
                        to.copy_from_slice(&said[from..][..to.len()]);
                        Ok(())
                    };
                    prop_assert_eq!(stream.add((start, mirrored), &mut rooms, read), Ok(true));
                }
                stream.finish_row(&rows, row, |plane, _| {
                    labels.extend(plane);
                    Ok::<(), std::convert::Infallible>(())
                }).unwrap();
            }
            prop_assert_eq!(labels.len(), stored.voxel_count());
            let whole = whole(&rows, &weights);
            for (voxel, label) in voxels(stored.shape()).zip(labels) {
                // Linear interpolation between the eight voxels around, within the image.
                let at = grid.index_of(voxel);
                let mut sums = [0.0; 2];
                for corner in voxels([2; 3]) {
                    let mut weight = 1.0;
                    let mut place = [0; 3];
                    for axis in 0..3 {
                        let at = at[axis].clamp(0.0, (grid.shape()[axis] - 1) as f64);
                        let share = at - at.floor();
                        weight *= if corner[axis] == 1 { share } else { 1.0 - share };
                        let inside = (at.floor() as usize + corner[axis]).min(grid.shape()[axis] - 1);
                        place[axis] = rows.lead[axis] + inside;
                    }
                    let extent = rows.shape.grid;
                    let index = (place[0] * extent[1] + place[1]) * extent[2] + place[2];
                    for (sum, logit) in sums.iter_mut().zip(whole[index]) {
                        *sum += weight * logit;
                    }
                }
                // Rounding may decide otherwise where both classes are as likely: of means up to 3, halves keep 11 bits with each window.
                let unclear = if in_halves { 3e-2 } else { 1e-4 };
                if (sums[0] - sums[1]).abs() > unclear {
                    prop_assert_eq!(label, u8::from(sums[1] > sums[0]), "{:?}: {:?}", voxel, sums);
                }
            }
        }
    }
}
