//! The real device: NVIDIA's driver, loaded when it is asked for.
#![allow(unsafe_code, reason = "calls of the driver's C interface")]

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{CString, c_void};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_attribute, CUdeviceptr, CUevent_flags, CUfunction, CUmodule, CUresult,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

use crate::device::{Device, DeviceError, DeviceSource, Launch};
use crate::{Architecture, PTX};

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
}

impl DeviceSource for Driver {
    fn architecture(&self) -> Architecture {
        self.architecture
    }

    fn open(&self, bytes: usize, marks: usize) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(DriverDevice::new(self, bytes, marks)?))
    }
}

/// A stream, the kernels, and one allocation.
struct DriverDevice {
    name: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    marks: Vec<CudaEvent>,
    loaded: Loaded,
    bytes: usize,
}

/// What is freed by hand.
struct Loaded {
    context: Arc<CudaContext>,
    module: CUmodule,
    functions: BTreeMap<String, CUfunction>,
    base: CUdeviceptr,
}

// SAFETY: handles of modules and functions belong to a context, not to a thread; every call binds the context to its thread first.
unsafe impl Send for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // What fails while things are freed cannot be told to anyone, and ends with the process.
        let _ = self.context.bind_to_thread();
        // SAFETY: both were made by `DriverDevice::new` in this context, are freed nowhere else, and nothing uses them afterwards: the
        // owner waits for its stream before it drops this.
        let _ = unsafe { result::free_sync(self.base).and_then(|()| result::module::unload(self.module)) };
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
    fn new(driver: &Driver, bytes: usize, marks: usize) -> Result<DriverDevice, DeviceError> {
        let context = driver.context.clone();
        let failed = |doing: &str, error| failed(&driver.name, doing, error);
        let stream = context.new_stream().map_err(|error| failed("make a stream", error))?;
        let event = |_| context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let marks: Result<Vec<CudaEvent>, DriverError> = (0..marks).map(event).collect();
        let marks = marks.map_err(|error| failed("make events", error))?;
        let text =
            CString::new(PTX).map_err(|error| self::failed(&driver.name, "read the kernels", error))?;
        // SAFETY: the context is bound to this thread by `new_stream`; the PTX is text that ends with zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast::<c_void>()) }
            .map_err(|error| failed("compile the kernels", error))?;
        // SAFETY: the context is bound to this thread. An allocation of nothing is refused, so it has at least a byte.
        let base = match unsafe { result::malloc_sync(bytes.max(1)) } {
            Ok(base) => base,
            Err(error) => {
                // SAFETY: nothing uses the module, which was just loaded.
                let _ = unsafe { result::module::unload(module) };
                return Err(failed(&format!("allocate {bytes} bytes"), error));
            }
        };
        let loaded = Loaded { context: context.clone(), module, functions: BTreeMap::new(), base };
        let mut device = DriverDevice { name: driver.name.clone(), context, stream, marks, loaded, bytes };
        for name in kernel_names() {
            let doing = || format!("find the kernel {name}");
            let given = CString::new(name).map_err(|error| self::failed(&driver.name, &doing(), error))?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(device.loaded.module, given) };
            let function = function.map_err(|error| failed(&doing(), error))?;
            device.loaded.functions.insert(name.to_string(), function);
        }
        Ok(device)
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

/// The names of all kernels of the PTX.
fn kernel_names() -> impl Iterator<Item = &'static str> {
    PTX.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('))
}

impl Device for DriverDevice {
    fn base(&self) -> u64 {
        self.loaded.base
    }

    fn upload(&mut self, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let at = self.at(offset..offset.saturating_add(bytes.len()))?;
        // SAFETY: `at` has checked that the stretch is inside the one allocation; the bytes are not touched until the copy has ended.
        unsafe { result::memcpy_htod_async(at, bytes, self.stream.cu_stream()) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| self.failed("take values", error))
    }

    fn download(&self, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let at = self.at(offset..offset.saturating_add(bytes.len()))?;
        // SAFETY: as in `upload`.
        unsafe { result::memcpy_dtoh_async(bytes, at, self.stream.cu_stream()) }
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
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_what_to_do() {
        match Driver::find(0) {
            Ok(driver) => assert!(driver.bytes() > 0, "{}", driver.name()),
            Err(DeviceError::NoDriver) => {
                let message = DeviceError::NoDriver.to_string();
                assert!(message.contains("libcuda.so.1") && message.contains("install"), "{message}");
            }
            // A driver without a card, or one that is too old for the kernels.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn the_names_of_kernels_are_found_in_the_ptx() {
        assert_eq!(kernel_names().count(), PTX.matches(".entry ").count());
        assert!(kernel_names().any(|name| name == "conv_f32_bf16"));
    }
}
