//! The division of a folder's images among processes.

use plimsoll_data::Case;
use plimsoll_volume::VolumeFile;

use super::input::Input;
use crate::context::Context;
use crate::part::{CaseWork, Part, Share};

/// The images of a part. Networks see images at a fixed spacing, so that their work follows the volume in mm³; reading and writing
/// follow the voxels.
pub(super) fn share(part: Part, input: &Input, context: &Context) -> Share {
    // An unreadable image takes no time; its prediction reports it.
    let work = |case: &Case| {
        let file = case.image_files().next().and_then(|image| VolumeFile::open(image).ok());
        let geometry = file.as_ref().map(VolumeFile::geometry);
        geometry.map_or(0, |geometry| {
            let voxels = geometry.voxel_count() as u64;
            let volume = voxels as f64 * geometry.spacing().0.iter().product::<f64>();
            voxels.saturating_add(volume as u64)
        })
    };
    let refused = input.refused.iter().map(|image| CaseWork { name: &image.case, work: 0 });
    let cases = input.cases.iter().map(|case| CaseWork { name: &case.id, work: work(case) });
    let list: Vec<CaseWork<'_>> = refused.chain(cases).collect();
    let share = Share::new(part, &list);
    share.note(&list, context);
    share
}
