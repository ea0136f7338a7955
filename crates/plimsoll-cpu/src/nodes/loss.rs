//! Losses and scores of logits.

use plimsoll_graph::Op;
use plimsoll_graph::ops::RegionTerms;

use super::{Context, Memory, Serial, Step, bytes_of, total};
use crate::kernel::{Machine, Ptr};
use crate::kernels::loss::{ChunkCounts, ChunkSums, LogitGrad, Voxels, add_chunks};
use crate::simd::LANES;

/// Logits and labels are the first two operands, or the last two of a loss.
fn voxels(cx: &Context<'_>, memory: Option<&Memory<'_>>, ignore: Option<u8>) -> Voxels {
    let shape = &cx.input(0).shape;
    let place =
        |operand: usize| memory.map_or(Ptr(std::ptr::null_mut()), |m| m.tensor(cx.node.inputs[operand]));
    Voxels {
        logits: place(0).cast(),
        labels: place(1),
        batch: shape.batch(),
        classes: shape.channels(),
        voxels: shape.voxels(),
        ignore,
    }
}

fn pieces(cx: &Context<'_>) -> [usize; 3] {
    let voxels = voxels(cx, None, None);
    let (classes, tasks) = (voxels.classes, voxels.tasks());
    match &cx.node.op {
        Op::SoftmaxStats(_) => [
            bytes_of::<f32>(cx.threads * ChunkSums::per_thread(classes)),
            bytes_of::<f64>(tasks * classes * 4),
            0,
        ],
        Op::DiceCeGrad(_) => [
            bytes_of::<f32>(cx.threads * classes * LANES),
            bytes_of::<f32>(voxels.batch * classes * 2),
            bytes_of::<f32>(1),
        ],
        Op::HardCounts(_) => [bytes_of::<f64>(tasks * classes * 3), 0, 0],
        _ => [0; 3],
    }
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total(pieces(cx))
}

struct Stats {
    chunks: ChunkSums,
    result: Ptr<f32>,
}

impl Step for Stats {
    unsafe fn run(&self, machine: &Machine) {
        let voxels = &self.chunks.voxels;
        // SAFETY: passed on to the caller.
        unsafe {
            machine.launch(&self.chunks);
            let rows = voxels.classes * 4;
            add_chunks(self.chunks.partial, self.result, voxels.batch, voxels.chunks(), rows);
        }
    }
}

struct Counts {
    chunks: ChunkCounts,
    result: Ptr<f32>,
}

impl Step for Counts {
    unsafe fn run(&self, machine: &Machine) {
        let voxels = &self.chunks.voxels;
        // SAFETY: passed on to the caller.
        unsafe {
            machine.launch(&self.chunks);
            add_chunks(self.chunks.partial, self.result, 1, voxels.tasks(), voxels.classes * 3);
        }
    }
}

/// The sums `[N][class][4]` of a table in the arena.
///
/// # Safety
/// The table must be written, and stay so while the function is used.
unsafe fn sums(table: Ptr<f32>, classes: usize) -> impl Fn(usize, usize, usize) -> f64 {
    // SAFETY: passed on to the caller.
    move |n, c, k| f64::from(unsafe { *table.0.add((n * classes + c) * 4 + k) })
}

struct Grad {
    terms: RegionTerms,
    table: Ptr<f32>,
    upstream: Ptr<f32>,
    kernel: LogitGrad,
}

impl Step for Grad {
    unsafe fn run(&self, machine: &Machine) {
        let kernel = &self.kernel;
        let (batch, classes) = (kernel.voxels.batch, kernel.voxels.classes);
        // SAFETY: passed on to the caller; the scratch has two slopes for each class of each sample.
        unsafe {
            let upstream = f64::from(*self.upstream.0);
            let weight = upstream * f64::from(self.terms.dice);
            let (_, _, voxels) =
                self.terms.value_and_slopes(sums(self.table, classes), (batch, classes), |n, c, slopes| {
                    for (k, slope) in slopes.into_iter().enumerate() {
                        *kernel.slopes.0.add((n * classes + c) * 2 + k) = (weight * slope) as f32;
                    }
                });
            *kernel.cross_entropy.0 = (upstream * f64::from(self.terms.cross_entropy) / voxels) as f32;
            machine.launch(kernel);
        }
    }
}

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let [first, second, third] = memory.pieces(pieces(cx));
    let input = |operand: usize| memory.tensor::<f32>(cx.node.inputs[operand]);
    let result = memory.tensor::<f32>(cx.node.outputs[0]);
    match &cx.node.op {
        Op::SoftmaxStats(op) => Box::new(Stats {
            chunks: ChunkSums {
                voxels: voxels(cx, Some(memory), op.ignore),
                squared: op.squared,
                scratch: first.cast(),
                partial: second.cast(),
            },
            result,
        }),
        Op::HardCounts(op) => Box::new(Counts {
            chunks: ChunkCounts { voxels: voxels(cx, Some(memory), op.ignore), partial: first.cast() },
            result,
        }),
        Op::DiceCeGrad(op) => Box::new(Grad {
            terms: op.terms,
            table: input(2),
            upstream: input(3),
            kernel: LogitGrad {
                voxels: voxels(cx, Some(memory), op.terms.ignore),
                squared: op.terms.squared,
                slopes: second.cast(),
                cross_entropy: third.cast(),
                scratch: first.cast(),
                result,
            },
        }),
        Op::DiceCe(op) => {
            let (terms, table) = (op.terms, input(0));
            let (batch, classes) = (cx.input(0).shape.dim(0), cx.input(0).shape.dim(1));
            let parts = memory.tensor::<f32>(cx.node.outputs[1]);
            Box::new(Serial(move || {
                // Whole pointers are captured, not their fields.
                let (table, result, parts) = (table, result, parts);
                // SAFETY: the table is written before the loss is taken of it; the results have one and two numbers.
                unsafe {
                    let sums = sums(table, classes);
                    let (dice, ce, _) = terms.value_and_slopes(sums, (batch, classes), |_, _, _| {});
                    *result.0 = (f64::from(terms.dice) * dice + f64::from(terms.cross_entropy) * ce) as f32;
                    *parts.0 = dice as f32;
                    *parts.0.add(1) = ce as f32;
                }
            }))
        }
        op => unreachable!("{} is no loss", op.rule().name()),
    }
}
