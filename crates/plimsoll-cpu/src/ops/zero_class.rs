//! Two classes of one logit: copies of rows, by one thread.

use plimsoll_graph::ops::{ZeroClass, ZeroClassGrad};
use plimsoll_plan::Unsupported;

use crate::kernel::Ptr;
use crate::lower::{Context, Kernels, Lower, serial};

impl Lower for ZeroClass {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (batch, voxels) = (cx.input(0).shape.batch(), cx.input(0).shape.voxels());
        Ok(Kernels::new([], move |places| {
            let (from, to): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.output(0));
            let run = move || {
                let (from, to) = (from, to);
                for sample in 0..batch {
                    // SAFETY: the operand has `voxels` numbers for each sample and the result twice as many, apart from it.
                    unsafe {
                        let pair = to.0.add(2 * sample * voxels);
                        pair.write_bytes(0, voxels);
                        std::ptr::copy_nonoverlapping(from.0.add(sample * voxels), pair.add(voxels), voxels);
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for ZeroClassGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (batch, voxels) = (cx.input(0).shape.batch(), cx.input(0).shape.voxels());
        Ok(Kernels::new([], move |places| {
            let (from, to): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.output(0));
            let run = move || {
                let (from, to) = (from, to);
                for sample in 0..batch {
                    // SAFETY: the result has `voxels` numbers for each sample and the operand twice as many, apart from it.
                    unsafe {
                        let second = from.0.add((2 * sample + 1) * voxels);
                        std::ptr::copy_nonoverlapping(second, to.0.add(sample * voxels), voxels);
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}
