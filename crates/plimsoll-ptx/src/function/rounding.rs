//! Formats of floating-point numbers, and rounding to them in every mode.

/// The rounding of a result that a format cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    NearestEven,
    /// Ties go away from zero.
    NearestAway,
    TowardsZero,
    Down,
    Up,
}

/// A binary format of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the significand, with the one that is not stored.
    precision: u32,
    /// The exponent of the smallest normal number.
    lowest: i32,
    /// Bits of the exponent.
    exponent: u32,
    /// The bits of every NaN.
    pub nan: u64,
}

/// 5 bits of exponent, 11 of precision.
pub(crate) const F16: Format = Format { precision: 11, lowest: -14, exponent: 5, nan: 0x7fff };
/// The upper half of an f32.
pub(crate) const BF16: Format = Format { precision: 8, lowest: -126, exponent: 8, nan: 0x7fff };
/// TF32, stored in its own 19 bits; registers have 13 zeros below.
pub(crate) const TF32: Format = Format { precision: 11, lowest: -126, exponent: 8, nan: 0x7fff_ffff >> 13 };
/// Single precision.
pub(crate) const F32: Format = Format { precision: 24, lowest: -126, exponent: 8, nan: 0x7fff_ffff };

/// The bits of `value` in `format`.
pub(crate) fn narrow(value: f64, format: Format, mode: Mode) -> u64 {
    let Format { precision, lowest, exponent, nan } = format;
    if value.is_nan() {
        return nan;
    }
    let bits = value.to_bits();
    let negative = value.is_sign_negative();
    let sign = u64::from(negative) << (precision - 1 + exponent);
    let infinity = ((1 << exponent) - 1) << (precision - 1);
    if value.is_infinite() {
        return sign | infinity;
    }
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, scale) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    if mantissa == 0 {
        return sign;
    }
    // The place of the last bit that the format keeps: relative to the leading bit, or absolute for subnormal numbers.
    let leading = scale + 63 - mantissa.leading_zeros() as i32;
    let last = (leading - (precision as i32 - 1)).max(lowest - (precision as i32 - 1));
    let shift = last - scale;
    let kept = if shift <= 0 {
        mantissa << -shift
    } else {
        let shift = shift.min(63) as u32;
        let (kept, rest) = (mantissa >> shift, mantissa & ((1 << shift) - 1));
        let half = 1 << (shift - 1);
        let up = match mode {
            Mode::NearestEven => rest > half || (rest == half && kept & 1 == 1),
            Mode::NearestAway => rest >= half,
            Mode::TowardsZero => false,
            Mode::Down => negative && rest > 0,
            Mode::Up => !negative && rest > 0,
        };
        kept + u64::from(up)
    };
    // A significand that was rounded up to the next power of two carries into the exponent, which is right.
    let implicit = 1 << (precision - 1);
    let step = (last - (lowest - (precision as i32 - 1))) as u64;
    let magnitude = if kept < implicit { kept } else { ((step + 1) << (precision - 1)) + (kept - implicit) };
    if magnitude < infinity {
        return sign | magnitude;
    }
    let to_infinity = match mode {
        Mode::NearestEven | Mode::NearestAway => true,
        Mode::TowardsZero => false,
        Mode::Down => negative,
        Mode::Up => !negative,
    };
    sign | if to_infinity { infinity } else { infinity - 1 }
}

/// `sum` rounded to odd: if the exact value, which is `sum + error`, lies between two f64, then the one whose last bit is
/// set. Rounded again to at most 51 bits, in any mode, this gives the exact value rounded once (Boldo and Melquiond 2008).
pub(crate) fn odd(sum: f64, error: f64) -> f64 {
    if error == 0.0 || error.is_nan() || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (error > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    }
}

/// `a + b`, rounded to odd (the error is Knuth's).
pub(crate) fn sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    odd(sum, (a - (sum - part)) + (b - part))
}

/// `nearest + error` rounded in another mode, where `nearest` is the f64 nearest to it.
pub(crate) fn directed(nearest: f64, error: f64, mode: Mode) -> f64 {
    let (down, up) = match mode {
        Mode::NearestEven | Mode::NearestAway => (false, false),
        Mode::TowardsZero => (nearest > 0.0, nearest < 0.0),
        Mode::Down => (true, false),
        Mode::Up => (false, true),
    };
    if down && error < 0.0 {
        nearest.next_down()
    } else if up && error > 0.0 {
        nearest.next_up()
    } else {
        nearest
    }
}

/// `a + b` in f64, rounded in this mode.
pub(crate) fn directed_sum(a: f64, b: f64, mode: Mode) -> f64 {
    let sum = a + b;
    if sum.is_infinite() && a.is_finite() && b.is_finite() {
        return directed(sum, -sum, mode);
    }
    if sum == 0.0 && mode == Mode::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        return -0.0;
    }
    let part = sum - a;
    directed(sum, (a - (sum - part)) + (b - part), mode)
}

/// The number that an f16 denotes.
pub(crate) fn from_f16(bits: u64) -> f32 {
    let (sign, field, fraction) =
        (((bits & 0x8000) << 16) as u32, (bits >> 10 & 0x1f) as u32, (bits & 0x3ff) as u32);
    match field {
        0 => {
            let value = fraction as f32 / 16_777_216.0;
            f32::from_bits(value.to_bits() | sign)
        }
        31 if fraction == 0 => f32::from_bits(sign | 0x7f80_0000),
        31 => f32::NAN,
        _ => f32::from_bits(sign | (field + 112) << 23 | fraction << 13),
    }
}

/// The number that a bf16 denotes.
pub(crate) fn from_bf16(bits: u64) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The bits of an f32, with the one pattern that PTX has for all that are not numbers.
pub(crate) fn f32_bits(value: f32) -> u64 {
    u64::from(if value.is_nan() { 0x7fff_ffff } else { value.to_bits() })
}

/// The f32 in the low half.
pub(crate) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The bits of an f64. Not-a-numbers get one pattern.
pub(crate) fn f64_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7fff_ffff_ffff_ffff } else { value.to_bits() }
}

/// Subnormal numbers become zeros of the same sign.
pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

/// To the interval from 0 to 1; what is not a number becomes 0.
pub(crate) fn saturate(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}
