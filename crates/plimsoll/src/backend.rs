//! The devices that programs run on, and their backends: the one place that names them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use plimsoll_cpu::{CpuBackend, LaunchTasks, barrier_seconds};
use plimsoll_cpu::{CpuOptions, Level, Products, fma_peak};
use plimsoll_cuda::{Architecture, CudaBackend, DeviceError, DeviceSource, Driver, Footprint, Nowhere};
use plimsoll_memory::{Bytes, resident_anonymous};
use plimsoll_plan::{Backend, DeviceMemory, DriverUse, EngineError, PlanError};
#[cfg(unix)]
use plimsoll_ranks::{Communicator, LaneSizes, Lanes, NcclFailure};
use plimsoll_reference::ReferenceBackend;
use plimsoll_run::Precision;
use serde::Serialize;

use plimsoll_run::one_line;

use crate::error::{Error, Outcome};
#[cfg(unix)]
use crate::jobs::train::LinkFailure;

/// The share of a card's free memory that stays free without a limit, as for the machine's memory: one part in `MARGIN`.
const MARGIN: u64 = 16;

/// The host memory that a driver may still allocate after the kernels are loaded: for arenas, launches and copies.
const LATER: Bytes = Bytes::mib(64);

/// The device that runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor, with kernels for its instruction set.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its number.
    Cuda(usize),
    /// A kind of NVIDIA GPU, to plan for whether there is one or not.
    Kind(Architecture),
    /// The definitions of all ops in f64: slow, to check other backends against.
    Reference,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        match text {
            "cpu" => Ok(DeviceName::Cpu),
            "cuda" => Ok(DeviceName::Cuda(0)),
            "reference" => Ok(DeviceName::Reference),
            _ if text.starts_with("sm_") => {
                text.parse().map(DeviceName::Kind).map_err(|error: DeviceError| error.to_string())
            }
            _ => match text.strip_prefix("cuda:").and_then(number) {
                Some(ordinal) => Ok(DeviceName::Cuda(ordinal)),
                None => {
                    Err("write cpu, cuda:0 (cuda for short), cuda:1, …; or a kind like sm_80 to plan without a card"
                        .into())
                }
            },
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceName::Kind(architecture) => architecture.fmt(f),
            DeviceName::Reference => f.write_str("reference"),
        }
    }
}

impl DeviceName {
    /// Opens the backend of this device: on the processor with `threads` threads, on a card within a limit of its memory.
    pub fn open(self, threads: usize, vram: Option<Bytes>) -> Outcome<Arc<dyn Backend>> {
        match self {
            DeviceName::Cuda(_) => self.open_linked(threads, vram, LinkMemory::default()),
            DeviceName::Kind(architecture) => Err(DeviceError::Nowhere { architecture }.into()),
            DeviceName::Cpu | DeviceName::Reference if vram.is_some() => Err(Error::new(
                format!("‹vram› has no effect: ‹device={self}› has no separate memory"),
                "leave it out, or name a GPU, like ‹device=cuda:0›",
            )),
            DeviceName::Cpu => Ok(Arc::new(CpuBackend::new(CpuOptions::new(threads))?)),
            DeviceName::Reference => Ok(Arc::new(ReferenceBackend::new())),
        }
    }

    /// The same for a rank whose communication with others takes memory of a card.
    pub fn open_linked(
        self,
        threads: usize,
        vram: Option<Bytes>,
        link: LinkMemory,
    ) -> Outcome<Arc<dyn Backend>> {
        match self {
            DeviceName::Cuda(ordinal) => Card { link, ..Card::find(ordinal)? }.below(vram),
            _ => self.open(threads, vram),
        }
    }

    /// The same, to plan with alone: of a kind of card, which must have a limit, too.
    pub fn open_to_plan(self, threads: usize, vram: Option<Bytes>) -> Outcome<Arc<dyn Backend>> {
        let DeviceName::Kind(architecture) = self else { return self.open(threads, vram) };
        let Some(limit) = vram else {
            let message = format!("{self} is a kind of card, whose amount of memory is unknown");
            return Err(Error::new(message, "set a limit with ‹vram›, like ‹vram=12GiB›"));
        };
        within(CudaBackend::new(Arc::new(Nowhere(architecture))), limit, DriverUse::USUAL)
    }

