//! A filled slot that is lent to the caller.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use crate::loader::queue::Queue;
use crate::loader::slot::{BatchBuffer, BatchShape};

/// A batch that a loader lends. Its buffers are filled again once it is dropped.
pub struct Batch {
    step: u64,
    shape: BatchShape,
    /// `None` only while the batch is being dropped.
    buffer: Option<BatchBuffer>,
    queue: Arc<Queue>,
}

impl Batch {
    pub(crate) fn new(step: u64, buffer: BatchBuffer, queue: Arc<Queue>) -> Batch {
        Batch { step, shape: buffer.shape(), buffer: Some(buffer), queue }
    }

    /// The step that it is for.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The shape.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Normalised intensities, `[sample][channel][depth][height][width]`.
    pub fn images(&self) -> &[f32] {
        self.buffer.as_ref().map_or(&[], BatchBuffer::images)
    }

    /// Labels: see [`BatchBuffer::labels`].
    pub fn labels(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], BatchBuffer::labels)
    }

    /// The address of [`images`](Self::images), valid for reads and writes until the batch is dropped: see
    /// [`Mapped::start`](plimsoll_memory::Mapped::start). For callers that lend the buffer to other languages.
    pub fn images_start(&self) -> *mut f32 {
        self.buffer.as_ref().map_or(ptr::null_mut(), |buffer| buffer.images.start())
    }

    /// The address of [`labels`](Self::labels), as [`images_start`](Self::images_start).
    pub fn labels_start(&self) -> *mut u8 {
        self.buffer.as_ref().map_or(ptr::null_mut(), |buffer| buffer.labels.start())
    }

    /// Soft targets: see [`BatchBuffer::shifts`].
    pub fn shifts(&self) -> &[f32] {
        self.buffer.as_ref().map_or(&[], BatchBuffer::shifts)
    }

    /// A target map: see [`BatchBuffer::target`].
    pub fn target(&self, map: usize) -> &[f32] {
        self.buffer.as_ref().map_or(&[], |buffer| buffer.target(map))
    }

    /// The case of each sample, by its index in the data set's list.
    pub fn cases(&self) -> &[usize] {
        self.buffer.as_ref().map_or(&[], BatchBuffer::cases)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.queue.give_back(buffer);
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch(step {}, {:?})", self.step, self.shape)
    }
}
