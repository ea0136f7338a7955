//! Batches: independent of threads, in order, within the announced memory.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::{ids, inspect, patches, phantom};
use plimsoll_data::{
    BatchReader, BatchShape, Dataset, Fold, Inspection, Loader, LoaderConfig, LoaderError, Mode, PatchGrid,
    Patches, SampleShape, Sampler, SamplerConfig, Samples, Scratch, Targets, VolumeCache,
};
use plimsoll_disk::faults::{Fault, FaultKind, inject};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::IndexFolder;

const PATCH: [usize; 3] = [16, 20, 12];

fn config(threads: usize) -> LoaderConfig {
    LoaderConfig {
        mode: Mode::Training,
        seed: 4,
        first_step: 0,
        batch_size: 2,
        numbers: plimsoll_data::SampleNumbers::ALL,
        slots: 3,
        threads,
        scratch: Bytes(64 << 10),
    }
}

fn sampler_config(inspection: &Inspection) -> SamplerConfig {
    let spacing = inspection.fingerprint.as_ref().unwrap().target_spacing;
    SamplerConfig::new(PatchGrid { patch: PATCH, spacing: spacing.into() }, 2)
}

struct Set {
    _folder: tempfile::TempDir,
    dataset: Dataset,
    inspection: Arc<Inspection>,
}

impl Set {
    fn new(cases: usize) -> Set {
        let (folder, dataset) = phantom(cases);
        let inspection = Arc::new(inspect(&dataset));
        Set { _folder: folder, dataset, inspection }
    }

    fn patches(&self, cache: Bytes) -> Arc<Patches> {
        patches(&self.dataset, Arc::clone(&self.inspection), sampler_config(&self.inspection), cache)
    }
}

#[test]
fn patches_are_the_same_from_access_points_in_any_cache() {
    let set = Set::new(3);
    let expected = batches(set.patches(Bytes::mib(16)), config(1), 6);
    let points = tempfile::tempdir().unwrap();
    let folder = IndexFolder::new(points.path().join("points"));
    for round in 0..2 {
        let sampler = Sampler::new(
            Arc::clone(&set.inspection),
            &Fold::all(&ids(&set.dataset)),
            sampler_config(&set.inspection),
        );
        let cache = VolumeCache::new(Budget::new(Bytes::ZERO)).indexed_in(folder.clone());
        let patches = Patches::new(&set.dataset, sampler.unwrap(), Arc::new(cache)).unwrap();
        assert_eq!(batches(Arc::new(patches), config(2), 6), expected, "round {round}");
        let kept = fs::read_dir(folder.path()).unwrap().count();
        assert!((2..=6).contains(&kept), "{kept} files of points");
    }
}

#[test]
fn a_file_that_cannot_be_read_for_a_moment_is_read_again() {
    let set = Set::new(1);
    let expected = batches(set.patches(Bytes::mib(16)), config(1), 1);
    let patches = set.patches(Bytes::mib(16));
    let fault = Fault { number: 3, kind: FaultKind::Eio };
    let (found, reached) =
        inject(set._folder.path(), fault, || batches(Arc::clone(&patches) as _, config(1), 1));
    assert!(reached && patches.retries() == 1);
    assert_eq!(found, expected);
}

#[test]
fn a_warm_cache_has_the_cases_that_it_has_room_for_and_evicts_none() {
    let set = Set::new(3);
    let all: Bytes =
        set.inspection.fingerprint.as_ref().unwrap().cases.iter().map(|case| case.decoded_bytes()).sum();
    let never = AtomicBool::new(false);
    let patches = set.patches(all + Bytes::mib(1));
    assert_eq!(patches.warm(0..3, &never).unwrap(), 3);
    let before = patches.cache().statistics();
    assert!(before.misses == 6 && before.evictions == 0, "{before:?}");
    batches(Arc::clone(&patches) as _, config(1), 3);
    assert_eq!(patches.cache().statistics().misses, before.misses);
    let half = set.patches(Bytes(all.0 / 2));
    assert!((1..3).contains(&half.warm(0..3, &never).unwrap()));
    assert_eq!(half.cache().statistics().evictions, 0);
    // A file that is gone is named with its case.
    let case = &set.dataset.cases[1];
    fs::remove_file(&case.images[0].path).unwrap();
    let problem = set.patches(all).warm(0..3, &never).unwrap_err().to_string();
    assert!(problem.contains(&case.id), "{problem}");
}

type Found = (u64, Vec<u32>, Vec<u8>, Vec<usize>);

fn found(step: u64, images: &[f32], labels: &[u8], cases: &[usize]) -> Found {
    (step, images.iter().map(|value| value.to_bits()).collect(), labels.to_vec(), cases.to_vec())
}

fn batches(patches: Arc<Patches>, config: LoaderConfig, count: usize) -> Vec<Found> {
    let budget = Budget::new(Bytes::mib(64));
    let mut loader = Loader::start(config, patches, &budget).unwrap();
    (0..count)
        .map(|_| {
            let batch = loader.next_batch().unwrap();
            found(batch.step(), batch.images(), batch.labels(), batch.cases())
        })
        .collect()
}

