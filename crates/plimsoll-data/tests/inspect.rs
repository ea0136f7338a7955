//! The problems that an inspection reports.

use crate::support;

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::{
    Dataset, InspectConfig, InspectError, Inspection, InspectionScan, MergedParts, PartFiles, Problem,
    Severity, VolumeCache, inspect_images, phantom,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing};
use serde_json::json;
use support::{Raw, block, grid, inspect, only, write_image};

const SHAPE: [usize; 3] = [6, 7, 8];
const COUNT: usize = 6 * 7 * 8;

fn sound(channels: &[&str]) -> (Raw, Geometry) {
    let raw = Raw::new(channels, json!({"background": 0, "organ": 1, "tumour": 2}));
    let geometry = grid(SHAPE, [2.0, 1.0, 1.0]);
    raw.case("a", channels.len(), &geometry, &block(SHAPE));
    (raw, geometry)
}

fn problems(raw: &Raw) -> Vec<Problem> {
    let inspection = inspect(&raw.open());
    for problem in &inspection.problems {
        assert!(problem.hint.is_some(), "{problem}");
        assert!(problem.to_string().contains(&problem.file.display().to_string()), "{problem}");
    }
    let has_errors = inspection.problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(inspection.has_errors(), has_errors);
    let sound = inspection.fingerprint.map_or(0, |fingerprint| fingerprint.cases.len());
    assert_eq!(sound, inspection.foreground.len());
    assert_eq!(sound == 0, has_errors, "the only case is valid unless a problem is an error");
    inspection.problems
}

/// The only problem, which must be an error of this file with this text.
fn only_error(raw: &Raw, file: &std::path::Path, text: &str) {
    let problems = problems(raw);
    let problem = only(&problems);
    assert_eq!(
        (problem.severity, problem.case.as_str(), problem.file.as_path()),
        (Severity::Error, "a", file)
    );
    assert!(problem.text.contains(text), "{problem}");
}

#[test]
fn a_valid_data_set_has_no_problems() {
    assert_eq!(problems(&sound(&["CT", "PET"]).0), []);
}

#[test]
fn a_truncated_file_is_damaged() {
    let (raw, _) = sound(&["CT"]);
    let bytes = fs::read(raw.image("a", 0)).unwrap();
    fs::write(raw.image("a", 0), &bytes[..bytes.len() - 20]).unwrap();
    only_error(&raw, &raw.image("a", 0), "is damaged: decompression failed");
    fs::write(raw.image("a", 0), &bytes).unwrap();
    let bytes = fs::read(raw.label("a")).unwrap();
    fs::write(raw.label("a"), &bytes[..30]).unwrap();
    only_error(&raw, &raw.label("a"), "");
}

#[test]
fn a_file_that_is_not_an_image_is_named_with_the_error() {
    let (raw, _) = sound(&["CT"]);
    fs::write(raw.image("a", 0), [7; 1000]).unwrap();
    let problems = problems(&raw);
    assert_eq!(only(&problems).file, raw.image("a", 0));
}

#[test]
fn channels_on_different_grids_are_told_apart() {
    let (raw, _) = sound(&["CT", "PET"]);
    let other = grid([6, 7, 9], [2.0, 1.0, 1.0]);
    write_image(&raw.image("a", 1), &other, 1, ElementType::U8, &[1.0; 6 * 7 * 9]);
    let problems = problems(&raw);
    let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
    assert!(texts[0].contains("it has shape [6, 7, 9], but the first channel has [6, 7, 8]"), "{texts:?}");
    assert_eq!(problems[0].file, raw.image("a", 1));
}

fn shifted(by: f64) -> Geometry {
    let mut affine = Affine::from_spacing(Spacing([2.0, 1.0, 1.0]));
    affine.0[1][3] += by;
    Geometry::new(SHAPE, affine).unwrap()
}

#[test]
fn an_affine_that_differs_is_measured() {
    let (raw, _) = sound(&["CT"]);
    let labels: Vec<f32> = block(SHAPE).iter().map(|label| f32::from(*label)).collect();
    let write = |by| write_image(&raw.label("a"), &shifted(by), 1, ElementType::U8, &labels);
    write(3.5);
    only_error(&raw, &raw.label("a"), "up to 3.500 mm from where the affine of the image places it");
    // Less than half a voxel is a warning.
    write(0.25);
    let found = problems(&raw);
    assert_eq!(only(&found).severity, Severity::Warning);
    assert!(only(&found).text.contains("0.250 mm"));
    write(0.0005);
    assert_eq!(problems(&raw), []);
}

