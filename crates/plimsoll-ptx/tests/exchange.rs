//! Instructions of whole warps and blocks: shuffles, votes, matches, barriers.

use crate::common::{Call, Device, Numbers, snippet};
use plimsoll_ptx::{Fault, What};

/// Runs `body` in a block of this number of threads; each stores `%r20` to its own word.
fn run(threads: u32, body: &str) -> Result<Vec<u32>, Fault> {
    let body = format!("{body}\nmad.wide.u32 %rd1, %tid, 4, %out;\nst.global.u32 [%rd1], %r20;");
    let mut device = Device::new();
    let out = device.empty(4 * threads as usize);
    Call::line(1, threads).writes(out).run(&snippet("", &body), "k", &mut device)?;
    Ok(device.download(out))
}

#[test]
fn shuffles_within_segments() {
    // The functions of CUDA C++, which NVRTC turns into these third operands for a width.
    for width in [32_u32, 16, 8, 4, 2] {
        let segment = (32 - width) << 8;
        for distance in [0_u32, 1, 2, 3, 5, 8, 16, 31] {
            let value = |lane: u32| 100 + lane * lane;
            let lane_of = |mode: &str, lane: u32| -> u32 {
                let first = lane / width * width;
                let within = lane - first;
                let source = match mode {
                    "up" => within.checked_sub(distance),
                    "down" => Some(within + distance).filter(|&source| source < width),
                    "bfly" => Some(within ^ distance).filter(|&source| source < width),
                    _ => Some(distance % width),
                };
                // Lanes of earlier segments may be read by an exclusive or, which then leads to them; never to later ones.
                match (mode, source) {
                    ("bfly", None) if lane ^ distance < lane => lane ^ distance,
                    (_, Some(source)) => first + source,
                    (_, None) => lane,
                }
            };
            for (mode, clamp) in
                [("up", segment), ("down", segment | 31), ("bfly", segment | 31), ("idx", segment | 31)]
            {
                let body = format!(
                    "mad.lo.u32 %r1, %tid, %tid, 100;\nshfl.sync.{mode}.b32 %r20|%p1, %r1, {distance}, {clamp}, -1;"
                );
                let results = run(32, &body).unwrap();
                for lane in 0..32 {
                    let expected = value(lane_of(mode, lane));
                    assert_eq!(results[lane as usize], expected, "{mode} {distance} of {width}, lane {lane}");
                }
            }
        }
    }
}

#[test]
fn shuffles_say_whether_they_stayed_inside() {
    let body = "shfl.sync.down.b32 %r1|%p1, %tid, 4, 31, -1;\nselp.b32 %r20, 1, 0, %p1;";
    let results = run(32, body).unwrap();
    assert_eq!(results, (0..32).map(|lane| u32::from(lane < 28)).collect::<Vec<u32>>());
}

#[test]
fn shuffles_of_two_halves_with_masks_of_their_own() {
    let body = "setp.lt.u32 %p1, %tid, 16;\nselp.b32 %r1, 0x0000ffff, 0xffff0000, %p1;\n\
                shfl.sync.bfly.b32 %r20, %tid, 1, 0x101f, %r1;";
    let results = run(32, body).unwrap();
    assert_eq!(results, (0..32).map(|lane| lane ^ 1).collect::<Vec<u32>>());
}

#[test]
fn a_shuffle_from_a_lane_that_is_not_there() {
    let body = "mov.u32 %r20, 0;\nsetp.ge.u32 %p1, %tid, 16;\n@%p1 bra DONE;\n\
                shfl.sync.idx.b32 %r20, %tid, 20, 31, 0xffff;\nDONE:";
    let fault = run(32, body).unwrap_err();
    assert_eq!(fault.what, What::ShuffleFromAbsent { lane: 20 });
    let body = "shfl.sync.idx.b32 %r20, %tid, 0, 31, 0xfffe;";
    let fault = run(32, body).unwrap_err();
    assert_eq!(fault.what, What::NotInMask { mask: 0xfffe });
}

#[test]
fn votes() {
    let vote =
        |body: &str| run(32, &format!("and.b32 %r1, %tid, 3;\nsetp.eq.u32 %p1, %r1, 0;\n{body}")).unwrap();
    assert_eq!(vote("vote.sync.ballot.b32 %r20, %p1, -1;"), [0x1111_1111; 32]);
    assert_eq!(vote("vote.sync.ballot.b32 %r20, !%p1, -1;"), [0xeeee_eeee; 32]);
    for (mode, condition, expected) in [
        ("all", "%p1", 0),
        ("any", "%p1", 1),
        ("uni", "%p1", 0),
        ("all", "%p3", 1),
        ("any", "!%p3", 0),
        ("uni", "!%p3", 1),
    ] {
        let body = format!(
            "setp.lt.u32 %p3, %tid, 64;\nvote.sync.{mode}.pred %p2, {condition}, -1;\nselp.b32 %r20, 1, 0, %p2;"
        );
        assert_eq!(vote(&body), [expected; 32], "{mode} {condition}");
    }
    assert_eq!(vote("activemask.b32 %r20;"), [u32::MAX; 32]);
}

