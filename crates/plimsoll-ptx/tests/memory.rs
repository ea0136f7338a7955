//! Loads, stores, atomic operations, asynchronous copies, and what is counted of them.

use crate::common::{Buffer, Call, Device, snippet};
use plimsoll_ptx::{Counts, Fault, Memory, Module, What};

/// Runs `body` with a buffer of this many bytes as `%out` and one of these bytes as parameter `data`.
fn run(threads: u32, body: &str, data: &[u8], bytes: usize) -> Result<(Vec<u8>, Counts), Fault> {
    let body = format!("ld.param.u64 %rd39, [data];\n{body}");
    let mut device = Device::new();
    let data = device.upload(data);
    let out = device.empty(bytes);
    let call = Call::line(1, threads).writes(out).reads(data);
    let counts = call.run(&snippet(", .param .u64 data", &body), "k", &mut device)?;
    Ok((device.download(out), counts))
}

#[test]
fn all_widths_with_and_without_a_sign() {
    let data: Vec<u8> = (0..32_u8).map(|at| at.wrapping_mul(7).wrapping_add(0x81)).collect();
    let word = |bytes: usize| data[..bytes].iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    for (kind, bytes, signed) in [
        ("u8", 1, false),
        ("s8", 1, true),
        ("b8", 1, false),
        ("u16", 2, false),
        ("s16", 2, true),
        ("u32", 4, false),
        ("s32", 4, true),
        ("b64", 8, false),
    ] {
        let body = format!("ld.global.{kind} %rd1, [%rd39];\nst.global.b64 [%out], %rd1;");
        let (found, _) = run(1, &body, &data, 8).unwrap();
        let bits = 8 * bytes as u32;
        let expected =
            if signed { ((word(bytes) << (64 - bits)) as i64 >> (64 - bits)) as u64 } else { word(bytes) };
        assert_eq!(found, expected.to_le_bytes(), "{kind}");
    }
    // A narrow register takes as many bits as it has.
    let body = "ld.global.s8 %h1, [%rd39];\ncvt.u32.u16 %r1, %h1;\nst.global.u32 [%out], %r1;";
    assert_eq!(run(1, body, &data, 4).unwrap().0, 0xff81_u32.to_le_bytes());
}

#[test]
fn vectors() {
    let data: Vec<u8> = (0..32).collect();
    for (name, count, register, bytes) in [
        ("v2.u8", 2, "%h", 1),
        ("v4.u16", 4, "%h", 2),
        ("v2.f32", 2, "%f", 4),
        ("v4.b32", 4, "%r", 4),
        ("v2.b64", 2, "%rd", 8),
    ] {
        let list: Vec<String> = (1..=count).map(|index| format!("{register}{index}")).collect();
        let list = list.join(", ");
        let body = format!("ld.global.{name} {{{list}}}, [%rd39+16];\nst.global.{name} [%out], {{{list}}};");
        let total = count * bytes;
        let (found, counts) = run(1, &body, &data, total).unwrap();
        assert_eq!(found, data[16..16 + total], "{name}");
        assert_eq!((counts.global_bytes_loaded, counts.sectors_loaded), (total as u64, 1));
    }
}

#[test]
fn generic_addresses_lead_to_their_spaces() {
    let body = ".shared .align 8 .b8 s[16];\n.local .align 8 .b8 l[16];\n\
                mov.u64 %rd1, s;\ncvta.shared.u64 %rd2, %rd1;\nmov.u64 %rd3, l;\ncvta.local.u64 %rd4, %rd3;\n\
                mov.u32 %r1, 11;\nst.u32 [%rd2+4], %r1;\nld.shared.u32 %r2, [s+4];\n\
                mov.u32 %r3, 22;\nst.u32 [%rd4+8], %r3;\nld.local.u32 %r4, [l+8];\n\
                cvta.to.shared.u64 %rd5, %rd2;\nld.shared.u32 %r5, [%rd5+4];\nld.u32 %r6, [%rd39];\n\
                isspacep.shared %p1, %rd2;\nisspacep.local %p2, %rd2;\nisspacep.global %p3, %rd39;\n\
                selp.b32 %r7, 1, 0, %p1;\nselp.b32 %r8, 1, 0, %p2;\nselp.b32 %r9, 1, 0, %p3;\n\
                st.v4.u32 [%out], {%r2, %r4, %r5, %r6};\nst.global.u32 [%out+16], %r7;\nst.global.u32 [%out+20], %r8;\n\
                st.global.u32 [%out+24], %r9;";
    let (found, counts) = run(1, body, &33_u32.to_le_bytes(), 28).unwrap();
    let words: Vec<u32> =
        found.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [11, 22, 11, 33, 1, 0, 1]);
    assert_eq!((counts.shared_bytes_stored, counts.shared_bytes_loaded, counts.local_bytes), (4, 8, 8));
}

