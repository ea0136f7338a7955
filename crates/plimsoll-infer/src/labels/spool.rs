//! Labels, or probabilities, that are decided in another order than they are written in.
//!
//! Slices come one after the other along some stored axis, and for a case in strips the slices of one strip after the slices of another. They are kept
//! as they come, in memory or in a file without a name, and read back as stored planes once all are there.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::ScratchFile;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

use crate::error::{InferError, internal};
use crate::labels::slices::slice_axes;
use crate::labels::wanted::Wanted;

/// The numbers that are kept for each voxel of a stored grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The stored grid.
    pub(crate) stored: [usize; 3],
    /// The stored axis along which slices come.
    pub(crate) slices: usize,
    /// Numbers of a voxel, of which a slice has the numbers of a row one after the other: `[row][output][column]`.
    pub(crate) outputs: usize,
    /// Bytes of a number: 1, 2 or 4.
    pub(crate) size: usize,
}

/// The most stored planes that are put in order at a time.
const MOST_AT_ONCE: Bytes = Bytes::mib(64);

impl Record {
    /// Returns the records of the labels of a case, and of its probabilities if they are wanted, whose slices come along a stored axis.
    pub(crate) fn for_case(stored: [usize; 3], slices: usize, wanted: Wanted<'_>) -> [Record; 2] {
        let labels = Record { stored, slices, outputs: 1, size: wanted.label_bytes() };
        [labels, Record { outputs: wanted.probabilities(), size: size_of::<f32>(), ..labels }]
    }

    /// Bytes of a stored plane.
    fn plane(&self) -> usize {
        let [_, height, width] = self.stored;
        height.saturating_mul(width).saturating_mul(self.outputs).saturating_mul(self.size)
    }

    /// Bytes of all of it.
    pub(crate) fn all(&self) -> usize {
        self.plane().saturating_mul(self.stored[0])
    }

    /// Bytes of memory that all of it reserves.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn memory(&self) -> Result<Bytes, MapError> {
        Mapped::<u8>::bytes(self.all())
    }

    /// Bytes that reading it back reserves at least: a plane, and the same of one slice after the other.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn least_reading(&self) -> Result<Bytes, MapError> {
        Ok(Mapped::<u8>::bytes(self.plane())? + Mapped::<u8>::bytes(self.run(1))?)
    }

    /// Bytes of the longest run of so many stored planes that lies in one piece.
    fn run(&self, planes: usize) -> usize {
        match self.slices {
            0 => self.plane(),
            slices => {
                let [_, _, column] = slice_axes(slices);
                let of_row = self.stored[column].saturating_mul(self.outputs).saturating_mul(self.size);
                of_row.saturating_mul(planes)
            }
        }
    }
}

enum Store {
    Memory(Mapped<u8>),
    Disk { file: ScratchFile, waits: WaitsOnDisk },
}

/// The name of what waits on the disk, for errors.
struct WaitsOnDisk {
    beside: PathBuf,
    bytes: Bytes,
    labels: bool,
}

impl WaitsOnDisk {
    fn failed(&self, source: io::Error) -> InferError {
        let WaitsOnDisk { beside, bytes, labels } = self;
        InferError::Spool { path: beside.clone(), bytes: *bytes, labels: *labels, source }
    }
}

/// Slices that wait for the others.
pub(crate) struct Spool {
    record: Record,
    store: Store,
    /// The parts whose slices have come, with the place of each one's first.
    parts: Vec<(VoxelBox, u64)>,
    written: u64,
}