#[test]
fn images_with_tiny_voxels_are_compared_relative_to_their_spacing() {
    let raw = Raw::new(&["microscopy"], json!({"background": 0, "cell": 1}));
    let geometry = |by: f64| {
        let mut affine = Affine::from_spacing(Spacing([0.001; 3]));
        affine.0[0][3] += by;
        Geometry::new(SHAPE, affine).unwrap()
    };
    raw.case("a", 1, &geometry(0.0), &block(SHAPE));
    let labels: Vec<f32> = block(SHAPE).iter().map(|label| f32::from(*label)).collect();
    // A shift of 0.9 µm is below the absolute tolerance of 1 µm.
    write_image(&raw.label("a"), &geometry(0.0009), 1, ElementType::U8, &labels);
    only_error(&raw, &raw.label("a"), "up to 0.900 µm from");
}

#[test]
fn unexpected_labels_are_reported_with_count_and_position() {
    let (raw, geometry) = sound(&["CT"]);
    let mut labels = vec![0.0; COUNT];
    labels[8 * 7 + 9] = 7.0;
    labels[8 * 7 + 10] = 7.0;
    labels[COUNT - 1] = -1.0;
    labels[5] = 1.5;
    write_image(&raw.label("a"), &geometry, 1, ElementType::F32, &labels);
    let problems = problems(&raw);
    let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].starts_with("1 voxels are -1, ") && texts[0].contains("[5, 6, 7]"), "{}", texts[0]);
    assert!(texts[1].starts_with("1 voxels are 1.5, ") && texts[1].contains("[0, 0, 5]"), "{}", texts[1]);
    assert!(texts[2].starts_with("2 voxels are 7, ") && texts[2].contains("[1, 1, 1]"), "{}", texts[2]);
}

#[test]
fn an_image_among_the_labels_does_not_cause_a_thousand_problems() {
    let (raw, geometry) = sound(&["CT"]);
    let values: Vec<f32> = (0..COUNT).map(|i| i as f32 * 0.37 - 20.0).collect();
    write_image(&raw.label("a"), &geometry, 1, ElementType::F32, &values);
    let problems = problems(&raw);
    assert_eq!(problems.len(), 9);
    let last = &problems[8].text;
    assert!(
        last.contains(&format!("{} more voxels", COUNT - 8 - 1)) || last.contains("more voxels"),
        "{last}"
    );
}

#[test]
fn non_finite_voxels_are_reported_with_count_and_position() {
    let (raw, geometry) = sound(&["CT"]);
    let mut values = vec![3.0; COUNT];
    values[8] = f32::NAN;
    values[100] = f32::INFINITY;
    write_image(&raw.image("a", 0), &geometry, 1, ElementType::F32, &values);
    only_error(&raw, &raw.image("a", 0), "2 voxels that are not finite; the first is NaN at [0, 1, 0]");
}

#[test]
fn a_constant_image_and_an_empty_label_map_are_warnings() {
    let (raw, geometry) = sound(&["CT"]);
    write_image(&raw.image("a", 0), &geometry, 1, ElementType::U8, &[3.0; COUNT]);
    write_image(&raw.label("a"), &geometry, 1, ElementType::U8, &[0.0; COUNT]);
    let problems = problems(&raw);
    assert!(problems.iter().all(|problem| problem.severity == Severity::Warning));
    let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
    assert_eq!(texts, ["the label map has no foreground", "channel CT is 3 everywhere"]);
}

#[test]
fn files_with_another_number_of_channels_are_errors() {
    let (raw, geometry) = sound(&["CT"]);
    write_image(&raw.image("a", 0), &geometry, 2, ElementType::U8, &[1.0; 2 * COUNT]);
    let found = problems(&raw);
    assert!(found.iter().any(|problem| problem.text == "it has 2 channels, but 1 are expected"));
    let (raw, geometry) = sound(&["CT"]);
    write_image(&raw.label("a"), &geometry, 3, ElementType::U8, &[1.0; 3 * COUNT]);
    only_error(&raw, &raw.label("a"), "it has 3 channels");
}

