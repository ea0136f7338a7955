//! The seam to what runs kernels: a GPU behind its driver, or an emulator.

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use plimsoll_plan::EngineError;

use crate::Architecture;

/// What can go wrong with a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver, or it is not to be loaded.
    #[error("there is no NVIDIA driver: `libcuda.so.1` cannot be loaded")]
    NoDriver,
    /// There is no card of this number.
    #[error("there is no GPU {ordinal}: the driver has found {found}")]
    NoDevice {
        /// The card asked for.
        ordinal: usize,
        /// How many there are.
        found: usize,
    },
    /// A plan was made for a kind of card, without one.
    #[error(
        "{architecture} is a kind of card, and not one: runs can be planned for it, but nothing can be run"
    )]
    Nowhere {
        /// The kind.
        architecture: Architecture,
    },
    /// The card is older than the kernels.
    #[error("{found} is too old: sm_70 (Volta, 2017) is the oldest that the kernels are made for")]
    TooOld {
        /// Its architecture.
        found: String,
    },
    /// What is said to be an architecture is none.
    #[error("`{found}` is no architecture: it must be like sm_80")]
    NoArchitecture {
        /// What was said.
        found: String,
    },
    /// A stretch of memory is not inside the arena, which the verifier has excluded.
    #[error("internal error: bytes {start} to {end} are outside of the {arena} bytes of the arena")]
    Outside {
        /// Its first byte.
        start: usize,
        /// Its end.
        end: usize,
        /// Bytes that there are.
        arena: usize,
    },
    /// The device refuses or fails.
    #[error("{device} has failed to {doing}")]
    Failed {
        /// The device.
        device: String,
        /// What it was to do.
        doing: String,
        /// What it says.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl DeviceError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            DeviceError::NoDriver => {
                "install the driver (`nvidia-smi` shows whether it works), or in a container pass the GPUs \
                                      through (`--gpus all`); --device cpu needs none"
                    .into()
            }
            DeviceError::NoDevice { found: 0, .. } => {
                "`nvidia-smi -L` lists the GPUs that there are; CUDA_VISIBLE_DEVICES may hide them".into()
            }
            DeviceError::NoDevice { found, .. } => {
                let last = found - 1;
                format!(
                    "from cuda:0 to cuda:{last}; `nvidia-smi -L` lists them, and CUDA_VISIBLE_DEVICES may hide some"
                )
            }
            DeviceError::Nowhere { .. } => "--device cuda:0 is the first card of this machine".into(),
            DeviceError::TooOld { .. } => "--device cpu runs on the processor".into(),
            DeviceError::NoArchitecture { .. } => {
                "sm_80 is that of an A100: `nvidia-smi --query-gpu=compute_cap --format=csv` \
                                                   shows that of a card, 8.0"
                    .into()
            }
            DeviceError::Outside { .. } => "report it with the command and this line".into(),
            DeviceError::Failed { .. } => {
                "`nvidia-smi` and the kernel's log (`dmesg | grep -i xid`) say more; --resume goes on from \
                                           the last checkpoint"
                    .into()
            }
        }
    }
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        EngineError::Device { hint: error.hint(), problem: Box::new(error) }
    }
}

/// One launch of a kernel, bound to the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The name of the kernel in the [PTX](crate::ptx()).
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// The kernel's one parameter, a struct, as its bytes.
    pub parameters: Vec<u8>,
    /// Addresses that it reads.
    pub reads: Vec<Range<u64>>,
    /// Addresses that it writes, and may read.
    pub writes: Vec<Range<u64>>,
}

/// Memory of one size on a device, memory of this process to copy through, and the kernels of this crate.
///
/// Launches, copies and fills run in the order in which they are asked for, and may go on after the call. Offsets are bytes from the
/// start of the device's memory.
pub trait Device: Send {
    /// The address of the first byte: a multiple of 256, and not zero.
    fn base(&self) -> u64;

    /// Memory of this process that the device copies to and from, when the last copy has ended.
    ///
    /// # Errors
    /// If a copy has failed.
    fn staging(&mut self) -> Result<&mut [u8], DeviceError>;

    /// Begins to copy the first bytes of the staging memory to the device.
    ///
    /// # Errors
    /// If they do not fit, or the device fails.
    fn upload(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError>;

    /// Copies bytes from the device into the first of the staging memory, when all that was launched has ended.
    ///
    /// # Errors
    /// As [`Device::upload`], and if a launch has failed.
    fn download(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// As [`Device::upload`].
    fn clear(&mut self, range: Range<usize>) -> Result<(), DeviceError>;

    /// Makes reads of bytes before they are written again show themselves: as NaN, or as an error.
    ///
    /// # Errors
    /// As [`Device::upload`].
    fn poison(&mut self, range: Range<usize>) -> Result<(), DeviceError>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// If the device refuses it, or an earlier one has failed.
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// Notes the time at which all that was launched has ended, under a number below those that the device was opened with.
    ///
    /// # Errors
    /// If there is no such number, or the device fails.
    fn mark(&mut self, mark: usize) -> Result<(), DeviceError>;

    /// Waits for a mark; the time between the mark before it and this one.
    ///
    /// # Errors
    /// As [`Device::mark`], and if a launch has failed.
    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError>;
}

/// What a card has of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardMemory {
    /// Bytes in all.
    pub total: usize,
    /// Bytes that nobody holds.
    pub free: usize,
}

/// What a device is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of its memory.
    pub bytes: usize,
    /// Bytes of this process to copy through.
    pub staging: usize,
    /// How many times it can note.
    pub marks: usize,
}

/// Where devices come from.
pub trait DeviceSource: Send + Sync {
    /// What its devices are.
    fn architecture(&self) -> Architecture;

    /// What of their memory is free now.
    ///
    /// # Errors
    /// If there is no device, or it does not say.
    fn memory(&self) -> Result<CardMemory, DeviceError>;

    /// A device.
    ///
    /// # Errors
    /// If there is none, or not so much memory.
    fn open(&self, sizes: Sizes) -> Result<Box<dyn Device>, DeviceError>;
}

/// A kind of card without one: for planning.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere(pub Architecture);

impl DeviceSource for Nowhere {
    fn architecture(&self) -> Architecture {
        self.0
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        Err(DeviceError::Nowhere { architecture: self.0 })
    }

    fn open(&self, _sizes: Sizes) -> Result<Box<dyn Device>, DeviceError> {
        Err(DeviceError::Nowhere { architecture: self.0 })
    }
}
