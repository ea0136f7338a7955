//! The abilities of cards, by their compute capability.

use std::fmt;
use std::str::FromStr;

use plimsoll_graph::DType;
use plimsoll_plan::Rates;

use crate::DeviceError;
use crate::predict::{INSTRUCTION_RATE, SHARED_RATE};

/// The compute capability of a card: what PTX is compiled for, and about how fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    major: u32,
    minor: u32,
    /// `true` if its tensor cores multiply f32 as tf32.
    rounds: bool,
    /// `true` if its driver has refused the kernels with products by warp groups.
    lacks_groups: bool,
    /// The tile that convolutions on tensor cores are to take where it fits.
    tile: Option<&'static str>,
}

/// One line of the table of cards.
struct Card {
    capability: (u32, u32),
    /// f32 multiply-adds per clock and multiprocessor: NVIDIA, "CUDA C++ Programming Guide", throughput of native arithmetic
    /// instructions.
    lanes: f64,
    /// Multiprocessors, and below boost clock in hertz and bytes per second of memory of the card that is named: NVIDIA's white papers on
    /// Volta, Turing, Ampere (GA100, GA102), Ada, Hopper and Blackwell.
    multiprocessors: usize,
    /// KiB of shared memory of a multiprocessor for its blocks: NVIDIA, "CUDA C++ Programming Guide", technical specifications.
    shared: usize,
    clock: f64,
    bandwidth: f64,
    /// Operations a second of tensor cores on bf16 or f16 with sums of f32, without sparsity, from the same papers; half as many on tf32.
    tensor: f64,
}

const fn card(
    capability: (u32, u32),
    lanes: f64,
    [multiprocessors, shared]: [usize; 2],
    [clock, bandwidth]: [f64; 2],
    tensor: f64,
) -> Card {
    Card { capability, lanes, multiprocessors, shared, clock, bandwidth, tensor }
}

/// In ascending order; one that is not here is like the last before it.
const CARDS: &[Card] = &[
    // V100 SXM2
    card((7, 0), 64.0, [80, 96], [1.53e9, 0.90e12], 125e12),
    // T4
    card((7, 5), 64.0, [40, 64], [1.59e9, 0.32e12], 65e12),
    // A100 SXM4, 40 GB
    card((8, 0), 64.0, [108, 164], [1.41e9, 1.555e12], 312e12),
    // RTX 3090
    card((8, 6), 128.0, [82, 100], [1.70e9, 0.936e12], 71e12),
    // RTX 4090
    card((8, 9), 128.0, [128, 100], [2.52e9, 1.008e12], 165e12),
    // H100 SXM5
    card((9, 0), 128.0, [132, 228], [1.98e9, 3.35e12], 989e12),
    // RTX 5090
    card((12, 0), 128.0, [170, 100], [2.41e9, 1.792e12], 209.5e12),
];

/// The least that the PTX is made for.
const LEAST: (u32, u32) = (7, 0);

/// The first with the tensor cores of each later generation.
const TURING: (u32, u32) = (7, 5);
const AMPERE: (u32, u32) = (8, 0);

/// The only one with products by warp groups: later cards have other instructions instead.
const HOPPER: (u32, u32) = (9, 0);

/// Tensor cores of one kind, for which there is a piece of PTX. Each has what the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Generation {
    /// 7.0 to 7.4: products of f16 by quarters of warps.
    Volta,
    /// 7.5: products of f16 by warps.
    Turing,
    /// 8.0 and later: products of bf16 and of f16, and copies to shared memory in the background.
    Ampere,
    /// 9.0 alone: products by groups of four warps, too.
    Hopper,
}

impl Architecture {
    /// Returns the architecture of a compute capability.
    ///
    /// # Errors
    /// Returns an error if it is below 7.0 (Volta): the kernels are not made for it.
    pub fn new(major: u32, minor: u32) -> Result<Architecture, DeviceError> {
        if (major, minor) >= LEAST {
            return Ok(Architecture { major, minor, rounds: false, lacks_groups: false, tile: None });
        }
        Err(DeviceError::TooOld { found: format!("sm_{major}{minor}") })
    }

