//! Optimizers, averages of parameters, and the norm of all gradients.

use plimsoll_graph::ops::{AdamW, Ema, GradNorm, Sgd};
use plimsoll_plan::Unsupported;

use crate::kernel::{Machine, Ptr};
use crate::kernels::optimizer::{Average, Squares, Update, UpdateRule};
use crate::lower::{BoundNode, Context, Kernels, Lower, bytes_of};

/// Operands: parameter, gradient, `moments` moments, rates, and the norm where there is one.
fn update(cx: &Context<'_>, rule: UpdateRule, moments: usize) -> Kernels {
    let (count, has_norm) = (cx.input_count(0), cx.inputs.len() > 3 + moments);
    Kernels::single(move |places| Update {
        rule,
        parameter: places.input(0),
        gradient: places.input(1),
        first: places.input(2),
        second: places.input(1 + moments),
        rates: places.input(2 + moments),
        norm: has_norm.then(|| places.input(3 + moments)),
        count,
    })
}

impl Lower for AdamW {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(update(cx, UpdateRule::AdamW(*self), 2))
    }
}

impl Lower for Sgd {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(update(cx, UpdateRule::Sgd(*self), 1))
    }
}

impl Lower for Ema {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let Ema { decay, guarded } = *self;
        let count = cx.input_count(0);
        Ok(Kernels::single(move |places| Average {
            decay,
            average: places.input(0),
            parameter: places.input(1),
            norm: guarded.then(|| places.input(2)),
            count,
        }))
    }
}

struct SquareRoot {
    squares: Squares,
    /// `[1]`, where the norm is not finite unless the loss is.
    loss: Option<Ptr<f32>>,
    result: Ptr<f32>,
}

impl BoundNode for SquareRoot {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the kernel
        // writes one sum for each stretch, and the result is one number, as the loss is, which has been written.
        unsafe {
            machine.launch(&self.squares);
            let sums = std::slice::from_raw_parts(self.squares.partial.0, self.squares.stretches);
            let loss = self.loss.map(|loss| f64::from(*loss.0));
            *self.result.0 = GradNorm::from_squares(sums.iter().sum(), loss) as f32;
        }
    }
}

impl Lower for GradNorm {
    fn combines_weights(&self) -> bool {
        // Of all parameters, whatever their layouts.
        false
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let has_loss = self.loss;
        let gradients = usize::from(has_loss)..cx.inputs.len();
        let counts: Vec<usize> = gradients.clone().map(|operand| cx.input_count(operand)).collect();
        let stretches = Squares::stretches(counts.iter().copied());
        Ok(Kernels::new([bytes_of::<f64>(stretches)], move |places| {
            let mut first = 0;
            let gradients = gradients.clone().zip(&counts).map(|(operand, count)| {
                let from = first;
                first += Squares::stretches(std::iter::once(*count));
                (places.input(operand), *count, from)
            });
            let squares = Squares { gradients: gradients.collect(), stretches, partial: places.scratch(0) };
            let loss = has_loss.then(|| places.input(0));
            Box::new(SquareRoot { squares, loss, result: places.output(0) })
        }))
    }
}
