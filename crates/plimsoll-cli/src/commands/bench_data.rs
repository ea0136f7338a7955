//! `plimsoll bench load`, `patch` and `system`: the way of a data set's patches from the disk to a step.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll::Opened;
use plimsoll_data::{Case, Dataset, Inspection, Loader, LoaderConfig, Patches, Sampler, VolumeCache};
use plimsoll_disk::{File, atomic};
use plimsoll_memory::{Budget, Bytes, resident};
use plimsoll_report::svg::{Anchor, Drawing, rect, text};
use plimsoll_train::{PlannedRun, RunData};
use plimsoll_volume::{Content, VolumeError, VolumeFile};
use serde::Serialize;

use crate::args::BenchData;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json};
use crate::terminal::{self, cache_folder};

/// The measured part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Reading files.
    Load,
    /// Making batches.
    Patch,
    /// Both, against the step.
    System,
}

/// Reading whole files, decoded.
#[derive(Serialize)]
struct Load {
    files: usize,
    stored_bytes: Bytes,
    decoded_bytes: Bytes,
    /// Without the system's cache, if the system discards it on request.
    cold_seconds: f64,
    warm_seconds: f64,
    resident_bytes: Bytes,
}

/// Making batches.
#[derive(Serialize)]
struct Patch {
    threads: usize,
    /// The number of cached cases, of all cases, and the time of reading them.
    cached_cases: usize,
    cases: usize,
    cache_bytes: Bytes,
    fill_seconds: f64,
    patches: usize,
    /// The time of one patch.
    seconds_per_patch: f64,
    /// The share of volumes that were found in the cache.
    hit_share: f64,
    resident_bytes: Bytes,
}

#[derive(Serialize)]
struct LoadingReport {
    load: Option<Load>,
    patch: Option<Patch>,
    /// The predicted time by this machine's measured rates.
    predicted_seconds_per_step: f64,
    batch_size: usize,
    /// The bottleneck of a step, and its remedy.
    bottleneck: Option<String>,
}

/// Measures, and prints what was found.
pub fn run(args: &BenchData, part: Part, as_json: bool) -> Outcome {
    let request = args.run.request(args.run.compute.open()?)?;
    let (opened, planned, fold) = request.prepare(&terminal::observed(as_json))?;
    planned.numbers.check()?;
    let RunData::Volumes { dataset, inspection } = &opened.data else {
        return Err(Failure::new("this data set has images, not volumes", "name a data set of volumes"));
    };
    let some = spread(&dataset.cases, usize::from(args.cases));
    let load = (part != Part::Patch).then(|| load(&some, &opened.memory.budget)).transpose()?;
    let patch = match part {
        Part::Load => None,
        Part::Patch | Part::System => {
            let training = &planned.config.training;
            let task = planned.config.task.segmentation()?;
            let sampler = task.sampler(training.patch, training.batch);
            let sampler = Sampler::new(Arc::clone(inspection), &fold, sampler)?
                .on_regions(task.dataset.labels.scored_regions());
            Some(patch(args, dataset, inspection, sampler, &opened, &planned)?)
        }
    };
    let mut report = LoadingReport {
        load,
        patch,
        predicted_seconds_per_step: planned.numbers.predicted_seconds_per_step,
        batch_size: planned.numbers.batch_size,
        bottleneck: None,
    };
    report.bottleneck = report.judge(&planned, &request);
    if let Some(file) = &args.draw {
        draw(&report, file)?;
    }
    if as_json {
        return json(&report);
    }
    report.print();
    Ok(())
}

/// At most `most` cases, evenly spread.
fn spread(cases: &[Case], most: usize) -> Vec<&Case> {
    let count = cases.len().min(most);
    (0..count).map(|number| &cases[number * cases.len() / count]).collect()
}