    /// The number in its name: 86 of `sm_86`.
    pub(crate) fn number(self) -> u32 {
        10 * self.major + self.minor
    }

    /// The tensor cores that it has, or, on later cards, those that it is used as.
    pub(crate) fn generation(self) -> Generation {
        match (self.major, self.minor) {
            HOPPER if !self.lacks_groups => Generation::Hopper,
            capability if capability >= AMPERE => Generation::Ampere,
            capability if capability >= TURING => Generation::Turing,
            _ => Generation::Volta,
        }
    }

    /// The same without products by warp groups, which 9.0 alone has: then it is used as later cards are.
    pub fn without_warp_groups(self) -> Architecture {
        Architecture { lacks_groups: (self.major, self.minor) == HOPPER, ..self }
    }

    /// Returns `true` if it has products by warp groups, and they are not to be used.
    pub(crate) fn lacks_warp_groups(self) -> bool {
        self.lacks_groups
    }

    /// The same where convolutions round f32 to tf32, which tensor cores multiply since Ampere; none before.
    pub(crate) fn with_tf32_products(self) -> Option<Architecture> {
        (self.generation() >= Generation::Ampere).then_some(Architecture { rounds: true, ..self })
    }

    /// The same where convolutions on tensor cores take one tile wherever it fits.
    pub(crate) fn with_tile(self, tile: &'static str) -> Architecture {
        Architecture { tile: Some(tile), ..self }
    }

    /// The tile that they are to take, if one was chosen.
    pub(crate) fn tile(self) -> Option<&'static str> {
        self.tile
    }

    /// Returns `true` if convolutions round f32 to tf32.
    pub(crate) fn rounds_products(self) -> bool {
        self.rounds
    }

    /// Returns `true` if its tensor cores multiply numbers that are stored as a type.
    pub(crate) fn multiplies(self, dtype: DType) -> bool {
        match dtype {
            DType::F16 => true,
            DType::Bf16 => self.generation() >= Generation::Ampere,
            DType::F32 => self.rounds,
            DType::F64 | DType::U8 => false,
        }
    }

    fn card(self) -> &'static Card {
        let known = |card: &&Card| card.capability <= (self.major, self.minor);
        CARDS.iter().rev().find(known).unwrap_or(&CARDS[0])
    }

    /// The multiprocessors of the card that the table has for it.
    pub(crate) fn multiprocessors(self) -> usize {
        self.card().multiprocessors
    }

    /// Blocks that its multiprocessors run at once, each with `shared` bytes, if a multiprocessor has registers for `most` of them.
    pub(crate) fn resident_blocks(self, shared: usize, most: usize) -> usize {
        let card = self.card();
        card.multiprocessors * ((card.shared << 10) / shared).clamp(1, most)
    }

    /// Rates of the card that the table has for it, as far as kernels like these come near its peaks: see [`PLAIN`] and the others.
    pub(crate) fn rates(self) -> Rates {
        let card = self.card();
        let peak = 2.0 * card.lanes * card.multiprocessors as f64 * card.clock;
        let reached = match self.generation() {
            Generation::Volta | Generation::Turing => TENSOR_ONE_STAGE,
            Generation::Ampere if self.major < 9 => TENSOR,
            Generation::Ampere | Generation::Hopper => TENSOR_HOPPER,
        };
        let groups = self.generation() >= Generation::Hopper;
        let cycles = card.multiprocessors as f64 * card.clock;
        let kernels = [
            (TENSOR_RATE, Some(reached * card.tensor)),
            (GROUP_RATE, groups.then_some(TENSOR_BY_GROUPS * card.tensor)),
            (INSTRUCTION_RATE, Some(ISSUE * SCHEDULERS * cycles)),
            (SHARED_RATE, Some(SHARED * cycles)),
        ];
        let kernels = kernels.into_iter().filter_map(|(name, rate)| Some((name.into(), rate?)));
        Rates { flops: PLAIN * peak, bytes: MEMORY * card.bandwidth, kernels: kernels.collect() }
    }
}

