//! The real device: NVIDIA's driver, loaded when it is asked for.
#![allow(unsafe_code, reason = "calls of the driver's C interface")]

mod arena;
mod compile;
mod fallback;
mod gauges;
mod kernels;
#[cfg(unix)]
mod lanes;
mod recording;
mod surroundings;

use std::error::Error;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use plimsoll_memory::Bytes;
use plimsoll_plan::DeviceState;

use self::arena::DriverDevice;
use self::gauges::{Gauges, place};
use self::kernels::Kernels;
use self::recording::Recording;
use self::surroundings::{address_space, is_instance, unopened, visible};
use crate::Architecture;
use crate::device::{
    CardMemory, CudaVersion, DeviceError, DeviceSource, KernelCode, Opened, RecordingRoom, Sizes,
};
use crate::divide::LONGEST;

/// The oldest driver with all that is called here: `cuGraphInstantiateWithFlags` came with CUDA 11.4. It is younger than the PTX, which
/// drivers of CUDA 11.0 read.
const OLDEST: CudaVersion = CudaVersion { major: 11, minor: 4 };

/// A card that the driver has found.
pub struct Driver {
    card: Arc<Card>,
    bytes: usize,
    /// The card's address on the PCI bus.
    place: String,
    /// The version of CUDA that the driver has.
    version: CudaVersion,
    /// `true` if the system ends kernels that take long, since the card drives a display.
    has_watchdog: bool,
    multiprocessors: usize,
    /// None where they cannot be read.
    gauges: OnceLock<Option<Gauges>>,
}

/// The state that all devices on a card share.
struct Card {
    name: String,
    context: Arc<CudaContext>,
    architecture: Architecture,
    /// Locked while memory of the card is allocated or freed, so that what its free memory becomes less by meanwhile is due to one device of
    /// this process alone.
    shared: Mutex<Shared>,
}

/// The kernels and recordings that the devices on a card share.
struct Shared {
    /// None before the first device is opened.
    kernels: Option<Arc<Kernels>>,
    /// The remaining room for recordings.
    room: RecordingRoom,
}

impl Card {
    fn failed(&self, doing: &str, error: DriverError) -> DeviceError {
        failed(&self.name, doing, error)
    }

    /// Returns the error of an allocation of `bytes` bytes.
    fn refused(&self, bytes: usize, error: DriverError) -> DeviceError {
        match (error, self.memory()) {
            (DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY), Ok(CardMemory { free, .. })) => {
                let (asked, free) = (Bytes::from_len(bytes), Bytes::from_len(free));
                DeviceError::OutOfMemory { device: self.name.clone(), asked, free }
            }
            (error, _) => self.failed(&format!("allocate {bytes} bytes"), error),
        }
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        let asked = self.context.bind_to_thread().and_then(|()| result::mem_get_info());
        let (free, total) = asked.map_err(|error| self.failed("report its free memory", error))?;
        Ok(CardMemory { total, free })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernels, which are loaded by the first call.
    fn kernels(&self, shared: &mut Shared) -> Result<Arc<Kernels>, DeviceError> {
        if let Some(kernels) = &shared.kernels {
            return Ok(kernels.clone());
        }
        let kernels = Arc::new(Kernels::load(self)?);
        shared.kernels = Some(kernels.clone());
        Ok(kernels)
    }

    /// Returns an upper bound of the bytes that the driver allocates for the threads of kernels, once these are
    /// launched.
    fn local_memory(&self, kernels: &Kernels) -> Result<usize, DeviceError> {
        let attribute = |of| {
            let number =
                self.context.attribute(of).map_err(|error| self.failed("report its properties", error))?;
            usize::try_from(number).map_err(|error| failed(&self.name, "report its properties", error))
        };
        let threads = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        let multiprocessors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(kernels.local_memory(threads, multiprocessors))
    }

