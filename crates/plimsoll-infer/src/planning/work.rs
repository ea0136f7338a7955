//! The planned work of a case, from its headers alone and without a predictor: the measure by which cases are divided among processes.

use plimsoll_models::SegmentationModel;
use plimsoll_volume::VoxelBox;

use crate::cases::case_windows::{CaseImages, CasePlace};
use crate::cases::headers::Headers;
use crate::located::steps_of;
use crate::summing::rows::{Rows, slices_of};
use crate::{CaseRequest, InferError};

/// Returns the planned work of a case in voxels: those that pass through the network of each fold, and those that are read and labelled.
/// `step` is the distance of windows as a share of a window. It does not depend on the machine.
///
/// # Errors
/// Returns an error if a header cannot be read, or the spacing cannot be meant.
pub fn planned_work(
    model: &SegmentationModel,
    request: &CaseRequest<'_>,
    step: f64,
) -> Result<u64, InferError> {
    let CaseRequest { case, earlier, within, .. } = *request;
    let headers = Headers::read(case, earlier)?;
    let headers = headers.ok_or_else(|| InferError::Unreadable { case: case.id.clone() })?;
    let stored = headers.geometry.voxel_count() as u64;
    if let Some(steps) = steps_of(&model.preparation) {
        let voxels = [steps.coarse, steps.fine].map(|[d, h, w]| (d * h * w) as u64);
        return Ok(voxels.into_iter().fold(stored, u64::saturating_add));
    }
    let images = CaseImages {
        case,
        geometry: &headers.geometry,
        stated: headers.stated,
        nonzero_box: VoxelBox::whole(headers.geometry.shape()),
        earlier,
        within,
        spacing: None,
    };
    let place = CasePlace::new(model, images)?;
    let slab_axis = slices_of(&place.uncut_grid(images)?, model.patch);
    let windows = Rows::for_model(place.largest_grid(), model, step, slab_axis).windows();
    let patch = model.patch.iter().fold(1, |voxels: u64, extent| voxels.saturating_mul(*extent as u64));
    let passes = (windows as u64).saturating_mul(model.weights.len() as u64);
    Ok(passes.saturating_mul(patch).saturating_add(stored))
}
