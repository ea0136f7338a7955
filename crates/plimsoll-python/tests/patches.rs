//! Streams of batches of small phantoms.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::path::Path;
use std::time::Duration;

use plimsoll::{Context, DataPlace, FoldRequest, PhantomConfig, write_phantoms};
use plimsoll_data::Mode;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::Settings;

use plimsoll_python::{
    AugmentationChoice, EpochLength, Failure, LabelType, PatchBatch, PatchOptions, PatchSettings,
    PatchStream, Resources, Turn,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a phantom of four cases.
fn phantom() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = PhantomConfig { cases: 4, test_cases: 0, size: [24, 40], ..PhantomConfig::default() };
    write_phantoms(folder.path(), &config).unwrap();
    folder
}

fn request(place: &Path) -> FoldRequest {
    FoldRequest {
        place: DataPlace::Path(place.into()),
        settings: Settings::default(),
        allow_outside: false,
        skip_bad_cases: false,
        fold: None,
        threads: 2,
    }
}

fn settings() -> PatchSettings {
    PatchSettings {
        patch_size: vec![8, 16, 16],
        batch_size: 2,
        spacing: None,
        augmentation: AugmentationChoice::Usual,
        oversample_foreground: None,
        images: None,
        seed: 3,
        section: Mode::Training,
    }
}

const OPTIONS: PatchOptions =
    PatchOptions { epoch: EpochLength::Batches(4), prefetch: 2, labels: LabelType::Usual };

fn resources(bytes: Bytes, threads: usize) -> Resources {
    Resources { budget: Budget::new(bytes), threads }
}

fn open(
    request: &FoldRequest,
    settings: PatchSettings,
    options: PatchOptions,
    resources: &Resources,
) -> Result<PatchStream, Failure> {
    PatchStream::open(request, &settings, options, resources, &Context::default())
}

/// Step, bits of the images, labels, cases.
type Found = (u64, Vec<u32>, Vec<u8>, Vec<String>);

fn found(batch: &PatchBatch) -> Found {
    let bits = batch.images().iter().map(|value| value.to_bits()).collect();
    (batch.step(), bits, batch.labels().to_vec(), batch.cases().to_vec())
}

/// At most `count` batches of an epoch.
fn take(stream: &mut PatchStream, count: usize) -> Vec<Found> {
    let epoch = stream.begin();
    let mut all = Vec::new();
    while all.len() < count {
        match stream.next(epoch, PATIENCE).unwrap() {
            Turn::Batch(batch) => all.push(found(&batch)),
            Turn::Waiting => {}
            Turn::End => break,
        }
    }
    all
}

