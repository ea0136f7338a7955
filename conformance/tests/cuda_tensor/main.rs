//! Convolutions and attention on tensor cores, on an emulator of PTX: their numbers at the edges of tiles, that a broken kernel is found out, and
//! what they do to memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod counts;
mod faults;
mod layers;
mod plain;
mod rotary;
mod staged;
mod warp_groups;

use std::collections::BTreeMap;
use std::sync::Arc;

use conformance::emulator::{Blocks, Emulator, Tally};
use conformance::{Case, compare, expected, run};
use layers::{ALL, Direction, Layer, Stored, layer};
use plimsoll_cuda::Architecture;
use plimsoll_graph::{DType, Window};
use plimsoll_plan::{Backend, Options};
use plimsoll_ptx::Counts;

/// The tolerances of all ops, `tests/cuda.rs`.
const BF16: f64 = 1.5e-2;

/// Tensor cores of a generation, by the first compute capability that has them, with a type that they multiply.
#[derive(Clone, Copy)]
struct Cores {
    capability: (u32, u32),
    stored: DType,
    /// The tile that convolutions are to take.
    tile: Option<&'static str>,
}

const AMPERE: Cores = Cores { capability: (8, 0), stored: DType::Bf16, tile: None };
const AMPERE_F16: Cores = Cores { stored: DType::F16, ..AMPERE };
const TURING: Cores = Cores { capability: (7, 5), ..AMPERE_F16 };
/// Tensor cores of Ampere with products of tf32.
const AMPERE_TF32: Cores = Cores { stored: DType::F32, ..AMPERE };
const VOLTA: Cores = Cores { capability: (7, 0), ..AMPERE_F16 };

/// By warp groups, which small layers do not take unless they are told to.
const HOPPER: Cores = Cores { capability: (9, 0), stored: DType::Bf16, tile: Some("warpgroup_conv_64x64") };

/// All that there are kernels for that multiply by warps.
const EVERY: [Cores; 5] = [AMPERE, AMPERE_F16, AMPERE_TF32, TURING, VOLTA];

impl Cores {
    fn architecture(self) -> Architecture {
        let (major, minor) = self.capability;
        Architecture::new(major, minor).unwrap()
    }

    fn emulator(self, blocks: Blocks) -> Emulator {
        Emulator::new(self.architecture(), blocks)
    }

    /// The backend on an emulator.
    fn backend(self, emulator: Emulator) -> Arc<dyn Backend> {
        let mut backend = emulator.backend();
        if let Some(tile) = self.tile {
            backend = backend.with_tile(tile).unwrap();
        }
        if self.stored == DType::F32 { backend.with_tf32_products().unwrap() } else { Arc::new(backend) }
    }

    /// f16 and tf32 have three bits more than bf16.
    fn tolerance(self) -> f64 {
        if self.stored == DType::Bf16 { BF16 } else { BF16 / 8.0 }
    }

    /// Runs a case; also what its kernels did.
    fn tally(self, case: &Case) -> (BTreeMap<String, Vec<f64>>, BTreeMap<String, Counts>) {
        let emulator = self.emulator(Blocks::Ascending);
        let tally: Tally = emulator.tally();
        let found = run(&*self.backend(emulator), case, Options::default());
        let counts = tally.lock().unwrap().clone();
        (found, counts)
    }
}

/// The storage type of a layer's results.
#[derive(Clone, Copy, PartialEq)]
enum Results {
    /// The type of its operands.
    Alike,
    /// The type f32.
    Single,
}

/// Checks the numbers of a layer, that they come from tensor cores alone, and that they are the same with blocks and warps in another
/// order.
fn check(layer: &Layer, directions: &[Direction], results: Results) {
    for cores in EVERY {
        let dtype = if results == Results::Alike { cores.stored } else { DType::F32 };
        let case = layer.case(directions, cores.stored, dtype);
        let (found, counts) = cores.tally(&case);
        compare(&case, &expected(&case), &found, cores.tolerance());
        let plain: Vec<&String> = counts.keys().filter(|name| name.starts_with("conv")).collect();
        assert!(plain.is_empty() && counts.values().any(|counts| counts.mma > 0), "{}: {plain:?}", case.name);
        if cores.stored == DType::F16 && cores.capability == (8, 0) || cores.stored == DType::F32 {
            // The same source as for bf16, whose blocks are shuffled.
            continue;
        }
        let shuffled = cores.backend(cores.emulator(Blocks::Shuffled(11)));
        let shuffled = run(&*shuffled, &case, Options::default());
        assert!(found == shuffled, "{}: the order of blocks changes bits", case.name);
    }
}

#[test]
fn tiles_that_are_not_filled_and_channels_that_are_no_multiples_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    // Smaller than a tile along every axis, and with something left over.
    check(&layer(same, 2, [3, 5, 6], &[3], 16), &ALL, Results::Alike);
    check(&layer(same, 1, [5, 9, 11], &[17], 40), &ALL, Results::Alike);
    check(&layer(same, 1, [2, 7, 17], &[40], 3), &ALL, Results::Alike);
    // Results that are stored as f32: logits.
    check(&layer(same, 1, [4, 9, 8], &[16], 17), &[Direction::Forward, Direction::Source], Results::Single);
    check(&layer(Window::point(), 2, [3, 5, 9], &[24], 5), &ALL, Results::Single);
}

