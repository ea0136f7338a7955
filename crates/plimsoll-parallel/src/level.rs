//! The instruction sets that kernels are compiled for.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for. Levels are ordered: a machine that has one has all below it. Those of other
/// kinds of processors do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain loops, which the compiler vectorises as it can.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL, with AVX2 and FMA. Every processor with AVX-512 BW has CD.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON with its multiply-add of f32, which every aarch64 has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// The same with FEAT_BF16: products of bf16, summed in f32.
    #[cfg(target_arch = "aarch64")]
    NeonBf16,
}

/// The highest level that this process may use; none before it is limited.
static LIMIT: OnceLock<Level> = OnceLock::new();

impl Level {
    /// All levels of this kind of processor, the lowest first.
    pub const ALL: &[Level] = &[
        Level::Portable,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512,
        #[cfg(target_arch = "aarch64")]
        Level::Neon,
        #[cfg(target_arch = "aarch64")]
        Level::NeonBf16,
    ];

    /// The best level that this machine has.
    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
            {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Level::Avx2;
            }
            Level::Portable
        }
        #[cfg(target_arch = "aarch64")]
        match std::arch::is_aarch64_feature_detected!("bf16") {
            true => Level::NeonBf16,
            false => Level::Neon,
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        Level::Portable
    }

    /// The level of this process: the best that this machine has and that [`Level::limit`] allows.
    pub fn current() -> Level {
        LIMIT.get().map_or_else(Level::detect, |limit| Level::detect().min(*limit))
    }

    /// Limits the level of this process, once and before anything asks for it. Returns whether this limit holds from now on.
    pub fn limit(limit: Level) -> bool {
        *LIMIT.get_or_init(|| limit) == limit
    }

    /// The levels that this machine has, the lowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        let best = Level::detect();
        Level::ALL.iter().copied().filter(move |level| *level <= best)
    }

    /// Returns `true` if this machine has, at this level, an instruction for dot products of bf16 (AVX-512 BF16, FEAT_BF16 of
    /// Arm). Without it they take several steps of f32.
    pub fn multiplies_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.min(Level::detect()) == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
        #[cfg(target_arch = "aarch64")]
        return self.min(Level::detect()) == Level::NeonBf16;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return false;
    }

    /// The level of a name: `portable`; `avx2` or `avx512` on x86-64; `neon` or `neon-bf16` on aarch64.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.iter().copied().find(|level| level.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonBf16 => "neon-bf16",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
