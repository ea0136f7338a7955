//! Channels spread over the voxels of a finer grid, of volumes in rows, and the gradient.

use crate::kernel::{Kernel, Ptr};
use crate::simd::Simd;

/// The grids of both volumes.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    /// Fine channels of all samples.
    pub(crate) planes: usize,
    /// Fine channels of a sample.
    pub(crate) channels: usize,
    pub(crate) block: [usize; 3],
    /// Extents of the coarse volume.
    pub(crate) coarse: [usize; 3],
}

impl Spread {
    /// Slices of the fine volume along the depth, of all planes.
    fn slices(&self) -> usize {
        self.planes * self.coarse[0] * self.block[0]
    }

    /// Calls `visit(fine place, coarse place)` for all voxels of a slice.
    #[inline(always)]
    fn for_each(&self, slice: usize, mut visit: impl FnMut(usize, usize)) {
        let ([depth, height, width], [b, c, e]) = (self.coarse, self.block);
        let (plane, fine_d) = (slice / (depth * b), slice % (depth * b));
        let (d, i) = (fine_d / b, fine_d % b);
        for fine_h in 0..height * c {
            let (h, j) = (fine_h / c, fine_h % c);
            let fine = (slice * height * c + fine_h) * width * e;
            for k in 0..e {
                let part = (plane * b * c * e) + (i * c + j) * e + k;
                let coarse = ((part * depth + d) * height + h) * width;
                for w in 0..width {
                    visit(fine + w * e + k, coarse + w);
                }
            }
        }
    }
}

/// Each voxel from its channel, plus the shift of its own.
pub(crate) struct DepthToSpace {
    pub(crate) spread: Spread,
    /// `[sample][channel · part][voxel]`
    pub(crate) source: Ptr<f32>,
    /// `[channel]`
    pub(crate) shift: Ptr<f32>,
    /// The result, `[sample][channel][voxel]`.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for DepthToSpace {
    fn tasks(&self) -> usize {
        self.spread.slices()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let Spread { channels, block, coarse, .. } = self.spread;
        let channel = task / (coarse[0] * block[0]) % channels;
        // SAFETY: `task < tasks`, so the slice is of one of the planes, which have a shift for each channel; places are within both volumes, and
        // tasks write disjoint slices.
        unsafe {
            let shift = *self.shift.0.add(channel);
            self.spread.for_each(
                task,
                #[inline(always)]
                |fine, coarse| *self.result.0.add(fine) = *self.source.0.add(coarse) + shift,
            );
        }
    }
}

/// Each channel from its voxels.
pub(crate) struct DepthToSpaceGrad {
    pub(crate) spread: Spread,
    /// `[sample][channel][voxel]`
    pub(crate) upstream: Ptr<f32>,
    /// The result, `[sample][channel · part][voxel]`.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for DepthToSpaceGrad {
    fn tasks(&self) -> usize {
        self.spread.slices()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: `task < tasks`, so places are within both volumes; each coarse place belongs to one slice, so that tasks write disjoint ones.
        unsafe {
            self.spread.for_each(
                task,
                #[inline(always)]
                |fine, coarse| *self.result.0.add(coarse) = *self.upstream.0.add(fine),
            );
        }
    }
}
