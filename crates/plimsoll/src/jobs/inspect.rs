//! The inspection of a data set, which is kept for the next command.

use std::path::{Path, PathBuf};

use plimsoll_data::{Dataset, InspectConfig, Inspection, Severity};
use plimsoll_image::{DecodeOptions, ImageDataset, InspectOptions};
use plimsoll_memory::{Budget, Digest};
use plimsoll_run::cache_folder;

use crate::failure::{Failure, Outcome};
use crate::progress::Progress;

/// The seed of the samples of foreground voxels. It is no setting: the same data set has one fingerprint.
const INSPECTION_SEED: u64 = 0;

/// Inspects a data set, or takes what an earlier command found as long as no file has changed since.
pub fn inspect(dataset: &Dataset, threads: usize, budget: &Budget, quiet: bool) -> Outcome<Inspection> {
    let config = InspectConfig { threads, seed: INSPECTION_SEED };
    let kept = place(&dataset.folder);
    if let Some(folder) = &kept
        && let Some(inspection) = Inspection::load_if_current(folder, dataset, config, budget)?
    {
        return Ok(inspection);
    }
    let progress = Progress::new("inspecting", dataset.cases.len() as u64, quiet);
    let inspection =
        Inspection::run(dataset, config, budget, &|done, _| progress.set(done as u64, String::new()))?;
    progress.finish();
    if let Some(folder) = kept {
        // What cannot be kept is found again by the next command.
        let _ = plimsoll_disk::create_dir_all(&folder).map(|()| inspection.save(&folder, dataset));
    }
    Ok(inspection)
}

/// The file of what was found of images, in the folder of a data set in the cache.
const IMAGES: &str = "images.json";

/// Inspects images: reads all of them once, or takes what an earlier command found as long as nothing has changed since.
pub fn inspect_images(
    place: &Path,
    dataset: &ImageDataset,
    threads: usize,
    budget: &Budget,
    quiet: bool,
) -> Result<plimsoll_image::Inspection, Failure> {
    let options = InspectOptions { decode: DecodeOptions::default(), contents: true, threads };
    // Files that change from here on are read as they are by then, and found to be changed by the next command.
    let state = plimsoll_image::state_of(dataset, &options);
    let folder = self::place(place);
    let kept = match &folder {
        Some(folder) => {
            let path = folder.join(IMAGES);
            plimsoll_image::Inspection::load_if_current(&path, state, dataset.cases.len(), budget)?
        }
        None => None,
    };
    let found = match kept {
        Some(found) => found,
        None => {
            let progress = Progress::without_end("inspecting images", quiet);
            let found = plimsoll_image::inspect(dataset, &options, budget);
            progress.finish();
            let found = found.map_err(Failure::from)?;
            if let Some(folder) = folder {
                // What cannot be kept is found again by the next command.
                let _ = plimsoll_disk::create_dir_all(&folder)
                    .and_then(|()| found.save(&folder.join(IMAGES), state));
            }
            found
        }
    };
    if !quiet {
        let count = found.problems.iter().filter(|problem| !problem.kind.is_error()).count();
        if let Some(first) = found.problems.iter().find(|problem| !problem.kind.is_error()) {
            let more = if count > 1 {
                format!(" (and {} more; see `plimsoll inspect`)", count - 1)
            } else {
                String::new()
            };
            eprintln!("warning: {}: {first}{more}", place.display());
        }
    }
    Ok(found)
}

/// Where the inspection of a data set is kept; none where there is no place for it.
fn place(dataset: &Path) -> Option<PathBuf> {
    let absolute = dataset.canonicalize().ok()?;
    let key = Digest::of(absolute.to_string_lossy().as_bytes());
    Some(cache_folder()?.join("plimsoll").join("inspected").join(key.to_string()))
}

/// That no case has an error.
pub fn expect_sound(inspection: &Inspection) -> Outcome {
    let errors: Vec<_> =
        inspection.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let more = match errors.len() {
        1 => String::new(),
        count => format!(" (and {} more; see `plimsoll inspect`)", count - 1),
    };
    let hint = first.hint.clone().unwrap_or_else(|| "mend the case, or remove it".into());
    Err(Failure::new(format!("{first}{more}"), hint))
}
