//! A device: a stream, an allocation on the card and perhaps another one beside it, and one of this process to copy through.

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
use super::recording::Recording;
use super::{Card, failed};
use crate::device::{
    Beside, Device, DeviceError, KEPT, KEPT_BYTES, Launch, Recorded, RecordedTask, Sizes, Work, check_within,
};

/// A device of a card.
pub(super) struct DriverDevice {
    card: Arc<Card>,
    kernels: Arc<Kernels>,
    stream: Arc<CudaStream>,
    /// Copies that do not wait for kernels.
    copies: Arc<CudaStream>,
    marks: Vec<CudaEvent>,
    /// The event behind the last copy from the staging memory.
    copied: CudaEvent,
    /// The event behind the last values that were taken from those copied ahead.
    taken: CudaEvent,
    /// The events behind kept results.
    kept: [CudaEvent; KEPT],
    /// The event behind all work, to wait for it.
    idle: CudaEvent,
    recordings: Vec<Recording>,
    memory: Memory,
    beside: Option<Allocation>,
}

impl Drop for DriverDevice {
    fn drop(&mut self) {
        // Kernels that still run use what is freed next. What fails here cannot be told to anyone, and ends with the process.
        let _ = self.copied.synchronize();
        let _ = self.wait();
        // While another device is opened, the card's free memory is to become less by that one alone.
        let mut locked = self.card.lock();
        let _ = self.card.context.bind_to_thread();
        for recording in self.recordings.drain(..) {
            locked.room.give_back(recording.launches);
        }
        self.beside = None;
        self.memory.free();
    }
}

/// Memory of a card, freed with this. Whoever has it waits for what uses it before.
pub(super) struct Allocation {
    context: Arc<CudaContext>,
    base: CUdeviceptr,
    bytes: usize,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: it was made by `allocate` in this context, is freed here alone, and nothing uses it afterwards: the owner waits for its
        // stream before.
        let _ = unsafe { result::free_sync(self.base) };
    }
}

impl Allocation {
    /// Allocates in the context that is bound to this thread.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub(super) fn allocate(card: &Card, bytes: usize) -> Result<Allocation, DeviceError> {
        // SAFETY: the context is bound to this thread, and the size is not zero, which would be refused.
        let base =
            unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|error| card.refused(bytes, error))?;
        Ok(Allocation { context: card.context.clone(), base, bytes })
    }

    fn addresses(&self) -> Range<u64> {
        self.base..self.base + self.bytes as u64
    }

    /// The address of its first byte.
    #[cfg(unix)]
    pub(super) fn base(&self) -> u64 {
        self.base
    }
}

/// Page-locked memory of this process, from which a card copies without the processor. Whoever has it waits for what uses it before.
pub(super) struct Locked {
    context: Arc<CudaContext>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is reached through its one owner alone, and belongs to a context, not to a thread.
unsafe impl Send for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: it was made by `allocate` in this context, is freed here alone, and nothing uses it afterwards: the owner waits for its
        // streams before.
        let _ = unsafe { result::free_host(self.start.as_ptr().cast::<c_void>()) };
    }
}