impl Spool {
    /// In memory.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(crate) fn in_memory(record: Record, budget: &Budget) -> Result<Spool, InferError> {
        let store = Store::Memory(Mapped::zeroed(budget, "labels of the image", record.all())?);
        Ok(Spool { record, store, parts: Vec::new(), written: 0 })
    }

    /// In a file beside a path, which is gone when this is dropped. `labels`: whether it is labels, which a higher limit would hold in memory.
    ///
    /// # Errors
    /// Returns an error if the disk has no room for all of it.
    pub(crate) fn beside(record: Record, labels: bool, path: &Path) -> Result<Spool, InferError> {
        let bytes = record.all() as u64;
        let waits = WaitsOnDisk { beside: path.into(), bytes: Bytes(bytes), labels };
        let file = ScratchFile::beside(path, bytes).map_err(|source| waits.failed(source))?;
        let store = Store::Disk { file, waits };
        Ok(Spool { record, store, parts: Vec::new(), written: 0 })
    }

    /// Takes the next slice of a part.
    ///
    /// # Errors
    /// Returns an error if there are more slices than the grid has, or the disk fails.
    pub(crate) fn write(&mut self, part: &VoxelBox, slice: &[u8]) -> Result<(), InferError> {
        if self.parts.last().is_none_or(|(last, _)| last != part) {
            self.parts.push((*part, self.written));
        }
        let all = self.record.all() as u64;
        let end = self.written + slice.len() as u64;
        if end > all {
            return Err(internal("more labels were decided than the image has voxels"));
        }
        match &mut self.store {
            // It is no longer than the memory, whose length is a `usize`.
            Store::Memory(memory) => memory[self.written as usize..end as usize].copy_from_slice(slice),
            Store::Disk { file, waits } => {
                file.write_all_at(self.written, slice).map_err(|source| waits.failed(source))?;
            }
        }
        self.written = end;
        Ok(())
    }

    /// Passes all stored planes `[row][output][column]` to a function, in their order. What this takes is reserved from `room` at most.
    ///
    /// # Errors
    /// Returns an error if slices are missing, the budget has no room, the disk fails, or `take` does.
    pub(crate) fn read(
        mut self,
        budget: &Budget,
        room: Bytes,
        mut take: impl FnMut(&[u8]) -> Result<(), InferError>,
    ) -> Result<(), InferError> {
        let record = self.record;
        let ([depth, ..], plane) = (record.stored, record.plane());
        if self.written != record.all() as u64 {
            return Err(internal("fewer labels were decided than the image has voxels"));
        }
        let at_once = planes_at_once(&record, room.min(MOST_AT_ONCE))?.min(depth);
        let mut planes = Mapped::<u8>::zeroed(budget, "planes put in order", at_once * plane)?;
        let mut run = Mapped::<u8>::zeroed(budget, "planes put in order", record.run(at_once))?;
        let parts = std::mem::take(&mut self.parts);
        for first in (0..depth).step_by(at_once) {
            let end = depth.min(first + at_once);
            for (part, offset) in &parts {
                let depths = part.start[0].max(first)..end.min(part.start[0] + part.shape[0]);
                if !depths.is_empty() {
                    self.gather(part, *offset, depths, first, &mut planes, &mut run)?;
                }
            }
            planes[..(end - first) * plane].chunks_exact(plane).try_for_each(&mut take)?;
        }
        Ok(())
    }

    /// Puts what a part has of some stored planes where it belongs in `planes`, which begin with the plane `first`.
    fn gather(
        &mut self,
        part: &VoxelBox,
        offset: u64,
        depths: std::ops::Range<usize>,
        first: usize,
        planes: &mut [u8],
        run: &mut [u8],
    ) -> Result<(), InferError> {
        let Record { stored: [_, _, width], slices, outputs, size, .. } = self.record;
        let plane = self.record.plane();
        let [_, row, column] = slice_axes(slices);
        let (rows, columns) = (part.shape[row], part.shape[column]);
        let of_slice = (rows * outputs * columns * size) as u64;
        if slices == 0 {
            let of_row = columns * size;
            for d in depths {
                let run = &mut run[..rows * outputs * of_row];
                self.fetch(offset + (d - part.start[0]) as u64 * of_slice, run)?;
                let plane = &mut planes[(d - first) * plane..][..plane];
                for (number, from) in run.chunks_exact(of_row.max(1)).enumerate() {
                    let row = part.start[1] * outputs + number;
                    plane[(row * width + part.start[2]) * size..][..of_row].copy_from_slice(from);
                }
            }
            return Ok(());
        }
        // Rows of a slice follow each other along the depth, so that the rows of several planes lie in one piece.
        let of_depth = outputs * columns * size;
        for slice in 0..part.shape[slices] {
            let run = &mut run[..depths.len() * of_depth];
            let skipped = ((depths.start - part.start[0]) * of_depth) as u64;
            self.fetch(offset + slice as u64 * of_slice + skipped, run)?;
            for (d, from) in depths.clone().zip(run.chunks_exact(of_depth.max(1))) {
                let plane = &mut planes[(d - first) * plane..][..plane];
                let at = part.start[slices] + slice;
                for (output, from) in from.chunks_exact((columns * size).max(1)).enumerate() {
                    match slices {
                        1 => {
                            let to = ((at * outputs + output) * width + part.start[2]) * size;
                            plane[to..][..columns * size].copy_from_slice(from);
                        }
                        _ => {
                            for (h, from) in from.chunks_exact(size).enumerate() {
                                let to = (((part.start[1] + h) * outputs + output) * width + at) * size;
                                plane[to..][..size].copy_from_slice(from);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn fetch(&mut self, from: u64, bytes: &mut [u8]) -> Result<(), InferError> {
        match &mut self.store {
            // All of it was written, so that it is no longer than the memory.
            Store::Memory(memory) => bytes.copy_from_slice(&memory[from as usize..][..bytes.len()]),
            Store::Disk { file, waits } => {
                file.read_exact_at(from, bytes).map_err(|source| waits.failed(source))?;
            }
        }
        Ok(())
    }
}

/// Returns the number of planes that can be put in order at a time within `room`, at least one.
fn planes_at_once(record: &Record, room: Bytes) -> Result<usize, MapError> {
    let of_plane = record.least_reading()?;
    Ok(usize::try_from(room.0 / of_plane.0.max(1)).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_of_parts_are_read_back_as_stored_planes(
            stored in prop::array::uniform3(1usize..7),
            slices in 0usize..3,
            strips in prop::sample::select(vec![1usize, 2]),
            width in 1usize..5,
            outputs in 1usize..4,
            size in prop::sample::select(vec![1usize, 2, 4]),
            room in 0u64..100_000,
            is_on_disk: bool,
        ) {
            let record = Record { stored, slices, outputs, size };
            let budget = Budget::new(Bytes::mib(1));
            let folder = tempfile::tempdir().unwrap();
            let mut spool = match is_on_disk {
                true => Spool::beside(record, true, &folder.path().join("labels")).unwrap(),
                false => Spool::in_memory(record, &budget).unwrap(),
            };
            // A number for each output of a voxel that nothing else has.
            let number = |voxel: [usize; 3], output: usize| {
                let at = (voxel[0] * 7 + voxel[1]) * 7 + voxel[2];
                ((at * 4 + output) as u32).wrapping_mul(2_654_435_761).to_le_bytes()
            };
            let axes = slice_axes(slices);
            let axis = axes[strips];
            for start in (0..stored[axis]).step_by(width) {
                let mut part = VoxelBox::whole(stored);
                (part.start[axis], part.shape[axis]) = (start, width.min(stored[axis] - start));
                for slice in 0..part.shape[slices] {
                    let mut bytes = Vec::new();
                    for row in 0..part.shape[axes[1]] {
                        for output in 0..outputs {
                            for column in 0..part.shape[axes[2]] {
                                let mut voxel = part.start;
                                voxel[slices] += slice;
                                voxel[axes[1]] += row;
                                voxel[axes[2]] += column;
                                bytes.extend(&number(voxel, output)[..size]);
                            }
                        }
                    }
                    spool.write(&part, &bytes).unwrap();
                }
            }
            let mut planes = 0;
            spool.read(&budget, Bytes(room), |plane| {
                let mut expected: Vec<u8> = Vec::new();
                for h in 0..stored[1] {
                    for output in 0..outputs {
                        (0..stored[2]).for_each(|w| expected.extend(&number([planes, h, w], output)[..size]));
                    }
                }
                assert_eq!(plane, expected, "plane {planes}");
                planes += 1;
                Ok(())
            }).unwrap();
            prop_assert_eq!(planes, stored[0]);
            prop_assert_eq!(budget.used(), Bytes::ZERO);
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn slices_that_are_missing_or_too_many_are_noticed() {
        let record = Record { stored: [2, 2, 2], slices: 1, outputs: 1, size: 1 };
        let budget = Budget::new(Bytes::mib(1));
        let whole = VoxelBox::whole([2; 3]);
        let mut spool = Spool::in_memory(record, &budget).unwrap();
        spool.write(&whole, &[1; 4]).unwrap();
        spool.write(&whole, &[1; 4]).unwrap();
        assert!(spool.write(&whole, &[1; 4]).is_err());
        let mut spool = Spool::in_memory(record, &budget).unwrap();
        spool.write(&whole, &[1; 4]).unwrap();
        assert!(spool.read(&budget, Bytes::mib(1), |_| Ok(())).is_err());
    }
}