#[test]
fn channels_that_share_a_file_have_their_own_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let description = json!({
        "modality": {"0": "T2", "1": "ADC"}, "labels": {"0": "background", "1": "gland"}, "numTraining": 1,
        "training": [{"image": "./imagesTr/p.nii.gz", "label": "./labelsTr/p.nii.gz"}],
    });
    fs::write(folder.path().join("dataset.json"), description.to_string()).unwrap();
    let geometry = grid(SHAPE, [2.0, 1.0, 1.0]);
    let image = folder.path().join("imagesTr/p.nii.gz");
    let voxels: Vec<f32> =
        (0..2 * COUNT).map(|at| if at < COUNT { 5.0 } else { (at % 2) as f32 * 8.0 }).collect();
    write_image(&image, &geometry, 2, ElementType::I16, &voxels);
    let labels: Vec<f32> = block(SHAPE).iter().map(|label| f32::from(*label)).collect();
    write_image(&folder.path().join("labelsTr/p.nii.gz"), &geometry, 1, ElementType::U8, &labels);
    let dataset = Dataset::open(folder.path()).unwrap();
    let inspection = inspect(&dataset);
    assert_eq!(only(&inspection.problems).text, "channel T2 is 5 everywhere");
    let fingerprint = inspection.fingerprint.unwrap();
    let means: Vec<f64> = fingerprint.cases[0].channels.iter().map(|channel| channel.mean).collect();
    assert_eq!(means, [5.0, 4.0]);
    assert_eq!(fingerprint.cases[0].stored_bytes, Bytes::from_len(2 * COUNT * 2));
    assert_eq!(fingerprint.foreground_intensity_properties_per_channel[&0].mean, 5.0);

    write_image(&image, &geometry, 1, ElementType::I16, &voxels[..COUNT]);
    let inspection = inspect(&dataset);
    let errors: Vec<&str> = inspection
        .problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(|problem| &*problem.text)
        .collect();
    assert_eq!(errors, ["it has 1 channels, but 2 are expected"]);
}

#[test]
fn colours_beyond_their_range_are_an_error() {
    let (raw, _) = sound(&["rgb_to_0_1"]);
    only_error(&raw, &raw.image("a", 0), "but its normalisation is for 0 to 255");
}

