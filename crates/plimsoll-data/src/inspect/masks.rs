//! The masks of a data set: of each case the voxels where any channel is not zero, with the holes among them, and those that have a
//! label (`crop_to_nonzero` of nnU-Net). They are found in a second pass over the images, of data sets that are normalised inside of
//! them: of all others nothing more than before is read or held.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_volume::VolumeFile;

use crate::dataset::{Case, Dataset};
use crate::inspect::InspectError;
use crate::inspect::threads::on_threads;
use crate::mask::{Mask, MaskRuns, OUTSIDE};
use crate::prepare::{PrepareError, Survey};
use crate::{CaseFingerprint, CaseSource, Fingerprint, Intensity, Labels, Normalisation, VolumeCache};

/// Returns `true` if a data set is normalised inside masks by nnU-Net's rule: a channel's normalisation allows
/// it, and cropping to the voxels that are not zero leaves less than three quarters of the median image. A
/// label equal to [`OUTSIDE`] excludes masks.
pub(crate) fn are_used(dataset: &Dataset, fingerprint: &Fingerprint) -> bool {
    let z_score =
        |normalisation| matches!(normalisation, Normalisation::ZScore | Normalisation::ZScoreInMask);
    fingerprint.median_relative_size_after_cropping < 0.75
        && dataset.channels.iter().any(|channel| z_score(channel.normalisation))
        && leave_room(&dataset.labels)
}

fn leave_room(labels: &Labels) -> bool {
    !labels.contains(OUTSIDE)
}

/// The mask of a case.
#[derive(Clone)]
struct FoundMask {
    runs: Arc<MaskRuns>,
    /// The number of voxels inside it.
    voxels: u64,
    /// The bytes that finding it reserved.
    needed: Bytes,
}

/// Finds the masks of the cases of a fingerprint, in its order, which then knows how many voxels each has. Returns also the most memory
/// that finding one takes.
///
/// # Errors
/// If a file cannot be read any more, the budget has no room, or a thread cannot be started.
pub(crate) fn find(
    dataset: &Dataset,
    fingerprint: &mut Fingerprint,
    threads: usize,
    budget: &Budget,
    observe: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Vec<Arc<MaskRuns>>, Bytes), InspectError> {
    let count = fingerprint.cases.len();
    let (next, done, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let found: Mutex<Vec<Option<FoundMask>>> = Mutex::new(vec![None; count]);
    let cases = &fingerprint.cases;
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(of_case) = cases.get(number) else { break };
            let mask = dataset
                .cases
                .iter()
                .find(|case| case.id == of_case.id)
                .ok_or(InspectError::ThreadLost)
                .and_then(|case| find_in_case(case, of_case, budget, &stop));
            match mask {
                Ok(mask) => {
                    found.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(mask);
                    observe(done.fetch_add(1, Ordering::Relaxed) + 1, count);
                }
                // Another thread has found the fault and reports it.
                Err(InspectError::Stopped) => break,
                Err(problem) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(problem);
                }
            }
        }
        Ok(())
    };
    on_threads("masks", threads.clamp(1, count.max(1)), &stop, work)?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut masks = Vec::with_capacity(count);
    let mut largest = Bytes::ZERO;
    for (case, mask) in fingerprint.cases.iter_mut().zip(found) {
        let FoundMask { runs, voxels, needed } = mask.ok_or(InspectError::ThreadLost)?;
        case.mask_voxels = Some(voxels);
        largest = largest.max(needed);
        masks.push(runs);
    }
    Ok((masks, largest))
}

/// Finds the mask of a case.
fn find_in_case(
    case: &Case,
    found: &CaseFingerprint,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<FoundMask, InspectError> {
    let covered = found.nonzero_box;
    let mask = Mask::bytes(covered)?;
    let files = VolumeFile::OPEN_BYTES.0 * case.files().count() as u64;
    let most = MaskRuns::most(covered)?;
    // Holes are filled with a second bit for each voxel.
    let bytes = mask + mask + Survey::bytes(covered)? + Bytes(files) + found.decoding_bytes;
    let refused = |problem: MapError| InspectError::Case { case: case.id.clone(), problem };
    let needed = bytes + most;
    let mut memory = budget.reserve_in_turn("masks", needed).map_err(|problem| refused(problem.into()))?;
    // Runs are taken from it, so that no other thread can have what they need by then.
    let room = memory.split_off(most);
    let memory = memory.into_budget();
    let mask = || -> Result<Mask, PrepareError> {
        let cache = VolumeCache::new(Budget::new(Bytes::ZERO));
        let decoding = memory.part("decoding", found.decoding_bytes).map_err(MapError::from)?;
        let cache = cache.decoding_within(decoding);
        let unchanged = vec![Intensity::UNCHANGED; case.images.len()];
        let mut source = CaseSource::open_unless(case, &unchanged, true, &cache, stop)?;
        let mut survey = Survey::new(covered, None, &memory)?;
        let mut mask = survey.mask(&mut source, &memory, stop)?;
        if let Some(labels) = source.label_map() {
            survey.add_labels(&mut mask, labels, stop)?;
        }
        Ok(mask)
    };
    let mask = mask().map_err(|problem| match problem {
        PrepareError::Stopped => InspectError::Stopped,
        problem => InspectError::Mask { case: case.id.clone(), source: Box::new(problem) },
    })?;
    let runs = MaskRuns::encode(&mask, room).map_err(refused)?;
    Ok(FoundMask { runs: Arc::new(runs), voxels: mask.voxels(), needed })
}