#[test]
fn matches() {
    let results = run(32, "and.b32 %r1, %tid, 3;\nmatch.any.sync.b32 %r20, %r1, -1;").unwrap();
    assert_eq!(results, (0..32).map(|lane| 0x1111_1111 << (lane % 4)).collect::<Vec<u32>>());
    let all = |divisor: u32| {
        let body = format!(
            "div.u32 %r1, %tid, {divisor};\nmatch.all.sync.b32 %r2|%p1, %r1, -1;\nselp.b32 %r3, 1, 0, %p1;\n\
             add.u32 %r20, %r2, %r3;"
        );
        run(32, &body).unwrap()
    };
    assert_eq!(all(32), [0; 32]);
    assert_eq!(all(16), [0; 32]);
}

#[test]
fn reductions_of_warps() {
    let values: Vec<u32> = (0..32_u32).map(|lane| lane.wrapping_mul(0x9e37_79b9)).collect();
    type Fold = fn(u32, u32) -> u32;
    let folds: [(&str, Fold); 8] = [
        ("add.u32", u32::wrapping_add),
        ("min.u32", u32::min),
        ("max.u32", u32::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (name, fold) in folds {
        let body = format!("mul.lo.u32 %r1, %tid, 0x9e3779b9;\nredux.sync.{name} %r20, %r1, -1;");
        let expected = values.iter().copied().reduce(fold).unwrap();
        assert_eq!(run(32, &body).unwrap(), [expected; 32], "{name}");
    }
}

#[test]
fn barriers_that_count() {
    let body = "and.b32 %r1, %tid, 7;\nsetp.eq.u32 %p1, %r1, 0;\nbar.red.popc.u32 %r20, 0, %p1;";
    assert_eq!(run(96, body).unwrap(), [12; 96]);
    let body = "setp.ne.u32 %p1, %tid, 70;\nbar.red.and.pred %p2, 0, %p1;\nbar.red.or.pred %p3, 0, !%p1;\n\
                selp.b32 %r1, 1, 0, %p2;\nselp.b32 %r20, 2, %r1, %p3;";
    assert_eq!(run(96, body).unwrap(), [2; 96]);
}

/// Warp 0 writes shared memory and arrives, warp 1 waits and reads; `wait` is what warp 1 does.
fn hand_over(wait: &str) -> Result<Vec<u32>, Fault> {
    let body = format!(
        ".shared .align 4 .b8 s[128];\nmov.u32 %r20, 0;\nmov.u32 %r2, s;\nand.b32 %r3, %tid, 31;\n\
         mad.lo.u32 %r4, %r3, 4, %r2;\nsub.u32 %r5, 124, %r4;\nsetp.ge.u32 %p1, %tid, 32;\n@%p1 bra READ;\n\
         mul.lo.u32 %r6, %tid, 10;\nst.shared.u32 [%r4], %r6;\nbar.arrive 1, 64;\nbra DONE;\n\
         READ:\n{wait}\nld.shared.u32 %r20, [%r5];\nDONE:"
    );
    run(64, &body)
}

#[test]
fn a_barrier_of_some_warps_orders_their_accesses() {
    let results = hand_over("bar.sync 1, 64;").unwrap();
    let expected: Vec<u32> = (0..32).map(|_| 0).chain((0..32).map(|lane| 10 * (31 - lane))).collect();
    assert_eq!(results, expected);
    let fault = hand_over("").unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { .. } | What::UnwrittenShared { .. }), "{fault}");
    // The wrong barrier is waited for without an end.
    let fault = hand_over("bar.sync 2, 64;").unwrap_err();
    assert_eq!(fault.what, What::Deadlock { barrier: 2 });
}

#[test]
fn lanes_at_different_barriers() {
    let body = "mov.u32 %r20, 0;\nsetp.lt.u32 %p1, %tid, 16;\n@%p1 bra LOW;\nbar.sync 0;\nbra DONE;\nLOW:\nbar.sync 0;\nDONE:";
    let fault = run(32, body).unwrap_err();
    assert_eq!(fault.what, What::BarrierDivergence { barrier: 0 });
    let body = body.replace("%tid, 16", "%tid, 32");
    let fault = run(64, &body).unwrap_err();
    assert_eq!(fault.what, What::BarrierDivergence { barrier: 0 });
}

