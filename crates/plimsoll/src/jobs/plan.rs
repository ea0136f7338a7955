//! From a data set and settings to a planned run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Fold, FoldsNeeds};
use plimsoll_memory::Bytes;
use plimsoll_nn::RankPlace;
use plimsoll_plan::{Backend, Plans};
use plimsoll_run::{
    CacheFolder, ImageSource, Machine, PatchCost, Precision, PresetPlan, RunConfig, RunPlan, Settings, Task,
};
use plimsoll_train::{
    Concession, DataFacts, PlannedRun, Planning, PlanningStep, RunData, TrainError, largest_patch,
    patch_costs, plan_run_allowing,
};

use super::listed::{InspectedData, Inspecting, Listed, Opening};
use super::memory_limit::{MemoryLimit, driver_bytes};
use super::start::OpenedStart;
use crate::backend::{DeviceName, default_threads};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// The file of settings in the working folder, which is read if it exists.
pub const SETTINGS_FILE: &str = "plimsoll.toml";

/// The longest file of settings that is read: twice what all of them take with their comments. Of a text with many mistakes, the
/// parser may take up to a kibibyte for each byte.
const LONGEST: u64 = 32 << 10;

/// The largest difference of the logarithms of the voxels of two patches of about the same size.
const NEAR: f64 = 0.3;

/// A run to plan: its data set, its settings and its share of the machine.
#[derive(Clone)]
pub struct PlanRequest {
    /// The folder of the data set.
    pub dataset: PathBuf,
    /// The settings; unset ones follow from the data set.
    pub settings: Settings,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// Threads of kernels.
    pub threads: usize,
    /// Threads that make batches.
    pub loader_threads: Option<usize>,
    /// Leaves cases with an error out.
    pub skip_bad_cases: bool,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
    /// The changes that planning may make so that the run fits.
    pub allowed: Vec<Concession>,
    /// A model whose patch, spacing, network and normalisation are taken, where settings do not say otherwise: its weights are to be
    /// trained on.
    pub plans_from: Option<RunConfig>,
    /// The trained weights that the run starts from; `None` for random ones.
    pub start: Option<OpenedStart>,
    /// Allows lists to name files outside the data set's folder.
    pub allow_outside: bool,
}

/// A data set under a limit, before anything is planned.
pub struct Opened {
    /// The data set.
    pub data: RunData,
    /// Its name.
    pub name: String,
    /// The share of the machine.
    pub machine: Machine,
    /// The place of this process among those that train together.
    pub place: RankPlace,
    /// Code that the run maps only when it begins, like the plugins of its MPI library.
    pub later_code: Bytes,
    /// The memory limit.
    pub memory: MemoryLimit,
    /// Plans of runs on it, which others of the same shape share.
    pub plans: Plans,
    /// A line about each case that was left out.
    pub skipped: Vec<String>,
    /// The memory of the folds that are trained.
    pub folds: FoldsNeeds,
    /// The folder of files that can be computed again.
    pub cache: Option<CacheFolder>,
}

impl Opened {
    /// The surroundings of planning, with an observer.
    fn planning<'a>(&'a self, observer: &'a (dyn Fn(PlanningStep) + 'a)) -> Planning<'a> {
        let (place, later_code) = (self.place, self.later_code);
        Planning { plans: &self.plans, observer, place, later_code, cache: self.cache.as_ref() }
    }

    /// The facts about the data that the plan of a run depends on.
    pub fn facts(&self, config: &RunConfig, fold: &Fold) -> Outcome<DataFacts> {
        let facts = self.data.facts(config, fold)?;
        Ok(DataFacts { index: facts.index + self.folds.held, ..facts })
    }
}

impl PlanRequest {
    /// A run on the processor with all cores, with the settings that follow from the data set, under the limit that the machine leaves.
    ///
    /// # Errors
    /// Returns an error if the processor's threads cannot be started.
    pub fn new(dataset: impl Into<PathBuf>) -> Outcome<PlanRequest> {
        let threads = default_threads();
        Ok(PlanRequest {
            dataset: dataset.into(),
            settings: Settings::default(),
            ram: None,
            threads,
            loader_threads: None,
            skip_bad_cases: false,
            backend: DeviceName::Cpu.open(threads, None)?,
            allowed: Vec::new(),
            plans_from: None,
            start: None,
            allow_outside: false,
        })
    }

    /// The share of the machine under a memory limit.
    fn machine(&self, limit: Bytes) -> Machine {
        let loader_threads = self.loader_threads.unwrap_or(1 + self.threads / 8);
        Machine { limit, threads: self.threads, loader_threads }
    }