    /// The same device for one of several engines that run at the same time: with `threads` threads, or an equal part of the memory of
    /// `whole`.
    pub fn open_part(self, whole: &dyn Backend, engines: usize, threads: usize) -> Outcome<Arc<dyn Backend>> {
        match whole.shared_by(engines) {
            Some(part) => Ok(part),
            None => self.open(threads, None),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::new(one_line(&error), error.remedy())
    }
}

/// The backend of a card, below a limit of its memory.
fn within(backend: CudaBackend, limit: Bytes, driver: DriverUse) -> Outcome<Arc<dyn Backend>> {
    let memory = DeviceMemory::new(limit, driver).map_err(|_| {
        let message = format!(
            "the driver uses {} of the card's memory, but its limit is {limit}",
            driver.device_bytes()
        );
        let least = driver.device_bytes().0.div_ceil(1 << 20);
        let hint = format!("raise ‹vram› above {least} MiB; the plan of the job states the least limit");
        Error::new(message, hint)
    })?;
    Ok(Arc::new(backend.within(memory)))
}

/// A GPU that the driver has found, and what this process takes of it before it has an arena.
pub struct Card {
    ordinal: usize,
    driver: Driver,
    footprint: Footprint,
    /// By what resident memory grew as the driver was started, without its libraries, where that can be read.
    grown: Option<Bytes>,
    link: LinkMemory,
}

/// The memory that the communication of a rank takes, measured while a message went through each channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMemory {
    /// Memory of the card.
    pub device: Bytes,
    /// Memory of this process.
    pub host: Bytes,
}

/// A card through which a rank may send.
#[cfg(unix)]
pub(crate) struct RankCard {
    driver: Driver,
}

#[cfg(unix)]
impl RankCard {
    /// The card of a number, from 0.
    pub(crate) fn find(ordinal: usize) -> Result<RankCard, DeviceError> {
        Ok(RankCard { driver: Driver::find(ordinal)? })
    }

    /// The card's address in its node.
    pub(crate) fn place(&self) -> &str {
        self.driver.place()
    }

    /// Connects ranks by a function that takes the lanes of this card, and measures the memory that it takes. The kernels are not loaded yet.
    pub(crate) fn link(
        &self,
        communicator: Box<dyn Communicator + Send>,
        open: impl FnOnce(
            Box<dyn Communicator + Send>,
            Box<dyn Lanes>,
        ) -> Result<Box<dyn Communicator + Send>, NcclFailure>,
    ) -> Result<(Box<dyn Communicator + Send>, LinkMemory), LinkFailure> {
        let sizes = LaneSizes::new(communicator.size());
        let buffers = Bytes::from_len(sizes.total());
        let (free, resident) =
            (|| self.driver.memory_now().map(|memory| memory.free), || resident_anonymous().ok());
        let before = (free(), resident());
        let lanes = match self.driver.lanes(sizes) {
            Ok(lanes) => lanes,
            Err(error) => return Err(LinkFailure { error: error.into(), communicator }),
        };
        let communicator = open(communicator, lanes).map_err(|NcclFailure { error, control }| {
            LinkFailure { error: error.into(), communicator: control }
        })?;
        let taken = match (before.0, free()) {
            (Ok(before), Ok(now)) => Bytes::from_len(before.saturating_sub(now)),
            (Err(error), _) | (_, Err(error)) => {
                return Err(LinkFailure { error: error.into(), communicator });
            }
        };
        let grown = resident().zip(before.1).map_or(Bytes::ZERO, |(now, before)| now - before);
        // Page-locked memory counts as the driver's, not as the process's own.
        Ok((communicator, LinkMemory { device: taken.max(buffers), host: grown + buffers }))
    }
}

/// A GPU, for people and as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct CardReport {
    /// The name of the device for `--device`.
    pub device: String,
    /// The driver's name of the card.
    pub name: String,
    /// Its compute capability.
    pub architecture: String,
    /// All of its memory.
    pub memory_bytes: Bytes,
    /// Multiprocessors that this process may use: of a part of a card (MIG), only its own.
    pub multiprocessors: usize,
    /// `true` if the card drives a display, whose watchdog ends kernels that take seconds.
    pub has_watchdog: bool,
    /// The driver's reason against the kernels with products by warp groups, where the card has these and the driver refuses them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_warp_groups: Option<String>,
    /// The reason why the driver compiles the kernels; `None` if it loads machine code that this program was built with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled_kernels: Option<String>,
    /// The memory that this process may take, its context included.
    pub free_bytes: Bytes,
    /// The memory of a process's context; `None` if it could not be measured by creating and destroying another one.
    pub context_bytes: Option<Bytes>,
    /// The memory of the loaded kernels.
    pub kernel_bytes: Bytes,
    /// The computed reserve for local memory of kernel threads, which the driver allocates at launches.
    pub local_bytes: Bytes,
    /// The measured reserve for recording programs, which are then launched as one; freed until it is needed.
    pub recording_bytes: Bytes,
    /// By what the process's own resident memory grew as the driver was started, without its libraries, where that can be read.
    pub driver_resident_bytes: Option<Bytes>,
}

impl Card {
    /// The card of a number, from 0.
    pub fn find(ordinal: usize) -> Result<Card, DeviceError> {
        // The driver's libraries are files, which are counted as code already.
        let own = || resident_anonymous().ok();
        let before = own();
        let driver = Driver::find(ordinal)?;
        let footprint = driver.footprint()?;
        let grown = own().zip(before).map(|(now, before)| now - before);
        Ok(Card { ordinal, driver, footprint, grown, link: LinkMemory::default() })
    }

    /// The most memory that this process may take: the free memory, its own context, and its channels to other ranks.
    fn free(&self) -> Bytes {
        Bytes::from_len(self.footprint.memory.free + self.footprint.context.unwrap_or(0)) + self.link.device
    }

