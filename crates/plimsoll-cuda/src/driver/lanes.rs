//! Streams and buffers of a card through which ranks send.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use plimsoll_ranks::{LaneError, LaneSizes, Lanes};

use super::Driver;
use super::arena::{Allocation, Locked};
use crate::device::{CardMemory, DeviceError};

/// Streams and buffers of a card.
struct DriverLanes {
    context: Arc<CudaContext>,
    sizes: LaneSizes,
    streams: Vec<Arc<CudaStream>>,
    /// The end of the last work of each buffer.
    marks: Vec<CudaEvent>,
    card: Allocation,
    host: Locked,
}

fn worded(doing: &str) -> impl Fn(DriverError) -> LaneError {
    move |error| LaneError(format!("{doing}: {error}"))
}

impl Driver {
    /// The address of the card on the PCI bus, which no other card of the node has.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The memory of the card, and how much of it is free.
    ///
    /// # Errors
    /// Returns an error if the card does not report it.
    pub fn memory_now(&self) -> Result<CardMemory, DeviceError> {
        self.card.memory()
    }

    /// Allocates streams and buffers through which this rank sends and receives.
    ///
    /// # Errors
    /// Returns an error if the card or the process has too little memory.
    pub fn lanes(&self, sizes: LaneSizes) -> Result<Box<dyn Lanes>, DeviceError> {
        let card = &self.card;
        let made = |error| card.failed("make streams for messages between ranks", error);
        // The first stream binds the context to this thread.
        let streams = (0..sizes.lanes).map(|_| card.context.new_stream());
        let streams = streams.collect::<Result<_, DriverError>>().map_err(made)?;
        let marks = (0..sizes.lanes * sizes.buffers).map(|_| card.context.new_event(None));
        let marks = marks.collect::<Result<_, DriverError>>().map_err(made)?;
        // While a device is opened, the card's free memory is to become less by that one alone.
        let _locked = card.lock();
        let memory = Allocation::allocate(card, sizes.total())?;
        let host = Locked::allocate(card, sizes.total())?;
        Ok(Box::new(DriverLanes { context: card.context.clone(), sizes, streams, marks, card: memory, host }))
    }
}

impl DriverLanes {
    fn number(&self, lane: usize, buffer: usize) -> usize {
        lane * self.sizes.buffers + buffer
    }
}

impl Drop for DriverLanes {
    fn drop(&mut self) {
        // Work that still runs uses what is freed next. What fails here cannot be told to anyone, and ends with the process.
        for stream in &self.streams {
            let _ = stream.synchronize();
        }
    }
}

// SAFETY: streams and memory stay until this is dropped, and the addresses of a buffer are within the allocation, which has `sizes.total()` bytes
// that nothing else uses.
unsafe impl Lanes for DriverLanes {
    fn sizes(&self) -> LaneSizes {
        self.sizes
    }

    fn bind(&self) -> Result<(), LaneError> {
        self.context.bind_to_thread().map_err(worded("bind the context"))
    }

    fn stream(&self, lane: usize) -> *mut c_void {
        self.streams[lane].cu_stream().cast()
    }

    fn address(&self, lane: usize, buffer: usize) -> u64 {
        self.card.base() + (self.number(lane, buffer) * self.sizes.bytes) as u64
    }

    fn host(&mut self, lane: usize, buffer: usize) -> &mut [u8] {
        let (number, bytes) = (self.number(lane, buffer), self.sizes.bytes);
        &mut self.host.bytes()[number * bytes..][..bytes]
    }

    fn upload(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError> {
        let (to, stream) = (self.address(lane, buffer), self.streams[lane].cu_stream());
        let from = &self.host(lane, buffer)[..bytes];
        // SAFETY: both are a buffer of so many bytes at least. The bytes stay as they are until the mark behind the copy has passed: the caller
        // writes them after that, and `drop` waits for the stream.
        unsafe { result::memcpy_htod_async(to, from, stream) }.map_err(worded("copy to the card"))
    }

    fn download(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError> {
        let (from, stream) = (self.address(lane, buffer), self.streams[lane].cu_stream());
        let to = &mut self.host(lane, buffer)[..bytes];
        // SAFETY: as in `upload`.
        unsafe { result::memcpy_dtoh_async(to, from, stream) }.map_err(worded("copy from the card"))
    }

    fn mark(&mut self, lane: usize, buffer: usize) -> Result<(), LaneError> {
        let mark = &self.marks[self.number(lane, buffer)];
        mark.record(&self.streams[lane]).map_err(worded("note the end of a message"))
    }

    fn is_done(&mut self, lane: usize, buffer: usize) -> Result<bool, LaneError> {
        self.marks[self.number(lane, buffer)].try_is_complete().map_err(worded("pass a message on"))
    }
}
