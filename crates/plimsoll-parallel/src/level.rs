//! The instruction sets that kernels are compiled for.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for. Levels are ordered: a machine that has one has all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain loops, which the compiler vectorises as it can.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL, with AVX2 and FMA. Every processor with AVX-512 BW has CD.
    Avx512,
}

/// The highest level that this process may use; none before it is limited.
static LIMIT: OnceLock<Level> = OnceLock::new();

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

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
        }
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
        Level::ALL.into_iter().filter(move |level| *level <= best)
    }

    /// Returns `true` if this machine has, at this level, an instruction for dot products of bf16 (AVX-512 BF16). Without it
    /// they take several steps of f32.
    pub fn multiplies_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.min(Level::detect()) == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// The level of a name: `avx512`, `avx2` or `portable`.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
