//! Channels that are normalised inside of the mask of what is not zero, as nnU-Net 2.8.1 does it (`oracles/nnunet_mask.py`).

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{
    Augmentation, Dataset, Fold, InspectConfig, Inspection, Mode, Normalisation, Normalising, PatchGrid,
    Patches, Recipe, SamplePlace, Sampler, SamplerConfig, Samples, Scratch, TargetGrid, VolumeCache,
    inspect_images, pull,
};
use plimsoll_memory::{Budget, Bytes, Digest};
use plimsoll_volume::{ElementType, Spacing};
use serde_json::{Value, json};
use support::{Raw, SavedLines, grid, hash, ids, inspect, numbers, only, oracle, write_image};

const SHAPE: [usize; 3] = [10, 12, 14];
const VOXELS: usize = SHAPE[0] * SHAPE[1] * SHAPE[2];

/// The case of the oracle: what makes its voxels, by their number and place.
fn voxel(channel: usize, [d, h, w]: [usize; 3]) -> f32 {
    let part = |at: usize, centre: f64, radius: f64| ((at as f64 - centre) / radius).powi(2);
    let inside = part(d, 4.5, 3.1) + part(h, 5.5, 4.1) + part(w, 6.5, 4.1) < 1.0;
    let hole = (4..6).contains(&d) && h == 5 && (6..8).contains(&w);
    let alone = channel == 1 && [d, h, w] == [3, 5, 5];
    if !inside || hole || alone {
        return 0.0;
    }
    let number = (d * SHAPE[1] + h) * SHAPE[2] + w;
    (500 * channel + hash((number + 2000 * channel) as u64) as usize % 1000 + 1) as f32
}

fn places() -> impl Iterator<Item = [usize; 3]> {
    (0..VOXELS).map(|at| [at / (SHAPE[1] * SHAPE[2]), at / SHAPE[2] % SHAPE[1], at % SHAPE[2]])
}

fn label([d, h, w]: [usize; 3]) -> u8 {
    u8::from((5..8).contains(&d) && (4..8).contains(&h) && (2..7).contains(&w))
}

fn data_set(names: &[&str]) -> (Raw, Dataset) {
    let raw = Raw::new(names, json!({"background": 0, "a": 1}));
    let geometry = grid(SHAPE, [1.0; 3]);
    for channel in 0..names.len() {
        let voxels: Vec<f32> = places().map(|at| voxel(channel % 2, at)).collect();
        write_image(&raw.image("a", channel), &geometry, 1, ElementType::I16, &voxels);
    }
    let labels: Vec<f32> = places().map(|at| f32::from(label(at))).collect();
    write_image(&raw.label("a"), &geometry, 1, ElementType::U8, &labels);
    let dataset = raw.open();
    (raw, dataset)
}

/// The patch that holds the whole case, whose box of non-zero voxels is in its middle.
fn whole(dataset: &Dataset, inspection: Inspection, augmentation: Augmentation) -> (Vec<f32>, Vec<u8>) {
    let grid = PatchGrid { patch: SHAPE, spacing: Spacing([1.0; 3]).into() };
    let config = SamplerConfig { augmentation, oversample_foreground: 0.0, ..SamplerConfig::new(grid, 1) };
    let sampler = Sampler::new(Arc::new(inspection), &Fold::all(&ids(dataset)), config).unwrap();
    let cache = Arc::new(VolumeCache::new(Budget::new(Bytes::mib(1))));
    let patches = Arc::new(Patches::new(dataset, sampler, cache).unwrap());
    let mut worker = patches.worker(Scratch::DEFAULT, &Budget::new(Bytes::mib(32))).unwrap();
    let place = SamplePlace { mode: Mode::Training, seed: 3, step: 5, sample: 0 };
    let (mut image, mut labels) = (vec![0.0; dataset.channels.len() * VOXELS], vec![0; VOXELS]);
    worker.make(place, &mut image, &mut labels, &mut []).unwrap();
    (image, labels)
}

fn masked(dataset: &mut Dataset) -> Inspection {
    let inspection = inspect(dataset);
    assert!(inspection.problems.is_empty(), "{:?}", only(&inspection.problems));
    inspection.choose_masks(&mut dataset.channels);
    inspection
}

fn is_inside(of: &Value) -> Vec<bool> {
    of["inside"].as_str().unwrap().bytes().map(|byte| byte == b'1').collect()
}

fn near(ours: &[f32], theirs: &Value) {
    let theirs = numbers(theirs);
    assert_eq!(ours.len(), theirs.len());
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((f64::from(*ours) - theirs).abs() < 5e-6, "{at}: {ours} against {theirs}");
    }
}

