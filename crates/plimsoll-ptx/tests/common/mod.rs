//! A device for tests: buffers in one memory, parameters put together as a driver wants them.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::ops::Range;

use plimsoll_ptx::{Counts, Fault, Launch, Memory, Module, Order};

/// Memory with buffers that are placed one behind the other, with a gap between.
pub struct Device {
    pub memory: Memory,
    next: usize,
}

/// A part of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub offset: usize,
    pub bytes: usize,
    pub address: u64,
}

impl Buffer {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes as u64
    }
}

/// Plain old data.
pub trait Plain: Copy {
    fn bytes(self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Self;
    const SIZE: usize = size_of::<Self>();
}

macro_rules! plain {
    ($($kind:ty)*) => {$(
        impl Plain for $kind {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("as many bytes as it has"))
            }
        }
    )*};
}
plain! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

impl Device {
    pub fn new() -> Device {
        Device { memory: Memory::new(8 << 20), next: 0 }
    }

    /// A buffer of unwritten bytes.
    pub fn empty(&mut self, bytes: usize) -> Buffer {
        let offset = self.next;
        self.next = (offset + bytes + 512).next_multiple_of(256);
        Buffer { offset, bytes, address: self.memory.base() + offset as u64 }
    }

    pub fn upload<T: Plain>(&mut self, values: &[T]) -> Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let buffer = self.empty(bytes.len());
        self.memory.write(buffer.offset, &bytes);
        buffer
    }

    pub fn download<T: Plain>(&self, buffer: Buffer) -> Vec<T> {
        let mut bytes = vec![0; buffer.bytes];
        self.memory.read(buffer.offset, &mut bytes);
        bytes.chunks_exact(T::SIZE).map(T::read).collect()
    }
}

/// A launch that is being put together.
#[derive(Clone, Default)]
pub struct Call {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    order: Option<u64>,
    parameters: Vec<u8>,
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

impl Call {
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Call {
        Call { grid, block, ..Call::default() }
    }

    pub fn line(grid: u32, block: u32) -> Call {
        Call::new([grid, 1, 1], [block, 1, 1])
    }

    pub fn shared(mut self, bytes: u32) -> Call {
        self.shared = bytes;
        self
    }

    pub fn shuffled(mut self, seed: u64) -> Call {
        self.order = Some(seed);
        self
    }

    pub fn value<T: Plain>(mut self, value: T) -> Call {
        self.parameters.resize(self.parameters.len().next_multiple_of(T::SIZE), 0);
        self.parameters.extend(value.bytes());
        self
    }

    /// The next parameter starts at a multiple of this.
    pub fn align(mut self, align: usize) -> Call {
        self.parameters.resize(self.parameters.len().next_multiple_of(align), 0);
        self
    }

    pub fn reads(mut self, buffer: Buffer) -> Call {
        self.reads.push(buffer.range());
        self.value(buffer.address)
    }

    pub fn writes(mut self, buffer: Buffer) -> Call {
        self.writes.push(buffer.range());
        self.value(buffer.address)
    }

    pub fn run(&self, module: &Module, kernel: &str, device: &mut Device) -> Result<Counts, Fault> {
        let launch = Launch {
            kernel,
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared,
            parameters: &self.parameters,
            reads: &self.reads,
            writes: &self.writes,
        };
        let order = self.order.map_or(Order::Ascending, Order::Shuffled);
        module.launch(&mut device.memory, &launch, order)
    }
}

/// Numbers that repeat for a seed (Numerical Recipes' quick generator).
pub struct Numbers(pub u32);

impl Numbers {
    pub fn bits(&mut self) -> u32 {
        let mut next = || {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.0 >> 16
        };
        next() << 16 | next()
    }

