//! The choice between slices and volumes, and the spacing and the number of slices.
//!
//! The rules for slices follow nnU-Net's 2d configuration: images are resampled in the plane alone, and a patch is one slice
//! across the depth of the canonical orientation.

use plimsoll_data::{Fingerprint, SpacingSetting, TargetSpacing};
use plimsoll_nn::ConfigError;
use plimsoll_volume::Spacing;

use crate::Settings;
use crate::bounds::listed;

/// nnU-Net's batch of slices, in pixels: 12 of 512². Its reference memory is that which two patches of 128³ take of volumes;
/// the patches of volumes here begin at an eighth of these, and so does this.
const STEP_PIXELS: f64 = 12.0 * 512.0 * 512.0 / 8.0;
/// The least batch of slices.
const LEAST_BATCH: usize = 2;
/// The most of a data set that a batch has.
const MOST_OF_ALL: f64 = 0.05;

/// The spacing that images are brought to: that which is set, or else nnU-Net's; in the plane alone where patches are slices.
///
/// # Errors
/// Returns an error if settings contradict each other.
pub(crate) fn target_spacing(
    settings: &Settings,
    fingerprint: &Fingerprint,
) -> Result<TargetSpacing, ConfigError> {
    let depth = settings.patch_size.map(|[depth, ..]| depth);
    let slices = match (settings.dimensions, depth, settings.spacing) {
        (Some(dimensions), ..) => dimensions == 2,
        (None, Some(depth), _) => depth == 1,
        (None, None, Some(SpacingSetting::To(spacing))) => spacing.is_of_slices(),
        (None, None, Some(SpacingSetting::Native) | None) => {
            fingerprint.cases.iter().all(|case| case.shape()[0] == 1)
        }
    };
    let refuse = |setting, found: String, expected: &str| {
        Err(ConfigError::Value { setting, found, expected: expected.into() })
    };
    if let Some(patch) = settings.patch_size.filter(|[depth, ..]| (*depth == 1) != slices) {
        let expected = match slices {
            true => "with `dimensions = 2` a patch is one slice: 1, height, width",
            false => "a patch of one slice is of `dimensions = 2`, not 3",
        };
        return refuse("patch_size", format!("{patch:?}"), expected);
    }
    let spacing = match settings.spacing {
        Some(SpacingSetting::Native) if slices => {
            return refuse(
                "spacing",
                "\"native\"".into(),
                "slices are resampled in their plane: two numbers, height and width",
            );
        }
        Some(SpacingSetting::Native) => return Ok(TargetSpacing::Native(fingerprint.median_spacing())),
        Some(SpacingSetting::To(spacing)) => Some(spacing),
        None => None,
    };
    if let Some(spacing) = spacing.filter(|spacing| spacing.is_of_slices() != slices) {
        let expected = match slices {
            true => {
                "slices have two numbers, height and width: each image keeps its own spacing from slice to slice"
            }
            false => "volumes have three numbers: depth, height, width",
        };
        return refuse("spacing", format!("[{}]", listed(spacing.lengths())), expected);
    }
    let Spacing([_, height, width]) = fingerprint.target_spacing;
    Ok(spacing.unwrap_or(match slices {
        true => TargetSpacing::InPlane([height, width]),
        false => fingerprint.target_spacing.into(),
    }))
}

/// The number of slices of a step: a fixed number of pixels, at most a twentieth of the data set, and at least two slices.
pub(crate) fn batch(fingerprint: &Fingerprint, [_, height, width]: [usize; 3]) -> usize {
    let slices: f64 = fingerprint.cases.iter().map(|case| case.shape()[0] as f64).sum();
    let [_, median_height, median_width] = fingerprint.median_shape;
    let of_patch = (height * width) as f64;
    let most = (MOST_OF_ALL * slices * median_height * median_width / of_patch).round();
    // The casts saturate, and the quotients are not negative.
    ((STEP_PIXELS / of_patch).round().min(most) as usize).max(LEAST_BATCH)
}
