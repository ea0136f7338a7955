//! Linear interpolation of features to twice the extent, and its gradient.

use plimsoll_parallel::each;

use super::Rows;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// A grid and the one that is twice as fine along some axes.
#[derive(Clone, Copy)]
pub(crate) struct Doubling {
    /// Blocks of all samples.
    pub(crate) blocks: usize,
    pub(crate) coarse: [usize; 3],
    pub(crate) axes: [bool; 3],
    /// `true` if the outermost voxels keep their places, rather than the faces of the grid.
    pub(crate) aligned: bool,
}

/// Rows that are added up with weights, by the voxels that they begin with.
struct WeightedRows<const N: usize> {
    rows: [(usize, f32); N],
    count: usize,
}

impl<const N: usize> WeightedRows<N> {
    /// Returns the weighted rows for places along depth and height with their weights.
    #[inline(always)]
    fn new(rows: Rows, block: usize, depths: &[(usize, f32)], heights: &[(usize, f32)]) -> WeightedRows<N> {
        let mut all = WeightedRows { rows: [(0, 0.0); N], count: 0 };
        for (d, of_depth) in depths {
            for (h, of_height) in heights {
                if let Some(row) = all.rows.get_mut(all.count) {
                    *row = (rows.start(block, *d, *h), of_depth * of_height);
                    all.count += 1;
                }
            }
        }
        all
    }

    /// The sum at a place along the width.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. `data` is valid for reads of the voxel at `place` of all rows, and initialised.
    #[inline(always)]
    unsafe fn at<S: Simd, T: Element>(&self, data: Ptr<T>, place: usize) -> S::V {
        // SAFETY: the voxels are stated in this function's contract.
        unsafe {
            let mut sum = S::zero();
            for (start, weight) in self.rows.iter().take(self.count) {
                let value = T::load::<S>(data.0.add((start + place) * LANES));
                sum = S::fma(value, S::splat(*weight), sum);
            }
            sum
        }
    }
}

impl Doubling {
    #[inline]
    fn fine(&self) -> Rows {
        let extent = each([0, 1, 2], |axis| self.coarse[axis] * (1 + usize::from(self.axes[axis])));
        Rows { blocks: self.blocks, extent }
    }

    fn coarse(&self) -> Rows {
        Rows { blocks: self.blocks, extent: self.coarse }
    }

    /// The places that place `i` of the fine grid is made of along an axis, with their weights, and how many there are.
    #[inline(always)]
    fn sources(&self, axis: usize, i: usize) -> ([(usize, f32); 2], usize) {
        let last = self.coarse[axis] - 1;
        if !self.axes[axis] {
            return ([(i, 1.0), (i, 0.0)], 1);
        }
        let [before, behind] = self.shares(axis, i / 2);
        match i % 2 {
            0 => ([((i / 2).saturating_sub(1), before), (i / 2, 1.0 - before)], 2),
            _ => ([(i / 2, 1.0 - behind), ((i / 2 + 1).min(last), behind)], 2),
        }
    }

    /// The weights of the neighbours before and behind place `i` of the coarse grid, in the two places of the fine grid that it is nearest to.
    #[inline(always)]
    fn shares(&self, axis: usize, i: usize) -> [f32; 2] {
        let last = self.coarse[axis] - 1;
        match self.aligned {
            false => [0.25; 2],
            // Exact below 2²⁴, and the quotient is rounded once.
            true => [i, last - i].map(|steps| steps as f32 / (2 * last + 1) as f32),
        }
    }

    /// The places of the fine grid that place `i` of the coarse one is part of along an axis, with their weights, and
    /// how many there are. At a border the place itself replaces its missing neighbour.
    #[inline(always)]
    fn users(&self, axis: usize, i: usize) -> ([(usize, f32); 4], usize) {
        let last = 2 * self.coarse[axis] - 1;
        match self.axes[axis] {
            false => ([(i, 1.0), (i, 0.0), (i, 0.0), (i, 0.0)], 1),
            true => {
                let outer = [(2 * i).saturating_sub(1), (2 * i + 2).min(last)];
                ([(outer[0], 0.25), (2 * i, 0.75), (2 * i + 1, 0.75), (outer[1], 0.25)], 4)
            }
        }
    }
}

