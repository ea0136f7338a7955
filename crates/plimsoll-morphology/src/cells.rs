//! The surface of a mask as neighbourhood codes: one per cell between eight voxels, or four pixels.

use plimsoll_parallel::Pool;

use crate::grid::{check_length, voxels};
use crate::{Label, MorphologyError};

/// The shape of the grid of cells of a mask: each cell lies between eight voxels, some of which are out of bounds for
/// the outermost cells.
pub fn cell_shape(shape: [usize; 3]) -> [usize; 3] {
    shape.map(|n| n.saturating_add(1))
}

/// The neighbourhood codes of a mask of `shape` (depth, height, width), in a grid of [`cell_shape`]. Cell (z, y, x)
/// lies between the voxels (z − 1 or z, y − 1 or y, x − 1 or x), and its code tells which of them are foreground:
///
/// | bit | 128 | 64 | 32 | 16 | 8 | 4 | 2 | 1 |
/// |---|---|---|---|---|---|---|---|---|
/// | voxel | z−1, y−1, x−1 | z−1, y−1, x | z−1, y, x−1 | z−1, y, x | z, y−1, x−1 | z, y−1, x | z, y, x−1 | z, y, x |
///
/// The surface runs through cells whose code is neither 0 nor 255. As the codes of DeepMind's surface-distance.
///
/// # Errors
/// Returns an error if a length does not fit its shape, or there are no threads.
pub fn surface_codes<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    codes: &mut [u8],
    threads: usize,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the buffer of codes", codes.len(), cell_shape(shape))?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    let [depth, height, width] = shape;
    let row =
        |z: usize, y: usize| (z < depth && y < height).then(|| &mask[(z * height + y) * width..][..width]);
    let cells = (height + 1) * (width + 1);
    let slices = (depth + 1).div_ceil(threads);
    Pool::or_single(threads).each(codes.chunks_mut(slices * cells).enumerate(), |(part, codes)| {
        for (at, codes) in codes.chunks_exact_mut(width + 1).enumerate() {
            let (z, y) = (part * slices + at / (height + 1), at % (height + 1));
            // Rows and slices out of bounds are background.
            let (above, before) = (z.wrapping_sub(1), y.wrapping_sub(1));
            code_row(
                [(row(above, before), 64), (row(above, y), 16), (row(z, before), 4), (row(z, y), 1)],
                codes,
            );
        }
    });
    Ok(())
}

/// The neighbourhood codes of an image of `shape` (height, width), in a grid of one more along each axis: pixel (y − 1, x − 1)
/// is bit 8, (y − 1, x) bit 4, (y, x − 1) bit 2 and (y, x) bit 1. The contour runs through cells whose code is neither 0 nor 15.
///
/// # Errors
/// Returns an error if a length does not fit its shape.
pub fn contour_codes<L: Label>(
    image: &[L],
    shape: [usize; 2],
    codes: &mut [u8],
) -> Result<(), MorphologyError> {
    let [height, width] = shape;
    check_length("the image", image.len(), [1, height, width])?;
    check_length("the buffer of codes", codes.len(), [1, height.saturating_add(1), width.saturating_add(1)])?;
    voxels([1, height, width])?;
    let row = |y: usize| (y < height).then(|| &image[y * width..][..width]);
    for (y, codes) in codes.chunks_exact_mut(width + 1).enumerate() {
        code_row([(row(y.wrapping_sub(1)), 4), (row(y), 1)], codes);
    }
    Ok(())
}

/// Codes of the cells of one row. Each row of voxels is given with the bit of the voxel after the cell; twice that is
/// the bit of the voxel before it.
fn code_row<L: Label, const N: usize>(rows: [(Option<&[L]>, u8); N], codes: &mut [u8]) {
    codes.fill(0);
    for (row, bit) in rows {
        for (code, label) in codes.iter_mut().zip(row.unwrap_or_default()) {
            *code |= if label.is_foreground() { bit } else { 0 };
        }
    }
    for at in (1..codes.len()).rev() {
        codes[at] |= codes[at - 1] << 1;
    }
}
