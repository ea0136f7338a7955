//! Global memory and module variables, as a launch may use them.

use super::ranges::Ranges;
use super::shadow::{Conflict, Shadow, Stamp, Touch};
use super::timeline::Timeline;
use super::windows;
use crate::fault::What;
use crate::launch::Launch;
use crate::memory::Memory;

/// The memory that the kernel may access, and the accesses so far.
pub(crate) struct Global<'a> {
    memory: &'a mut Memory,
    variables: &'a [u8],
    readable: Ranges,
    writable: Ranges,
    /// For each writable range: elsewhere there are no writes, and so no races.
    shadows: Vec<(u64, Shadow)>,
}

impl<'a> Global<'a> {
    pub fn new(memory: &'a mut Memory, variables: &'a [u8], launch: &Launch<'_>) -> Global<'a> {
        let writable = launch.writable();
        // Words of the history are words of the address, whatever the range starts with.
        let shadow = |range: &std::ops::Range<u64>| {
            let start = range.start & !3;
            (start, Shadow::new((range.end - start) as usize, true))
        };
        let shadows = writable.iter().map(shadow).collect();
        Global { memory, variables, readable: launch.readable(), writable, shadows }
    }

    /// Loads an aligned element or vector.
    pub fn load(
        &mut self,
        address: u64,
        bytes: usize,
        constant: bool,
        me: Stamp,
        timeline: &Timeline,
    ) -> Result<&[u8], What> {
        if address >> windows::BITS == windows::VARIABLES >> windows::BITS {
            let start = (address - windows::VARIABLES) as usize;
            return self.variables.get(start..start.saturating_add(bytes)).ok_or(What::Outside {
                address,
                bytes,
                write: false,
                nearest: None,
            });
        }
        if self.readable.find(address, bytes).is_none() {
            return Err(self.outside(address, bytes, false));
        }
        if let Some(index) = self.writable.find(address, bytes) {
            let (start, shadow) = &mut self.shadows[index];
            let offset = (address - *start) as usize;
            if constant && shadow.written_by_launch(offset) {
                return Err(What::NotConstant { address });
            }
            let start = *start;
            shadow
                .touch(offset, bytes, Touch::Read, me, timeline)
                .map_err(|conflict| race(conflict, start, false))?;
        }
        let offset = (address - windows::GLOBAL) as usize;
        self.memory.load(offset, bytes).ok_or(What::Unwritten { address, offset: offset as u64, bytes })
    }

    /// Stores an aligned element or vector.
    pub fn store(&mut self, address: u64, bytes: &[u8], me: Stamp, timeline: &Timeline) -> Result<(), What> {
        self.touch(address, bytes.len(), Touch::Write, me, timeline)?;
        self.memory.store((address - windows::GLOBAL) as usize, bytes);
        Ok(())
    }

    /// An atomic operation: the old value to a new one.
    pub fn update(
        &mut self,
        address: u64,
        bytes: usize,
        float_sum: bool,
        me: Stamp,
        timeline: &Timeline,
        update: impl FnOnce(u64) -> u64,
    ) -> Result<u64, What> {
        if float_sum && let Some(index) = self.writable.find(address, bytes) {
            let (start, shadow) = &self.shadows[index];
            if shadow.concurrent_atomic((address - start) as usize, me, timeline) {
                return Err(What::OrderDependent { address });
            }
        }
        self.touch(address, bytes, Touch::Atomic, Stamp { atomic: true, ..me }, timeline)?;
        let offset = (address - windows::GLOBAL) as usize;
        let old = self.memory.load(offset, bytes).map(super::access::value).ok_or(What::Unwritten {
            address,
            offset: offset as u64,
            bytes,
        })?;
        let new = update(old).to_le_bytes();
        self.memory.store(offset, new.get(..bytes).unwrap_or(&new));
        Ok(old)
    }

    fn touch(
        &mut self,
        address: u64,
        bytes: usize,
        touch: Touch,
        me: Stamp,
        timeline: &Timeline,
    ) -> Result<(), What> {
        let Some(index) = self.writable.find(address, bytes) else {
            return Err(self.outside(address, bytes, true));
        };
        let (start, shadow) = &mut self.shadows[index];
        let start = *start;
        shadow
            .touch((address - start) as usize, bytes, touch, me, timeline)
            .map_err(|conflict| race(conflict, start, true))
    }

    fn outside(&self, address: u64, bytes: usize, write: bool) -> What {
        let ranges = if write { &self.writable } else { &self.readable };
        What::Outside { address, bytes, write, nearest: ranges.nearest(address) }
    }
}

fn race(conflict: Conflict, start: u64, write: bool) -> What {
    match conflict {
        Conflict::Race { offset, other, other_write } => What::GlobalRace {
            address: start + offset as u64,
            write,
            other_block: other.block - 1,
            other: other.thread.into(),
            other_write,
        },
        Conflict::Pending { offset, other } => {
            What::InFlight { offset: offset as u64, other: other.thread.into() }
        }
        Conflict::Unwritten => What::Operand("a history without writes".to_owned()),
    }
}
