//! How a loader is set up, and what that takes.

use plimsoll_memory::Bytes;
use serde::{Deserialize, Serialize};

use crate::Mode;
use crate::loader::slot::BatchBuffer;
use crate::loader::target::TargetScratch;
use crate::loader::{BatchShape, LoaderError, THREAD_BYTES, Targets};
use crate::patch::Scratch;

/// How a loader makes batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderConfig {
    /// What the batches are for.
    pub mode: Mode,
    /// Of the random numbers.
    pub seed: u64,
    /// The step of the first batch.
    pub first_step: u64,
    /// Patches in a batch.
    pub batch_size: usize,
    /// Batches that exist at a time: those being made, those that wait and those that are lent.
    pub slots: usize,
    /// Threads that make them.
    pub threads: usize,
    /// What each thread uses for parts of source images.
    pub scratch: Bytes,
}

impl LoaderConfig {
    /// What a loader with this configuration reserves for patches of `channels` channels and `patch` voxels along (depth,
    /// height, width) and maps of their labels: all slots, and of each thread the scratch, the stack and the buffers of open
    /// files.
    ///
    /// # Errors
    /// If the configuration makes no sense, or a batch does not fit the address space.
    pub fn bytes(&self, channels: usize, patch: [usize; 3], targets: &Targets) -> Result<Bytes, LoaderError> {
        self.check()?;
        targets.check()?;
        let shape = BatchShape { batch_size: self.batch_size, channels, patch };
        let slot = BatchBuffer::bytes(shape, self.mode, targets)?;
        let maps = TargetScratch::bytes(targets, self.mode)?;
        let thread = Scratch::reserves(self.scratch)? + maps + Bytes(THREAD_BYTES);
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
