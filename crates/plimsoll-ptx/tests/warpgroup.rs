//! `wgmma` against products of matrices, and against the layouts of matrices in shared memory and of fragments that the PTX manual gives.
//!
//! A layout has the address of each element, as the tables of the manual do; the matrices are scattered by it. Elements
//! are small whole numbers, so that all sums are exact.

use crate::common::{Call, Device, Numbers, snippet};
use plimsoll_ptx::{Fault, Module, What};

const SHARED: usize = 32 * 1024;

/// A matrix in shared memory: of A the lines are rows, of B columns.
#[derive(Clone, Copy)]
pub struct Layout {
    pub start: usize,
    /// From the first eight of what is summed over to the second.
    pub leading: usize,
    /// From eight lines to the next.
    pub stride: usize,
    /// Lines in succession side by side, not what is summed over.
    pub transposed: bool,
}

impl Layout {
    /// The byte at which an element begins: core matrices of eight pieces of 16 bytes; a piece is of one line, or of one of what is summed over.
    pub fn place(self, line: usize, k: usize) -> usize {
        let (piece, within) = if self.transposed { (k % 8, line % 8) } else { (line % 8, k % 8) };
        self.start + line / 8 * self.stride + k / 8 * self.leading + 16 * piece + 2 * within
    }

    /// Start, leading and stride in units of 16 bytes, from bits 0, 16 and 32 on.
    pub fn descriptor(self) -> usize {
        [self.start, self.leading, self.stride].iter().rev().fold(0, |all, bytes| (all << 16) | (bytes / 16))
    }
}

/// A product of one instruction.
struct Product {
    columns: usize,
    bf16: bool,
    /// In shared memory; in registers otherwise.
    a: Option<Layout>,
    b: Layout,
    add: bool,
    signs: [i32; 2],
}

/// Those of a warp group's lanes: rows 16w to 16w + 15 in warp w, of which a lane has two, eight apart.
pub fn sum_place(thread: usize, i: usize) -> (usize, usize) {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = 16 * warp + lane / 4 + if i / 2 % 2 == 1 { 8 } else { 0 };
    (row, 8 * (i / 4) + lane % 4 * 2 + (i & 1))
}