#[test]
fn dynamic_shared_memory_lies_behind_the_static() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
                .visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n\
                .shared .align 4 .b8 fixed[20];\nld.param.u64 %rd1, [out];\nmov.u32 %r1, dynamic;\n\
                mov.u32 %r2, fixed;\nsub.u32 %r3, %r1, %r2;\nst.shared.u32 [dynamic+12], %r3;\n\
                ld.shared.u32 %r4, [%r1+12];\nst.global.u32 [%rd1], %r4;\nmov.u32 %r5, %total_smem_size;\n\
                st.global.u32 [%rd1+4], %r5;\nret;\n}\n";
    let module = Module::parse(text).unwrap();
    assert_eq!(module.static_shared("k"), Some(32));
    let mut device = Device::new();
    let out = device.empty(8);
    let call = Call::line(1, 1).writes(out);
    call.clone().shared(16).run(&module, "k", &mut device).unwrap();
    assert_eq!(device.download::<u32>(out), [32, 48]);
    let fault = call.clone().shared(12).run(&module, "k", &mut device).unwrap_err();
    assert_eq!(fault.what, What::OutsideShared { offset: 44, bytes: 4, size: 44 });
    let fault = call.shared(200 << 10).run(&module, "k", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Launch(_)), "{fault}");
}

#[test]
fn variables_of_the_module_are_read_only() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
                .const .align 4 .f32 weights[3] = {0f3F800000, 0f40000000, 0f40400000};\n\
                .global .align 4 .b8 table[8] = {1, 2, 3, 4, 5};\n.visible .entry k(.param .u64 out)\n{\n\
                .reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [out];\n\
                ld.const.f32 %f1, [weights+8];\nst.global.f32 [%rd1], %f1;\nmov.u64 %rd2, table;\n\
                ld.global.u32 %r1, [%rd2+4];\nst.global.u32 [%rd1+4], %r1;\nSTORE\nret;\n}\n";
    let mut device = Device::new();
    let out = device.empty(8);
    let call = Call::line(1, 1).writes(out);
    call.run(&Module::parse(&text.replace("STORE", "")).unwrap(), "k", &mut device).unwrap();
    let words = device.download::<u32>(out);
    assert_eq!(words, [3.0_f32.to_bits(), 5]);
    let module = Module::parse(&text.replace("STORE", "st.global.u32 [%rd2], %r1;")).unwrap();
    let fault = call.run(&module, "k", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::Outside { write: true, .. }), "{fault}");
}

