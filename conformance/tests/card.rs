//! The kernels on a GPU, where there is one: every case, whatever it costs. Where there is no driver or no GPU these tests say so and
//! are skipped: `cargo test --release -p conformance --test card -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "cuda_tensor/layers.rs"]
mod layers;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use conformance::{Case, cases, expected, run};
use layers::{ALL, Direction, layer};
use plimsoll_cuda::{CudaBackend, DeviceError, Driver};
use plimsoll_graph::{DType, Window};
use plimsoll_plan::Options;

/// As of the CPU, `tests/cpu.rs`.
const F32: f64 = 5e-6;
const BF16: f64 = 1.5e-2;
const F16: f64 = 3e-3;

/// The number of the GPU to use, the first one where it is not set.
const DEVICE: &str = "PLIMSOLL_TEST_DEVICE";

/// The GPU, with NaN in what is not written yet. None where there is no driver or no GPU; whatever else is wrong fails the test.
fn card() -> Option<CudaBackend> {
    let ordinal = std::env::var(DEVICE).map_or(0, |number| {
        number.parse().unwrap_or_else(|_| panic!("{DEVICE} is `{number}`, which is no number of a GPU"))
    });
    match Driver::find(ordinal) {
        Ok(driver) => {
            println!("on {}", driver.name());
            Some(CudaBackend::new(Arc::new(driver)).poisoned())
        }
        Err(why @ (DeviceError::NoDriver | DeviceError::NoDevice { found: 0, .. })) => {
            println!("skipped: {why}");
            None
        }
        Err(why) => panic!("{why}: {:?}; {}", why.source(), why.hint()),
    }
}

fn bits(found: &BTreeMap<String, Vec<f64>>) -> BTreeMap<&str, Vec<u64>> {
    found.iter().map(|(name, values)| (&name[..], values.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Checks the numbers of a case, and that another run, other places and recomputation give the same bits.
fn check(backend: &CudaBackend, case: &Case, expected: &BTreeMap<String, Vec<f64>>, tolerance: f64) {
    let first = run(backend, case, Options::default());
    conformance::compare(case, expected, &first, tolerance);
    let apart = Options { reuse: false, ..Options::default() };
    for options in [Options::default(), apart, Options { budget: Some(0), ..Options::default() }] {
        assert!(bits(&first) == bits(&run(backend, case, options)), "{}: other bits", case.name);
    }
}

fn check_all(of: fn(DType) -> Vec<Case>) {
    let Some(backend) = card() else { return };
    for (precision, tolerance) in [(DType::F32, F32), (DType::Bf16, BF16), (DType::F16, F16)] {
        for case in &of(precision) {
            check(&backend, case, &expected(case), tolerance);
        }
    }
}

/// Each kernel that multiplies fragments, by itself: where a lane of a card has other elements of a matrix than the kernel takes it to have,
/// all results are others. On cards without such instructions for a type, plain kernels run.
#[test]
fn fragments_lie_in_the_lanes_that_kernels_take_them_from_on_a_card() {
    let Some(backend) = card() else { return };
    for (stored, tolerance) in [(DType::Bf16, BF16), (DType::F16, F16)] {
        for direction in ALL {
            let what = match direction {
                Direction::Forward => "forward",
                Direction::Source => "gradient of sources",
                Direction::Weights => "gradient of weights",
            };
            // More than a tile along each axis, and channels that fill none.
            let layer = layer(Window::same([3; 3], [1; 3]), (1, [5, 9, 11]), &[17], 40);
            let case = layer.case(&[direction], stored, stored);
            check(&backend, &case, &expected(&case), tolerance);
            println!("fragments of {stored}, {what}: they agree");
        }
    }
}

#[test]
fn convolutions_agree_with_the_definitions_on_a_card() {
    check_all(cases::all_convolutions);
}

#[test]
fn maps_and_losses_agree_with_the_definitions_on_a_card() {
    check_all(cases::all_of_maps);
}

#[test]
fn all_other_ops_agree_with_the_definitions_on_a_card() {
    check_all(|precision| match precision {
        DType::F32 => cases::all_others().into_iter().chain(cases::long_sums()).collect(),
        _ => Vec::new(),
    });
}

#[test]
fn a_step_whose_numbers_went_wrong_leaves_everything_as_it_was_on_a_card() {
    if let Some(backend) = card() {
        conformance::check_guards(&backend);
    }
}