#[test]
fn every_problem_of_every_case_is_collected() {
    let (raw, geometry) = sound(&["CT", "PET"]);
    for id in ["b", "c", "d"] {
        raw.case(id, 2, &geometry, &block(SHAPE));
    }
    write_image(&raw.image("b", 0), &geometry, 1, ElementType::F32, &[f32::NAN; COUNT]);
    fs::write(raw.image("b", 1), b"nothing").unwrap();
    write_image(&raw.label("b"), &geometry, 1, ElementType::U8, &[9.0; COUNT]);
    write_image(&raw.label("d"), &grid([6, 7, 4], [1.0; 3]), 1, ElementType::U8, &[1.0; 6 * 7 * 4]);
    let inspection = inspect(&raw.open());
    let cases: Vec<&str> = inspection.problems.iter().map(|problem| &*problem.case).collect();
    assert_eq!(cases, ["b", "b", "b", "d"]);
    let fingerprint = inspection.fingerprint.as_ref().unwrap();
    assert_eq!(fingerprint.cases.iter().map(|case| &*case.id).collect::<Vec<_>>(), ["a", "c"]);
    assert!(fingerprint.case("c").is_some() && fingerprint.case("b").is_none());
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let (_folder, dataset) = support::phantom(6);
    let with = |threads| {
        let done = Mutex::new(Vec::new());
        let config = InspectConfig { threads, seed: 5 };
        let budget = Budget::new(Bytes::mib(64));
        let inspection = Inspection::run(&dataset, config, &budget, &|of, all| {
            assert_eq!(all, 6);
            done.lock().unwrap().push(of);
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, [1, 2, 3, 4, 5, 6]);
        assert_eq!(budget.used(), inspection.index_bytes(), "only the index is still held");
        inspection
    };
    let (one, five) = (with(1), with(5));
    assert_eq!(one.fingerprint, five.fingerprint);
    assert_eq!(one.problems, five.problems);
    for (a, b) in one.foreground.iter().zip(&five.foreground) {
        let all = |index: &plimsoll_data::ForegroundIndex| {
            let positions = index.positions(1);
            (0..positions.len()).map(|nth| positions.voxel(nth, [100; 3])).collect::<Vec<_>>()
        };
        assert_eq!(all(a), all(b));
    }
}

#[test]
fn an_outlier_is_reported_with_the_memory_that_it_would_need() {
    let folder = tempfile::tempdir().unwrap();
    let config = phantom::PhantomConfig { cases: 5, size: [30, 40], ..Default::default() };
    phantom::write(folder.path(), &config).unwrap();
    let inspection = inspect(&Dataset::open(folder.path()).unwrap());
    let problem = only(&inspection.problems).clone();
    assert_eq!(problem.severity, Severity::Warning);
    assert!(problem.text.starts_with("its spacing is 4.970 × 4.970 × 4.970 µm"), "{problem}");
    let fingerprint = inspection.fingerprint.unwrap();
    let case = fingerprint.case(&problem.case).unwrap();
    let target = fingerprint.target_spacing;
    let grid = plimsoll_data::PatchGrid { patch: [32; 3], spacing: target.into() };
    let blow_up = &fingerprint.blow_ups(&grid)[0];
    let expected: Vec<usize> = (0..3)
        .map(|axis| (case.spacing().0[axis] / target.0[axis] * case.shape()[axis] as f64).round() as usize)
        .collect();
    assert_eq!(blow_up.resampled_shape.to_vec(), expected);
    assert_eq!(blow_up.whole, Bytes::from_len(expected.iter().product::<usize>() * 4));
    assert_eq!(blow_up.patch, Bytes::from_len(32 * 32 * 32 * 4));
    assert!(blow_up.source < Bytes::from_len(10 * 10 * 10 * 4), "{}", blow_up.source);
}

#[test]
fn a_plane_that_does_not_fit_the_budget_is_an_error_with_the_case() {
    let (raw, _) = sound(&["CT"]);
    let config = InspectConfig { threads: 1, seed: 1 };
    let error = Inspection::run(&raw.open(), config, &Budget::new(Bytes(1_900_000)), &|_, _| ()).unwrap_err();
    assert!(matches!(&error, InspectError::Case { case, .. } if case == "a"), "{error}");
    assert!(error.to_string().contains("inspection needs") && error.remedy().is_some(), "{error}");
}

#[test]
fn threads_wait_for_each_other_within_a_budget_for_one() {
    let (_folder, dataset) = support::phantom(6);
    let run = |threads, budget: &Budget| {
        Inspection::run(&dataset, InspectConfig { threads, seed: 1 }, budget, &|_, _| ())
    };
    let roomy = Budget::new(Bytes::mib(64));
    let inspection = run(1, &roomy).unwrap();
    let tight = Budget::new(roomy.peak() + inspection.index_bytes());
    assert_eq!(run(6, &tight).unwrap().fingerprint, inspection.fingerprint);
}

#[test]
fn images_to_predict_are_inspected_without_labels() {
    let (raw, geometry) = sound(&["CT", "PET"]);
    let dataset = raw.open();
    let (budget, stop) = (Budget::new(Bytes::mib(4)), AtomicBool::new(false));
    let inspect_first = || inspect_images(&dataset.cases[0], &dataset.channels, None, &budget, &stop);
    let (problems, fingerprint) = inspect_first().unwrap();
    assert_eq!(problems, []);
    let with_labels = inspect(&dataset).fingerprint.unwrap().cases.remove(0);
    let fingerprint = fingerprint.unwrap();
    assert_eq!(fingerprint.channels, with_labels.channels);
    assert!(fingerprint.label_voxels.is_empty());
    write_image(&raw.image("a", 1), &geometry, 1, ElementType::F32, &[f32::NAN; COUNT]);
    let (problems, fingerprint) = inspect_first().unwrap();
    assert_eq!((problems.len(), fingerprint), (1, None));
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(inspect_first(), Err(InspectError::Stopped)));
    assert_eq!(budget.used(), Bytes::ZERO);
}

