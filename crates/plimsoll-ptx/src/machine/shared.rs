//! The shared memory of a block.

use super::access::copy;
use super::shadow::{Conflict, Shadow, Stamp, Touch};
use super::timeline::Timeline;
use crate::fault::What;

/// Its bytes and who accessed them.
pub(crate) struct Shared {
    bytes: Vec<u8>,
    shadow: Shadow,
    /// The number of pending products of warp groups that read each 16 bytes. Empty until there is one.
    products: Vec<u32>,
}

/// Bytes that products of warp groups read at once.
const PIECE: usize = 16;

impl Shared {
    /// Creates `bytes` bytes of shared memory.
    pub fn new(bytes: usize) -> Shared {
        Shared { bytes: vec![0; bytes], shadow: Shadow::new(bytes, false), products: Vec::new() }
    }

    fn touch(
        &mut self,
        offset: u64,
        bytes: usize,
        touch: Touch,
        me: Stamp,
        timeline: &Timeline,
    ) -> Result<&mut [u8], What> {
        let size = self.bytes.len();
        let start = offset as usize;
        let place = self.bytes.get_mut(start..start.saturating_add(bytes)).ok_or(What::OutsideShared {
            offset,
            bytes,
            size,
        })?;
        if touch != Touch::Read && !self.products.is_empty() {
            let pieces = start / PIECE..(start + bytes).div_ceil(PIECE);
            if self.products.get(pieces).is_some_and(|products| products.iter().any(|count| *count > 0)) {
                return Err(What::Multiplied { offset });
            }
        }
        self.shadow.touch(start, bytes, touch, me, timeline).map_err(|conflict| match conflict {
            Conflict::Race { offset, other, other_write } => What::SharedRace {
                offset: offset as u64,
                write: touch != Touch::Read,
                other: other.thread.into(),
                other_write,
            },
            Conflict::Pending { offset, other } => {
                What::InFlight { offset: offset as u64, other: other.thread.into() }
            }
            Conflict::Unwritten => What::UnwrittenShared { offset, bytes },
        })?;
        Ok(place)
    }

    /// Loads an element or a vector.
    pub fn load(&mut self, offset: u64, bytes: usize, me: Stamp, timeline: &Timeline) -> Result<&[u8], What> {
        Ok(self.touch(offset, bytes, Touch::Read, me, timeline)?)
    }

    /// Stores an element or a vector.
    pub fn store(&mut self, offset: u64, bytes: &[u8], me: Stamp, timeline: &Timeline) -> Result<(), What> {
        copy(self.touch(offset, bytes.len(), Touch::Write, me, timeline)?, bytes);
        Ok(())
    }

    /// An atomic operation: the old value to a new one.
    pub fn update(
        &mut self,
        offset: u64,
        bytes: usize,
        float_sum: bool,
        me: Stamp,
        timeline: &Timeline,
        update: impl FnOnce(u64) -> u64,
    ) -> Result<u64, What> {
        if float_sum && self.shadow.concurrent_atomic(offset as usize, me, timeline) {
            return Err(What::OrderDependent { address: offset });
        }
        let place = self.touch(offset, bytes, Touch::Atomic, Stamp { atomic: true, ..me }, timeline)?;
        let old = super::access::value(place);
        let new = update(old).to_le_bytes();
        place.copy_from_slice(new.get(..bytes).unwrap_or(&new));
        Ok(old)
    }

    /// A product of a warp group begins to read the 16 bytes from a multiple of 16 on.
    pub fn multiply(&mut self, offset: u64, me: Stamp, timeline: &Timeline) -> Result<&[u8], What> {
        self.touch(offset, PIECE, Touch::Read, me, timeline)?;
        let start = offset as usize;
        if let Some((offset, writer)) = self.shadow.unpublished(start..start + PIECE, me, timeline) {
            return Err(What::Unpublished { offset: offset as u64, other: writer.thread.into() });
        }
        self.products.resize(self.bytes.len().div_ceil(PIECE), 0);
        self.products[start / PIECE] += 1;
        Ok(&self.bytes[start..start + PIECE])
    }

    /// It is over, which the warp has waited for.
    pub fn multiplied(&mut self, offset: u64, me: Stamp, timeline: &Timeline) -> Result<(), What> {
        self.products[offset as usize / PIECE] -= 1;
        self.touch(offset, PIECE, Touch::Read, me, timeline).map(|_| ())
    }

    /// An asynchronous copy to these bytes begins.
    pub fn begin(&mut self, offset: u64, bytes: usize, me: Stamp, timeline: &Timeline) -> Result<(), What> {
        self.touch(offset, bytes, Touch::Begin, me, timeline).map(|_| ())
    }

    /// It has arrived.
    pub fn arrive(&mut self, offset: u64, bytes: &[u8], me: Stamp, timeline: &Timeline) -> Result<(), What> {
        copy(self.touch(offset, bytes.len(), Touch::Arrive, me, timeline)?, bytes);
        Ok(())
    }
}
