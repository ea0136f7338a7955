//! The inspection of a data set, which is kept for the next command.

use std::path::{Path, PathBuf};

use plimsoll_data::pictures::{ImageDataset, InspectOptions};
use plimsoll_data::{Dataset, FoundData, InspectConfig, Inspection, LabelCensus, Severity};
use plimsoll_disk::atomic;
use plimsoll_memory::{Budget, Digest};
use plimsoll_run::{CacheFolder, ImageSettings};

use crate::context::Context;
use crate::error::{Error, Outcome};

/// The seed of the samples of foreground voxels. It is no setting: the same data set has one fingerprint.
const INSPECTION_SEED: u64 = 0;

/// The settings of an inspection by some threads.
pub(super) fn config_of(threads: usize) -> InspectConfig {
    InspectConfig { threads, seed: INSPECTION_SEED }
}

/// Inspects a data set, or takes what an earlier command found as long as no file has changed since.
pub fn inspect(dataset: &Dataset, threads: usize, budget: &Budget, context: &Context) -> Outcome<Inspection> {
    let config = config_of(threads);
    let kept = folder_of(context.cache(), &dataset.folder);
    if let Some(folder) = &kept
        && let Some(inspection) = Inspection::load_if_current(folder, dataset, config, budget)?
    {
        return Ok(inspection);
    }
    let progress = context.work("inspecting", dataset.cases.len() as u64);
    let observe = |done: usize, _: usize| progress.set(done as u64, String::new());
    let inspection = {
        let points = context.cache().map(CacheFolder::points);
        Inspection::run_indexing(dataset, config, points.as_ref(), context.stop.flag(), budget, &observe)?
    };
    drop(progress);
    if let Some(folder) = kept {
        // If the inspection cannot be cached, the next command repeats it.
        let _ = plimsoll_disk::create_dir_all(&folder).map(|()| inspection.save(&folder, dataset));
    }
    Ok(inspection)
}

/// The file of the values of label maps, in the folder of a data set in the cache.
const VALUES: &str = "label_values.json";

/// The longest cached file that is read; one of a hundred thousand cases is shorter.
const LONGEST: u64 = 64 << 20;

/// The values of all label maps: reads them once, or takes what an earlier command found as long as no file has changed since.
pub fn census(found: &FoundData, threads: usize, budget: &Budget, context: &Context) -> Outcome<LabelCensus> {
    let kept = folder_of(context.cache(), &found.folder);
    if let Some(folder) = &kept
        && let Some(census) = kept_census(&folder.join(VALUES), budget)?
        && census.is_current(found)
    {
        return Ok(census);
    }
    let progress = context.work("reading label maps", found.cases.len() as u64);
    let census = LabelCensus::take(found, threads, budget, &|done| progress.set(done as u64, String::new()));
    drop(progress);
    let census = census?;
    if let Some(folder) = kept {
        // If the values cannot be cached, the next command reads them again.
        let _ = plimsoll_disk::create_dir_all(&folder).and_then(|()| {
            atomic::write(&folder.join(VALUES), |file| Ok(serde_json::to_writer(file, &census)?))
        });
    }
    Ok(census)
}

/// Reads the label values that an earlier command cached, within a reservation; `None` if the file is missing or unreadable.
fn kept_census(path: &Path, budget: &Budget) -> Outcome<Option<LabelCensus>> {
    let Ok(length) = plimsoll_disk::metadata(path).map(|metadata| metadata.len()) else { return Ok(None) };
    if length > LONGEST {
        return Ok(None);
    }
    let _held = budget.reserve("label values", LabelCensus::loading_bytes(length))?;
    let Ok(bytes) = plimsoll_disk::read(path, length) else { return Ok(None) };
    Ok(serde_json::from_slice(&bytes).ok())
}

/// The file of what was found of images, in the folder of a data set in the cache.
const IMAGES: &str = "images.json";

/// Inspects images as settings say that the network sees them, or takes what an earlier command found as long as nothing has changed
/// since.
pub fn inspect_images(
    place: &Path,
    dataset: &ImageDataset,
    images: &ImageSettings,
    threads: usize,
    budget: &Budget,
    context: &Context,
) -> Result<plimsoll_data::pictures::Inspection, Error> {
    let decode = images.pipeline(None).decode;
    let options = InspectOptions { decode, channels: images.channels(), contents: true, threads };
    // Files that change from here on are read as they are by then, and found to be changed by the next command.
    let state = plimsoll_data::pictures::state_of(dataset, &options);
    let folder = folder_of(context.cache(), place);
    let kept = match &folder {
        Some(folder) => {
            let path = folder.join(IMAGES);
            plimsoll_data::pictures::Inspection::load_if_current(&path, state, dataset.cases.len(), budget)?
        }
        None => None,
    };
    let found = match kept {
        Some(found) => found,
        None => {
            let progress = context.work_without_end("inspecting images");
            let found = plimsoll_data::pictures::inspect(dataset, &options, budget);
            drop(progress);
            let found = found.map_err(Error::from)?;
            if let Some(folder) = folder {
                // If the inspection cannot be cached, the next command repeats it.
                let _ = plimsoll_disk::create_dir_all(&folder)
                    .and_then(|()| found.save(&folder.join(IMAGES), state));
            }
            found
        }
    };
    if let Some(range) = found.range_16_bit {
        context.note(format_args!("16-bit samples: {range} become 0 to 255"));
    }
    let count = found.problems.iter().filter(|problem| !problem.kind.is_error()).count();
    if let Some(first) = found.problems.iter().find(|problem| !problem.kind.is_error()) {
        let more = if count > 1 {
            format!(" (and {} more; see ‹job inspect›)", count - 1)
        } else {
            String::new()
        };
        context.warn(format_args!("{}: {first}{more}", place.display()));
    }
    Ok(found)
}

/// The folder of the inspection of a data set; `None` without a cache folder.
pub(super) fn folder_of(cache: Option<&CacheFolder>, dataset: &Path) -> Option<PathBuf> {
    let cache = cache?;
    let absolute = dataset.canonicalize().ok()?;
    let key = Digest::compute(absolute.to_string_lossy().as_bytes());
    Some(cache.inspection(&key.to_string()))
}

/// Checks that no case has an error.
pub fn expect_sound(inspection: &Inspection) -> Outcome {
    let errors: Vec<_> =
        inspection.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let more = match errors.len() {
        1 => String::new(),
        count => format!(" (and {} more; see ‹job inspect›)", count - 1),
    };
    let hint = first.hint.clone().unwrap_or_else(|| "repair the case, or remove it".into());
    Err(Error::new(format!("{first}{more}"), hint))
}
