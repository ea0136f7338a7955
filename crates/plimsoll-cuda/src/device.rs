//! The seam to what runs kernels: a GPU behind its driver, or an emulator.

mod error;

use std::ops::Range;
use std::time::Duration;

use plimsoll_plan::DeviceState;

pub use self::error::{CudaVersion, DeviceError};
use crate::Architecture;

/// Threads of a warp.
pub(crate) const WARP: u32 = 32;

/// One launch of a kernel, bound to the arena.
///
/// This crate alone makes them, and nobody changes one, so that a kernel uses the addresses which its launch declares and no others. A
/// device has to check no more than that these are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) parameters: Vec<u8>,
    /// The offset among the parameters of the number of its first thread, which is 0; `None` if the launch cannot be divided.
    pub(crate) first_thread: Option<usize>,
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) writes: Vec<Range<u64>>,
    pub(crate) effort: Effort,
}

/// Loops of a kernel whose turns are counted.
pub(crate) const LOOPS: usize = 7;

/// The effort of a launch, which its predicted time follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Warps that have work, of those that are launched.
    pub warps: u64,
    /// Turns of the kernel's loops, added up over all warps; the `Lower` of an op tells which loops these are. A kernel without loops whose length depends
    /// on shapes has none.
    pub loops: [u64; LOOPS],
    /// Floating-point operations of tensor cores on numbers of two bytes, also those on zeros that fill tiles up. One on tf32, which takes twice the time, counts
    /// as two.
    pub tensor_flops: u64,
    /// The same of products by warp groups.
    pub group_flops: u64,
}

impl Launch {
    /// The name of the kernel in the [PTX](crate::ptx()).
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Blocks.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a block.
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// The kernel's one parameter, a struct, as its bytes.
    pub fn parameters(&self) -> &[u8] {
        &self.parameters
    }

    /// Addresses that it reads.
    pub fn reads(&self) -> &[Range<u64>] {
        &self.reads
    }

    /// Addresses that it writes, and may read.
    pub fn writes(&self) -> &[Range<u64>] {
        &self.writes
    }

    /// The effort that its predicted time follows from.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// Blocks of the grid.
    pub(crate) fn blocks(&self) -> u64 {
        self.grid.iter().map(|blocks| u64::from(*blocks)).product()
    }

    /// Checks that the launch stays within an arena and the memory beside it, and that it passes its kernel `taken`
    /// bytes of parameters.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub(crate) fn check(&self, memory: &[Range<u64>; 2], taken: usize) -> Result<(), DeviceError> {
        self.reads.iter().chain(&self.writes).try_for_each(|range| check_within(memory, range))?;
        let given = self.parameters.len();
        if given != taken {
            return Err(DeviceError::Parameters { kernel: self.kernel.clone(), taken, given });
        }
        Ok(())
    }
}

/// A piece of what is [recorded](Device::record).
#[derive(Clone, Debug)]
pub enum RecordedTask<'a> {
    /// A launch, as by [`Device::launch`].
    Launch(&'a Launch),
    /// A range to poison, as by [`Device::poison`].
    Poison(Range<u64>),
}

/// The work of a program on a device. It neither records nor allocates memory [beside](Device::beside) the arena.
pub type Work<'a> = dyn FnMut(&mut dyn Device) -> Result<(), DeviceError> + 'a;

/// The recordings that all devices of a card may have at once: the basis on which its memory for recordings is
/// [measured](crate::Footprint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingRoom {
    /// Recordings.
    pub recordings: usize,
    /// Launches of all of them.
    pub launches: usize,
}

impl RecordingRoom {
    /// The room of a card of which nothing is recorded: for the programs of a run, of which the largest have some
    /// hundred launches each.
    pub const ALL: RecordingRoom = RecordingRoom { recordings: 8, launches: 1024 };

    /// Takes the room of one recording with this number of launches. Returns `true` if there was room for it.
    pub fn take(&mut self, launches: usize) -> bool {
        match (self.recordings.checked_sub(1), self.launches.checked_sub(launches)) {
            (Some(recordings), Some(launches)) => {
                *self = RecordingRoom { recordings, launches };
                true
            }
            _ => false,
        }
    }

    /// Gives one back.
    pub fn give_back(&mut self, launches: usize) {
        self.recordings += 1;
        self.launches += launches;
    }
}

/// Memory beside a device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The start address: a multiple of 256.
    pub address: u64,
    /// Bytes by which the free memory of the card became less for it.
    pub taken: usize,
}

/// A recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number, for [`Device::replay`].
    pub number: usize,
    /// Bytes by which the free memory of the card became less for it.
    pub taken: usize,
}

/// Memory of one size on a device, memory of this process to copy through, and the kernels of this crate.
///
/// Launches, copies and fills run in the order in which they are asked for, and may go on after the call. They stay within the device's
/// memory, or what was allocated [beside](Device::beside) it.
pub trait Device: Send {
    /// The address of the first byte of its memory: a multiple of 256, and not zero.
    fn base(&self) -> u64;

