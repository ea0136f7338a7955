//! Attention with rotary positions on tensor cores: tiles that are not filled, heads that fill no chunk, and kernels that are broken on purpose.

use conformance::emulator::{Altered, Blocks};
use conformance::{Case, cases, compare, expected, run};
use plimsoll_graph::DType;
use plimsoll_plan::Options;

use crate::faults::{broken, try_edit};
use crate::{AMPERE, AMPERE_F16, BF16, Cores, TURING, VOLTA};

/// All that there are kernels for.
const EVERY: [Cores; 3] = [AMPERE, AMPERE_F16, TURING];

/// Heads and their channels on an extent: fewer tokens than a tile, one more than a block, several blocks and tiles with something left over; channels
/// of one chunk to six, with and without channels that zeros fill up.
const SHAPES: [(usize, usize, [usize; 3]); 6] = [
    (3, 6, [1, 2, 3]),
    (2, 18, [3, 3, 4]),
    (1, 48, [5, 1, 13]),
    (2, 66, [3, 5, 7]),
    (1, 96, [4, 4, 6]),
    (1, 12, [2, 9, 11]),
];

fn case(shape: (usize, usize, [usize; 3]), stored: DType) -> Case {
    cases::rotary_attention(shape.0, shape.1, shape.2, stored)
}

/// Their numbers, that they come from tensor cores without conflicts, and the same bits with blocks and warps in another order.
#[test]
fn rotary_attention_is_right_where_tiles_and_chunks_are_not_filled() {
    for cores in EVERY {
        for shape in SHAPES {
            let case = case(shape, cores.stored);
            let (found, counts) = cores.tally(&case);
            compare(&case, &expected(&case), &found, cores.tolerance());
            let on_cores: Vec<_> =
                counts.iter().filter(|(name, _)| name.starts_with("tensor_rotary")).collect();
            // That which packs, the forward one, and two gradients.
            assert_eq!(on_cores.len(), 4, "{}: {:?}", case.name, counts.keys());
            for (kernel, counts) in on_cores {
                assert_eq!(counts.bank_conflicts, 0, "{}, {kernel}", case.name);
                assert_eq!(counts.mma > 0, !kernel.contains("pack"), "{}, {kernel}", case.name);
            }
            let shuffled = cores.backend(cores.emulator(Blocks::Shuffled(11)));
            assert!(found == run(&*shuffled, &case, Options::default()), "{}: other bits", case.name);
        }
    }
}

/// f32 on Ampere, f16 on Volta and bf16 on Turing.
#[test]
fn plain_kernels_remain_where_there_are_none_with_tensor_cores() {
    for cores in [Cores { stored: DType::F32, ..AMPERE }, VOLTA, Cores { stored: DType::Bf16, ..TURING }] {
        let case = case(SHAPES[1], cores.stored);
        let emulator = cores.emulator(Blocks::Ascending);
        let tally = emulator.tally();
        let found = run(&emulator.backend(), &case, Options::default());
        compare(&case, &expected(&case), &found, BF16);
        let counts = tally.lock().unwrap();
        assert!(counts.contains_key(&format!("rotary_attention_{}", cores.stored)), "{:?}", counts.keys());
        assert!(!counts.keys().any(|name| name.starts_with("tensor_rotary")), "{:?}", counts.keys());
    }
}

/// Two blocks of tokens and several tiles.
fn victim(cores: Cores) -> Case {
    cases::rotary_attention_alone(1, 66, [2, 5, 9], cores.stored)
}

#[test]
fn a_barrier_or_a_wait_that_is_missing_in_attention_is_found() {
    for cores in [AMPERE, TURING] {
        let case = victim(cores);
        for kernel in ["attention", "query_grad", "key_grad"] {
            let kernel = format!("tensor_rotary_{kernel}");
            let fault =
                try_edit(cores, &kernel, &case, |text| text.replace("bar.sync \t0;", "")).unwrap_err();
            assert!(fault.contains("shared memory"), "{kernel}: {fault}");
            if cores.capability >= AMPERE.capability {
                let edit = |text: &str| text.replace("cp.async.wait_group 0;", "cp.async.wait_group 1;");
                let fault = try_edit(cores, &kernel, &case, edit).unwrap_err();
                assert!(fault.contains("cp.async"), "{kernel}: {fault}");
            }
        }
    }
}

#[test]
fn a_block_of_attention_too_far_and_a_read_beyond_are_found() {
    for cores in [AMPERE, TURING] {
        let case = victim(cores);
        let too_far = |launch: &mut Altered| {
            if launch.kernel.starts_with("tensor_rotary_") && !launch.kernel.contains("pack") {
                launch.grid[0] += 1;
            }
        };
        let smaller = |launch: &mut Altered| {
            if launch.kernel.starts_with("tensor_rotary_") {
                launch.reads[0].end -= 2;
            }
        };
        let backend = cores.backend(cores.emulator(Blocks::Ascending).altered(too_far));
        let fault = broken(&case, &*backend).unwrap_err();
        assert!(fault.contains("does not declare"), "{fault}");
        let backend = cores.backend(cores.emulator(Blocks::Ascending).altered(smaller));
        let fault = broken(&case, &*backend).unwrap_err();
        assert!(fault.contains("does not declare"), "{fault}");
    }
}
