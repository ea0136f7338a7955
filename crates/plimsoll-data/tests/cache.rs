//! The cache: what it keeps, what it evicts, and its limit.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::{grid, write_image};
use plimsoll_data::VolumeCache;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Content, ElementType, IndexFolder, VolumeError};
use proptest::prelude::*;

/// Images of one to `count` pages, each filled with its number.
fn images(folder: &Path, count: usize) -> Vec<PathBuf> {
    (1..=count)
        .map(|pages| {
            let path = folder.join(format!("{pages}.nii.gz"));
            let voxels = vec![pages as f32; pages * 4096];
            write_image(&path, &grid([pages, 64, 64], [1.0; 3]), 1, ElementType::U8, &voxels);
            path
        })
        .collect()
}

fn cache(pages: u64) -> VolumeCache {
    VolumeCache::new(Budget::new(Bytes(pages * 4096)))
}

#[test]
fn the_least_recently_used_volume_is_evicted_first() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 3);
    let cache = cache(5);
    let get = |pages: usize| cache.get(&images[pages - 1]).unwrap().unwrap();
    assert_eq!(get(2).bytes()[0], 2);
    assert_eq!(get(3).bytes().len(), 3 * 4096);
    get(2);
    get(1);
    let statistics = cache.statistics();
    assert_eq!((statistics.misses, statistics.hits, statistics.evictions), (3, 1, 1));
    assert_eq!(statistics.now, Bytes(3 * 4096), "the volume of three pages was evicted");
    get(2);
    get(1);
    assert_eq!(cache.statistics().hits, 3);
    assert_eq!(cache.statistics().peak, Bytes(5 * 4096));
}

#[test]
fn a_volume_that_does_not_fit_is_not_cached_and_evicts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 4);
    let cache = cache(3);
    assert!(cache.get(&images[3]).unwrap().is_none());
    let in_use = cache.get(&images[1]).unwrap().unwrap();
    let idle = cache.get(&images[0]).unwrap().unwrap();
    drop(idle);
    // Even without the idle volume there would be no room for three pages beside the one in use.
    assert!(cache.get(&images[2]).unwrap().is_none());
    let statistics = cache.statistics();
    assert_eq!((statistics.bypasses, statistics.evictions, statistics.now), (2, 0, Bytes(3 * 4096)));
    drop(in_use);
    assert!(cache.get(&images[2]).unwrap().is_some());
    assert_eq!(cache.statistics().evictions, 2);
}

#[test]
fn volumes_stay_where_regions_of_others_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 3);
    let cache = cache(5).indexed_in(IndexFolder::new(folder.path().join("points")));
    let cache = cache.decoding_within(Budget::new(Bytes::mib(16)));
    for _ in 0..3 {
        assert!(cache.get(&images[1]).unwrap().is_some() && cache.get(&images[2]).unwrap().is_some());
        assert!(cache.get(&images[0]).unwrap().is_none());
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.misses, statistics.hits, statistics.bypasses, statistics.evictions), (2, 4, 3, 0));
    // Of this one all that precedes a region is decompressed.
    let other = folder.path().join("other.nii.zst");
    write_image(&other, &grid([1, 64, 64], [1.0; 3]), 1, ElementType::U8, &[1.0; 4096]);
    assert!(cache.get(&other).unwrap().is_some());
    assert_eq!(cache.statistics().evictions, 1);
}

#[test]
fn a_reading_that_is_told_to_stop_leaves_nothing_behind_and_can_be_done_later() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 2);
    let cache = cache(3);
    let stop = AtomicBool::new(true);
    let none = Budget::new(Bytes::ZERO);
    let get = |stop: &_| cache.get_unless(&images[1], Content::Intensities, &none, stop);
    assert!(get(&stop).unwrap().is_none());
    assert_eq!(cache.statistics().now, Bytes::ZERO);
    stop.store(false, Ordering::Relaxed);
    let volume = get(&stop).unwrap().unwrap();
    assert_eq!((volume.bytes().len(), volume.bytes()[2 * 4096 - 1]), (2 * 4096, 2));
    // What is held already is no reading.
    stop.store(true, Ordering::Relaxed);
    assert!(get(&stop).unwrap().is_some());
}

