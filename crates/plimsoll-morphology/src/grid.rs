//! Checks of shapes and spacings.

use crate::MorphologyError;

/// The voxels of a shape.
///
/// # Errors
/// Returns an error if their number does not fit the address space.
pub(crate) fn voxels(shape: [usize; 3]) -> Result<usize, MorphologyError> {
    let [depth, height, width] = shape;
    depth
        .checked_mul(height)
        .and_then(|area| area.checked_mul(width))
        .filter(|voxels| *voxels <= isize::MAX as usize / 16)
        .ok_or(MorphologyError::TooLarge { shape })
}

/// Checks that a buffer has one element per voxel.
///
/// # Errors
/// Returns an error if its length differs.
pub(crate) fn check_length(
    buffer: &'static str,
    found: usize,
    shape: [usize; 3],
) -> Result<(), MorphologyError> {
    let needed = voxels(shape)?;
    if found == needed { Ok(()) } else { Err(MorphologyError::Length { buffer, found, needed, shape }) }
}

/// Checks that 32 bits can number all voxels, with one value to spare.
///
/// # Errors
/// Returns an error if there are too many.
pub(crate) fn check_numbered(shape: [usize; 3]) -> Result<(), MorphologyError> {
    let voxels = voxels(shape)?;
    if voxels < u32::MAX as usize { Ok(()) } else { Err(MorphologyError::TooManyVoxels { voxels, shape }) }
}

/// Checks that a spacing is positive and finite, and that all squared distances of the grid are within the range of
/// `f32`.
///
/// # Errors
/// Returns an error if it is not.
pub fn check_spacing(shape: [usize; 3], spacing: [f64; 3]) -> Result<(), MorphologyError> {
    let in_range =
        |square: f64| square >= f64::from(f32::MIN_POSITIVE) && square <= f64::from(f32::MAX) / 4.0;
    let good = |(length, step): (usize, f64)| {
        let extent = step * length.max(1) as f64;
        step > 0.0 && in_range(step * step) && in_range(extent * extent)
    };
    if shape.into_iter().zip(spacing).all(good) { Ok(()) } else { Err(MorphologyError::Spacing { spacing }) }
}