#[test]
fn a_loader_continues_with_another_step_in_the_same_memory() {
    let set = Set::new(3);
    let reference = batches(set.patches(Bytes::mib(16)), config(1), 12);
    let patches = set.patches(Bytes::mib(16));
    let config = LoaderConfig { slots: 5, ..config(3) };
    let bytes = config.bytes(patches.shape(), patches.targets()).unwrap();
    let budget = Budget::new(bytes);
    let mut loader = Loader::start(config, patches, &budget).unwrap();
    let next = |loader: &mut Loader| loop {
        if let Some(batch) = loader.next_batch_within(Duration::from_millis(20)).unwrap() {
            break batch;
        }
    };
    // A batch that is lent meanwhile stays as it is.
    let first = next(&mut loader);
    for step in [9, 0, 3, 3, 10, 1] {
        assert!(loader.seek(step));
        for step in step..(step + 3).min(12) {
            let batch = next(&mut loader);
            let found = found(batch.step(), batch.images(), batch.labels(), batch.cases());
            assert_eq!(found, reference[step as usize], "step {step}");
        }
    }
    assert_eq!(found(0, first.images(), first.labels(), first.cases()), reference[0]);
    // Nobody gives batches back, so that waiting ends with an error and not with patience.
    let held: Vec<_> = (0..4).map(|_| next(&mut loader)).collect();
    let error = loader.next_batch_within(Duration::ZERO).unwrap_err();
    assert!(matches!(error, LoaderError::AllLent { slots: 5 }), "{error}");
    drop(held);
    assert!(next(&mut loader).step() > 0 && budget.peak() == bytes);
}

#[test]
fn a_loader_that_an_error_has_ended_does_not_continue() {
    let set = Set::new(1);
    let patches = set.patches(Bytes::ZERO);
    fs::remove_file(&set.dataset.cases[0].images[0].path).unwrap();
    let mut loader = Loader::start(config(2), patches, &Budget::new(Bytes::mib(64))).unwrap();
    let error = loader.next_batch().unwrap_err().to_string();
    assert!(error.contains(&set.dataset.cases[0].id), "{error}");
    assert!(!loader.seek(0));
    assert!(matches!(loader.next_batch(), Err(LoaderError::Stopped { step: 0 })));
}

