//! The mask of a case as it is held while patches are made: which voxels are normalised, where others stay zero.
//!
//! Each plane of the box of non-zero voxels has the lengths of runs outside and inside of the mask in turn,
//! seven bits of a length in a byte; or a bit for each voxel, if that is shorter. Voxels outside of the box are
//! outside of the mask.

use std::io::Read;
use std::ops::Range;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};
use plimsoll_volume::VoxelBox;

use super::Mask;

/// The first byte of a plane, which names its encoding.
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
    pub(crate) fn encode(mask: &Mask, mut room: Reservation) -> Result<MaskRuns, MapError> {
        let covered = mask.covered();
        let (planes, length) = (covered.shape[0], plane_length(covered));
        let forms: Vec<Form> = (0..planes).map(|d| Form::for_plane(mask, d)).collect();
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

    /// Reads the mask of a box from `length` bytes. Returns `None` if the file is shorter, or they are not a mask of `voxels` voxels.
    ///
    /// # Errors
    /// If the budget has no room.
    pub(crate) fn read(
        covered: VoxelBox,
        length: usize,
        voxels: u64,
        file: &mut impl Read,
        budget: &Budget,
    ) -> Result<Option<MaskRuns>, MapError> {
        let mut runs = MaskRuns { covered, bytes: Mapped::zeroed(budget, "masks", length)? };
        let is_read = file.read_exact(&mut runs.bytes).is_ok();
        Ok((is_read && runs.voxels() == Some(voxels)).then_some(runs))
    }

    /// The number of voxels inside the mask. `None` if the bytes are not what [`encode`](Self::encode) writes for a
    /// mask of this box.
    fn voxels(&self) -> Option<u64> {
        let length = plane_length(self.covered);
        let mut end = self.covered.shape[0].checked_mul(END)?;
        let mut voxels = 0;
        for d in 0..self.covered.shape[0] {
            let plane = self.plane_range(d)?;
            end = plane.end;
            voxels += inside(self.bytes.get(plane)?, length)?;
        }
        (end == self.bytes.len()).then_some(voxels)
    }

    /// The most bytes that the runs of a mask of a box reserve.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub(crate) fn most(covered: VoxelBox) -> Result<Bytes, MapError> {
        let of_plane = plane_length(covered).div_ceil(8).saturating_add(1 + END);
        Mapped::<u8>::bytes(covered.shape[0].saturating_mul(of_plane))
    }

    /// The reserved bytes.
    pub(crate) fn reserved(&self) -> Bytes {
        self.bytes.reserved()
    }

    /// The bytes that are stored in a file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
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

    /// The encoded bytes of a plane of the box.
    fn plane(&self, d: usize) -> &[u8] {
        // All planes of a stored mask are complete: `read` counts their voxels.
        self.plane_range(d).map_or(&[][..], |plane| &self.bytes[plane])
    }

    /// The bytes of a plane of the box; none where its end is not there or has no number that can be.
    fn plane_range(&self, d: usize) -> Option<Range<usize>> {
        let ends = self.covered.shape[0].checked_mul(END)?;
        let end = |d: usize| {
            let end = self.bytes.get(..ends)?.as_chunks::<END>().0.get(d)?;
            ends.checked_add(usize::try_from(u64::from_le_bytes(*end)).ok()?)
        };
        let start = d.checked_sub(1).map_or(Some(ends), end)?;
        Some(start..end(d)?)
    }
}

/// Voxels of a plane of a box.
fn plane_length(covered: VoxelBox) -> usize {
    covered.shape[1].saturating_mul(covered.shape[2])
}

/// The encoding of a plane.
enum Form {
    /// The lengths of runs, in this number of bytes.
    Runs(usize),
    Bits,
}

impl Form {
    fn for_plane(mask: &Mask, d: usize) -> Form {
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

/// The number of voxels of a plane of `length` voxels that are inside a mask; `None` if its bytes are not a
/// valid plane.
fn inside(plane: &[u8], length: usize) -> Option<u64> {
    let (form, mut bytes) = plane.split_first()?;
    match *form {
        RUNS => {
            let (mut left, mut is_inside, mut voxels) = (length, false, 0);
            while !bytes.is_empty() {
                let run = varint(&mut bytes)?;
                left = left.checked_sub(run)?;
                voxels += if is_inside { run } else { 0 };
                is_inside = !is_inside;
            }
            // The last run ends with the plane.
            Some((voxels + if is_inside { left } else { 0 }) as u64)
        }
        BITS if bytes.len() == length.div_ceil(8) => {
            let voxels: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            // Behind the last voxel are zeros.
            let behind = bytes.last().map_or(0, |last| u32::from(*last) >> ((length - 1) % 8 + 1));
            (behind == 0).then_some(voxels)
        }
        _ => None,
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
            let runs = MaskRuns::encode(&mask, budget.reserve("runs", most).unwrap()).unwrap();
            prop_assert!(runs.reserved() <= most);
            let length = runs.bytes().len();
            let read = MaskRuns::read(covered, length, mask.voxels(), &mut runs.bytes(), &budget).unwrap().unwrap();

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
        fn bytes_that_are_not_those_of_a_mask_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            voxels in 0u64..61,
        ) {
            let budget = Budget::new(Bytes::mib(1));
            let read = MaskRuns::read(SMALL, bytes.len(), voxels, &mut &bytes[..], &budget).unwrap();
            prop_assert!(read.is_none());
        }
    }

    const SMALL: VoxelBox = VoxelBox { start: [0; 3], shape: [3, 4, 5] };

    /// A plane of a few runs, one of bits, and an empty one; each with its end before all, its form, and what that has.
    #[test]
    fn a_mask_is_refused_whose_bytes_are_damaged() {
        let rows = |d: usize, at: usize| match d {
            0 => (7..11).contains(&at),
            1 => at.is_multiple_of(2),
            _ => false,
        };
        let budget = Budget::new(Bytes::mib(1));
        let mut mask = Mask::new(SMALL, &budget).unwrap();
        for (d, h) in (0..3).flat_map(|d| (0..4).map(move |h| (d, h))) {
            let row: Vec<u8> = (0..5).map(|w| u8::from(rows(d, h * 5 + w))).collect();
            mask.include_row(d, h, &row);
        }
        let runs =
            MaskRuns::encode(&mask, budget.reserve("runs", MaskRuns::most(SMALL).unwrap()).unwrap()).unwrap();
        let read = |bytes: &[u8]| {
            MaskRuns::read(SMALL, bytes.len(), mask.voxels(), &mut &bytes[..], &budget).unwrap()
        };
        let good = runs.bytes().to_vec();
        assert!(read(&good).is_some_and(|read| read.bytes() == good));
        let forms: Vec<u8> = (0..3).map(|d| runs.plane(d)[0]).collect();
        assert_eq!(forms, [RUNS, BITS, RUNS]);
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_none(), "{length} bytes");
        }
        assert!(read(&[&good[..], &[0]].concat()).is_none());
        // The checksum of all masks alone tells that a run begins elsewhere.
        let flips = (0..good.len()).flat_map(|at| (0..8).map(move |bit| (at, bit)));
        let taken = flips.filter(|(at, bit)| {
            let mut bad = good.clone();
            bad[*at] ^= 1 << bit;
            read(&bad).is_some()
        });
        let first_length = SMALL.shape[0] * END + 1;
        assert!(taken.eq((0..4).map(|bit| (first_length, bit))));
    }
}
