//! A product of matrices by tensor cores, as NVRTC compiles it, and what is found when it is broken.

use crate::common::{Call, Device, Numbers};
use plimsoll_ptx::{Counts, Fault, Module, What};

const TEXT: &str = include_str!("kernels/product.ptx");
const M: usize = 100;
const N: usize = 64;
const K: usize = 160;

/// To bf16, ties to even.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn number(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// Runs `text` with these swizzles and compares it with f64: the largest error, relative to 1 + |y|.
fn run(text: &str, written: u32, read: u32, blocks: u32) -> Result<(f64, Counts), Fault> {
    let module = Module::parse(text).unwrap();
    let (mut device, mut numbers) = (Device::new(), Numbers(9));
    let mut matrix = |count| -> Vec<u16> { (0..count).map(|_| bf16(numbers.float())).collect() };
    let (x, w) = (matrix(M * K), matrix(N * K));
    let (dx, dw) = (device.upload(&x), device.upload(&w));
    let dy = device.empty(2 * M * N);
    let counts = Call::new([blocks, 2, 1], [128, 1, 1])
        .reads(dx)
        .reads(dw)
        .writes(dy)
        .value(M as i32)
        .value(N as i32)
        .value(K as i32)
        .value(written)
        .value(read)
        .shuffled(5)
        .run(&module, "product", &mut device)?;
    let y = device.download::<u16>(dy);
    let mut worst = 0.0_f64;
    for row in 0..M {
        for column in 0..N {
            let exact: f64 = (0..K).map(|k| number(x[row * K + k]) * number(w[column * K + k])).sum();
            worst = worst.max((number(y[row * N + column]) - exact).abs() / (1.0 + exact.abs()));
        }
    }
    Ok((worst, counts))
}

#[test]
fn the_kernel_is_right() {
    let (error, counts) = run(TEXT, 3, 3, 2).unwrap();
    // A rounding to bf16 is at most 2⁻⁸ of the value.
    assert!(error < 1.0 / 256.0, "{error}");
    // Two by two blocks of four warps, five steps of 32 in depth, eight products each.
    assert_eq!(counts.mma, 4 * 4 * 5 * 8);
    assert_eq!(counts.bank_conflicts, 0);
    // Each block copies 64 rows of x and 32 of w, without what lies below the 100 rows of x.
    let rows = 2 * 100 + 4 * 32;
    assert_eq!(counts.global_bytes_loaded, (rows * K * 2) as u64);
    assert_eq!(counts.global_bytes_stored, (M * N * 2) as u64);
    assert_eq!(counts.sectors_loaded, (rows * K * 2 / 32) as u64);
}

#[test]
fn without_a_swizzle_banks_collide() {
    let (error, counts) = run(TEXT, 0, 0, 2).unwrap();
    assert!(error < 1.0 / 256.0, "{error}");
    // Eight rows of 64 bytes: four of them start in each half of the banks, so each matrix takes four passes. Three
    // loads of four matrices for each half of a step.
    assert!(counts.bank_conflicts >= 4 * 4 * 5 * 2 * 3 * 4 * 3, "{}", counts.bank_conflicts);
}

#[test]
fn a_swizzle_that_differs_gives_wrong_numbers() {
    let (error, _) = run(TEXT, 3, 1, 2).unwrap();
    assert!(error > 0.1, "{error}");
}

#[test]
fn a_missing_barrier_is_found() {
    let broken = TEXT.replace("bar.sync \t0;", "");
    assert_ne!(broken, TEXT);
    let fault = run(&broken, 3, 3, 2).unwrap_err();
    // A warp that runs first finds copies of others missing; one that runs later, copies that nothing orders.
    let found =
        matches!(fault.what, What::SharedRace { .. } | What::InFlight { .. } | What::UnwrittenShared { .. });
    assert!(found, "{fault}");
}

#[test]
fn a_wait_for_one_group_too_few_is_found() {
    let broken = TEXT.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;");
    assert_ne!(broken, TEXT);
    let fault = run(&broken, 3, 3, 2).unwrap_err();
    assert!(matches!(fault.what, What::InFlight { .. }), "{fault}");
    assert!(fault.instruction.starts_with("ldmatrix"), "{fault}");
}

#[test]
fn a_block_too_far_is_found() {
    // All rows of a third block lie below the matrix: it copies zeros and stores nothing. A third column of blocks is
    // beyond w.
    assert!(run(TEXT, 3, 3, 3).is_ok());
    let module = Module::parse(TEXT).unwrap();
    let mut device = Device::new();
    let (dx, dw) = (device.upload(&[0_u16; M * K]), device.upload(&[0_u16; N * K]));
    let dy = device.empty(2 * M * N);
    let call = Call::new([2, 3, 1], [128, 1, 1]).reads(dx).reads(dw).writes(dy);
    let call = call.value(M as i32).value(N as i32).value(K as i32).value(3_u32).value(3_u32);
    let fault = call.run(&module, "product", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Outside { write: false, .. }), "{fault}");
    assert_eq!(fault.block[1], 2);
}
