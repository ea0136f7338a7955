//! Batches of images: mixed with each other, the same whatever makes them, and never when validating.

use std::path::Path;
use std::sync::Arc;

use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_data::pictures::{
    Augmentation, ImageDataset, Largest, Pipeline, PipelineSettings, PreparedCache, Split, Step,
};
use plimsoll_data::{
    Answer, BatchReader, BatchShape, ImageFold, ImageSamples, Loader, LoaderConfig, Mode, Samples, Sampling,
};
use plimsoll_image::{Extent, ImageFile};
use plimsoll_memory::{Budget, Bytes};

const BATCH: usize = 6;
const SEED: u64 = 11;

fn dataset(folder: &Path, budget: &Budget) -> Arc<ImageDataset> {
    phantom::write(folder, &PhantomImages { images: [3, 2, 0], side: 24, seed: 4 }).unwrap();
    Arc::new(ImageDataset::from_folders(folder, budget).unwrap())
}

/// Samples of all images to train on, of which each fifth class has three.
fn samples(dataset: &Arc<ImageDataset>, mixup: f64, answer: Answer, budget: &Budget) -> Arc<ImageSamples> {
    let mut largest = Largest::default();
    for case in &dataset.cases {
        largest.include(&ImageFile::open(&case.path, &Default::default()).unwrap()).unwrap();
    }
    let steps = vec![Step::Resize { height: 16, width: 16, filter: Default::default() }];
    let pipeline = Pipeline::new(PipelineSettings { steps, ..Default::default() }, largest).unwrap();
    let of = |split| {
        let places = dataset.in_split(Some(split)).into_iter();
        places.map(|at| (dataset.cases[at].labels[0] as u8, at as u32)).collect()
    };
    let fold = ImageFold {
        train: of(Split::Train),
        val: of(Split::Val),
        sampling: Sampling::Shuffled,
        batch: BATCH,
        answer,
    };
    let augmentation = Augmentation { flip_horizontal: 0.5, brightness: 0.3, mixup, ..Default::default() };
    let part = budget.part("cache", Bytes(40_000)).unwrap();
    let cache = PreparedCache::new(part, dataset.cases.len(), budget).unwrap();
    Arc::new(ImageSamples::new(Arc::clone(dataset), fold, pipeline, augmentation, cache, budget).unwrap())
}

/// Images, labels, shifts of targets and cases of a step.
type Found = (Vec<f32>, Vec<u8>, Vec<f32>, Vec<usize>);

fn batches(samples: &Arc<ImageSamples>, first_step: u64, threads: usize, count: usize) -> Vec<Found> {
    let budget = Budget::new(Bytes::mib(64));
    let scratch = Bytes::mib(4);
    let config = LoaderConfig {
        mode: Mode::Training,
        seed: SEED,
        first_step,
        batch_size: BATCH,
        numbers: plimsoll_data::SampleNumbers::ALL,
        slots: 3,
        threads,
        scratch,
    };
    let bytes = config.bytes(samples.shape(), samples.targets()).unwrap();
    let mut loader = Loader::start(config, samples.clone(), &Budget::new(bytes)).unwrap();
    assert!(budget.used() == Bytes::ZERO);
    let found = (0..count).map(|_| {
        let batch = loader.next_batch().unwrap();
        (batch.images().into(), batch.labels().into(), batch.shifts().into(), batch.cases().into())
    });
    found.collect()
}

