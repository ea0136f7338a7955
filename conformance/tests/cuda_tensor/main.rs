//! Convolutions on tensor cores, on an emulator of PTX: their numbers at the edges of tiles, that a broken kernel is found out, and
//! what they do to memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod faults;
mod layers;
mod staged;

use std::collections::BTreeMap;

use conformance::emulator::{Blocks, Emulator, Tally};
use conformance::{Case, compare, expected, run};
use layers::{ALL, Direction, Layer, layer};
use plimsoll_cuda::Architecture;
use plimsoll_graph::{DType, Window};
use plimsoll_plan::Options;
use plimsoll_ptx::Counts;

/// As of all ops, `tests/cuda.rs`.
const BF16: f64 = 1.5e-2;

fn emulator(blocks: Blocks) -> Emulator {
    Emulator::new(Architecture::new(8, 0).unwrap(), blocks)
}

/// Runs a case; also what its kernels did.
fn tally(case: &Case) -> (BTreeMap<String, Vec<f64>>, BTreeMap<String, Counts>) {
    let emulator = emulator(Blocks::Ascending);
    let tally: Tally = emulator.tally();
    let found = run(&emulator.backend(), case, Options::default());
    let counts = tally.lock().unwrap().clone();
    (found, counts)
}

/// Checks the numbers of a layer, that they come from tensor cores alone, and that they are the same with blocks and warps in another
/// order.
fn check(layer: &Layer, directions: &[Direction], dtype: DType) {
    let case = layer.case(directions, dtype);
    let (found, counts) = tally(&case);
    compare(&case, &expected(&case), &found, BF16);
    let plain: Vec<&String> = counts.keys().filter(|name| name.starts_with("conv")).collect();
    assert!(plain.is_empty(), "{}: {plain:?}", case.name);
    let shuffled = run(&emulator(Blocks::Shuffled(11)).backend(), &case, Options::default());
    assert!(found == shuffled, "{}: the order of blocks changes bits", case.name);
}

#[test]
fn tiles_that_are_not_filled_and_channels_that_are_no_multiples_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    // Smaller than a tile along every axis, and with something left over.
    check(&layer(same, (2, [3, 5, 6]), &[3], 16), &ALL, DType::Bf16);
    check(&layer(same, (1, [5, 9, 11]), &[17], 40), &ALL, DType::Bf16);
    check(&layer(same, (1, [2, 7, 17]), &[40], 3), &ALL, DType::Bf16);
    // Results that are stored as f32: logits.
    check(&layer(same, (1, [4, 9, 8]), &[16], 17), &[Direction::Forward, Direction::Source], DType::F32);
    check(&layer(Window::point(), (2, [3, 5, 9]), &[24], 5), &ALL, DType::F32);
}

#[test]
fn sources_that_are_concatenated_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    check(&layer(same, (2, [3, 6, 9]), &[16, 3, 24], 16), &ALL, DType::Bf16);
    check(&layer(Window::same([1, 3, 3], [1; 3]), (1, [2, 9, 9]), &[17, 40], 8), &ALL, DType::Bf16);
}

#[test]
fn every_kind_of_window_is_right() {
    let window = |kernel, stride, padding| Window { kernel, stride, padding };
    let windows = [
        Window::same([3; 3], [2; 3]),
        Window::same([1, 3, 3], [1, 2, 2]),
        Window::point(),
        Window::blocks([2; 3]),
        Window::blocks([1, 2, 2]),
        window([1; 3], [2; 3], [0; 3]),
        window([2, 3, 4], [1, 2, 3], [1, 0, 2]),
        Window::same([5; 3], [1; 3]),
    ];
    for (i, window) in windows.into_iter().enumerate() {
        let channels: &[usize] = if i % 2 == 0 { &[16] } else { &[20] };
        check(&layer(window, (2, [5, 7, 9]), channels, 18), &ALL, DType::Bf16);
    }
}

#[test]
fn sums_over_many_tiles_in_parts_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    check(&layer(same, (2, [9, 20, 18]), &[16], 16), &[Direction::Weights], DType::Bf16);
    check(&layer(Window::point(), (2, [8, 16, 16]), &[16], 16), &[Direction::Weights], DType::Bf16);
}

/// Where a tile and its chunks are filled, nothing but what is needed is read, and banks do not collide.
#[test]
fn matrices_are_loaded_without_bank_conflicts_and_boxes_are_read_once() {
    let windows = [
        (Window::same([3; 3], [1; 3]), [8, 16, 16], 8 * 16 * 16),
        (Window::same([3; 3], [2; 3]), [9, 17, 17], 5 * 9 * 9),
        (Window::blocks([2; 3]), [8, 16, 16], 4 * 8 * 8),
        (Window::point(), [8, 8, 8], 8 * 8 * 8),
    ];
    for (window, extent, places) in windows {
        let case = layer(window, (1, extent), &[32], 32).case(&ALL, DType::Bf16);
        let (_, counts) = tally(&case);
        for (kernel, counts) in counts.iter().filter(|(kernel, _)| kernel.starts_with("tensor_")) {
            println!(
                "{:?} by {:?}, {places} places, {kernel}: {} mma, {} instructions, {} bytes from global memory, {} stored, \
                 {} from shared, {} to shared, {} conflicts",
                window.kernel,
                window.stride,
                counts.mma,
                counts.instructions,
                counts.global_bytes_loaded,
                counts.global_bytes_stored,
                counts.shared_bytes_loaded,
                counts.shared_bytes_stored,
                counts.bank_conflicts,
            );
            assert_eq!(counts.bank_conflicts, 0, "{kernel}, {window:?}");
            assert_eq!(counts.local_bytes, 0, "{kernel}, {window:?}");
        }
    }
}