#[test]
fn atomic_operations() {
    type Fold = fn(u64, u64) -> u64;
    let low = |value: u64| value & 0xffff_ffff;
    let operations: [(&str, u64, Fold); 14] = [
        ("add.u32", 4, |a, b| (a + b) & 0xffff_ffff),
        ("add.s32", 4, |a, b| (a + b) & 0xffff_ffff),
        ("add.u64", 8, u64::wrapping_add),
        ("min.u32", 4, u64::min),
        ("max.u32", 4, u64::max),
        ("min.s32", 4, |a, b| u64::from((a as i32).min(b as i32) as u32)),
        ("max.s32", 4, |a, b| u64::from((a as i32).max(b as i32) as u32)),
        ("min.s64", 8, |a, b| (a as i64).min(b as i64) as u64),
        ("max.u64", 8, u64::max),
        ("and.b32", 4, |a, b| a & b),
        ("or.b32", 4, |a, b| a | b),
        ("xor.b64", 8, |a, b| a ^ b),
        ("inc.u32", 4, |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", 4, |a, b| if a == 0 || a > b { b } else { a - 1 }),
    ];
    for (name, bytes, fold) in operations {
        for space in ["global", "shared"] {
            let register = if bytes == 8 { "%rd" } else { "%r" };
            // Each lane's operand: a hash of its number, or 10 for the counters.
            let operand = if name.contains("nc") || name.contains("dec") {
                "mov.b64 %rd1, 10;\ncvt.u32.u64 %r1, %rd1;".to_owned()
            } else {
                "cvt.u64.u32 %rd1, %tid;\nmul.lo.u64 %rd1, %rd1, 0x9e3779b97f4a7c15;\ncvt.u32.u64 %r1, %rd1;"
                    .to_owned()
            };
            let place = if space == "shared" { "[s]" } else { "[%out]" };
            let bits = 8 * bytes;
            let body = format!(
                ".shared .align 8 .b8 s[8];\n{operand}\nsetp.eq.u32 %p1, %tid, 0;\nmov.b64 %rd2, 77;\n\
                 @%p1 st.{space}.u64 {place}, %rd2;\nbar.sync 0;\natom.{space}.{name} {register}5, {place}, {register}1;\n\
                 bar.sync 0;\n@%p1 ld.{space}.b{bits} {register}6, {place};\n@%p1 st.global.b{bits} [%out], {register}6;"
            );
            let (found, counts) = run(32, &body, &[0], 8).unwrap();
            let operand = |lane: u64| {
                if name.contains("nc") || name.contains("dec") {
                    10
                } else {
                    lane.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                }
            };
            let narrow = |value: u64| if bytes == 8 { value } else { low(value) };
            let expected = (0..32).fold(77, |old, lane| narrow(fold(old, narrow(operand(lane)))));
            let bytes = bytes as usize;
            assert_eq!(found[..bytes], expected.to_le_bytes()[..bytes], "atom.{space}.{name}");
            assert_eq!(counts.atomics, 32);
        }
    }
}

#[test]
fn exchange_and_compare() {
    let body = "mov.u32 %r1, 5;\nst.global.u32 [%out], %r1;\natom.global.exch.b32 %r2, [%out], 9;\n\
                atom.global.cas.b32 %r3, [%out], 8, 1;\natom.global.cas.b32 %r4, [%out], 9, 2;\n\
                atom.global.add.f32 %f1, [%out+16], 0f3F800000;\nred.global.add.u32 [%out], 40;\n\
                st.global.u32 [%out+4], %r2;\nst.global.u32 [%out+8], %r3;\nst.global.u32 [%out+12], %r4;";
    let fault = run(1, body, &[0], 20).unwrap_err();
    // The sum of floats adds to what was never written.
    assert!(matches!(fault.what, What::Unwritten { .. }), "{fault}");
    let body =
        body.replace("atom.global.add.f32 %f1", "st.global.u32 [%out+16], 0;\natom.global.add.f32 %f1");
    let (found, _) = run(1, &body, &[0], 20).unwrap();
    let words: Vec<u32> =
        found.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [42, 5, 9, 9, 1.0_f32.to_bits()]);
}

#[test]
fn a_plain_access_races_with_an_atomic_one() {
    let body = "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 red.global.add.u32 [%out], 1;\n\
                @!%p1 ld.global.u32 %r2, [%out];";
    let module = snippet("", body);
    let mut device = Device::new();
    let out = device.upload(&[0_u32]);
    assert!(Call::line(1, 32).writes(out).run(&module, "k", &mut device).is_ok());
    assert_eq!(device.download::<u32>(out), [32]);
    let fault = Call::line(2, 32).writes(out).run(&module, "k", &mut device).unwrap_err();
    assert!(matches!(fault.what, What::GlobalRace { write: false, other_block: 0, .. }), "{fault}");
}

#[test]
fn a_read_before_a_write_of_another_block_is_a_race() {
    let body = "mov.u32 %r1, %ctaid.x;\nmad.wide.u32 %rd1, %r1, 2, %out;\nld.global.u8 %r2, [%rd1];\n\
                st.global.u8 [%rd1+OFFSET], %r2;";
    let blocks = |offset: &str| {
        let module = snippet("", &body.replace("OFFSET", offset));
        let mut device = Device::new();
        let out = device.upload(&[1_u8; 16]);
        Call::line(4, 1).writes(out).run(&module, "k", &mut device)
    };
    // Each block reads an even byte and writes the odd one behind it.
    assert!(blocks("1").is_ok());
    // The byte that the next block reads.
    let fault = blocks("2").unwrap_err();
    assert_eq!((fault.block, fault.thread), ([1, 0, 0], [0, 0, 0]));
    assert!(
        matches!(fault.what, What::GlobalRace { write: false, other_block: 0, other_write: true, .. }),
        "{fault}"
    );
}

/// A block of 32 lanes copies 16 bytes each to shared memory, does `between`, and stores what it reads from there.
fn copy(between: &str, read: &str) -> Result<(Vec<u8>, Counts), Fault> {
    let body = format!(
        ".shared .align 16 .b8 s[512];\nmov.u32 %r1, s;\nmad.lo.u32 %r2, %tid, 16, %r1;\nxor.b32 %r4, %r2, 16;\n\
         mad.wide.u32 %rd1, %tid, 16, %rd39;\n{between}\nld.shared.v2.b64 {{%rd5, %rd6}}, [{read}];\n\
         mad.wide.u32 %rd7, %tid, 16, %out;\nst.global.v2.b64 [%rd7], {{%rd5, %rd6}};"
    );
    let data: Vec<u8> = (0..=255).chain(0..=255).collect();
    run(32, &body, &data, 512)
}

