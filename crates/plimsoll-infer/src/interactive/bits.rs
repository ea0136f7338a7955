//! Masks of one bit for each voxel.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

const WORD: usize = u64::BITS as usize;

/// A mask of one bit for each voxel. Every row begins with a new word; bits past its end are 0.
pub(crate) struct BitMask {
    shape: [usize; 3],
    /// The words of a row.
    words: usize,
    bits: Mapped<u64>,
}

impl BitMask {
    /// The bytes of a mask.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(shape: [usize; 3]) -> Result<Bytes, MapError> {
        Mapped::<u64>::bytes(BitMask::len(shape))
    }

    fn len([depth, height, width]: [usize; 3]) -> usize {
        depth.saturating_mul(height).saturating_mul(width.div_ceil(WORD))
    }

    /// An empty mask.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(crate) fn new(shape: [usize; 3], holder: &str, budget: &Budget) -> Result<BitMask, MapError> {
        let bits = Mapped::zeroed(budget, holder, BitMask::len(shape))?;
        Ok(BitMask { shape, words: shape[2].div_ceil(WORD), bits })
    }

    /// Depth, height, width.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The words of a plane.
    pub(crate) fn plane_words(&self) -> usize {
        self.shape[1] * self.words
    }

    /// The words of a row.
    pub(crate) fn row_words(&self) -> usize {
        self.words
    }

    /// All words, row by row.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.bits
    }

    fn row(&self, depth: usize, height: usize) -> &[u64] {
        &self.bits[(depth * self.shape[1] + height) * self.words..][..self.words]
    }

    fn row_mut(&mut self, depth: usize, height: usize) -> &mut [u64] {
        &mut self.bits[(depth * self.shape[1] + height) * self.words..][..self.words]
    }

    /// Returns `true` for a voxel of the mask.
    pub(crate) fn get(&self, [depth, height, width]: [usize; 3]) -> bool {
        self.row(depth, height)[width / WORD] >> (width % WORD) & 1 == 1
    }

    /// Returns `true` for a voxel of the mask, and `false` outside of its grid.
    pub(crate) fn get_anywhere(&self, at: [i64; 3]) -> bool {
        let inside = |axis: usize| usize::try_from(at[axis]).ok().filter(|at| *at < self.shape[axis]);
        match (inside(0), inside(1), inside(2)) {
            (Some(depth), Some(height), Some(width)) => self.get([depth, height, width]),
            _ => false,
        }
    }

    /// Sets or clears a voxel.
    pub(crate) fn set(&mut self, [depth, height, width]: [usize; 3], value: bool) {
        let word = &mut self.row_mut(depth, height)[width / WORD];
        let bit = 1 << (width % WORD);
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// Removes all voxels.
    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
    }

    /// Copies a mask of the same shape.
    pub(crate) fn copy_from(&mut self, other: &BitMask) {
        self.bits.copy_from_slice(&other.bits);
    }

    /// The number of voxels.
    pub(crate) fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The number of voxels in a box within the grid.
    pub(crate) fn count_in(&self, within: VoxelBox) -> u64 {
        let mut count = 0;
        for_each_word(within, |depth, height, word, mask| {
            count += u64::from((self.row(depth, height)[word] & mask).count_ones());
        });
        count
    }

    /// Removes the voxels in a box within the grid.
    pub(crate) fn erase(&mut self, within: VoxelBox) {
        for_each_word(within, |depth, height, word, mask| self.row_mut(depth, height)[word] &= !mask);
    }

    /// The voxel of a rank, from 0, in the order of memory.
    pub(crate) fn nth(&self, mut rank: u64) -> Option<[usize; 3]> {
        for (place, word) in self.bits.iter().enumerate() {
            let ones = u64::from(word.count_ones());
            if rank >= ones {
                rank -= ones;
                continue;
            }
            let mut word = *word;
            for _ in 0..rank {
                word &= word - 1;
            }
            let (row, column) = (place / self.words, place % self.words);
            let width = column * WORD + word.trailing_zeros() as usize;
            return Some([row / self.shape[1], row % self.shape[1], width]);
        }
        None
    }

    /// The smallest box around all voxels; `None` of an empty mask.
    pub(crate) fn bounds(&self) -> Option<VoxelBox> {
        let (mut first, mut end) = (self.shape, [0; 3]);
        for depth in 0..self.shape[0] {
            for height in 0..self.shape[1] {
                let row = self.row(depth, height);
                let Some(from) = row.iter().position(|word| *word != 0) else { continue };
                let to = row.iter().rposition(|word| *word != 0).unwrap_or(from);
                let ends = [
                    from * WORD + row[from].trailing_zeros() as usize,
                    (to + 1) * WORD - row[to].leading_zeros() as usize,
                ];
                first = [first[0].min(depth), first[1].min(height), first[2].min(ends[0])];
                end = [end[0].max(depth + 1), end[1].max(height + 1), end[2].max(ends[1])];
            }
        }
        (end[0] > 0).then(|| VoxelBox::between(first, end))
    }
}

/// Calls a function with each word of the rows of a box, and the bits of the word that are in the box.
fn for_each_word(within: VoxelBox, mut call: impl FnMut(usize, usize, usize, u64)) {
    let VoxelBox { start, shape } = within;
    let (from, to) = (start[2], start[2] + shape[2]);
    if shape.contains(&0) {
        return;
    }
    for depth in start[0]..start[0] + shape[0] {
        for height in start[1]..start[1] + shape[1] {
            for word in from / WORD..=(to - 1) / WORD {
                let first = from.saturating_sub(word * WORD);
                let past = (to - word * WORD).min(WORD);
                let below = if past == WORD { u64::MAX } else { (1 << past) - 1 };
                call(depth, height, word, below & (u64::MAX << first));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(shape: [usize; 3], voxels: &[[usize; 3]]) -> BitMask {
        let mut mask = BitMask::new(shape, "test", &Budget::new(Bytes::mib(1))).unwrap();
        voxels.iter().for_each(|voxel| mask.set(*voxel, true));
        mask
    }

    #[test]
    fn boxes_count_and_erase_across_words() {
        let all: Vec<[usize; 3]> = (0..2).flat_map(|d| (0..150).map(move |w| [d, 0, w])).collect();
        let mut mask = mask([2, 1, 150], &all);
        let part = VoxelBox { start: [1, 0, 60], shape: [1, 1, 70] };
        assert_eq!((mask.count(), mask.count_in(part)), (300, 70));
        mask.erase(part);
        assert_eq!((mask.count(), mask.count_in(part)), (230, 0));
        assert!(
            mask.get([1, 0, 59]) && !mask.get([1, 0, 60]) && !mask.get([1, 0, 129]) && mask.get([1, 0, 130])
        );
    }

    #[test]
    fn voxels_are_found_by_rank_and_enclosed_by_the_smallest_box() {
        let mask = mask([3, 4, 130], &[[0, 2, 129], [1, 1, 3], [2, 0, 64]]);
        let found: Vec<_> = (0..4).map(|rank| mask.nth(rank)).collect();
        assert_eq!(found, [Some([0, 2, 129]), Some([1, 1, 3]), Some([2, 0, 64]), None]);
        assert_eq!(mask.bounds(), Some(VoxelBox::between([0, 0, 3], [3, 3, 130])));
        assert!(
            !mask.get_anywhere([0, -1, 129])
                && !mask.get_anywhere([0, 2, 130])
                && mask.get_anywhere([0, 2, 129])
        );
    }
}
