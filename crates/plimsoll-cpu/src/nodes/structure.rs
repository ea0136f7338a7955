//! Losses that see shapes.

use plimsoll_graph::Op;
use plimsoll_graph::ops::{DistanceLoss, DistanceTerm};
use plimsoll_morphology::check_spacing;
use plimsoll_plan::Unsupported;

use super::{Context, Memory, Serial, Step, bytes_of, single, total};
use crate::kernel::{Kernel, Machine, Ptr};
use crate::kernels::loss::Voxels;
use crate::kernels::structure::boundary_l1::{Boundaries, BoundaryCodes, BoundaryGrad, BoundarySums};
use crate::kernels::structure::distance::Distances;
use crate::kernels::structure::distance_loss::{Field, FieldGrad, FieldSums};
use crate::kernels::structure::mean_pool::Blocks;
use crate::kernels::structure::probabilities::{Foreground, ForegroundGrad};
use crate::simd::LANES;

pub(super) fn supports(cx: &Context<'_>) -> Result<(), Unsupported> {
    match &cx.node.op {
        Op::PredictedDistance(op) => check_spacing(cx.input(0).shape.spatial(), op.spacing)
            .map_err(|problem| cx.unsupported(problem.to_string())),
        _ => Ok(()),
    }
}

/// The voxels of logits, or of probabilities (of one class less) and labels.
fn voxels(cx: &Context<'_>, memory: Option<&Memory<'_>>) -> Voxels {
    let place =
        |operand: usize| memory.map_or(Ptr(std::ptr::null_mut()), |m| m.tensor(cx.node.inputs[operand]));
    let shape = &cx.input(0).shape;
    let (of_logits, ignore) = match &cx.node.op {
        Op::Probabilities(_) | Op::ProbabilitiesGrad(_) => (true, None),
        Op::DistanceLoss(op) => (false, op.ignore),
        Op::DistanceLossGrad(op) => (false, op.loss.ignore),
        Op::BoundaryL1(op) => (false, op.ignore),
        Op::BoundaryL1Grad(op) => (false, op.ignore),
        Op::PredictedDistance(op) => (false, op.ignore),
        op => unreachable!("{} has no voxels with labels", op.rule().name()),
    };
    Voxels {
        logits: place(0).cast(),
        labels: if of_logits { Ptr(std::ptr::null_mut()) } else { place(1) },
        batch: shape.batch(),
        classes: shape.channels() + usize::from(!of_logits),
        voxels: shape.voxels(),
        ignore,
    }
}

fn boundaries(cx: &Context<'_>, memory: Option<&Memory<'_>>) -> Boundaries {
    let voxels = voxels(cx, memory);
    Boundaries { voxels, probabilities: voxels.logits, extent: cx.input(0).shape.spatial() }
}

fn pieces(cx: &Context<'_>) -> [usize; 2] {
    let shape = &cx.input(0).shape;
    match &cx.node.op {
        Op::Probabilities(_) => [bytes_of::<f32>(cx.threads * shape.channels() * LANES), 0],
        Op::ProbabilitiesGrad(_) => {
            [bytes_of::<f32>(cx.threads * ForegroundGrad::per_thread(shape.channels())), 0]
        }
        Op::DistanceLoss(_) => [bytes_of::<f64>(2 * voxels(cx, None).tasks()), 0],
        Op::DistanceLossGrad(_) => [bytes_of::<f32>(1), 0],
        Op::BoundaryL1(_) => [bytes_of::<f64>(boundaries(cx, None).partials()), 0],
        Op::BoundaryL1Grad(_) => [bytes_of::<f32>(1), shape.count()],
        Op::PredictedDistance(op) => {
            let at_once = Distances::at_once(shape.batch() * shape.channels(), cx.threads);
            [at_once * Distances::per_task(shape.spatial(), op.signed), 0]
        }
        _ => [0; 2],
    }
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total(pieces(cx))
}

/// A loss that is a function of the mean over voxels that count and classes.
struct Mean<K> {
    /// Writes `[task][2]` sums and numbers of voxels.
    sums: K,
    partial: Ptr<f64>,
    classes: usize,
    /// Which loss it is of the mean; the mean itself if none.
    term: Option<DistanceTerm>,
    loss: Ptr<f32>,
    /// `[2]`
    table: Ptr<f32>,
}

impl<K: Kernel + Send> Step for Mean<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller; the kernel writes two numbers for each task.
        unsafe {
            machine.launch(&self.sums);
            let at = |row: usize| -> f64 {
                (0..self.sums.tasks()).map(|task| *self.partial.0.add(task * 2 + row)).sum()
            };
            let (sum, voxels) = (at(0), at(1));
            let mean = DistanceLoss::mean(sum, voxels, self.classes);
            *self.loss.0 = self.term.map_or(mean, |term| term.loss(mean)) as f32;
            *self.table.0 = sum as f32;
            *self.table.0.add(1) = voxels as f32;
        }
    }
}

