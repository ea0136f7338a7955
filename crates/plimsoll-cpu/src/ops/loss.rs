//! Losses and scores of logits.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{CompositeLoss, CompositeLossGrad, HardCounts, Loss, Piece, SoftmaxStats};
use plimsoll_plan::Unsupported;

use crate::kernel::{Machine, Ptr};
use crate::kernels::loss::{ChunkCounts, ChunkSums, ChunkTable, LogitGrad, add_chunks};
use crate::kernels::regions::{RegionGrad, RegionVoxels};
use crate::kernels::voxel_loss::TermGrad;
use crate::kernels::voxels::Voxels;
use crate::lower::{BoundNode, Context, Kernels, Lower, Places, bytes_of, product, serial};
use crate::simd::LANES;

/// Logits, the first operand, and labels, the second.
pub(super) fn voxels(shape: &Shape, ignore: Option<u8>, places: &Places) -> Voxels {
    Voxels {
        logits: places.input(0),
        labels: places.input(1),
        batch: shape.batch(),
        classes: shape.channels(),
        known: shape.channels(),
        voxels: shape.voxels(),
        ignore,
    }
}

impl Lower for SoftmaxStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (stats, shape) = (self.clone(), cx.input(0).shape.clone());
        let (classes, tasks) = (shape.channels(), Voxels::tasks_of(&shape));
        let scratch = [
            bytes_of::<f32>(product([cx.threads, ChunkSums::per_thread(classes, self.extra.len())])),
            bytes_of::<f64>(product([tasks, classes, self.rows()])),
        ];
        Ok(Kernels::new(scratch, move |places| {
            Box::new(Stats {
                chunks: ChunkSums {
                    voxels: voxels(&shape, stats.ignore, places),
                    squared: stats.squared,
                    extra: stats.extra.clone(),
                    scratch: places.scratch(0),
                    partial: places.scratch(1),
                },
                result: places.output(0),
            })
        }))
    }
}

impl Lower for HardCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (ignore, shape) = (self.ignore, cx.input(0).shape.clone());
        let scratch = [bytes_of::<f64>(product([Voxels::tasks_of(&shape), shape.channels(), 3]))];
        Ok(Kernels::new(scratch, move |places| {
            let chunks = ChunkCounts { voxels: voxels(&shape, ignore, places), partial: places.scratch(0) };
            Box::new(Counts { chunks, result: places.output(0) })
        }))
    }
}

