//! The end of a residual block, and its gradient.

use plimsoll_graph::ops::Over;
use plimsoll_plan::Unsupported;

use super::norm::{NormAct, extent, sharing};
use super::source::{Load, SourceRef};
use crate::kernel::Ptr;
use crate::kernels::norm::NormGradMeans;
use crate::kernels::residual::{Branch, ResidualGrad, ResidualGradApply, ResidualGradSums, ResidualMap};
use crate::lower::{BoundNode, Context, InTurn3, InTurn4, Kernels, Lower, Places, by_storage, bytes_of};
use crate::simd::Element;

/// z = lrelu(normalise(y) + shortcut) in one; the shortcut is a map as it is, normalised as well, or activated on the way in. Operands:
/// the operands of the [`Normalise`](plimsoll_graph::ops::Normalise) of y, then of the shortcut's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResidualAct {
    /// The slope of the leaky ReLU.
    pub(crate) slope: f32,
    /// The normalisation of y, without an activation.
    pub(crate) main: NormAct,
    /// The way in which the shortcut is read.
    pub(crate) shortcut: Load,
}

/// Its gradient. Operands: the gradient of z, then the operands of [`ResidualAct`]. Results: the gradients of y and, where it is affine, of
/// its scale and shift; then, where the shortcut is normalised for the sum alone, the same of it, and else the gradient of the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResidualActGrad {
    pub(crate) act: ResidualAct,
    /// The values of y that share their statistics.
    pub(crate) over: Over,
    /// Those of the shortcut, where it is normalised for the sum alone.
    pub(crate) shortcut_over: Option<Over>,
}

impl ResidualAct {
    /// The place of the shortcut among its operands.
    pub(crate) fn shortcut_operand(self) -> usize {
        self.main.operands()
    }

    /// The two branches, whose operands begin at `first`.
    fn branches(self, cx: &Context<'_>, first: usize) -> [SourceRef; 2] {
        let main = SourceRef::new(cx, Load::NormAct(self.main), first);
        [main, SourceRef::new(cx, self.shortcut, first + self.shortcut_operand())]
    }
}

fn branch<T: Element>(source: &SourceRef, places: &Places) -> Branch<T> {
    Branch { data: source.data(places), norms: source.norms(places) }
}

impl Lower for ResidualAct {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, act: ResidualAct) -> Kernels {
            let extent = extent(&cx.input(0).shape);
            let [main, shortcut] = act.branches(cx, 0);
            Kernels::single(move |places| ResidualMap::<T> {
                extent,
                main: branch(&main, places),
                shortcut: branch(&shortcut, places),
                slope: act.slope,
                result: places.output(0),
            })
        }
        let kernels = by_storage!(cx.input(0), with(cx, *self));
        Ok(kernels.in_place([(0, 0), (0, self.shortcut_operand())]).cost(cx.streaming()))
    }
}

impl Lower for ResidualActGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let kernels = by_storage!(cx.input(0), gradient(cx, *self));
        let (of_shortcut, shortcut) = (self.shortcut_result(), 1 + self.act.shortcut_operand());
        let in_place = [(0, 0), (0, 1), (of_shortcut, 0), (of_shortcut, shortcut)];
        Ok(kernels.in_place(in_place).cost(cx.streaming()))
    }
}

impl ResidualActGrad {
    /// The place of the shortcut's gradient among the results.
    fn shortcut_result(&self) -> usize {
        if self.act.main.affine { 3 } else { 1 }
    }
}

fn gradient<T: Element>(cx: &Context<'_>, op: ResidualActGrad) -> Kernels {
    let ResidualActGrad { act, over, shortcut_over } = op;
    let shape = &cx.input(1).shape;
    let extent = extent(shape);
    let main_sharing = sharing(over, shape);
    let shortcut_sharing = shortcut_over.map(|over| sharing(over, shape));
    let [main, shortcut] = act.branches(cx, 1);
    let of_shortcut = op.shortcut_result();
    let is_affine = matches!(act.shortcut, Load::NormAct(norm) if norm.affine);
    let [partial, pairs] = [extent.partial(), extent.pairs()].map(bytes_of::<f32>);
    let scratch = match shortcut_over {
        Some(_) => vec![partial, pairs, partial, pairs],
        None => vec![partial, pairs],
    };
    Kernels::new(scratch, move |places| {
        let grad = || ResidualGrad::<T> {
            extent,
            upstream: places.input(0),
            main: branch(&main, places),
            shortcut: branch(&shortcut, places),
            slope: act.slope,
        };
        let pair =
            |result: usize| -> (Ptr<f32>, Ptr<f32>) { (places.output(result), places.output(result + 1)) };
        let of_main = NormGradMeans {
            sharing: main_sharing,
            norms: main.norms(places),
            partial: places.scratch(0),
            means: places.scratch(1),
            affine: act.main.affine.then(|| pair(1)),
        };
        let sums = ResidualGradSums {
            grad: grad(),
            main: places.scratch(0),
            shortcut: shortcut_sharing.map(|_| places.scratch(2)),
        };
        let apply = ResidualGradApply {
            grad: grad(),
            main_means: places.scratch(1),
            shortcut_means: shortcut_sharing.map(|_| places.scratch(3)),
            main: places.output(0),
            shortcut: places.output(of_shortcut),
        };
        let bound: Box<dyn BoundNode> = match shortcut_sharing {
            None => Box::new(InTurn3(sums, of_main, apply)),
            Some(sharing) => {
                let of_shortcut = NormGradMeans {
                    sharing,
                    norms: shortcut.norms(places),
                    partial: places.scratch(2),
                    means: places.scratch(3),
                    affine: is_affine.then(|| pair(of_shortcut + 1)),
                };
                Box::new(InTurn4(sums, of_main, of_shortcut, apply))
            }
        };
        bound
    })
}