#[test]
fn batches_are_the_same_whatever_the_threads_the_cache_and_the_scratch() {
    let set = Set::new(3);
    let reference = batches(set.patches(Bytes::mib(16)), config(1), 12);
    assert_eq!(reference.iter().map(|batch| batch.0).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    for (threads, cache, scratch) in [
        (2, Bytes::mib(16), Scratch::DEFAULT),
        (5, Bytes::ZERO, Bytes(4096)),
        (3, Bytes(150_000), Bytes(8192)),
    ] {
        let config = LoaderConfig { scratch, slots: threads + 1, ..config(threads) };
        assert!(batches(set.patches(cache), config, 12) == reference, "{threads} {cache} {scratch}");
    }
}

#[test]
fn a_loader_resumes_at_any_step_as_if_it_had_never_stopped() {
    let set = Set::new(3);
    let patches = set.patches(Bytes::mib(16));
    let all = batches(Arc::clone(&patches), config(2), 9);
    let later = LoaderConfig { first_step: 5, ..config(3) };
    assert!(batches(Arc::clone(&patches), later, 4) == all[5..]);
    let budget = Budget::new(Bytes::mib(4));
    let mut reader = BatchReader::new(patches.clone(), Mode::Training, 4, 2, Scratch::DEFAULT, &budget).err();
    assert!(matches!(reader.take(), Some(LoaderError::Memory(_))), "8 MiB of scratch");
    let scratch = Bytes::mib(1);
    let mut reader = BatchReader::new(patches.clone(), Mode::Training, 4, 2, scratch, &budget).unwrap();
    assert_eq!(
        budget.used(),
        BatchReader::bytes(
            BatchShape { batch_size: 2, sample: patches.shape() },
            Mode::Training,
            scratch,
            &Targets::default()
        )
        .unwrap()
    );
    for step in [7, 0, 7] {
        let batch = reader.load(step).unwrap();
        let found = found(step, batch.images(), batch.labels(), batch.cases());
        assert!(found == all[step as usize]);
    }
}

#[test]
fn batches_have_foreground_and_normalised_intensities() {
    let set = Set::new(3);
    let patches = set.patches(Bytes::mib(16));
    let budget = Budget::new(Bytes::mib(64));
    let config = LoaderConfig { mode: Mode::Validation, ..config(2) };
    let mut loader = Loader::start(config, patches, &budget).unwrap();
    let (mut foreground, mut sum, mut squares, mut count) = (0, 0.0, 0.0, 0.0);
    for _ in 0..40 {
        let batch = loader.next_batch().unwrap();
        assert_eq!(batch.images().len(), batch.labels().len());
        assert_eq!(batch.shape().sample.patch, PATCH);
        foreground += batch.labels().iter().filter(|label| **label == 1).count();
        for value in batch.images().iter().map(|value| f64::from(*value)) {
            (sum, squares, count) = (sum + value, squares + value * value, count + 1.0);
        }
    }
    assert!(foreground as f64 > 0.03 * count, "{foreground} of {count}");
    let mean = sum / count;
    let deviation = (squares / count - mean * mean).sqrt();
    assert!(mean.abs() < 0.5 && (deviation - 1.0).abs() < 0.3, "{mean} {deviation}");
}

#[test]
fn a_loader_reserves_exactly_the_announced_bytes() {
    let set = Set::new(3);
    let patches = set.patches(Bytes::mib(16));
    for threads in [1, 4] {
        let config = LoaderConfig { slots: 5, ..config(threads) };
        let bytes = config.bytes(SampleShape::patch(1, PATCH), &Targets::default()).unwrap();
        let budget = Budget::new(bytes);
        let mut loader = Loader::start(config, patches.clone(), &budget).unwrap();
        assert_eq!(budget.used(), bytes);
        let batch = loader.next_batch().unwrap();
        drop(loader);
        assert_eq!(budget.used(), bytes, "a batch is still lent");
        drop(batch);
        assert_eq!((budget.used(), budget.peak()), (Bytes::ZERO, bytes));
        let error = Loader::start(config, patches.clone(), &Budget::new(bytes - Bytes(1)));
        assert!(matches!(error, Err(LoaderError::Memory(_))));
    }
    let error = LoaderConfig { slots: 0, ..config(1) }
        .bytes(SampleShape::patch(1, PATCH), &Targets::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "`slots` of the loader is 0, but must be at least 1");
    assert!(config(1).bytes(SampleShape::patch(1, [usize::MAX; 3]), &Targets::default()).is_err());
}

#[test]
fn an_error_comes_at_its_step_with_the_case_and_the_file() {
    let set = Set::new(3);
    let patches = set.patches(Bytes::ZERO);
    let good = batches(Arc::clone(&patches), config(2), 12);
    // The first step that needs the case that is about to be damaged.
    let broken = good[0].3[0];
    let case = &set.dataset.cases[broken];
    let path = &case.images[0].path;
    let first = good.iter().position(|batch| batch.3.contains(&broken)).unwrap();
    let from = good.iter().position(|batch| !batch.3.contains(&broken));
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..200]).unwrap();
    assert_eq!(first, 0);
    for threads in [1, 4] {
        let first_step = from.unwrap_or(0) as u64;
        let config = LoaderConfig { first_step, slots: 5, ..config(threads) };
        let budget = Budget::new(Bytes::mib(64));
        let mut loader = Loader::start(config, patches.clone(), &budget).unwrap();
        let mut step = first_step;
        let error = loop {
            match loader.next_batch() {
                Ok(batch) => {
                    assert!(
                        found(step, batch.images(), batch.labels(), batch.cases()) == good[step as usize]
                    );
                    step += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(good[step as usize].3.contains(&broken));
        let text = error.to_string();
        assert!(text.starts_with(&format!("step {step}, patch ")), "{text}");
        assert!(text.contains(&format!(": case {}: ", case.id)), "{text}");
        assert!(text.contains(&path.display().to_string()) && error.remedy().is_some(), "{text}");
        assert!(matches!(loader.next_batch(), Err(LoaderError::Stopped { .. })));
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn holding_every_batch_is_an_error_not_a_deadlock() {
    let set = Set::new(3);
    let budget = Budget::new(Bytes::mib(64));
    let mut loader = Loader::start(config(2), set.patches(Bytes::mib(16)), &budget).unwrap();
    let held: Vec<_> = (0..3).map(|_| loader.next_batch().unwrap()).collect();
    assert!(matches!(loader.next_batch(), Err(LoaderError::AllLent { slots: 3 })));
    assert_eq!(held.iter().map(|batch| batch.step()).collect::<Vec<_>>(), [0, 1, 2]);
    drop(held);
    assert_eq!(loader.next_batch().unwrap().step(), 3);
}

#[test]
fn dropping_a_loader_stops_its_threads_between_patches() {
    let set = Set::new(3);
    let budget = Budget::new(Bytes::gib(1));
    // Batches that would take far longer than the test should.
    let config = LoaderConfig { batch_size: 20_000, slots: 2, ..config(2) };
    let patches = set.patches(Bytes::mib(16));
    let requests = || {
        let statistics = patches.cache().statistics();
        statistics.hits + statistics.misses + statistics.bypasses
    };
    let loader = Loader::start(config, patches.clone(), &budget).unwrap();
    while requests() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(loader);
    // Each patch asks for a volume at least once.
    assert!(requests() < 20_000, "{} requests: a whole batch was made", requests());
    assert_eq!(budget.used(), Bytes::ZERO);
}
