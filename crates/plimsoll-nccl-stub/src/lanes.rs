//! Lanes in memory of the process.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll_ranks::{LaneError, LaneSizes, Lanes};

use crate::stream::Stream;

/// A buffer on the "card", its copy in the process, and whether its last work has ended.
struct Buffer {
    card: Box<[u8]>,
    host: Box<[u8]>,
    is_done: Arc<AtomicBool>,
}

/// Lanes in memory of the process.
pub struct HostLanes {
    sizes: LaneSizes,
    /// Before the buffers, which their work uses.
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    held: Arc<AtomicUsize>,
}

impl HostLanes {
    /// Lanes of some sizes. While they exist, `held` is greater by the bytes of their buffers on the card.
    pub fn new(sizes: LaneSizes, held: &Arc<AtomicUsize>) -> HostLanes {
        held.fetch_add(sizes.total(), Ordering::SeqCst);
        let buffer = |_| Buffer {
            card: vec![0xaa; sizes.bytes].into(),
            host: vec![0x55; sizes.bytes].into(),
            is_done: Arc::new(AtomicBool::new(true)),
        };
        HostLanes {
            sizes,
            streams: (0..sizes.lanes).map(|_| Stream::new()).collect(),
            buffers: (0..sizes.lanes * sizes.buffers).map(buffer).collect(),
            held: Arc::clone(held),
        }
    }

    fn buffer(&mut self, lane: usize, buffer: usize) -> &mut Buffer {
        &mut self.buffers[lane * self.sizes.buffers + buffer]
    }

    /// Enqueues a copy between addresses.
    fn copy(&self, lane: usize, from: *const u8, to: *mut u8, bytes: usize) {
        let (from, to) = (from.expose_provenance(), to.expose_provenance());
        self.streams[lane].adder()(Box::new(move || {
            let (from, to) =
                (std::ptr::with_exposed_provenance::<u8>(from), std::ptr::with_exposed_provenance_mut(to));
            // SAFETY: both are buffers of the lanes, which outlive the stream, and the owner leaves them alone until the work has ended.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        }));
    }
}

impl Drop for HostLanes {
    fn drop(&mut self) {
        // Waits for their work.
        self.streams.clear();
        self.held.fetch_sub(self.sizes.total(), Ordering::SeqCst);
    }
}

// SAFETY: streams and buffers have fixed places until they are dropped, and only the work of a buffer uses it.
unsafe impl Lanes for HostLanes {
    fn sizes(&self) -> LaneSizes {
        self.sizes
    }

    fn bind(&self) -> Result<(), LaneError> {
        Ok(())
    }

    fn stream(&self, lane: usize) -> *mut c_void {
        std::ptr::from_ref::<Stream>(&self.streams[lane]).cast_mut().cast()
    }

    fn address(&self, lane: usize, buffer: usize) -> u64 {
        self.buffers[lane * self.sizes.buffers + buffer].card.as_ptr().expose_provenance() as u64
    }

    fn host(&mut self, lane: usize, buffer: usize) -> &mut [u8] {
        &mut self.buffer(lane, buffer).host
    }

    fn upload(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError> {
        let buffer = self.buffer(lane, buffer);
        let (from, to) = (buffer.host[..bytes].as_ptr(), buffer.card.as_mut_ptr());
        self.copy(lane, from, to, bytes);
        Ok(())
    }

    fn download(&mut self, lane: usize, buffer: usize, bytes: usize) -> Result<(), LaneError> {
        let buffer = self.buffer(lane, buffer);
        let (from, to) = (buffer.card[..bytes].as_ptr(), buffer.host.as_mut_ptr());
        self.copy(lane, from, to, bytes);
        Ok(())
    }

    fn mark(&mut self, lane: usize, buffer: usize) -> Result<(), LaneError> {
        let is_done = Arc::clone(&self.buffer(lane, buffer).is_done);
        is_done.store(false, Ordering::SeqCst);
        self.streams[lane].adder()(Box::new(move || is_done.store(true, Ordering::SeqCst)));
        Ok(())
    }

    fn is_done(&mut self, lane: usize, buffer: usize) -> Result<bool, LaneError> {
        Ok(self.buffer(lane, buffer).is_done.load(Ordering::SeqCst))
    }
}
