//! Kernels with one mistake each, as NVRTC compiles them.

use crate::common::{Call, Device};
use plimsoll_ptx::{Counts, Fault, Module, What};

fn mistakes() -> Module {
    Module::parse(include_str!("kernels/mistakes.ptx")).unwrap().with_limit(100_000)
}

/// Runs a kernel of x and y, both of 128 elements, with a number as third parameter if there is one.
fn run(kernel: &str, blocks: u32, threads: u32, number: Option<i32>) -> Result<Counts, Fault> {
    let mut device = Device::new();
    let x = device.upload(&[1.5_f32; 128]);
    let y = device.upload(&[0.0_f32; 128]);
    let call = Call::line(blocks, threads).reads(x).writes(y);
    let call = match number {
        Some(number) => call.value(number),
        None => call,
    };
    call.run(&mistakes(), kernel, &mut device)
}

#[test]
fn a_missing_barrier() {
    let fault = run("no_barrier", 1, 128, None).unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { .. } | What::UnwrittenShared { .. }), "{fault}");
    assert_eq!(fault.kernel, "no_barrier");
    assert!(fault.instruction.starts_with("ld.shared"), "{fault}");
}

#[test]
fn lanes_are_not_in_step() {
    let fault = run("lockstep", 1, 32, None).unwrap_err();
    assert!(
        matches!(fault.what, What::SharedRace { write: false, other: 31, other_write: true, .. }),
        "{fault}"
    );
    assert_eq!(fault.thread, [0, 0, 0]);
    assert!(run("in_step", 1, 32, None).is_ok());
}

#[test]
fn a_tile_is_overwritten_too_early() {
    assert!(run("one_barrier_short", 1, 64, Some(1)).is_ok());
    let fault = run("one_barrier_short", 1, 64, Some(2)).unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { .. }), "{fault}");
}

#[test]
fn a_lane_that_did_not_write() {
    let fault = run("lane_left_out", 1, 64, None).unwrap_err();
    assert!(matches!(fault.what, What::UnwrittenShared { offset: 160, bytes: 4 }), "{fault}");
    assert_eq!(fault.thread, [23, 0, 0]);
}

#[test]
fn a_block_too_far() {
    assert!(run("no_bound", 2, 64, None).is_ok());
    let fault = run("no_bound", 3, 64, None).unwrap_err();
    assert!(matches!(fault.what, What::Outside { write: false, .. }), "{fault}");
    assert_eq!((fault.block, fault.thread), ([2, 0, 0], [0, 0, 0]));
}

#[test]
fn blocks_that_overlap() {
    let fault = run("overlap", 2, 32, None).unwrap_err();
    assert!(
        matches!(
            fault.what,
            What::GlobalRace { write: true, other_block: 0, other: 31, other_write: true, .. }
        ),
        "{fault}"
    );
}

#[test]
fn a_sum_that_depends_on_the_order() {
    assert!(run("float_sum", 1, 1, None).is_ok());
    let fault = run("float_sum", 1, 32, None).unwrap_err();
    assert!(matches!(fault.what, What::OrderDependent { .. }), "{fault}");
}

#[test]
fn a_vector_that_is_not_aligned() {
    assert!(run("unaligned", 1, 16, Some(4)).is_ok());
    let fault = run("unaligned", 1, 16, Some(3)).unwrap_err();
    assert!(matches!(fault.what, What::Misaligned { bytes: 16, .. }), "{fault}");
}

#[test]
fn threads_that_return_before_a_barrier() {
    assert!(run("early_return", 1, 64, Some(64)).is_ok());
    for n in [32, 40] {
        let fault = run("early_return", 1, 64, Some(n)).unwrap_err();
        assert!(matches!(fault.what, What::BarrierDivergence { barrier: 0 }), "{fault}");
    }
}

#[test]
fn a_shuffle_with_lanes_that_do_not_come() {
    let fault = run("half_a_warp", 1, 32, None).unwrap_err();
    assert!(
        matches!(fault.what, What::WarpDivergence { needed: 0xffff_ffff, arrived: 0x0000_ffff }),
        "{fault}"
    );
}

#[test]
fn a_loop_without_an_end() {
    let mut device = Device::new();
    let flag = device.upload(&[0_u32]);
    let fault = Call::line(1, 32).writes(flag).run(&mistakes(), "wait_for_ever", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Runaway { limit: 100_000 }), "{fault}");
}

#[test]
fn constants_that_are_none() {
    let mut device = Device::new();
    let y = device.empty(512);
    let fault = Call::line(1, 64).writes(y).run(&mistakes(), "constant_path", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::NotConstant { .. }), "{fault}");
}

#[test]
fn local_memory_that_was_never_set() {
    let mut device = Device::new();
    let x = device.upload(&[0, 1, 2, 3, 4, 5, 6, 7_i32]);
    let y = device.empty(32);
    let fault = Call::line(1, 8).reads(x).writes(y).run(&mistakes(), "unset", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::UnwrittenLocal { .. }), "{fault}");
    assert_eq!(fault.thread, [7, 0, 0]);
}

#[test]
fn memory_that_was_never_written() {
    let mut device = Device::new();
    let x = device.upload(&[1.0_f32; 128]);
    let y = device.empty(512);
    device.memory.forget(x.offset + 100..x.offset + 101);
    let fault = Call::line(2, 64).reads(x).writes(y).run(&mistakes(), "no_bound", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Unwritten { bytes: 4, .. }), "{fault}");
    assert_eq!(fault.thread, [25, 0, 0]);
}

#[test]
fn writes_need_a_range_of_their_own() {
    let mut device = Device::new();
    let x = device.upload(&[1.0_f32; 64]);
    let y = device.upload(&[0.0_f32; 64]);
    let fault = Call::line(1, 64).reads(x).reads(y).run(&mistakes(), "no_bound", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Outside { write: true, .. }), "{fault}");
}

#[test]
fn launches_that_are_impossible() {
    for (blocks, threads, number) in [(0, 32, None), (1, 0, None), (1, 2048, None), (1, 32, Some(1))] {
        // `no_bound` has two parameters.
        let number = number.map(|number: i32| [number; 4]);
        let mut device = Device::new();
        let buffer = device.upload(&[1.0_f32; 128]);
        let mut call = Call::line(blocks, threads).reads(buffer).writes(buffer);
        for number in number.into_iter().flatten() {
            call = call.value(number);
        }
        let fault = call.run(&mistakes(), "no_bound", &mut device).unwrap_err();
        assert!(matches!(fault.what, What::Launch(_)), "{fault}");
    }
    let fault = run("not_there", 1, 32, None).unwrap_err();
    assert!(matches!(fault.what, What::Launch(_)), "{fault}");
}

#[test]
fn the_message_names_place_and_reason() {
    let fault = run("unaligned", 1, 16, Some(3)).unwrap_err();
    let message = fault.to_string();
    for part in
        ["kernel unaligned", "PTX line", "ld.global.v4", "block [0, 0, 0]", "thread [0, 0, 0]", "multiple"]
    {
        assert!(message.contains(part), "{message}");
    }
}