#[test]
fn a_stream_resumes_with_the_same_bits_under_other_threads_and_budgets() {
    let folder = phantom();
    let request = request(folder.path());
    let whole = {
        let mut stream = open(&request, settings(), OPTIONS, &resources(Bytes::mib(64), 1)).unwrap();
        [take(&mut stream, 9), take(&mut stream, 9), take(&mut stream, 9)].concat()
    };
    assert_eq!(whole.iter().map(|batch| batch.0).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    let facts = resources(Bytes::mib(48), 3);
    let mut first = open(&request, settings(), OPTIONS, &facts).unwrap();
    assert_eq!(take(&mut first, 9), whole[..4]);
    assert_eq!(take(&mut first, 2), whole[4..6]);
    let state = first.state().unwrap();
    drop(first);
    assert_eq!(facts.budget.used(), Bytes::ZERO);
    let wide = PatchOptions { labels: LabelType::Words, prefetch: 3, ..OPTIONS };
    let mut second = open(&request, settings(), wide, &resources(Bytes::mib(64), 2)).unwrap();
    // Begun, but not at this position.
    take(&mut second, 1);
    second.restore(&state).unwrap();
    assert_eq!(take(&mut second, 9), whole[6..8], "the rest of the second epoch");
    let at_end = second.state().unwrap();
    assert_eq!(take(&mut second, 9), whole[8..]);
    second.restore(&at_end).unwrap();
    assert_eq!(take(&mut second, 9), whole[8..], "a whole epoch follows a whole one");
}

#[test]
fn a_state_of_other_settings_or_data_is_refused_by_name() {
    let folder = phantom();
    let request = request(folder.path());
    let all = resources(Bytes::mib(64), 1);
    let state = open(&request, settings(), OPTIONS, &all).unwrap().state().unwrap();
    let refusal = |request: &FoldRequest, settings: PatchSettings| {
        let failure = open(request, settings, OPTIONS, &all).unwrap().restore(&state).unwrap_err();
        assert!(matches!(failure, Failure::Argument { argument: "state_dict", .. }), "{failure}");
        failure.to_string()
    };
    assert!(refusal(&request, PatchSettings { seed: 4, ..settings() }).contains("seed=3"));
    assert!(refusal(&request, PatchSettings { batch_size: 1, ..settings() }).contains("batch_size=2"));
    let other = PatchSettings { augmentation: AugmentationChoice::Off, ..settings() };
    assert!(refusal(&request, other).contains("augmentation"));
    let fold = FoldRequest { fold: Some(1), ..request.clone() };
    assert!(refusal(&fold, settings()).contains("fold"));
    let mut stream = open(&request, settings(), OPTIONS, &all).unwrap();
    for text in ["{}", "[]", "{\"step\": -1}"] {
        assert!(stream.restore(text).unwrap_err().to_string().contains("is not the state"), "{text}");
    }
    assert_eq!(stream.restore(&state), Ok(()));
}

#[test]
fn epochs_of_validation_have_the_same_patches_of_the_fold() {
    let folder = phantom();
    let request = FoldRequest { fold: Some(0), ..request(folder.path()) };
    let validation = PatchSettings { section: Mode::Validation, ..settings() };
    let all = resources(Bytes::mib(64), 2);
    let mut stream = open(&request, validation, OPTIONS, &all).unwrap();
    let cases = stream.facts().cases.clone();
    assert_eq!(cases.len(), 1, "of four cases in four folds");
    let first = take(&mut stream, 9);
    assert!(first.len() == 4 && first.iter().all(|batch| batch.3.iter().all(|case| cases.contains(case))));
    assert_eq!(take(&mut stream, 3), first[..3]);
    assert_eq!(take(&mut stream, 9), first);
    let training = open(&request, settings(), OPTIONS, &all).unwrap();
    assert!(training.facts().cases.len() == 3 && !training.facts().cases.contains(&cases[0]));
    let labels = training.facts().labels.keys().cloned().collect::<Vec<_>>();
    assert!(labels.contains(&"background".to_string()), "{labels:?}");
}

#[test]
fn the_budget_holds_and_one_that_is_too_small_is_refused_with_the_limit_that_would_do() {
    let folder = phantom();
    let request = request(folder.path());
    let mut limit = Bytes(64 << 10);
    let mut refusals = 0;
    let enough = loop {
        let small = resources(limit, 2);
        match open(&request, settings(), OPTIONS, &small) {
            Ok(mut stream) => {
                assert_eq!(take(&mut stream, 9).len(), 4);
                assert!(small.budget.peak() <= limit);
                break small;
            }
            Err(Failure::OverLimit(over)) => {
                let needed = over.limit - over.free + over.needed;
                assert!(needed > limit, "{needed} of {limit}");
                limit = needed;
                refusals += 1;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(small.budget.used() == Bytes::ZERO && refusals < 12, "{:?}", small.budget);
    };
    assert!(refusals > 0 && enough.budget.used() == Bytes::ZERO);
}

#[test]
fn batches_that_are_kept_are_an_error_before_the_memory_is_used_up() {
    let folder = phantom();
    let all = resources(Bytes::mib(64), 1);
    let options = PatchOptions { epoch: EpochLength::Endless, ..OPTIONS };
    let mut stream = open(&request(folder.path()), settings(), options, &all).unwrap();
    let epoch = stream.begin();
    let mut kept = Vec::new();
    let failure = loop {
        match stream.next(epoch, PATIENCE) {
            Ok(Turn::Batch(batch)) => kept.push(batch),
            Ok(Turn::Waiting | Turn::End) => panic!("there is no end"),
            Err(failure) => break failure,
        }
    };
    assert_eq!(kept.len(), 3, "one thread and two more");
    assert!(failure.remedy().unwrap().contains(".clone()"), "{failure}");
    let (expected, peak) = (found(&kept[2]), all.budget.peak());
    kept.truncate(2);
    assert!(matches!(stream.next(epoch, PATIENCE), Ok(Turn::Batch(batch)) if batch.step() == 3));
    assert_ne!(found(&kept[0]), expected);
    assert_eq!(all.budget.peak(), peak);
    // An older iteration does not take batches of a newer one.
    let newer = stream.begin();
    assert!(stream.next(epoch, PATIENCE).is_err());
    assert!(stream.next(newer, PATIENCE).is_ok());
    drop(stream);
    assert!(all.budget.used() > Bytes::ZERO, "batches outlive their stream");
    drop(kept);
    assert_eq!(all.budget.used(), Bytes::ZERO);
}

#[test]
fn a_case_that_is_gone_is_named_and_the_stream_continues_once_it_is_back() {
    let folder = phantom();
    let image = fs::read_dir(folder.path().join("imagesTr")).unwrap().next().unwrap().unwrap().path();
    let aside = folder.path().join("aside");
    let all = resources(Bytes::mib(64), 2);
    let endless = PatchOptions { epoch: EpochLength::Endless, ..OPTIONS };
    let mut stream = open(&request(folder.path()), settings(), endless, &all).unwrap();
    fs::rename(&image, &aside).unwrap();
    let epoch = stream.begin();
    let failure = loop {
        match stream.next(epoch, PATIENCE) {
            Ok(Turn::End) => panic!("no batch has the case"),
            Ok(_) => {}
            Err(failure) => break failure.to_string(),
        }
    };
    let name = image.file_name().unwrap().to_string_lossy().into_owned();
    assert!(failure.contains(&name) && failure.contains("case "), "{failure}");
    fs::rename(&aside, &image).unwrap();
    assert_eq!(take(&mut stream, 9).len(), 9);
}

#[test]
fn lists_in_memory_have_the_cases_of_their_files() {
    let folder = phantom();
    let stems: Vec<String> = fs::read_dir(folder.path().join("labelsTr"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().replace(".nii.gz", ""))
        .collect();
    let entry = |stem: &String| {
        format!("{{\"image\": \"imagesTr/{stem}_0000.nii.gz\", \"label\": \"labelsTr/{stem}.nii.gz\"}}")
    };
    let text = format!("{{\"training\": [{}]}}", stems.iter().map(entry).collect::<Vec<_>>().join(", "));
    let list = |text: &str| FoldRequest {
        place: DataPlace::List { text: text.into(), folder: folder.path().into() },
        ..request(folder.path())
    };
    let all = resources(Bytes::mib(64), 2);
    let mut stream = open(&list(&text), settings(), OPTIONS, &all).unwrap();
    assert_eq!(stream.facts().cases.len(), stems.len());
    assert_eq!(take(&mut stream, 9).len(), 4);
    let missing = text.replacen("imagesTr/", "nowhere/", 1);
    let failure = open(&list(&missing), settings(), OPTIONS, &all).err().unwrap();
    assert!(failure.to_string().contains("nowhere"), "{failure}");
    let outside = text.replacen("imagesTr/", "../", 1);
    let failure = open(&list(&outside), settings(), OPTIONS, &all).err().unwrap();
    assert!(failure.remedy().unwrap().contains("allow_outside=True"), "{failure}");
}

#[test]
fn impossible_arguments_are_named() {
    let folder = phantom();
    let all = resources(Bytes::mib(64), 1);
    let argument = |settings: PatchSettings, options: PatchOptions| match open(
        &request(folder.path()),
        settings,
        options,
        &all,
    )
    .err()
    .unwrap()
    {
        Failure::Argument { argument, .. } => argument,
        other => panic!("{other}"),
    };
    let augmentation = AugmentationChoice::Values("{\"p_rotation\": 2}".into());
    assert_eq!(argument(PatchSettings { augmentation, ..settings() }, OPTIONS), "augmentation");
    assert_eq!(
        argument(PatchSettings { oversample_foreground: Some(2.0), ..settings() }, OPTIONS),
        "oversample_foreground"
    );
    assert_eq!(
        argument(PatchSettings { patch_size: vec![usize::MAX; 3], ..settings() }, OPTIONS),
        "patch_size"
    );
    assert_eq!(argument(settings(), PatchOptions { prefetch: 0, ..OPTIONS }), "prefetch");
    let endless = PatchOptions { epoch: EpochLength::Batches(0), ..OPTIONS };
    assert_eq!(argument(settings(), endless), "iterations_per_epoch");
    let nowhere = open(&request(Path::new("/nowhere")), settings(), OPTIONS, &all).err().unwrap();
    assert!(nowhere.to_string().contains("/nowhere"), "{nowhere}");
    let fold = FoldRequest { fold: Some(9), ..request(folder.path()) };
    assert!(open(&fold, settings(), OPTIONS, &all).err().unwrap().to_string().contains('9'));
}
