//! The passes over a volume, divided into units of work.

use std::ops::Range;

use plimsoll_parallel::prefetch;

use super::buffers::Buffers;
use super::job::Distance;
use super::row::{Pieces, Row};
use super::scratch::Worker;
use super::states::{self, State, busy};
use super::store::Pass;
use super::tile::Tile;
use crate::rows::{Bits, SEVERAL};
use crate::simd::{Kernel, LANES, Simd, Supported};

/// A unit of work.
pub(super) enum Unit {
    /// The first two passes, along the width and the height, for the slice at this depth. Leaves squared distances in
    /// the output.
    Slice(usize),
    /// The third pass, along the depth, in place, for some tiles of the plane at this height.
    Plane(usize, Range<usize>),
}

/// A unit with its data.
pub(super) struct Work<'a, 'w> {
    pub(super) data: Buffers<'a>,
    pub(super) worker: &'a mut Worker<'w>,
    pub(super) unit: Unit,
}

impl Kernel for Work<'_, '_> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn run<S: Simd>(self, on: Supported<S>) {
        let Work { data, worker, unit } = self;
        let [depth, height, width] = data.job.shape;
        let tiles = data.job.tiles();
        let (rows, first, stride, axis, indices) = match &unit {
            Unit::Slice(z) => {
                let all_labels = data.job.distance == Distance::ToOtherLabel;
                let soles = all_labels.then_some(&mut *worker.row_soles);
                let bits = Bits { foreground: worker.foreground, boundary: Some(worker.boundary), soles };
                data.mask.bits(data.instructions, z * height * width, width, all_labels, bits);
                worker.greatest[..height * tiles].fill(0.0);
                let states = data.job.states();
                // SAFETY: a slice belongs to one unit of work.
                unsafe { data.states.part(z * height * states, height * states) }.fill(0);
                let busy = (0..height).map(|y| data.row(on, worker, *z, y)).sum();
                data.clear(*z, busy);
                (height, z * height * width, width, data.axes[1], 0..tiles)
            }
            Unit::Plane(y, indices) => {
                worker.greatest[..depth * indices.len()].fill(0.0);
                for z in 0..depth {
                    data.prefetch(z, *y + 1, indices.clone());
                    data.load(on, worker, z, *y, indices.clone());
                }
                (depth, y * width, height * width, data.axes[0], indices.clone())
            }
        };
        for (at, index) in indices.enumerate() {
            let pass = match unit {
                Unit::Slice(z) => {
                    let stride = data.job.states();
                    Pass::Inner { states: data.states, first: z * height * stride, stride, piece: index }
                }
                Unit::Plane(..) => Pass::Last(data.job.finish),
            };
            let tile = Tile {
                rows: at * rows..(at + 1) * rows,
                start: first + index * LANES,
                stride,
                busy: LANES.min(width - index * LANES),
                axis,
                pass,
            };
            tile.pass(on, &data, worker);
        }
    }
}

