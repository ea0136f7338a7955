//! Optimizers and averages of parameters.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{AdamW, Ema, NormUse, Sgd};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Work, address_or_null, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct UpdateParameters {
    parameter: u64,
    gradient: u64,
    first: u64,
    second: u64,
    rates: u64,
    norm: u64,
    count: u32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    weight_decay: f32,
    rate_factor: f32,
    largest_norm: f32,
    coupled: u32,
    clear: u32,
    unused: u32,
}

/// Returns the norm that gradients are scaled down to; zero if there is none.
fn largest_norm(norm: NormUse) -> f32 {
    match norm {
        NormUse::Clip(largest) => largest,
        NormUse::Unread | NormUse::Guard => 0.0,
    }
}

impl Lower for AdamW {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let count = cx.elements(cx.input(0))?;
        let parameters = UpdateParameters {
            parameter: cx.input(0).address(),
            gradient: cx.input(1).address(),
            first: cx.input(2).address(),
            second: cx.input(3).address(),
            rates: cx.input(4).address(),
            norm: address_or_null(cx.inputs.get(5)),
            count,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
            largest_norm: largest_norm(self.norm),
            coupled: self.coupled.into(),
            clear: self.clear.into(),
            unused: 0,
        };
        Ok(update(cx, "adamw", count, &parameters))
    }
}

impl Lower for Sgd {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let count = cx.elements(cx.input(0))?;
        let parameters = UpdateParameters {
            parameter: cx.input(0).address(),
            gradient: cx.input(1).address(),
            first: cx.input(2).address(),
            second: 0,
            rates: cx.input(3).address(),
            norm: address_or_null(cx.inputs.get(4)),
            count,
            beta1: self.momentum,
            beta2: 0.0,
            epsilon: 0.0,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
            largest_norm: largest_norm(self.norm),
            coupled: 0,
            clear: self.clear.into(),
            unused: 0,
        };
        Ok(update(cx, "sgd", count, &parameters))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EmaParameters {
    average: u64,
    parameter: u64,
    norm: u64,
    count: u32,
    decay: f32,
}

impl Lower for Ema {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let count = cx.elements(cx.input(0))?;
        let parameters = EmaParameters {
            average: cx.input(0).address(),
            parameter: cx.input(1).address(),
            norm: address_or_null(cx.inputs.get(2)),
            count,
            decay: self.decay,
        };
        Ok(update(cx, "ema", count, &parameters))
    }
}

/// One launch over all elements of a parameter.
fn update<P: Pod>(cx: &Context<'_>, kernel: &str, count: u32, parameters: &P) -> Work {
    let mut work = Work::new(cx);
    work.each(kernel, count, parameters, &stretches(&cx.inputs), &stretches(&cx.outputs));
    work
}
