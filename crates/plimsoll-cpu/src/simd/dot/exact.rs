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

/// A sum, to which the products of a pair of bf16 are added as Arm's `BFDOT` does: c + (a₀ b₀ + a₁ b₁), where products and sums are
/// rounded to odd, and tiny numbers, operands too, are zero of their sign.
#[cfg(all(test, target_arch = "aarch64"))]
pub(super) fn add_pair(a: [f32; 2], b: [f32; 2], sum: f32) -> f32 {
    let product = |i: usize| {
        // Sixteen bits of mantissa: exact, if it is not tiny or beyond the largest number.
        to_odd(f64::from(without_tiny(a[i])) * f64::from(without_tiny(b[i])), 0.0)
    };
    let pair = add_to_odd(product(0), product(1));
    add_to_odd(without_tiny(sum), pair)
}

/// a + b, rounded to odd.
#[cfg(all(test, target_arch = "aarch64"))]
fn add_to_odd(a: f32, b: f32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let sum = a + b;
    // What rounding to f64 has lost (Knuth's two-sum).
    let of_b = sum - a;
    to_odd(sum, (a - (sum - of_b)) + (b - of_b))
}

/// x + rest rounded to odd: towards zero, and then the last bit is set if anything was lost. |rest| is at most half a unit of x in f64.
#[cfg(all(test, target_arch = "aarch64"))]
fn to_odd(x: f64, rest: f64) -> f32 {
    if !x.is_finite() {
        return x as f32;
    }
    // Towards zero in f64.
    let x = if rest != 0.0 && (rest < 0.0) != (x < 0.0) { f64::from_bits(x.to_bits() - 1) } else { x };
    if x.abs() >= 2f64.powi(128) {
        return f32::INFINITY.copysign(x as f32);
    }
    if x.abs() < f64::from(f32::MIN_POSITIVE) {
        return 0.0f32.copysign(x as f32);
    }
    let cut = f64::from_bits(x.to_bits() & !((1 << 29) - 1));
    let is_exact = cut == x && rest == 0.0;
    f32::from_bits((cut as f32).to_bits() | u32::from(!is_exact))
}