/// The gradient of such a loss.
struct MeanGrad<K> {
    /// What comes before the gradient.
    before: Option<BoundaryCodes>,
    gradient: K,
    classes: usize,
    term: Option<DistanceTerm>,
    /// `[2]`, see [`Mean`].
    table: Ptr<f32>,
    upstream: Ptr<f32>,
    /// `[1]`, which the kernel reads.
    factor: Ptr<f32>,
}

impl<K: Kernel + Send> Step for MeanGrad<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            let (sum, voxels) = (f64::from(*self.table.0), f64::from(*self.table.0.add(1)));
            let mean = DistanceLoss::mean(sum, voxels, self.classes);
            let slope = self.term.map_or(1.0, |term| term.slope(mean));
            let factor = f64::from(*self.upstream.0) * slope / DistanceLoss::elements(voxels, self.classes);
            *self.factor.0 = factor as f32;
            if let Some(before) = &self.before {
                machine.launch(before);
            }
            machine.launch(&self.gradient);
        }
    }
}

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let [first, second] = memory.pieces(pieces(cx));
    let input = |operand: usize| memory.tensor::<f32>(cx.node.inputs[operand]);
    let output = |result: usize| memory.tensor::<f32>(cx.node.outputs[result]);
    let result = output(0);
    let field = |term: DistanceTerm| Field {
        voxels: voxels(cx, Some(memory)),
        term,
        probabilities: input(0),
        target: input(2),
        predicted: input(if term.of_prediction() { 3 } else { 2 }),
    };
    let classes = cx.input(0).shape.channels();
    match &cx.node.op {
        Op::Probabilities(_) => {
            single(Foreground { voxels: voxels(cx, Some(memory)), scratch: first.cast(), result })
        }
        Op::ProbabilitiesGrad(_) => single(ForegroundGrad {
            voxels: voxels(cx, Some(memory)),
            upstream: input(1),
            scratch: first.cast(),
            result,
        }),
        Op::PredictedDistance(op) => single(Distances {
            voxels: voxels(cx, Some(memory)),
            probabilities: input(0),
            extent: cx.input(0).shape.spatial(),
            spacing: op.spacing,
            signed: op.signed,
            scratch: first,
            threads: cx.threads,
            result,
        }),
        Op::DistanceLoss(op) => {
            let sums = FieldSums { field: field(op.term), partial: first.cast() };
            let term = Some(op.term);
            Box::new(Mean { sums, partial: first.cast(), classes, term, loss: result, table: output(1) })
        }
        Op::DistanceLossGrad(op) => {
            let tables = 3 + usize::from(op.loss.term.of_prediction());
            Box::new(MeanGrad {
                before: None,
                gradient: FieldGrad { field: field(op.loss.term), factor: first.cast(), result },
                classes,
                term: Some(op.loss.term),
                table: input(tables),
                upstream: input(tables + 1),
                factor: first.cast(),
            })
        }
        Op::BoundaryL1(_) => {
            let sums = BoundarySums { boundaries: boundaries(cx, Some(memory)), partial: first.cast() };
            Box::new(Mean {
                sums,
                partial: first.cast(),
                classes,
                term: None,
                loss: result,
                table: output(1),
            })
        }
        Op::BoundaryL1Grad(_) => {
            let boundaries = boundaries(cx, Some(memory));
            Box::new(MeanGrad {
                before: Some(BoundaryCodes { boundaries, codes: second }),
                gradient: BoundaryGrad { boundaries, codes: second, factor: first.cast(), result },
                classes,
                term: None,
                table: input(2),
                upstream: input(3),
                factor: first.cast(),
            })
        }
        Op::MeanPool(_) | Op::MeanPoolGrad(_) => {
            let (from, to) = (&cx.input(0).shape, &cx.output(0).shape);
            let backwards = matches!(cx.node.op, Op::MeanPoolGrad(_));
            let (fine, coarse) = if backwards { (to, from) } else { (from, to) };
            single(Blocks {
                source: input(0),
                result,
                channels: from.batch() * from.channels(),
                fine: fine.spatial(),
                coarse: coarse.spatial(),
                backwards,
            })
        }
        Op::Join(_) => {
            let tables: Vec<(Ptr<f32>, usize)> =
                (0..cx.node.inputs.len()).map(|i| (input(i), cx.input(i).shape.count())).collect();
            Box::new(Serial(move || {
                let mut to = result;
                for (table, count) in &tables {
                    // SAFETY: the result has room for all tables.
                    unsafe {
                        std::ptr::copy_nonoverlapping(table.0, to.0, *count);
                        to = to.add(*count);
                    }
                }
            }))
        }
        op => unreachable!("{} is of no shape", op.rule().name()),
    }
}
