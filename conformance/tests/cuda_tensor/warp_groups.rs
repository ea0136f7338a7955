//! Convolutions by warp groups, each of their tiles: beside the definitions and beside products by warps, whose bits they have on the emulator,
//! since it adds in the same order.

use conformance::emulator::Blocks;
use conformance::{Case, compare, expected, run};
use plimsoll_graph::{DType, Window};
use plimsoll_plan::Options;

use crate::layers::{Direction, layer};
use crate::staged::normalised;
use crate::{Cores, HOPPER};

const TILES: [&str; 3] = ["warpgroup_conv_256x64", "warpgroup_conv_128x64", "warpgroup_conv_64x64"];

/// Checks the numbers of a case on some tiles, that these are what computes it, that banks do not collide, and that the order of blocks and warps
/// changes nothing.
fn check(case: &Case, stored: DType, tiles: &[&'static str]) {
    let by_warps = Cores { stored, tile: Some("tensor_conv_64x32"), ..HOPPER };
    let expected = expected(case);
    let (of_warps, _) = by_warps.tally(case);
    for tile in tiles {
        let cores = Cores { stored, tile: Some(tile), ..HOPPER };
        let (found, counts) = cores.tally(case);
        compare(case, &expected, &found, cores.tolerance());
        assert!(found == of_warps, "{}, {tile}: not the bits of warps", case.name);
        let mut own = counts.iter().filter(|(kernel, _)| kernel.starts_with(tile)).peekable();
        assert!(own.peek().is_some(), "{}, {tile}: {:?}", case.name, counts.keys());
        for (kernel, counts) in own {
            assert!(counts.warpgroup_mma > 0 && counts.mma == 0, "{}, {kernel}", case.name);
            assert_eq!((counts.bank_conflicts, counts.local_bytes), (0, 0), "{}, {kernel}", case.name);
        }
        let shuffled = run(&*cores.backend(cores.emulator(Blocks::Shuffled(5))), case, Options::default());
        assert!(found == shuffled, "{}, {tile}: the order of blocks changes bits", case.name);
    }
}

#[test]
fn tiles_that_are_not_filled_are_right_forwards_and_backwards() {
    let same = Window::same([3; 3], [1; 3]);
    let [forward, source] = [[Direction::Forward], [Direction::Source]];
    check(
        &layer(same, 1, [5, 9, 9], &[17], 72).case(&forward, DType::Bf16, DType::Bf16),
        DType::Bf16,
        &TILES,
    );
    check(&layer(same, 1, [3, 9, 10], &[72], 20).case(&source, DType::F16, DType::F16), DType::F16, &TILES);
}

#[test]
fn sources_that_are_concatenated_and_results_in_f32_are_right() {
    let window = Window::same([1, 3, 3], [1; 3]);
    for stored in [DType::Bf16, DType::F16] {
        let case =
            layer(window, 2, [3, 6, 9], &[16, 3, 24], 64).case(&[Direction::Forward], stored, DType::F32);
        check(&case, stored, &TILES[2..]);
    }
}

/// Steps along the width, eight rows of places along the depth, taps that are no whole pairs, and remainders of a stride.
#[test]
fn every_kind_of_window_that_fits_is_right() {
    let window = Window::new;
    for (window, extent, direction) in [
        (window([3; 3], [1, 1, 2], [1; 3]), [3, 9, 17], Direction::Forward),
        (window([3, 1, 1], [2, 1, 1], [1, 0, 0]), [19, 2, 9], Direction::Forward),
        (window([1, 2, 2], [1; 3], [0; 3]), [2, 9, 10], Direction::Forward),
        (window([1, 5, 5], [1; 3], [0, 2, 2]), [1, 9, 10], Direction::Source),
        (window([4; 3], [2; 3], [1; 3]), [4, 10, 12], Direction::Source),
    ] {
        let case = layer(window, 1, extent, &[64], 64).case(&[direction], DType::Bf16, DType::Bf16);
        check(&case, DType::Bf16, &TILES[2..]);
    }
}

/// Their parts need not be those of other tiles.
#[test]
fn sums_over_channels_that_are_divided_among_blocks_are_right() {
    let case = layer(Window::same([3; 3], [1; 3]), 1, [2, 8, 8], &[168], 64).case(
        &[Direction::Forward],
        HOPPER.stored,
        HOPPER.stored,
    );
    let (found, counts) = HOPPER.tally(&case);
    compare(&case, &expected(&case), &found, HOPPER.tolerance());
    assert!(counts.contains_key("warpgroup_conv_64x64_bf16_f32"), "{:?}", counts.keys());
    let shuffled = run(&*HOPPER.backend(HOPPER.emulator(Blocks::Shuffled(5))), &case, Options::default());
    assert!(found == shuffled, "the order of blocks changes bits");
}

#[test]
fn maps_are_normalised_where_they_are_staged_for_warp_groups_with_the_same_bits() {
    let case = normalised(Window::same([3; 3], [1; 3]), 1, [2, 9, 9], &[24, 16], 64, HOPPER.stored);
    check(&case, HOPPER.stored, &TILES[1..2]);
    let backend = || HOPPER.backend(HOPPER.emulator(Blocks::Ascending));
    let separate = Options { inline: false, ..Options::default() };
    assert!(run(&*backend(), &case, Options::default()) == run(&*backend(), &case, separate), "stored");
}