    /// Sets the memory limit.
    pub fn set_limit(&self, context: &Context) -> Outcome<MemoryLimit> {
        MemoryLimit::set_beside(self.ram, self.threads, driver_bytes(&*self.backend), context)
    }

    /// Opens the data set, whose description alone is read.
    pub fn open_dataset(&self, memory: &MemoryLimit, context: &Context) -> Outcome<Listed> {
        let opening = Opening {
            settings: &self.settings,
            allow_outside: self.allow_outside,
            threads: self.threads,
            context,
        };
        let listed = Listed::open(&self.dataset, &opening, &memory.budget)?;
        if let Listed::Volumes(dataset) = &listed {
            context.note(format_args!("layout: {}, {} cases", dataset.layout, dataset.cases.len()));
        }
        for warning in listed.warnings() {
            context.warn(warning);
        }
        if let Some(start) = &self.start {
            start.report(context);
        }
        Ok(listed)
    }

    /// Inspects the data set.
    pub fn inspect(&self, listed: Listed, memory: MemoryLimit, context: &Context) -> Outcome<Opened> {
        let machine = self.machine(memory.limits.limit);
        let inspecting = Inspecting {
            threads: machine.threads,
            skip_bad_cases: self.skip_bad_cases,
            images: &self.settings.images.clone().unwrap_or_default(),
        };
        let found = listed.inspect(&inspecting, &memory.budget, context)?;
        let InspectedData { name, data, skipped } = found;
        for skipped in &skipped {
            context.warn(skipped);
        }
        Ok(Opened {
            data,
            name,
            machine,
            place: RankPlace::ALONE,
            later_code: Bytes::ZERO,
            memory,
            plans: Plans::default(),
            skipped,
            folds: FoldsNeeds::default(),
            cache: context.cache().cloned(),
        })
    }

    /// The same settings, with a precision: where none is set, the usual one of the device.
    fn with_precision(&self, settings: &Settings) -> Settings {
        let usual = || Precision::usual(self.backend.usual_storage());
        Settings { precision: Some(settings.precision.unwrap_or_else(usual)), ..settings.clone() }
    }

    /// Completes settings with what follows from the data set, or from the model whose plans are taken. Where no patch is set, it is the
    /// largest of nnU-Net's sequence up to its reference that fits what the run is given of the machine.
    pub fn resolve(
        &self,
        settings: &Settings,
        opened: &Opened,
        fold: &Fold,
        machine: Machine,
    ) -> Outcome<RunConfig> {
        let settings = &self.with_precision(settings);
        let mut config = match &opened.data {
            RunData::Volumes { dataset, inspection } => {
                let fingerprint = inspection.fingerprint.as_ref().ok_or_else(|| {
                    let message = format!("{} has no case to train on", dataset.folder.display());
                    Error::new(message, "images belong in imagesTr, and their labels in labelsTr")
                })?;
                let resolved = |patch| RunConfig::resolve_with(settings, patch, dataset, fingerprint);
                // A preset chooses the patch for a data set, whatever the memory limit.
                let mut patches = match settings.preset {
                    Some(_) => Vec::new(),
                    None => RunConfig::patches(settings, dataset, fingerprint)?,
                };
                // A network that is set may have no use for some, such as those that it would halve too often.
                patches.retain(|patch| RunConfig::is_usual_patch(*patch) && resolved(Some(*patch)).is_ok());
                match patches.first() {
                    None => resolved(None)?,
                    Some(first) => {
                        let facts = opened.facts(&resolved(Some(*first))?, fold)?;
                        let config = |number: usize| Ok::<_, TrainError>(resolved(Some(patches[number]))?);
                        // If none fits, the smallest is planned and reports the ways out.
                        let is_set = settings.micro_batch.is_some();
                        let chosen = largest_patch(
                            patches.len(),
                            &config,
                            is_set,
                            machine,
                            &*self.backend,
                            facts,
                            opened.planning(&|_| {}),
                        )?;
                        resolved(Some(patches[chosen.unwrap_or(patches.len() - 1)]))?
                    }
                }
            }
            RunData::Images { dataset, inspection, .. } => {
                let trained_on = |task: &Task| opened.data.class_counts(task, fold);
                let range_16_bit = inspection.range_16_bit;
                let source = ImageSource { name: &opened.name, dataset, range_16_bit };
                RunConfig::resolve_images(settings, source, &trained_on)?
            }
        };
        if let Some(model) = &self.plans_from {
            config.adopt_normalisation(model)?;
        }
        if let Some(start) = &self.start {
            start.normalise(&mut config)?;
        }
        Ok(config)
    }