impl Lower for CompositeLoss {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (loss, sums_shape) = (self.loss.clone(), &cx.input(0).shape);
        let (batch, classes) = (sums_shape.dim(0), sums_shape.dim(1));
        Ok(Kernels::new([], move |places| {
            let (loss, table) = (loss.clone(), places.input(0));
            let (result, parts): (Ptr<f32>, Ptr<f32>) = (places.output(0), places.output(1));
            let run = move || {
                // Whole pointers are captured, not their fields.
                let (table, result, parts) = (table, result, parts);
                // SAFETY: the table is written before the loss is taken of it; the results have one number, and one for
                // each component.
                unsafe {
                    let sums = sums(table, classes, loss.rows());
                    let total = loss.value(sums, batch, classes, 1.0, |piece| {
                        if let Piece::Part { component, value } = piece {
                            *parts.0.add(component) = value as f32;
                        }
                    });
                    *result.0 = total as f32;
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for CompositeLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(loss_gradient(&self.loss, cx))
    }
}

/// The kernels of the gradient of a loss, of classes or of regions.
pub(super) fn loss_gradient(loss: &Loss, cx: &Context<'_>) -> Kernels {
    let (loss, shape) = (loss.clone(), cx.input(0).shape.clone());
    let (batch, classes) = (shape.batch(), shape.channels());
    let scratch = SlopePlaces::pieces(&loss, batch, classes, cx.threads);
    let kernels = Kernels::new(scratch, move |places| {
        let voxels = voxels(&shape, loss.ignore, places);
        let (table, upstream) = (places.input(2), places.input(3));
        let scratch = SlopePlaces::new(places, 0);
        let slopes = Slopes { loss: loss.clone(), table, upstream, batch, classes, places: scratch };
        let kernel = slopes.kernel(voxels, 0, places.output(0));
        Box::new(LossGrad { slopes, kernel })
    });
    kernels.in_place([(0, 0)])
}

struct Stats {
    chunks: ChunkSums,
    result: Ptr<f32>,
}

impl BoundNode for Stats {
    unsafe fn run(&self, machine: &Machine) {
        let voxels = &self.chunks.voxels;
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says;
        // the kernel writes a row of sums for each chunk and class, and the result has one for each sample and class.
        unsafe {
            machine.launch(&self.chunks);
            let rows = voxels.classes * (4 + self.chunks.extra.len());
            let sums = ChunkTable { batch: voxels.batch, chunks: voxels.chunks(), rows };
            add_chunks(self.chunks.partial, self.result, sums, |sum| sum as f32);
        }
    }
}

struct Counts {
    chunks: ChunkCounts,
    result: Ptr<f64>,
}

impl BoundNode for Counts {
    unsafe fn run(&self, machine: &Machine) {
        let voxels = &self.chunks.voxels;
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says;
        // the kernel writes three counts for each chunk and class, and the result has three for each class.
        unsafe {
            machine.launch(&self.chunks);
            let counts = ChunkTable { batch: 1, chunks: voxels.tasks(), rows: voxels.classes * 3 };
            add_chunks(self.chunks.partial, self.result, counts, |count| count);
        }
    }
}

/// The sums `[N][class][rows]` of a table in the arena.
///
/// # Safety
/// The table must be written, and stay so while the function is used.
unsafe fn sums(table: Ptr<f32>, classes: usize, rows: usize) -> impl Fn(usize, usize, usize) -> f64 {
    // SAFETY: the table is written, as this function's contract says; indices belong to a sample, a class and a row.
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
    unsafe fn new(
        loss: &Loss,
        table: Ptr<f32>,
        upstream: Ptr<f32>,
        batch: usize,
        classes: usize,
        room: Ptr<f64>,
    ) -> Derivatives<'a> {
        let sizes = Derivatives::sizes(loss, batch, classes);
        // SAFETY: the table and the gradient are written and the room has these sizes, as this function's contract says.
        let (all, sums, upstream) = unsafe {
            let all = std::slice::from_raw_parts_mut(room.0, sizes.iter().sum());
            (all, sums(table, classes, loss.rows()), f64::from(*upstream.0))
        };
        all.fill(0.0);
        let (slopes, others) = all.split_at_mut(sizes[0]);
        let (entropy, terms) = others.split_at_mut(sizes[1]);
        loss.value(sums, batch, classes, upstream, |piece| match piece {
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

/// The places of the derivatives of a loss, from which its gradient is computed.
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
    /// The pieces of a launch's scratch from `first` on.
    pub(super) fn new(places: &Places, first: usize) -> SlopePlaces {
        SlopePlaces {
            scratch: places.scratch(first),
            slopes: places.scratch(first + 1),
            factors: places.scratch(first + 2),
            exact: places.scratch(first + 3),
        }
    }

    /// Bytes of its pieces.
    pub(super) fn pieces(loss: &Loss, batch: usize, classes: usize, threads: usize) -> [usize; 4] {
        let sizes = Derivatives::sizes(loss, batch, classes);
        let exact = bytes_of::<f64>(sizes.iter().sum());
        let [slopes, entropy, terms] = sizes;
        // Regions need no scratch for each thread.
        let per_thread = if loss.regions.is_some() { 0 } else { TermGrad::per_thread(classes) };
        match loss.is_plain() {
            true => [
                bytes_of::<f32>(product([threads, classes, LANES])),
                bytes_of::<f32>(batch * classes * 2),
                bytes_of::<f32>(1),
                exact,
            ],
            false => [
                bytes_of::<f32>(product([threads, per_thread])),
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
        // SAFETY: sums and gradient are written, as this function's contract says; the places have the sizes that `pieces` says,
        // which belong to what is written here.
        unsafe {
            let found =
                Derivatives::new(&self.loss, self.table, self.upstream, self.batch, self.classes, exact);
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

    /// The kernel that makes the gradient of logits, of all samples or of a part of the sample `first`.
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
        if let Some(regions) = &self.loss.regions {
            let of = RegionVoxels::new(voxels, regions);
            return LogitKernel::Regions(RegionGrad { of, sums, slopes, factors, result });
        }
        LogitKernel::Terms(TermGrad { voxels, sums, slopes, factors, scratch, result })
    }
}

/// The gradient of a loss of region terms and an unweighted cross-entropy, of any loss of classes, or of regions.
pub(super) enum LogitKernel {
    Plain(LogitGrad),
    Terms(TermGrad),
    Regions(RegionGrad),
}

impl LogitKernel {
    /// Runs it.
    ///
    /// # Safety
    /// All pointers of the kernel must be valid and not accessed by others until this returns, and the slopes must have
    /// been written.
    pub(super) unsafe fn launch(&self, machine: &Machine) {
        // SAFETY: this function's contract includes the contract of the call.
        unsafe {
            match self {
                LogitKernel::Plain(kernel) => machine.launch(kernel),
                LogitKernel::Terms(kernel) => machine.launch(kernel),
                LogitKernel::Regions(kernel) => machine.launch(kernel),
            }
        }
    }
}

/// The gradient of a loss.
struct LossGrad {
    slopes: Slopes,
    kernel: LogitKernel,
}

impl BoundNode for LossGrad {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says;
        // slopes are written before the kernel reads them.
        unsafe {
            self.slopes.write();
            self.kernel.launch(machine);
        }
    }
}
