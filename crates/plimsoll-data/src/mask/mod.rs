//! The voxels of a case where any channel is not zero, and the holes among them: a bit for each.

mod runs;

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

pub(crate) use runs::MaskRuns;

/// The label of voxels outside of the mask while patches are made.
pub(crate) const OUTSIDE: u8 = u8::MAX;

/// Bits of a word.
const WORD: usize = 64;

/// A bit for each voxel of a box. Rows begin with a word of their own.
pub(crate) struct Mask {
    bits: Mapped<u64>,
    covered: VoxelBox,
    /// Words of a row.
    words: usize,
}

impl Mask {
    /// Nothing of a box of the stored image.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub(crate) fn new(covered: VoxelBox, budget: &Budget) -> Result<Mask, MapError> {
        let bits = Mapped::zeroed(budget, "the mask of a case", Mask::count(covered))?;
        Ok(Mask { bits, covered, words: covered.shape[2].div_ceil(WORD) })
    }

    fn count(covered: VoxelBox) -> usize {
        let [depth, height, width] = covered.shape;
        depth.saturating_mul(height).saturating_mul(width.div_ceil(WORD))
    }

    /// Bytes that it reserves, and while its holes are filled again as many.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub(crate) fn bytes(covered: VoxelBox) -> Result<Bytes, MapError> {
        Mapped::<u64>::bytes(Mask::count(covered))
    }

    /// The box.
    pub(crate) fn covered(&self) -> VoxelBox {
        self.covered
    }

    /// The number of voxels inside.
    pub(crate) fn voxels(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The first bit of a row of the box.
    fn row(&self, d: usize, h: usize) -> usize {
        (d * self.covered.shape[1] + h) * self.words
    }

    /// Adds the voxels of row (d, h) of the box that are not zero.
    pub(crate) fn include_row<T: Default + PartialEq>(&mut self, d: usize, h: usize, row: &[T]) {
        let first = self.row(d, h);
        for (word, values) in self.bits[first..first + self.words].iter_mut().zip(row.chunks(WORD)) {
            for (bit, value) in values.iter().enumerate() {
                *word |= u64::from(*value != T::default()) << bit;
            }
        }
    }

    /// Returns `true` if a voxel of the box is inside.
    pub(crate) fn has(&self, [d, h, w]: [usize; 3]) -> bool {
        self.bits[self.row(d, h) + w / WORD] >> (w % WORD) & 1 != 0
    }

    /// Returns `true` if a voxel of the stored image, which is in the box, is inside.
    pub(crate) fn has_stored(&self, at: [usize; 3]) -> bool {
        self.has([0, 1, 2].map(|axis| at[axis] - self.covered.start[axis]))
    }

    /// Sets the values of a region of the stored image, within the box, to zero where the mask is not.
    pub(crate) fn zero_outside(&self, region: VoxelBox, values: &mut [f32]) {
        let [_, height, width] = region.shape;
        for (number, row) in values.chunks_exact_mut(width).enumerate() {
            let (d, h) = (region.start[0] + number / height, region.start[1] + number % height);
            for (w, value) in row.iter_mut().enumerate() {
                if !self.has_stored([d, h, region.start[2] + w]) {
                    *value = 0.0;
                }
            }
        }
    }

    /// Adds what lies in holes: all that cannot be reached from outside the box through faces of voxels that are not in the mask, as
    /// `scipy.ndimage.binary_fill_holes`. Rows are gone through forwards and backwards, a word at a time, until no more is reached.
    /// Returns `false` if `stop` was set before.
    ///
    /// # Errors
    /// If the budget has no room for a second bit for each voxel.
    pub(crate) fn fill_holes(&mut self, budget: &Budget, stop: &AtomicBool) -> Result<bool, MapError> {
        let [depth, height, _] = self.covered.shape;
        let mut reached = Mapped::<u64>::zeroed(budget, "holes of a mask", self.bits.len())?;
        let mut changed = true;
        while changed {
            // A winding way in takes as many rounds as it has turns.
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            changed = false;
            for number in (0..depth * height).chain((0..depth * height).rev()) {
                changed |= self.reach_row(&mut reached, number / height, number % height);
            }
        }
        for (word, reached) in self.bits.iter_mut().zip(reached.iter()) {
            *word = !reached;
        }
        Ok(true)
    }

    /// Adds to what is reached of a row what follows from the rows beside it. Returns whether that was anything.
    fn reach_row(&self, reached: &mut [u64], d: usize, h: usize) -> bool {
        let [depth, height, width] = self.covered.shape;
        let (first, words) = (self.row(d, h), self.words);
        let at_border = d == 0 || d + 1 == depth || h == 0 || h + 1 == height;
        let mut changed = false;
        // From both ends of the row inwards; beyond either is outside.
        let mut carry = 1;
        for word in 0..words {
            let at = first + word;
            let mut seeds = if at_border { u64::MAX } else { carry | reached[at] };
            if !at_border {
                seeds |= reached[at - height * words] | reached[at + height * words];
                seeds |= reached[at - words] | reached[at + words];
            }
            let grown = grow_up(seeds, !self.bits[at]);
            changed |= grown != reached[at];
            reached[at] = grown;
            carry = grown >> (WORD - 1);
        }
        // Bits behind the last voxel of a row are outside too, and not in the mask.
        let mut carry = u64::from(width.is_multiple_of(WORD)) << (WORD - 1);
        for word in (0..words).rev() {
            let at = first + word;
            if word + 1 == words && !width.is_multiple_of(WORD) {
                carry = u64::MAX << (width % WORD);
            }
            let grown = grow_down(carry | reached[at], !self.bits[at]);
            changed |= grown != reached[at];
            reached[at] = grown;
            carry = grown << (WORD - 1);
        }
        changed
    }
}

