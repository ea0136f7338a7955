//! Dilated skeletons.

use plimsoll_parallel::Pool;

use crate::bits::BitVolume;
use crate::carve::{Carver, LINE};
use crate::erode::grow;
use crate::grid::check_length;
use crate::thin::thin;
use crate::{Connectivity, Label, MorphologyError, Recheck};

/// The bytes of `scratch` that [`tubed_skeleton`] needs for a mask of `shape`.
pub fn tube_scratch_bytes(shape: [usize; 3]) -> usize {
    BitVolume::bytes(shape).saturating_mul(2).saturating_add(LINE)
}

/// The skeleton of a mask of `shape` (depth, height, width), as by [`skeletonize`](crate::skeletonize), dilated
/// `radius` times by the neighbours that share a face, as by [`dilate`](crate::dilate): 1 in the tube, 0 elsewhere. The
/// tube may extend beyond the mask. Runs on the calling thread and does not allocate.
///
/// # Errors
/// Returns an error if a length does not fit the shape, or the scratch is too small.
pub fn tubed_skeleton<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    recheck: Recheck,
    radius: usize,
    tube: &mut [u8],
    scratch: &mut [u8],
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the tube", tube.len(), shape)?;
    let (found, needed) = (scratch.len(), tube_scratch_bytes(shape));
    if found < needed {
        return Err(MorphologyError::Scratch { found, needed });
    }
    if mask.is_empty() {
        return Ok(());
    }
    let mut carver = Carver::new(scratch);
    let mut bits = BitVolume::read(&mask, shape, &mut carver);
    let mut other = BitVolume::new(shape, &mut carver);
    let pool = Pool::single();
    thin(&mut bits, &mut other, recheck, &pool);
    grow(&mut bits, &mut other, Connectivity::Faces, radius, &pool);
    bits.write(tube);
    Ok(())
}
