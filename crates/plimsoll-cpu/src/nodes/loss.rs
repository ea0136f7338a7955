//! Losses and scores of logits.

use plimsoll_graph::Op;
use plimsoll_graph::ops::{Loss, Piece};

use super::{Context, Memory, Serial, Step, bytes_of, total};
use crate::kernel::{Machine, Ptr};
use crate::kernels::loss::{ChunkCounts, ChunkSums, LogitGrad, Voxels, add_chunks};
use crate::kernels::voxel_loss::TermGrad;
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

fn pieces(cx: &Context<'_>) -> [usize; 4] {
    let voxels = voxels(cx, None, None);
    let (classes, tasks) = (voxels.classes, voxels.tasks());
    match &cx.node.op {
        Op::SoftmaxStats(op) => [
            bytes_of::<f32>(cx.threads * ChunkSums::per_thread(classes, op.extra.len())),
            bytes_of::<f64>(tasks * classes * op.rows()),
            0,
            0,
        ],
        Op::CompositeLossGrad(op) => SlopePlaces::pieces(&op.loss, (voxels.batch, classes), cx.threads),
        Op::HardCounts(_) => [bytes_of::<f64>(tasks * classes * 3), 0, 0, 0],
        _ => [0; 4],
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
            let rows = voxels.classes * (4 + self.chunks.extra.len());
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

/// The sums `[N][class][rows]` of a table in the arena.
///
/// # Safety
/// The table must be written, and stay so while the function is used.
unsafe fn sums(table: Ptr<f32>, classes: usize, rows: usize) -> impl Fn(usize, usize, usize) -> f64 {
    // SAFETY: passed on to the caller.
    move |n, c, k| f64::from(unsafe { *table.0.add((n * classes + c) * rows + k) })
}

/// Derivatives of a loss by its sums, added up over its components in f64.
struct Derivatives<'a> {
    /// `[N][class][3]`: by Σpt, Σp and Σp².
    slopes: &'a mut [f64],
    /// `[class]`: factors of (p − t).
    entropy: &'a mut [f64],
    /// `[sum][class]`: factors of terms of voxels.
    terms: &'a mut [f64],
}

impl<'a> Derivatives<'a> {
    fn sizes(loss: &Loss, batch: usize, classes: usize) -> [usize; 3] {
        [batch * classes * 3, classes, loss.voxel_sums().count() * classes]
    }

    /// Computes them of the sums at `table`.
    ///
    /// # Safety
    /// The table must be written, and `room` have the sizes that [`sizes`](Derivatives::sizes) says.
    unsafe fn of(
        loss: &Loss,
        (table, upstream): (Ptr<f32>, Ptr<f32>),
        (batch, classes): (usize, usize),
        room: Ptr<f64>,
    ) -> Derivatives<'a> {
        let sizes = Derivatives::sizes(loss, batch, classes);
        // SAFETY: passed on to the caller.
        let (all, sums, upstream) = unsafe {
            let all = std::slice::from_raw_parts_mut(room.0, sizes.iter().sum());
            (all, sums(table, classes, loss.rows()), f64::from(*upstream.0))
        };
        all.fill(0.0);
        let (slopes, others) = all.split_at_mut(sizes[0]);
        let (entropy, terms) = others.split_at_mut(sizes[1]);
        loss.value(sums, (batch, classes), upstream, |piece| match piece {
            Piece::Part { .. } => {}
            Piece::Region { sample, class, slopes: new } => {
                let place = &mut slopes[(sample * classes + class) * 3..][..3];
                place.iter_mut().zip(new).for_each(|(slope, new)| *slope += new);
            }
            Piece::CrossEntropy { class, factor } => entropy[class] += factor,
            Piece::Voxel { sum, class, factor } => terms[sum * classes + class] = factor,
        });
        Derivatives { slopes, entropy, terms }
    }
}

/// Where the derivatives of a loss go before its gradient is taken.
#[derive(Clone)]
pub(super) struct Slopes {
    pub(super) loss: Loss,
    pub(super) table: Ptr<f32>,
    pub(super) upstream: Ptr<f32>,
    pub(super) batch: usize,
    pub(super) classes: usize,
    pub(super) places: SlopePlaces,
}

/// Scratch of a loss's gradient.
#[derive(Clone, Copy)]
pub(super) struct SlopePlaces {
    pub(super) scratch: Ptr<f32>,
    pub(super) slopes: Ptr<f32>,
    pub(super) factors: Ptr<f32>,
    pub(super) exact: Ptr<f64>,
}

impl SlopePlaces {
    pub(super) fn of([scratch, slopes, factors, exact]: [Ptr<u8>; 4]) -> SlopePlaces {
        let (scratch, slopes, factors) = (scratch.cast(), slopes.cast(), factors.cast());
        SlopePlaces { scratch, slopes, factors, exact: exact.cast() }
    }

    /// Bytes of its pieces.
    pub(super) fn pieces(loss: &Loss, (batch, classes): (usize, usize), threads: usize) -> [usize; 4] {
        let sizes = Derivatives::sizes(loss, batch, classes);
        let exact = bytes_of::<f64>(sizes.iter().sum());
        let [slopes, entropy, terms] = sizes;
        match loss.is_plain() {
            true => [
                bytes_of::<f32>(threads * classes * LANES),
                bytes_of::<f32>(batch * classes * 2),
                bytes_of::<f32>(1),
                exact,
            ],
            false => [
                bytes_of::<f32>(threads * TermGrad::per_thread(classes)),
                bytes_of::<f32>(slopes),
                bytes_of::<f32>(entropy + terms),
                exact,
            ],
        }
    }
}

