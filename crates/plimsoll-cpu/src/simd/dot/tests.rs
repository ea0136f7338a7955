//! All instances against one another, bit for bit.

use super::*;
use crate::simd::Bf16;

/// Numbers of every kind, by a linear congruence (Knuth's MMIX).
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// All bit patterns; near one; about to be tiny; near overflow; small whole numbers, whose sums cancel.
    fn value(&mut self, kind: usize) -> f32 {
        let bits = self.bits();
        let exponent = |low: u32, span: u32| (bits & 0x807f_ffff) | ((low + (bits >> 23) % span) << 23);
        match kind {
            0 => f32::from_bits(bits),
            1 => f32::from_bits(exponent(120, 14)),
            2 => f32::from_bits(exponent(60, 8)),
            3 => f32::from_bits(exponent(186, 8)),
            _ => (bits % 9) as f32 - 4.0,
        }
    }

    /// A sum that products of such values come near to.
    fn sum(&mut self, kind: usize) -> f32 {
        let bits = self.bits();
        match kind {
            2 => f32::from_bits((bits & 0x8000_0001) | ((bits >> 1) % 4) << 23),
            3 => f32::from_bits((bits & 0x807f_ffff) | 253 << 23),
            _ => self.value(kind),
        }
    }
}

/// Values and what they should be multiplied with and added to; runs them on an instance.
struct Cases<'a> {
    a: &'a [[f32; LANES]; PAIR],
    b: &'a [[f32; LANES]; PAIR],
    sum: &'a [f32; LANES],
    found: &'a mut [f32; LANES],
    operands: &'a mut [u16; LANES * PAIR],
    /// The result with the upper halves of `a`, tiny ones among them, that were copied as operands.
    of_copies: &'a mut [f32; LANES],
}

/// To run it asks for nothing but the instruction set.
impl DotBody for Cases<'_> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        // SAFETY: arrays have sixteen elements, or 32 where pairs are stored or loaded; copies are made of either sixteen of 32.
        unsafe {
            let load = |half: &[f32; LANES]| D::S::load(half.as_ptr());
            let mut b = [0u16; LANES * PAIR];
            D::store_pairs(self.operands.as_mut_ptr(), self.a.each_ref().map(load));
            D::store_pairs(b.as_mut_ptr(), self.b.each_ref().map(load));
            let (a, b) = (D::load_pairs(self.operands.as_ptr()), D::load_pairs(b.as_ptr()));
            D::S::store(self.found.as_mut_ptr(), D::dot(load(self.sum), a, b));
            let stored: [u16; LANES * PAIR] =
                std::array::from_fn(|i| (self.a[i % PAIR][i / PAIR].to_bits() >> 16) as u16);
            let mut copies = [0u16; LANES * PAIR];
            for half in 0..PAIR {
                D::copy_operands(copies.as_mut_ptr().add(half * LANES), stored.as_ptr().add(half * LANES));
            }
            let copies = D::load_pairs(copies.as_ptr());
            D::S::store(self.of_copies.as_mut_ptr(), D::dot(load(self.sum), copies, b));
        }
    }
}

/// Returns the result of an instance, its operands, and its result with copied ones; every NaN becomes one number.
fn run(
    a: &[[f32; LANES]; PAIR],
    b: &[[f32; LANES]; PAIR],
    sum: &[f32; LANES],
    level: DotLevel,
) -> ([u32; LANES], [u16; LANES * PAIR], [u32; LANES]) {
    let (mut found, mut operands, mut of_copies) = ([0.0; LANES], [0; LANES * PAIR], [0.0; LANES]);
    let cases = Cases { a, b, sum, found: &mut found, operands: &mut operands, of_copies: &mut of_copies };
    // SAFETY: only levels that the machine has are asked for.
    unsafe { at_level(level, cases) };
    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    (found.map(bits), operands, of_copies.map(bits))
}

/// The results of a register tile of one block, `R` rows and `W` positions, and the same by dot products one after the other.
struct Tile<'a, const R: usize, const W: usize> {
    source: &'a [u16],
    weights: &'a [f32; LANES * LANES],
    found: &'a mut Vec<[f32; LANES]>,
    expected: &'a mut Vec<[f32; LANES]>,
}

/// Elements from one row of positions to the next.
const ROW: usize = 7 * LANES;