/// Reads all files of some cases twice.
fn load(cases: &[&Case], budget: &Budget) -> Outcome<Load> {
    let images = cases.iter().flat_map(|case| case.image_files()).map(|path| (path, Content::Intensities));
    let labels = cases.iter().filter_map(|case| case.label.as_deref()).map(|path| (path, Content::Labels));
    let files: Vec<(&Path, Content)> = images.chain(labels).collect();
    let (mut stored_bytes, mut decoded_bytes) = (Bytes::ZERO, Bytes::ZERO);
    for (path, _) in &files {
        stored_bytes += forget(path).map_err(|error| Failure::at_path(path, &error))?;
    }
    let mut seconds = [0.0; 2];
    for seconds in &mut seconds {
        let start = Instant::now();
        decoded_bytes = Bytes::ZERO;
        for (path, content) in &files {
            decoded_bytes += read(path, *content, budget)?;
        }
        *seconds = start.elapsed().as_secs_f64();
    }
    let [cold_seconds, warm_seconds] = seconds;
    let resident_bytes = resident()?.now;
    Ok(Load { files: files.len(), stored_bytes, decoded_bytes, cold_seconds, warm_seconds, resident_bytes })
}

/// Asks the system to discard a file, or the files of a folder of slices, from its cache, and returns their bytes.
fn forget(path: &Path) -> io::Result<Bytes> {
    if path.is_dir() {
        let files =
            plimsoll_disk::entries(path)?.filter(|path| path.as_ref().is_ok_and(|path| path.is_file()));
        return files.map(|path| forget(&path?)).sum();
    }
    let file = File::open(path)?;
    // Where the system keeps it, cold is as warm.
    let _ = file.forget_cached();
    file.len().map(Bytes)
}

/// Reads all voxels of a file, and returns their bytes.
fn read(path: &Path, content: Content, budget: &Budget) -> Result<Bytes, VolumeError> {
    let mut file = VolumeFile::open_as(path, content)?;
    for channel in 0..file.channels() {
        file.for_each_plane(channel, budget, |_, _| Ok::<_, VolumeError>(()))?;
    }
    Ok(Bytes(file.stored_bytes()))
}

/// Fills the cache of the plan, and makes batches as its loader does.
fn patch(
    args: &BenchData,
    dataset: &Dataset,
    inspection: &Inspection,
    sampler: Sampler,
    opened: &Opened,
    planned: &PlannedRun,
) -> Outcome<Patch> {
    let (numbers, budget) = (&planned.numbers, &opened.memory.budget);
    let cache = VolumeCache::new(budget.part("cache", numbers.cache_bytes)?)
        .decoding_within(budget.part("decoding", numbers.decoding_bytes)?);
    let cache = Arc::new(match cache_folder() {
        Some(folder) => cache.indexed_in(folder.points()),
        None => cache,
    });
    let patches = Arc::new(Patches::new(dataset, sampler, Arc::clone(&cache))?);
    let cases = inspection.fingerprint.as_ref().map_or(0, |all| all.cases.len());
    let start = Instant::now();
    let cached_cases = patches.warm(0..cases, &AtomicBool::new(false))?;
    let fill_seconds = start.elapsed().as_secs_f64();
    let config = LoaderConfig { first_step: 0, ..*planned.loader() };
    let mut loader = Loader::start(config, patches, budget)?;
    // Filling the slots is not counted.
    for _ in 0..config.slots {
        drop(loader.next_batch()?);
    }
    let before = cache.statistics();
    let start = Instant::now();
    for _ in 0..args.batches {
        drop(loader.next_batch()?);
    }
    let made = usize::from(args.batches) * config.batch_size;
    let seconds_per_patch = start.elapsed().as_secs_f64() / made as f64;
    let after = cache.statistics();
    let hits = (after.hits - before.hits) as f64;
    let asked = hits + (after.misses + after.bypasses - before.misses - before.bypasses) as f64;
    Ok(Patch {
        threads: config.threads,
        cached_cases,
        cases,
        cache_bytes: after.limit,
        fill_seconds,
        patches: made,
        seconds_per_patch,
        hit_share: if asked > 0.0 { hits / asked } else { 1.0 },
        resident_bytes: resident()?.now,
    })
}

