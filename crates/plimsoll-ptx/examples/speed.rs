//! Measures the number of instructions of a lane that the interpreter runs in a second, on one thread, kernel by
//! kernel.
//!
//! `cargo run --release -p plimsoll-ptx --example speed`, with the name of a kernel behind it for that one alone.
#![allow(clippy::unwrap_used, reason = "it ends at the first thing that goes wrong")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{Call, Device, Numbers};
use plimsoll_ptx::Module;

fn main() {
    let basics = Module::parse(include_str!("../tests/kernels/basics.ptx")).unwrap();
    let product = Module::parse(include_str!("../tests/kernels/product.ptx")).unwrap();
    let mut numbers = Numbers(1);
    let count = 1 << 18;
    let mut device = Device::new();
    let x = device.upload(&numbers.floats(count));
    let y = device.upload(&numbers.floats(count));
    let bytes = device.upload(&[7_u8; 1 << 18]);
    let small: Vec<u32> = (1..=16_384).collect();
    let small = device.upload(&small);
    let n = count as i32;
    let blocks = count as u32 / 256;
    let matrix = Call::new([16, 8, 1], [128, 1, 1]).reads(bytes).reads(bytes).writes(y);
    let calls = [
        ("saxpy", Call::line(blocks, 256).reads(x).writes(y).value(1.5_f32).value(n)),
        ("block_sums", Call::line(64, 256).reads(x).writes(y).value(n)),
        ("transpose", Call::new([16, 16, 1], [32, 8, 1]).reads(x).writes(y).value(512_i32).value(512_i32)),
        ("collatz", Call::line(64, 256).reads(small).writes(y).value(16_384_i32)),
        ("median", Call::line(64, 256).reads(x).writes(y).value(16_384_i32)),
        ("blur", Call::line(blocks, 256).reads(bytes).writes(y).value(n)),
        ("product", matrix.value(1024_i32).value(256_i32).value(64_i32).value(3_u32).value(3_u32)),
    ];
    let wanted = std::env::args().nth(1);
    for (kernel, call) in calls {
        if wanted.as_ref().is_some_and(|wanted| wanted != kernel) {
            continue;
        }
        let module = if kernel == "product" { &product } else { &basics };
        let mut best = f64::INFINITY;
        let mut lanes = 0;
        for _ in 0..5 {
            let start = Instant::now();
            let counts = call.run(module, kernel, &mut device).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
            lanes = counts.lane_instructions;
        }
        println!(
            "{kernel:12} {:8.1} M lane instructions/s, {:7.1} ms",
            lanes as f64 / best / 1e6,
            best * 1e3
        );
    }
}
