//! The source as the Winograd kernel reads it: gathered and transformed at once, so that nothing but transformed values is stored.

use plimsoll_parallel::each;

use crate::kernels::f23::{POINTS, RESULTS, inputs};
use crate::kernels::patch::{Affine, Blocks, SourceBlock, operand_value};
use crate::simd::dot::{Dot, DotBody};
use crate::simd::{Element, LANES, Simd};

/// Tiles of a plane of a block of the source, to be gathered and transformed; beyond the source there are zeroes.
///
/// To run it asks that the block is as its fields say and initialised, that its samples have planes of `extent`, of which `sample` and
/// `plane` are one, and that `to` is valid for writes of all tiles in each point.
#[derive(Clone, Copy)]
pub(super) struct TransformPlane<'a> {
    pub(super) source: &'a Blocks,
    pub(super) block: usize,
    pub(super) sample: usize,
    pub(super) plane: usize,
    /// Rows and columns of a plane.
    pub(super) extent: [usize; 2],
    /// The row and the column where the first tile begins.
    pub(super) low: [isize; 2],
    /// Rows of tiles, and tiles of a row.
    pub(super) tiles: [usize; 2],
    /// `[point][row][tile][16]`
    pub(super) to: *mut u16,
    /// Elements from a point to the next.
    pub(super) point: usize,
}

impl DotBody for TransformPlane<'_> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        // SAFETY: whoever runs this body answers for what its type asks; the index is checked.
        unsafe {
            match self.source {
                Blocks::F32(blocks) => self.block::<D, f32>(&blocks[self.block]),
                Blocks::Bf16(blocks) => self.block::<D, _>(&blocks[self.block]),
            }
        }
    }
}

impl TransformPlane<'_> {
    /// Transforms all tiles.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`, and what [`TransformPlane`] asks for holds; `block` is its block.
    #[inline(always)]
    unsafe fn block<D: Dot, T: Element>(&self, block: &SourceBlock<T>) {
        // SAFETY: this function's contract includes the contract of the calls.
        unsafe {
            match &block.norm {
                Some(norm) => {
                    let affine = norm.affine::<D::S>(self.sample);
                    self.all::<D, T, true>(block, &affine);
                }
                None => {
                    let zero = D::S::zero();
                    self.all::<D, T, false>(block, &Affine { a: zero, b: zero, slope: zero });
                }
            }
        }
    }

    /// [`TransformPlane::block`], with what a normalised block is normalised by.
    ///
    /// # Safety
    /// [`TransformPlane::block`]'s contract.
    #[inline(always)]
    unsafe fn all<D: Dot, T: Element, const NORM: bool>(
        &self,
        block: &SourceBlock<T>,
        affine: &Affine<<D::S as Simd>::V>,
    ) {
        let [height, width] = self.extent;
        for tile in 0..self.tiles[1] {
            let w = self.low[1] + (tile * RESULTS) as isize;
            let first = block.sample_stride * self.sample + self.plane * height * width * LANES;
            // SAFETY: this function's contract includes the contract of the calls; columns belong to the tiles.
            unsafe {
                let data = block.data.0.cast_const().add(first);
                if w >= 0 && w + POINTS as isize <= width as isize {
                    self.down::<D, T, NORM, true>(data, affine, tile, w);
                } else {
                    self.down::<D, T, NORM, false>(data, affine, tile, w);
                }
            }
        }
    }

    /// Transforms the tiles below one another that begin at column `w`. A tile shares two rows with that above it, which are kept in
    /// registers. `INSIDE` if all of their columns are inside of the source.
    ///
    /// # Safety
    /// [`TransformPlane::block`]'s contract; `data` is the plane's, `tile` the number of a tile of a row and `w` where it begins.
    #[inline(always)]
    unsafe fn down<D: Dot, T: Element, const NORM: bool, const INSIDE: bool>(
        &self,
        data: *const T,
        affine: &Affine<<D::S as Simd>::V>,
        tile: usize,
        w: isize,
    ) {
        // SAFETY: rows and, if they are not all inside, columns are checked to be inside of the plane; tiles belong to `to`.
        unsafe {
            let mut kept = [[D::S::zero(); POINTS]; RESULTS];
            for (i, row) in kept.iter_mut().enumerate() {
                *row = self.row::<D, T, NORM, INSIDE>(data, affine, i, w);
            }
            for down in 0..self.tiles[0] {
                let mut new = [[D::S::zero(); POINTS]; RESULTS];
                for (i, row) in new.iter_mut().enumerate() {
                    *row = self.row::<D, T, NORM, INSIDE>(data, affine, (down + 1) * RESULTS + i, w);
                }
                let to = self.to.add((down * self.tiles[1] + tile) * LANES);
                for j in 0..POINTS {
                    let v = inputs::<D::S>([kept[0][j], kept[1][j], new[0][j], new[1][j]]);
                    for (i, v) in v.into_iter().enumerate() {
                        D::store_operand(to.add((i * POINTS + j) * self.point), v);
                    }
                }
                kept = new;
            }
        }
    }

    /// A row of tiles that begin at column `w`, transformed along the width.
    ///
    /// # Safety
    /// [`TransformPlane::down`]'s contract.
    #[inline(always)]
    unsafe fn row<D: Dot, T: Element, const NORM: bool, const INSIDE: bool>(
        &self,
        data: *const T,
        affine: &Affine<<D::S as Simd>::V>,
        at: usize,
        w: isize,
    ) -> [<D::S as Simd>::V; POINTS] {
        let [height, width] = each(self.extent, |extent| extent as isize);
        let h = self.low[0] + at as isize;
        // SAFETY: a value is read only where its row and its column are inside of the plane.
        unsafe {
            let mut d = [D::S::zero(); POINTS];
            if (0..height).contains(&h) {
                let row = data.offset(h * width * LANES as isize);
                for (j, d) in d.iter_mut().enumerate() {
                    let w = w + j as isize;
                    if INSIDE || (0..width).contains(&w) {
                        *d = operand_value::<D, T, NORM>(affine, row.offset(w * LANES as isize));
                    }
                }
            }
            inputs::<D::S>(d)
        }
    }
}
