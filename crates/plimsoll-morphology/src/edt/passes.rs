//! The passes over a volume, divided into units of work.

use std::ops::Range;

use super::buffers::Buffers;
use super::job::Distance;
use super::row::{Piece, Row};
use super::scratch::Worker;
use super::store::{Pass, piece};
use super::tile::Tile;
use crate::rows::Bits;
use crate::simd::{Kernel, LANES, Simd, prefetch};

/// The prefetch distance in rows.
const AHEAD: usize = 8;

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
    fn run<S: Simd>(self) {
        let Work { data, worker, unit } = self;
        let [depth, height, width] = data.job.shape;
        let tiles = data.job.tiles();
        let (rows, first, stride, axis, indices) = match &unit {
            Unit::Slice(z) => {
                let all_labels = data.job.distance == Distance::ToOtherLabel;
                // SAFETY: a slice belongs to one unit of work.
                let soles =
                    all_labels.then(|| unsafe { data.soles.part(z * height * tiles, height * tiles) });
                let bits = Bits { foreground: worker.foreground, boundary: Some(worker.boundary), soles };
                data.mask.bits(data.instructions, z * height * width, width, all_labels, bits);
                for y in 0..height {
                    data.row::<S>(worker, *z, y);
                }
                (height, z * height * width, width, data.axes[1], 0..tiles)
            }
            Unit::Plane(y, indices) => {
                for z in 0..depth {
                    data.load::<S>(worker, z, *y, indices.clone());
                }
                (depth, y * width, height * width, data.axes[0], indices.clone())
            }
        };
        for (at, index) in indices.enumerate() {
            let pass = match unit {
                Unit::Slice(z) => {
                    Pass::Inner { pieces: data.pieces, first: z * height * tiles + index, stride: tiles }
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
            tile.pass::<S>(&data, worker);
        }
    }
}

impl Buffers<'_> {
    /// The first pass over row (`z`, `y`) of the volume, to row `y` of the worker's tiles.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn row<S: Simd>(&self, worker: &mut Worker<'_>, z: usize, y: usize) {
        let [_, height, width] = self.job.shape;
        let tiles = self.job.tiles();
        let row = z * height + y;
        let start = row * width;
        // SAFETY: a row belongs to one slice, and a slice to one unit of work.
        let pieces = unsafe { self.pieces.part(row * tiles, tiles) };
        let words = y * worker.next.len()..(y + 1) * worker.next.len();
        let mut bits = Row {
            foreground: &worker.foreground[words.clone()],
            boundary: &worker.boundary[words],
            next: worker.next,
        };
        let signed = self.job.distance == Distance::Signed;
        let values = worker.plane[y..].iter_mut().step_by(height);
        let greatest = worker.greatest[y..].iter_mut().step_by(height);
        let to = values.zip(greatest).zip(&mut *pieces);
        let to = to.map(|((values, greatest), kind)| Piece { values, greatest, kind });
        bits.distances::<S>(width, self.job.weights[2], signed, to);
        // SAFETY: as for the pieces.
        let out = unsafe { self.out.part(start, width) };
        let mut at = 0;
        for run in pieces.chunk_by(|a, b| a == b) {
            let end = (at + run.len() * LANES).min(width);
            if run[0] == piece::ZERO {
                out[at..end].fill(0.0);
            }
            at = end;
        }
        if self.job.features {
            let to = worker.plane_features[y..].iter_mut().step_by(height).take(tiles);
            bits.features(width, start as u32, signed, to);
        }
        if self.job.distance == Distance::ToOtherLabel {
            // SAFETY: as for the pieces.
            let soles = unsafe { self.soles.part(row * tiles, tiles) };
            worker.soles[y..].iter_mut().step_by(height).zip(soles).for_each(|(to, sole)| *to = *sole);
        }
    }

    /// Copies pieces of row (`z`, `y`) of the output to row `z` of the worker's tiles.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn load<S: Simd>(&self, worker: &mut Worker<'_>, z: usize, y: usize, tiles: Range<usize>) {
        let [depth, height, width] = self.job.shape;
        let row = z * height + y;
        let first = row * self.job.tiles() + tiles.start;
        let start = row * width + tiles.start * LANES;
        let len = (tiles.len() * LANES).min(width - tiles.start * LANES);
        // SAFETY: these tiles at this height belong to this unit of work.
        let (pieces, out) = unsafe { (self.pieces.part(first, tiles.len()), self.out.part(start, len)) };
        let plane = worker.plane[z..].iter_mut().step_by(depth);
        let greatest = worker.greatest[z..].iter_mut().step_by(depth);
        let to = plane.zip(greatest);
        for ((at, (piece, from)), (lanes, greatest)) in
            pieces.iter().zip(out.chunks(LANES)).enumerate().zip(to)
        {
            match *piece {
                piece::ZERO => *greatest = 0.0,
                piece::INFINITE => {
                    *greatest = f32::INFINITY;
                    // With several parts it is an ordinary value.
                    if self.job.distance != Distance::ToBackground {
                        *lanes = [f32::INFINITY; LANES];
                    }
                }
                _ => {
                    prefetch(self.out.whole(), start + at * LANES + AHEAD * height * width, LANES);
                    copy_lanes(lanes, from);
                    *greatest = S::load(lanes).greatest();
                }
            }
        }
        if self.job.features {
            // SAFETY: as for the pieces.
            let from = unsafe { self.features.part(start, len) }.chunks(LANES);
            let to = worker.plane_features[z..].iter_mut().step_by(depth);
            to.zip(from).for_each(|(lanes, from)| copy_lanes(lanes, from));
        }
        if self.job.distance == Distance::ToOtherLabel {
            // SAFETY: as for the pieces.
            let from = unsafe { self.soles.part(first, tiles.len()) };
            worker.soles[z..].iter_mut().step_by(depth).zip(from).for_each(|(to, from)| *to = *from);
        }
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
