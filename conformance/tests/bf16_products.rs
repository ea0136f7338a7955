//! Convolutions that multiply bf16, on the CPU: against the definitions, and the same bits everywhere.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::{Case, cases, check, expected, run};
use plimsoll_cpu::{CpuBackend, CpuOptions, Level, Products};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad, LeakyRelu, Normalise};
use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorInfo, Window};
use plimsoll_plan::{Backend, Options};

/// Relative to the largest element of a result. Values and weights, or their transforms, are rounded to eight bits of mantissa before they
/// are multiplied: by 2⁻⁹ each. Sums and differences of up to four values are transformed to sixteen products for four results, which is
/// some three times the error of a direct convolution at the most; and the result is rounded once more.
const TOLERANCE: f64 = 2.5e-2;

fn backend(threads: usize, level: Level, poison: bool) -> CpuBackend {
    let products = Products::Bf16;
    CpuBackend::new(CpuOptions { threads, level, products, poison }).unwrap()
}

/// The levels whose products of bf16 are rounded alike: all but the one with Arm's instruction, which rounds to odd.
fn levels() -> impl Iterator<Item = Level> {
    Level::available().filter(|level| level.to_string() != "neon-bf16")
}

/// The best level that rounds products of bf16 as a level does.
fn best_alike(level: Level) -> Level {
    if levels().any(|of| of == level) { levels().last().unwrap() } else { level }
}

/// Returns the result of a case on a backend, bit by bit.
fn bits(backend: &dyn Backend, case: &Case) -> Vec<(String, Vec<u64>)> {
    let found = run(backend, case, Options::default()).into_iter();
    found.map(|(name, values)| (name, values.into_iter().map(f64::to_bits).collect())).collect()
}

/// The most floating-point operations of a case that is run with every instruction set: without one they are slow.
const FEW_OPERATIONS: u64 = 1 << 25;

/// The definitions make the same of f32 and bf16.
fn check_all(of: fn(DType) -> Vec<Case>) {
    let best = backend(2, Level::detect(), true);
    let lower: Vec<CpuBackend> = Level::available()
        .filter(|level| *level < Level::detect())
        .map(|level| backend(2, level, true))
        .collect();
    let mut cheap = 0;
    for (single, half) in of(DType::F32).iter().zip(&of(DType::Bf16)) {
        let expected = expected(single);
        for place in half.places() {
            check(&best, &place, &expected, TOLERANCE);
        }
        if half.program.flops() <= FEW_OPERATIONS {
            cheap += 1;
            for backend in &lower {
                check(backend, half, &expected, TOLERANCE);
            }
        }
    }
    assert!(cheap > 20, "{cheap} cases were run with every instruction set");
}

#[test]
fn convolutions_agree_with_the_definitions() {
    check_all(cases::all_convolutions);
}

#[test]
fn maps_and_heads_agree_with_the_definitions() {
    check_all(|precision| {
        let mut cases = cases::all_of_maps(precision);
        cases.extend(cases::attention_networks(precision));
        cases
    });
}

/// A convolution, its transpose and its gradient by the weights, of a volume as it is and one that is normalised and activated by given statistics. (Statistics that
/// kernels sum themselves are rounded otherwise by each instruction set.)
fn convolution(
    window: Window,
    extent: [usize; 3],
    [channels, out]: [usize; 2],
    result: DType,
) -> Option<Case> {
    let strided = window.output(extent)?;
    let mut p = Program::new("a convolution");
    let mut volume = |name: &str, channels, extent| {
        let shape = Shape::volume(2, channels, extent);
        p.declare(TensorInfo {
            name: name.into(),
            shape,
            dtype: DType::Bf16,
            role: Role::Input,
            kind: Kind::Volume,
        })
    };
    let (a, b, dy) = (volume("a", channels, extent), volume("b", 5, extent), volume("dy", out, strided));
    let statistics = p.input("statistics", Shape(vec![2, 5, 2]), Kind::Statistics);
    let normalised = p.push_one(Normalise { affine: false }, &[b, statistics]).ok()?;
    let activated = p.push_one(LeakyRelu { slope: 0.01 }, &[normalised]).ok()?;
    let [d, h, w] = window.kernel;
    let weights = p.parameter("weights", Shape(vec![out, channels + 5, d, h, w]), Kind::Weights);
    let bias = p.parameter("bias", Shape(vec![out]), Kind::Channels);
    let y = p.push_one(Conv::new(window, true, result), &[a, activated, weights, bias]).ok()?;
    p.mark_output(y, "y");
    let (groups, bias, output) = (1, false, extent);
    let back = ConvTranspose { window, groups, first_channel: 0, channels, output, bias, dtype: DType::Bf16 };
    let dx = p.push_one(back, &[dy, weights]).ok()?;
    p.mark_output(dx, "dx");
    let dw = p.push_one(ConvWeightGrad { window, groups }, &[a, activated, dy]).ok()?;
    p.mark_output(dw, "dw");
    let name = format!("{channels} + 5 → {out} of {extent:?}, {window:?}, {result:?}");
    Some(Case::new(name, p, 0))
}

