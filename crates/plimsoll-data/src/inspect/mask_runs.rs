//! The mask of a case as it is held while patches are made: which voxels are normalised, where others stay zero.
//!
//! Of each plane of the box of non-zero voxels it holds the lengths of runs outside and inside of the mask in turn, seven bits
//! of a length in a byte; or a bit for each voxel, where that is less. Voxels outside of the box are outside of the mask.

use std::ops::Range;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};
use plimsoll_volume::VoxelBox;

use crate::prepare::Mask;

/// How a plane is encoded: its first byte.
const RUNS: u8 = 0;
const BITS: u8 = 1;

/// The bytes in which the end of a plane stands, little-endian, before all planes.
const END: usize = size_of::<u64>();

/// The voxels of a case that are in its mask.
#[derive(Debug)]
pub(crate) struct MaskRuns {
    covered: VoxelBox,
    bytes: Mapped<u8>,
}

impl MaskRuns {
    /// Encodes a mask in a reservation of [`most`](Self::most), of which what it needs is held as long as it lives.
    ///
    /// # Errors
    /// If the reservation is smaller, or the system refuses the memory.
    pub(crate) fn of(mask: &Mask, mut room: Reservation) -> Result<MaskRuns, MapError> {
        let covered = mask.covered();
        let (planes, length) = (covered.shape[0], plane_length(covered));
        let forms: Vec<Form> = (0..planes).map(|d| Form::of(mask, d)).collect();
        let all = forms.iter().map(|form| form.bytes(length)).sum::<usize>() + planes * END;
        let needed = Mapped::<u8>::bytes(all)?;
        room.check_covers(needed)?;
        room.shrink_to(needed);
        let mut bytes = Mapped::within(room.keep(), all)?;
        let (ends, mut rest) = bytes.split_at_mut(planes * END);
        let mut end = 0;
        for (d, (form, of_plane)) in forms.iter().zip(ends.chunks_exact_mut(END)).enumerate() {
            let (plane, after) = rest.split_at_mut(form.bytes(length));
            rest = after;
            end += plane.len() as u64;
            of_plane.copy_from_slice(&end.to_le_bytes());
            form.write(mask, d, plane);
        }
        Ok(MaskRuns { covered, bytes })
    }

    /// Room for one of so many bytes, which are to be read into [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    /// If the budget has no room.
    pub(crate) fn zeroed(covered: VoxelBox, length: usize, budget: &Budget) -> Result<MaskRuns, MapError> {
        Ok(MaskRuns { covered, bytes: Mapped::zeroed(budget, "masks", length)? })
    }

    /// What one of a box reserves at most.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub(crate) fn most(covered: VoxelBox) -> Result<Bytes, MapError> {
        let of_plane = plane_length(covered).div_ceil(8).saturating_add(1 + END);
        Mapped::<u8>::bytes(covered.shape[0].saturating_mul(of_plane))
    }

    /// What it reserves.
    pub(crate) fn reserved(&self) -> Bytes {
        self.bytes.reserved()
    }

    /// As it is kept in a file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As it is kept in a file, to be read into.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Gives the values of a region of the stored image `value` where they are outside of the mask.
    pub(crate) fn set_outside<T: Copy>(&self, region: VoxelBox, values: &mut [T], value: T) {
        let plane = (region.shape[1] * region.shape[2]).max(1);
        for (number, values) in values.chunks_exact_mut(plane).enumerate() {
            let from_box = (region.start[0] + number).checked_sub(self.covered.start[0]);
            match from_box.filter(|d| *d < self.covered.shape[0]) {
                Some(d) => self.set_plane(d, region, values, value),
                None => values.fill(value),
            }
        }
    }

    fn set_plane<T: Copy>(&self, d: usize, region: VoxelBox, values: &mut [T], value: T) {
        let ([_, top, left], [_, rows, columns]) = (self.covered.start, self.covered.shape);
        let ([_, above, before], [_, height, width]) = (region.start, region.shape);
        for (number, row) in values.chunks_exact_mut(width).enumerate() {
            let h = above + number;
            let (from, to) = match h >= top && h < top + rows {
                true => (left.saturating_sub(before), (left + columns).saturating_sub(before)),
                false => (width, width),
            };
            let from = from.min(width);
            row[..from].fill(value);
            row[to.clamp(from, width)..].fill(value);
        }
        outside(self.plane(d), rows * columns, &mut |run| {
            let mut at = run.start;
            while at < run.end {
                let (h, w) = (at / columns, at % columns);
                let end = run.end.min(at - w + columns);
                let row = (top + h).checked_sub(above).filter(|row| *row < height);
                let (first, last) = ((left + w).max(before), (left + w + end - at).min(before + width));
                if let Some(row) = row.filter(|_| first < last) {
                    let row = row * width;
                    values[row + first - before..row + last - before].fill(value);
                }
                at = end;
            }
        });
    }

    /// How a plane of the box is encoded; nothing where what was read from a file is damaged.
    fn plane(&self, d: usize) -> &[u8] {
        let (ends, planes) = self.bytes.split_at((self.covered.shape[0] * END).min(self.bytes.len()));
        let end = |d: usize| {
            let bytes = ends.as_chunks::<END>().0.get(d).copied().unwrap_or_default();
            usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let start = d.checked_sub(1).map_or(0, end);
        planes.get(start..end(d)).unwrap_or_default()
    }
}

/// Voxels of a plane of a box.
fn plane_length(covered: VoxelBox) -> usize {
    covered.shape[1].saturating_mul(covered.shape[2])
}

/// How a plane is encoded.
enum Form {
    /// In so many bytes of lengths.
    Runs(usize),
    Bits,
}

