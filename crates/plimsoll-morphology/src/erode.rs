//! Erosion and dilation by the neighbours of each voxel.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_parallel::Pool;

use crate::bits::BitVolume;
use crate::carve::Carver;
use crate::grid::check_length;
use crate::rows::{WORD, words};
use crate::{Connectivity, Label, MorphologyError};

/// Erodes a mask of `shape` (depth, height, width) `iterations` times: a voxel of `eroded` is true if it and all its
/// neighbours are foreground. Voxels out of bounds count as background, as in `scipy.ndimage.binary_erosion`; an axis
/// of one voxel has no neighbours, so a volume of depth 1 is eroded as an image.
///
/// Uses a quarter of a byte per voxel and up to 16 bytes per row from `budget`.
///
/// # Errors
/// Returns an error if a length does not fit the shape, there are no threads, or the memory is not available.
pub fn erode<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    connectivity: Connectivity,
    iterations: usize,
    eroded: &mut [bool],
    budget: &Budget,
    threads: usize,
) -> Result<(), MorphologyError> {
    repeat(mask, shape, connectivity, iterations, eroded, budget, threads, |a, b| a & b)
}

/// Dilates a mask: a voxel of `dilated` is true if it or one of its neighbours is foreground. Otherwise as [`erode`]; as
/// `scipy.ndimage.binary_dilation`.
///
/// # Errors
/// Returns the errors of [`erode`].
pub fn dilate<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    connectivity: Connectivity,
    iterations: usize,
    dilated: &mut [bool],
    budget: &Budget,
    threads: usize,
) -> Result<(), MorphologyError> {
    repeat(mask, shape, connectivity, iterations, dilated, budget, threads, |a, b| a | b)
}

#[allow(clippy::too_many_arguments)]
fn repeat<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    connectivity: Connectivity,
    iterations: usize,
    out: &mut [bool],
    budget: &Budget,
    threads: usize,
    join: impl Fn(u64, u64) -> u64 + Copy + Sync,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the result", out.len(), shape)?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    if mask.is_empty() {
        return Ok(());
    }
    let bytes = BitVolume::bytes(shape).saturating_mul(2);
    let mut memory = Mapped::<u8>::zeroed(budget, "erosion of a mask", bytes)?;
    let mut carver = Carver::new(&mut memory);
    let mut from = BitVolume::read(&mask, shape, &mut carver);
    let mut to = BitVolume::new(shape, &mut carver);
    let pool = Pool::or_single(threads);
    for _ in 0..iterations {
        once(&from, &mut to, connectivity, &pool, join);
        std::mem::swap(&mut from, &mut to);
    }
    from.write(out);
    Ok(())
}

/// Dilates a mask; `other` is scratch of the same shape.
pub(crate) fn grow<'a>(
    bits: &mut BitVolume<'a>,
    other: &mut BitVolume<'a>,
    connectivity: Connectivity,
    iterations: usize,
    pool: &Pool,
) {
    for _ in 0..iterations {
        once(bits, other, connectivity, pool, |a, b| a | b);
        std::mem::swap(bits, other);
    }
}

/// One dilation: ORs each voxel with its neighbours, on several threads.
fn once(
    from: &BitVolume<'_>,
    to: &mut BitVolume<'_>,
    connectivity: Connectivity,
    pool: &Pool,
    join: impl Fn(u64, u64) -> u64 + Copy + Sync,
) {
    let [depth, height, width] = from.shape();
    let words = words(width);
    let rows = (depth * height).div_ceil(pool.threads());
    pool.each(to.words_mut().chunks_mut(rows * words).enumerate(), |(part, words_of_part)| {
        for (at, row) in words_of_part.chunks_exact_mut(words).enumerate() {
            let at = part * rows + at;
            join_row(from, at / height, at % height, connectivity, row, join);
        }
    });
}

/// Joins the row `y` of the plane `z` with its neighbours.
fn join_row(
    from: &BitVolume<'_>,
    z: usize,
    y: usize,
    connectivity: Connectivity,
    to: &mut [u64],
    join: impl Fn(u64, u64) -> u64,
) {
    let [depth, height, width] = from.shape();
    let mut first = true;
    for dz in 0..3 {
        for dy in 0..3 {
            let differ = usize::from(dz != 1) + usize::from(dy != 1);
            if differ > connectivity.axes() || (dz != 1 && depth == 1) || (dy != 1 && height == 1) {
                continue;
            }
            // `None` out of bounds.
            let row = from.row((z + dz).wrapping_sub(1), (y + dy).wrapping_sub(1));
            let spread = width > 1 && connectivity.axes() > differ;
            let mut left = 0;
            for at in 0..to.len() {
                let word = row.map_or(0, |row| row[at]);
                let mut joined = word;
                if spread {
                    let next = row.and_then(|row| row.get(at + 1)).map_or(0, |next| next << (WORD - 1));
                    joined = join(join(word, word << 1 | left), word >> 1 | next);
                    left = word >> (WORD - 1);
                }
                to[at] = if first { joined } else { join(to[at], joined) };
            }
            first = false;
        }
    }
    // A dilation sets bits past the end of the row.
    let idle = to.len() * WORD - width;
    if let Some(last) = to.last_mut() {
        *last = *last << idle >> idle;
    }
}
