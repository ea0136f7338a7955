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
    /// Samples of a batch that this loader makes.
    pub batch_size: usize,
    /// The numbers of these samples in a training batch, where several loaders share it.
    #[serde(default)]
    pub numbers: SampleNumbers,
    /// The number of batches in memory: those being filled, those that are ready and those that are lent.
    pub slots: usize,
    /// Threads that fill them.
    pub threads: usize,
    /// Each thread's scratch, for parts of source images.
    pub scratch: Bytes,
}

/// The numbers of the samples of a batch that a loader makes: equally long runs at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleNumbers {
    /// The number of the first sample.
    pub first: u64,
    /// The samples of a run, at least 1.
    pub run: u64,
    /// The distance between the first samples of two runs.
    pub distance: u64,
}

impl SampleNumbers {
    /// All samples of a batch.
    pub const ALL: SampleNumbers = SampleNumbers { first: 0, run: u64::MAX, distance: u64::MAX };

    /// The number in the batch of the `place`-th sample that the loader makes.
    pub(crate) fn at(self, place: u64) -> u64 {
        let SampleNumbers { first, run, distance } = self;
        let run = run.max(1);
        first.saturating_add((place / run).saturating_mul(distance)).saturating_add(place % run)
    }
}

impl Default for SampleNumbers {
    fn default() -> SampleNumbers {
        SampleNumbers::ALL
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_that_share_a_batch_make_each_sample_once() {
        let numbers =
            |numbers: SampleNumbers, count| (0..count).map(|place| numbers.at(place)).collect::<Vec<_>>();
        assert_eq!(numbers(SampleNumbers::ALL, 5), [0, 1, 2, 3, 4]);
        // A batch of 8 samples in 4 shards of 2, of which two loaders make every other.
        let of = |rank: u64| numbers(SampleNumbers { first: 2 * rank, run: 2, distance: 4 }, 4);
        assert_eq!(of(0), [0, 1, 4, 5]);
        assert_eq!(of(1), [2, 3, 6, 7]);
    }
}