#[test]
fn patches_are_normalised_inside_of_the_mask_as_nnu_net_does_it() {
    let oracle = &oracle("nnunet_mask.json")["training"];
    let (_raw, mut dataset) = data_set(&["T1", "T2"]);
    let inspection = masked(&mut dataset);
    assert!(dataset.channels.iter().all(|channel| channel.normalisation == Normalisation::ZScoreInMask));
    let inside = is_inside(oracle).iter().filter(|inside| **inside).count();
    assert_eq!(inspection.fingerprint.as_ref().unwrap().cases[0].mask_voxels, Some(inside as u64));
    let (image, labels) = whole(&dataset, inspection, Augmentation::none());
    near(&image, &oracle["values"]);
    // What nnU-Net crops away has no label.
    let cropped = |at: [usize; 3]| if at[2] < 3 { 0 } else { label(at) };
    assert!(labels.iter().zip(places()).all(|(found, at)| *found == cropped(at)));
    // Whatever is done with intensities, here 3 are added, nnU-Net's patch is 0 outside in the end.
    let inside = is_inside(oracle);
    let changed =
        image.iter().enumerate().map(|(at, value)| if inside[at % VOXELS] { value + 3.0 } else { 0.0 });
    near(&changed.collect::<Vec<f32>>(), &oracle["changed"]);
}

#[test]
fn a_change_of_intensities_leaves_zeros_outside_of_the_mask_of_channels_that_have_one() {
    let inside = is_inside(&oracle("nnunet_mask.json")["training"]);
    let (_raw, mut dataset) = data_set(&["T1", "CT"]);
    let inspection = masked(&mut dataset);
    let of_channels: Vec<Normalisation> =
        dataset.channels.iter().map(|channel| channel.normalisation).collect();
    assert_eq!(of_channels, [Normalisation::ZScoreInMask, Normalisation::Ct]);
    let noise = Augmentation { p_gaussian_noise: 1.0, gaussian_noise: [0.5, 0.5], ..Augmentation::none() };
    let (image, labels) = whole(&dataset, inspection, noise);
    let (masked, other) = image.split_at(VOXELS);
    let changed = |values: &[f32]| values.iter().map(|value| *value != 0.0).collect::<Vec<bool>>();
    assert_eq!(changed(masked), inside);
    assert_eq!(changed(other), vec![true; VOXELS]);
    assert!(labels.iter().all(|label| *label < 2));
}

#[test]
fn the_mask_turns_with_the_labels_and_ends_where_the_image_does() {
    let (_raw, mut dataset) = data_set(&["T1"]);
    let inspection = masked(&mut dataset);
    let turned = Augmentation {
        p_rotation: 1.0,
        rotation: [20.0, 20.0],
        p_gaussian_noise: 1.0,
        gaussian_noise: [0.5, 0.5],
        ..Augmentation::none()
    };
    let (image, labels) = whole(&dataset, inspection, turned);
    let inside = image.iter().filter(|value| **value != 0.0).count();
    let expected =
        is_inside(&oracle("nnunet_mask.json")["training"]).iter().filter(|inside| **inside).count();
    // A rigid motion keeps the volume, but for the rim.
    assert!(inside.abs_diff(expected) < expected / 12, "{inside} of {expected}");
    assert!(labels.iter().zip(&image).all(|(label, value)| *label == 0 || *value != 0.0));
    let corners = [0, SHAPE[2] - 1, VOXELS - 1];
    assert!(corners.iter().all(|at| image[*at] == 0.0));
}

#[test]
fn what_is_predicted_is_normalised_inside_of_the_mask_without_labels() {
    let oracle = &oracle("nnunet_mask.json")["prediction"];
    let (_raw, mut dataset) = data_set(&["T1", "T2"]);
    masked(&mut dataset);
    let (case, stop) = (&dataset.cases[0], AtomicBool::new(false));
    let room = Budget::new(Bytes::mib(8));
    let (_, fingerprint) = inspect_images(case, &dataset.channels, None, &room, &stop).unwrap();
    let fingerprint = fingerprint.unwrap();
    let what = Normalising {
        case,
        fingerprint: &fingerprint,
        channels: &dataset.channels,
        foreground: &std::collections::BTreeMap::new(),
    };
    let bytes = Normalising::bytes(&dataset.channels, fingerprint.nonzero_box).unwrap();
    let cache = VolumeCache::new(Budget::new(Bytes::mib(1)));
    let mut source = what.open(&cache, &Budget::new(bytes), &stop).unwrap();
    let target = TargetGrid::new(&fingerprint.geometry, Spacing([1.0; 3]));
    let mut scratch = Scratch::new(&room, Bytes::mib(1)).unwrap();
    let mut image = vec![0.0; 2 * VOXELS];
    pull(&Recipe::window(0, &target, [0; 3], SHAPE), &mut source, &mut image, None, &mut scratch).unwrap();
    near(&image, &oracle["values"]);
}