impl Locked {
    /// Allocates zeroed memory in the context that is bound to this thread.
    ///
    /// # Errors
    /// Returns an error with the operation that failed and the driver's message.
    pub(super) fn allocate(card: &Card, bytes: usize) -> Result<Locked, DeviceError> {
        // An allocation of nothing is refused.
        let bytes = bytes.max(1);
        let doing = format!("lock {bytes} bytes of this process's memory");
        // SAFETY: the context is bound to this thread, and the size is not zero.
        let locked = unsafe { result::malloc_host(bytes, 0) }.map_err(|error| card.failed(&doing, error))?;
        let missing = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let start = NonNull::new(locked.cast::<u8>()).ok_or_else(|| card.failed(&doing, missing))?;
        // SAFETY: the driver has just allocated so many bytes there, and nothing else knows of them.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Locked { context: card.context.clone(), start, bytes })
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were allocated and set to zero by `allocate`, are freed with `self`, and are reached through this alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

/// Memory that is freed explicitly.
struct Memory {
    /// On the card; none once it is freed.
    arena: Option<Allocation>,
    /// Beside it on the card, for values that are copied ahead; none if none are, or once it is freed.
    ahead: Option<Allocation>,
    /// The memory to copy through, behind which results are kept; none once it is freed.
    staging: Option<Locked>,
}

/// Bytes of all results that are kept.
const RESULTS: usize = KEPT * KEPT_BYTES;

impl Memory {
    /// Allocates on the card and, zeroed, of this process, in the context that is bound to this thread.
    ///
    /// # Errors
    /// Returns an error with the operation that failed and the driver's message.
    fn allocate(card: &Card, sizes: Sizes) -> Result<Memory, DeviceError> {
        let arena = Some(Allocation::allocate(card, sizes.bytes)?);
        let ahead = (sizes.ahead > 0).then(|| Allocation::allocate(card, sizes.ahead)).transpose()?;
        Ok(Memory { arena, ahead, staging: Some(Locked::allocate(card, sizes.staging)?) })
    }

    /// The memory to copy through, and the memory of kept results.
    fn host(&mut self) -> (&mut [u8], &mut [u8]) {
        let all = self.staging.as_mut().map_or(&mut [][..], Locked::bytes);
        let results = if self.ahead.is_some() { RESULTS.min(all.len()) } else { 0 };
        all.split_at_mut(all.len() - results)
    }

    /// Frees all of it, once.
    fn free(&mut self) {
        self.arena = None;
        self.ahead = None;
        self.staging = None;
    }
}

impl DriverDevice {
    /// A device, made under the lock of its card.
    pub(super) fn new(
        card: &Arc<Card>,
        kernels: Arc<Kernels>,
        sizes: Sizes,
    ) -> Result<DriverDevice, DeviceError> {
        // Binds the context to this thread. Copies have a stream of their own only if some are made ahead.
        let new_stream = || card.context.new_stream().map_err(|error| card.failed("make a stream", error));
        let stream = new_stream()?;
        let copies = if sizes.ahead > 0 { new_stream()? } else { stream.clone() };
        // A thread that waits for an event leaves its core to the threads that make batches.
        let event = || card.context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        let new_event = || event().map_err(|error| card.failed("make events", error));
        let marks = (0..sizes.marks).map(|_| new_event()).collect::<Result<Vec<CudaEvent>, _>>()?;
        let [copied, taken, idle, first, second] =
            [new_event()?, new_event()?, new_event()?, new_event()?, new_event()?];
        // Last: were a device dropped under the lock, it would wait for it forever.
        let memory = Memory::allocate(card, sizes)?;
        Ok(DriverDevice {
            card: card.clone(),
            kernels,
            stream,
            copies,
            marks,
            copied,
            taken,
            kept: [first, second],
            idle,
            recordings: Vec::new(),
            memory,
            beside: None,
        })
    }

    /// The first bytes of the staging memory. Whoever writes them waits for [`DriverDevice::copied`] before.
    fn staged(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let (all, _) = self.memory.host();
        let outside = DeviceError::Outside { start: 0, end: bytes, arena: all.len() };
        all.get_mut(..bytes).ok_or(outside)
    }

    fn failed(&self, doing: &str, error: DriverError) -> DeviceError {
        self.card.failed(doing, error)
    }

    /// Waits for all work of the stream, and does not compute meanwhile, as a synchronisation of the stream would.
    fn wait(&self) -> Result<(), DriverError> {
        self.idle.record(&self.stream).and_then(|()| self.idle.synchronize())
    }

    /// The addresses of a stretch of the memory for values that are copied ahead; binds the context to this thread.
    fn ahead(&self, offset: usize, bytes: usize) -> Result<u64, DeviceError> {
        let all = self.memory.ahead.as_ref().map_or(0..0, Allocation::addresses);
        let start = all.start.saturating_add(offset as u64);
        check_within(&[all, 0..0], &(start..start.saturating_add(bytes as u64)))?;
        let bound = self.card.context.bind_to_thread();
        bound.map_err(|error| self.failed("be used by this thread", error)).map(|()| start)
    }

    /// The addresses of its memory, and of what is beside it.
    fn addresses(&self) -> [Range<u64>; 2] {
        let of = |allocation: &Option<Allocation>| allocation.as_ref().map_or(0..0, Allocation::addresses);
        [of(&self.memory.arena), of(&self.beside)]
    }

    /// Checks that a stretch is inside the allocations, and binds the context to this thread.
    fn check(&self, range: &Range<u64>) -> Result<(), DeviceError> {
        check_within(&self.addresses(), range)?;
        self.card.context.bind_to_thread().map_err(|error| self.failed("be used by this thread", error))
    }

    fn set(&mut self, range: Range<u64>, byte: u8) -> Result<(), DeviceError> {
        self.check(&range)?;
        let bytes = (range.end - range.start) as usize;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the stretch was checked to be inside an allocation.
        unsafe { result::memset_d8_async(range.start, byte, bytes, self.stream.cu_stream()) }
            .map_err(|error| self.failed("fill memory", error))
    }
}

impl Device for DriverDevice {
    fn base(&self) -> u64 {
        let [arena, _] = self.addresses();
        arena.start
    }

    fn beside(&mut self, bytes: usize) -> Result<Beside, DeviceError> {
        self.check(&(self.base()..self.base()))?;
        // Kernels that still run may use what is freed next.
        self.wait().map_err(|error| self.failed("run the kernels", error))?;
        // While another device is opened, the card's free memory is to become less by that one alone; and here by this alone.
        let card = self.card.clone();
        let _locked = card.lock();
        self.beside = None;
        if bytes == 0 {
            return Ok(Beside { address: 0, taken: 0 });
        }
        let before = card.memory()?.free;
        let allocation = self.beside.insert(Allocation::allocate(&card, bytes)?);
        Ok(Beside { address: allocation.base, taken: before.saturating_sub(card.memory()?.free) })
    }

    fn staging(&mut self) -> Result<&mut [u8], DeviceError> {
        self.copied.synchronize().map_err(|error| self.failed("take values", error))?;
        let (staging, _) = self.memory.host();
        Ok(staging)
    }

    fn upload(&mut self, to: u64, bytes: usize) -> Result<(), DeviceError> {
        self.check(&(to..to.saturating_add(bytes as u64)))?;
        let stream = self.stream.cu_stream();
        let from = self.staged(bytes)?;
        // SAFETY: the stretch was checked to be inside an allocation. The bytes stay as they are until the copy has ended:
        // `staging` waits for it, and so does the owner's drop.
        unsafe { result::memcpy_htod_async(to, from, stream) }
            .and_then(|()| self.copied.record(&self.stream))
            .map_err(|error| self.failed("take values", error))
    }

    fn download(&mut self, from: u64, bytes: usize) -> Result<(), DeviceError> {
        self.check(&(from..from.saturating_add(bytes as u64)))?;
        let stream = self.stream.cu_stream();
        // A copy from there may be under way in the other stream.
        self.copied.synchronize().map_err(|error| self.failed("take values", error))?;
        let to = self.staged(bytes)?;
        // SAFETY: as in `upload`; no other copy uses these bytes, and this one is waited for here.
        unsafe { result::memcpy_dtoh_async(to, from, stream) }
            .and_then(|()| self.wait())
            .map_err(|error| self.failed("give values", error))
    }

    fn clear(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        self.set(range, 0)
    }

    fn poison(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        // All bits set is a NaN in every float format.
        self.set(range, 0xff)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let memory = self.addresses();
        self.card.context.bind_to_thread().map_err(|error| self.failed("be used by this thread", error))?;
        // The message is made where it is needed: a launch allocates nothing.
        let refused = |error| self.failed(&format!("launch {}", launch.kernel), error);
        let found = self.kernels.find(&launch.kernel);
        let kernel = found.ok_or_else(|| refused(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)))?;
        launch.check(&memory, kernel.parameters)?;
        let dims = |[x, y, z]: [u32; 3]| (x, y, z);
        let mut parameters = [launch.parameters.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the module of the function is loaded as long as `self` lives. The kernel takes one struct of as many bytes as there are, as
        // was checked; the driver copies it before this returns and does not change it. A `Launch` is made by this crate alone, so the
        // addresses that the kernel uses are those it declares, which are inside the allocations, as was checked.
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

    fn measured(&mut self, work: &mut Work<'_>) -> Result<usize, DeviceError> {
        // While another device is opened, the card's free memory is to become less by that one alone; and here by this alone.
        let card = self.card.clone();
        let _locked = card.lock();
        let before = card.memory()?.free;
        work(self)?;
        self.wait().map_err(|error| self.failed("run the kernels", error))?;
        Ok(before.saturating_sub(card.memory()?.free))
    }

    fn record(&mut self, work: &[RecordedTask<'_>]) -> Result<Option<Recorded>, DeviceError> {
        let launches = work.iter().filter(|task| matches!(task, RecordedTask::Launch(_))).count();
        // While another device is opened, the card's free memory is to become less by that one alone; and here by this alone.
        let card = self.card.clone();
        let mut locked = card.lock();
        if !locked.room.take(launches) {
            return Ok(None);
        }
        let stream = self.stream.clone();
        let recorded = Recording::record(&card, &stream, launches, || {
            work.iter().try_for_each(|task| match task {
                RecordedTask::Launch(launch) => self.launch(launch),
                RecordedTask::Poison(range) => self.poison(range.clone()),
            })
        });
        match recorded {
            Ok((recording, taken)) => {
                self.recordings.push(recording);
                Ok(Some(Recorded { number: self.recordings.len() - 1, taken }))
            }
            Err(error) => {
                locked.room.give_back(launches);
                Err(error)
            }
        }
    }

    fn replay(&mut self, number: usize) -> Result<(), DeviceError> {
        let missing =
            || self.failed("replay what was not recorded", DriverError(CUresult::CUDA_ERROR_NOT_FOUND));
        self.recordings.get(number).ok_or_else(missing)?.replay(&self.card)
    }

    fn upload_ahead(&mut self, to: usize, bytes: usize) -> Result<(), DeviceError> {
        let to = self.ahead(to, bytes)?;
        let stream = self.copies.clone();
        stream.wait(&self.taken).map_err(|error| self.failed("take values", error))?;
        let from = self.staged(bytes)?;
        // SAFETY: as in `upload`. Values that were there are taken before, as the stream waits for the event behind that.
        unsafe { result::memcpy_htod_async(to, from, stream.cu_stream()) }
            .and_then(|()| self.copied.record(&stream))
            .map_err(|error| self.failed("take values", error))
    }

    fn take_ahead(&mut self, from: usize, to: u64, bytes: usize) -> Result<(), DeviceError> {
        self.check(&(to..to.saturating_add(bytes as u64)))?;
        let from = self.ahead(from, bytes)?;
        self.stream
            .wait(&self.copied)
            // SAFETY: both stretches were checked to be inside allocations, which are different ones. The stream waits for the copies to the first.
            .and_then(|()| unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) })
            .and_then(|()| self.taken.record(&self.stream))
            .map_err(|error| self.failed("take values", error))
    }

    fn keep(&mut self, number: usize, ranges: &[Range<u64>]) -> Result<(), DeviceError> {
        ranges.iter().try_for_each(|range| self.check(range))?;
        let stream = self.stream.clone();
        let (_, results) = self.memory.host();
        let end = results.len();
        let outside = DeviceError::Outside { start: 0, end: KEPT_BYTES, arena: end };
        let mut room = results.chunks_exact_mut(KEPT_BYTES).nth(number).ok_or(outside)?;
        for range in ranges {
            let bytes = (range.end - range.start) as usize;
            let outside = DeviceError::Outside { start: 0, end: bytes, arena: room.len() };
            let (to, rest) = room.split_at_mut_checked(bytes).ok_or(outside)?;
            room = rest;
            // SAFETY: the stretch was checked to be inside an allocation. The bytes are read behind the event below alone, and freed behind all work.
            let copied = unsafe { result::memcpy_dtoh_async(to, range.start, stream.cu_stream()) };
            copied.map_err(|error| self.card.failed("give values", error))?;
        }
        let event = self.kept.get(number).ok_or(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
        event.and_then(|event| event.record(&stream)).map_err(|error| self.failed("give values", error))
    }

    fn kept(&mut self, number: usize) -> Result<&[u8], DeviceError> {
        let event = self.kept.get(number).ok_or(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
        event.and_then(CudaEvent::synchronize).map_err(|error| self.failed("run the kernels", error))?;
        let (_, results) = self.memory.host();
        let end = results.len();
        let outside = DeviceError::Outside { start: 0, end: KEPT_BYTES, arena: end };
        results.chunks_exact(KEPT_BYTES).nth(number).ok_or(outside)
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