const COPY: &str = "cp.async.cg.shared.global [%r2], [%rd1], 16;";

#[test]
fn copies_arrive_at_their_wait() {
    let data: Vec<u8> = (0..=255).chain(0..=255).collect();
    for wait in ["cp.async.wait_all;", "cp.async.commit_group;\ncp.async.wait_group 0;"] {
        let (found, counts) = copy(&format!("{COPY}\n{wait}"), "%r2").unwrap();
        assert_eq!(found, data);
        assert_eq!((counts.sectors_loaded, counts.global_bytes_loaded, counts.bank_conflicts), (16, 512, 0));
    }
    // A group that is not complete is under way; so is one that the wait allows to be.
    for wait in ["cp.async.wait_group 0;", "cp.async.commit_group;\ncp.async.wait_group 1;", "bar.sync 0;"] {
        let fault = copy(&format!("{COPY}\n{wait}"), "%r2").unwrap_err();
        assert_eq!(fault.what, What::InFlight { offset: 0, other: 0 });
    }
    // Another lane's copy is there after its wait and a barrier.
    let wait = "cp.async.wait_all;";
    let fault = copy(&format!("{COPY}\n{wait}"), "%r4").unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { .. }), "{fault}");
    assert!(copy(&format!("{COPY}\n{wait}\nbar.sync 0;"), "%r4").is_ok());
    assert!(copy(&format!("{COPY}\n{wait}\nbar.warp.sync -1;"), "%r4").is_ok());
}

#[test]
fn groups_arrive_in_their_order() {
    let two = |wait: &str| {
        format!(
            "cp.async.ca.shared.global [%r2], [%rd1], 8;\ncp.async.commit_group;\nadd.u64 %rd2, %rd1, 8;\nadd.u32 %r3, %r2, 8;\n\
             cp.async.ca.shared.global [%r3], [%rd2], 8;\ncp.async.commit_group;\n{wait}\nld.shared.b64 %rd8, [%r2];"
        )
    };
    // The first group has arrived, the second need not have.
    let fault = copy(&two("cp.async.wait_group 1;"), "%r2").unwrap_err();
    assert_eq!(fault.what, What::InFlight { offset: 8, other: 0 });
    assert!(copy(&two("cp.async.wait_group 0;"), "%r2").is_ok());
    let fault = copy(&two("cp.async.wait_group 2;"), "%r2").unwrap_err();
    assert_eq!(fault.what, What::InFlight { offset: 0, other: 0 });
}

#[test]
fn copies_are_filled_with_zeros() {
    let short = "mov.u32 %r3, 6;\ncp.async.cg.shared.global [%r2], [%rd1], 16, %r3;\ncp.async.wait_all;";
    let (found, counts) = copy(short, "%r2").unwrap();
    for (at, &byte) in found.iter().enumerate() {
        assert_eq!(byte, if at % 16 < 6 { at as u8 } else { 0 });
    }
    assert_eq!(counts.global_bytes_loaded, 6 * 32);
    // Nothing is read, so the address may be anything that is aligned.
    let none = "mov.u64 %rd1, 4096;\nmov.u32 %r3, 0;\ncp.async.cg.shared.global [%r2], [%rd1], 16, %r3;\ncp.async.wait_all;";
    assert_eq!(copy(none, "%r2").unwrap().0, [0; 512]);
    let ignored =
        "setp.lt.u32 %p1, %tid, 16;\ncp.async.cg.shared.global [%r2], [%rd1], 16, %p1;\ncp.async.wait_all;";
    let found = copy(ignored, "%r2").unwrap().0;
    assert!(found[..256].iter().all(|&byte| byte == 0) && found[257] == 1);
}

#[test]
fn a_copy_overtakes_no_read() {
    // The second copy goes where lanes may still read.
    let body = format!(
        "{COPY}\ncp.async.wait_all;\nbar.warp.sync -1;\nld.shared.b32 %r9, [%r4];\nBARRIER\n{COPY}\ncp.async.wait_all;"
    );
    let fault = copy(&body.replace("BARRIER", ""), "%r2").unwrap_err();
    assert!(matches!(fault.what, What::SharedRace { write: true, other_write: false, .. }), "{fault}");
    assert!(copy(&body.replace("BARRIER", "bar.warp.sync -1;"), "%r2").is_ok());
}