    /// Measures how much of the card's free memory the largest recordings take: launches of the kernel with the most
    /// bytes of parameters, each of which is recorded with a copy of them, and none of which is run.
    fn recorded(&self, kernels: &Kernels) -> Result<usize, DeviceError> {
        let failed = |error| self.failed("record launches", error);
        let kernel = kernels.largest().ok_or_else(|| failed(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)))?;
        let mut parameters = vec![0u8; kernel.parameters];
        let stream = self.context.new_stream().map_err(failed)?;
        let RecordingRoom { recordings, launches } = RecordingRoom::ALL;
        let each = launches / recordings;
        let mut all = Vec::with_capacity(recordings);
        let mut taken = 0;
        for _ in 0..recordings {
            let (recording, bytes) = Recording::record(self, &stream, each, || {
                let mut given = [parameters.as_mut_ptr().cast::<c_void>()];
                let (function, stream) = (kernel.function, stream.cu_stream());
                // SAFETY: the module of the function is loaded as long as `kernels` lives, and its one struct has as many bytes as are given. The
                // stream captures: the launch is noted with a copy of them, and never run.
                let mut launch = || unsafe {
                    result::launch_kernel(function, (1, 1, 1), (128, 1, 1), 0, stream, &mut given)
                };
                (0..each).try_for_each(|_| launch().map_err(failed))
            })?;
            all.push(recording);
            taken += bytes;
        }
        Ok(taken)
    }
}

/// A device that fails.
fn failed(device: &str, doing: &str, error: impl Error + Send + Sync + 'static) -> DeviceError {
    DeviceError::Failed { device: device.into(), doing: doing.into(), source: Box::new(error) }
}

/// Checks that a driver is new enough, by its version number: 11040 for CUDA 11.4.
fn check_version(number: i32, needed: CudaVersion) -> Result<CudaVersion, DeviceError> {
    let number = number.unsigned_abs();
    let found = CudaVersion { major: number / 1000, minor: number % 1000 / 10 };
    if found < needed { Err(DeviceError::TooOldDriver { found, needed }) } else { Ok(found) }
}

