//! Optimizers and the norm of all gradients.

use plimsoll_graph::Op;

use super::{Context, Memory, Step, bytes_of, count, single, total};
use crate::kernel::{Machine, Ptr};
use crate::kernels::optimizer::{Rule, Squares, Update};

fn stretches(cx: &Context<'_>) -> usize {
    Squares::stretches((0..cx.node.inputs.len()).map(|operand| count(cx.input(operand))))
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total([bytes_of::<f64>(stretches(cx))])
}

struct Norm {
    squares: Squares,
    result: Ptr<f32>,
}

impl Step for Norm {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller; the kernel writes one sum per stretch.
        unsafe {
            machine.launch(&self.squares);
            let sums = std::slice::from_raw_parts(self.squares.partial.0, self.squares.stretches);
            *self.result.0 = sums.iter().sum::<f64>().sqrt() as f32;
        }
    }
}

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let input = |operand: usize| memory.tensor::<f32>(cx.node.inputs[operand]);
    let update = |rule: Rule, moments: usize| {
        let norm = cx.node.inputs.get(3 + moments).map(|id| memory.tensor::<f32>(*id));
        single(Update {
            rule,
            parameter: input(0),
            gradient: input(1),
            first: input(2),
            second: input(1 + moments),
            rates: input(2 + moments),
            norm,
            count: count(cx.input(0)),
        })
    };
    match &cx.node.op {
        Op::AdamW(op) => update(Rule::AdamW(*op), 2),
        Op::Sgd(op) => update(Rule::Sgd(*op), 1),
        _ => {
            let [partial] = memory.pieces([bytes_of::<f64>(stretches(cx))]);
            let mut first = 0;
            let gradients = (0..cx.node.inputs.len())
                .map(|operand| {
                    let elements = count(cx.input(operand));
                    let from = first;
                    first += Squares::stretches(std::iter::once(elements));
                    (input(operand), elements, from)
                })
                .collect();
            let squares = Squares { gradients, stretches: stretches(cx), partial: partial.cast() };
            Box::new(Norm { squares, result: memory.tensor(cx.node.outputs[0]) })
        }
    }
}
