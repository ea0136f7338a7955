//! Losses that see shapes.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    BoundaryL1, BoundaryL1Grad, DistanceLoss, DistanceLossGrad, DistanceTerm, MeanPool, MeanPoolGrad,
    PredictedDistance, Probabilities, ProbabilitiesGrad,
};
use plimsoll_morphology::check_spacing;
use plimsoll_plan::Unsupported;

use super::loss;
use crate::kernel::{Kernel, Machine, Ptr};

use crate::kernels::structure::boundary_l1::{Boundaries, BoundaryCodes, BoundaryGrad, BoundarySums};
use crate::kernels::structure::distance::Distances;
use crate::kernels::structure::distance_loss::{Field, FieldGrad, FieldSums};
use crate::kernels::structure::mean_pool;
use crate::kernels::structure::probabilities::{Foreground, ForegroundGrad};
use crate::kernels::voxels::Voxels;
use crate::lower::{BoundNode, Context, Kernels, Lower, Places, bytes_of, product, single};
use crate::simd::LANES;

/// The voxels of logits, whose labels nobody reads.
fn logit_voxels(shape: &Shape, places: &Places) -> Voxels {
    Voxels {
        logits: places.input(0),
        // Any address will do for what is not read.
        labels: places.input(0),
        batch: shape.batch(),
        classes: shape.channels(),
        known: shape.channels(),
        voxels: shape.voxels(),
        ignore: None,
    }
}

/// The voxels of probabilities, of one class less than there are, and labels.
fn probability_voxels(shape: &Shape, ignore: Option<u8>, places: &Places) -> Voxels {
    let classes = shape.channels() + 1;
    Voxels { classes, known: classes, ..loss::voxels(shape, ignore, places) }
}

impl Lower for Probabilities {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let shape = cx.input(0).shape.clone();
        let scratch = [bytes_of::<f32>(product([cx.threads, shape.channels(), LANES]))];
        Ok(Kernels::new(scratch, move |places| {
            let voxels = logit_voxels(&shape, places);
            single(Foreground { voxels, scratch: places.scratch(0), result: places.output(0) })
        }))
    }
}

impl Lower for ProbabilitiesGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let shape = cx.input(0).shape.clone();
        let scratch = [bytes_of::<f32>(product([cx.threads, ForegroundGrad::per_thread(shape.channels())]))];
        let kernels = Kernels::new(scratch, move |places| {
            single(ForegroundGrad {
                voxels: logit_voxels(&shape, places),
                upstream: places.input(1),
                scratch: places.scratch(0),
                result: places.output(0),
            })
        });
        Ok(kernels.in_place([(0, 0)]))
    }
}

impl Lower for PredictedDistance {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape, threads) = (*self, cx.input(0).shape.clone(), cx.threads);
        let extent = shape.spatial();
        check_spacing(extent, op.spacing).map_err(|problem| cx.unsupported(problem.to_string()))?;
        let at_once = Distances::at_once(shape.batch() * shape.channels(), threads);
        let scratch = [product([at_once, Distances::per_task(extent, op.signed)])];
        Ok(Kernels::new(scratch, move |places| {
            single(Distances {
                voxels: probability_voxels(&shape, op.ignore, places),
                probabilities: places.input(0),
                extent,
                spacing: op.spacing,
                signed: op.signed,
                scratch: places.scratch(0),
                threads,
                result: places.output(0),
            })
        }))
    }
}

/// A loss that is a function of the mean over voxels that count and classes.
struct Mean<K> {
    /// Writes `[task][2]` sums and numbers of voxels.
    sums: K,
    partial: Ptr<f64>,
    classes: usize,
    /// The loss term of the mean; if none, the result is the mean itself.
    term: Option<DistanceTerm>,
    loss: Ptr<f32>,
    /// `[2]`
    table: Ptr<f64>,
}

impl<K: Kernel + Send> BoundNode for Mean<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the kernel
        // writes two numbers for each task, the loss is one and the table two.
        unsafe {
            machine.launch(&self.sums);
            let at = |row: usize| -> f64 {
                (0..self.sums.tasks()).map(|task| *self.partial.0.add(task * 2 + row)).sum()
            };
            let (sum, voxels) = (at(0), at(1));
            let mean = DistanceLoss::mean(sum, voxels, self.classes);
            *self.loss.0 = self.term.map_or(mean, |term| term.loss(mean)) as f32;
            *self.table.0 = sum;
            *self.table.0.add(1) = voxels;
        }
    }
}

