//! The real device: NVIDIA's driver, loaded when it is asked for.
#![allow(unsafe_code, reason = "calls of the driver's C interface")]

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{CString, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_attribute, CUdeviceptr, CUevent_flags, CUfunction, CUmodule, CUresult,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

use crate::device::{CardMemory, Device, DeviceError, DeviceSource, Launch, Sizes};
use crate::{Architecture, ptx};

/// A card that the driver has found.
pub struct Driver {
    context: Arc<CudaContext>,
    name: String,
    architecture: Architecture,
    bytes: usize,
}

impl Driver {
    /// The card of a number, from 0.
    ///
    /// # Errors
    /// If there is no driver, no such card, or it is too old.
    pub fn find(ordinal: usize) -> Result<Driver, DeviceError> {
        // SAFETY: loads a library by its name, whose initialisers are those of the driver that the system has.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        let failed = |doing: &str, error| failed("the NVIDIA driver", doing, error);
        match result::init() {
            Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => {
                return Err(DeviceError::NoDevice { ordinal, found: 0 });
            }
            started => started.map_err(|error| failed("start", error))?,
        }
        let count = result::device::get_count().map_err(|error| failed("count GPUs", error))?;
        let found = usize::try_from(count).unwrap_or(0);
        if ordinal >= found {
            return Err(DeviceError::NoDevice { ordinal, found });
        }
        let open = || -> Result<_, DriverError> {
            let context = CudaContext::new(ordinal)?;
            let major =
                context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor =
                context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let (name, bytes) = (context.name()?, context.total_mem()?);
            Ok((context, name, bytes, [major, minor].map(i32::unsigned_abs)))
        };
        let (context, name, bytes, [major, minor]) = open().map_err(|error| failed("open the GPU", error))?;
        Ok(Driver { context, name, architecture: Architecture::new(major, minor)?, bytes })
    }

    /// What the driver calls the card.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Measures what this process takes of the card before it has an arena.
    ///
    /// # Errors
    /// If the card does not say what is free, or the kernels cannot be loaded.
    pub fn footprint(&self) -> Result<Footprint, DeviceError> {
        let before = self.memory()?;
        let opened = self.open(Sizes { bytes: 1, staging: 1, marks: 1 })?;
        let with_kernels = self.memory()?;
        drop(opened);
        let kernels = before.free.saturating_sub(with_kernels.free);
        Ok(Footprint { memory: self.memory()?, context: self.another_context(), kernels })
    }

    /// What another context of this process takes of the card. The first one cannot be measured: without a context the driver does not
    /// say what is free. None where the card allows one alone.
    fn another_context(&self) -> Option<usize> {
        let before = self.memory().ok()?.free;
        let mut second = ptr::null_mut();
        // SAFETY: the device is that of a context, so it is one; the call writes a handle where it is told to.
        unsafe { sys::cuCtxCreate_v2(&mut second, 0, self.context.cu_device()) }.result().ok()?;
        // The new context is this thread's now.
        let with_it = result::mem_get_info();
        // SAFETY: it was just made, and nothing uses it.
        let destroyed = unsafe { sys::cuCtxDestroy_v2(second) }.result();
        self.context.bind_to_thread().and(destroyed).ok()?;
        let (free, _) = with_it.ok()?;
        before.checked_sub(free).filter(|taken| *taken > 0)
    }
}

/// What a process takes of a card before it has an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// What is free and in all, while the process has its context and no kernels.
    pub memory: CardMemory,
    /// Bytes of a context, where they could be measured.
    pub context: Option<usize>,
    /// Bytes of the kernels, once they are loaded, and of the smallest allocation.
    pub kernels: usize,
}

impl DeviceSource for Driver {
    fn architecture(&self) -> Architecture {
        self.architecture
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        let asked = self.context.bind_to_thread().and_then(|()| result::mem_get_info());
        let (free, total) = asked.map_err(|error| failed(&self.name, "say what is free", error))?;
        Ok(CardMemory { total, free })
    }

    fn open(&self, sizes: Sizes) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(DriverDevice::new(self, sizes)?))
    }
}

/// A stream, the kernels, one allocation, and one of this process to copy through.
struct DriverDevice {
    name: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    marks: Vec<CudaEvent>,
    /// When the last copy to the device had ended.
    copied: CudaEvent,
    loaded: Loaded,
    bytes: usize,
    /// Bytes of the staging memory.
    staged: usize,
}

/// What is freed by hand.
struct Loaded {
    context: Arc<CudaContext>,
    modules: Vec<CUmodule>,
    functions: BTreeMap<String, CUfunction>,
    /// Zero before the memory is allocated.
    base: CUdeviceptr,
    /// Of the driver's page-locked memory, from which a card copies without the processor; none only while it is opened.
    staging: Option<NonNull<u8>>,
}

