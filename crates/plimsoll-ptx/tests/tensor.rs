//! `mma.sync` and `ldmatrix` against products of matrices and the layouts of fragments that the PTX manual gives.
//!
//! Here a layout says for each element of a lane which row and column it is, as the formulas of the manual do; the
//! matrices are scattered into registers by it. Elements are small whole numbers, so that all sums are exact.

use crate::common::{Call, Device, Numbers, snippet};
use plimsoll_ptx::{Module, What};

/// A number format in registers.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    F16,
    Bf16,
    /// One element a register: f32, and tf32, which looks like it.
    F32,
}

impl Format {
    fn in_register(self) -> usize {
        if self == Format::F32 { 1 } else { 2 }
    }

    /// The bits of a whole number below 2048.
    fn encode(self, value: f32) -> u32 {
        match self {
            Format::F32 => value.to_bits(),
            Format::Bf16 => value.to_bits() >> 16,
            Format::F16 if value == 0.0 => 0,
            Format::F16 => {
                let (sign, size) = (u32::from(value < 0.0) << 15, value.abs());
                let exponent = size.log2().floor();
                let fraction = (size / exponent.exp2() - 1.0) * 1024.0;
                sign | (exponent as u32 + 15) << 10 | fraction as u32
            }
        }
    }

    fn decode(self, bits: u32) -> f32 {
        match self {
            Format::F32 => f32::from_bits(bits),
            Format::Bf16 => f32::from_bits(bits << 16),
            Format::F16 if bits & 0x7c00 == 0 => 0.0,
            Format::F16 => {
                let size =
                    (1.0 + (bits & 0x3ff) as f32 / 1024.0) * 2.0_f32.powi((bits >> 10 & 31) as i32 - 15);
                if bits >> 15 & 1 == 1 { -size } else { size }
            }
        }
    }
}

/// Row and column of element `i` of a lane; for m8n8k4 also which of the four products it is of.
type Layout = fn(lane: usize, i: usize) -> (usize, usize, usize);

/// A fragment: its format, elements in a lane, layout.
#[derive(Clone, Copy)]
struct Fragment {
    format: Format,
    elements: usize,
    layout: Layout,
}

fn fragment(format: Format, elements: usize, layout: Layout) -> Fragment {
    Fragment { format, elements, layout }
}

/// `[product][row][column]`.
type Matrices = Vec<Vec<Vec<f32>>>;

impl Fragment {
    fn registers(self) -> usize {
        self.elements / self.format.in_register()
    }

    /// The registers of all lanes, one lane after the other.
    fn scatter(self, matrices: &Matrices) -> Vec<u32> {
        let mut words = vec![0; 32 * self.registers()];
        for lane in 0..32 {
            for i in 0..self.elements {
                let (product, row, column) = (self.layout)(lane, i);
                let bits = self.format.encode(matrices[product][row][column]);
                let packed = self.format.in_register();
                words[lane * self.registers() + i / packed] |= bits << (16 * (i % packed));
            }
        }
        words
    }

    fn gather(self, words: &[u32], rows: usize, columns: usize, products: usize) -> Matrices {
        let mut matrices = vec![vec![vec![f32::NAN; columns]; rows]; products];
        for lane in 0..32 {
            for i in 0..self.elements {
                let (product, row, column) = (self.layout)(lane, i);
                let packed = self.format.in_register();
                let word = words[lane * self.registers() + i / packed] >> (16 * (i % packed));
                let bits = if packed == 2 { word & 0xffff } else { word };
                assert!(matrices[product][row][column].is_nan(), "an element that two lanes hold");
                matrices[product][row][column] = self.format.decode(bits);
            }
        }
        matrices
    }
}

