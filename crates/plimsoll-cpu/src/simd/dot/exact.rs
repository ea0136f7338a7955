//! A step of a dot product in plain numbers.
#![forbid(unsafe_code)]

/// Below this, rounding to 24 bits stays below the smallest normal number: 2⁻¹²⁶ (1 − 2⁻²⁵). (At it, the tie goes to the even 2⁻¹²⁶.)
const TINY: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1u32 << 25) as f64);

/// a · b + c of two bf16 and a sum, none of them tiny, rounded once; zero of its sign if that is tiny.
///
/// In f64 the product is exact. So is its sum with c unless one is less than 2⁻²⁹ of the other; then the larger, which is an f32, is the
/// result with and without the other, so nothing is rounded twice.
#[inline(always)]
pub(super) fn step(a: f32, b: f32, c: f32) -> f32 {
    let sum = f64::from(a) * f64::from(b) + f64::from(c);
    if sum.abs() < TINY { 0.0f32.copysign(sum as f32) } else { sum as f32 }
}

/// A value as an operand: zero of its sign if it is tiny.
#[inline(always)]
pub(super) fn without_tiny(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}
