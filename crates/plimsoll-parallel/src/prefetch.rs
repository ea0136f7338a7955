//! Hints to the processor's caches.

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Asks the processor to bring `count` elements from `from` on into its caches while it continues. Nothing is read: any address
/// is allowed, and only time depends on it.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction")]
pub fn prefetch<T>(from: *const T, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..count * size_of::<T>()).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this kind has the instruction, which takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(line).cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    for line in (0..count * size_of::<T>()).step_by(LINE) {
        // SAFETY: the instruction takes any address, and changes neither memory nor registers.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{from}]",
                from = in(reg) from.wrapping_byte_add(line),
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (from, count);
}