    /// Plans a run of a fold: with a configuration, whose micro-batch may be set.
    pub fn plan(
        &self,
        opened: &Opened,
        config: &RunConfig,
        fold: &Fold,
        micro_batch_is_set: bool,
        context: &Context,
    ) -> Outcome<PlannedRun> {
        let facts = opened.facts(config, fold)?;
        let progress = context.work_without_end("planning");
        let observer = |step: PlanningStep| progress.show(attempt(step));
        let planned = plan_run_allowing(
            &self.allowed,
            config,
            micro_batch_is_set,
            opened.machine,
            &*self.backend,
            facts,
            opened.planning(&observer),
        );
        drop(progress);
        let mut planned = planned?;
        planned.numbers.preset = self.asked_by_preset(opened)?;
        if let Some(start) = &self.start {
            planned.numbers.start = Some(start.table(&planned, &opened.memory.budget)?);
        }
        // A part of the machine opens nothing: the data set was opened with the whole limit.
        if opened.machine.limit == opened.memory.limits.limit {
            let opening = opened.memory.own_bytes() + opened.data.opening_bytes(opened.folds)?;
            let numbers = &mut planned.numbers;
            numbers.minimum_ram_bytes = numbers.minimum_ram_bytes.max(opening);
        }
        for (component, because) in config.training.loss.unused_otherwise() {
            context.warn(format_args!("loss: `otherwise` of {component} is unused: {because}"));
        }
        if let Some(warning) = coarser_elsewhere(&opened.data, config) {
            context.warn(warning);
        }
        if let Some(warning) = mirrored_sides(config) {
            context.warn(warning);
        }
        if planned.numbers.feasible {
            for change in &planned.numbers.changes {
                context.warn(format_args!("changed so that the run fits: {change}"));
            }
        }
        Ok(planned)
    }

    /// The configuration that the preset of the settings asks for.
    fn asked_by_preset(&self, opened: &Opened) -> Outcome<Option<PresetPlan>> {
        let RunData::Volumes { dataset, inspection } = &opened.data else { return Ok(None) };
        let Some(fingerprint) = &inspection.fingerprint else { return Ok(None) };
        Ok(PresetPlan::asked_by(&self.settings, &dataset.labels, fingerprint)?)
    }

    /// The costs of patches with about a quarter, half, twice and four times as many voxels as the planned one, and of the planned one,
    /// the smallest first. They are of nnU-Net's sequence of patches. Empty for slices and whole images.
    pub fn patch_costs(&self, opened: &Opened, planned: &PlannedRun, fold: &Fold) -> Outcome<Vec<PatchCost>> {
        let RunData::Volumes { dataset, inspection } = &opened.data else { return Ok(Vec::new()) };
        let Some(fingerprint) = &inspection.fingerprint else { return Ok(Vec::new()) };
        // With changes that were made so that a run fits, others are no longer like it.
        if planned.numbers.dimensions == 2 || !planned.numbers.changes.is_empty() {
            return Ok(Vec::new());
        }
        let any = Settings { patch_size: None, ..self.with_precision(&self.settings) };
        let patches = RunConfig::patches(&any, dataset, fingerprint)?;
        let own = planned.config.training.patch;
        let voxels = |patch: [usize; 3]| patch.iter().product::<usize>() as f64;
        let near = |times: f64| {
            let apart = |patch: &[usize; 3]| (voxels(*patch) / (voxels(own) * times)).ln().abs();
            let found = patches.iter().copied().min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
            (apart(&found) < NEAR).then_some(found)
        };
        let mut chosen: Vec<[usize; 3]> =
            [Some(own), near(0.25), near(0.5), near(2.0), near(4.0)].into_iter().flatten().collect();
        chosen.sort_by_key(|patch| patch.iter().product::<usize>());
        chosen.dedup();
        // A network that is set may have no use for some.
        let configs: Vec<RunConfig> = chosen
            .into_iter()
            .filter_map(|patch| match patch == own {
                true => Some(planned.config.clone()),
                false => RunConfig::resolve_with(&any, Some(patch), dataset, fingerprint).ok(),
            })
            .collect();
        let facts = opened.facts(&planned.config, fold)?;
        let is_set = self.settings.micro_batch.is_some();
        // Only the layers of this run were measured, so others are compared with it by nominal rates.
        let nominal = planned.backend.with_rates(None);
        let mut costs =
            patch_costs(&configs, is_set, opened.machine, &*nominal, facts, opened.planning(&|_| {}))?;
        if let Some(of_own) = costs.iter().find(|cost| cost.patch_size == own) {
            let slower = planned.numbers.predicted_seconds_per_step / of_own.predicted_seconds_per_step;
            costs.iter_mut().for_each(|cost| cost.predicted_seconds_per_step *= slower);
        }
        Ok(costs)
    }

