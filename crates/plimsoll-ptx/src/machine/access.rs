//! Loads, stores and atomic operations of a warp.

use super::traffic::{bank_conflicts, sectors};
use super::warp::Warp;
use super::{Machine, windows};
use crate::fault::{Trouble, What};
use crate::instruction::{Access, Address, Space, Update};
use crate::lanes::{Lanes, Slot, WARP, extend_sign, lanes, low};

/// The most bytes of an access of one lane.
const WIDEST: usize = 32;

/// Up to eight bytes as a number.
#[inline]
pub(crate) fn value(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// Copies as many bytes as both have. The usual sizes are constants to the compiler, which spares a call for each.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    fn fixed<const BYTES: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<BYTES>(), from.first_chunk()) {
            *to = *from;
        }
    }
    match from.len() {
        1 => fixed::<1>(to, from),
        2 => fixed::<2>(to, from),
        4 => fixed::<4>(to, from),
        8 => fixed::<8>(to, from),
        16 => fixed::<16>(to, from),
        _ => to.iter_mut().zip(from).for_each(|(to, &from)| *to = from),
    }
}

/// Returns `true` if an address is a multiple of a power of two.
#[inline]
pub(super) fn is_aligned(address: u64, bytes: usize) -> bool {
    address & (bytes as u64 - 1) == 0
}

/// The lanes of an instruction that go to global and to shared memory, and where.
#[derive(Default)]
struct Traffic {
    global: u32,
    shared: u32,
    addresses: Lanes,
}

impl Traffic {
    fn note(&mut self, lane: usize, space: Space, address: u64) {
        match space {
            Space::Global => self.global |= 1 << lane,
            Space::Shared => self.shared |= 1 << lane,
            _ => return,
        }
        self.addresses[lane] = address;
    }
}

/// The space of an address, and the address within it.
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, address);
    }
    let window = address >> windows::BITS << windows::BITS;
    match window {
        windows::SHARED => (Space::Shared, address - window),
        windows::LOCAL => (Space::Local, address - window),
        windows::PARAMETERS => (Space::Parameter, address - window),
        windows::VARIABLES => (Space::Constant, address),
        _ => (Space::Global, address),
    }
}