    /// From −1 to 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / 8_388_608.0 - 1.0
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// A module of one kernel `k` with the usual registers, whose first parameter is a pointer in `%out`.
pub fn snippet(parameters: &str, body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out{parameters})\n{{\n\
         .reg .pred %p<20>;\n.reg .b16 %h<40>;\n.reg .b32 %r<80>;\n.reg .f32 %f<80>;\n.reg .f64 %fd<40>;\n\
         .reg .b64 %rd<40>;\n.reg .b32 %tid;\n.reg .b64 %out;\n\
         mov.u32 %tid, %tid.x;\nld.param.u64 %out, [out];\n{body}\nret;\n}}\n"
    );
    Module::parse(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// A register class of [`snippet`]: the letter of its names, bytes, and the type for loads and stores.
fn class(letter: char) -> (&'static str, usize, &'static str) {
    match letter {
        'h' => ("%h", 2, "b16"),
        'r' => ("%r", 4, "b32"),
        'f' => ("%f", 4, "f32"),
        'd' => ("%rd", 8, "b64"),
        'g' => ("%fd", 8, "f64"),
        _ => panic!("no class {letter}"),
    }
}

/// Runs one instruction on many operands, each in a thread of its own.
///
/// `classes` has a letter for the result and for each operand: h and r are 16 and 32 bits, f an f32, d 64 bits, g an
/// f64. In `instruction` `$0` denotes the result, `$1` and on for the operands. Values are the bits, as u64.
pub fn apply(classes: &str, instruction: &str, rows: &[Vec<u64>]) -> Vec<u64> {
    let letters: Vec<char> = classes.chars().collect();
    let mut device = Device::new();
    let mut parameters = ", .param .u64 size".to_owned();
    let mut body = "mov.u32 %r70, %ctaid.x;\nmov.u32 %r71, %ntid.x;\nmad.lo.s32 %r72, %r70, %r71, %tid;\n\
                    cvt.u64.u32 %rd30, %r72;\nld.param.u64 %rd31, [size];\n\
                    setp.ge.u64 %p19, %rd30, %rd31;\n@%p19 ret;\n"
        .to_owned();
    let mut text = instruction.to_owned();
    let (result, result_bytes, result_type) = class(letters[0]);
    text = text.replace("$0", &format!("{result}20"));
    let out = device.empty(result_bytes * rows.len());
    let mut call = Call::line(rows.len().div_ceil(64) as u32, 64).writes(out).value(rows.len() as u64);
    for (index, &letter) in letters.iter().enumerate().skip(1) {
        let (name, bytes, kind) = class(letter);
        let data: Vec<u8> =
            rows.iter().flat_map(|row| row[index - 1].to_le_bytes()[..bytes].to_vec()).collect();
        call = call.reads(device.upload(&data));
        parameters += &format!(", .param .u64 a{index}");
        body += &format!(
            "ld.param.u64 %rd32, [a{index}];\nmad.lo.u64 %rd33, %rd30, {bytes}, %rd32;\nld.global.{kind} {name}{index}, [%rd33];\n"
        );
        text = text.replace(&format!("${index}"), &format!("{name}{index}"));
    }
    body += &format!(
        "{text}\nmad.lo.u64 %rd34, %rd30, {result_bytes}, %out;\nst.global.{result_type} [%rd34], {result}20;\n"
    );
    call.run(&snippet(&parameters, &body), "k", &mut device)
        .unwrap_or_else(|fault| panic!("{instruction}: {fault}"));
    let mut bytes = vec![0; out.bytes];
    device.memory.read(out.offset, &mut bytes);
    bytes
        .chunks_exact(result_bytes)
        .map(|value| value.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
        .collect()
}

/// Compares an instruction with its definition on all operands.
pub fn check(classes: &str, instruction: &str, rows: &[Vec<u64>], definition: impl Fn(&[u64]) -> u64) {
    for (row, result) in rows.iter().zip(apply(classes, instruction, rows)) {
        let expected = definition(row);
        assert_eq!(result, expected, "{instruction} of {row:x?}: {result:x}, not {expected:x}");
    }
}

/// Rows of operands of these widths in bits: all combinations of extreme values for up to two operands, and random
/// ones.
pub fn operands(widths: &[u32], random: usize, seed: u32) -> Vec<Vec<u64>> {
    let mut numbers = Numbers(seed);
    let mask = |bits: u32| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let extremes = |bits: u32| -> Vec<u64> {
        let top = 1_u64 << (bits - 1);
        [0, 1, 2, 31, top - 1, top, top + 1, mask(bits)].into()
    };
    let mut rows = Vec::new();
    for &first in &extremes(widths[0]) {
        for &second in &extremes(*widths.get(1).unwrap_or(&8)) {
            let mut row = vec![first, second];
            row.resize(widths.len().max(2), 0);
            for (value, &bits) in row.iter_mut().zip(widths).skip(2) {
                *value = extremes(bits)[numbers.bits() as usize % 8];
            }
            row.truncate(widths.len());
            rows.push(row);
        }
    }
    for _ in 0..random {
        let row = widths.iter().map(|&bits| {
            let value = u64::from(numbers.bits()) << 32 | u64::from(numbers.bits());
            // Of all magnitudes.
            let shift = numbers.bits() % bits;
            (value & mask(bits)) >> shift
        });
        rows.push(row.collect());
    }
    rows
}