impl Driver {
    /// The card of a number, from 0.
    ///
    /// # Errors
    /// Returns an error if there is no driver, no such card, one of them is too old, or the program is linked statically.
    pub fn find(ordinal: usize) -> Result<Driver, DeviceError> {
        if cfg!(all(target_os = "linux", target_feature = "crt-static")) {
            return Err(DeviceError::StaticProgram);
        }
        // SAFETY: loads the system's driver library by its name; its initialisers are safe to run.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        let failed = |doing: &str, error| failed("the NVIDIA driver", doing, error);
        let mut version = 0;
        // SAFETY: the call writes a number where it is told to. It needs no start of the driver, and every driver for these cards has it.
        let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
        asked.map_err(|error| failed("report its version", error))?;
        let version = check_version(version, OLDEST)?;
        match result::init() {
            Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => {
                return Err(DeviceError::NoDevice { ordinal, found: 0, visible: visible() });
            }
            started => started.map_err(|error| unopened(error, address_space()))?,
        }
        let count = result::device::get_count().map_err(|error| failed("count GPUs", error))?;
        let found = usize::try_from(count).unwrap_or(0);
        if ordinal >= found {
            return Err(DeviceError::NoDevice { ordinal, found, visible: visible() });
        }
        let open = || -> Result<_, DriverError> {
            let context = CudaContext::new(ordinal)?;
            // With tracking, a first stream waits for all work of the context, which breaks off what another thread records meanwhile.
            // SAFETY: slices of `cudarc` are what is tracked, and this crate makes none: its memory is allocated, freed and waited for in
            // `arena`.
            unsafe { context.disable_event_tracking() };
            let major =
                context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor =
                context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let domain = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
            let bus = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
            let device = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
            let watchdog = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)?;
            let multiprocessors =
                context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
            let limits = (watchdog != 0, multiprocessors.unsigned_abs() as usize);
            let (name, bytes) = (context.name()?, context.total_mem()?);
            let place = place([domain, bus, device].map(i32::unsigned_abs));
            Ok((context, name, bytes, place, limits, [major, minor].map(i32::unsigned_abs)))
        };
        let (context, name, bytes, place, (has_watchdog, multiprocessors), [major, minor]) =
            open().map_err(|error| unopened(error, address_space()))?;
        let architecture = Architecture::new(major, minor)?;
        let shared = Mutex::new(Shared { kernels: None, room: RecordingRoom::ALL });
        let card = Arc::new(Card { name, context, architecture, shared });
        Ok(Driver { card, bytes, place, version, has_watchdog, multiprocessors, gauges: OnceLock::new() })
    }

    /// Returns the driver's name of the card.
    pub fn name(&self) -> &str {
        &self.card.name
    }

    /// Multiprocessors that this process may use: of a part of a card, only its own.
    pub fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    /// The driver's reason against the kernels with products by warp groups, where it has refused them.
    pub fn refused_groups(&self) -> Option<String> {
        self.card.lock().kernels.as_ref()?.refused.clone()
    }

    /// The reason why the driver has compiled the kernels, where they are not machine code of this program.
    pub fn compiled_kernels(&self) -> Option<String> {
        self.card.lock().kernels.as_ref()?.compiled.clone()
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Measures what this process takes of the card before it has an arena, and what it may record. The kernels stay loaded.
    ///
    /// # Errors
    /// Returns an error if the card does not report its free memory, the kernels cannot be loaded, or nothing can be
    /// recorded.
    pub fn footprint(&self) -> Result<Footprint, DeviceError> {
        let mut shared = self.card.lock();
        let loaded = self.card.kernels(&mut shared)?;
        let CardMemory { total, free } = self.card.memory()?;
        let memory = CardMemory { total, free: free.saturating_add(loaded.bytes) };
        let context = self.another_context();
        let recordings = self.card.recorded(&loaded)?;
        // What is not free again, though nothing is recorded any more, is held from now on, as what is loaded is.
        let kept = free.saturating_sub(self.card.memory()?.free);
        Ok(Footprint {
            memory,
            context,
            kernels: loaded.bytes.saturating_add(kept),
            local: self.card.local_memory(&loaded)?,
            recordings,
        })
    }

    /// Measures the memory that another context of this process takes of the card. The first one cannot be measured:
    /// without a context the driver does not report the free memory. Returns none if the card allows only one.
    fn another_context(&self) -> Option<usize> {
        let before = self.card.memory().ok()?.free;
        let mut second = ptr::null_mut();
        // SAFETY: the device belongs to a context, so it is valid; the call writes a handle to the given address.
        unsafe { sys::cuCtxCreate_v2(&mut second, 0, self.card.context.cu_device()) }.result().ok()?;
        // The new context is this thread's now.
        let with_it = result::mem_get_info();
        // SAFETY: it was just made, and nothing uses it.
        let destroyed = unsafe { sys::cuCtxDestroy_v2(second) }.result();
        self.card.context.bind_to_thread().and(destroyed).ok()?;
        let (free, _) = with_it.ok()?;
        before.checked_sub(free).filter(|taken| *taken > 0)
    }
}

/// The memory that a process takes of a card before it has an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The free and the total memory, while the process has its context and no kernels.
    pub memory: CardMemory,
    /// Bytes of a context, where they could be measured.
    pub context: Option<usize>,
    /// Bytes of the kernels, which are loaded once for all arenas, and of what the driver allocates with the first stream and the first
    /// recording and keeps.
    pub kernels: usize,
    /// Bytes that the driver allocates at most as kernels are launched: local memory of their threads.
    pub local: usize,
    /// Bytes of as much as may be [recorded](RecordingRoom::ALL), which is freed again.
    pub recordings: usize,
}