impl Machine<'_> {
    /// The addresses of an access, lane by lane.
    pub(super) fn addresses(&self, warp: &Warp, address: Address, mask: u32) -> Result<Lanes, Trouble> {
        let base = warp.read(address.base, mask, self.kernel)?;
        Ok(base.map(|base| base.wrapping_add_signed(address.offset)))
    }

    pub(super) fn load(&mut self, warp: &mut Warp, access: &Access, mask: u32) -> Result<(), Trouble> {
        let addresses = self.addresses(warp, access.address, mask)?;
        let bytes = access.bytes * access.slots.len();
        let mut traffic = Traffic::default();
        let mut loaded = [0; WIDEST];
        for lane in lanes(mask) {
            let (space, address) = resolve(access.space, addresses[lane]);
            traffic.note(lane, space, address);
            self.load_lane(warp, lane, space, address, access.constant, &mut loaded[..bytes])
                .map_err(|what| Trouble::new(lane, what))?;
            let mut left = &loaded[..bytes];
            for slot in &access.slots {
                let (element, behind) = left.split_at(access.bytes);
                left = behind;
                let element = match access.extend {
                    Some(register) => extend_sign(value(element), 8 * access.bytes as u32) & low(register),
                    None => value(element),
                };
                warp.write_lane(*slot, lane, element);
            }
        }
        self.count(&traffic, bytes, true);
        Ok(())
    }

    fn load_lane(
        &mut self,
        warp: &Warp,
        lane: usize,
        space: Space,
        address: u64,
        constant: bool,
        loaded: &mut [u8],
    ) -> Result<(), What> {
        let bytes = loaded.len();
        if !is_aligned(address, bytes) {
            return Err(What::Misaligned { address, bytes });
        }
        let me = self.stamp(warp, lane);
        let found = match space {
            Space::Shared => self.shared.load(address, bytes, me, &self.timeline)?,
            Space::Parameter => {
                let (start, size) = (address as usize, self.kernel.parameter_bytes);
                let outside = What::OutsideLocal { offset: address, bytes, size };
                self.launch.parameters.get(start..start.saturating_add(bytes)).ok_or(outside)?
            }
            Space::Local => {
                self.counts.local_bytes += bytes as u64;
                let start = self.local(lane, address, bytes)?;
                if !warp.local_written[start..start + bytes].iter().all(|&written| written) {
                    return Err(What::UnwrittenLocal { offset: address, bytes });
                }
                &warp.local[start..start + bytes]
            }
            Space::Global | Space::Constant | Space::Generic => {
                self.global.load(address, bytes, constant, me, &self.timeline)?
            }
        };
        copy(loaded, found);
        Ok(())
    }

    /// Returns the index at `offset` in a lane's local memory.
    fn local(&self, lane: usize, offset: u64, bytes: usize) -> Result<usize, What> {
        let size = self.kernel.local_bytes;
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(bytes));
        match end {
            Some(end) if end <= size => Ok(lane * size + offset as usize),
            _ => Err(What::OutsideLocal { offset, bytes, size }),
        }
    }

    pub(super) fn store(&mut self, warp: &mut Warp, access: &Access, mask: u32) -> Result<(), Trouble> {
        let addresses = self.addresses(warp, access.address, mask)?;
        for &slot in &access.slots {
            warp.read(slot, mask, self.kernel)?;
        }
        let bytes = access.bytes * access.slots.len();
        let mut traffic = Traffic::default();
        let mut stored = [0; WIDEST];
        for lane in lanes(mask) {
            let mut left = &mut stored[..bytes];
            for slot in &access.slots {
                let (element, behind) = left.split_at_mut(access.bytes);
                left = behind;
                copy(element, &warp.peek(*slot).0[lane].to_le_bytes()[..access.bytes]);
            }
            let (space, address) = resolve(access.space, addresses[lane]);
            traffic.note(lane, space, address);
            self.store_lane(warp, lane, space, address, &stored[..bytes])
                .map_err(|what| Trouble::new(lane, what))?;
        }
        self.count(&traffic, bytes, false);
        Ok(())
    }

    fn store_lane(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        stored: &[u8],
    ) -> Result<(), What> {
        let bytes = stored.len();
        if !is_aligned(address, bytes) {
            return Err(What::Misaligned { address, bytes });
        }
        let me = self.stamp(warp, lane);
        match space {
            Space::Shared => self.shared.store(address, stored, me, &self.timeline),
            Space::Local => {
                self.counts.local_bytes += bytes as u64;
                let start = self.local(lane, address, bytes)?;
                warp.local[start..start + bytes].copy_from_slice(stored);
                warp.local_written[start..start + bytes].fill(true);
                Ok(())
            }
            Space::Global => self.global.store(address, stored, me, &self.timeline),
            Space::Constant | Space::Parameter | Space::Generic => {
                Err(What::Outside { address, bytes, write: true, nearest: None })
            }
        }
    }

    /// Atomic operations of the lanes, lowest first.
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        place: (Space, Address, usize),
        to: Option<Slot>,
        operands: [Slot; 2],
        update: Update,
        float_sum: bool,
        mask: u32,
    ) -> Result<(), Trouble> {
        let (space, address, bytes) = place;
        let addresses = self.addresses(warp, address, mask)?;
        let first = *warp.read(operands[0], mask, self.kernel)?;
        let second = *warp.read(operands[1], mask, self.kernel)?;
        let mut traffic = Traffic::default();
        for lane in lanes(mask) {
            let (space, address) = resolve(space, addresses[lane]);
            traffic.note(lane, space, address);
            let trouble = |what| Trouble::new(lane, what);
            if !is_aligned(address, bytes) {
                return Err(trouble(What::Misaligned { address, bytes }));
            }
            let me = self.stamp(warp, lane);
            let change = |old| update(old, first[lane], second[lane]) & low(8 * bytes as u32);
            let old = match space {
                Space::Shared => self.shared.update(address, bytes, float_sum, me, &self.timeline, change),
                Space::Global => self.global.update(address, bytes, float_sum, me, &self.timeline, change),
                _ => Err(What::Outside { address, bytes, write: true, nearest: None }),
            };
            let old = old.map_err(trouble)?;
            if let Some(to) = to {
                warp.write_lane(to, lane, old);
            }
        }
        self.counts.atomics += u64::from(mask.count_ones());
        self.count(&traffic, bytes, false);
        Ok(())
    }

    fn count(&mut self, traffic: &Traffic, bytes: usize, load: bool) {
        let counts = &mut self.counts;
        if traffic.global != 0 {
            let touched = sectors(&traffic.addresses, traffic.global);
            let total = bytes as u64 * u64::from(traffic.global.count_ones());
            if load {
                counts.sectors_loaded += touched;
                counts.global_bytes_loaded += total;
                counts.global_loads += 1;
            } else {
                counts.sectors_stored += touched;
                counts.global_bytes_stored += total;
                counts.global_stores += 1;
            }
        }
        if traffic.shared != 0 {
            let total = bytes as u64 * u64::from(traffic.shared.count_ones());
            counts.bank_conflicts += bank_conflicts(&traffic.addresses, traffic.shared, bytes);
            if load {
                counts.shared_bytes_loaded += total;
            } else {
                counts.shared_bytes_stored += total;
            }
        }
    }

    /// `isspacep`.
    pub(super) fn is_space(&self, values: &[u64; WARP], space: Space) -> u32 {
        (0..WARP).fold(0, |mask, lane| {
            let found = resolve(Space::Generic, values[lane]).0;
            mask | u32::from(found == space) << lane
        })
    }
}