/// To run it asks for the instruction set, and sources of `R` rows.
impl<const R: usize, const W: usize> DotBody for Tile<'_, R, W> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        if const { R * W > D::POSITIONS } {
            return;
        }
        // SAFETY: squares have 256 elements, pairs of weights 32 and positions sixteen.
        unsafe {
            let (mut square, mut pairs) = ([0u16; LANES * LANES], [[0u16; LANES * PAIR]; PAIRS]);
            for (pair, to) in pairs.iter_mut().enumerate() {
                let row = |half: usize| D::S::load(self.weights.as_ptr().add((pair * PAIR + half) * LANES));
                D::store_weights(square.as_mut_ptr(), pair, [row(0), row(1)]);
                D::store_pairs(to.as_mut_ptr(), [row(0), row(1)]);
            }
            let of = Products {
                weights: square.as_ptr(),
                weight_step: PAIR * LANES,
                weight_block: 0,
                source: self.source.as_ptr(),
                source_row: ROW,
            };
            let mut sums = [[[D::no_sum(); W]; R]];
            // Twice: sums are added to.
            for _ in 0..2 {
                D::add_products(&mut sums, &of);
            }
            self.found
                .extend(D::finish(sums).as_flattened().as_flattened().iter().map(|v| D::S::to_array(*v)));
            for i in 0..R * W {
                let position = self.source.as_ptr().add(i / W * ROW + i % W * LANES);
                let mut sum = D::S::zero();
                for pair in (0..PAIRS).chain(0..PAIRS) {
                    let x = D::splat_pair(position.add(pair * PAIR));
                    sum = D::dot(sum, D::load_pairs(pairs[pair].as_ptr()), x);
                }
                self.expected.push(D::S::to_array(sum));
            }
        }
    }
}

#[test]
fn register_tiles_have_the_bits_of_dot_products_one_after_the_other() {
    let mut numbers = Numbers(2);
    let mut compared = 0;
    for round in 0..2_000 {
        let kind = round % 5;
        let source: Vec<u16> =
            (0..3 * ROW).map(|_| Bf16::from_f32(exact::without_tiny(numbers.value(kind))).0).collect();
        let weights = [(); LANES * LANES].map(|()| numbers.value(kind));
        for level in Level::available().map(DotLevel::from_level) {
            macro_rules! tile {
                ($($r:literal $w:literal),+) => {$({
                    let (mut found, mut expected) = (Vec::new(), Vec::new());
                    let (source, weights) = (&source[..], &weights);
                    let tile = Tile::<$r, $w> { source, weights, found: &mut found, expected: &mut expected };
                    // SAFETY: the machine has the level; the source has three rows of seven positions.
                    unsafe { at_level(level, tile) };
                    let bits = |of: Vec<[f32; LANES]>| -> Vec<u32> {
                        let lanes = of.into_iter().flatten();
                        lanes.map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
                    };
                    compared += found.len();
                    assert_eq!(bits(found), bits(expected), "{level:?}, {} × {}", $r, $w);
                })+};
            }
            tile!(1 1, 1 2, 1 3, 1 5, 1 6, 2 1, 2 3, 3 1, 3 2);
        }
    }
    assert!(compared > 10_000, "{compared} sums");
}

/// Runs a body with an instance.
///
/// # Safety
/// The machine has the level, and what the body asks for holds.
unsafe fn at_level<B: DotBody>(level: DotLevel, body: B) {
    // SAFETY: this function's contract includes the contract of the calls.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx512Bf16 => Avx512Bf16::call(body),
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx2 => Avx2Dot::call(body),
            #[cfg(target_arch = "aarch64")]
            DotLevel::Neon => NeonDot::call(body),
            #[cfg(target_arch = "aarch64")]
            DotLevel::NeonBf16 => NeonBf16::call(body),
            _ => PortableDot::call(body),
        }
    }
}

/// The levels of this machine that compute as `VDPBF16PS` does, the portable one first.
fn levels() -> Vec<DotLevel> {
    let mut levels: Vec<DotLevel> = Level::available().map(DotLevel::from_level).collect();
    levels.dedup();
    #[cfg(target_arch = "aarch64")]
    levels.retain(|level| *level != DotLevel::NeonBf16);
    levels
}