// SAFETY: handles of modules and functions belong to a context, not to a thread; every call binds the context to its thread first. The
// staging memory is reached through its one owner alone.
unsafe impl Send for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // What fails while things are freed cannot be told to anyone, and ends with the process.
        let _ = self.context.bind_to_thread();
        if self.base != 0 {
            // SAFETY: it was made by `DriverDevice::new` in this context, is freed nowhere else, and nothing uses it afterwards: the owner
            // waits for its stream before it drops this.
            let _ = unsafe { result::free_sync(self.base) };
        }
        if let Some(staging) = self.staging {
            // SAFETY: as of the allocation.
            let _ = unsafe { result::free_host(staging.as_ptr().cast::<c_void>()) };
        }
        for module in self.modules.drain(..) {
            // SAFETY: as of the allocation.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

impl Loaded {
    /// Loads a piece of PTX and finds its kernels, in the context that is bound to this thread.
    ///
    /// # Errors
    /// What the driver was to do, and what it says.
    fn load(&mut self, piece: &str) -> Result<(), (String, DriverError)> {
        let invalid = |_| DriverError(CUresult::CUDA_ERROR_INVALID_VALUE);
        let compiling = |error| ("compile the kernels".to_string(), error);
        let text = CString::new(piece).map_err(invalid).map_err(compiling)?;
        // SAFETY: the caller has bound the context to this thread; the PTX is text that ends with zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast::<c_void>()) };
        let module = module.map_err(compiling)?;
        self.modules.push(module);
        for name in kernel_names(piece) {
            let finding = |error| (format!("find the kernel {name}"), error);
            let given = CString::new(name).map_err(invalid).map_err(finding)?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, given) }.map_err(finding)?;
            self.functions.insert(name.to_string(), function);
        }
        Ok(())
    }
}

impl Drop for DriverDevice {
    fn drop(&mut self) {
        // Kernels that still run use what is freed next.
        let _ = self.stream.synchronize();
    }
}

/// A device that fails.
fn failed(device: &str, doing: &str, error: impl Error + Send + Sync + 'static) -> DeviceError {
    DeviceError::Failed { device: device.into(), doing: doing.into(), source: Box::new(error) }
}

impl DriverDevice {
    fn new(driver: &Driver, sizes: Sizes) -> Result<DriverDevice, DeviceError> {
        let Sizes { bytes, staging, marks } = sizes;
        let context = driver.context.clone();
        let failed = |doing: &str, error| failed(&driver.name, doing, error);
        let stream = context.new_stream().map_err(|error| failed("make a stream", error))?;
        let event = |_| context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let marks: Result<Vec<CudaEvent>, DriverError> = (0..marks).map(event).collect();
        let marks = marks.map_err(|error| failed("make events", error))?;
        let copied = event(0).map_err(|error| failed("make events", error))?;
        let loaded = Loaded {
            context: context.clone(),
            modules: Vec::new(),
            functions: BTreeMap::new(),
            base: 0,
            staging: None,
        };
        let name = driver.name.clone();
        let mut device =
            DriverDevice { name, context, stream, marks, copied, loaded, bytes, staged: staging.max(1) };
        for piece in ptx(driver.architecture) {
            device.loaded.load(piece).map_err(|(doing, error)| failed(&doing, error))?;
        }
        // SAFETY: the context is bound to this thread by `new_stream`. An allocation of nothing is refused, so it has at least a byte.
        device.loaded.base = unsafe { result::malloc_sync(bytes.max(1)) }
            .map_err(|error| failed(&format!("allocate {bytes} bytes"), error))?;
        device.loaded.staging = Some(device.lock_pages()?);
        Ok(device)
    }

    /// Allocates the staging memory, zeroed.
    fn lock_pages(&self) -> Result<NonNull<u8>, DeviceError> {
        let doing = format!("lock {} bytes of this process's memory", self.staged);
        // SAFETY: the context is bound to this thread by `new`; the size is not zero.
        let memory =
            unsafe { result::malloc_host(self.staged, 0) }.map_err(|error| self.failed(&doing, error))?;
        let missing = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(|| self.failed(&doing, missing))?;
        // SAFETY: the driver has just allocated so many bytes there, and nothing else knows of them.
        unsafe { memory.write_bytes(0, self.staged) };
        Ok(memory)
    }

    /// The first bytes of the staging memory. Whoever writes them waits for [`DriverDevice::copied`] before.
    fn staged(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let outside = DeviceError::Outside { start: 0, end: bytes, arena: self.staged };
        let memory = self.loaded.staging.filter(|_| bytes <= self.staged).ok_or(outside)?;
        // SAFETY: so many bytes were allocated and set to zero by `lock_pages`, are freed with `self`, and are reached through this alone.
        Ok(unsafe { slice::from_raw_parts_mut(memory.as_ptr(), bytes) })
    }

    fn failed(&self, doing: &str, error: DriverError) -> DeviceError {
        failed(&self.name, doing, error)
    }

    /// The address of a stretch, with the context bound to this thread.
    fn at(&self, range: Range<usize>) -> Result<CUdeviceptr, DeviceError> {
        if range.start > range.end || range.end > self.bytes {
            return Err(DeviceError::Outside { start: range.start, end: range.end, arena: self.bytes });
        }
        self.context.bind_to_thread().map_err(|error| self.failed("be used by this thread", error))?;
        Ok(self.loaded.base + range.start as u64)
    }

