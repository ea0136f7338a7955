//! Streams of batches of images with classes.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::path::Path;
use std::time::Duration;

use plimsoll::{Context, DataPlace, FoldRequest};
use plimsoll_data::Mode;
use plimsoll_data::pictures::phantom::{self, GRADES, PhantomImages};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_python::{
    AugmentationChoice, EpochLength, Failure, LabelType, PatchBatch, PatchOptions, PatchSettings,
    PatchStream, Resources, Turn,
};
use plimsoll_run::{ImageSettings, Settings};

const PATIENCE: Duration = Duration::from_secs(60);
const OPTIONS: PatchOptions =
    PatchOptions { epoch: EpochLength::Usual, prefetch: 2, labels: LabelType::Usual };

/// A folder of five grades with three images each to train on and two to validate with.
fn retinas() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    phantom::write(folder.path(), &PhantomImages { images: [3, 2, 1], side: 32, seed: 4 }).unwrap();
    folder
}

fn settings() -> PatchSettings {
    PatchSettings {
        patch_size: vec![24, 20],
        batch_size: 4,
        spacing: None,
        augmentation: AugmentationChoice::Usual,
        oversample_foreground: None,
        images: None,
        seed: 3,
        section: Mode::Training,
    }
}

fn resources(bytes: Bytes, threads: usize) -> Resources {
    Resources { budget: Budget::new(bytes), threads }
}

fn open(folder: &Path, settings: &PatchSettings, resources: &Resources) -> Result<PatchStream, Failure> {
    let request = FoldRequest {
        place: DataPlace::Path(folder.into()),
        settings: Settings::default(),
        allow_outside: false,
        skip_bad_cases: false,
        fold: None,
        threads: resources.threads,
    };
    PatchStream::open(&request, settings, OPTIONS, resources, &Context::default())
}

/// Reads an epoch, and returns what a function makes of each batch.
fn epoch<T>(stream: &mut PatchStream, read: impl Fn(&PatchBatch) -> T) -> Vec<T> {
    let (epoch, mut all) = (stream.begin(), Vec::new());
    loop {
        match stream.next(epoch, PATIENCE).unwrap() {
            Turn::Batch(batch) => all.push(read(&batch)),
            Turn::Waiting => {}
            Turn::End => return all,
        }
    }
}

/// Step, bits of the images, classes and cases.
type Found = (u64, Vec<u32>, Vec<u8>, Vec<String>);

fn found(stream: &mut PatchStream) -> Vec<Found> {
    epoch(stream, |batch| {
        let bits = batch.images().iter().map(|value| value.to_bits()).collect();
        (batch.step(), bits, batch.labels().to_vec(), batch.cases().to_vec())
    })
}

#[test]
fn an_epoch_has_each_image_of_the_data_sets_own_division_with_its_class() {
    let folder = retinas();
    let all = resources(Bytes::mib(64), 2);
    let mut stream = open(folder.path(), &settings(), &all).unwrap();
    assert_eq!((stream.facts().classes.len(), stream.batches()), (GRADES.len(), Some(4)));
    assert_eq!(stream.facts().cases.len(), 15);
    for (_, bits, classes, cases) in found(&mut stream) {
        assert_eq!(bits.len(), 4 * 3 * 24 * 20);
        for (class, case) in classes.iter().zip(&cases) {
            assert!(
                case.starts_with("train/") && case.contains(GRADES[usize::from(*class)]),
                "{case} {class}"
            );
        }
    }
    let validation = PatchSettings { section: Mode::Validation, ..settings() };
    let mut stream = open(folder.path(), &validation, &all).unwrap();
    assert!(stream.facts().cases.len() == 10 && stream.batches() == Some(3));
    let first = found(&mut stream);
    assert!(first == found(&mut stream) && first[0].3.iter().all(|case| case.starts_with("val/")));
}

#[test]
fn a_stream_resumes_with_the_same_bits_under_other_threads_and_budgets() {
    let folder = retinas();
    let mut stream = open(folder.path(), &settings(), &resources(Bytes::mib(64), 1)).unwrap();
    let whole = [found(&mut stream), found(&mut stream)].concat();
    assert_eq!(whole.iter().map(|batch| batch.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    let small = resources(Bytes::mib(24), 3);
    let mut first = open(folder.path(), &settings(), &small).unwrap();
    assert_eq!(found(&mut first), whole[..4]);
    let state = first.state().unwrap();
    assert!(small.budget.peak() <= Bytes::mib(24));
    drop(first);
    assert_eq!(small.budget.used(), Bytes::ZERO);
    let mut second = open(folder.path(), &settings(), &resources(Bytes::mib(64), 2)).unwrap();
    second.restore(&state).unwrap();
    assert_eq!(found(&mut second), whole[4..]);
    let other = PatchSettings { augmentation: AugmentationChoice::Off, ..settings() };
    let failure = open(folder.path(), &other, &small).unwrap().restore(&state).unwrap_err();
    assert!(failure.to_string().contains("augmentation"), "{failure}");
}

#[test]
fn mixed_images_have_shares_of_two_classes() {
    let folder = retinas();
    let mixed =
        PatchSettings { augmentation: AugmentationChoice::Values("{\"mixup\": 0.5}".into()), ..settings() };
    let budget = resources(Bytes::mib(64), 1);
    let mut stream = open(folder.path(), &mixed, &budget).unwrap();
    let checked = epoch(&mut stream, |batch| {
        assert_eq!(batch.label_shape(), [4, GRADES.len()]);
        for (shares, label) in batch.shares().chunks_exact(GRADES.len()).zip(batch.labels()) {
            assert!((shares.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{shares:?}");
            assert!(shares.iter().filter(|share| **share > 1e-6).count() <= 2, "{shares:?}");
            assert!(shares[usize::from(*label)] > 0.0, "{shares:?} {label}");
        }
    });
    assert_eq!(checked.len(), 4);
}

#[test]
fn the_budget_holds_and_one_that_is_too_small_is_refused_with_the_limit_that_would_do() {
    let folder = retinas();
    let mut limit = Bytes::mib(2);
    for refusals in 0.. {
        let small = resources(limit, 2);
        match open(folder.path(), &settings(), &small) {
            Ok(mut stream) => {
                assert!(refusals > 0 && found(&mut stream).len() == 4);
                assert!(small.budget.peak() <= limit);
                return;
            }
            Err(Failure::OverLimit(over)) => {
                let needed = over.limit - over.free + over.needed;
                assert!(needed > limit && refusals < 16, "{needed} of {limit}");
                limit = needed;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn settings_of_a_loss_or_of_volumes_are_refused() {
    let folder = retinas();
    let all = resources(Bytes::mib(64), 1);
    let argument = |settings: PatchSettings| match open(folder.path(), &settings, &all).err().unwrap() {
        Failure::Argument { argument, .. } => argument,
        other => panic!("{other}"),
    };
    let images = |images: ImageSettings| PatchSettings { images: Some(images), ..settings() };
    let unknown = ImageSettings { classes: Some(vec!["5_none".into()]), ..ImageSettings::default() };
    assert_eq!(argument(images(unknown)), "images");
    assert_eq!(argument(images(ImageSettings { clahe: Some(-1.0), ..ImageSettings::default() })), "images");
    assert_eq!(argument(PatchSettings { patch_size: vec![3, 20, 24], ..settings() }), "patch_size");
    assert_eq!(argument(PatchSettings { patch_size: vec![20_000, 24], ..settings() }), "patch_size");
}
