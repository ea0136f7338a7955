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
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx512Bf16 => Avx512Bf16::call(cases),
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx2 => Avx2Dot::call(cases),
            _ => PortableDot::call(cases),
        }
    }
    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    (found.map(bits), operands, of_copies.map(bits))
}

/// The levels of this machine, the portable one first.
fn levels() -> Vec<DotLevel> {
    let mut levels: Vec<DotLevel> = Level::available().map(DotLevel::from_level).collect();
    levels.dedup();
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