/// The gradient of such a loss.
struct MeanGrad<K> {
    /// The kernel that runs before the gradient.
    before: Option<BoundaryCodes>,
    gradient: K,
    classes: usize,
    term: Option<DistanceTerm>,
    /// `[2]`, see [`Mean`].
    table: Ptr<f64>,
    upstream: Ptr<f32>,
    /// `[1]`, which the kernel reads.
    factor: Ptr<f32>,
}

impl<K: Kernel + Send> BoundNode for MeanGrad<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the table has
        // two numbers, the gradient of the loss and the factor one each, and the factor is written before it is read.
        unsafe {
            let (sum, voxels) = (*self.table.0, *self.table.0.add(1));
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

/// Probabilities, labels and the distances that a loss is of.
fn field(op: DistanceLoss, shape: &Shape, places: &Places) -> Field {
    Field {
        voxels: probability_voxels(shape, op.ignore, places),
        term: op.term,
        probabilities: places.input(0),
        target: places.input(2),
        predicted: places.input(if op.term.uses_prediction() { 3 } else { 2 }),
    }
}

impl Lower for DistanceLoss {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (*self, cx.input(0).shape.clone());
        let scratch = [bytes_of::<f64>(product([2, Voxels::tasks_of(&shape)]))];
        Ok(Kernels::new(scratch, move |places| {
            let partial = places.scratch(0);
            Box::new(Mean {
                sums: FieldSums { field: field(op, &shape, places), partial },
                partial,
                classes: shape.channels(),
                term: Some(op.term),
                loss: places.output(0),
                table: places.output(1),
            })
        }))
    }
}

impl Lower for DistanceLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (self.loss, cx.input(0).shape.clone());
        let tables = cx.inputs.len() - 2;
        let kernels = Kernels::new([bytes_of::<f32>(1)], move |places| {
            let (factor, result) = (places.scratch(0), places.output(0));
            Box::new(MeanGrad {
                before: None,
                gradient: FieldGrad { field: field(op, &shape, places), factor, result },
                classes: shape.channels(),
                term: Some(op.term),
                table: places.input(tables),
                upstream: places.input(tables + 1),
                factor,
            })
        });
        // Each element is of the same element of each volume alone.
        Ok(kernels.in_place([(0, 0), (0, 2)]))
    }
}

fn boundaries(shape: &Shape, ignore: Option<u8>, places: &Places) -> Boundaries {
    let voxels = probability_voxels(shape, ignore, places);
    Boundaries { voxels, probabilities: voxels.logits, extent: shape.spatial() }
}

impl Lower for BoundaryL1 {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (ignore, shape) = (self.ignore, cx.input(0).shape.clone());
        let scratch = [bytes_of::<f64>(Boundaries::partials(&shape))];
        Ok(Kernels::new(scratch, move |places| {
            let partial = places.scratch(0);
            Box::new(Mean {
                sums: BoundarySums { boundaries: boundaries(&shape, ignore, places), partial },
                partial,
                classes: shape.channels(),
                term: None,
                loss: places.output(0),
                table: places.output(1),
            })
        }))
    }
}

impl Lower for BoundaryL1Grad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (ignore, shape) = (self.ignore, cx.input(0).shape.clone());
        Ok(Kernels::new([bytes_of::<f32>(1), shape.count()], move |places| {
            let boundaries = boundaries(&shape, ignore, places);
            let (factor, codes, result) = (places.scratch(0), places.scratch(1), places.output(0));
            Box::new(MeanGrad {
                before: Some(BoundaryCodes { boundaries, codes }),
                gradient: BoundaryGrad { boundaries, codes, factor, result },
                classes: shape.channels(),
                term: None,
                table: places.input(2),
                upstream: places.input(3),
                factor,
            })
        }))
    }
}

/// Means of the blocks of a fine volume in a coarse one, or backwards.
fn pool(cx: &Context<'_>, backwards: bool) -> Kernels {
    let (from, to) = (cx.input(0).shape.clone(), cx.output(0).shape.clone());
    Kernels::single(move |places| {
        let (fine, coarse) = if backwards { (&to, &from) } else { (&from, &to) };
        mean_pool::MeanPool {
            source: places.input(0),
            result: places.output(0),
            channels: from.batch() * from.channels(),
            fine: fine.spatial(),
            coarse: coarse.spatial(),
            backwards,
        }
    })
}

impl Lower for MeanPool {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pool(cx, false))
    }
}

impl Lower for MeanPoolGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pool(cx, true))
    }
}