#[test]
fn a_volume_in_use_is_accounted_for_even_after_the_cache_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 2);
    let budget = Budget::new(Bytes(4 * 4096));
    let cache = VolumeCache::new(budget.clone());
    let volume = cache.get(&images[1]).unwrap().unwrap();
    drop(cache);
    assert_eq!(budget.used(), Bytes(2 * 4096));
    drop(volume);
    assert_eq!(budget.used(), Bytes::ZERO);
}

#[test]
fn a_cache_shrinks_to_the_volumes_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 3);
    let cache = cache(6);
    let in_use = cache.get(&images[2]).unwrap().unwrap();
    for image in [&images[1], &images[0]] {
        cache.get(image).unwrap().unwrap();
    }
    assert_eq!(cache.statistics().now, Bytes(6 * 4096));
    assert_eq!(cache.shrink_to(Bytes(4 * 4096)), Bytes(4 * 4096));
    assert_eq!(cache.shrink_to(Bytes(4096)), Bytes(3 * 4096), "one is in use");
    assert!(cache.get(&images[0]).unwrap().is_none(), "no room under the new limit");
    drop(in_use);
    assert!(cache.get(&images[0]).unwrap().is_some());
    assert_eq!(cache.shrink_to(Bytes::ZERO), Bytes::ZERO);
    cache.shrink_to(Bytes::gib(1));
    assert_eq!(cache.statistics().limit, Bytes(6 * 4096), "never more than the budget");
}

#[test]
fn threads_that_request_one_volume_read_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.nii.gz");
    let voxels: Vec<f32> = (0..96 * 96 * 96).map(|at| (at % 251) as f32).collect();
    write_image(&path, &grid([96; 3], [1.0; 3]), 1, ElementType::U8, &voxels);
    let cache = cache(1000);
    let together = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                together.wait();
                assert_eq!(cache.get(&path).unwrap().unwrap().bytes()[250], 250);
            });
        }
    });
    let statistics = cache.statistics();
    assert_eq!((statistics.misses, statistics.hits), (1, 7));
    assert_eq!(statistics.peak, statistics.now);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_each_time_and_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = images(folder.path(), 2).remove(1);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 6]).unwrap();
    let cache = cache(4);
    for _ in 0..2 {
        assert!(matches!(cache.get(&path), Err(VolumeError::Damaged { .. })));
    }
    assert_eq!(cache.statistics().now, Bytes::ZERO);
    std::fs::write(&path, &bytes).unwrap();
    assert!(cache.get(&path).unwrap().is_some());
    assert!(cache.get(&folder.path().join("none.nii")).is_err());
}

#[test]
fn a_file_that_has_grown_since_the_first_request_is_an_error_and_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(folder.path(), 3);
    let cache = cache(4);
    cache.get(&images[0]).unwrap().unwrap();
    cache.shrink_to(Bytes::ZERO);
    cache.shrink_to(Bytes(4 * 4096));
    std::fs::copy(&images[2], &images[0]).unwrap();
    assert!(matches!(cache.get(&images[0]), Err(VolumeError::Memory { .. })));
    assert_eq!(cache.statistics().now, Bytes::ZERO);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn under_any_load_the_cache_holds_no_more_than_its_budget(
        pages in 1u64..14,
        requests in prop::collection::vec((0usize..6, any::<bool>()), 20..80),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let images = images(folder.path(), 6);
        let budget = Budget::new(Bytes(pages * 4096));
        let cache = VolumeCache::new(budget.clone());
        thread::scope(|scope| {
            for offset in 0..4 {
                let (cache, images, requests) = (&cache, &images, &requests);
                scope.spawn(move || {
                    let mut held: Vec<Arc<_>> = Vec::new();
                    for (image, hold) in requests.iter().cycle().skip(offset * 7).take(requests.len()) {
                        let found = cache.get(&images[*image]).unwrap();
                        assert!(cache.statistics().now <= cache.statistics().limit);
                        if let Some(volume) = found {
                            assert_eq!(usize::from(volume.bytes()[0]), image + 1);
                            if *hold {
                                held.push(volume);
                            } else {
                                held.clear();
                            }
                        }
                    }
                });
            }
        });
        let statistics = cache.statistics();
        prop_assert!(budget.peak() <= budget.limit());
        prop_assert_eq!(statistics.hits + statistics.misses + statistics.bypasses, 4 * requests.len() as u64);
        prop_assert_eq!(cache.shrink_to(Bytes::ZERO), Bytes::ZERO);
        prop_assert_eq!(budget.used(), Bytes::ZERO);
    }
}