/// Images, and the gradients of logits.
#[test]
fn operands_of_f32_are_rounded_to_what_the_others_are() {
    let same = Window::same([3; 3], [1; 3]);
    let single = DType::F32;
    for cores in EVERY.into_iter().filter(|cores| cores.stored != single) {
        let half = cores.stored;
        let image = Stored { sources: single, gradient: half, results: half };
        let logits = Stored { sources: half, gradient: single, results: half };
        for (layer, directions, stored) in [
            (layer(same, 2, [3, 5, 6], &[1], 16), &[Direction::Forward, Direction::Weights][..], image),
            (layer(Window::same([3; 3], [2; 3]), 1, [5, 9, 11], &[4, 1], 40), &[Direction::Forward], image),
            (layer(same, 1, [4, 9, 8], &[16, 3], 17), &[Direction::Weights], image),
            (
                layer(Window::point(), 2, [3, 5, 9], &[24], 5),
                &[Direction::Source, Direction::Weights],
                logits,
            ),
            (layer(same, 1, [4, 9, 8], &[16], 3), &[Direction::Source, Direction::Weights], logits),
        ] {
            let case = layer.case_of(directions, stored);
            let (found, counts) = cores.tally(&case);
            compare(&case, &expected(&case), &found, cores.tolerance());
            let mut plain: Vec<&String> = counts.keys().filter(|name| name.starts_with("conv")).collect();
            if cores.capability == (7, 0) {
                // Volta rounds no operands of the gradient of weights.
                plain.retain(|name| !name.starts_with("conv_weight_grad"));
            } else {
                assert!(counts.values().any(|counts| counts.mma > 0), "{}", case.name);
            }
            assert!(plain.is_empty(), "{}: {plain:?}", case.name);
        }
    }
}

#[test]
fn sources_that_are_concatenated_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    check(&layer(same, 2, [3, 6, 9], &[16, 3, 24], 16), &ALL, Results::Alike);
    check(&layer(Window::same([1, 3, 3], [1; 3]), 1, [2, 9, 9], &[17, 40], 8), &ALL, Results::Alike);
}

#[test]
fn every_kind_of_window_is_right() {
    let window = Window::new;
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
        check(&layer(window, 2, [5, 7, 9], channels, 18), &ALL, Results::Alike);
    }
}

#[test]
fn sums_over_many_tiles_in_parts_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    check(&layer(same, 2, [9, 20, 18], &[16], 16), &[Direction::Weights], Results::Alike);
    check(&layer(Window::point(), 2, [8, 16, 16], &[16], 16), &[Direction::Weights], Results::Alike);
}

/// Checks deep layers, which have few places and many channels.
#[test]
fn sums_over_channels_that_are_divided_among_blocks_are_right() {
    let same = Window::same([3; 3], [1; 3]);
    for cores in EVERY {
        let stored = cores.stored;
        for (layer, direction) in [
            (layer(same, 2, [2, 4, 8], &[160], 32), Direction::Forward),
            (layer(same, 1, [3, 4, 5], &[72, 90], 17), Direction::Forward),
            (layer(same, 1, [2, 4, 8], &[24], 168), Direction::Source),
        ] {
            let case = layer.case(&[direction], stored, stored);
            let (found, counts) = cores.tally(&case);
            compare(&case, &expected(&case), &found, cores.tolerance());
            let divided = counts.keys().any(|name| name.starts_with("sum_few_parts"));
            assert!(divided, "{} on {}: {:?}", case.name, cores.architecture(), counts.keys());
            let shuffled = cores.backend(cores.emulator(Blocks::Shuffled(7)));
            let shuffled = run(&*shuffled, &case, Options::default());
            assert!(found == shuffled, "{}: the order of blocks changes bits", case.name);
        }
    }
}

/// A tile and its chunks are filled by reading only the voxels that are needed, without bank conflicts.
#[test]
fn matrices_are_loaded_without_bank_conflicts_and_boxes_are_read_once() {
    let windows = [
        (Window::same([3; 3], [1; 3]), [8, 16, 16], 8 * 16 * 16),
        (Window::same([3; 3], [2; 3]), [9, 17, 17], 5 * 9 * 9),
        (Window::blocks([2; 3]), [8, 16, 16], 4 * 8 * 8),
        (Window::point(), [8, 8, 8], 8 * 8 * 8),
    ];
    let all = EVERY.iter().flat_map(|cores| windows.iter().map(move |window| (cores, *window)));
    for (cores, (window, extent, places)) in all {
        let stored = cores.stored;
        let case = layer(window, 1, extent, &[32], 32).case(&ALL, stored, stored);
        let (_, counts) = cores.tally(&case);
        for (kernel, counts) in counts.iter().filter(|(kernel, _)| kernel.starts_with("tensor_")) {
            println!(
                "{}, {:?} by {:?}, {places} places, {kernel}: {} mma, {} instructions, {} bytes from global memory, {} stored, \
                 {} from shared, {} to shared, {} conflicts",
                cores.architecture(),
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
            assert_eq!(counts.bank_conflicts, 0, "{}, {kernel}, {window:?}", cores.architecture());
            assert_eq!(counts.local_bytes, 0, "{}, {kernel}, {window:?}", cores.architecture());
        }
    }
}