/// The bits reached from seeds through free bits towards higher ones: runs of 1, 2, 4 … free bits at a time.
fn grow_up(seeds: u64, mut free: u64) -> u64 {
    let mut grown = seeds & free;
    for shift in [1, 2, 4, 8, 16, 32] {
        grown |= free & (grown << shift);
        free &= free << shift;
    }
    grown
}

/// The bits reached from seeds through free bits towards lower ones, as in [`grow_up`].
fn grow_down(seeds: u64, mut free: u64) -> u64 {
    let mut grown = seeds & free;
    for shift in [1, 2, 4, 8, 16, 32] {
        grown |= free & (grown >> shift);
        free &= free >> shift;
    }
    grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The voxels that cannot be reached from the border, found voxel by voxel.
    fn filled(mask: &[bool], shape: [usize; 3]) -> Vec<bool> {
        let [depth, height, width] = shape;
        let index = |at: [usize; 3]| (at[0] * height + at[1]) * width + at[2];
        let mut outside = vec![false; mask.len()];
        let mut found = Vec::new();
        for d in 0..depth {
            for h in 0..height {
                for w in 0..width {
                    let at = [d, h, w];
                    if (0..3).any(|axis| at[axis] == 0 || at[axis] + 1 == shape[axis]) {
                        found.push(at);
                    }
                }
            }
        }
        while let Some(at) = found.pop() {
            if mask[index(at)] || std::mem::replace(&mut outside[index(at)], true) {
                continue;
            }
            for axis in 0..3 {
                for next in [at[axis].wrapping_sub(1), at[axis] + 1] {
                    let mut beside = at;
                    beside[axis] = next;
                    if next < shape[axis] {
                        found.push(beside);
                    }
                }
            }
        }
        outside.iter().map(|outside| !outside).collect()
    }

    #[test]
    fn filling_holes_ends_when_it_is_stopped() {
        let budget = Budget::new(Bytes::mib(1));
        let mut mask = Mask::new(VoxelBox::whole([3, 3, 3]), &budget).unwrap();
        let filled = mask.fill_holes(&budget, &AtomicBool::new(true));
        assert!(!filled.unwrap());
    }

    proptest! {
        #[test]
        fn holes_are_what_cannot_be_reached_from_outside(
            shape in (1usize..7, 1usize..7, 1usize..150),
            density in 0.2..0.9f64,
            seed: u64,
        ) {
            let shape = [shape.0, shape.1, shape.2];
            let value = |at: usize| {
                let hash = plimsoll_random::mix(seed ^ at as u64);
                f32::from((hash >> 11) as f64 / (1u64 << 53) as f64 <= density)
            };
            let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
            let budget = Budget::new(Bytes::mib(1));
            let covered = VoxelBox { start: [3, 4, 5], shape };
            let mut mask = Mask::new(covered, &budget).unwrap();
            for (number, row) in values.chunks_exact(shape[2]).enumerate() {
                mask.include_row(number / shape[1], number % shape[1], row);
            }
            prop_assert!(mask.fill_holes(&budget, &AtomicBool::new(false)).unwrap());
            let expected = filled(&values.iter().map(|value| *value != 0.0).collect::<Vec<_>>(), shape);
            let mut ones = vec![1.0; values.len()];
            mask.zero_outside(covered, &mut ones);
            prop_assert_eq!(ones.iter().map(|one| *one != 0.0).collect::<Vec<_>>(), expected);
        }
    }
}
