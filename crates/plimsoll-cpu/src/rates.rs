//! The speed of this machine in operations and in bytes, and the predicted time of a node.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use plimsoll_graph::Cost;
use plimsoll_parallel::STACK_BYTES;
use plimsoll_plan::{EngineError, Rates};

use crate::lower::Kernels;
use crate::peak::fma_peak;

/// Starting the threads on a node and waiting for the last of them.
const SECONDS_PER_NODE: f64 = 5e-6;

/// The largest buffer that is passed over to measure memory; larger than caches, so that they do not help.
const BUFFER_BYTES: usize = 64 << 20;

/// Those of a machine that was not measured.
pub(crate) const NOMINAL: Rates = Rates { flops: 8e10, bytes: 1e10, kernels: BTreeMap::new() };

/// Measures arithmetic and memory with all threads, within `memory` bytes and a fraction of a second.
///
/// # Errors
/// Returns an error if threads cannot be started.
pub(crate) fn measure(threads: usize, memory: usize) -> Result<Rates, EngineError> {
    let bytes = bandwidth(threads, memory.min(BUFFER_BYTES))?;
    Ok(Rates { flops: fma_peak(threads)?, bytes, kernels: BTreeMap::new() })
}

/// Predicted time of kernels: of a convolution that was measured as fast as it was then; else arithmetic at the share of the
/// peak that the kernels reach, and each operand and result moved once.
pub(crate) fn seconds(rates: &Rates, kernels: &Kernels, cost: Cost) -> f64 {
    let measured = || rates.kernels.get(&kernels.isolated.as_ref()?.name());
    if !rates.kernels.is_empty()
        && let Some(rate) = measured()
    {
        return cost.flops as f64 / rate + SECONDS_PER_NODE;
    }
    cost.flops as f64 / (rates.flops * kernels.share) + cost.bytes as f64 / rates.bytes + SECONDS_PER_NODE
}

/// Bytes per second of passes that read and write a buffer: the best of a few.
fn bandwidth(threads: usize, bytes: usize) -> std::io::Result<f64> {
    let mut buffer = vec![1.0f32; (bytes / size_of::<f32>()).max(threads)];
    let part = buffer.len().div_ceil(threads.max(1));
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in buffer.chunks_mut(part) {
                let pass = move || part.iter_mut().for_each(|x| *x = *x * 0.5 + 0.5);
                // The C library keeps stacks for the threads to come, which would then have larger ones than they ask for.
                std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, pass)?;
            }
            std::io::Result::Ok(())
        })?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok((2 * size_of_val(black_box(&buffer[..]))) as f64 / best)
}