/// The share of a card's f32 peak that multiply-adds reach. Like the other shares, this is an estimate that no card has confirmed. What else kernels do
/// is counted: see [`crate::counts`].
const PLAIN: f64 = 0.8;

/// The share of the peak of tensor cores that products of warps reach, as matrix products by the same instructions do.
const TENSOR: f64 = 0.7;

/// The same on Volta and Turing, where nothing is copied in the background: a block multiplies only while it does not copy, and two to four
/// share the cores.
const TENSOR_ONE_STAGE: f64 = 0.5;

/// The same of products by warps if the peak is stated for instructions of warp groups.
pub(crate) const TENSOR_HOPPER: f64 = 0.5;

/// The same of products by warp groups.
pub(crate) const TENSOR_BY_GROUPS: f64 = 0.8;

/// The share of the peak memory bandwidth that kernels reach.
const MEMORY: f64 = 0.8;

/// The share of the rate at which instructions can be issued, and the schedulers of a multiprocessor, each of which issues one in a cycle: NVIDIA, "CUDA C++
/// Programming Guide", compute capabilities.
const ISSUE: f64 = 0.8;
const SCHEDULERS: f64 = 4.0;

/// The share of the rate of shared memory, which serves 32 banks of 4 bytes in a cycle.
const SHARED: f64 = 0.9;

/// Seconds from a kernel's end to the start of the next.
pub(crate) const LAUNCH: f64 = 3e-6;

/// The share of a program's predicted time from which on its launches are worth recording.
const WORTH_RECORDING: f64 = 0.01;

/// Returns `true` if launching the kernels of a program one by one takes a share of its predicted time that is worth
/// the memory of a recording: of long kernels the next one is launched while the last one runs, and nothing is to be
/// had.
pub(crate) fn is_worth_recording(launches: usize, predicted_seconds: f64) -> bool {
    launches > 1 && LAUNCH * launches as f64 >= WORTH_RECORDING * predicted_seconds
}

/// The names of the rates of tensor cores: of products by warps, and by warp groups.
pub(crate) const TENSOR_RATE: &str = "tensor cores";
pub(crate) const GROUP_RATE: &str = "tensor cores, by warp groups";

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

impl FromStr for Architecture {
    type Err = DeviceError;

    /// From `sm_80`, as NVIDIA's tools write it: the last digit is the minor number.
    fn from_str(text: &str) -> Result<Architecture, DeviceError> {
        let wrong = || DeviceError::NoArchitecture { found: text.into() };
        let digits = text.strip_prefix("sm_").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number: u32 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
        Architecture::new(number / 10, number % 10)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_others_are_refused() {
        for name in ["sm_70", "sm_86", "sm_120"] {
            assert_eq!(name.parse::<Architecture>().unwrap().to_string(), name);
        }
        assert!(matches!("sm_61".parse::<Architecture>(), Err(DeviceError::TooOld { .. })));
        for name in ["80", "sm_", "sm_8.0", "sm_-8", "sm_99999999999"] {
            assert!(
                matches!(name.parse::<Architecture>(), Err(DeviceError::NoArchitecture { .. })),
                "{name}"
            );
        }
    }

    /// The peaks that NVIDIA's data sheets print: 15.7, 19.5, 35.6, 82.6 and 67 TFLOP/s.
    #[test]
    fn the_peaks_are_those_of_the_data_sheets() {
        for (name, peak) in
            [("sm_70", 15.7e12), ("sm_80", 19.5e12), ("sm_86", 35.6e12), ("sm_89", 82.6e12), ("sm_90", 67e12)]
        {
            let flops = name.parse::<Architecture>().unwrap().rates().flops / PLAIN;
            assert!((flops / peak - 1.0).abs() < 0.01, "{name}: {flops:e}");
        }
    }
}