#[test]
fn convolutions_have_the_same_bits_with_every_instruction_set() {
    let windows = [
        Window::same([3; 3], [1; 3]),
        Window::same([1, 3, 3], [1; 3]),
        Window::new([2, 3, 3], [1; 3], [1, 0, 2]),
        Window::same([3; 3], [1, 2, 2]),
        Window::same([3, 3, 1], [1; 3]),
        Window::blocks([2; 3]),
        Window::point(),
    ];
    let (mut compared, mut rounded) = (0, 0);
    let of_f32 = CpuBackend::new(CpuOptions { poison: true, ..CpuOptions::new(2) }).unwrap();
    for (i, window) in windows.into_iter().enumerate() {
        for (j, extent) in [[5, 7, 9], [9, 20, 23], [3, 4, 4], [1, 33, 40], [4, 7, 1]].into_iter().enumerate()
        {
            let channels = [[33, 17], [3, 40], [16, 16]][(i + j) % 3];
            let result = [DType::Bf16, DType::F32][(i + j) % 2];
            let Some(case) = convolution(window, extent, channels, result) else { continue };
            let mut found = levels().map(|level| (level, bits(&backend(2, level, true), &case)));
            let Some((_, first)) = found.next() else { continue };
            for (level, found) in found {
                assert!(first == found, "{} with {level} is not what it is without", case.name);
            }
            compared += 1;
            rounded += usize::from(first != bits(&of_f32, &case));
        }
    }
    assert!(compared > 20, "{compared} convolutions");
    assert!(rounded > 10, "of {compared} convolutions {rounded} are others than with products of f32");
}

/// A head whose logits are read by the host alone, so that they lie in rows: of a volume as it is and one that is normalised and activated.
fn head(extent: [usize; 3], [channels, classes]: [usize; 2], bias: bool) -> Case {
    let mut p = Program::new("a head");
    let mut volume = |name: &str, channels| {
        let shape = Shape::volume(2, channels, extent);
        let (dtype, role, kind) = (DType::Bf16, Role::Input, Kind::Volume);
        p.declare(TensorInfo { name: name.into(), shape, dtype, role, kind })
    };
    let (a, b) = (volume("a", channels), volume("b", 5));
    let statistics = p.input("statistics", Shape(vec![2, 5, 2]), Kind::Statistics);
    let normalised = p.push_one(Normalise { affine: false }, &[b, statistics]).unwrap();
    let activated = p.push_one(LeakyRelu { slope: 0.01 }, &[normalised]).unwrap();
    let weights = p.parameter("weights", Shape(vec![classes, channels + 5, 1, 1, 1]), Kind::Weights);
    let mut operands = vec![a, activated, weights];
    if bias {
        operands.push(p.parameter("bias", Shape(vec![classes]), Kind::Channels));
    }
    let y = p.push_one(Conv::new(Window::point(), bias, DType::Bf16), &operands).unwrap();
    p.mark_output(y, "y");
    Case::new(format!("{channels} + 5 → {classes} of {extent:?}"), p, 0)
}

#[test]
fn logits_of_bf16_in_rows_agree_with_the_definitions_and_have_the_same_bits_everywhere() {
    // Tiles that are not filled, one block and more than are transposed once, an odd number of them, groups of classes of all sizes.
    let shapes = [([2, 3, 5], [16, 1], true), ([5, 7, 11], [40, 13], true), ([3, 12, 64], [100, 7], false)];
    for (extent, channels, bias) in shapes {
        let case = head(extent, channels, bias);
        let expected = expected(&case);
        for level in Level::available() {
            check(&backend(2, level, true), &case, &expected, TOLERANCE);
            let of_f32 = CpuOptions { level, poison: true, ..CpuOptions::new(2) };
            check(&CpuBackend::new(of_f32).unwrap(), &case, &expected, TOLERANCE / 2.0);
            let first = bits(&backend(1, best_alike(level), true), &case);
            assert!(first == bits(&backend(2, level, true), &case), "{} with {level}", case.name);
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_threads() {
    for case in cases::all(DType::Bf16) {
        let first = bits(&backend(1, Level::detect(), false), &case);
        for threads in [2, 3] {
            assert_eq!(first, bits(&backend(threads, Level::detect(), true), &case), "{}", case.name);
        }
    }
}