#[test]
fn masks_are_kept_with_the_inspection() {
    let (_raw, mut dataset) = data_set(&["T1", "T2"]);
    let as_found = dataset.clone();
    let inspection = masked(&mut dataset);
    let folder = tempfile::tempdir().unwrap();
    inspection.save(folder.path(), &as_found).unwrap();
    let load = || {
        let config = InspectConfig { threads: 2, seed: 1 };
        Inspection::load_if_current(folder.path(), &as_found, config, &Budget::new(Bytes::mib(8))).unwrap()
    };
    let loaded = load().unwrap();
    assert_eq!(loaded.index_bytes(), inspection.index_bytes());
    let first = whole(&dataset, inspection, Augmentation::none());
    assert_eq!(whole(&dataset, loaded, Augmentation::none()), first);

    // A mask that is not what it was is found again.
    let path = folder.path().join("nonzero_masks.bin");
    let good = std::fs::read(&path).unwrap();
    let mut bytes = good.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(load().is_none());
    // Nor is one taken that fits its checksum, but ends before its last plane, or has another number of voxels than the case.
    let known = std::fs::read(folder.path().join("inspection.jsonl")).unwrap();
    let changed = |change: &dyn Fn(&mut SavedLines)| {
        std::fs::write(folder.path().join("inspection.jsonl"), &known).unwrap();
        let mut lines = SavedLines::read(folder.path());
        change(&mut lines);
        lines.write();
        load()
    };
    bytes = good.clone();
    bytes[0] ^= 0x80;
    std::fs::write(&path, &bytes).unwrap();
    assert!(changed(&|lines| lines.head["mask_hash"] = json!(Digest::compute(&bytes))).is_none());
    std::fs::write(&path, &good).unwrap();
    let more = |lines: &mut SavedLines| {
        let voxels = lines.cases[0]["case"]["mask_voxels"].as_u64().unwrap();
        lines.cases[0]["case"]["mask_voxels"] = json!(voxels + 1);
    };
    assert!(changed(&more).is_none());
    assert!(changed(&|_| ()).is_some());
}

/// Four cases that are all alike.
fn four() -> (Raw, Dataset) {
    let (raw, _) = data_set(&["T1"]);
    for id in ["b", "c", "d"] {
        std::fs::copy(raw.image("a", 0), raw.image(id, 0)).unwrap();
        std::fs::copy(raw.label("a"), raw.label(id)).unwrap();
    }
    let dataset = raw.open();
    (raw, dataset)
}

#[test]
fn a_file_that_is_gone_when_its_mask_is_looked_for_is_named_whatever_other_threads_do() {
    let (raw, dataset) = four();
    for threads in [1, 2, 4] {
        std::fs::copy(raw.image("a", 0), raw.image("c", 0)).unwrap();
        // Once all cases were read for the first time.
        let remove = |done: usize, of: usize| {
            if done == of && raw.image("c", 0).exists() {
                std::fs::remove_file(raw.image("c", 0)).unwrap();
            }
        };
        let config = InspectConfig { threads, seed: 1 };
        let error = Inspection::run(&dataset, config, &Budget::new(Bytes::mib(64)), &remove).unwrap_err();
        assert!(error.to_string().starts_with("case c: "), "{threads}: {error}");
    }
}

#[test]
fn a_limit_that_is_enough_for_one_thread_is_enough_for_several() {
    let (_raw, dataset) = four();
    let run = |limit: u64, threads| {
        let config = InspectConfig { threads, seed: 1 };
        Inspection::run(&dataset, config, &Budget::new(Bytes(limit)), &|_, _| {})
    };
    let least = (1..1000).map(|parts| parts * (16 << 10)).find(|limit| run(*limit, 1).is_ok()).unwrap();
    let expected = run(least, 1).unwrap();
    for _ in 0..20 {
        let found = run(least, 4).unwrap();
        assert_eq!(found.index_bytes(), expected.index_bytes());
        assert_eq!(found.fingerprint, expected.fingerprint);
    }
}

#[test]
fn images_that_are_not_zero_around_what_they_show_have_no_mask() {
    let raw = Raw::new(&["T1"], json!({"background": 0, "a": 1}));
    let geometry = grid([8, 9, 10], [1.0; 3]);
    raw.case("a", 1, &geometry, &support::block([8, 9, 10]));
    let mut dataset = raw.open();
    let inspection = inspect(&dataset);
    inspection.choose_masks(&mut dataset.channels);
    assert_eq!(dataset.channels[0].normalisation, Normalisation::ZScore);
    // A model that was trained inside of one cannot go on with these.
    dataset.channels[0].normalisation = Normalisation::ZScoreInMask;
    let grid = PatchGrid { patch: [4; 3], spacing: Spacing([1.0; 3]).into() };
    let sampler = Sampler::new(Arc::new(inspection), &Fold::all(&ids(&dataset)), SamplerConfig::new(grid, 2));
    let cache = Arc::new(VolumeCache::new(Budget::new(Bytes::mib(1))));
    let refused = Patches::new(&dataset, sampler.unwrap(), cache).err().unwrap();
    assert!(refused.to_string().contains("use_mask_for_norm"), "{refused}");
}
