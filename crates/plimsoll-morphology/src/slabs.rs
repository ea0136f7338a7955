//! A volume divided into slabs of slices, one per thread, whose runs are joined into one forest.

use std::ops::Range;

use plimsoll_parallel::Pool;

use crate::Connectivity;
use crate::carve::{Carver, sum};
use crate::forest::{Forest, SliceRuns};
use crate::rows::Rows;
use crate::runs::{Run, RunKind, RunReader};

/// The slices of one thread, and its buffers.
pub(crate) struct Slab<'a> {
    slices: Range<usize>,
    reader: RunReader<'a>,
    runs: SliceRuns<'a>,
}

/// All slabs of a volume, in order.
pub(crate) struct Slabs<'a> {
    slabs: Vec<Slab<'a>>,
    pool: Pool,
    /// Voxels of a slab; the last may have fewer.
    voxels: usize,
}

/// Slices of a slab.
fn thickness(depth: usize, threads: usize) -> usize {
    depth.div_ceil(threads)
}

/// The bytes needed for one slab.
fn slab_bytes(height: usize, width: usize) -> usize {
    sum([RunReader::bytes(height, width), SliceRuns::bytes(height, width)])
}

impl<'a> Slabs<'a> {
    /// The bytes that slabs of `shape` need for `threads` threads: slightly more than 16 per voxel of a slice and
    /// thread.
    pub(crate) fn bytes(shape: [usize; 3], threads: usize) -> usize {
        let [depth, height, width] = shape;
        depth.div_ceil(thickness(depth, threads)).saturating_mul(slab_bytes(height, width))
    }

    /// Divides a volume of at least one voxel into slabs for at least one thread. `memory` has [`Slabs::bytes`] bytes,
    /// aligned to a cache line.
    pub(crate) fn new(
        mask: &'a dyn Rows,
        kind: RunKind,
        shape: [usize; 3],
        threads: usize,
        memory: &'a mut [u8],
    ) -> Slabs<'a> {
        let [depth, height, width] = shape;
        let thickness = thickness(depth, threads);
        let slabs: Vec<_> = (0..depth)
            .step_by(thickness)
            .zip(memory.chunks_exact_mut(slab_bytes(height, width)))
            .map(|(first, memory)| {
                let mut carver = Carver::new(memory);
                let reader = RunReader::new(mask, kind, height, width, &mut carver);
                let runs = SliceRuns::new(height, width, &mut carver);
                Slab { slices: first..(first + thickness).min(depth), reader, runs }
            })
            .collect();
        let pool = Pool::or_single(slabs.len());
        Slabs { slabs, pool, voxels: thickness * height * width }
    }

    /// Adds all runs to `parents`, which has one element per voxel, and joins those that touch.
    pub(crate) fn grow(&mut self, connectivity: Connectivity, parents: &mut [u32]) {
        self.each(parents, |slab, parents| {
            let (height, width) = slab.reader.shape();
            let mut forest = Forest::new(parents, slab.slices.start * height * width);
            slab.runs.grow(&mut slab.reader, slab.slices.clone(), connectivity, &mut forest);
        });
        let mut forest = Forest::new(parents, 0);
        for slab in self.slabs.iter_mut().skip(1) {
            slab.runs.graft(&mut slab.reader, slab.slices.start, connectivity, &mut forest);
        }
    }

    /// All slabs, in order, on the calling thread.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slab<'a>> {
        self.slabs.iter_mut()
    }

    /// Runs `work` for each slab and its part of `voxels`, on as many threads as there are slabs.
    pub(crate) fn each<T: Send>(&mut self, voxels: &mut [T], work: impl Fn(&mut Slab<'a>, &mut [T]) + Sync) {
        let parts = self.slabs.iter_mut().zip(voxels.chunks_mut(self.voxels));
        self.pool.each(parts, |(slab, voxels)| work(slab, voxels));
    }
}

impl Slab<'_> {
    /// Calls `visit` for each row with its position (depth, height), the number of its first voxel, and its runs.
    pub(crate) fn rows(
        &mut self,
        mut visit: impl FnMut((usize, usize), usize, &mut dyn Iterator<Item = Run>),
    ) {
        let (height, width) = self.reader.shape();
        for z in self.slices.clone() {
            self.reader.read(z);
            for y in 0..height {
                visit((z, y), (z * height + y) * width, &mut self.reader.row(y));
            }
        }
    }

    /// The number of the slab's first voxel, and the width of a row.
    pub(crate) fn base(&self) -> (usize, usize) {
        let (height, width) = self.reader.shape();
        (self.slices.start * height * width, width)
    }
}