/// A kernel that loads the registers of its lane, multiplies and stores.
fn kernel(instruction: &str, [d, a, b, c]: [usize; 4]) -> Module {
    let mut body = String::new();
    for (name, first, count) in [("a", 10, a), ("b", 20, b), ("c", 30, c)] {
        body += &format!("ld.param.u64 %rd1, [{name}];\nmad.wide.u32 %rd1, %tid, {}, %rd1;\n", 4 * count);
        for register in 0..count {
            body += &format!("ld.global.b32 %r{}, [%rd1+{}];\n", first + register, 4 * register);
        }
    }
    let list = |first: usize, count: usize| {
        let names: Vec<String> = (first..first + count).map(|register| format!("%r{register}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    body += &format!("{instruction} {}, {}, {}, {};\n", list(40, d), list(10, a), list(20, b), list(30, c));
    body += &format!("mad.wide.u32 %rd1, %tid, {}, %out;\n", 4 * d);
    for register in 0..d {
        body += &format!("st.global.b32 [%rd1+{}], %r{};\n", 4 * register, 40 + register);
    }
    snippet(", .param .u64 a, .param .u64 b, .param .u64 c", &body)
}

/// Runs an instruction on random matrices and compares with sums of products.
fn check(instruction: &str, [m, n, k]: [usize; 3], [d, a, b, c]: [Fragment; 4]) {
    let products = if [m, n, k] == [8, 8, 4] { 4 } else { 1 };
    let mut numbers = Numbers(m as u32 + k as u32);
    let mut random = |rows: usize, columns: usize| -> Matrices {
        let mut value = || (numbers.bits() % 17) as f32 - 8.0;
        (0..products).map(|_| (0..rows).map(|_| (0..columns).map(|_| value()).collect()).collect()).collect()
    };
    let (ma, mb, mc) = (random(m, k), random(k, n), random(m, n));
    let mut device = Device::new();
    let (fa, fb, fc) =
        (device.upload(&a.scatter(&ma)), device.upload(&b.scatter(&mb)), device.upload(&c.scatter(&mc)));
    let fd = device.empty(4 * 32 * d.registers());
    let module = kernel(instruction, [d, a, b, c].map(Fragment::registers));
    let counts =
        Call::line(1, 32).writes(fd).reads(fa).reads(fb).reads(fc).run(&module, "k", &mut device).unwrap();
    assert_eq!(counts.mma, 1);
    let result = d.gather(&device.download::<u32>(fd), m, n, products);
    for product in 0..products {
        for row in 0..m {
            for column in 0..n {
                let sum: f32 = (0..k).map(|at| ma[product][row][at] * mb[product][at][column]).sum();
                let expected = sum + mc[product][row][column];
                let found = result[product][row][column];
                assert_eq!(found, expected, "{instruction}: product {product}, row {row}, column {column}");
            }
        }
    }
}

/// The layouts of fragments by the manual's formulas: of A rows and terms of the sum, of B terms and columns, of sums rows and columns.
pub mod layouts {
    /// C and D of all shapes with 16 rows: `c0, c1` in row groupID, `c2, c3` eight below.
    pub fn sums(lane: usize, i: usize) -> (usize, usize, usize) {
        let (group, thread) = (lane >> 2, lane % 4);
        (0, if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
    }

    pub fn a_m16n8k16(lane: usize, i: usize) -> (usize, usize, usize) {
        let (group, thread) = (lane >> 2, lane % 4);
        let row = if (0..2).contains(&i) || (4..6).contains(&i) { group } else { group + 8 };
        (0, row, if i < 4 { thread * 2 + (i & 1) } else { thread * 2 + (i & 1) + 8 })
    }

    pub fn b_m16n8k16(lane: usize, i: usize) -> (usize, usize, usize) {
        let (group, thread) = (lane >> 2, lane % 4);
        (0, if i < 2 { thread * 2 + (i & 1) } else { thread * 2 + (i & 1) + 8 }, group)
    }

    pub fn a_m16n8k8(lane: usize, i: usize) -> (usize, usize, usize) {
        let (group, thread) = (lane >> 2, lane % 4);
        (0, if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
    }

    pub fn b_m16n8k8(lane: usize, i: usize) -> (usize, usize, usize) {
        (0, lane % 4 * 2 + i, lane >> 2)
    }

    pub fn a_tf32(lane: usize, i: usize) -> (usize, usize, usize) {
        let (group, thread) = (lane >> 2, lane % 4);
        let row = if i == 0 || i == 2 { group } else { group + 8 };
        (0, row, if i < 2 { thread } else { thread + 4 })
    }

    pub fn b_tf32(lane: usize, i: usize) -> (usize, usize, usize) {
        (0, if i == 0 { lane % 4 } else { lane % 4 + 4 }, lane >> 2)
    }

    /// The number of a product of Volta: the one of lanes 4q to 4q+3 and 16 above.
    fn product(lane: usize) -> usize {
        match lane % 16 {
            0..4 => 0,
            4..8 => 1,
            8..12 => 2,
            _ => 3,
        }
    }

    /// `index` in the low lanes, four more in the high ones.
    fn low_or_high(lane: usize, index: usize) -> usize {
        if lane < 16 { index } else { index + 4 }
    }

    pub fn a_rows_m8n8k4(lane: usize, i: usize) -> (usize, usize, usize) {
        (product(lane), low_or_high(lane, lane % 4), i)
    }

    pub fn a_columns_m8n8k4(lane: usize, i: usize) -> (usize, usize, usize) {
        (product(lane), low_or_high(lane, i), lane % 4)
    }

    pub fn b_rows_m8n8k4(lane: usize, i: usize) -> (usize, usize, usize) {
        (product(lane), lane % 4, low_or_high(lane, i))
    }

    pub fn b_columns_m8n8k4(lane: usize, i: usize) -> (usize, usize, usize) {
        (product(lane), i, low_or_high(lane, lane % 4))
    }

    pub fn f32_m8n8k4(lane: usize, i: usize) -> (usize, usize, usize) {
        let x = (lane & 0b1) + (i & 0b10);
        (product(lane), low_or_high(lane, x), (i & 0b100) + (lane & 0b10) + (i & 0b1))
    }
}

fn sums(format: Format) -> Fragment {
    fragment(format, 4, layouts::sums)
}

#[test]
fn m16n8k16() {
    for (name, format) in [("f16", Format::F16), ("bf16", Format::Bf16)] {
        let a = fragment(format, 8, layouts::a_m16n8k16);
        let b = fragment(format, 4, layouts::b_m16n8k16);
        let f32 = sums(Format::F32);
        let instruction = format!("mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32");
        check(&instruction, [16, 8, 16], [f32, a, b, f32]);
        if format == Format::F16 {
            let f16 = sums(Format::F16);
            check("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", [16, 8, 16], [f16, a, b, f16]);
        }
    }
}

#[test]
fn m16n8k8() {
    for (name, format) in [("f16", Format::F16), ("bf16", Format::Bf16)] {
        let a = fragment(format, 4, layouts::a_m16n8k8);
        let b = fragment(format, 2, layouts::b_m16n8k8);
        let f32 = sums(Format::F32);
        let instruction = format!("mma.sync.aligned.m16n8k8.row.col.f32.{name}.{name}.f32");
        check(&instruction, [16, 8, 8], [f32, a, b, f32]);
        if format == Format::F16 {
            let f16 = sums(Format::F16);
            check("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", [16, 8, 8], [f16, a, b, f16]);
        }
    }
}

#[test]
fn tf32() {
    let f32 = sums(Format::F32);
    let a = fragment(Format::F32, 4, layouts::a_tf32);
    let b = fragment(Format::F32, 2, layouts::b_tf32);
    check("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", [16, 8, 8], [f32, a, b, f32]);
    let a =
        fragment(Format::F32, 2, |lane, i| (0, if i == 0 { lane >> 2 } else { (lane >> 2) + 8 }, lane % 4));
    let b = fragment(Format::F32, 1, |lane, _| (0, lane % 4, lane >> 2));
    check("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", [16, 8, 4], [f32, a, b, f32]);
}

#[test]
fn m8n8k4_on_quarters_of_a_warp() {
    // Sums of f16 lie like rows of A.
    let f16: Layout = layouts::a_rows_m8n8k4;
    for (a_name, a) in [("row", layouts::a_rows_m8n8k4 as Layout), ("col", layouts::a_columns_m8n8k4)] {
        for (b_name, b) in [("row", layouts::b_rows_m8n8k4 as Layout), ("col", layouts::b_columns_m8n8k4)] {
            for (d_name, d) in [
                ("f16", fragment(Format::F16, 8, f16)),
                ("f32", fragment(Format::F32, 8, layouts::f32_m8n8k4)),
            ] {
                for (c_name, c) in [
                    ("f16", fragment(Format::F16, 8, f16)),
                    ("f32", fragment(Format::F32, 8, layouts::f32_m8n8k4)),
                ] {
                    if (d_name, c_name) == ("f16", "f32") {
                        continue;
                    }
                    let instruction =
                        format!("mma.sync.aligned.m8n8k4.{a_name}.{b_name}.{d_name}.f16.f16.{c_name}");
                    let (a, b) = (fragment(Format::F16, 4, a), fragment(Format::F16, 4, b));
                    check(&instruction, [8, 8, 4], [d, a, b, c]);
                }
            }
        }
    }
}

#[test]
fn products_keep_their_digits_and_sums_are_f32() {
    // 1 + 2⁻⁸ is no bf16 but (1 + 2⁻⁴)² = 1 + 2⁻³ + 2⁻⁸ is a product of two.
    let module = kernel("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", [4, 2, 1, 4]);
    let mut device = Device::new();
    let bits = (1.0_f32 + 1.0 / 16.0).to_bits() >> 16;
    // Only element 0 of each lane's A and B: columns and rows 0, 2, 4, 6.
    let a = device.upload(&[bits, 0].repeat(32));
    let b = device.upload(&[bits; 32]);
    let c = device.upload(&[2.0_f32.powi(-20); 128]);
    let d = device.empty(512);
    Call::line(1, 32).writes(d).reads(a).reads(b).reads(c).run(&module, "k", &mut device).unwrap();
    let square = 1.0 + 0.125 + 1.0 / 256.0;
    assert_eq!(device.download::<f32>(d)[0], 4.0 * square + 2.0_f32.powi(-20));
}

#[test]
fn tensor_cores_need_whole_warps() {
    let instruction = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1}, {%r1,%r1,%r1,%r1};";
    let module =
        snippet("", &format!("mov.u32 %r1, 0;\nsetp.eq.u32 %p1, %tid, 9;\n@%p1 ret;\n{instruction}"));
    let mut device = Device::new();
    let out = device.empty(4);
    let fault = Call::line(1, 32).writes(out).run(&module, "k", &mut device).unwrap_err();
    assert_eq!(fault.what, What::WarpDivergence { needed: u32::MAX, arrived: !(1 << 9) });
}

/// Loads matrices whose row `r` of matrix `i` begins at `place(i, r)`; element (r, c) of matrix i is 64i + 8r + c.
fn load_matrices(count: usize, transposed: bool, place: fn(usize, usize) -> usize) -> (Vec<u32>, u64) {
    let name =
        format!("ldmatrix.sync.aligned.m8n8.x{count}{}.shared.b16", if transposed { ".trans" } else { "" });
    // Each lane writes one row of all four matrices: lane 8i+r row r of matrix i.
    let mut body = ".shared .align 16 .b8 s[4096];\nmov.u32 %r1, s;\nld.param.u64 %rd1, [places];\n\
                    mad.wide.u32 %rd2, %tid, 4, %rd1;\nld.global.u32 %r2, [%rd2];\nadd.u32 %r2, %r2, %r1;\n"
        .to_owned();
    for column in 0..8 {
        body += &format!("mad.lo.u32 %r3, %tid, 8, {column};\nst.shared.u16 [%r2+{}], %r3;\n", 2 * column);
    }
    let registers: Vec<String> = (0..count).map(|register| format!("%r{}", 10 + register)).collect();
    body += &format!("bar.warp.sync -1;\n{name} {{{}}}, [%r2];\n", registers.join(", "));
    body += &format!("mad.wide.u32 %rd3, %tid, {}, %out;\n", 4 * count);
    for (index, register) in registers.iter().enumerate() {
        body += &format!("st.global.b32 [%rd3+{}], {register};\n", 4 * index);
    }
    let mut device = Device::new();
    let places: Vec<u32> = (0..32).map(|lane| place(lane / 8, lane % 8) as u32).collect();
    let places = device.upload(&places);
    let out = device.empty(4 * 32 * count);
    let module = snippet(", .param .u64 places", &body);
    let counts = Call::line(1, 32).writes(out).reads(places).run(&module, "k", &mut device).unwrap();
    let stores = counts.by_opcode["st.shared.u16"].instructions;
    assert_eq!(stores, 8);
    (device.download(out), counts.bank_conflicts)
}

#[test]
fn matrices_are_loaded_row_by_row() {
    let places: [fn(usize, usize) -> usize; 3] = [
        |matrix, row| 128 * matrix + 16 * row,
        |matrix, row| 1024 * matrix + 48 * row,
        // Rows in no order at all.
        |matrix, row| 16 * ((matrix * 8 + row) * 37 % 256),
    ];
    for place in places {
        for count in [1, 2, 4] {
            for transposed in [false, true] {
                let (words, _) = load_matrices(count, transposed, place);
                for matrix in 0..count {
                    for row in 0..8 {
                        for column in 0..8 {
                            // Lane 4r + c/2 holds (r, c) in half c mod 2; transposed, the lane of (c, r).
                            let (r, c) = if transposed { (column, row) } else { (row, column) };
                            let word = words[(4 * r + c / 2) * count + matrix];
                            let half = word >> (16 * (c % 2)) & 0xffff;
                            assert_eq!(half as usize, 64 * matrix + 8 * row + column);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_in_one_bank_collide() {
    // Rows of 16 bytes side by side take one pass each; 128 bytes apart all eight are in the same banks. The stores of
    // 2 bytes a lane before them: 32 lanes, four bytes of 16 each.
    let (_, dense) = load_matrices(4, false, |matrix, row| 128 * matrix + 16 * row);
    let (_, spread) = load_matrices(4, false, |matrix, row| 1024 * matrix + 128 * row);
    // Eight stores whose 32 rows, 16 bytes apart, share each bank by four: three passes more, each.
    assert_eq!(dense, 8 * 3);
    // Spread, all 32 rows are in one bank: 31 more for each store. Seven more for each matrix.
    assert_eq!(spread, 8 * 31 + 4 * 7);
}
