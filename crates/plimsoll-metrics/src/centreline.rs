//! The centreline Dice of tubes.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{Recheck, skeletonize};

use crate::overlap::quotient;
use crate::{ClassMasks, MetricError};

/// clDice (Shit et al. 2021, doi:10.1109/CVPR46437.2021.01629): the harmonic mean of the share of the prediction's
/// skeleton that lies in the reference, and of the reference's that lies in the prediction. Skeletons come from
/// `skimage.morphology.skeletonize(method="lee")`, in images too.
///
/// NaN if both masks are empty or a skeleton is empty because scikit-image thins a solid away, as in the authors'
/// program; 0 if one mask is empty or no skeleton meets the other mask, where the authors' program divides zero by
/// zero.
///
/// Uses 1¼ bytes per voxel and up to 16 bytes per row from `budget`.
///
/// # Errors
/// Returns an error if the memory is not available.
pub fn cl_dice(masks: &ClassMasks, budget: &Budget, threads: usize) -> Result<f64, MetricError> {
    let mut bytes = Mapped::<u8>::zeroed(budget, "skeleton", masks.prediction().len())?;
    // The bytes are 0 or 1, so the cast cannot fail.
    let Ok(skeleton) = bytemuck::checked::try_cast_slice_mut::<u8, bool>(&mut bytes) else {
        return Ok(f64::NAN);
    };
    let mut share = |of: &[u8], within: &[u8]| -> Result<f64, MetricError> {
        skeletonize(of, masks.shape(), Recheck::Connectivity, skeleton, budget, threads)?;
        let (mut all, mut met) = (0, 0);
        for (_, voxel) in skeleton.iter().zip(within).filter(|(on, _)| **on) {
            all += 1;
            met += u64::from(*voxel);
        }
        Ok(quotient(met, all))
    };
    let [predicted, expected] = [masks.prediction(), masks.reference()].map(|mask| mask.contains(&1));
    if predicted != expected {
        return Ok(0.0);
    }
    let precision = share(masks.prediction(), masks.reference())?;
    let sensitivity = share(masks.reference(), masks.prediction())?;
    let sum = precision + sensitivity;
    Ok(if sum == 0.0 { 0.0 } else { 2.0 * precision * sensitivity / sum })
}
