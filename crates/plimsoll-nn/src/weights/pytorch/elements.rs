//! The elements of a tensor or of a member of an archive, read in pieces of a fixed size.

use std::io::{self, Read, Seek, SeekFrom};

use plimsoll_disk::File;

use crate::weights::archive::Member;
use crate::weights::pickle::Tensor;
use crate::weights::{EachRun, widen};

/// Elements that are read at a time, and the most bytes they take.
const RUN: usize = 4096;
pub(super) const PIECE: usize = RUN * 8;

/// The elements of a type that begin at a place in the file.
pub(super) struct Elements<'a> {
    /// The first byte.
    pub(super) start: u64,
    pub(super) dtype: &'a str,
    /// Bytes of an element.
    pub(super) size: usize,
}

impl Elements<'_> {
    /// Reads elements that follow each other, in runs. Returns the checksum of their bytes.
    pub(super) fn read(&self, file: &mut File, count: u64, each: &mut EachRun<'_>) -> io::Result<u32> {
        file.seek(SeekFrom::Start(self.start))?;
        let (mut piece, mut values) = ([0; PIECE], [0.0; RUN]);
        let mut checksum = crc32fast::Hasher::new();
        let (mut first, mut left) = (0, count);
        while left > 0 {
            let length = left.min(RUN as u64) as usize;
            left -= length as u64;
            let (bytes, values) = (&mut piece[..length * self.size], &mut values[..length]);
            file.read_exact(bytes)?;
            checksum.update(bytes);
            widen(self.dtype, bytes, values);
            each(first, values);
            first += length;
        }
        Ok(checksum.finalize())
    }

    /// Reads the elements of a tensor that do not follow each other and all lie before `span`, one by one, in the order of the file as
    /// far as the strides of its axes define one.
    pub(super) fn read_strided(
        &self,
        file: &mut File,
        tensor: &Tensor,
        span: u64,
        each: &mut EachRun<'_>,
    ) -> io::Result<()> {
        let mut step = 1;
        let mut axes: Vec<Axis> = Vec::with_capacity(tensor.shape.len());
        for (extent, stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            axes.push(Axis { extent: *extent, stride: *stride, step, index: 0 });
            step *= *extent;
        }
        // The axis with the smallest stride in the file varies fastest, so that one window of the file serves many elements.
        axes.sort_by_key(|axis| axis.stride);
        let (mut piece, mut values) = ([0; PIECE], [0.0; RUN]);
        // The elements of the file that are in `values`.
        let mut window = 0..0;
        for _ in 0..step {
            let place: u64 = axes.iter().map(|axis| axis.index * axis.stride).sum();
            if !window.contains(&place) {
                let length = (RUN as u64).min(span.saturating_sub(place)) as usize;
                let (bytes, values) = (&mut piece[..length * self.size], &mut values[..length]);
                file.seek(SeekFrom::Start(self.start.saturating_add(place * self.size as u64)))?;
                file.read_exact(bytes)?;
                widen(self.dtype, bytes, values);
                window = place..place + length as u64;
            }
            let value = values.get((place - window.start) as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
            let logical: u64 = axes.iter().map(|axis| axis.index * axis.step).sum();
            each(logical as usize, std::slice::from_ref(value));
            for axis in &mut axes {
                axis.index += 1;
                if axis.index < axis.extent {
                    break;
                }
                axis.index = 0;
            }
        }
        Ok(())
    }
}

/// An axis of a tensor whose elements are walked one by one.
struct Axis {
    extent: u64,
    /// Elements of the file from one index to the next.
    stride: u64,
    /// Elements of the logical order from one index to the next.
    step: u64,
    index: u64,
}

/// The checksum of a member's bytes.
pub(super) fn checksum_of(file: &mut File, member: &Member) -> io::Result<u32> {
    let start = member.start(file)?;
    file.seek(SeekFrom::Start(start))?;
    let mut checksum = crc32fast::Hasher::new();
    let mut piece = [0; PIECE];
    let mut left = member.length;
    while left > 0 {
        let bytes = &mut piece[..left.min(PIECE as u64) as usize];
        file.read_exact(bytes)?;
        checksum.update(bytes);
        left -= bytes.len() as u64;
    }
    Ok(checksum.finalize())
}
