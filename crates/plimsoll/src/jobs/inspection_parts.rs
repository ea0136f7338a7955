//! The parts of an inspection: each writes what it has read into the cache folder, and the last one to finish merges all parts into the
//! inspection that other commands find there.
//!
//! Parts stay until the inspection is written, so that a part can be repeated. Merging is a function of their files alone: of two parts that
//! finish at the same time both write the same inspection.

use std::path::Path;

use plimsoll_data::{Dataset, Inspection, InspectionScan, MergedParts, PartFiles};
use plimsoll_memory::Budget;
use plimsoll_run::CacheFolder;

use super::inspect::{config_of, folder_of};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::part::{CaseWork, Part, Share};

/// The folder of parts beside an inspection.
const PARTS: &str = "parts";

/// Inspects a part of the cases of a data set. Returns the inspection of all cases if all parts are finished, and reports which are not.
pub(super) fn inspect_part(
    dataset: &Dataset,
    part: Part,
    threads: usize,
    budget: &Budget,
    context: &Context,
) -> Outcome<Option<Inspection>> {
    let config = config_of(threads);
    let whole = folder_of(context.cache(), &dataset.folder).ok_or_else(|| {
        let message =
            format!("the parts of an inspection of {} meet in the cache folder", dataset.folder.display());
        Error::new(message, "set XDG_CACHE_HOME to a folder that all processes see")
    })?;
    if let Some(inspection) = Inspection::load_if_current(&whole, dataset, config, budget)? {
        context.note(format_args!("part {part}: the data set is inspected already"));
        return Ok(Some(inspection));
    }
    let folder = whole.join(PARTS);
    plimsoll_disk::create_dir_all(&folder).map_err(|error| Error::at_path(&folder, &error))?;
    let list: Vec<CaseWork<'_>> =
        dataset.cases.iter().map(|case| CaseWork { name: &case.id, work: bytes(case.files()) }).collect();
    let share = Share::new(part, &list);
    share.note(&list, context);
    let all = dataset.cases.iter().enumerate();
    let own: Vec<usize> = all.filter(|(_, case)| share.has(&case.id)).map(|(number, _)| number).collect();
    // Parts of another division have other names.
    let files = |part: Part| PartFiles::new(&folder, &part.file_stem());
    let points = context.cache().map(CacheFolder::points);
    let asked = context.stop.flag();
    {
        let progress = context.work("inspecting", own.len() as u64);
        let observe = |done: usize, _: usize| progress.set(done as u64, String::new());
        let scan =
            InspectionScan { dataset, config, indexes: points.as_ref(), asked, budget, observe: &observe };
        scan.write_part(&own, &files(part))?;
    }
    let mut missing = Vec::new();
    for part in part.all() {
        let path = files(part).lines().to_path_buf();
        if !plimsoll_disk::exists(&path).map_err(|error| Error::at_path(&path, &error))? {
            missing.push(part);
        }
    }
    let of = part.count();
    let merged = match missing.is_empty() {
        true => {
            let progress = context.work("merging parts", u64::from(of));
            let observe = |done: usize, _: usize| progress.set(done as u64, String::new());
            let scan = InspectionScan {
                dataset,
                config,
                indexes: points.as_ref(),
                asked,
                budget,
                observe: &observe,
            };
            Some(scan.merge(&part.all().map(files).collect::<Vec<_>>())?)
        }
        false => None,
    };
    let inspection = match merged {
        Some(MergedParts::Whole(inspection)) => *inspection,
        // Another process may have merged and removed the parts meanwhile.
        unfinished => {
            let found = Inspection::load_if_current(&whole, dataset, config, budget)?;
            if found.is_none() {
                let outdated = match unfinished {
                    Some(MergedParts::Outdated(places)) => places,
                    _ => Vec::new(),
                };
                report(part, &missing, &outdated, &folder, context);
            }
            return Ok(found);
        }
    };
    inspection.save(&whole, dataset)?;
    part.all().map(files).try_for_each(|files| files.remove())?;
    // A folder with files of others stays.
    let _ = plimsoll_disk::remove_folder(&folder);
    context.note(format_args!("all {of} parts are finished"));
    Ok(Some(inspection))
}

/// Reports parts that are missing, or that are outdated by their places.
fn report(part: Part, missing: &[Part], outdated: &[usize], folder: &Path, context: &Context) {
    let listed = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    let outdated: Vec<Part> =
        part.all().enumerate().filter(|(place, _)| outdated.contains(place)).map(|(_, part)| part).collect();
    if !outdated.is_empty() {
        context.warn(format_args!(
            "{}: part {} has read other files, or is damaged: repeat it",
            folder.display(),
            listed(&outdated)
        ));
    } else {
        let of = part.count();
        let finished = of as usize - missing.len();
        context.note(format_args!("{finished} of {of} parts are finished; missing: {}", listed(missing)));
    }
}

/// The bytes of files. A file that cannot be read has none here; its part reports it.
fn bytes<'a>(files: impl Iterator<Item = &'a Path>) -> u64 {
    let length = |path: &Path| plimsoll_disk::metadata(path).map_or(0, |metadata| metadata.len());
    files.map(length).fold(0, u64::saturating_add)
}