#[test]
fn mixed_images_are_shares_of_two_of_their_batch_and_so_are_their_targets() {
    let dir = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let dataset = dataset(dir.path(), &budget);
    let answer = Answer::OneOf { classes: 5 };
    let alpha = 0.4;
    let plain = batches(&samples(&dataset, 0.0, answer.clone(), &budget), 0, 1, 4);
    let mixed = batches(&samples(&dataset, alpha, answer, &budget), 0, 1, 4);
    // The same recipes as the samples draw.
    let augmentation = Augmentation { mixup: alpha, ..Default::default() };
    let extent = Extent { height: 16, width: 16 };
    let (mut others, values) = (0, 3 * 16 * 16);
    for (step, (plain, mixed)) in plain.iter().zip(&mixed).enumerate() {
        assert!(plain.2.is_empty(), "without mixing labels are all");
        assert_eq!((&plain.1, &plain.3), (&mixed.1, &mixed.3));
        for sample in 0..BATCH {
            let recipe = augmentation.recipe(SEED, step as u64, sample as u64, BATCH, extent);
            let mixing = recipe.mixing.unwrap();
            let (own, other) = (sample, mixing.partner);
            others += usize::from(plain.1[own] != plain.1[other]);
            for at in 0..values {
                let expected = mixing.share * plain.0[own * values + at]
                    + (1.0 - mixing.share) * plain.0[other * values + at];
                assert_eq!(mixed.0[own * values + at].to_bits(), expected.to_bits());
            }
            for class in 0..5 {
                let is = |sample: usize| f32::from(u8::from(usize::from(plain.1[sample]) == class));
                let expected = is(own) - (mixing.share * is(own) + (1.0 - mixing.share) * is(other));
                assert_eq!(mixed.2[own * 5 + class], expected);
            }
        }
    }
    assert!(others > 10, "{others} of 24 are mixed with another class");
}

#[test]
fn mixed_batches_are_the_same_whatever_the_threads_and_after_going_on() {
    let dir = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let dataset = dataset(dir.path(), &budget);
    let samples = samples(&dataset, 0.4, Answer::OneOf { classes: 5 }, &budget);
    let all = batches(&samples, 0, 1, 6);
    assert!(all[0].0 != all[1].0);
    assert!(batches(&samples, 0, 3, 6) == all);
    assert!(batches(&samples, 4, 2, 2) == all[4..]);
}

#[test]
fn images_are_validated_unmixed_and_thresholds_are_targets_of_both() {
    let dir = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let dataset = dataset(dir.path(), &budget);
    let read = |mixup, answer| {
        let samples = samples(&dataset, mixup, answer, &budget);
        let mut reader =
            BatchReader::new(samples.clone(), Mode::Validation, SEED, 1, Bytes::mib(4), &budget).unwrap();
        assert_eq!(samples.shape(), BatchShape { batch_size: 1, sample: samples.shape() }.sample);
        let found = (0..10).map(|step| {
            let batch = reader.load(step).unwrap();
            (batch.images().to_vec(), batch.labels().to_vec(), batch.shifts().to_vec(), batch.cases()[0])
        });
        found.collect::<Vec<_>>()
    };
    let plain = read(0.0, Answer::OneOf { classes: 5 });
    let mixed = read(0.4, Answer::OneOf { classes: 5 });
    let ordinal = read(0.4, Answer::Ordinal { classes: 5 });
    for ((plain, mixed), ordinal) in plain.iter().zip(&mixed).zip(&ordinal) {
        assert!((&plain.0, &plain.1, plain.3) == (&mixed.0, &mixed.1, mixed.3) && plain.0 == ordinal.0);
        assert_eq!(dataset.cases[plain.3].split, Some(Split::Val));
        assert_eq!(mixed.2, [0.0; 5]);
        let grade = dataset.cases[plain.3].labels[0] as usize;
        let target: Vec<f32> = ordinal
            .2
            .iter()
            .enumerate()
            .map(|(at, shift)| f32::from(u8::from(at == usize::from(ordinal.1[0]))) - shift)
            .collect();
        let expected: Vec<f32> = (0..4).map(|at| f32::from(u8::from(grade > at))).collect();
        assert_eq!(target, expected);
    }
}

#[test]
fn shares_are_from_a_beta_distribution() {
    let extent = Extent { height: 8, width: 8 };
    for alpha in [0.2, 1.0, 4.0] {
        let augmentation = Augmentation { mixup: alpha, ..Default::default() };
        let count = 4000;
        let shares: Vec<f64> = (0..count)
            .map(|sample| f64::from(augmentation.recipe(1, 0, sample, 16, extent).mixing.unwrap().share))
            .collect();
        let mean = shares.iter().sum::<f64>() / count as f64;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count as f64;
        // Of Beta(α, α): ½, and 1 / (4 (2 α + 1)).
        let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
        assert!((mean - 0.5).abs() < 5.0 * (expected / count as f64).sqrt(), "{alpha}: {mean}");
        assert!((variance / expected - 1.0).abs() < 0.1, "{alpha}: {variance}, {expected}");
    }
}