impl DeviceSource for Driver {
    /// Loads the kernels: which of them the driver takes is part of the answer.
    fn architecture(&self) -> Architecture {
        let kernels = self.card.kernels(&mut self.card.lock());
        // An error is met again when a device is opened, which reports it.
        kernels.map_or(self.card.architecture, |kernels| kernels.architecture)
    }

    fn watchdog(&self) -> Option<f64> {
        self.has_watchdog.then_some(LONGEST)
    }

    fn code(&self) -> Option<KernelCode> {
        let kernels = self.card.kernels(&mut self.card.lock()).ok()?;
        Some(match kernels.compiled {
            None => KernelCode::Built,
            Some(_) => KernelCode::Compiled { by: self.version },
        })
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        self.card.memory()
    }

    fn state(&self) -> Option<DeviceState> {
        let read = self.gauges.get_or_init(|| Gauges::find(self.place.clone())).as_ref()?.read()?;
        if !is_instance(&self.card.name) {
            return Some(read);
        }
        // The library reports the whole card; of a part of it, the driver knows the memory, and nobody how busy it is.
        let memory = self.card.memory().ok()?;
        let [used, total] = [memory.total - memory.free.min(memory.total), memory.total].map(Bytes::from_len);
        Some(DeviceState { used_bytes: Some(used), total_bytes: Some(total), busy_percent: None, ..read })
    }

    fn open(&self, sizes: Sizes) -> Result<Opened, DeviceError> {
        let mut loaded = self.card.lock();
        let kernels = self.card.kernels(&mut loaded)?;
        let before = self.card.memory()?.free;
        let device = DriverDevice::new(&self.card, kernels, sizes)?;
        let after = self.card.memory();
        // A device locks this as it is dropped, which an error from here on would do.
        drop(loaded);
        let taken = before.saturating_sub(after?.free);
        Ok(Opened { device: Box::new(device), taken })
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The errors that can occur on a healthy machine, each with a part of its message and of its remedy.
    fn expected(error: &DeviceError) -> Option<(&'static str, &'static str)> {
        match error {
            DeviceError::NoDriver => Some(("cannot be loaded", "install the driver")),
            DeviceError::StaticProgram => Some(("linked statically", "`linux-gnu`")),
            DeviceError::NoDevice { found: 0, .. } => Some(("found 0", "nvidia-smi -L")),
            DeviceError::TooOld { .. } => Some(("the kernels need sm_70 (Volta, 2017)", "‹device=cpu›")),
            DeviceError::TooOldDriver { .. } => Some(("CUDA 11.4 is needed", "470 or later")),
            _ => None,
        }
    }

    #[test]
    fn without_a_driver_the_error_says_what_to_do() {
        match Driver::find(0) {
            Ok(driver) => assert!(driver.bytes() > 0, "{}", driver.name()),
            Err(error) => {
                let Some((said, hint)) = expected(&error) else {
                    panic!("{error}: {:?}", error.source());
                };
                assert!(error.to_string().contains(said), "{error}");
                assert!(error.remedy().contains(hint), "{}", error.remedy());
            }
        }
    }

    #[test]
    fn drivers_that_are_too_old_are_refused_with_the_oldest_that_does() {
        for number in [11040, 11080, 12000, 13010] {
            assert!(check_version(number, OLDEST).is_ok(), "{number}");
        }
        let all = [(11030, "11.3"), (11010, "11.1"), (10020, "10.2"), (9000, "9.0")].map(|of| (of, OLDEST));
        for ((number, found), needed) in all {
            let error = check_version(number, needed).err().unwrap_or_else(|| panic!("{number} is taken"));
            assert!(error.to_string().contains(&format!("supports CUDA {found},")), "{error}");
            let (said, hint) = expected(&error).unwrap_or_else(|| panic!("{error}"));
            assert!(error.to_string().contains(said) && error.remedy().contains(hint), "{error}");
        }
    }
}
