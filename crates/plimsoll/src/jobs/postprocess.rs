//! Post-processing of existing label maps, and the choice of steps for a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{LengthUnit, SegmentNames, reserve_images};
use plimsoll_memory::{Bytes, resident};
use plimsoll_metrics::Summary;
use plimsoll_postprocess::{
    ChoiceTargets, Chosen, LabelGain, Pair, Postprocessing, Step, choose, make_orthogonal, process_file,
};
use plimsoll_report::preview::PREVIEW;
use plimsoll_run::{FoldName, RunFolder, Specification, read_json};
use plimsoll_volume::image_endings;
use serde::Serialize;

use super::memory_limit::MemoryLimit;
use super::steps::read_steps;
use crate::context::Context;
use crate::error::{Error, Outcome};

/// Label maps to do steps on.
pub struct PostprocessRequest {
    /// A label map, or a folder of them.
    pub input: PathBuf,
    /// The same.
    pub output: PathBuf,
    /// The change to make.
    pub change: Change,
    /// The unit of lengths in headers, whatever they state.
    pub unit: Option<LengthUnit>,
    /// Replaces existing files.
    pub overwrite: bool,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// Threads.
    pub threads: usize,
}

/// A change of label maps.
pub enum Change {
    /// The steps of this file.
    Steps(PathBuf),
    /// These steps.
    Given(Vec<Step>),
    /// Sheared grids become such at right angles.
    Orthogonal,
}

/// A label map that was changed.
#[derive(Serialize)]
pub struct Processed {
    /// The file that was written.
    pub file: PathBuf,
    /// Voxels that changed, counted step by step.
    pub changed_voxels: u64,
    /// `true` if it is on another grid now.
    pub resampled: bool,
}

/// The result for all label maps.
#[derive(Serialize)]
pub struct PostprocessingReport {
    /// The steps.
    pub steps: Vec<Step>,
    /// The files that were written.
    pub files: Vec<Processed>,
    /// Those that were there already.
    pub kept: Vec<PathBuf>,
    /// The most memory that was reserved.
    pub reserved_bytes: Bytes,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

/// Does steps on all label maps of the input, one after the other.
pub fn postprocess(request: &PostprocessRequest, context: &Context) -> Outcome<PostprocessingReport> {
    let memory = MemoryLimit::set(request.ram, request.threads, context)?;
    let steps = match &request.change {
        Change::Steps(file) => read_steps(file, &memory.budget)?,
        Change::Given(steps) => steps.clone(),
        Change::Orthogonal => Vec::new(),
    };
    let _names = reserve_images(&request.input, &memory.budget)?;
    let pairs = files(&request.input, &request.output)?;
    for (from, to) in &pairs {
        // A path without a file is another file.
        if let (Ok(one), Ok(other)) = (from.canonicalize(), to.canonicalize())
            && one == other
        {
            let message = format!("{} would be replaced by its own result", from.display());
            return Err(Error::new(message, "write to another place with ‹output›"));
        }
    }
    if let Some(folder) = match request.input.is_dir() {
        true => Some(request.output.as_path()),
        false => request.output.parent().filter(|parent| !parent.as_os_str().is_empty()),
    } {
        plimsoll_disk::create_dir_all(folder).map_err(|error| Error::at_path(folder, &error))?;
        plimsoll_disk::atomic::sweep(folder).map_err(|error| Error::at_path(folder, &error))?;
    }
    let unit = request.unit.map(LengthUnit::millimetres);
    let progress = context.work("processing", pairs.len() as u64);
    let (mut files, mut kept) = (Vec::new(), Vec::new());
    for (done, (from, to)) in (1..).zip(pairs) {
        if to.exists() && !request.overwrite {
            kept.push(to);
        } else {
            let (changed_voxels, resampled) = match &request.change {
                Change::Steps(_) | Change::Given(_) => {
                    (process_file(&from, &to, &steps, unit, &memory.budget, request.threads)?, false)
                }
                Change::Orthogonal => (0, make_orthogonal(&from, &to, &memory.budget)?),
            };
            files.push(Processed { file: to, changed_voxels, resampled });
        }
        progress.set(done, String::new());
    }
    drop(progress);
    let reserved_bytes = memory.budget.peak();
    Ok(PostprocessingReport { steps, files, kept, reserved_bytes, peak_rss_bytes: resident()?.peak })
}

/// Each label map of the input, and where it is written.
fn files(input: &Path, output: &Path) -> Outcome<Vec<(PathBuf, PathBuf)>> {
    let metadata = plimsoll_disk::metadata(input).map_err(|error| Error::at_path(input, &error))?;
    if !metadata.is_dir() {
        if output.is_dir() {
            let message =
                format!("{} is a folder, but {} is one label map", output.display(), input.display());
            return Err(Error::new(message, "name the file that is written with ‹output›"));
        }
        return Ok(vec![(input.into(), output.into())]);
    }
    if output.is_file() {
        let message = format!("{} is a file, but {} is a folder", output.display(), input.display());
        return Err(Error::new(message, "name a folder with ‹output›"));
    }
    let is_map = |path: &&PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        // Probabilities lie beside label maps, which are not written as archives of arrays.
        let mut endings = image_endings().filter(|ending| *ending != ".npz");
        let is_image = name.is_some_and(|name| endings.any(|ending| name.ends_with(ending)));
        let is_preview = path.to_string_lossy().ends_with(PREVIEW);
        path.is_file() && !is_preview && is_image
    };
    // Their names are reserved.
    let all: Result<Vec<PathBuf>, _> = plimsoll_disk::entries(input).and_then(Iterator::collect);
    let mut all = all.map_err(|error| Error::at_path(input, &error))?;
    all.sort();
    let pairs: Vec<(PathBuf, PathBuf)> = all
        .iter()
        .filter(is_map)
        .filter_map(|from| Some((from.clone(), output.join(from.file_name()?))))
        .collect();
    match pairs.is_empty() {
        true => {
            let message = format!("{} has no label maps", input.display());
            Err(Error::new(message, "label maps end in .nii.gz, .nii, .nrrd, .mha or .png"))
        }
        false => Ok(pairs),
    }
}