    fn driver_use(&self) -> DriverUse {
        let kernels = Bytes::from_len(self.footprint.kernels);
        let (usual, measured) = (DriverUse::USUAL, self.footprint.context.map(Bytes::from_len));
        DriverUse {
            context: measured.unwrap_or(usual.context) + kernels,
            recordings: Bytes::from_len(self.footprint.recordings.saturating_add(self.footprint.local)),
            ranks: self.link.device,
            host: self.grown.map_or(usual.host, |grown| grown + LATER) + self.link.host,
            is_measured: measured.is_some(),
        }
    }

    /// The backend of this card within the requested limit, or within the free memory less a margin.
    fn below(self, vram: Option<Bytes>) -> Outcome<Arc<dyn Backend>> {
        let free = self.free();
        if let Some(asked) = vram.filter(|asked| *asked > free) {
            let total = Bytes::from_len(self.footprint.memory.total);
            let message = format!(
                "‹vram={asked}› is more than the {free} of cuda:{} that are free; {} has {total}",
                self.ordinal,
                self.driver.name()
            );
            return Err(Error::new(message, format!("set the limit to {free} at most")));
        }
        let limit = vram.unwrap_or(free - Bytes(free.0 / MARGIN));
        let driver = self.driver_use();
        within(CudaBackend::new(Arc::new(self.driver)), limit, driver)
    }

    /// The description of this card.
    pub fn report(&self) -> CardReport {
        CardReport {
            device: DeviceName::Cuda(self.ordinal).to_string(),
            name: self.driver.name().into(),
            architecture: self.driver.architecture().to_string(),
            memory_bytes: Bytes::from_len(self.footprint.memory.total),
            multiprocessors: self.driver.multiprocessors(),
            has_watchdog: self.driver.watchdog().is_some(),
            refused_warp_groups: self.driver.refused_groups(),
            compiled_kernels: self.driver.compiled_kernels(),
            free_bytes: self.free(),
            context_bytes: self.footprint.context.map(Bytes::from_len),
            kernel_bytes: Bytes::from_len(self.footprint.kernels),
            local_bytes: Bytes::from_len(self.footprint.local),
            recording_bytes: Bytes::from_len(self.footprint.recordings),
            driver_resident_bytes: self.grown,
        }
    }
}

/// The processor by itself, with what only it says: what the tasks of its kernels take.
pub fn processor(threads: usize, precision: Precision) -> Outcome<CpuBackend> {
    let products = match precision {
        Precision::Bf16Dot => Products::Bf16,
        Precision::F32 | Precision::Tf32 | Precision::Bf16 | Precision::F16 => Products::F32,
    };
    let backend = CpuBackend::new(CpuOptions { products, ..CpuOptions::new(threads) })?;
    match precision {
        Precision::Tf32 => Err(PlanError::Tf32Products { backend: backend.identity() }.into()),
        Precision::F32 | Precision::Bf16 | Precision::Bf16Dot | Precision::F16 => Ok(backend),
    }
}

/// Returns `true` if this machine has an instruction that multiplies bf16.
pub fn multiplies_bf16() -> bool {
    Level::current().multiplies_bf16()
}

/// The most threads of kernels.
pub const MOST_THREADS: usize = 256;

/// The threads of kernels by default: one for each core that this process may use, as [`plimsoll_parallel::default_threads`] counts them.
pub fn default_threads() -> usize {
    plimsoll_parallel::default_threads().min(MOST_THREADS)
}

/// The instruction set that kernels are chosen for on this machine.
pub fn instruction_set() -> String {
    Level::current().to_string()
}

/// Floating-point operations per second of the processor with all operands in registers.
pub fn multiply_add_peak(threads: usize) -> Result<f64, EngineError> {
    fma_peak(threads)
}

/// Limits the instruction set of kernels in this process, by its name: `portable`; `avx2` or `avx512` on x86-64; `neon` or `neon-bf16` on
/// aarch64. Call it before any job.
///
/// # Errors
/// Returns an error if no instruction set has this name, or another limit was set before.
pub fn limit_instruction_set(name: &str) -> Outcome {
    match Level::from_name(name) {
        None => {
            let message = format!("unknown instruction set `{name}`");
            let above: Vec<String> = Level::ALL.iter().skip(1).rev().map(Level::to_string).collect();
            let or = if above.is_empty() { "" } else { " or " };
            let known = format!("{}{or}{}", above.join(", "), Level::Portable);
            Err(Error::new(message, format!("choose {known}, or none for the machine's best")))
        }
        Some(level) if Level::limit(level) => Ok(()),
        Some(_) => {
            let message = format!("instruction sets of this process are limited already, not to `{name}`");
            Err(Error::new(message, "limit them once, before any job"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written_and_others_are_refused() {
        for name in ["cpu", "cuda:0", "cuda:13", "sm_86", "reference"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda0", "sm_", "sm_61", "CPU"] {
            assert!(name.parse::<DeviceName>().is_err(), "{name}");
        }
    }
}
