//! Patches of a synthetic data set; `benches/data_peers.py` measures the peers on the same files.
//!
//! ```text
//! cargo bench -p plimsoll-data -- FOLDER
//! ```
//!
//! writes the data set into FOLDER unless there is one.
#![allow(clippy::unwrap_used)] // A benchmark may panic.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_data::{
    Augmentation, CaseSource, Dataset, Fold, InspectConfig, Inspection, Loader, LoaderConfig, Mode,
    PatchGrid, Patches, Recipe, Sampler, SamplerConfig, Scratch, SpatialChange, TargetGrid, VolumeCache,
    phantom, pull,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::Spacing;

const PATCH: [usize; 3] = [96; 3];

/// The median of some runs in seconds.
fn median(mut run: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let Some(folder) = std::env::args().skip(1).find(|argument| !argument.starts_with('-')) else {
        return println!("give a folder");
    };
    let report = |name: &str, seconds: f64| println!("{name:32} {:8.2} ms", seconds * 1e3);
    if !std::path::Path::new(&folder).join("dataset.json").exists() {
        let size = [144, 176];
        phantom::write(
            &folder,
            &phantom::PhantomConfig { cases: 5, test_cases: 0, size, ..Default::default() },
        )
        .unwrap();
    }
    let dataset = Dataset::open(&folder).unwrap();
    let budget = Budget::new(Bytes::gib(1));
    let config = InspectConfig { threads: 1, seed: 1 };
    let inspect = || Inspection::run(&dataset, config, &budget, &|_, _| ()).unwrap();
    let inspection = Arc::new(inspect());
    let fingerprint = inspection.fingerprint.as_ref().unwrap();
    let stored: Bytes = fingerprint.cases.iter().map(|case| case.stored_bytes).sum();
    let megabytes = stored.0 as f64 / 1e6;
    println!("{:32} {:8.0} MB/s", "inspect, 1 thread", megabytes / median(|| drop(inspect())));

    let spacing = fingerprint.target_spacing;
    let cache = Arc::new(VolumeCache::new(budget.part("cache", Bytes::mib(256)).unwrap()));
    let mut scratch = Scratch::new(&budget, Scratch::DEFAULT).unwrap();
    let mut image = vec![0.0; PATCH.iter().product()];
    let mut labels = vec![0; image.len()];
    let number = fingerprint.cases.len() - 1;
    let case = &fingerprint.cases[number];
    let intensities = case
        .intensities(&dataset.channels, &fingerprint.foreground_intensity_properties_per_channel)
        .unwrap();
    let start = case.shape().map(|size| (size as i64 - 96) / 2);
    let turned = SpatialChange { radians: [0.3, -0.2, 0.4], factors: [1.2; 3], ..SpatialChange::NONE };
    for (name, spacing, change) in [
        ("cropped", case.spacing(), SpatialChange::NONE),
        ("at another spacing", Spacing(case.spacing().0.map(|length| length * 0.9)), SpatialChange::NONE),
        ("rotated and scaled", spacing, turned),
    ] {
        let target = TargetGrid::new(&case.geometry, spacing);
        let recipe = Recipe::new(number, &target, start, PATCH, spacing, &change);
        let mut source = CaseSource::open(&dataset.cases[number], &intensities, true, &cache).unwrap();
        let seconds = median(|| {
            pull(&recipe, &mut source, black_box(&mut image), Some(&mut labels), &mut scratch).unwrap();
        });
        report(&format!("96³ with labels, {name}"), seconds);
    }

    let fold = Fold::all(&dataset.cases.iter().map(|case| case.id.clone()).collect::<Vec<_>>());
    let grid = PatchGrid { patch: PATCH, spacing: spacing.into() };
    for (name, augmentation) in
        [("as they are", Augmentation::none()), ("augmented", Augmentation::default())]
    {
        for threads in [1, 2] {
            let sampler_config = SamplerConfig { augmentation, ..SamplerConfig::new(grid, 2) };
            let sampler = Sampler::new(Arc::clone(&inspection), &fold, sampler_config).unwrap();
            let patches = Arc::new(Patches::new(&dataset, sampler, Arc::clone(&cache)).unwrap());
            let config = LoaderConfig {
                mode: Mode::Training,
                seed: 1,
                first_step: 0,
                batch_size: 2,
                numbers: plimsoll_data::SampleNumbers::ALL,
                slots: threads + 1,
                threads,
                scratch: Scratch::DEFAULT,
            };
            let mut loader = Loader::start(config, patches, &budget).unwrap();
            // Two batches to fill the slots and the cache.
            (0..2).for_each(|_| drop(loader.next_batch().unwrap()));
            let start = Instant::now();
            (0..50).for_each(|_| drop(loader.next_batch().unwrap()));
            let seconds = start.elapsed().as_secs_f64() / 100.0;
            report(&format!("96³ of a loader, {threads} threads, {name}"), seconds);
        }
    }
}