/// The same of rows of A that registers hold.
pub fn row_place(thread: usize, i: usize) -> (usize, usize) {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = 16 * warp + lane / 4 + if matches!(i, 2 | 3 | 6 | 7) { 8 } else { 0 };
    (row, lane % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
}

/// The bits of a whole number up to 8.
fn encode(value: i32, bf16: bool) -> u16 {
    let bits = (value as f32).to_bits();
    if bf16 {
        return (bits >> 16) as u16;
    }
    if value == 0 {
        return 0;
    }
    // Exponents count from 15 and not from 127; three digits are enough.
    let (sign, exponent, digits) = (bits >> 31, bits >> 23 & 0xff, bits >> 13 & 0x3ff);
    (sign << 15 | (exponent - 112) << 10 | digits) as u16
}

impl Product {
    fn instruction(&self) -> String {
        let list = |name: &str, count: usize| {
            let names: Vec<String> = (0..count).map(|register| format!("{name}{register}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let kind = if self.bf16 { "bf16" } else { "f16" };
        let mut text = format!(
            "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{kind}.{kind} {}, ",
            self.columns,
            list("%d", self.columns / 2)
        );
        text += &match self.a {
            Some(_) => "%rd20".into(),
            None => list("%a", 4),
        };
        text += &format!(
            ", %rd21, {}, {}, {}",
            if self.add { "%p1" } else { "%p2" },
            self.signs[0],
            self.signs[1]
        );
        for layout in self.a.iter().chain([&self.b]) {
            text += &format!(", {}", i32::from(layout.transposed));
        }
        text + ";"
    }

    /// A kernel that fills shared memory, loads registers, multiplies and stores the sums.
    fn body(&self) -> String {
        let each = self.columns / 2;
        let mut body = format!(
            ".reg .f32 %d<{each}>;\n.reg .b32 %a<4>;\n.shared .align 128 .b8 s[{SHARED}];\n\
             ld.param.u64 %rd1, [image];\nmov.u32 %r1, %tid;\n\
             COPY:\nmul.wide.u32 %rd2, %r1, 16;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.v4.b32 {{%r2,%r3,%r4,%r5}}, [%rd3];\n\
             shl.b32 %r6, %r1, 4;\nst.shared.v4.b32 [%r6], {{%r2,%r3,%r4,%r5}};\nadd.u32 %r1, %r1, 128;\n\
             setp.lt.u32 %p3, %r1, {};\n@%p3 bra COPY;\n",
            SHARED / 16
        );
        body += &format!("ld.param.u64 %rd1, [sums];\nmad.wide.u32 %rd1, %tid, {}, %rd1;\n", 4 * each);
        for register in 0..each {
            body += &format!("ld.global.f32 %d{register}, [%rd1+{}];\n", 4 * register);
        }
        body += "ld.param.u64 %rd1, [rows];\nmad.wide.u32 %rd1, %tid, 16, %rd1;\nld.global.v4.b32 {%a0,%a1,%a2,%a3}, [%rd1];\n";
        let descriptor = |layout: Layout| layout.descriptor();
        body += &format!(
            "mov.b64 %rd20, {};\nmov.b64 %rd21, {};\nsetp.eq.u32 %p1, 0, 0;\nsetp.ne.u32 %p2, 0, 0;\n",
            self.a.map_or(0, descriptor),
            descriptor(self.b)
        );
        body += "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
        body += &self.instruction();
        body += "\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
        body += &format!("mad.wide.u32 %rd1, %tid, {}, %out;\n", 4 * each);
        for register in 0..each {
            body += &format!("st.global.f32 [%rd1+{}], %d{register};\n", 4 * register);
        }
        body
    }

    /// Runs a body of it on random matrices: what was expected of each row and column, and what was found.
    fn run(&self, body: &str, threads: u32) -> Result<[Vec<f32>; 2], Fault> {
        let mut numbers = Numbers(self.columns as u32);
        let mut random =
            |count: usize| (0..count).map(|_| (numbers.bits() % 17) as i32 - 8).collect::<Vec<i32>>();
        let columns = self.columns;
        let (a, b, c) = (random(64 * 16), random(columns * 16), random(64 * columns));
        let mut image: Vec<u16> =
            random(SHARED / 2).into_iter().map(|value| encode(value, self.bf16)).collect();
        let mut scatter = |layout: Layout, lines: usize, values: &[i32]| {
            for line in 0..lines {
                for k in 0..16 {
                    image[layout.place(line, k) / 2] = encode(values[line * 16 + k], self.bf16);
                }
            }
        };
        if let Some(layout) = self.a {
            scatter(layout, 64, &a);
        }
        scatter(self.b, columns, &b);
        let each = columns / 2;
        let sums: Vec<f32> = (0..128 * each)
            .map(|at| {
                let (row, column) = sum_place(at / each, at % each);
                c[row * columns + column] as f32
            })
            .collect();
        let rows: Vec<u16> = (0..128 * 8)
            .map(|at| {
                let (row, k) = row_place(at / 8, at % 8);
                encode(a[row * 16 + k], self.bf16)
            })
            .collect();
        let mut device = Device::new();
        let out = device.empty(4 * 128 * each);
        let (image, sums, rows) = (device.upload(&image), device.upload(&sums), device.upload(&rows));
        let module = snippet(", .param .u64 image, .param .u64 sums, .param .u64 rows", body);
        let call = Call::line(1, threads).writes(out).reads(image).reads(sums).reads(rows);
        let counts = call.run(&module, "k", &mut device)?;
        assert_eq!(counts.warpgroup_mma % 4, 0);
        let stored: Vec<f32> = device.download(out);
        let mut found = vec![f32::NAN; 64 * columns];
        for (at, value) in stored.into_iter().enumerate() {
            let (row, column) = sum_place(at / each, at % each);
            assert!(found[row * columns + column].is_nan(), "an element that two lanes hold");
            found[row * columns + column] = value;
        }
        let expected = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let sum: i32 = (0..16).map(|k| a[row * 16 + k] * b[column * 16 + k]).sum();
            let before = if self.add { c[at] } else { 0 };
            (before + sum * self.signs[0] * self.signs[1]) as f32
        };
        Ok([(0..64 * columns).map(expected).collect(), found])
    }

    fn check(&self) {
        let [expected, found] = self.run(&self.body(), 128).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(found, expected, "{}", self.instruction());
    }
}

/// Core matrices of B one behind the other, from 16 KiB on.
fn dense(columns: usize) -> Layout {
    Layout { start: 16 * 1024, leading: columns * 16, stride: 128, transposed: false }
}

#[test]
fn rows_come_from_registers_or_from_shared_memory_and_columns_from_there() {
    for bf16 in [true, false] {
        for columns in [8, 24, 64, 128, 256] {
            // Rows like the places in a box of ten by ten voxels: planes of 1,616 bytes, rows 160 bytes apart.
            let of_box = Layout { start: 208, leading: 1616, stride: 160, transposed: false };
            for a in [None, Some(of_box)] {
                let b = dense(columns);
                Product { columns, bf16, a, b, add: true, signs: [1, 1] }.check();
            }
        }
    }
}

#[test]
fn both_matrices_may_be_transposed_wherever_they_lie() {
    let columns = 40;
    for (leading, stride) in [(128, 256), (1024, 128), (1040, 2064)] {
        for transposed in [[true, false], [false, true], [true, true]] {
            let a = Layout { start: 0, leading: 1024 + 16, stride: 128, transposed: transposed[0] };
            let b = Layout { start: 16 * 1024 + 48, leading, stride, transposed: transposed[1] };
            Product { columns, bf16: true, a: Some(a), b, add: true, signs: [1, 1] }.check();
        }
        let b = Layout { start: 16 * 1024, leading, stride, transposed: true };
        Product { columns, bf16: false, a: None, b, add: true, signs: [1, 1] }.check();
    }
}

#[test]
fn products_are_added_or_not_and_have_their_signs() {
    for add in [true, false] {
        for signs in [[1, 1], [-1, 1], [1, -1], [-1, -1]] {
            Product { columns: 16, bf16: true, a: None, b: dense(16), add, signs }.check();
        }
    }
}

fn usual() -> Product {
    let a = Layout { start: 0, leading: 1024, stride: 128, transposed: false };
    Product { columns: 16, bf16: true, a: Some(a), b: dense(16), add: true, signs: [1, 1] }
}

/// Returns the fault of a product in whose kernel one text is replaced by another.
fn fault(product: &Product, from: &str, to: &str) -> What {
    let body = product.body();
    assert!(body.contains(from), "{from}");
    match product.run(&body.replacen(from, to, 1), 128) {
        Ok(_) => panic!("nobody minds {to} instead of {from}"),
        Err(fault) => fault.what,
    }
}

const FENCE: &str = "wgmma.fence.sync.aligned;\n";
const COMMIT: &str = "\nwgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";
const PUBLISH: &str = "fence.proxy.async.shared::cta;\n";

#[test]
fn sums_and_rows_are_left_alone_until_the_wait() {
    let multiplying = |register: &str| What::Multiplying { register: register.into() };
    // No wait, one for a group too few, none that the product is committed to.
    for (from, to) in [(WAIT, ""), (WAIT, "wgmma.wait_group.sync.aligned 1;\n"), (COMMIT, "\n")] {
        assert_eq!(fault(&usual(), from, to), multiplying("%d0"), "{to}");
    }
    for access in ["mov.f32 %d3, 0f00000000;", "mov.f32 %f1, %d3;", "add.f32 %f1, %d3, %d3;"] {
        assert_eq!(fault(&usual(), COMMIT, &format!("{access}{COMMIT}")), multiplying("%d3"), "{access}");
    }
    let from_registers = Product { a: None, ..usual() };
    assert_eq!(fault(&from_registers, COMMIT, &format!("mov.b32 %a1, 0;{COMMIT}")), multiplying("%a1"));
    // Another product of the same shape may add to the sums, one of another shape may not.
    let narrow = Product { columns: 8, ..usual() }.instruction();
    assert_eq!(fault(&usual(), COMMIT, &format!("{narrow}{COMMIT}")), multiplying("%d0"));
    let twice = usual().body().replacen(COMMIT, &format!("{}{COMMIT}", usual().instruction()), 1);
    assert!(usual().run(&twice, 128).is_ok());
}

#[test]
fn a_fence_stands_between_other_accesses_to_registers_and_products() {
    assert_eq!(fault(&usual(), FENCE, ""), What::Unfenced { register: None });
    let accessed = What::Unfenced { register: Some("%d2".into()) };
    for access in ["mov.f32 %d2, 0f00000000;\n", "mov.f32 %f1, %d2;\n"] {
        assert_eq!(fault(&usual(), FENCE, &format!("{FENCE}{access}")), accessed, "{access}");
    }
    let again = format!("{WAIT}add.f32 %d2, %d2, %d2;\n{}{COMMIT}{WAIT}", usual().instruction());
    assert_eq!(fault(&usual(), WAIT, &again), accessed);
    let untouched = format!("{WAIT}{}{COMMIT}{WAIT}", usual().instruction());
    assert!(usual().run(&usual().body().replacen(WAIT, &untouched, 1), 128).is_ok());
}

#[test]
fn what_is_multiplied_is_published_and_stays_until_the_wait() {
    for to in ["", "fence.proxy.async.global;\n"] {
        assert!(matches!(fault(&usual(), PUBLISH, to), What::Unpublished { other: 0, .. }), "{to}");
    }
    // Published by others than those who wrote it, or too late.
    let late = format!("bar.sync 0;\n{PUBLISH}");
    let found = fault(&usual(), &format!("{PUBLISH}bar.sync 0;\n"), &late);
    assert!(matches!(found, What::Unpublished { .. }), "{found}");
    let found =
        fault(&usual(), PUBLISH, &format!("{PUBLISH}shl.b32 %r7, %tid, 4;\nst.shared.b32 [%r7], %r2;\n"));
    assert!(matches!(found, What::Unpublished { .. }), "{found}");
    // No barrier at all.
    let found = fault(&usual(), "bar.sync 0;\n", "");
    assert!(matches!(found, What::UnwrittenShared { .. } | What::SharedRace { .. }), "{found}");
    // Written by the same thread, by another warp that has passed a barrier, and by a copy in the background.
    let to_row = "mov.u32 %r7, 0;\n";
    for write in [
        "st.shared.b32 [0], %r2;\n",
        "bar.sync 0;\nst.shared.b32 [%r1], %r2;\n",
        "ld.param.u64 %rd1, [image];\ncp.async.ca.shared.global [0], [%rd1], 16;\n",
    ] {
        let found = fault(&usual(), COMMIT, &format!("{COMMIT}{to_row}shl.b32 %r1, %tid, 2;\n{write}"));
        assert!(matches!(found, What::Multiplied { .. }), "{write}: {found}");
    }
    // The rows of warp 3 are written by warp 0, which has waited for its own products, but not for the products of warp 3.
    let found =
        fault(&usual(), WAIT, &format!("{WAIT}setp.eq.u32 %p4, %tid, 0;\n@%p4 st.shared.b32 [896], %r2;\n"));
    assert!(matches!(found, What::SharedRace { .. }), "{found}");
    let behind = format!("{WAIT}bar.sync 0;\nsetp.eq.u32 %p4, %tid, 0;\n@%p4 st.shared.b32 [896], %r2;\n");
    assert!(usual().run(&usual().body().replacen(WAIT, &behind, 1), 128).is_ok());
}

#[test]
fn four_whole_warps_come_to_the_same_products() {
    let instruction = usual().instruction();
    let skipped = format!("setp.ge.u32 %p4, %tid, 96;\n@%p4 bra BEHIND;\n{instruction}\nBEHIND:");
    assert_eq!(fault(&usual(), &instruction, &skipped), What::GroupDivergence);
    let other = "setp.ge.u32 %p4, %tid, 96;\n@%p4 add.u64 %rd21, %rd21, 1;\n";
    assert_eq!(fault(&usual(), FENCE, &format!("{other}{FENCE}")), What::GroupDivergence);
    let of_lane = "setp.eq.u32 %p4, %tid, 5;\n@%p4 add.u64 %rd21, %rd21, 1;\n";
    assert!(matches!(fault(&usual(), FENCE, &format!("{of_lane}{FENCE}")), What::Operand(_)));
    assert!(matches!(
        fault(&usual(), FENCE, &format!("setp.eq.u32 %p1, %tid, 5;\n{FENCE}")),
        What::Operand(_) | What::GroupDivergence
    ));
    let returned = fault(&usual(), FENCE, &format!("setp.eq.u32 %p4, %tid, 9;\n@%p4 ret;\n{FENCE}"));
    assert_eq!(returned, What::WarpDivergence { needed: u32::MAX, arrived: !(1 << 9) });
    let shorter = usual().body().replacen("%r1, %r1, 128", "%r1, %r1, 96", 1);
    assert_eq!(usual().run(&shorter, 96).unwrap_err().what, What::GroupDivergence);
}

#[test]
fn descriptors_that_are_not_known_are_told() {
    let product = usual();
    let known = product.b.descriptor();
    // A swizzle of 128 bytes, and a base offset.
    for bit in [62, 49] {
        let wanted = format!("mov.b64 %rd21, {}", known | 1 << bit);
        let found = fault(&product, &format!("mov.b64 %rd21, {known}"), &wanted);
        assert!(matches!(&found, What::Operand(what) if what.contains("swizzle")), "{found}");
    }
    let found = fault(&product, &format!("mov.b64 %rd21, {known}"), "mov.b64 %rd21, 16383");
    assert!(matches!(found, What::OutsideShared { .. }), "{found}");
}

#[test]
fn other_forms_are_errors() {
    let text = |instruction: &str| {
        format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n.reg .f32 %d<4>;\n.reg .b32 %r<5>;\n\
             .reg .b64 %rd<5>;\n.reg .pred %p<2>;\n{instruction}\nret;\n}}\n"
        )
    };
    let right =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0,%d1,%d2,%d3}, %rd1, %rd2, %p1, 1, 1, 0, 0;";
    assert!(Module::parse(&text(right)).is_ok());
    for (from, to) in [
        ("m64n8k16", "m64n12k16"),
        ("m64n8k16", "m64n264k16"),
        ("m64n8k16", "m64n8k8"),
        ("f32.bf16.bf16", "f32.tf32.tf32"),
        ("f32.bf16.bf16", "f32.bf16.f16"),
        ("f32.bf16.bf16", "f16.f16.f16"),
        (".sync.aligned", ""),
        ("mma_async", "mma_async.sp"),
        ("%d2,%d3", "%d2"),
        ("%rd1, %rd2", "{%r1,%r2,%r3}, %rd2"),
        ("1, 1, 0, 0", "1, 2, 0, 0"),
        ("1, 1, 0, 0", "1, 1, 0"),
        ("1, 1, 0, 0", "1, 1, 0, 2"),
        ("%p1", "%r1"),
    ] {
        let changed = right.replacen(from, to, 1);
        assert!(Module::parse(&text(&changed)).is_err(), "{changed}");
    }
    for other in ["wgmma.wait_group.sync.aligned %r1;", "wgmma.fence;", "wgmma.commit_group.sync.aligned 1;"]
    {
        assert!(Module::parse(&text(other)).is_err(), "{other}");
    }
}