    /// Allocates other memory beside its own, in place of what there was of it, which is freed before; of no bytes, that is all. What it holds
    /// is not known.
    ///
    /// # Errors
    /// Returns an error if the device refuses. Then nothing is allocated.
    fn beside(&mut self, bytes: usize) -> Result<Beside, DeviceError>;

    /// Memory of this process that the device copies to and from, when the last copy has ended.
    ///
    /// # Errors
    /// Returns an error if a copy has failed.
    fn staging(&mut self) -> Result<&mut [u8], DeviceError>;

    /// Begins to copy the first bytes of the staging memory to the device.
    ///
    /// # Errors
    /// Returns an error if the bytes do not fit, or the device fails.
    fn upload(&mut self, to: u64, bytes: usize) -> Result<(), DeviceError>;

    /// Copies bytes from the device into the first of the staging memory, when all that was launched has ended.
    ///
    /// # Errors
    /// Returns the errors of [`Device::upload`], and an error if a launch has failed.
    fn download(&mut self, from: u64, bytes: usize) -> Result<(), DeviceError>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// Returns the errors of [`Device::upload`].
    fn clear(&mut self, range: Range<u64>) -> Result<(), DeviceError>;

    /// Makes reads of bytes before they are written again show themselves: as NaN, or as an error.
    ///
    /// # Errors
    /// Returns the errors of [`Device::upload`].
    fn poison(&mut self, range: Range<u64>) -> Result<(), DeviceError>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// Returns an error if the device refuses it, or an earlier one has failed.
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// Does work on it, and waits for that. Returns the bytes by which the free memory of the card became less meanwhile, whatever else of
    /// this process is opened and freed at once: drivers allocate local memory of threads as a kernel is launched that needs more than
    /// those before it.
    ///
    /// # Errors
    /// Those of the work, and if the device fails.
    fn measured(&mut self, work: &mut Work<'_>) -> Result<usize, DeviceError>;

    /// Records work, none of which is done now, as one thing to be [replayed](Device::replay) as often as one likes. The kernels were
    /// launched before, so that the driver has loaded them. None where the card has no [room](RecordingRoom) for it.
    ///
    /// # Errors
    /// Returns an error if the device refuses it.
    fn record(&mut self, work: &[RecordedTask<'_>]) -> Result<Option<Recorded>, DeviceError>;

    /// Does what was recorded under a number, with the values that lie in memory then.
    ///
    /// # Errors
    /// Returns an error if there is no such number, or as [`Device::launch`].
    fn replay(&mut self, number: usize) -> Result<(), DeviceError>;

    /// Notes the time at which all that was launched has ended, under a number below those that the device was opened with.
    ///
    /// # Errors
    /// Returns an error if there is no such number, or the device fails.
    fn mark(&mut self, mark: usize) -> Result<(), DeviceError>;

    /// Begins to copy the first bytes of the staging memory to an offset of the memory for values that are copied ahead. The copy does not wait for
    /// what was launched, except for what takes values from there.
    ///
    /// # Errors
    /// Returns the errors of [`Device::upload`].
    fn upload_ahead(&mut self, to: usize, bytes: usize) -> Result<(), DeviceError>;

    /// Copies values that were copied ahead to their place, in the order of launches.
    ///
    /// # Errors
    /// Returns the errors of [`Device::upload`].
    fn take_ahead(&mut self, from: usize, to: u64, bytes: usize) -> Result<(), DeviceError>;

    /// Copies some ranges one behind the other to memory of this process, in the order of launches, and keeps them under a number below [`KEPT`].
    ///
    /// # Errors
    /// Returns an error if they are more than [`KEPT_BYTES`], or the device fails.
    fn keep(&mut self, number: usize, ranges: &[Range<u64>]) -> Result<(), DeviceError>;

    /// Waits for what is kept under a number, and for nothing that was launched later.
    ///
    /// # Errors
    /// Returns an error if there is no such number, or a launch has failed.
    fn kept(&mut self, number: usize) -> Result<&[u8], DeviceError>;

    /// Waits for a mark; the time between the mark before it and this one.
    ///
    /// # Errors
    /// Returns the errors of [`Device::mark`], and an error if a launch has failed.
    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError>;
}

/// Checks that addresses are within an arena, or within the memory beside it.
///
/// # Errors
/// Returns an error if they are not.
pub(crate) fn check_within(memory: &[Range<u64>; 2], range: &Range<u64>) -> Result<(), DeviceError> {
    let has = |of: &Range<u64>| of.start <= range.start && range.start <= range.end && range.end <= of.end;
    if memory.iter().any(has) {
        return Ok(());
    }
    let [arena, _] = memory;
    let [start, end] = [range.start, range.end].map(|address| address.wrapping_sub(arena.start) as usize);
    Err(DeviceError::Outside { start, end, arena: arena.end.saturating_sub(arena.start) as usize })
}

/// The memory of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardMemory {
    /// Bytes in all.
    pub total: usize,
    /// Bytes that nobody holds.
    pub free: usize,
}

/// The sizes that a device is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of its memory.
    pub bytes: usize,
    /// Bytes of this process to copy through.
    pub staging: usize,
    /// The number of marks that it can record.
    pub marks: usize,
    /// Bytes of its memory for values that are copied ahead; 0 for none.
    pub ahead: usize,
}

/// Results that are kept at a time, each of them until it was read.
pub const KEPT: usize = 2;

/// Bytes of results that are kept together: of loss, norm and all parts of a loss. They take their place from the staging memory.
pub const KEPT_BYTES: usize = 4096;

/// A device that was opened.
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// Bytes by which the free memory became less for it, whatever else of this process is opened and freed at once. What is loaded for all
    /// devices is not counted.
    pub taken: usize,
}

