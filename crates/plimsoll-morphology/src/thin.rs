//! Thinning to a skeleton.
//!
//! Voxels are removed layer by layer, from each side in turn, if they are simple points: removing them changes no
//! component, tunnel or cavity, and they are not the end of a line. The candidates of a layer are found first, on
//! several threads; then they are checked again and removed one after the other.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_parallel::Pool;

use crate::bits::BitVolume;
use crate::carve::Carver;
use crate::cube::Cube;
use crate::grid::check_length;
use crate::rows::{WORD, words};
use crate::{Label, MorphologyError};

/// The side that a layer is taken from: the neighbour that must be background, in steps along depth, height and width.
type Side = [isize; 3];

/// In scikit-image's order, as the result depends on it; an image, of depth 1, uses the first four.
const SIDES: [Side; 6] = [[0, -1, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [1, 0, 0], [-1, 0, 0]];
const SIDES_OF_IMAGE: usize = 4;

/// The conditions that are checked again before a candidate is removed, since its neighbours may have been removed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recheck {
    /// Neither the connectivity nor the Euler number of its neighbourhood may change: components, tunnels and cavities
    /// are preserved for every mask.
    Topology,
    /// The connectivity of its neighbourhood may not change. This is what `skimage.morphology.skeletonize(mask,
    /// method="lee")` checks in version 0.26, and gives bitwise the same skeletons. Those of vessels and other tubes,
    /// and of images, are the same either way; masks that thin to sheets, and noise, may lose or gain a tunnel.
    Connectivity,
}

/// Thins a mask of `shape` (depth, height, width) to a skeleton one voxel wide, with the same components, tunnels and
/// cavities for foreground that is connected at corners ([`Topology::Corners`](crate::Topology::Corners)). Voxels out
/// of bounds are background. After T.-C. Lee, R. L. Kashyap and C.-N. Chu, "Building skeleton models via 3-D medial
/// surface/axis thinning algorithms" (1994).
///
/// Uses a quarter of a byte per voxel and up to 16 bytes per row from `budget`.
///
/// # Errors
/// Returns an error if a length does not fit the shape, there are no threads, or the memory is not available.
pub fn skeletonize<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    recheck: Recheck,
    skeleton: &mut [bool],
    budget: &Budget,
    threads: usize,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the skeleton", skeleton.len(), shape)?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    if mask.is_empty() {
        return Ok(());
    }
    let bytes = BitVolume::bytes(shape).saturating_mul(2);
    let mut memory = Mapped::<u8>::zeroed(budget, "thinning of a mask", bytes)?;
    let mut carver = Carver::new(&mut memory);
    let mut bits = BitVolume::read(&mask, shape, &mut carver);
    let mut candidates = BitVolume::new(shape, &mut carver);
    thin(&mut bits, &mut candidates, recheck, &Pool::or_single(threads));
    bits.write(skeleton);
    Ok(())
}

/// Thins a mask; `candidates` is scratch of the same shape.
pub(crate) fn thin(bits: &mut BitVolume<'_>, candidates: &mut BitVolume<'_>, recheck: Recheck, pool: &Pool) {
    let sides = if bits.shape()[0] == 1 { &SIDES[..SIDES_OF_IMAGE] } else { &SIDES[..] };
    loop {
        let mut any = false;
        for side in sides {
            find(bits, *side, candidates, pool);
            any |= delete(bits, candidates, recheck);
        }
        if !any {
            break;
        }
    }
}

/// Marks the candidates: border voxels of this side that may be removed.
fn find(bits: &BitVolume<'_>, side: Side, candidates: &mut BitVolume<'_>, pool: &Pool) {
    let [depth, height, width] = bits.shape();
    let words = words(width);
    let rows = (depth * height).div_ceil(pool.threads());
    pool.each(candidates.words_mut().chunks_mut(rows * words).enumerate(), |(part, candidates)| {
        for (at, to) in candidates.chunks_exact_mut(words).enumerate() {
            let at = part * rows + at;
            let (z, y) = (at / height, at % height);
            find_in_row(bits, z, y, side, to);
        }
    });
}

/// Marks the candidates of the row `y` of the plane `z`.
fn find_in_row(bits: &BitVolume<'_>, z: usize, y: usize, [dz, dy, dx]: Side, to: &mut [u64]) {
    let Some(own) = bits.row(z, y) else { return };
    let beside = bits.row(z.wrapping_add_signed(dz), y.wrapping_add_signed(dy));
    for (at, to) in to.iter_mut().enumerate() {
        let word = |at: usize| beside.and_then(|row| row.get(at)).copied().unwrap_or(0);
        let beside = match dx {
            1 => word(at) >> 1 | word(at + 1) << (WORD - 1),
            -1 => word(at) << 1 | if at > 0 { word(at - 1) >> (WORD - 1) } else { 0 },
            _ => word(at),
        };
        let mut border = own[at] & !beside;
        *to = 0;
        while border != 0 {
            let bit = border & border.wrapping_neg();
            border ^= bit;
            let x = at * WORD + bit.trailing_zeros() as usize;
            if around(bits, z, y, x).is_deletable() {
                *to |= bit;
            }
        }
    }
}

/// Removes the candidates that still may be, in order. Returns whether any was removed.
fn delete(bits: &mut BitVolume<'_>, candidates: &mut BitVolume<'_>, recheck: Recheck) -> bool {
    let [depth, height, width] = bits.shape();
    let words = words(width);
    let mut any = false;
    for z in 0..depth {
        for y in 0..height {
            for at in 0..words {
                let word = (z * height + y) * words + at;
                let mut rest = candidates.words_mut()[word];
                while rest != 0 {
                    let bit = rest & rest.wrapping_neg();
                    rest ^= bit;
                    let x = at * WORD + bit.trailing_zeros() as usize;
                    let cube = around(bits, z, y, x);
                    let may_go = match recheck {
                        Recheck::Topology => cube.keeps_euler_number() && cube.is_connected(),
                        Recheck::Connectivity => cube.is_connected(),
                    };
                    if may_go {
                        bits.words_mut()[word] ^= bit;
                        any = true;
                    }
                }
            }
        }
    }
    any
}

/// The neighbourhood of a voxel.
#[inline]
fn around(bits: &BitVolume<'_>, z: usize, y: usize, x: usize) -> Cube {
    let (at, shift) = (x / WORD, x % WORD);
    let three = |row: &[u64]| {
        let word = row[at];
        let left = if at > 0 { row[at - 1] >> (WORD - 1) } else { 0 };
        let right = row.get(at + 1).map_or(0, |next| next & 1);
        match shift {
            0 => (word << 1 | left) as u32,
            63 => (word >> 62 | right << 2) as u32,
            _ => (word >> (shift - 1)) as u32,
        }
    };
    Cube::new(std::array::from_fn(|row| {
        bits.row((z + row / 3).wrapping_sub(1), (y + row % 3).wrapping_sub(1)).map_or(0, three)
    }))
}