/// The interpolated map.
pub(crate) struct Upsample<T> {
    pub(crate) grid: Doubling,
    /// `[block of a sample][voxel][16]` of the coarse grid.
    pub(crate) source: Ptr<T>,
    /// The volume that the result is added to, on the fine grid.
    pub(crate) added_to: Option<Ptr<T>>,
    /// The result on the fine grid. It may alias the volume it is added to.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Upsample<T> {
    /// Stores the sum of a voxel and the value in memory.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `voxel` is one of the fine grid's blocks, and no other thread touches it.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, voxel: usize, mut value: S::V) {
        // SAFETY: buffers of the fine grid have the voxel, as this function's contract says.
        unsafe {
            if let Some(added_to) = self.added_to {
                value = S::add(T::load::<S>(added_to.0.add(voxel * LANES)), value);
            }
            T::store::<S>(self.result.0.add(voxel * LANES), value);
        }
    }
}

impl<T: Element> Kernel for Upsample<T> {
    fn tasks(&self) -> usize {
        self.grid.fine().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (fine, coarse, width) = (self.grid.fine(), self.grid.coarse(), self.grid.coarse[2]);
        for (block, d, h) in fine.in_task(task) {
            let (depths, depth_count) = self.grid.sources(0, d);
            let (heights, height_count) = self.grid.sources(1, h);
            let rows =
                WeightedRows::<4>::new(coarse, block, &depths[..depth_count], &heights[..height_count]);
            let to = fine.start(block, d, h);
            // SAFETY: rows of a task are the fine grid's, and their sources the coarse one's, of `width` voxels each; each task
            // writes rows of its own, of twice as many voxels where the width is doubled.
            unsafe {
                if !self.grid.axes[2] {
                    (0..width).for_each(|w| self.store::<S>(to + w, rows.at::<S, T>(self.source, w)));
                    continue;
                }
                let mut current = rows.at::<S, T>(self.source, 0);
                let mut previous = current;
                for w in 0..width {
                    let next = rows.at::<S, T>(self.source, (w + 1).min(width - 1));
                    for (place, (neighbour, share)) in
                        [previous, next].into_iter().zip(self.grid.shares(2, w)).enumerate()
                    {
                        let own = S::mul(current, S::splat(1.0 - share));
                        self.store::<S>(to + 2 * w + place, S::fma(neighbour, S::splat(share), own));
                    }
                    (previous, current) = (current, next);
                }
            }
        }
    }
}

/// The gradient of the interpolation.
pub(crate) struct UpsampleGrad<T> {
    pub(crate) grid: Doubling,
    /// `[block of a sample][voxel][16]` of the fine grid.
    pub(crate) upstream: Ptr<T>,
    /// The result on the coarse grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for UpsampleGrad<T> {
    fn tasks(&self) -> usize {
        self.grid.coarse().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (fine, coarse, width) = (self.grid.fine(), self.grid.coarse(), self.grid.coarse[2]);
        for (block, d, h) in coarse.in_task(task) {
            let (depths, depth_count) = self.grid.users(0, d);
            let (heights, height_count) = self.grid.users(1, h);
            let rows = WeightedRows::<16>::new(fine, block, &depths[..depth_count], &heights[..height_count]);
            let to = coarse.start(block, d, h);
            for w in 0..width {
                // SAFETY: rows of a task are the coarse grid's, and their users the fine one's; places along the width are
                // cut off at its end. Each task writes rows of its own.
                unsafe {
                    let at = |place: usize| rows.at::<S, T>(self.upstream, place);
                    let value = match self.grid.axes[2] {
                        false => at(w),
                        true => {
                            let last = 2 * width - 1;
                            let near = S::add(at(2 * w), at(2 * w + 1));
                            let far = S::add(at((2 * w).saturating_sub(1)), at((2 * w + 2).min(last)));
                            S::fma(near, S::splat(0.75), S::mul(far, S::splat(0.25)))
                        }
                    };
                    T::store::<S>(self.result.0.add((to + w) * LANES), value);
                }
            }
        }
    }
}
