//! A device: a stream, an allocation on the card, and one of this process to copy through.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags, CUresult};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

use super::kernels::Kernels;
use super::{Card, failed};
use crate::device::{Device, DeviceError, Launch, Sizes};

/// A device of a card.
pub(super) struct DriverDevice {
    card: Arc<Card>,
    kernels: Arc<Kernels>,
    stream: Arc<CudaStream>,
    marks: Vec<CudaEvent>,
    /// When the last copy to the device had ended.
    copied: CudaEvent,
    memory: Memory,
}

impl Drop for DriverDevice {
    fn drop(&mut self) {
        // Kernels that still run use what is freed next. What fails here cannot be told to anyone, and ends with the process.
        let _ = self.stream.synchronize();
        // While another device is opened, the card's free memory is to become less by that one alone.
        let _locked = self.card.lock();
        self.memory.free();
    }
}

/// What is freed by hand.
struct Memory {
    context: Arc<CudaContext>,
    /// Bytes on the card.
    bytes: usize,
    /// Where they begin; zero where they are not allocated.
    base: CUdeviceptr,
    /// Bytes of this process.
    staged: usize,
    /// Of the driver's page-locked memory, from which a card copies without the processor; none where it is not allocated.
    staging: Option<NonNull<u8>>,
}

// SAFETY: the staging memory is reached through its one owner alone, and addresses on the card belong to a context, not to a thread.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        self.free();
    }
}

impl Memory {
    /// Allocates on the card and, zeroed, of this process, in the context that is bound to this thread.
    ///
    /// # Errors
    /// What the driver was to do, and what it says.
    fn allocate(card: &Card, bytes: usize, staged: usize) -> Result<Memory, DeviceError> {
        // An allocation of nothing is refused, so each has at least a byte.
        let staged = staged.max(1);
        let mut memory = Memory { context: card.context.clone(), bytes, base: 0, staged, staging: None };
        // SAFETY: the context is bound to this thread, and the size is not zero.
        memory.base = unsafe { result::malloc_sync(bytes.max(1)) }
            .map_err(|error| card.failed(&format!("allocate {bytes} bytes"), error))?;
        let doing = format!("lock {staged} bytes of this process's memory");
        // SAFETY: as above.
        let locked = unsafe { result::malloc_host(staged, 0) }.map_err(|error| card.failed(&doing, error))?;
        let missing = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let locked = NonNull::new(locked.cast::<u8>()).ok_or_else(|| card.failed(&doing, missing))?;
        memory.staging = Some(locked);
        // SAFETY: the driver has just allocated so many bytes there, and nothing else knows of them.
        unsafe { locked.write_bytes(0, staged) };
        Ok(memory)
    }

    /// Frees all of it, once.
    fn free(&mut self) {
        let _ = self.context.bind_to_thread();
        if self.base != 0 {
            // SAFETY: it was made by `allocate` in this context, and nothing uses it afterwards: the owner waits for its stream before.
            let _ = unsafe { result::free_sync(self.base) };
            (self.base, self.bytes) = (0, 0);
        }
        if let Some(staging) = self.staging.take() {
            self.staged = 0;
            // SAFETY: as of the allocation.
            let _ = unsafe { result::free_host(staging.as_ptr().cast::<c_void>()) };
        }
    }
}

impl DriverDevice {
    /// A device, made under the lock of its card.
    pub(super) fn new(
        card: &Arc<Card>,
        kernels: Arc<Kernels>,
        sizes: Sizes,
    ) -> Result<DriverDevice, DeviceError> {
        let Sizes { bytes, staging, marks } = sizes;
        // Binds the context to this thread.
        let stream = card.context.new_stream().map_err(|error| card.failed("make a stream", error))?;
        let event = |_| card.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let marks: Result<Vec<CudaEvent>, DriverError> = (0..marks).map(event).collect();
        let marks = marks.map_err(|error| card.failed("make events", error))?;
        let copied = event(0).map_err(|error| card.failed("make events", error))?;
        // Last: were a device dropped under the lock, it would wait for it forever.
        let memory = Memory::allocate(card, bytes, staging)?;
        Ok(DriverDevice { card: card.clone(), kernels, stream, marks, copied, memory })
    }

    /// The first bytes of the staging memory. Whoever writes them waits for [`DriverDevice::copied`] before.
    fn staged(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let staged = self.memory.staged;
        let outside = DeviceError::Outside { start: 0, end: bytes, arena: staged };
        let memory = self.memory.staging.filter(|_| bytes <= staged).ok_or(outside)?;
        // SAFETY: so many bytes were allocated and set to zero by `Memory::allocate`, are freed with `self`, and are reached through this
        // alone.
        Ok(unsafe { slice::from_raw_parts_mut(memory.as_ptr(), bytes) })
    }

    fn failed(&self, doing: &str, error: DriverError) -> DeviceError {
        self.card.failed(doing, error)
    }

    /// The address of a stretch, with the context bound to this thread.
    fn at(&self, range: Range<usize>) -> Result<CUdeviceptr, DeviceError> {
        if range.start > range.end || range.end > self.memory.bytes {
            return Err(DeviceError::Outside {
                start: range.start,
                end: range.end,
                arena: self.memory.bytes,
            });
        }
        self.card.context.bind_to_thread().map_err(|error| self.failed("be used by this thread", error))?;
        Ok(self.memory.base + range.start as u64)
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

impl Device for DriverDevice {
    fn base(&self) -> u64 {
        self.memory.base
    }

    fn staging(&mut self) -> Result<&mut [u8], DeviceError> {
        self.copied.synchronize().map_err(|error| self.failed("take values", error))?;
        self.staged(self.memory.staged)
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
        // The message is made where it is needed: a launch allocates nothing.
        let refused = |error| self.failed(&format!("launch {}", launch.kernel), error);
        let found = self.kernels.find(&launch.kernel);
        let kernel = found.ok_or_else(|| refused(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)))?;
        launch.check(base..base + self.memory.bytes as u64, kernel.parameters)?;
        let dims = |[x, y, z]: [u32; 3]| (x, y, z);
        let mut parameters = [launch.parameters.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the module of the function is loaded as long as `self` lives. The kernel takes one struct of as many bytes as there are, as
        // was checked; the driver copies it before this returns and does not change it. A `Launch` is made by this crate alone, so the
        // addresses that the kernel uses are those it declares, which are inside the one allocation, as was checked.
        unsafe {
            result::launch_kernel(
                kernel.function,
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
            .map_err(|error| failed(&self.card.name, "tell a time", error))
    }
}
