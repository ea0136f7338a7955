//! Masks of one bit per voxel, processed 64 voxels at a time.

use crate::carve::{Carver, bytes_of};
use crate::rows::{Bits, Rows, words};
use crate::simd::Instructions;

/// A mask of bits. Every row starts at a new word, with its first voxel in the lowest bit; bits past the end of the row
/// are 0.
pub(crate) struct BitVolume<'a> {
    words: &'a mut [u64],
    shape: [usize; 3],
}

impl<'a> BitVolume<'a> {
    fn len([depth, height, width]: [usize; 3]) -> usize {
        depth * height * words(width)
    }

    /// The bytes of a mask of `shape`.
    pub(crate) fn bytes(shape: [usize; 3]) -> usize {
        bytes_of::<u64>(BitVolume::len(shape))
    }

    /// A mask with unspecified contents.
    pub(crate) fn new(shape: [usize; 3], carver: &mut Carver<'a>) -> BitVolume<'a> {
        BitVolume { words: carver.take(BitVolume::len(shape)), shape }
    }

    /// The foreground of a mask.
    pub(crate) fn read(mask: &dyn Rows, shape: [usize; 3], carver: &mut Carver<'a>) -> BitVolume<'a> {
        let volume = BitVolume::new(shape, carver);
        let bits = Bits { foreground: &mut *volume.words, boundary: None, soles: None };
        mask.bits(Instructions::widest(), 0, shape[2], false, bits);
        volume
    }

    /// Depth, height, width.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The words of a row; `None` out of bounds.
    pub(crate) fn row(&self, z: usize, y: usize) -> Option<&[u64]> {
        let [depth, height, width] = self.shape;
        let words = words(width);
        (z < depth && y < height).then(|| &self.words[(z * height + y) * words..][..words])
    }

    /// All words, row by row.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        self.words
    }

    /// Writes the mask, one element per voxel.
    pub(crate) fn write<T: From<bool>>(&self, to: &mut [T]) {
        let width = self.shape[2];
        for (bits, row) in self.words.chunks_exact(words(width)).zip(to.chunks_exact_mut(width)) {
            let bytes = bits.iter().flat_map(|word| word.to_le_bytes());
            for (byte, part) in bytes.zip(row.chunks_mut(8)) {
                // Eight copies of the byte; each keeps one bit, in order.
                let spread = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
                for (voxel, bit) in part.iter_mut().zip(spread.to_le_bytes()) {
                    *voxel = (bit != 0).into();
                }
            }
        }
    }
}