    /// Opens, inspects, resolves and plans a run without beginning it. Returns the first fold as well.
    pub fn prepare(&self, context: &Context) -> Outcome<(Opened, PlannedRun, Fold)> {
        let memory = self.set_limit(context)?;
        let listed = self.open_dataset(&memory, context)?;
        let fold = listed.first_fold()?;
        let folds = listed.own_folds_needs(&memory.budget)?;
        let opened = Opened { folds, ..self.inspect(listed, memory, context)? };
        let config = self.resolve(&self.settings, &opened, &fold, opened.machine)?;
        let fold = opened.data.used(&config.task, &fold);
        let planned = self.plan(&opened, &config, &fold, self.settings.micro_batch.is_some(), context)?;
        Ok((opened, planned, fold))
    }
}

/// Plans the first fold of a run, and the patches that are near its own.
///
/// # Errors
/// Returns an error if the data set cannot be read, or a setting is impossible. A run that does not fit is no error here: see
/// [`RunPlan::check`].
pub fn plan(request: &PlanRequest, context: &Context) -> Outcome<RunPlan> {
    let (opened, planned, fold) = request.prepare(context)?;
    let patches = request.patch_costs(&opened, &planned, &fold)?;
    Ok(RunPlan { patches, ..planned.numbers })
}

/// An attempt of planning, in a few words.
fn attempt(PlanningStep { patch, micro_batch, room }: PlanningStep) -> String {
    let [depth, height, width] = patch;
    let goal = match room {
        None => "nothing recomputed".to_string(),
        Some(Bytes(0)) => "the least memory".to_string(),
        Some(room) => format!("an arena of at most {room}"),
    };
    format!("patch {depth}×{height}×{width}, micro-batch {micro_batch}: {goal}")
}

/// The warning if labels distinguish left from right, but patches are mirrored along that axis (the width of the canonical orientation).
fn mirrored_sides(config: &RunConfig) -> Option<String> {
    let task = config.task.segmentation().ok()?;
    let (one, other) = task.dataset.labels.sides()?;
    let [depth, height, width] = task.augmentation.mirrored_axes();
    width.then(|| {
        format!(
            "`{one}` and `{other}` differ in the side, but patches are mirrored from left to right, which exchanges them; set \
             `mirror_axes = [{depth}, {height}, false]` in [augmentation]"
        )
    })
}

/// The warning if slices do not lie across the coarsest axis; nnU-Net would then exchange axes.
fn coarser_elsewhere(data: &RunData, config: &RunConfig) -> Option<String> {
    let RunData::Volumes { inspection, .. } = data else { return None };
    let fingerprint = inspection.fingerprint.as_ref()?;
    let are_planes = fingerprint.cases.iter().all(|case| case.shape()[0] == 1);
    if are_planes || !config.task.segmentation().ok()?.spacing.is_of_slices() {
        return None;
    }
    let [depth, height, width] = fingerprint.target_spacing.0;
    let (axis, coarsest) =
        if height > width { ("A, posterior to anterior", height) } else { ("R, left to right", width) };
    (coarsest > depth).then(|| {
        format!(
            "slices are cut across S, inferior to superior, with {depth} mm between them, but the coarsest axis of the data set is \
             {axis}, with {coarsest} mm; axes are not exchanged"
        )
    })
}

/// Reads a file of settings; settings of flags take precedence.
pub fn read_settings(file: Option<&Path>, flags: Settings) -> Outcome<Settings> {
    let settings = match file {
        Some(path) => flags.or(parse_settings(path)?),
        None if Path::new(SETTINGS_FILE).is_file() => flags.or(parse_settings(Path::new(SETTINGS_FILE))?),
        None => flags,
    };
    settings.check()?;
    Ok(settings)
}

fn parse_settings(path: &Path) -> Outcome<Settings> {
    let text = plimsoll_disk::read_to_string(path, LONGEST).map_err(|error| Error::at_path(path, &error))?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let message = format!("{}, line {line}: {}", path.display(), error.message());
        Error::new(message, "‹job settings› lists the settings")
    })
}
