//! An index of foreground voxels: a bounded number of positions of each class of a case, to centre patches on.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

/// The largest number of positions that are kept of a class in a case.
pub(crate) const POSITIONS: usize = 1000;

/// Up to 1000 voxels of each class of a case, chosen at random; if the data set has an "ignore" label, also of the
/// annotated voxels.
#[derive(Debug)]
pub struct ForegroundIndex {
    /// The end of the positions of each class; the positions of class 0 are the annotated voxels'.
    ends: Vec<usize>,
    /// The factor of stored positions.
    unit: u64,
    positions: Mapped<u32>,
}

/// The positions of one class.
#[derive(Clone, Copy, Debug)]
pub struct Positions<'a> {
    unit: u64,
    positions: &'a [u32],
}

/// The unit of stored positions in a grid of this many voxels, chosen so that positions divided by it fit 32 bits. It
/// is 1 up to 2³² voxels; in larger grids only every n-th voxel can be in an index, and a class without such voxels has
/// no positions.
pub(crate) fn unit(voxels: usize) -> u64 {
    (voxels as u64).div_ceil(1 << 32).max(1)
}

impl ForegroundIndex {
    /// The bytes that an index of this many positions reserves.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub(crate) fn reserves(positions: usize) -> Result<Bytes, MapError> {
        Mapped::<u32>::bytes(positions)
    }

    /// An index with these positions, by class and in order; each is a multiple of `unit`. Its reservation is held as
    /// long as it lives.
    pub(crate) fn new(classes: &[Vec<u64>], unit: u64, budget: &Budget) -> Result<ForegroundIndex, MapError> {
        let count = classes.iter().map(Vec::len).sum();
        let mut index = ForegroundIndex::zeroed(classes.iter().map(Vec::len), unit, count, budget)?;
        for (to, from) in index.positions.iter_mut().zip(classes.iter().flatten()) {
            // It fits 32 bits by the choice of the unit.
            *to = (from / unit) as u32;
        }
        Ok(index)
    }

    /// A zeroed index for this many positions of each class.
    pub(crate) fn zeroed(
        counts: impl Iterator<Item = usize>,
        unit: u64,
        count: usize,
        budget: &Budget,
    ) -> Result<ForegroundIndex, MapError> {
        // It waits for other cases that are being read, which may hold all that is left for a while.
        let reservation = budget.reserve_in_turn("index", ForegroundIndex::reserves(count)?)?.keep();
        let positions = Mapped::within(reservation, count)?;
        let ends = counts
            .scan(0, |end, count| {
                *end += count;
                Some(*end)
            })
            .collect();
        Ok(ForegroundIndex { ends, unit, positions })
    }

    /// The classes other than the background that the case has.
    pub fn present(&self) -> impl Iterator<Item = u8> {
        let there = self.ends.windows(2).map(|ends| ends[0] < ends[1]);
        // Classes are bytes.
        there.enumerate().filter(|(_, there)| *there).map(|(before, _)| before as u8 + 1)
    }

    /// Positions of a class other than the background.
    pub fn positions(&self, class: u8) -> Positions<'_> {
        self.slot(usize::from(class).max(1))
    }

    /// Positions of annotated voxels of any class; empty if the data set has no "ignore" label.
    pub fn annotated(&self) -> Positions<'_> {
        self.slot(0)
    }

    /// The bytes reserved for it.
    pub fn bytes(&self) -> Bytes {
        self.positions.reserved()
    }

    fn slot(&self, slot: usize) -> Positions<'_> {
        let start = slot.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(slot).copied().unwrap_or(start);
        Positions { unit: self.unit, positions: &self.positions[start..end] }
    }

    /// The number of positions of each class, in the order of [`zeroed`](Self::zeroed).
    pub(crate) fn counts(&self) -> Vec<usize> {
        (0..self.ends.len()).map(|slot| self.slot(slot).len()).collect()
    }

    /// All stored positions.
    pub(crate) fn packed(&self) -> &[u32] {
        &self.positions
    }

    /// All stored positions, mutable.
    pub(crate) fn packed_mut(&mut self) -> &mut [u32] {
        &mut self.positions
    }
}

impl Positions<'_> {
    /// The number of positions.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns `true` if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The `nth` voxel (depth, height, width) in the stored grid, whose shape is given; `None` from [`len`](Self::len) on.
    pub fn voxel(&self, nth: usize, shape: [usize; 3]) -> Option<[usize; 3]> {
        let packed = *self.positions.get(nth)?;
        Some(voxel(u64::from(packed) * self.unit, shape))
    }
}

/// The voxel at a linear position.
pub(crate) fn voxel(position: u64, [_, height, width]: [usize; 3]) -> [usize; 3] {
    // A position is within the grid, which is addressable.
    let position = position as usize;
    let plane = (height * width).max(1);
    [position / plane, position % plane / width.max(1), position % width.max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_beyond_32_bits_are_multiples_of_a_unit() {
        assert_eq!(unit(1 << 32), 1);
        assert_eq!(unit((1 << 32) + 1), 2);
        let shape = [4096, 2048, 2048];
        let voxels = shape.iter().product::<usize>();
        let far = voxels as u64 - 4;
        let budget = Budget::new(Bytes::mib(1));
        assert_eq!(unit(voxels), 4);
        let index = ForegroundIndex::new(&[vec![], vec![], vec![far]], 4, &budget).unwrap();
        assert_eq!(index.present().collect::<Vec<u8>>(), [2]);
        assert_eq!(index.positions(2).voxel(0, shape), Some([4095, 2047, 2044]));
        assert!(index.positions(1).is_empty() && index.annotated().is_empty());
        assert_eq!(budget.used(), index.bytes());
    }
}