#[test]
fn barriers_of_lanes_order_what_is_in_their_masks() {
    // Lane 0 writes; lane 1 joins it, then lane 2 joins lane 1, and reads.
    let body = |second: &str| {
        format!(
            ".shared .align 4 .b8 s[4];\nmov.u32 %r20, 7;\nmov.u32 %r1, s;\nsetp.eq.u32 %p1, %tid, 0;\n\
             @%p1 st.shared.u32 [%r1], %r20;\nsetp.lt.u32 %p2, %tid, 2;\n@%p2 bar.warp.sync 3;\n\
             setp.eq.u32 %p3, %tid, 1;\nsetp.eq.u32 %p4, %tid, 2;\nor.pred %p5, %p3, %p4;\n\
             {second}\n@%p4 ld.shared.u32 %r20, [%r1];"
        )
    };
    assert!(run(32, &body("@%p5 bar.warp.sync 6;")).is_ok());
    let fault = run(32, &body("")).unwrap_err();
    assert_eq!(fault.what, What::SharedRace { offset: 0, write: false, other: 0, other_write: true });
}

#[test]
fn shuffles_do_not_order_memory() {
    let body = ".shared .align 4 .b8 s[128];\nmov.u32 %r1, s;\nmad.lo.u32 %r2, %tid, 4, %r1;\nst.shared.u32 [%r2], %tid;\n\
                shfl.sync.bfly.b32 %r3, %tid, 1, 31, -1;\nxor.b32 %r4, %r2, 4;\nld.shared.u32 %r20, [%r4];";
    let fault = run(32, body).unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { .. }), "{fault}");
    let fenced = body.replace("xor.b32", "bar.warp.sync -1;\nxor.b32");
    assert_eq!(run(32, &fenced).unwrap(), (0..32).map(|lane| lane ^ 1).collect::<Vec<u32>>());
}

#[test]
fn a_byte_is_written_by_one_lane_only() {
    let body = ".shared .align 4 .b8 s[4];\nmov.u32 %r1, s;\nmov.u32 %r20, 5;\nst.shared.u32 [%r1], %r20;";
    let fault = run(32, body).unwrap_err();
    assert_eq!(fault.what, What::SharedRace { offset: 0, write: true, other: 0, other_write: true });
    // Neighbouring bytes of a word are no race.
    let body = ".shared .align 4 .b8 s[32];\nmov.u32 %r1, s;\nadd.u32 %r2, %r1, %tid;\nst.shared.u8 [%r2], %tid;\n\
                ld.shared.u8 %r20, [%r2];";
    assert_eq!(run(32, body).unwrap(), (0..32).collect::<Vec<u32>>());
}

#[test]
fn any_order_of_warps_and_blocks_gives_the_same() {
    let body = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.u32 %r3, %r1, %r2, %tid;\n\
                mad.wide.u32 %rd1, %r3, 4, %out;\nmul.lo.u32 %r4, %r3, %r3;\nst.global.u32 [%rd1], %r4;";
    let module = snippet("", body);
    let mut numbers = Numbers(3);
    for _ in 0..5 {
        let mut device = Device::new();
        let out = device.empty(4 * 7 * 96);
        let seed = numbers.bits().into();
        Call::line(7, 96).writes(out).shuffled(seed).run(&module, "k", &mut device).unwrap();
        assert_eq!(device.download::<u32>(out), (0..7 * 96).map(|i| i * i).collect::<Vec<u32>>());
    }
}

#[test]
fn tables_of_jumps() {
    let body = "and.b32 %r1, %tid, 3;\nmov.u32 %r20, 0;\nTABLE: .branchtargets A, B, C, D;\nbrx.idx %r1, TABLE;\n\
                A: add.u32 %r20, %r20, 1;\nB: add.u32 %r20, %r20, 10;\nC: add.u32 %r20, %r20, 100;\nD:";
    let expected: Vec<u32> = (0..32).map(|lane| [111, 110, 100, 0][lane % 4]).collect();
    assert_eq!(run(32, body).unwrap(), expected);
}

#[test]
fn registers_that_were_never_assigned() {
    let fault = run(32, "add.u32 %r20, %r1, 1;").unwrap_err();
    assert_eq!(fault.what, What::Unassigned { register: "%r1".to_owned() });
    let fault =
        run(32, "setp.eq.u32 %p1, %tid, 5;\n@%p1 mov.u32 %r1, 3;\nadd.u32 %r20, %r1, 1;").unwrap_err();
    assert_eq!(fault.what, What::Unassigned { register: "%r1".to_owned() });
    // A copy of it is no use yet.
    assert!(run(32, "mov.u32 %r2, %r1;\nmov.u32 %r20, 0;").is_ok());
}

#[test]
fn a_trap() {
    let fault = run(64, "mov.u32 %r20, 0;\nsetp.eq.u32 %p1, %tid, 45;\n@%p1 trap;").unwrap_err();
    assert_eq!((fault.what, fault.thread), (What::Trap, [45, 0, 0]));
}
