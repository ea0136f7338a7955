//! Asynchronous copies from global to shared memory.
//!
//! The manual leaves open when a copy happens between its start and the wait for it. Here the global bytes are read at the
//! start, and the shared ones appear at the wait: any other access to them in between is at fault.

use super::Machine;
use super::traffic::{bank_conflicts, sectors};
use super::warp::Warp;
use crate::fault::{Trouble, What};
use crate::instruction::CopyAsync;
use crate::lanes::{WARP, lanes};

/// The pending copies of the lanes of a warp.
#[derive(Default)]
pub(crate) struct Copies {
    pending: Vec<Copy>,
    /// Groups that each lane has committed.
    committed: [u64; WARP],
}

struct Copy {
    lane: usize,
    /// Counted by lane; one that is not committed yet has the number of committed groups.
    group: u64,
    offset: u64,
    bytes: usize,
    data: [u8; 16],
}

impl Copies {
    /// Closes the group of these lanes.
    pub fn commit(&mut self, mask: u32) {
        for lane in lanes(mask) {
            self.committed[lane] += 1;
        }
    }

    /// Takes out what these lanes have to see once at most `keep` of their groups are under way; `None`: all copies, also
    /// those that are in no group yet.
    fn finish(&mut self, mask: u32, keep: Option<usize>) -> Vec<Copy> {
        let committed = self.committed;
        let done = |copy: &mut Copy| {
            mask >> copy.lane & 1 == 1
                && keep.is_none_or(|keep| copy.group.saturating_add(keep as u64) < committed[copy.lane])
        };
        self.pending.extract_if(.., done).collect()
    }
}

impl Machine<'_> {
    pub(super) fn copy_async(&mut self, warp: &mut Warp, copy: &CopyAsync, mask: u32) -> Result<(), Trouble> {
        let to = self.addresses(warp, copy.to, mask)?;
        let from = self.addresses(warp, copy.from, mask)?;
        let sizes = match copy.read {
            Some(slot) => Some(*warp.read(slot, mask, self.kernel)?),
            None => None,
        };
        let ignored = match copy.ignore {
            Some(flag) => warp.test(flag, mask, self.kernel)?,
            None => 0,
        };
        let bytes = copy.bytes;
        let mut reading = 0;
        for lane in lanes(mask) {
            let trouble = |what| Trouble::new(lane, what);
            let mut size = sizes.map_or(bytes, |sizes| (sizes[lane] & 0xffff_ffff) as usize);
            if size > bytes {
                return Err(trouble(What::Operand(format!("reads {size} bytes for a copy of {bytes}"))));
            }
            if ignored >> lane & 1 == 1 {
                size = 0;
            }
            for address in [to[lane], from[lane]] {
                if !address.is_multiple_of(bytes as u64) {
                    return Err(trouble(What::Misaligned { address, bytes }));
                }
            }
            let me = self.stamp(warp, lane);
            let mut data = [0; 16];
            if size > 0 {
                reading |= 1 << lane;
                let found = self.global.load(from[lane], size, false, me, &self.timeline).map_err(trouble)?;
                data[..size].copy_from_slice(found);
                self.counts.global_bytes_loaded += size as u64;
            }
            self.shared.begin(to[lane], bytes, me, &self.timeline).map_err(trouble)?;
            let group = warp.copies.committed[lane];
            warp.copies.pending.push(Copy { lane, group, offset: to[lane], bytes, data });
        }
        if reading != 0 {
            self.counts.sectors_loaded += sectors(&from, reading);
            self.counts.global_loads += 1;
        }
        self.counts.bank_conflicts += bank_conflicts(&to, mask, bytes);
        self.counts.shared_bytes_stored += bytes as u64 * u64::from(mask.count_ones());
        Ok(())
    }

    /// Lanes wait until at most `keep` of their groups are under way, or for all copies.
    pub(super) fn wait_for_copies(
        &mut self,
        warp: &mut Warp,
        keep: Option<usize>,
        mask: u32,
    ) -> Result<(), Trouble> {
        for copy in warp.copies.finish(mask, keep) {
            let me = self.stamp(warp, copy.lane);
            self.shared
                .arrive(copy.offset, &copy.data[..copy.bytes], me, &self.timeline)
                .map_err(|what| Trouble::new(copy.lane, what))?;
        }
        Ok(())
    }
}
