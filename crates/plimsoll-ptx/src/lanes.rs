//! A register of a warp: one value for each of its 32 lanes.

/// Threads in a warp.
pub(crate) const WARP: usize = 32;

/// All lanes at once, as a bit mask.
pub(crate) const ALL: u32 = u32::MAX;

/// The values of one register, lane by lane. Narrower types lie in the low bits; the bits above are zero.
pub(crate) type Lanes = [u64; WARP];

/// The number of a register of a kernel.
pub(crate) type Slot = usize;

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// The low `bits` bits set.
pub(crate) fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The low `bits` of `value` with its sign in all bits above.
pub(crate) fn extend_sign(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { (((value << (64 - bits)) as i64) >> (64 - bits)) as u64 }
}