impl Buffers<'_> {
    /// The first pass over row (`z`, `y`) of the volume, to row `y` of the worker's tiles; its states and the tiles' maxima are zero
    /// before. Returns the number of pieces that are not zero.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn row<S: Simd>(&self, on: Supported<S>, worker: &mut Worker<'_>, z: usize, y: usize) -> usize {
        let [_, height, width] = self.job.shape;
        let tiles = self.job.tiles();
        let row = z * height + y;
        let start = row * width;
        let words = y * worker.next.len()..(y + 1) * worker.next.len();
        let signed = self.job.distance == Distance::Signed;
        if !signed && !self.job.features && worker.foreground[words.clone()].iter().all(|word| *word == 0) {
            return 0;
        }
        // SAFETY: a row belongs to one slice, and a slice to one unit of work.
        let states = unsafe { self.states.part(row * self.job.states(), self.job.states()) };
        let mut bits = Row {
            foreground: &worker.foreground[words.clone()],
            boundary: &worker.boundary[words],
            next: worker.next,
        };
        let (values, greatest) = (&mut worker.plane[y..], &mut worker.greatest[y..]);
        let to = Pieces { values, greatest, stride: height, states: &mut *states };
        bits.distances(on, width, self.job.weights[2], signed, to);
        if self.job.features {
            let to = worker.plane_features[y..].iter_mut().step_by(height).take(tiles);
            bits.features(width, start as u32, signed, to);
        }
        if self.job.distance == Distance::ToOtherLabel {
            let soles = &worker.row_soles[y * tiles..(y + 1) * tiles];
            worker.soles[y..].iter_mut().step_by(height).zip(soles).for_each(|(to, sole)| *to = *sole);
            for (piece, _) in soles.iter().enumerate().filter(|(_, sole)| **sole == SEVERAL) {
                states::set(states, piece, State::Several);
            }
        }
        busy(states, 0..tiles).count()
    }

    /// Writes the zeroes of a slice with so many pieces that are not zero: all at once where they are most of it.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn clear(&self, z: usize, busy: usize) {
        let [_, height, width] = self.job.shape;
        let (tiles, states) = (self.job.tiles(), self.job.states());
        // SAFETY: a slice belongs to one unit of work.
        let (states, out) = unsafe {
            let states = self.states.part(z * height * states, height * states);
            (states.chunks_exact(self.job.states()), self.out.part(z * height * width, height * width))
        };
        if 2 * busy < height * tiles {
            return out.fill(0.0);
        }
        for (states, row) in states.zip(out.chunks_exact_mut(width)) {
            let pieces = row.chunks_mut(LANES).enumerate();
            let zero = pieces.filter(|(piece, _)| states::get(states, *piece) == State::Zero);
            zero.for_each(|(_, piece)| piece.fill(0.0));
        }
    }

    /// Copies pieces of row (`z`, `y`) of the output to row `z` of the worker's tiles, whose maxima are zero before.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn load<S: Simd>(
        &self,
        on: Supported<S>,
        worker: &mut Worker<'_>,
        z: usize,
        y: usize,
        tiles: Range<usize>,
    ) {
        let [depth, height, width] = self.job.shape;
        let row = z * height + y;
        let start = row * width + tiles.start * LANES;
        let len = (tiles.len() * LANES).min(width - tiles.start * LANES);
        // SAFETY: these tiles at this height belong to this unit of work.
        let out = unsafe { self.out.part(start, len) };
        for (tile, state) in busy(self.states(row), tiles.clone()) {
            let at = tile - tiles.start;
            let (lanes, greatest) = (&mut worker.plane[at * depth + z], &mut worker.greatest[at * depth + z]);
            if state == State::Infinite {
                *greatest = f32::INFINITY;
                // With several parts it is an ordinary value.
                if self.job.distance != Distance::ToBackground {
                    *lanes = [f32::INFINITY; LANES];
                }
            } else {
                copy_lanes(lanes, &out[at * LANES..][..LANES.min(len - at * LANES)]);
                *greatest = S::load(on, lanes).greatest();
            }
            if self.job.distance == Distance::ToOtherLabel {
                worker.soles[at * depth + z] = match state {
                    State::Several => SEVERAL,
                    // Background is at distance 0, and nothing else is. No early exit, which is mispredicted.
                    _ => {
                        let inside = |bits, (at, lane): (usize, &f32)| bits | u32::from(*lane != 0.0) << at;
                        let inside = lanes.iter().enumerate().fold(0, inside);
                        self.mask.number(row * width + tile * LANES + inside.trailing_zeros() as usize)
                    }
                };
            }
        }
        if self.job.features {
            // SAFETY: as for the output.
            let from = unsafe { self.features.part(start, len) }.chunks(LANES);
            let to = worker.plane_features[z..].iter_mut().step_by(depth);
            to.zip(from).for_each(|(lanes, from)| copy_lanes(lanes, from));
        }
    }

    /// Prefetches what [`Buffers::load`] will copy, if there is such a row.
    #[inline(always)]
    fn prefetch(&self, z: usize, y: usize, tiles: Range<usize>) {
        let [_, height, width] = self.job.shape;
        let row = z * height + y;
        if y == height {
            return;
        }
        for (tile, state) in busy(self.states(row), tiles) {
            let start = row * width + tile * LANES;
            if state != State::Infinite {
                prefetch(self.out.address(start), LANES);
            }
            if self.job.distance == Distance::ToOtherLabel && state != State::Several {
                self.mask.prefetch(start);
            }
        }
    }

    /// The states of a row, for the last pass.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn states(&self, row: usize) -> &[u8] {
        let count = self.job.states();
        // SAFETY: in the last pass they are only read.
        unsafe { self.states.read(row * count, count) }
    }
}

/// Fills the lanes, and the remaining ones with the last value, so that idle lanes never differ from a busy one.
#[inline(always)]
fn copy_lanes<T: Copy>(lanes: &mut [T; LANES], from: &[T]) {
    match from.try_into() {
        Ok(from) => *lanes = from,
        Err(_) => {
            lanes[..from.len()].copy_from_slice(from);
            lanes[from.len()..].fill(from[from.len() - 1]);
        }
    }
}
