//! Memory is bounded regardless of the size of volumes and the number of batches.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

mod support;

use std::sync::Arc;

use plimsoll_data::{
    Dataset, InspectConfig, Inspection, Loader, LoaderConfig, Mode, PatchGrid, SampleShape, SamplerConfig,
    Targets,
};
use plimsoll_memory::{Budget, Bytes, CountingAllocator, heap_use, mapped_files, resident};
use plimsoll_volume::{ElementType, Spacing, VolumeWriter};
use serde_json::json;
use support::{Raw, grid, hash, inspect, patches, phantom};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One volume of 48 MiB with two channels, written plane by plane.
fn large() -> Raw {
    let raw = Raw::new(&["CT", "PET"], json!({"background": 0, "organ": 1}));
    let geometry = grid([96, 512, 512], [5.0, 1.0, 1.0]);
    let mut plane = vec![0i16; 512 * 512];
    let writer = |path: std::path::PathBuf, element_type| {
        VolumeWriter::create(path, &geometry, 1, element_type, None).unwrap()
    };
    let mut images =
        [writer(raw.image("a", 0), ElementType::I16), writer(raw.image("a", 1), ElementType::I16)];
    let mut labels = writer(raw.label("a"), ElementType::U8);
    for d in 0..96 {
        for (at, value) in plane.iter_mut().enumerate() {
            *value = (hash((d * 7 + at) as u64) >> 14) as i16;
        }
        let bytes: Vec<u8> = plane.iter().flat_map(|value| value.to_ne_bytes()).collect();
        for image in &mut images {
            image.write_planes(&bytes).unwrap();
        }
        let mask: Vec<u8> = plane.iter().map(|value| u8::from(*value > 50)).collect();
        labels.write_planes(&mask).unwrap();
    }
    let [first, second] = images;
    first.finish().unwrap();
    second.finish().unwrap();
    labels.finish().unwrap();
    raw
}

/// One after the other, since the counters are per process.
#[test]
fn memory_is_bounded() {
    large_volumes_are_inspected_and_sampled_within_a_few_megabytes();
    heap_use_does_not_grow_from_twenty_to_two_hundred_batches();
}

fn large_volumes_are_inspected_and_sampled_within_a_few_megabytes() {
    let raw = large();
    let dataset: Dataset = raw.open();
    let (before, resident_before, files) = (heap_use().now, resident().unwrap().now, mapped_files().unwrap());
    let budget = Budget::new(Bytes::mib(8));
    let config = InspectConfig { threads: 1, seed: 1 };
    let inspection = Arc::new(Inspection::run(&dataset, config, &budget, &|_, _| ()).unwrap());
    // A plane is 1 MiB as f32, three open files take 2.25 MiB, the histograms of two channels 3.5 MiB.
    assert!(budget.peak() < Bytes(7600 << 10), "{}", budget.peak());
    let heap = heap_use().peak - before;
    assert!(heap < Bytes::mib(3), "{heap}");

    let grid = PatchGrid { patch: [64, 64, 64], spacing: Spacing([1.0; 3]).into() };
    let patches = patches(&dataset, inspection, SamplerConfig::new(grid, 2), Bytes::mib(20));
    let config = LoaderConfig {
        mode: Mode::Training,
        seed: 1,
        first_step: 0,
        batch_size: 1,
        numbers: plimsoll_data::SampleNumbers::ALL,
        slots: 2,
        threads: 1,
        scratch: Bytes(256 << 10),
    };
    let budget = Budget::new(config.bytes(SampleShape::patch(2, grid.patch), &Targets::default()).unwrap());
    let mut loader = Loader::start(config, patches.clone(), &budget).unwrap();
    for _ in 0..2 {
        loader.next_batch().unwrap();
    }
    drop(loader);
    let statistics = patches.cache().statistics();
    assert_eq!(statistics.peak, Bytes::ZERO, "neither image fits the cache, nor do the labels");
    assert!(statistics.bypasses > 0 && budget.peak() == budget.limit());
    // The reserved bytes, pages of code that the kernel may read in, and a margin for stacks and buffers.
    let code = files.mapped - files.resident;
    let most = resident_before + code + budget.limit() + Bytes::mib(6);
    let peak = resident().unwrap().peak;
    assert!(peak < most, "{peak} of {most}");
    let heap = heap_use().peak - before;
    assert!(heap < Bytes::mib(3), "{heap}");
}

fn heap_use_does_not_grow_from_twenty_to_two_hundred_batches() {
    let (_folder, dataset) = phantom(4);
    let inspection = Arc::new(inspect(&dataset));
    let spacing = inspection.fingerprint.as_ref().unwrap().target_spacing;
    let grid = PatchGrid { patch: [16; 3], spacing: spacing.into() };
    // Room for some of the volumes, so that they are evicted.
    let patches = patches(&dataset, inspection, SamplerConfig::new(grid, 2), Bytes(300 << 10));
    let config = LoaderConfig {
        mode: Mode::Training,
        seed: 1,
        first_step: 0,
        batch_size: 2,
        numbers: plimsoll_data::SampleNumbers::ALL,
        slots: 3,
        threads: 2,
        scratch: Bytes(64 << 10),
    };
    let budget = Budget::new(Bytes::mib(16));
    let mut loader = Loader::start(config, patches.clone(), &budget).unwrap();
    let mut peaks = [Bytes::ZERO; 2];
    for step in 0..220 {
        drop(loader.next_batch().unwrap());
        let now = heap_use().now;
        let phase = usize::from(step >= 20);
        peaks[phase] = peaks[phase].max(now);
    }
    // A margin of two open files.
    let slack = Bytes(512 << 10);
    assert!(peaks[1] < peaks[0] + slack, "{} then {}", peaks[0], peaks[1]);
    assert!(patches.cache().statistics().evictions > 10, "{:?}", patches.cache().statistics());
    drop(loader);
    let before = heap_use().now;
    drop(patches);
    assert!(heap_use().now < before);
}
