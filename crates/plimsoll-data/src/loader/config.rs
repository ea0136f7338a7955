//! The configuration of a loader, and the memory that it needs.

use plimsoll_memory::Bytes;
use plimsoll_volume::VolumeFile;
use serde::{Deserialize, Serialize};

use crate::Mode;
use crate::loader::slot::BatchBuffer;
use crate::loader::target::TargetScratch;
use crate::loader::{BatchShape, LoaderError, SampleShape, Targets};
use crate::patch::Scratch;

/// The stack of a thread: large buffers are in its scratch.
pub(crate) const STACK: usize = 512 << 10;

/// The memory of a thread beside its scratch: its stack, and files that are open. Of a case these are a file for each channel, at most, and
/// the file of its labels.
fn thread_bytes(sample: &SampleShape) -> Bytes {
    let files = sample.channels as u64 + 1;
    Bytes(STACK as u64 + files.saturating_mul(VolumeFile::REGION_BYTES.0))
}

/// The configuration of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderConfig {
    /// Training or validation.
    pub mode: Mode,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The step of the first batch.
    pub first_step: u64,
    /// Samples of a batch.
    pub batch_size: usize,
    /// The number of batches in memory: those being filled, those that are ready and those that are lent.
    pub slots: usize,
    /// Threads that fill them.
    pub threads: usize,
    /// Each thread's scratch, for parts of source images.
    pub scratch: Bytes,
}

impl LoaderConfig {
    /// The bytes that a loader with this configuration reserves for samples of a shape with `targets`: all slots, and for each
    /// thread the scratch, the stack and the buffers of open files.
    ///
    /// # Errors
    /// If a setting is 0, `targets` are invalid, or a batch does not fit the address space.
    pub fn bytes(&self, sample: SampleShape, targets: &Targets) -> Result<Bytes, LoaderError> {
        self.check()?;
        targets.check()?;
        let shape = BatchShape { batch_size: self.batch_size, sample };
        let slot = BatchBuffer::bytes(shape, self.mode, targets)?;
        let maps = TargetScratch::bytes(targets, self.mode)?;
        let thread = Scratch::reserves(self.scratch)? + maps + thread_bytes(&sample);
        let times = |bytes: Bytes, count: usize| Bytes(bytes.0.saturating_mul(count as u64));
        Ok(times(slot, self.slots) + times(thread, self.threads))
    }

    pub(crate) fn check(&self) -> Result<(), LoaderError> {
        for (setting, found) in
            [("batch_size", self.batch_size), ("slots", self.slots), ("threads", self.threads)]
        {
            if found == 0 {
                return Err(LoaderError::Zero { setting });
            }
        }
        Ok(())
    }
}
