//! Losses and scores of regions, each of which has a logit of its own.

use plimsoll_graph::ops::{RegionCounts, RegionLossGrad, RegionStats};
use plimsoll_plan::Unsupported;

use super::loss::{loss_gradient, voxels};
use crate::kernel::{Kernel, Machine, Ptr};
use crate::kernels::loss::{ChunkTable, add_chunks};
use crate::kernels::regions::{RegionChunkCounts, RegionSums, RegionVoxels};
use crate::kernels::voxels::Voxels;
use crate::lower::{BoundNode, Context, Kernels, Lower, bytes_of, product};

impl Lower for RegionStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (stats, shape) = (self.clone(), cx.input(0).shape.clone());
        let (regions, tasks) = (shape.channels(), Voxels::tasks_of(&shape));
        let scratch = [
            bytes_of::<f32>(product([cx.threads, RegionSums::per_thread(regions, self.extra.len())])),
            bytes_of::<f64>(product([tasks, regions, self.rows()])),
        ];
        Ok(Kernels::new(scratch, move |places| {
            let voxels = voxels(&shape, stats.ignore, places);
            let rows = voxels.classes * stats.rows();
            let sums = ChunkTable { batch: voxels.batch, chunks: voxels.chunks(), rows };
            let chunks = RegionSums {
                of: RegionVoxels::new(voxels, &stats.regions),
                squared: stats.squared,
                extra: stats.extra.clone(),
                scratch: places.scratch(0),
                partial: places.scratch(1),
            };
            let (partial, result) = (places.scratch(1), places.output(0));
            Box::new(Summed { chunks, partial, sums, result, round: |sum| sum as f32 })
        }))
    }
}

impl Lower for RegionCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (counts, shape) = (self.clone(), cx.input(0).shape.clone());
        let scratch = [bytes_of::<f64>(product([Voxels::tasks_of(&shape), shape.channels(), 3]))];
        Ok(Kernels::new(scratch, move |places| {
            let voxels = voxels(&shape, counts.ignore, places);
            let sums = ChunkTable { batch: 1, chunks: voxels.tasks(), rows: voxels.classes * 3 };
            let of = RegionVoxels::new(voxels, &counts.regions);
            let chunks = RegionChunkCounts { of, partial: places.scratch(0) };
            let (partial, result): (_, Ptr<f64>) = (places.scratch(0), places.output(0));
            Box::new(Summed { chunks, partial, sums, result, round: |count| count })
        }))
    }
}

impl Lower for RegionLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(loss_gradient(&self.loss, cx))
    }
}

/// A kernel that writes numbers for each chunk, and their sums.
struct Summed<K, R> {
    chunks: K,
    /// The numbers that the kernel writes, with the extents of `sums`.
    partial: Ptr<f64>,
    sums: ChunkTable,
    result: Ptr<R>,
    round: fn(f64) -> R,
}

impl<K: Kernel + Send, R> BoundNode for Summed<K, R> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the kernel writes a
        // row of numbers for each chunk, and the result has one for each of the N.
        unsafe {
            machine.launch(&self.chunks);
            add_chunks(self.partial, self.result, self.sums, self.round);
        }
    }
}
