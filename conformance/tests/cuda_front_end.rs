//! The plain kernels as another compiler reads their sources, against the definitions, on the emulator.
//!
//! `crates/plimsoll-cuda/kernels/with_clang.py` makes the PTX, and `.ci/gpu` calls it and this test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use conformance::emulator::{Blocks, Emulator};
use conformance::{Case, cases, compare, expected, run};
use plimsoll_cuda::Architecture;
use plimsoll_graph::DType;
use plimsoll_plan::Options;

/// The tolerances of `tests/cuda.rs`: this compiler has no library, so that its functions follow from approximate instructions, whose errors are
/// of about 2⁻²² (NVIDIA, "PTX ISA").
const F32: f64 = 2e-5;
const BF16: f64 = 1.5e-2;

/// The most floating-point operations of a case: of each op there are smaller ones.
const MOST_FLOPS: u64 = 300_000;

#[test]
#[ignore = "needs PTX of clang in PLIMSOLL_TEST_PTX: .ci/gpu"]
fn kernels_of_another_compiler_agree_with_the_definitions() {
    let path = std::env::var("PLIMSOLL_TEST_PTX").unwrap();
    let ptx = fs::read_to_string(path).unwrap();
    // On Volta no tensor cores multiply f32 and bf16, so that all kernels are plain ones.
    let card = Architecture::new(7, 0).unwrap();
    let backend = Emulator::new(card, Blocks::Shuffled(3)).with_ptx(&ptx).backend();
    let mut checked = 0;
    for (precision, tolerance) in [(DType::F32, F32), (DType::Bf16, BF16)] {
        let others = if precision == DType::F32 { cases::all_others() } else { Vec::new() };
        let by_precision = [cases::all_convolutions, cases::all_of_maps, cases::attention_networks];
        let all = by_precision.into_iter().flat_map(|of| of(precision)).chain(others);
        for case in all.filter(|case: &Case| case.program.flops() <= MOST_FLOPS) {
            compare(&case, &expected(&case), &run(&backend, &case, Options::default()), tolerance);
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} cases");
    println!("{checked} cases");
}