impl LoadingReport {
    /// The bottleneck of a step, and its remedy.
    fn judge(&self, planned: &PlannedRun, request: &plimsoll::PlanRequest) -> Option<String> {
        let patch = self.patch.as_ref()?;
        let batch = patch.seconds_per_patch * self.batch_size as f64;
        let step = self.predicted_seconds_per_step;
        if batch <= step {
            return None;
        }
        let numbers = &planned.numbers;
        let short = format!("a step takes {step:.3} s, but its batch {batch:.3} s");
        let missing = numbers.decoded_bytes - numbers.cache_bytes;
        let threads = (patch.threads as f64 * batch / step).ceil() as usize;
        Some(match missing > Bytes::ZERO && patch.hit_share < 0.9 {
            true => format!(
                "{short}, of whose volumes {:.0} % were in the cache: raise --ram by {missing}, or write --loader-threads {threads}",
                100.0 * patch.hit_share
            ),
            false if threads > request.threads => format!(
                "{short}: it would take {threads} loader threads, more than the {} of this machine; smaller patches or less \
                 augmentation would help",
                request.threads
            ),
            false => format!("{short}: write --loader-threads {threads}"),
        })
    }

    fn print(&self) {
        let mut table = Table::new(["what", "seconds", "rate", "resident then"]);
        let rate = |bytes: Bytes, seconds: f64| format!("{:.0} MB/s", bytes.0 as f64 / 1e6 / seconds);
        if let Some(load) = &self.load {
            for (name, seconds) in [("cold", load.cold_seconds), ("warm", load.warm_seconds)] {
                table.row([
                    format!("read {} files, {} stored, {name}", load.files, load.stored_bytes),
                    format!("{seconds:.2}"),
                    rate(load.decoded_bytes, seconds),
                    load.resident_bytes.to_string(),
                ]);
            }
        }
        let per_second = |seconds: f64| format!("{:.1} patches/s", 1.0 / seconds);
        if let Some(patch) = &self.patch {
            table.row([
                format!(
                    "fill the cache: {} of {} cases, {}",
                    patch.cached_cases, patch.cases, patch.cache_bytes
                ),
                format!("{:.2}", patch.fill_seconds),
                String::new(),
                patch.resident_bytes.to_string(),
            ]);
            table.row([
                format!(
                    "a patch on {} thread(s), {:.0} % of volumes cached",
                    patch.threads,
                    100.0 * patch.hit_share
                ),
                format!("{:.4}", patch.seconds_per_patch),
                per_second(patch.seconds_per_patch),
                patch.resident_bytes.to_string(),
            ]);
            let step = self.predicted_seconds_per_step;
            table.row([
                format!("a step of {} patches, as planned", self.batch_size),
                format!("{step:.4}"),
                format!("takes {:.1} patches/s", self.batch_size as f64 / step),
                String::new(),
            ]);
        }
        table.print();
        match (&self.patch, &self.bottleneck) {
            (Some(_), None) => println!("the step never waits for its batch"),
            (_, Some(bottleneck)) => println!("bottleneck: {bottleneck}"),
            (None, None) => {}
        }
    }
}

/// Draws what a step and its batch take, as bars.
fn draw(report: &LoadingReport, file: &Path) -> Outcome {
    let mut bars = vec![("a step, as planned", report.predicted_seconds_per_step, "#0072b2")];
    if let Some(patch) = &report.patch {
        bars.push(("its batch", patch.seconds_per_patch * report.batch_size as f64, "#e69f00"));
    }
    if let Some(load) = &report.load {
        bars.push(("a file, cold", load.cold_seconds / load.files.max(1) as f64, "#8c8c8c"));
        bars.push(("a file, warm", load.warm_seconds / load.files.max(1) as f64, "#cc79a7"));
    }
    let longest = bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut drawing = Drawing::scalable([720.0, 40.0 * bars.len() as f64 + 20.0])
        .set("font-family", "sans-serif")
        .set("font-size", 13.0)
        .on_white();
    for (at, (name, seconds, colour)) in bars.into_iter().enumerate() {
        let (y, width) = (20.0 + 40.0 * at as f64, 420.0 * seconds / longest);
        drawing.push(text([10.0, y + 17.0], Anchor::Start, name));
        drawing.push(rect([160.0, y], [width, 24.0]).set("fill", colour));
        drawing.push(text([168.0 + width, y + 17.0], Anchor::Start, &format!("{seconds:.3} s")));
    }
    atomic::write(file, |out| drawing.write(out)).map_err(|error| Failure::at_path(file, &error))
}
