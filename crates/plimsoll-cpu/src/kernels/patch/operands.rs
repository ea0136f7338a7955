//! Patches and single rows as operands of dot products of bf16.

use plimsoll_parallel::prefetch;

use super::{Affine, Blocks, PatchShape, SourceBlock};
use crate::simd::dot::{Dot, PAIR};
use crate::simd::{Bf16, Element, LANES, Simd};

impl Blocks {
    /// Gathers the patch of one of the blocks whose first position is `first` (depth, height), rounded to bf16.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. The block's buffers are as its fields say, with the extent of the shape's source, and
    /// initialised; `sample` is one of its samples. `patch` is valid for writes of [`PatchShape::block`] elements, and the shape has
    /// sixteen lanes.
    #[inline(always)]
    pub(crate) unsafe fn gather_operands<D: Dot>(
        &self,
        block: usize,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut u16,
    ) {
        // SAFETY: this function's contract includes the contract of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].gather_operands::<D>(shape, sample, first, patch),
                Blocks::Bf16(blocks) => blocks[block].gather_operands::<D>(shape, sample, first, patch),
            }
        }
    }

    /// The same where each column has pairs: its values and the values of the next column of the same phase, zeroes behind the last.
    ///
    /// # Safety
    /// The contract is the one of [`Blocks::gather_operands`], with `patch` valid for writes of twice as many elements.
    #[inline(always)]
    pub(crate) unsafe fn gather_pairs<D: Dot>(
        &self,
        block: usize,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut u16,
    ) {
        // SAFETY: this function's contract includes the contract of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].gather_pairs::<D>(shape, sample, first, patch),
                Blocks::Bf16(blocks) => blocks[block].gather_pairs::<D>(shape, sample, first, patch),
            }
        }
    }

    /// Reads a row of one of the blocks, as its reader sees it but not rounded; zeroes beyond it.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. The block's buffers are as its fields say, with rows of `width` columns, and
    /// initialised; `sample` is one of its samples, and `row`, if there is one, the number of a row of it. `to` is valid for writes of
    /// `columns` · 16 floats.
    #[inline(always)]
    pub(crate) unsafe fn row<D: Dot>(
        &self,
        block: usize,
        sample: usize,
        row: Option<usize>,
        low: isize,
        width: usize,
        columns: usize,
        to: *mut f32,
    ) {
        // SAFETY: this function's contract includes the contract of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].row::<D>(sample, row, low, width, columns, to),
                Blocks::Bf16(blocks) => blocks[block].row::<D>(sample, row, low, width, columns, to),
            }
        }
    }

    /// Asks the processor for `count` voxels of one of the blocks, from one on.
    #[inline]
    pub(crate) fn fetch(&self, block: usize, sample: usize, first: usize, count: usize) {
        match self {
            Blocks::F32(blocks) => blocks[block].fetch(sample, first, count),
            Blocks::Bf16(blocks) => blocks[block].fetch(sample, first, count),
        }
    }
}

/// The stored elements of a block from which operands are made. A trait, because bf16 are copied where nothing changes them.
pub(crate) trait AsOperand: Element {
    /// Makes sixteen of them operands.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`; `to` is valid for writes and `from` for reads of sixteen elements.
    unsafe fn operand<D: Dot>(to: *mut u16, from: *const Self);
}

impl AsOperand for f32 {
    #[inline(always)]
    unsafe fn operand<D: Dot>(to: *mut u16, from: *const f32) {
        // SAFETY: this function's contract includes the contract of the calls.
        unsafe { D::store_operand(to, D::S::load(from)) }
    }
}

impl AsOperand for Bf16 {
    #[inline(always)]
    unsafe fn operand<D: Dot>(to: *mut u16, from: *const Bf16) {
        // SAFETY: `Bf16` is a transparent `u16`; else this function's contract includes the contract of the call.
        unsafe { D::copy_operands(to, from.cast()) }
    }
}

/// The normalised and activated value, not rounded yet.
///
/// # Safety
/// The machine has the instruction set of `D`.
#[inline(always)]
unsafe fn norm_act<D: Dot>(affine: &Affine<<D::S as Simd>::V>, y: <D::S as Simd>::V) -> <D::S as Simd>::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe { D::S::leaky(D::fma(affine.a, y, affine.b), affine.slope) }
}

/// A value as its reader sees it, not rounded yet: normalised and activated if it is `NORM`.
///
/// # Safety
/// The machine has the instruction set of `D`; `from` is valid for reads of sixteen elements.
#[inline(always)]
pub(crate) unsafe fn operand_value<D: Dot, T: Element, const NORM: bool>(
    affine: &Affine<<D::S as Simd>::V>,
    from: *const T,
) -> <D::S as Simd>::V {
    // SAFETY: this function's contract includes the contract of the calls.
    unsafe {
        let y = T::load::<D::S>(from);
        if NORM { norm_act::<D>(affine, y) } else { y }
    }
}

/// The columns of a row that are inside of the source: those whose place, column · step + shift, is from 0 to below the width.
#[inline]
fn inside(columns: usize, step: usize, shift: isize, width: usize) -> std::ops::Range<usize> {
    let reach =
        |place: isize| usize::try_from(place - shift).map_or(0, |past| past.div_ceil(step)).min(columns);
    reach(0)..reach(width as isize)
}

