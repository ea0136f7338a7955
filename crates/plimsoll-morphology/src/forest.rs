//! A union-find forest of runs, stored in place in the output buffer: each run points to an earlier run of its tree.

use std::ops::Range;

use crate::Connectivity;
use crate::carve::{Carver, bytes_of, sum};
use crate::runs::{Run, RunReader, touching};

/// A run is identified by its first voxel, whose element is the number of the first voxel of an earlier run of the same
/// tree, or its own number if it is the root. Other elements are unspecified.
pub(crate) struct Forest<'a> {
    parents: &'a mut [u32],
    /// The number of the first voxel of `parents`.
    base: usize,
}

impl<'a> Forest<'a> {
    /// A forest for the voxels from `base`.
    pub(crate) fn new(parents: &'a mut [u32], base: usize) -> Forest<'a> {
        Forest { parents, base }
    }

    /// Adds a run as a tree of its own.
    pub(crate) fn plant(&mut self, voxel: usize) {
        self.parents[voxel - self.base] = voxel as u32;
    }

    /// The root of the tree that a run is in.
    pub(crate) fn root(&mut self, voxel: usize) -> usize {
        let mut at = voxel - self.base;
        loop {
            let parent = self.parents[at] as usize - self.base;
            if parent == at {
                return at + self.base;
            }
            // Path halving, for later lookups.
            self.parents[at] = self.parents[parent];
            at = self.parents[at] as usize - self.base;
        }
    }

    /// Joins the trees of two runs.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b) - self.base] = a.min(b) as u32;
    }
}

/// The runs of two slices, row by row.
pub(crate) struct SliceRuns<'a> {
    /// Room for `width` runs per row.
    runs: &'a mut [Run],
    counts: &'a mut [u32],
    height: usize,
    width: usize,
}

impl<'a> SliceRuns<'a> {
    /// The largest number of bytes of the runs of two slices of `height` × `width`.
    pub(crate) fn bytes(height: usize, width: usize) -> usize {
        sum([bytes_of::<Run>(2 * height * width), bytes_of::<u32>(2 * height)])
    }

    /// Room for the runs of two slices of `height` × `width`.
    pub(crate) fn new(height: usize, width: usize, carver: &mut Carver<'a>) -> SliceRuns<'a> {
        let runs = carver.take(2 * height * width);
        SliceRuns { runs, counts: carver.take(2 * height), height, width }
    }

    fn row(&self, z: usize, y: usize) -> &[Run] {
        let row = z % 2 * self.height + y;
        &self.runs[row * self.width..][..self.counts[row] as usize]
    }

    fn read(&mut self, reader: &RunReader<'_>, z: usize) {
        for y in 0..self.height {
            let row = z % 2 * self.height + y;
            let to = &mut self.runs[row * self.width..][..self.width];
            self.counts[row] = to.iter_mut().zip(reader.row(y)).map(|(to, run)| *to = run).count() as u32;
        }
    }

    /// Adds the runs of some slices and joins those that touch.
    pub(crate) fn grow(
        &mut self,
        reader: &mut RunReader<'_>,
        slices: Range<usize>,
        connectivity: Connectivity,
        forest: &mut Forest<'_>,
    ) {
        for z in slices.clone() {
            reader.read(z);
            self.read(reader, z);
            for y in 0..self.height {
                for run in self.row(z, y) {
                    forest.plant((z * self.height + y) * self.width + run.start as usize);
                }
                if y > 0 {
                    self.join(reader, (z, y), (z, y - 1), connectivity, forest);
                }
            }
            if z > slices.start {
                self.join_slices(reader, z, connectivity, forest);
            }
        }
    }

    /// Joins the runs of slices `z` and `z − 1`, which have been added.
    pub(crate) fn graft(
        &mut self,
        reader: &mut RunReader<'_>,
        z: usize,
        connectivity: Connectivity,
        forest: &mut Forest<'_>,
    ) {
        for z in [z - 1, z] {
            reader.read(z);
            self.read(reader, z);
        }
        self.join_slices(reader, z, connectivity, forest);
    }

    fn join_slices(
        &self,
        reader: &RunReader<'_>,
        z: usize,
        connectivity: Connectivity,
        forest: &mut Forest<'_>,
    ) {
        for y in 0..self.height {
            let reach = usize::from(connectivity.axes() > 1);
            for above in y.saturating_sub(reach)..(y + reach + 1).min(self.height) {
                self.join(reader, (z, y), (z - 1, above), connectivity, forest);
            }
        }
    }

    fn join(
        &self,
        reader: &RunReader<'_>,
        a: (usize, usize),
        b: (usize, usize),
        connectivity: Connectivity,
        forest: &mut Forest<'_>,
    ) {
        let differ = usize::from(a.0 != b.0) + usize::from(a.1 != b.1);
        let voxel = |(z, y), run: Run| (z * self.height + y) * self.width + run.start as usize;
        touching(self.row(a.0, a.1), self.row(b.0, b.1), connectivity.axes() > differ, |own, other| {
            let (own, other) = (voxel(a, own), voxel(b, other));
            if reader.same(own, other) {
                forest.join(own, other);
            }
        });
    }
}
