//! Running statistics of batch normalisation: a few numbers for each channel, by one thread.

use plimsoll_graph::ops::{NormFromRunning, RunningFactors, RunningUpdate};
use plimsoll_plan::Unsupported;

use crate::kernel::Ptr;
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, Kernels, Lower, NodeOperands, serial};
use crate::simd::LANES;

impl Lower for RunningUpdate {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let RunningUpdate { momentum, guarded } = *self;
        let blocks = blocks(cx.input(0).shape.dim(0));
        Ok(Kernels::new([], move |places| {
            let [mean, variance, batches]: [Ptr<f32>; 3] = [0, 1, 2].map(|operand| places.input(operand));
            let (statistics, of_batch): (Ptr<f32>, Ptr<f32>) = (places.input(3), places.input(4));
            let norm: Option<Ptr<f32>> = guarded.then(|| places.input(5));
            let run = move || {
                let (mean, variance, batches) = (mean, variance, batches);
                let (statistics, of_batch) = (statistics, of_batch);
                let moved = |known: f32, new: f32| (1.0 - momentum) * known + momentum * new;
                // SAFETY: the norm and the number of batches are one number each. Mean, variance and that of the batch have
                // sixteen lanes for each block, and statistics sixteen means and as many deviations for each block of the
                // first sample. All have been written.
                unsafe {
                    if norm.is_some_and(|norm| !(*norm.0).is_finite()) {
                        return;
                    }
                    for block in 0..blocks {
                        for lane in 0..LANES {
                            let (channel, of_sample) = (block * LANES + lane, block * 2 * LANES + lane);
                            *mean.0.add(channel) = moved(*mean.0.add(channel), *statistics.0.add(of_sample));
                            *variance.0.add(channel) =
                                moved(*variance.0.add(channel), *of_batch.0.add(channel));
                        }
                    }
                    *batches.0 += 1.0;
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for NormFromRunning {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let NormFromRunning { batch, epsilon } = *self;
        let blocks = blocks(cx.input(0).shape.dim(0));
        Ok(Kernels::new([], move |places| {
            let (mean, variance): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.input(1));
            let statistics: Ptr<f32> = places.output(0);
            let run = move || {
                let (mean, variance, statistics) = (mean, variance, statistics);
                for (place, channel) in (0..batch * blocks).map(|block| (block, block % blocks * LANES)) {
                    for lane in 0..LANES {
                        // SAFETY: mean and variance have sixteen lanes for each block, and statistics sixteen means and as many
                        // deviations for each block of each sample.
                        unsafe {
                            let to = statistics.0.add(place * 2 * LANES + lane);
                            *to = *mean.0.add(channel + lane);
                            let variance = f64::from(*variance.0.add(channel + lane));
                            *to.add(LANES) = (1.0 / (variance + f64::from(epsilon)).sqrt()) as f32;
                        }
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for RunningFactors {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let RunningFactors { batch, epsilon } = *self;
        let blocks = blocks(cx.input(0).shape.dim(0));
        Ok(Kernels::new([], move |places| {
            let (variance, scale): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.input(1));
            let factors: Ptr<f32> = places.output(0);
            let run = move || {
                let (variance, scale, factors) = (variance, scale, factors);
                for place in 0..batch * blocks * LANES {
                    let channel = place % (blocks * LANES);
                    // SAFETY: variance and scale have sixteen lanes for each block, and factors, of one voxel, as many for each
                    // block of each sample. Lanes without a channel have a scale of zero, and so a factor of zero.
                    unsafe {
                        let deviation = (f64::from(*variance.0.add(channel)) + f64::from(epsilon)).sqrt();
                        *factors.0.add(place) = (f64::from(*scale.0.add(channel)) / deviation) as f32;
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}