impl<T: AsOperand> SourceBlock<T> {
    /// [`Blocks::gather_operands`] of this block.
    ///
    /// # Safety
    /// [`Blocks::gather_operands`]'s contract, for this block.
    #[inline(always)]
    unsafe fn gather_operands<D: Dot>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut u16,
    ) {
        let (step, columns, width) = (shape.step[2], shape.columns, shape.source[2]);
        // SAFETY: the block and the sample are as this function's contract says. `rows_read` yields rows of the source, of `width`
        // columns of sixteen, and places of rows below `PatchShape::block`, each of `phases` · `columns` columns of sixteen; `inside`
        // yields columns of those that are in the source.
        unsafe {
            let affine = match &self.norm {
                Some(norm) => Some(norm.affine::<D::S>(sample)),
                None => None,
            };
            let data = self.data.add(sample * self.sample_stride).0.cast_const();
            for (to, from) in shape.rows_read(first) {
                let to = patch.add(to);
                let Some(from) = from else {
                    to.write_bytes(0, shape.row());
                    continue;
                };
                let from = data.add(from * width * LANES);
                for phase in 0..shape.phases() {
                    let to = to.add(phase * columns * LANES);
                    let shift = phase as isize + shape.low[2];
                    let inside = inside(columns, step, shift, width);
                    to.write_bytes(0, inside.start * LANES);
                    to.add(inside.end * LANES).write_bytes(0, (columns - inside.end) * LANES);
                    for column in inside {
                        let from = from.add(((column * step) as isize + shift) as usize * LANES);
                        let to = to.add(column * LANES);
                        match &affine {
                            Some(affine) => {
                                D::store_operand(to, norm_act::<D>(affine, T::load::<D::S>(from)))
                            }
                            None => T::operand::<D>(to, from),
                        }
                    }
                }
            }
        }
    }

    /// [`Blocks::gather_pairs`] of this block.
    ///
    /// # Safety
    /// [`Blocks::gather_pairs`]'s contract, for this block.
    #[inline(always)]
    unsafe fn gather_pairs<D: Dot>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut u16,
    ) {
        let (step, columns, width) = (shape.step[2], shape.columns, shape.source[2]);
        // SAFETY: as in `gather_operands`, with two elements for each of its one.
        unsafe {
            let affine = match &self.norm {
                Some(norm) => Some(norm.affine::<D::S>(sample)),
                None => None,
            };
            let data = self.data.add(sample * self.sample_stride).0.cast_const();
            for (to, from) in shape.rows_read(first) {
                let to = patch.add(PAIR * to);
                let Some(from) = from else {
                    to.write_bytes(0, PAIR * shape.row());
                    continue;
                };
                let from = data.add(from * width * LANES);
                for phase in 0..shape.phases() {
                    let to = to.add(PAIR * phase * columns * LANES);
                    let shift = phase as isize + shape.low[2];
                    let inside = inside(columns, step, shift, width);
                    let mut this = D::S::zero();
                    for column in 0..columns + 1 {
                        let mut next = D::S::zero();
                        if inside.contains(&column) {
                            let place = ((column * step) as isize + shift) as usize;
                            next = T::load::<D::S>(from.add(place * LANES));
                            if let Some(affine) = &affine {
                                next = norm_act::<D>(affine, next);
                            }
                        }
                        if column > 0 {
                            D::store_pairs(to.add(PAIR * (column - 1) * LANES), [this, next]);
                        }
                        this = next;
                    }
                }
            }
        }
    }

    /// [`Blocks::fetch`] of this block.
    #[inline]
    fn fetch(&self, sample: usize, first: usize, count: usize) {
        let place = sample * self.sample_stride + first * LANES;
        prefetch(self.data.0.cast_const().wrapping_add(place), count * LANES);
    }

    /// [`Blocks::row`] of this block.
    ///
    /// # Safety
    /// [`Blocks::row`]'s contract, for this block.
    #[inline(always)]
    unsafe fn row<D: Dot>(
        &self,
        sample: usize,
        row: Option<usize>,
        low: isize,
        width: usize,
        columns: usize,
        to: *mut f32,
    ) {
        // SAFETY: the block, the sample and the row are as this function's contract says; `inside` yields columns below `columns` whose
        // places are below the width.
        unsafe {
            let Some(row) = row else {
                to.write_bytes(0, columns * LANES);
                return;
            };
            let from = self.data.add(sample * self.sample_stride + row * width * LANES).0.cast_const();
            let inside = inside(columns, 1, low, width);
            to.write_bytes(0, inside.start * LANES);
            to.add(inside.end * LANES).write_bytes(0, (columns - inside.end) * LANES);
            match &self.norm {
                Some(norm) => {
                    let affine = norm.affine::<D::S>(sample);
                    for column in inside {
                        let y = T::load::<D::S>(from.add((column as isize + low) as usize * LANES));
                        D::S::store(to.add(column * LANES), norm_act::<D>(&affine, y));
                    }
                }
                None => {
                    for column in inside {
                        let y = T::load::<D::S>(from.add((column as isize + low) as usize * LANES));
                        D::S::store(to.add(column * LANES), y);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_inside_are_those_whose_place_is() {
        for (columns, step, shift, width) in
            [(7, 1, -1, 5), (4, 2, -1, 5), (4, 2, 0, 5), (3, 1, 2, 9), (2, 3, -7, 4), (5, 1, 4, 3)]
        {
            let is_inside =
                |column: &usize| (0..width as isize).contains(&((column * step) as isize + shift));
            let expected: Vec<usize> = (0..columns).filter(is_inside).collect();
            let found: Vec<usize> = inside(columns, step, shift, width).collect();
            assert_eq!(found, expected, "{columns} columns, step {step}, shift {shift}, width {width}");
        }
    }
}