/// The code of the kernels on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCode {
    /// Machine code that this program was built with.
    Built,
    /// Machine code that a driver has compiled.
    Compiled {
        /// The version of CUDA that the driver has: with its compiler bits may change.
        by: CudaVersion,
    },
}

/// A source of devices.
pub trait DeviceSource: Send + Sync {
    /// Returns the architecture of its devices.
    fn architecture(&self) -> Architecture;

    /// Returns the longest predicted time of a launch in seconds, on cards whose system ends kernels that take long, as it does on those that drive a display;
    /// `None` on others.
    fn watchdog(&self) -> Option<f64> {
        None
    }

    /// Returns the code of the kernels that its devices run; none if no driver has loaded them.
    fn code(&self) -> Option<KernelCode> {
        None
    }

    /// Returns the memory of the card, and how much of it is free.
    ///
    /// # Errors
    /// Returns an error if there is no device, or it does not report its memory.
    fn memory(&self) -> Result<CardMemory, DeviceError>;

    /// Returns the current state that the card reports; none if it reports nothing.
    fn state(&self) -> Option<DeviceState> {
        None
    }

    /// A device. What is loaded for all devices is loaded with the first one, and stays.
    ///
    /// # Errors
    /// Returns an error if there is no device, or too little memory.
    fn open(&self, sizes: Sizes) -> Result<Opened, DeviceError>;
}

/// A kind of card without one: for planning.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere(pub Architecture);

impl DeviceSource for Nowhere {
    fn architecture(&self) -> Architecture {
        self.0
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        Err(DeviceError::Nowhere { architecture: self.0 })
    }

    fn open(&self, _sizes: Sizes) -> Result<Opened, DeviceError> {
        Err(DeviceError::Nowhere { architecture: self.0 })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;

    use super::*;

    fn launch(reads: Range<u64>, writes: Range<u64>) -> Launch {
        let (reads, writes) = (vec![256..300, reads], vec![writes]);
        Launch {
            kernel: "add".into(),
            grid: [1; 3],
            block: [1; 3],
            parameters: vec![0; 24],
            first_thread: None,
            reads,
            writes,
            effort: Effort::default(),
        }
    }

    #[test]
    fn a_card_without_memory_says_what_was_asked_and_what_is_free_and_what_to_do() {
        let (asked, free) = (Bytes::gib(9), Bytes::mib(700));
        let error = DeviceError::OutOfMemory { device: "a card".into(), asked, free };
        assert_eq!(error.to_string(), "a card cannot allocate 9.00 GiB: 700.0 MiB of its memory are free");
        assert!(error.remedy().contains("lower ‹vram›, or wait"), "{}", error.remedy());
    }

    #[test]
    fn recordings_have_room_as_long_as_neither_they_nor_their_launches_are_too_many() {
        let mut room = RecordingRoom { recordings: 2, launches: 10 };
        assert!(room.take(6) && !room.take(5) && room.take(4) && !room.take(0));
        room.give_back(6);
        assert_eq!(room, RecordingRoom { recordings: 1, launches: 6 });
    }

    #[test]
    fn launches_that_leave_the_arena_or_give_a_kernel_other_parameters_are_refused() {
        let arena = [256..1024, 4096..8192];
        assert!(launch(256..1024, 1024..1024).check(&arena, 24).is_ok());
        assert!(launch(4096..8192, 256..512).check(&arena, 24).is_ok());
        // The reversed one would pass where its end alone is compared.
        for other in [255..256, 1024..1025, 0..64, 512..8192, 0..u64::MAX, Range { start: 512, end: 0 }] {
            for launch in [launch(other.clone(), 256..512), launch(256..512, other.clone())] {
                let refused = launch.check(&arena, 24);
                assert!(matches!(refused, Err(DeviceError::Outside { arena: 768, .. })), "{other:?}");
            }
        }
        for taken in [0, 16, 32] {
            let refused = launch(256..512, 512..768).check(&arena, taken);
            assert!(matches!(refused, Err(DeviceError::Parameters { given: 24, .. })), "{taken}");
        }
    }
}