    fn set(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        let (bytes, at) = (range.len(), self.at(range)?);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `at` has checked that the stretch is inside the one allocation.
        unsafe { result::memset_d8_async(at, byte, bytes, self.stream.cu_stream()) }
            .map_err(|error| self.failed("fill memory", error))
    }
}

/// The names of all kernels of a piece of PTX.
fn kernel_names(piece: &str) -> impl Iterator<Item = &str> {
    piece.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('))
}

impl Device for DriverDevice {
    fn base(&self) -> u64 {
        self.loaded.base
    }

    fn staging(&mut self) -> Result<&mut [u8], DeviceError> {
        self.copied.synchronize().map_err(|error| self.failed("take values", error))?;
        self.staged(self.staged)
    }

    fn upload(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let at = self.at(offset..offset.saturating_add(bytes))?;
        let stream = self.stream.cu_stream();
        let from = self.staged(bytes)?;
        // SAFETY: `at` has checked that the stretch is inside the one allocation. The bytes stay as they are until the copy has ended:
        // `staging` waits for it, and so does the owner's drop.
        unsafe { result::memcpy_htod_async(at, from, stream) }
            .and_then(|()| self.copied.record(&self.stream))
            .map_err(|error| self.failed("take values", error))
    }

    fn download(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let at = self.at(offset..offset.saturating_add(bytes))?;
        let stream = self.stream.cu_stream();
        let to = self.staged(bytes)?;
        // SAFETY: as in `upload`; copies of a stream run one after the other, and this one is waited for here.
        unsafe { result::memcpy_dtoh_async(to, at, stream) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| self.failed("give values", error))
    }

    fn clear(&mut self, range: Range<usize>) -> Result<(), DeviceError> {
        self.set(range, 0)
    }

    fn poison(&mut self, range: Range<usize>) -> Result<(), DeviceError> {
        // All bits set is a NaN in every float format.
        self.set(range, 0xff)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let base = self.at(0..0)?;
        let inside = |range: &Range<u64>| base <= range.start && range.end - base <= self.bytes as u64;
        if let Some(range) = launch.reads.iter().chain(&launch.writes).find(|range| !inside(range)) {
            let [start, end] = [range.start, range.end].map(|address| address.wrapping_sub(base) as usize);
            return Err(DeviceError::Outside { start, end, arena: self.bytes });
        }
        // The message is made where it is needed: a launch allocates nothing.
        let refused = |error| self.failed(&format!("launch {}", launch.kernel), error);
        let found = self.loaded.functions.get(&launch.kernel);
        let function = found.ok_or_else(|| refused(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)))?;
        let dims = |[x, y, z]: [u32; 3]| (x, y, z);
        let mut parameters = [launch.parameters.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the module of the function is loaded as long as `self` lives. The kernel takes one struct, which the driver copies
        // before this returns and does not change; its addresses are inside the one allocation, as was checked.
        unsafe {
            result::launch_kernel(
                *function,
                dims(launch.grid),
                dims(launch.block),
                0,
                self.stream.cu_stream(),
                &mut parameters,
            )
        }
        .map_err(refused)
    }

    fn mark(&mut self, mark: usize) -> Result<(), DeviceError> {
        let event = self.marks.get(mark).ok_or(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
        event.and_then(|event| event.record(&self.stream)).map_err(|error| self.failed("note a time", error))
    }

    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError> {
        let missing = DriverError(CUresult::CUDA_ERROR_INVALID_VALUE);
        let event = |mark: Option<usize>| mark.and_then(|mark| self.marks.get(mark)).ok_or(missing);
        let milliseconds = event(mark.checked_sub(1))
            .and_then(|last| last.elapsed_ms(event(Some(mark))?))
            .map_err(|error| self.failed("run the kernels", error))?;
        Duration::try_from_secs_f32(milliseconds / 1e3)
            .map_err(|error| failed(&self.name, "tell a time", error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn without_a_driver_the_error_says_what_to_do() {
        match Driver::find(0) {
            Ok(driver) => assert!(driver.bytes() > 0, "{}", driver.name()),
            Err(DeviceError::NoDriver) => {
                assert!(DeviceError::NoDriver.to_string().contains("libcuda.so.1"));
                assert!(DeviceError::NoDriver.hint().contains("install"));
            }
            // A driver without a card, or one that is too old for the kernels.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn the_names_of_kernels_are_found_in_the_ptx_and_differ() {
        let pieces = ptx(Architecture::new(8, 0).unwrap());
        assert_eq!(ptx(Architecture::new(7, 5).unwrap()), pieces[..1]);
        let names: Vec<&str> = pieces.iter().flat_map(|piece| kernel_names(piece)).collect();
        assert_eq!(names.len(), pieces.iter().map(|piece| piece.matches(".entry ").count()).sum::<usize>());
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(["conv_f32_bf16", "tensor_pack"].iter().all(|name| names.contains(name)));
    }
}