#[test]
fn all_instances_have_the_same_bits() {
    let mut numbers = Numbers(1);
    for round in 0..200_000 {
        let kind = round % 5;
        let mut pair = || [(); PAIR].map(|()| [(); LANES].map(|()| numbers.value(kind)));
        let (a, b) = (pair(), pair());
        // An instance need not know what a tiny sum is: none stays tiny.
        let sum = [(); LANES].map(|()| exact::without_tiny(numbers.sum(kind)));
        let expected = run(&a, &b, &sum, DotLevel::Portable);
        for level in levels() {
            assert_eq!(run(&a, &b, &sum, level), expected, "{level:?}: {a:?} · {b:?} + {sum:?}");
        }
    }
}

/// The instruction of Arm against its definition.
#[cfg(target_arch = "aarch64")]
#[test]
#[ignore = "needs a processor with FEAT_BF16: .ci/arm has one emulated"]
fn the_instruction_of_arm_has_the_bits_of_its_definition() {
    assert!(Level::available().any(|level| level == Level::NeonBf16), "the processor has no FEAT_BF16");
    let mut numbers = Numbers(3);
    let mut rounded_otherwise = 0;
    for round in 0..200_000 {
        let kind = round % 5;
        let mut pair = || [(); PAIR].map(|()| [(); LANES].map(|()| numbers.value(kind)));
        let (a, b) = (pair(), pair());
        let sum = [(); LANES].map(|()| numbers.sum(kind));
        let (found, operands, of_copies) = run(&a, &b, &sum, DotLevel::NeonBf16);
        let (nearest, expected_operands, _) = run(&a, &b, &sum, DotLevel::Portable);
        let round = |x: f32| Bf16::from_f32(exact::without_tiny(x)).to_f32();
        let rounded = [&a, &b].map(|of| of.map(|half| half.map(round)));
        let expected: [u32; LANES] = std::array::from_fn(|lane| {
            let pair = |of: &[[f32; LANES]; PAIR]| [of[0][lane], of[1][lane]];
            let exact = exact::add_pair(pair(&rounded[0]), pair(&rounded[1]), sum[lane]);
            if exact.is_nan() { u32::MAX } else { exact.to_bits() }
        });
        assert_eq!(found, expected, "{a:?} · {b:?} + {sum:?}");
        assert_eq!(operands, expected_operands, "{a:?}");
        let upper = a.map(|half| half.map(|x| f32::from_bits(x.to_bits() & 0xffff_0000)));
        assert_eq!(of_copies, run(&upper, &b, &sum, DotLevel::NeonBf16).0, "{upper:?} · {b:?} + {sum:?}");
        rounded_otherwise += usize::from(found != nearest);
    }
    assert!(rounded_otherwise > 1000, "{rounded_otherwise} results are others than rounded to the nearest");
}

/// The portable instance against numbers worked out by hand.
#[test]
fn a_dot_product_rounds_twice_the_second_value_first() {
    let of = |a: [f32; PAIR], b: [f32; PAIR], sum: f32| {
        let all = |pair: [f32; PAIR]| pair.map(|x| [x; LANES]);
        let (found, ..) = run(&all(a), &all(b), &[sum; LANES], DotLevel::Portable);
        f32::from_bits(found[0])
    };
    assert_eq!(of([2.0, 3.0], [5.0, 7.0], 1.0), 32.0);
    let half = f32::EPSILON / 2.0;
    // 1 + ε/2 is rounded to 1 each time; ε/2 + ε/2 would not be.
    assert_eq!(of([1.0, 1.0], [half, half], 1.0), 1.0);
    // 2²⁴ − 2²⁴ comes first, so 1 is not lost.
    let large = 16_777_216.0;
    assert_eq!(of([1.0, large], [1.0, -1.0], large), 1.0);
    assert_eq!(of([large, 1.0], [-1.0, 1.0], large), 0.0);
    let least = f32::MIN_POSITIVE;
    assert_eq!(of([least, 0.0], [0.5, 0.0], 0.0).to_bits(), 0);
    assert_eq!(of([-least, 0.0], [0.5, 0.0], 0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(Bf16::from_f32(least / 2.0).to_f32(), least / 2.0);
    assert_eq!(of([least / 2.0, 0.0], [1e30, 0.0], 0.0), 0.0);
}