#[test]
fn images_that_are_kept_are_read_once_and_found_to_be_the_same() {
    let (raw, geometry) = sound(&["CT", "PET"]);
    let dataset = raw.open();
    let case = &dataset.cases[0];
    let (budget, stop) = (Budget::new(Bytes::mib(4)), AtomicBool::new(false));
    let found = |cache: Option<&VolumeCache>| inspect_images(case, &dataset.channels, cache, &budget, &stop);
    let damaged = [f32::NAN; COUNT];
    for write_damaged in [false, true] {
        if write_damaged {
            write_image(&raw.image("a", 1), &geometry, 1, ElementType::F32, &damaged);
        }
        let alone = found(None).unwrap();
        // Room for both images, and for none.
        for (room, kept) in [(Bytes::mib(1), 2), (Bytes(4), 0)] {
            let cache = VolumeCache::new(Budget::new(room));
            assert_eq!(found(Some(&cache)).unwrap(), alone);
            let read = cache.statistics();
            assert_eq!((read.misses, read.hits), (kept, 0), "{room}: {read:?}");
            for path in case.image_files() {
                cache.get(path).unwrap();
            }
            assert_eq!(cache.statistics().hits, kept);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let cache = VolumeCache::new(Budget::new(Bytes::mib(1)));
    assert!(matches!(found(Some(&cache)), Err(InspectError::Stopped)));
    assert_eq!(cache.statistics().now, Bytes::ZERO);
}

/// Runs a function with the surroundings of an inspection.
fn scan<T>(dataset: &Dataset, budget: &Budget, run: impl FnOnce(&InspectionScan<'_>) -> T) -> T {
    let config = InspectConfig { threads: 2, seed: 1 };
    let (asked, observe) = (AtomicBool::new(false), |_: usize, _: usize| ());
    run(&InspectionScan { dataset, config, indexes: None, asked: &asked, budget, observe: &observe })
}

/// Cases of different sizes, the last in another unit.
fn with_another_unit() -> Raw {
    let raw = Raw::new(&["CT", "PET"], json!({"background": 0, "organ": 1}));
    for (number, id) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let shape = [6 + number, 7, 8];
        let unit = if id == "e" { 1e-3 } else { 1.0 };
        raw.case(id, 2, &grid(shape, [2.0, 1.0, 1.0].map(|length| length * unit)), &block(shape));
    }
    raw
}

#[test]
fn merged_parts_have_the_bytes_of_a_whole_inspection() {
    let raw = with_another_unit();
    let damaged = fs::read(raw.image("b", 0)).unwrap();
    fs::write(raw.image("b", 0), &damaged[..40]).unwrap();
    let dataset = raw.open();
    let folder = tempfile::tempdir().unwrap();
    let [whole, merged] = ["whole", "merged"].map(|name| folder.path().join(name));
    [&whole, &merged].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    inspect(&dataset).save(&whole, &dataset).unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let parts: Vec<PartFiles> = (0..3).map(|part| PartFiles::new(folder.path(), &part.to_string())).collect();
    scan(&dataset, &budget, |scan| {
        // The third part has no case.
        scan.write_part(&[0, 4, 2], &parts[0]).unwrap();
        scan.write_part(&[3, 1], &parts[1]).unwrap();
        scan.write_part(&[], &parts[2]).unwrap();
        match scan.merge(&parts).unwrap() {
            MergedParts::Whole(inspection) => {
                let far = inspection.problems.iter().filter(|problem| problem.text.contains("times"));
                assert_eq!(
                    far.count(),
                    1,
                    "a case is taken out of the intensities: {:?}",
                    inspection.problems
                );
                assert_eq!(inspection.fingerprint.as_ref().unwrap().cases.len(), 3);
                inspection.save(&merged, &dataset).unwrap();
            }
            outdated => panic!("{outdated:?}"),
        }
    });
    for name in ["inspection.jsonl", "foreground_index.bin", "dataset_fingerprint.json"] {
        let bytes = |folder: &std::path::Path| fs::read(folder.join(name)).unwrap();
        assert!(bytes(&whole) == bytes(&merged), "{name}");
    }
    assert_eq!(budget.used(), Bytes::ZERO);
}

#[test]
fn a_part_that_has_read_other_files_or_is_damaged_is_named() {
    let raw = with_another_unit();
    let dataset = raw.open();
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let parts: Vec<PartFiles> = (0..2).map(|part| PartFiles::new(folder.path(), &part.to_string())).collect();
    scan(&dataset, &budget, |scan| {
        let outdated = || match scan.merge(&parts).unwrap() {
            MergedParts::Outdated(places) => places,
            whole => panic!("{whole:?}"),
        };
        scan.write_part(&[0, 1], &parts[0]).unwrap();
        assert_eq!(outdated(), [1], "a part is missing");
        scan.write_part(&[2, 3, 3], &parts[1]).unwrap();
        assert_eq!(outdated(), [1], "a case twice");
        scan.write_part(&[2, 3], &parts[1]).unwrap();
        assert_eq!(outdated(), [0, 1], "no part has the last case");
        scan.write_part(&[2, 3, 4], &parts[1]).unwrap();
        let positions = folder.path().join("0.bin");
        let bytes = fs::read(&positions).unwrap();
        let mut changed = bytes.clone();
        changed[0] ^= 1;
        fs::write(&positions, changed).unwrap();
        assert_eq!(outdated(), [0], "other positions");
        fs::write(&positions, bytes).unwrap();
        let lines = fs::read(parts[0].lines()).unwrap();
        fs::write(parts[0].lines(), &lines[..lines.len() - 2]).unwrap();
        assert_eq!(outdated(), [0], "a line that is cut off");
        fs::write(parts[0].lines(), lines).unwrap();
        let image = raw.image("c", 1);
        fs::write(&image, [fs::read(&image).unwrap(), vec![0]].concat()).unwrap();
        assert_eq!(outdated(), [1], "a file that has changed");
    });
}
