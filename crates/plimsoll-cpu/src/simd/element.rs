//! The storage type of features: f32 or bf16. Arithmetic is always f32.

use super::Simd;

/// The upper half of an f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Bf16(pub(crate) u16);

impl Bf16 {
    /// Rounded to the nearest, ties to even; NaN stays NaN.
    #[inline(always)]
    pub(crate) fn from_f32(x: f32) -> Bf16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        Bf16((if x.is_nan() { bits | 0x0040_0000 } else { rounded } >> 16) as u16)
    }

    #[inline(always)]
    pub(crate) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A stored element of features.
///
/// All vector functions require what [`Simd`] requires for `S`: the machine has the instruction set.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// Reads sixteen elements.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `p` is valid for reads of sixteen elements, with any alignment.
    unsafe fn load<S: Simd>(p: *const Self) -> S::V;
    /// Writes sixteen elements.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `p` is valid for writes of sixteen elements, with any alignment.
    unsafe fn store<S: Simd>(p: *mut Self, v: S::V);
    /// Returns the value that is read back after storing.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    unsafe fn round<S: Simd>(v: S::V) -> S::V;
    fn from_f32(x: f32) -> Self;
    fn to_f32(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const f32) -> S::V {
        // SAFETY: `Element::load` asks for what `Simd::load` does.
        unsafe { S::load(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut f32, v: S::V) {
        // SAFETY: `Element::store` asks for what `Simd::store` does.
        unsafe { S::store(p, v) }
    }
    #[inline(always)]
    unsafe fn round<S: Simd>(v: S::V) -> S::V {
        v
    }
    fn from_f32(x: f32) -> f32 {
        x
    }
    fn to_f32(self) -> f32 {
        self
    }
}

impl Element for Bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const Bf16) -> S::V {
        // SAFETY: `Bf16` is a transparent `u16`, so `Element::load` asks for what `Simd::load_bf16` does.
        unsafe { S::load_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut Bf16, v: S::V) {
        // SAFETY: `Bf16` is a transparent `u16`, so `Element::store` asks for what `Simd::store_bf16` does.
        unsafe { S::store_bf16(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn round<S: Simd>(v: S::V) -> S::V {
        let mut stored = [0u16; super::LANES];
        // SAFETY: the array has sixteen elements; the machine has the instruction set, as `Element::round` asks.
        unsafe {
            S::store_bf16(stored.as_mut_ptr(), v);
            S::load_bf16(stored.as_ptr())
        }
    }
    fn from_f32(x: f32) -> Bf16 {
        Bf16::from_f32(x)
    }
    fn to_f32(self) -> f32 {
        Bf16::to_f32(self)
    }
}