impl Slopes {
    /// Computes them of the sums.
    ///
    /// # Safety
    /// The sums and the gradient of the loss must be written; the places have the sizes that are declared for them.
    pub(super) unsafe fn write(&self) {
        let SlopePlaces { slopes, factors, exact, .. } = self.places;
        let size = (self.batch, self.classes);
        // SAFETY: passed on to the caller.
        unsafe {
            let found = Derivatives::of(&self.loss, (self.table, self.upstream), size, exact);
            if self.loss.is_plain() {
                for (place, three) in found.slopes.chunks_exact(3).enumerate() {
                    *slopes.0.add(place * 2) = three[0] as f32;
                    // One of the two is zero.
                    *slopes.0.add(place * 2 + 1) = (three[1] + three[2]) as f32;
                }
                *factors.0 = found.entropy[0] as f32;
                return;
            }
            for (place, slope) in found.slopes.iter().enumerate() {
                *slopes.0.add(place) = *slope as f32;
            }
            for (place, factor) in found.entropy.iter().chain(found.terms.iter()).enumerate() {
                *factors.0.add(place) = *factor as f32;
            }
        }
    }

    /// The kernel that makes the gradient of logits, those of all samples or of a part of the sample `first`.
    pub(super) fn kernel(&self, voxels: Voxels, first: usize, result: Ptr<f32>) -> LogitKernel {
        let SlopePlaces { scratch, slopes, factors, .. } = self.places;
        let rows = if self.loss.is_plain() { 2 } else { 3 };
        // SAFETY: there are slopes for each class of each sample.
        let slopes = unsafe { slopes.add(first * self.classes * rows) };
        if self.loss.is_plain() {
            let squared = self.loss.stats().squared;
            return LogitKernel::Plain(LogitGrad {
                voxels,
                squared,
                slopes,
                cross_entropy: factors,
                scratch,
                result,
            });
        }
        let sums = self.loss.voxel_sums().collect();
        LogitKernel::Terms(TermGrad { voxels, sums, slopes, factors, scratch, result })
    }
}

/// The gradient of a loss of region terms and an unweighted cross-entropy, or of any.
pub(super) enum LogitKernel {
    Plain(LogitGrad),
    Terms(TermGrad),
}

impl LogitKernel {
    /// Runs it.
    ///
    /// # Safety
    /// As for kernels.
    pub(super) unsafe fn launch(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                LogitKernel::Plain(kernel) => machine.launch(kernel),
                LogitKernel::Terms(kernel) => machine.launch(kernel),
            }
        }
    }
}

/// The gradient of a loss.
struct Grad {
    slopes: Slopes,
    kernel: LogitKernel,
}

impl Step for Grad {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.slopes.write();
            self.kernel.launch(machine);
        }
    }
}

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let [first, second, third, fourth] = memory.pieces(pieces(cx));
    let input = |operand: usize| memory.tensor::<f32>(cx.node.inputs[operand]);
    let result = memory.tensor::<f32>(cx.node.outputs[0]);
    match &cx.node.op {
        Op::SoftmaxStats(op) => Box::new(Stats {
            chunks: ChunkSums {
                voxels: voxels(cx, Some(memory), op.ignore),
                squared: op.squared,
                extra: op.extra.clone(),
                scratch: first.cast(),
                partial: second.cast(),
            },
            result,
        }),
        Op::HardCounts(op) => Box::new(Counts {
            chunks: ChunkCounts { voxels: voxels(cx, Some(memory), op.ignore), partial: first.cast() },
            result,
        }),
        Op::CompositeLossGrad(op) => {
            let (loss, voxels) = (op.loss.clone(), voxels(cx, Some(memory), op.loss.ignore));
            let (table, upstream) = (input(2), input(3));
            let (batch, classes) = (voxels.batch, voxels.classes);
            let places = SlopePlaces::of([first, second, third, fourth]);
            let slopes = Slopes { loss, table, upstream, batch, classes, places };
            let kernel = slopes.kernel(voxels, 0, result);
            Box::new(Grad { slopes, kernel })
        }
        Op::CompositeLoss(op) => {
            let (loss, table) = (op.loss.clone(), input(0));
            let (batch, classes) = (cx.input(0).shape.dim(0), cx.input(0).shape.dim(1));
            let parts = memory.tensor::<f32>(cx.node.outputs[1]);
            Box::new(Serial(move || {
                // Whole pointers are captured, not their fields.
                let (table, result, parts) = (table, result, parts);
                // SAFETY: the table is written before the loss is taken of it; the results have one number, and one for
                // each component.
                unsafe {
                    let sums = sums(table, classes, loss.rows());
                    let total = loss.value(sums, (batch, classes), 1.0, |piece| {
                        if let Piece::Part { component, value } = piece {
                            *parts.0.add(component) = value as f32;
                        }
                    });
                    *result.0 = total as f32;
                }
            }))
        }
        op => unreachable!("{} is no loss", op.rule().name()),
    }
}
