//! Channels to voxels of a finer grid, smoothed, and the gradient of it.
//!
//! Channels of one side are strided over blocks of the other, so lanes are taken one by one.

use plimsoll_graph::ops::Subpixel as Op;
use plimsoll_parallel::each;

use super::Rows;
use crate::kernel::{Kernel, Ptr};
use crate::layout::blocks;
use crate::simd::{Element, LANES, Simd};

/// The two grids, and the channels of both.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) op: Op,
    pub(crate) batch: usize,
    pub(crate) coarse: [usize; 3],
    /// Channels of the fine grid.
    pub(crate) channels: usize,
}

/// The most voxels that one of the fine grid is the mean of.
const MOST_PARTS: usize = 8;

impl Spread {
    #[inline]
    fn factor(&self) -> [usize; 3] {
        self.op.axes.map(|doubled| 1 + usize::from(doubled))
    }

    fn fine_blocks(&self) -> usize {
        blocks(self.channels)
    }

    #[inline]
    fn coarse_blocks(&self) -> usize {
        blocks(self.channels * self.op.parts())
    }

    #[inline]
    fn fine(&self) -> Rows {
        let extent = each([0, 1, 2], |axis| self.coarse[axis] * self.factor()[axis]);
        Rows { blocks: self.batch * self.fine_blocks(), extent }
    }

    #[inline]
    fn coarse(&self) -> Rows {
        Rows { blocks: self.batch * self.coarse_blocks(), extent: self.coarse }
    }

    /// The steps {0, 1} along doubled axes.
    #[inline(always)]
    fn steps(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [d, h, w] = self.factor();
        (0..d * h * w).map(move |i| [i / (h * w), i / w % h, i % w])
    }
}

/// The fine map.
pub(crate) struct Subpixel<T> {
    pub(crate) spread: Spread,
    /// `[block of a sample][voxel][16]` of the coarse grid.
    pub(crate) source: Ptr<T>,
    /// The same of the fine grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for Subpixel<T> {
    fn tasks(&self) -> usize {
        self.spread.fine().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let spread = &self.spread;
        let (fine, coarse, factor) = (spread.fine(), spread.coarse(), spread.factor());
        let (parts, share) = (spread.op.parts(), 1.0 / spread.op.parts() as f32);
        for (block, d, h) in fine.in_task(task) {
            let (sample, first) = (block / spread.fine_blocks(), block % spread.fine_blocks() * LANES);
            let lanes = (spread.channels - first).min(LANES);
            for w in 0..fine.extent[2] {
                let (mut terms, mut count) = ([(0, 0); MOST_PARTS], 0);
                for [dd, dh, dw] in spread.steps() {
                    if let [Some(d), Some(h), Some(w)] =
                        [d.checked_sub(dd), h.checked_sub(dh), w.checked_sub(dw)]
                    {
                        let voxel = coarse.start(0, d / factor[0], h / factor[1]) + w / factor[2];
                        terms[count] = (voxel, spread.op.part([d, h, w]));
                        count += 1;
                    }
                }
                let mut values = [0.0f32; LANES];
                for (lane, value) in values.iter_mut().enumerate().take(lanes) {
                    for (voxel, part) in &terms[..count] {
                        let channel = (first + lane) * parts + part;
                        let from = sample * spread.coarse_blocks() + channel / LANES;
                        // SAFETY: the channel is one of the sample's, and the voxel one of the coarse grid's.
                        *value += unsafe {
                            let voxel = coarse.start(from, 0, 0) + voxel;
                            (*self.source.0.add(voxel * LANES + channel % LANES)).to_f32()
                        };
                    }
                    *value *= share;
                }
                // SAFETY: rows of a task are the fine grid's; each task writes rows of its own.
                unsafe {
                    let to = self.result.0.add((fine.start(block, d, h) + w) * LANES);
                    T::store::<S>(to, S::load(values.as_ptr()));
                }
            }
        }
    }
}

/// The gradient of the coarse map.
pub(crate) struct SubpixelGrad<T> {
    pub(crate) spread: Spread,
    /// `[block of a sample][voxel][16]` of the fine grid.
    pub(crate) upstream: Ptr<T>,
    /// The same of the coarse grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for SubpixelGrad<T> {
    fn tasks(&self) -> usize {
        self.spread.coarse().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let spread = &self.spread;
        let (fine, coarse, factor) = (spread.fine(), spread.coarse(), spread.factor());
        let (parts, share) = (spread.op.parts(), 1.0 / spread.op.parts() as f32);
        // The step of each part, by its number.
        let mut steps = [[0; 3]; MOST_PARTS];
        spread.steps().for_each(|step| steps[spread.op.part(step)] = step);
        for (block, d, h) in coarse.in_task(task) {
            let (sample, first) = (block / spread.coarse_blocks(), block % spread.coarse_blocks() * LANES);
            let lanes = (spread.channels * parts - first).min(LANES);
            for w in 0..coarse.extent[2] {
                let mut values = [0.0f32; LANES];
                for (lane, value) in values.iter_mut().enumerate().take(lanes) {
                    let (channel, part) = ((first + lane) / parts, (first + lane) % parts);
                    let own = [d * factor[0], h * factor[1], w * factor[2]];
                    let from = sample * spread.fine_blocks() + channel / LANES;
                    for step in spread.steps() {
                        let at = each([0, 1, 2], |axis| own[axis] + steps[part][axis] + step[axis]);
                        if (0..3).any(|axis| at[axis] >= fine.extent[axis]) {
                            continue;
                        }
                        // SAFETY: the channel is one of the sample's, and the voxel was found to be one of the fine grid's.
                        *value += unsafe {
                            let voxel = fine.start(from, at[0], at[1]) + at[2];
                            (*self.upstream.0.add(voxel * LANES + channel % LANES)).to_f32()
                        };
                    }
                    *value *= share;
                }
                // SAFETY: rows of a task are the coarse grid's; each task writes rows of its own.
                unsafe {
                    let to = self.result.0.add((coarse.start(block, d, h) + w) * LANES);
                    T::store::<S>(to, S::load(values.as_ptr()));
                }
            }
        }
    }
}
