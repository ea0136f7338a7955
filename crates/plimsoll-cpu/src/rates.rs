//! How fast this machine computes and moves bytes, and what a node takes by that.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{Node, Op, Program};

use crate::engine::EngineError;
use crate::kernel_times::{Isolated, KernelRates};
use crate::kernels::winograd::products;
use crate::nodes::winograd_width;
use crate::peak::fma_peak;

/// What a machine does per second with all threads of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// f32 floating-point operations on registers, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes read and written in memory.
    pub bytes: f64,
    /// Floating-point operations of convolutions, for those that were [measured](Rates::learn).
    pub kernels: KernelRates,
}

/// Starting the threads on a node and waiting for the last of them.
const SECONDS_PER_NODE: f64 = 5e-6;

/// The largest buffer that is passed over to measure memory; larger than caches, so that they do not help.
const BUFFER_BYTES: usize = 64 << 20;

/// The share of the peak at which products are summed where [`crate::kernels::winograd`] makes them fewer.
const WINOGRAD: f64 = 0.72;

impl Rates {
    /// Those of a thread of a machine of which nothing is known.
    pub const NOMINAL: Rates = Rates { flops: 8e10, bytes: 1e10, kernels: KernelRates::new() };

    /// Measures them, within `memory` bytes and a fraction of a second.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn measure(threads: usize, memory: usize) -> Result<Rates, EngineError> {
        let bytes = bandwidth(threads, memory.min(BUFFER_BYTES));
        Ok(Rates { flops: fma_peak(threads)?, bytes, kernels: KernelRates::new() })
    }

    /// Predicted time of a node: of a convolution that was measured as fast as it was then; else arithmetic at the share of
    /// the peak that kernels reach, and each operand and result moved once.
    pub(crate) fn seconds(&self, program: &Program, node: &Node) -> f64 {
        let cost = program.cost(node);
        let measured = || self.kernels.get(&Isolated::of(program, node)?.name());
        if !self.kernels.is_empty()
            && let Some(rate) = measured()
        {
            return cost.flops as f64 / rate + SECONDS_PER_NODE;
        }
        // Shares of the peak, measured. With few taps there is little to do between loads and stores.
        let direct = match &node.op {
            // Narrow groups take two instructions for a multiply-add.
            Op::Conv(Conv { groups: 2.., .. })
            | Op::ConvTranspose(ConvTranspose { groups: 2.., .. })
            | Op::ConvWeightGrad(ConvWeightGrad { groups: 2.., .. }) => 0.5,
            // A few classes leave most lanes of a register without work.
            Op::HeadStats(_) | Op::HeadCounts(_) | Op::HeadGrad(_) => 0.1,
            Op::Conv(conv) if conv.window.taps() > 8 => 0.95,
            Op::ConvTranspose(conv) if conv.window.taps() > 8 => 0.95,
            Op::ConvWeightGrad(conv) if conv.window.taps() > 8 => 0.9,
            _ => 0.6,
        };
        // Half as many products, but transforms beside them.
        let share = winograd_width(program, node).map_or(direct, |width| WINOGRAD / products(width));
        cost.flops as f64 / (self.flops * share) + cost.bytes as f64 / self.bytes + SECONDS_PER_NODE
    }
}

/// Bytes per second of passes that read and write a buffer: the best of a few.
fn bandwidth(threads: usize, bytes: usize) -> f64 {
    let mut buffer = vec![1.0f32; (bytes / size_of::<f32>()).max(threads)];
    let part = buffer.len().div_ceil(threads.max(1));
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in buffer.chunks_mut(part) {
                scope.spawn(move || part.iter_mut().for_each(|x| *x = *x * 0.5 + 0.5));
            }
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    (2 * size_of_val(black_box(&buffer[..]))) as f64 / best
}
