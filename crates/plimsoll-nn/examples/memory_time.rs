//! Prints the curve of memory against time of two networks, as the planner finds it: no kernel is run.
//!
//! The programs run one of several micro-batches, so that gradients of parameters are added up as they come:
//! what is planned is features, their gradients and scratch.
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::time::Instant;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::DType;
use plimsoll_nn::{DynUNet, Network, Objective, Optimizer, PlainConvUNet, Training};
use plimsoll_plan::{Options, Planner, plan};

fn main() {
    let mut strides = [[2; 3]; 6];
    strides[0] = [1; 3];
    let four = DynUNet::new(1, 2, &[32, 64, 128, 256], &[[3; 3]; 4], &strides[..4]);
    let five = DynUNet::new(1, 2, &[32, 64, 128, 256, 320], &[[3; 3]; 5], &strides[..5]);
    let six = PlainConvUNet::new(1, 2, &[32, 64, 128, 256, 320, 320], &[[3; 3]; 6], &strides);
    for precision in [DType::Bf16, DType::F32] {
        print("DynUNet 32–256", four.clone().into(), [72, 136, 136], 1, precision);
        print("DynUNet 32–320", five.clone().into(), [128; 3], 1, precision);
        print("PlainConvUNet 32–320", six.clone().into(), [128; 3], 2, precision);
    }
}

fn print(name: &str, net: Network, patch: [usize; 3], micro_batch: usize, precision: DType) {
    let training = Training {
        net,
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: None,
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch,
        batch: 2 * micro_batch,
        shards: 1,
        micro_batch,
        precision,
    };
    let program = [training.programs().unwrap().gradients.swap_remove(0)];
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    println!("{name} at {patch:?} × {micro_batch}, {precision:?}");
    let kept = plan(&program, &backend, Options { inline: false, ..Options::default() }).unwrap();
    let persistent = kept.persistent_bytes();
    let gigabytes = |bytes: usize| (bytes - persistent) as f64 / 1e9;
    let row = |what: &str, arena, bound, flops: f64, seconds: f64| {
        println!(
            "  {what:14} {:6.3} GB, {:5.2} % over its bound, {:+6.1} % FLOPs, {seconds:7.3} s",
            gigabytes(arena),
            100.0 * (gigabytes(arena) / gigabytes(bound) - 1.0),
            100.0 * flops
        );
    };
    row("all kept", kept.arena_bytes, kept.lower_bound_bytes, 0.0, kept.schedules[0].predicted_seconds);
    let start = Instant::now();
    let planner = Planner::new(&program, &backend, Options::default()).unwrap();
    let searched = Instant::now();
    let choices = planner.searches()[0].curve().len();
    let searching = searched.elapsed();
    for point in planner.curve().unwrap() {
        let what = format!("{} recomputed", point.recomputed.len());
        row(
            &what,
            point.arena_bytes,
            point.lower_bound_bytes,
            point.recompute_flops_fraction,
            point.predicted_seconds,
        );
    }
    println!("  {choices} choices in {searching:.2?}, all in {:.2?}", start.elapsed());
}