/// The steps that were chosen for a run.
#[derive(Serialize)]
pub struct ChoiceReport {
    /// The file of the steps.
    pub file: PathBuf,
    #[serde(flatten)]
    /// The steps that help.
    pub postprocessing: Postprocessing,
    /// The names of labels by their values, or of regions by their numbers.
    pub names: BTreeMap<u16, String>,
    /// The most memory that was reserved.
    pub reserved_bytes: Bytes,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
}

impl ChoiceReport {
    /// The effect of the steps on each label, with its name.
    pub fn gains(&self) -> impl Iterator<Item = (&str, &LabelGain)> {
        let labels = self.postprocessing.chosen.iter().flat_map(|chosen| &chosen.labels);
        labels.filter_map(|gain| Some((self.names.get(&gain.label)?.as_str(), gain)))
    }
}

/// The longest summary that is read; one of a hundred thousand cases is shorter.
const LONGEST: u64 = 256 << 20;

/// Chooses steps for a run by the predictions of its folds' validation cases, and writes them into it. `unit` is what lengths in their
/// headers are in, whatever headers say.
pub fn choose_postprocessing(
    run: &Path,
    unit: Option<LengthUnit>,
    ram: Option<Bytes>,
    threads: usize,
    context: &Context,
) -> Outcome<ChoiceReport> {
    let millimetres_per_unit = unit.map(LengthUnit::millimetres);
    let run = RunFolder::new(run);
    let train = format!("‹job train … +out={} +resume› validates trained folds", run.path().display());
    let folds: Vec<_> = run.folds()?.into_iter().filter(|fold| fold.name() != FoldName::All).collect();
    let Some(first) = folds.first() else {
        let message = format!("{} has no folds with held-out validation cases", run.path().display());
        return Err(Error::new(message, "name the folder of a run with ‹fold=0›, 1, …, not of one fold"));
    };
    let task = Specification::read(first)?.config.task;
    let in_data = &task.segmentation()?.dataset.labels;
    let ignore = in_data.ignore().map(u16::from);
    let names: BTreeMap<u16, String> =
        (0..).zip(in_data.scored_names()).filter(|(label, _)| *label != 0).collect();
    let mut pairs = Vec::new();
    let mut segment_names = SegmentNames::default();
    for fold in &folds {
        let folder = fold.validation();
        let summary = folder.join("summary.json");
        if !summary.is_file() {
            let message = format!("fold {} is not validated: {} is missing", fold.name(), summary.display());
            return Err(Error::new(message, train));
        }
        for case in read_json::<Summary>(&summary, LONGEST)?.metric_per_case {
            // The run may have been moved since.
            let own = case.prediction_file.file_name().map(|name| folder.join(name));
            let prediction = own.unwrap_or(case.prediction_file);
            let reference = case.reference_file;
            let segments = segment_names.read(&reference)?;
            let reference_values = in_data.reference_values(segments.as_deref()).map(Arc::new);
            pairs.push(Pair { prediction, reference, reference_values, millimetres_per_unit });
        }
    }
    let memory = MemoryLimit::set(ram, threads, context)?;
    let regions = in_data.scored_regions();
    let wide = |region: &Vec<u8>| region.iter().copied().map(u16::from).collect();
    let targets = match regions.is_empty() {
        true => ChoiceTargets::Labels(names.keys().copied().collect()),
        false => ChoiceTargets::Regions(regions.iter().map(wide).collect()),
    };
    let rounds = (targets.rounds() * pairs.len()) as u64;
    let progress = context.work("trying steps on cases", rounds);
    let chosen = choose(&pairs, &targets, ignore, &memory.budget, threads, &mut |done, _| {
        progress.set(done as u64, String::new());
    });
    drop(progress);
    let chosen = chosen?;
    let folds = folds.iter().map(|fold| fold.name().to_string()).collect();
    let postprocessing = Postprocessing {
        chosen: Some(Chosen { cases: pairs.len(), folds, labels: chosen.labels }),
        steps: chosen.steps,
    };
    let file = run.postprocessing();
    postprocessing.write(&file)?;
    let (reserved_bytes, peak_rss_bytes) = (memory.budget.peak(), resident()?.peak);
    Ok(ChoiceReport { file, postprocessing, names, reserved_bytes, peak_rss_bytes })
}