impl Form {
    fn of(mask: &Mask, d: usize) -> Form {
        let mut bytes = 0;
        runs(mask, d, &mut |length| bytes += varint_length(length));
        if bytes <= plane_length(mask.covered()).div_ceil(8) { Form::Runs(bytes) } else { Form::Bits }
    }

    fn bytes(&self, length: usize) -> usize {
        match self {
            Form::Runs(bytes) => 1 + bytes,
            Form::Bits => 1 + length.div_ceil(8),
        }
    }

    fn write(&self, mask: &Mask, d: usize, plane: &mut [u8]) {
        let Some((form, bytes)) = plane.split_first_mut() else { return };
        match self {
            Form::Runs(_) => {
                *form = RUNS;
                let mut bytes = bytes.iter_mut();
                runs(mask, d, &mut |mut length| {
                    for byte in bytes.by_ref().take(varint_length(length)) {
                        let more = u8::from(length >= 1 << 7) << 7;
                        *byte = (length & 0x7f) as u8 | more;
                        length >>= 7;
                    }
                });
            }
            Form::Bits => {
                *form = BITS;
                let [_, rows, columns] = mask.covered().shape;
                for at in 0..rows * columns {
                    bytes[at / 8] |= u8::from(mask.has([d, at / columns, at % columns])) << (at % 8);
                }
            }
        }
    }
}

/// The bytes of a length, seven bits in each.
fn varint_length(length: usize) -> usize {
    (usize::BITS - length.leading_zeros()).div_ceil(7).max(1) as usize
}

/// The lengths of runs of a plane outside and inside of a mask in turn, without the last one.
fn runs(mask: &Mask, d: usize, visit: &mut dyn FnMut(usize)) {
    let [_, rows, columns] = mask.covered().shape;
    let (mut inside, mut length) = (false, 0);
    for h in 0..rows {
        for w in 0..columns {
            if mask.has([d, h, w]) != inside {
                visit(length);
                (inside, length) = (!inside, 0);
            }
            length += 1;
        }
    }
}

/// The runs of a plane of `length` voxels that are outside of a mask.
fn outside(plane: &[u8], length: usize, visit: &mut dyn FnMut(Range<usize>)) {
    match plane.split_first() {
        Some((&RUNS, mut lengths)) => {
            let (mut at, mut inside) = (0, false);
            while at < length {
                // The last run ends with the plane.
                let run = varint(&mut lengths).unwrap_or(length).min(length - at);
                if !inside {
                    visit(at..at + run);
                }
                (at, inside) = (at + run, !inside);
            }
        }
        Some((&BITS, bits)) => {
            let is_inside = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 != 0);
            (0..length).filter(|at| !is_inside(*at)).for_each(|at| visit(at..at + 1));
        }
        _ => visit(0..length),
    }
}

fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0usize, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        length |= usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_outside_of_a_mask_is_set_in_any_region(
            shape in (1usize..4, 1usize..9, 1usize..150),
            density in prop::sample::select(vec![0.0, 0.02, 0.5, 0.97, 1.0]),
            start in (0usize..6, 0usize..6, 0usize..60),
            extent in (1usize..6, 1usize..9, 1usize..150),
            seed: u64,
        ) {
            let covered = VoxelBox { start: [2, 3, 40], shape: [shape.0, shape.1, shape.2] };
            let is_inside = |d: usize, h: usize, w: usize| {
                let hash = plimsoll_random::mix(seed ^ ((d * 1000 + h) * 1000 + w) as u64);
                ((hash >> 11) as f64 / (1u64 << 53) as f64) < density
            };
            let budget = Budget::new(Bytes::mib(1));
            let mut mask = Mask::new(covered, &budget).unwrap();
            for d in 0..shape.0 {
                for h in 0..shape.1 {
                    let row: Vec<u8> = (0..shape.2).map(|w| u8::from(is_inside(d, h, w))).collect();
                    mask.include_row(d, h, &row);
                }
            }
            let most = MaskRuns::most(covered).unwrap();
            let runs = MaskRuns::of(&mask, budget.reserve("runs", most).unwrap()).unwrap();
            prop_assert!(runs.reserved() <= most);
            let mut read = MaskRuns::zeroed(covered, runs.bytes().len(), &budget).unwrap();
            read.bytes_mut().copy_from_slice(runs.bytes());

            let region = VoxelBox { start: [start.0, start.1, start.2], shape: [extent.0, extent.1, extent.2] };
            let mut values = vec![7u8; region.shape.iter().product()];
            read.set_outside(region, &mut values, 9);
            let mut at = 0;
            for d in region.start[0]..region.start[0] + extent.0 {
                for h in region.start[1]..region.start[1] + extent.1 {
                    for w in region.start[2]..region.start[2] + extent.2 {
                        let in_box = [d, h, w].iter().zip(covered.start).zip(covered.shape)
                            .all(|((at, start), extent)| *at >= start && *at < start + extent);
                        let inside = in_box && is_inside(d - 2, h - 3, w - 40);
                        prop_assert_eq!(values[at], if inside { 7 } else { 9 }, "{:?}", [d, h, w]);
                        at += 1;
                    }
                }
            }
        }

        #[test]
        fn damaged_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let covered = VoxelBox { start: [0; 3], shape: [3, 4, 5] };
            let budget = Budget::new(Bytes::mib(1));
            let mut runs = MaskRuns::zeroed(covered, bytes.len(), &budget).unwrap();
            runs.bytes_mut().copy_from_slice(&bytes);
            runs.set_outside(VoxelBox::whole([4, 5, 6]), &mut [0u8; 120], 1);
        }
    }
}
