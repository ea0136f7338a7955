//! Means over windows of features, and their gradient.

use super::Rows;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// A grid and the coarser one of its windows.
#[derive(Clone, Copy)]
pub(crate) struct MeanWindows {
    /// Blocks of all samples.
    pub(crate) blocks: usize,
    pub(crate) fine: [usize; 3],
    pub(crate) coarse: [usize; 3],
    pub(crate) window: [usize; 3],
}

impl MeanWindows {
    fn fine(&self) -> Rows {
        Rows { blocks: self.blocks, extent: self.fine }
    }

    fn coarse(&self) -> Rows {
        Rows { blocks: self.blocks, extent: self.coarse }
    }

    /// One by the voxels of a window.
    #[inline]
    fn share(&self) -> f32 {
        1.0 / self.window.iter().map(|extent| *extent as f32).product::<f32>()
    }
}

/// The mean of each window.
pub(crate) struct AvgPool<T> {
    pub(crate) windows: MeanWindows,
    /// `[block of a sample][voxel][16]` of the fine grid.
    pub(crate) source: Ptr<T>,
    /// The same of the coarse grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for AvgPool<T> {
    fn tasks(&self) -> usize {
        self.windows.coarse().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let MeanWindows { window: [wd, wh, ww], coarse: [_, _, width], .. } = self.windows;
        let (fine, coarse) = (self.windows.fine(), self.windows.coarse());
        for (block, d, h) in coarse.in_task(task) {
            let to = coarse.start(block, d, h);
            for w in 0..width {
                // SAFETY: rows of a task are the coarse grid's, and its windows lie inside the fine one; each task writes rows
                // of its own.
                unsafe {
                    let mut sum = S::zero();
                    for z in d * wd..(d + 1) * wd {
                        for y in h * wh..(h + 1) * wh {
                            let from = fine.start(block, z, y) + w * ww;
                            for voxel in from..from + ww {
                                sum = S::add(sum, T::load::<S>(self.source.0.add(voxel * LANES)));
                            }
                        }
                    }
                    let mean = S::mul(sum, S::splat(self.windows.share()));
                    T::store::<S>(self.result.0.add((to + w) * LANES), mean);
                }
            }
        }
    }
}

/// The gradient of the mean of each window.
pub(crate) struct AvgPoolGrad<T> {
    pub(crate) windows: MeanWindows,
    /// `[block of a sample][voxel][16]` of the coarse grid.
    pub(crate) upstream: Ptr<T>,
    /// The volume that the gradient is added to, on the fine grid.
    pub(crate) added_to: Option<Ptr<T>>,
    /// The result on the fine grid. It may alias the volume it is added to.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for AvgPoolGrad<T> {
    fn tasks(&self) -> usize {
        self.windows.fine().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let MeanWindows { window, coarse: extent, fine: [_, _, width], .. } = self.windows;
        let (fine, coarse) = (self.windows.fine(), self.windows.coarse());
        for (block, d, h) in fine.in_task(task) {
            let to = fine.start(block, d, h);
            let (z, y) = (d / window[0], h / window[1]);
            let inside = z < extent[0] && y < extent[1];
            for w in 0..width {
                let x = w / window[2];
                // SAFETY: rows of a task are the fine grid's, and windows are read where the coarse grid has them; each task
                // writes rows of its own, each voxel after it is read.
                unsafe {
                    let mut value = S::zero();
                    if inside && x < extent[2] {
                        let from = coarse.start(block, z, y) + x;
                        let upstream = T::load::<S>(self.upstream.0.add(from * LANES));
                        value = S::mul(upstream, S::splat(self.windows.share()));
                    }
                    if let Some(added_to) = self.added_to {
                        value = S::add(T::load::<S>(added_to.0.add((to + w) * LANES)), value);
                    }
                    T::store::<S>(self.result.0.add((to + w) * LANES), value);
                }
            }
        }
    }
}
