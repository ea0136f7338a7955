//! Unsupported constructs are reported with their line.

use crate::common::{Call, Device, Numbers};
use plimsoll_ptx::{Module, ParseError};

fn parse(body: &str) -> Result<Module, ParseError> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n.reg .pred %p<5>;\n.reg .b16 %h<5>;\n\
         .reg .b32 %r<5>;\n.reg .b64 %rd<5>;\n{body}\nret;\n}}\n"
    );
    Module::parse(&text)
}

#[test]
fn unknown_instructions_name_their_line() {
    for (body, wanted) in [
        ("frob.u32 %r1, %r2;", "`frob`"),
        ("add.u32.frob %r1, %r2, %r3;", "frob"),
        ("add.u32 %r1, %r2;", "operands"),
        ("add.u32 %r9, %r2, %r3;", "`%r9`"),
        ("mov.u32 %r1, %clock;", "%clock"),
        ("bra NOWHERE;", "NOWHERE"),
        ("call.uni vprintf, (%rd1);", "vprintf"),
        ("call (%r1), cube, (%r2);", "cube"),
        (".param .b32 p; st.param.b32 [p], %r1; call.uni (%r2), root, (p);", "root"),
        ("wgmma.fence.aligned;", ".sync.aligned"),
        ("mbarrier.init.shared.b64 [%rd1], 1;", "mbarrier"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 12;", "4, 8 or 16"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "16"),
        (
            "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1}, {%r1,%r1,%r1,%r1};",
            "`mma`",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1}, {%r1}, {%r1,%r1,%r1,%r1};",
            "registers",
        ),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];", "matrices"),
        ("mul.rz.f64 %rd1, %rd2, %rd3;", "f64"),
        ("setp.foo.s32 %p1, %r1, %r2;", "comparison"),
        ("setp.ltu.s32 %p1, %r1, %r2;", "comparison"),
        ("shfl.up.b32 %r1, %r2, 1, 0;", ".sync"),
        ("ld.global.v2.u32 %r1, [%rd1];", "elements"),
        ("selp.b32 %r1, %r2, %r3, %r4;", "predicate"),
    ] {
        let Err(error) = parse(body) else { panic!("{body} was accepted") };
        assert_eq!(error.line, 10, "{error}");
        assert_eq!(error.text, body, "{error}");
        assert!(error.what.contains(wanted), "{error}");
        assert!(error.to_string().starts_with("line 10 of the PTX: "), "{error}");
    }
}

#[test]
fn broken_text_is_an_error() {
    for text in [
        ".entry k(.param .u64 a) { ret;",
        ".entry k(.param .u64 a { ret; }",
        ".entry",
        ".address_size 32",
        ".shared .align 4 .b8 s[99999999999999999999];",
        ".shared .align 4 .b8 s[-4];",
        ".shared .align 4 .b8 s[4294967295][4294967295];",
        "nonsense",
        ".pragma \"open",
        "\u{e9}",
        ".entry k() { add.u32 %r1, %r2, %r3 }",
        ".entry k() { .reg .b32 %r<x>; }",
        ".entry k() { .reg .q32 %r<2>; }",
        ".entry k() { @ }",
        ".entry k() { .reg .b128 %r<2>; }",
    ] {
        assert!(Module::parse(text).is_err(), "{text}");
    }
    assert_eq!(Module::parse("").unwrap().kernels().count(), 0);
}

#[test]
fn comments_scopes_and_labels() {
    let module = parse(
        "/* a comment\n over two lines */ mov.u32 %r1, 0; // and another\n.loc 1 2 3\n\
         { .reg .b32 low; mov.u32 low, 1; bra INNER; INNER: add.u32 %r1, low, 1; }\n\
         { .reg .b32 low; mov.u32 low, 2; bra INNER; INNER: bra OUTER; }\nOUTER: .pragma \"nounroll\";\n\
         @!%p1 bra OUTER;",
    );
    assert!(module.is_ok(), "{:?}", module.err());
    // What a scope declares ends with it.
    assert!(parse("{ .reg .b32 low; mov.u32 low, 1; }\nmov.u32 low, 2;").is_err());
}

#[test]
fn debugging_and_functions_are_skipped_until_they_are_called() {
    let text = ".version 8.0\n.target sm_90a, debug\n.address_size 64\n.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n\
                .func helper(.param .b32 a)\n{\n.reg .b32 %r<2>;\nret;\n}\n\
                .visible .entry k()\n.maxntid 64, 2, 1\n.minnctapersm 2\n{\nret;\n}\n";
    let module = Module::parse(text).unwrap();
    assert_eq!(module.target(), "sm_90a");
    assert_eq!(module.kernels().collect::<Vec<_>>(), ["k"]);
}

#[test]
fn no_text_makes_it_panic() {
    let original = include_str!("kernels/mistakes.ptx");
    let words: Vec<&str> = original.split_inclusive([' ', '\t', '\n', ',', ';', '.', ']']).collect();
    let mut numbers = Numbers(11);
    let mut parsed = 0;
    for _ in 0..400 {
        // A word is left out, doubled, or replaced by another.
        let mut text = words.clone();
        let (at, other) = (numbers.bits() as usize % words.len(), numbers.bits() as usize % words.len());
        match numbers.bits() % 3 {
            0 => text[at] = "",
            1 => text.insert(at, words[at]),
            _ => text[at] = words[other],
        }
        let Ok(module) = Module::parse(&text.concat()) else { continue };
        parsed += 1;
        let module = module.with_limit(2000);
        let names: Vec<String> = module.kernels().map(str::to_owned).collect();
        for kernel in names {
            let mut device = Device::new();
            let (x, y) = (device.upload(&[1_i32; 128]), device.upload(&[0_i32; 128]));
            // Its result does not matter: it may be right, a fault, or an impossible launch.
            let _ = Call::line(2, 64).shared(64).reads(x).writes(y).value(2_i32).run(
                &module,
                &kernel,
                &mut device,
            );
        }
    }
    assert!(parsed > 20, "{parsed}");
}

#[test]
fn hints_of_order_and_caches_are_understood() {
    for body in [
        "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];",
        "ld.volatile.global.u32 %r1, [%rd1];",
        "ld.relaxed.gpu.global.u32 %r1, [%rd1];",
        "ld.global.cg.u32 %r1, [%rd1];",
        "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;",
        "st.global.cs.u32 [%rd1], %r1;",
        "st.release.gpu.global.u32 [%rd1], %r1;",
        "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1;",
        "atom.add.release.gpu.global.u32 %r1, [%rd1], 1;",
        "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16;",
        "cp.async.ca.shared::cta.global.L2::cache_hint [%r1], [%rd1], 4, %r2, %rd2;",
        "prefetch.global.L2 [%rd1];",
        "membar.gl;",
        "fence.acq_rel.gpu;",
        "fence.proxy.async;",
        "nanosleep.u32 20;",
        "barrier.sync.aligned 0;",
        "barrier.cta.sync 1, 64;",
    ] {
        assert!(parse(body).is_ok(), "{:?}", parse(body).err());
    }
}