#[test]
fn sectors_and_banks() {
    // Lane l accesses word l·stride of global and of shared memory.
    let counts = |stride: u32| {
        let body = format!(
            ".shared .align 16 .b8 s[8192];\nmov.u32 %r1, s;\nmul.lo.u32 %r2, %tid, {};\nadd.u32 %r3, %r2, %r1;\n\
             cvt.u64.u32 %rd1, %r2;\nadd.u64 %rd2, %rd1, %rd39;\nld.global.u32 %r4, [%rd2];\nst.shared.u32 [%r3], %r4;",
            4 * stride
        );
        run(32, &body, &[1; 8192], 4).unwrap().1
    };
    for (stride, sectors, conflicts) in
        [(1, 4, 0), (2, 8, 1), (3, 12, 0), (4, 16, 3), (8, 32, 7), (32, 32, 31), (33, 32, 0)]
    {
        let counts = counts(stride);
        assert_eq!((counts.sectors_loaded, counts.bank_conflicts), (sectors, conflicts), "stride {stride}");
    }
    // All lanes read one word: one sector, and no conflict.
    let body = ".shared .align 16 .b8 s[16];\nsetp.eq.u32 %p1, %tid, 0;\nmov.u32 %r1, 1;\n@%p1 st.shared.u32 [s], %r1;\n\
                bar.sync 0;\nld.shared.u32 %r2, [s];\nld.global.u32 %r3, [%rd39];";
    let (_, counts) = run(32, body, &[1; 4], 4).unwrap();
    assert_eq!((counts.sectors_loaded, counts.bank_conflicts, counts.global_bytes_loaded), (1, 0, 128));
    // 16 bytes a lane, side by side: a quarter of a warp at a time, without conflicts; 32 apart, two passes each.
    for (stride, conflicts) in [(16, 0), (32, 4), (48, 0)] {
        let body = format!(
            ".shared .align 16 .b8 s[2048];\nmov.u32 %r1, s;\nmad.lo.u32 %r2, %tid, {stride}, %r1;\nmov.b64 %rd1, 0;\n\
             st.shared.v2.b64 [%r2], {{%rd1, %rd1}};"
        );
        assert_eq!(run(32, &body, &[0], 4).unwrap().1.bank_conflicts, conflicts, "16 bytes, stride {stride}");
    }
}

#[test]
fn parameters_are_laid_out_as_declared() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u8 a,\n.param .u64 out,\n.param .u16 b,\n\
                .param .align 8 .b8 shape[12]\n)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [out];\n\
                ld.param.u8 %r1, [a];\nld.param.u16 %r2, [b];\nld.param.v2.u32 {%r3, %r4}, [shape];\n\
                mov.b64 %rd2, shape;\nld.param.u32 %r5, [%rd2+8];\nst.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};\n\
                st.global.u32 [%rd1+16], %r5;\nret;\n}\n";
    let module = Module::parse(text).unwrap();
    let mut device = Device::new();
    let out: Buffer = device.empty(20);
    let call = Call::line(1, 1).value(1_u8).writes(out).value(2_u16).align(8);
    let call = call.value(3_u32).value(4_u32).value(5_u32);
    call.run(&module, "k", &mut device).unwrap();
    assert_eq!(device.download::<u32>(out), [1, 2, 3, 4, 5]);
}

#[test]
fn the_host_sees_what_is_written() {
    let mut memory = Memory::new(200);
    assert_eq!((memory.len(), memory.is_empty(), memory.base() % 256), (200, false, 0));
    assert!(!memory.is_written(0..1));
    memory.write(60, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(memory.is_written(60..68) && !memory.is_written(59..61) && !memory.is_written(67..69));
    memory.forget(62..65);
    assert!(memory.is_written(60..62) && !memory.is_written(62..63) && memory.is_written(65..68));
    let mut bytes = [0; 8];
    memory.read(60, &mut bytes);
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn shared_memory_of_the_module_is_of_those_who_name_it() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.shared .align 8 .b8 one[40];\n\
                .extern .shared .align 16 .b8 more[];\n.shared .align 4 .b8 two[8];\n\
                .visible .entry a()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, two;\nst.shared.u32 [one+36], %r1;\nret;\n}\n\
                .visible .entry b()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, more;\nst.u32 [two+4], %r1;\nret;\n}\n\
                .visible .entry c()\n{\nret;\n}\n";
    let module = Module::parse(text).unwrap();
    let sizes = ["a", "b", "c", "d"].map(|kernel| module.static_shared(kernel));
    assert_eq!(sizes, [Some(48), Some(16), Some(0), None]);
    for kernel in ["a", "b", "c"] {
        assert!(Call::line(1, 1).run(&module, kernel, &mut Device::new()).is_ok(), "{kernel}");
    }
}
