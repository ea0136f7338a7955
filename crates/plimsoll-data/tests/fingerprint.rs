//! The fingerprint against nnU-Net's, and saving it.

use crate::support;

use std::fs;

use plimsoll_data::{Dataset, InspectConfig, Inspection, IntensityProperties, Normalisation};
use plimsoll_disk::faults::{Fault, FaultKind, crash_states, inject, lay_out, record, state_of};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, Reorientation, Spacing};
use serde_json::{Value, json};
use support::{Raw, SavedLines, grid, hash, inspect, numbers, oracle, shape, three, write_image};

/// The data set of the oracle. The stored orientation must not matter, so every case has another one.
fn made_up(oracle: &Value) -> Raw {
    let raw = Raw::new(&["CT", "T2"], json!({"background": 0, "a": 1, "b": 2}));
    let turns = [
        ([0, 1, 2], [false; 3]),
        ([2, 0, 1], [true, false, true]),
        ([1, 0, 2], [false, true, false]),
        ([0, 2, 1], [true; 3]),
    ];
    for (number, (case, (order, flip))) in oracle["cases"].as_array().unwrap().iter().zip(turns).enumerate() {
        let id = format!("case_{number}");
        let canonical = grid(shape(&case["shape"]), three(&case["spacing"]));
        let [_, height, width] = canonical.shape();
        let is_in = |region: &Value, at: usize| {
            let at = [at / (height * width), at / width % height, at % width];
            region.as_array().is_some_and(|bounds| {
                bounds.iter().zip(at).all(|(bounds, at)| {
                    let bounds = numbers(bounds);
                    at as f64 >= bounds[0] && (at as f64) < bounds[1]
                })
            })
        };
        let turn = Reorientation::new(order, flip).unwrap();
        let stored = turn.geometry(&canonical);
        let write = |path: &std::path::Path, element_type, value: &dyn Fn(usize) -> f32| {
            let [depth, height, width] = stored.shape();
            let mut voxels = Vec::new();
            for d in 0..depth {
                for h in 0..height {
                    for w in 0..width {
                        let [d, h, w] = turn.source_index([d, h, w], canonical.shape()).unwrap();
                        voxels.push(value((d * canonical.shape()[1] + h) * canonical.shape()[2] + w));
                    }
                }
            }
            write_image(path, &stored, 1, element_type, &voxels);
        };
        for channel in 0..2 {
            let less = if channel == 0 { 1024.0 } else { 0.0 };
            let element_type = if number % 2 == 0 { ElementType::I16 } else { ElementType::F32 };
            write(&raw.image(&id, channel), element_type, &|at| {
                let index = (at + 7919 * number + 104_729 * channel) as u64;
                if is_in(&case["box"], at) { (hash(index) >> 8) as f32 - less } else { 0.0 }
            });
        }
        write(&raw.label(&id), ElementType::U8, &|at| {
            let labels = case["labels"].as_array().unwrap();
            (1..).zip(labels).find(|(_, region)| is_in(region, at)).map_or(0.0, |(value, _)| value as f32)
        });
    }
    raw.set("numTraining", Some(4.into()));
    raw
}

fn close(ours: f64, theirs: &Value, tolerance: f64) {
    let theirs = theirs.as_f64().unwrap();
    assert!((ours - theirs).abs() <= tolerance * theirs.abs().max(1.0), "{ours} against {theirs}");
}

#[test]
fn the_fingerprint_matches_nnu_net() {
    let oracle = oracle("data_fingerprint.json");
    let raw = made_up(&oracle);
    let inspection = inspect(&raw.open());
    assert_eq!(inspection.problems, []);
    let fingerprint = inspection.fingerprint.unwrap();
    for (number, case) in fingerprint.cases.iter().enumerate() {
        assert_eq!(case.shape(), shape(&oracle["cases"][number]["shape"]));
        assert_eq!(fingerprint.shapes_after_crop[number], shape(&oracle["shapes_after_crop"][number]));
        for axis in 0..3 {
            close(fingerprint.spacings[number].0[axis], &oracle["cases"][number]["spacing"][axis], 1e-6);
        }
        let counts: Vec<f64> = case.label_voxels.iter().map(|count| *count as f64).collect();
        assert_eq!(counts, numbers(&oracle["label_voxels"][number]));
        for (found, theirs) in case.channels.iter().zip(oracle["channels"][number].as_array().unwrap()) {
            close(found.mean, &theirs["mean"], 1e-9);
            close(found.std, &theirs["std"], 1e-9);
            assert_eq!(json!([found.min, found.max]), json!([theirs["min"], theirs["max"]]));
        }
    }
    for axis in 0..3 {
        close(fingerprint.target_spacing.0[axis], &oracle["target_spacing"][axis], 1e-6);
    }
    assert_eq!(fingerprint.median_shape, three(&oracle["median_shape"]));
    close(
        fingerprint.median_relative_size_after_cropping,
        &oracle["median_relative_size_after_cropping"],
        1e-12,
    );
    let theirs = &oracle["foreground_intensity_properties_per_channel"];
    for (channel, found) in &fingerprint.foreground_intensity_properties_per_channel {
        let ours = serde_json::to_value(found).unwrap();
        for (name, value) in ours.as_object().unwrap() {
            close(value.as_f64().unwrap(), &theirs[channel.to_string()][name], 1e-9);
        }
    }
}

#[test]
fn normalisation_matches_nnu_net() {
    let oracle = oracle("data_fingerprint.json");
    let fingerprint = inspect(&made_up(&oracle).open()).fingerprint.unwrap();
    for (name, channel) in
        [("CTNormalization", 0), ("ZScoreNormalization", 1), ("RescaleTo01Normalization", 1)]
    {
        let normalisation: Normalisation = serde_json::from_value(name.into()).unwrap();
        let foreground = fingerprint.foreground_intensity_properties_per_channel.get(&channel);
        let own = &fingerprint.cases[0].channels[channel];
        let mut values: Vec<f32> =
            numbers(&oracle["first_row"][channel]).into_iter().map(|value| value as f32).collect();
        normalisation.intensity(own, foreground).unwrap().apply(&mut values);
        for (ours, theirs) in values.iter().zip(numbers(&oracle["normalised"][name])) {
            assert!((f64::from(*ours) - theirs).abs() < 2e-6, "{name}: {ours} against {theirs}");
        }
    }
}

/// Mean, standard deviation, and the percentiles 0.5, 50 and 99.5 as NumPy computes them of 10⁸ draws that have each of these values
/// equally often, of each case as often as of any other.
fn properties(cases: &[Vec<f32>]) -> [f64; 5] {
    const DRAWS: f64 = 1e8;
    let weights = cases.iter().flat_map(|case| case.iter().map(|value| (*value, 1.0 / case.len() as f64)));
    let mut all: Vec<(f32, f64)> = weights.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = cases.len() as f64;
    let mean = all.iter().map(|(value, weight)| f64::from(*value) * weight).sum::<f64>() / count;
    let variance = all.iter().map(|(value, weight)| (f64::from(*value) - mean).powi(2) * weight);
    let std = (variance.sum::<f64>() / count).sqrt();
    let draw = |number: f64| {
        let mut below = 0.0;
        let reaches = |(_, weight): &&(f32, f64)| {
            below += weight / count * DRAWS;
            below > number + 1e-3
        };
        f64::from(all.iter().find(reaches).unwrap_or(all.last().unwrap()).0)
    };
    let [low, median, high] = [0.5, 50.0, 99.5].map(|percent| {
        let rank = percent / 100.0 * (DRAWS - 1.0);
        draw(rank.floor()) + (draw(rank.floor() + 1.0) - draw(rank.floor())) * (rank - rank.floor())
    });
    [mean, std, low, median, high]
}

/// The same as they were found, of the first channel.
fn found(raw: &Raw, threads: usize) -> [f64; 5] {
    let config = InspectConfig { threads, seed: 9 };
    let found = Inspection::run(&raw.open(), config, &Budget::new(Bytes::mib(8)), &|_, _| {}).unwrap();
    let IntensityProperties { mean, median, std, percentile_99_5, percentile_00_5, .. } =
        found.fingerprint.unwrap().foreground_intensity_properties_per_channel[&0];
    [mean, std, percentile_00_5, median, percentile_99_5]
}

/// Writes cases with these foreground voxels, in planes of 10 × 10 that are filled up with background far from them.
fn raw_with_foreground(cases: &[Vec<f32>], element_type: ElementType) -> Raw {
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1}));
    for (number, values) in cases.iter().enumerate() {
        let planes = values.len() / 100 + 1;
        let geometry = grid([planes, 10, 10], [1.0; 3]);
        let filled = |values: Vec<f32>, with: f32| {
            values.into_iter().chain(std::iter::repeat(with)).take(100 * planes).collect::<Vec<f32>>()
        };
        let id = format!("case_{number}");
        write_image(&raw.image(&id, 0), &geometry, 1, element_type, &filled(values.clone(), 30_000.0));
        let labels = filled(vec![1.0; values.len()], 0.0);
        write_image(&raw.label(&id), &geometry, 1, ElementType::U8, &labels);
    }
    raw.set("numTraining", Some(cases.len().into()));
    raw
}

#[test]
fn every_foreground_voxel_counts_and_every_case_weighs_alike() {
    let case = |count: u64, shift: f32| (0..count).map(|i| (hash(i) >> 8) as f32 - shift).collect::<Vec<_>>();
    let cases = [case(64_000, 1000.0), case(997, 0.0), case(3, 2000.0), case(20_011, 500.0)];
    let raw = raw_with_foreground(&cases, ElementType::I16);
    let (ours, expected) = (found(&raw, 1), properties(&cases));
    for (ours, expected) in ours.into_iter().zip(expected) {
        assert!((ours - expected).abs() <= 1e-9 * expected.abs(), "{ours} instead of {expected}");
    }
    for threads in [2, 3] {
        assert_eq!(found(&raw, threads).map(f64::to_bits), ours.map(f64::to_bits), "{threads} threads");
    }
}

#[test]
fn intensities_that_are_not_whole_have_the_moments_of_all_and_percentiles_within_a_2048th() {
    for scale in [0.37f32, 1e-4] {
        let case = |count: u64, shift: f32| {
            let values = (0..count).map(|i| ((hash(i) >> 8) as f32 + shift) * scale);
            values.collect::<Vec<_>>()
        };
        let cases = [case(5_000, 100.5), case(1_000, 3_000.25)];
        let raw = raw_with_foreground(&cases, ElementType::F32);
        for (place, (ours, expected)) in found(&raw, 2).into_iter().zip(properties(&cases)).enumerate() {
            let tolerance = if place < 2 { 1e-12 } else { 1.0 / 2048.0 };
            assert!((ours - expected).abs() <= tolerance * expected.abs(), "{ours} instead of {expected}");
        }
    }
}

#[test]
fn an_image_that_clipping_makes_constant_is_named() {
    let case = |low: f32| (0..1000).map(|i| low + i as f32).collect::<Vec<_>>();
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1}));
    for (id, values, label) in [("a", case(100.0), 1.0), ("b", case(-5000.0), 0.0), ("c", case(200.0), 1.0)] {
        let geometry = grid([10, 10, 10], [1.0; 3]);
        write_image(&raw.image(id, 0), &geometry, 1, ElementType::I16, &values);
        write_image(&raw.label(id), &geometry, 1, ElementType::U8, &[label; 1000]);
    }
    raw.set("numTraining", Some(3.into()));
    let problems = inspect(&raw.open()).problems;
    let found: Vec<_> =
        problems.iter().filter(|problem| problem.text.contains("all clipped to one")).collect();
    assert!(found.len() == 1 && found[0].case == "b", "{problems:#?}");
    assert!(found[0].text.starts_with("channel CT has values from -5000 to -4001,"), "{}", found[0].text);
}

#[test]
fn a_case_with_an_error_that_its_image_reveals_is_not_in_the_statistics() {
    let good = vec![vec![1.0, 2.0, 3.0, 5.0], vec![8.0; 6]];
    let mut all = good.clone();
    all.push(vec![900.0, f32::NAN, 901.0]);
    let raw = raw_with_foreground(&all, ElementType::F32);
    let dataset = raw.open();
    let inspection = inspect(&dataset);
    assert!(inspection.has_errors());
    assert_eq!(
        found(&raw, 2).map(f64::to_bits),
        found(&raw_with_foreground(&good, ElementType::F32), 1).map(f64::to_bits)
    );
}

#[test]
fn the_index_has_all_voxels_of_a_small_class_and_a_thousand_of_a_large_one() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1, "tumour": 2, "rare": 3}));
    let shape = [20, 20, 20];
    let mut labels = vec![1; 8000];
    labels[..400].fill(0);
    labels[777] = 3;
    labels[7999] = 3;
    raw.case("a", 1, &grid(shape, [1.0; 3]), &labels);
    let inspection = inspect(&raw.open());
    let index = &inspection.foreground[0];
    assert_eq!(index.present().collect::<Vec<u8>>(), [1, 3]);
    assert_eq!(index.positions(1).len(), 1000);
    let rare: Vec<[usize; 3]> = (0..2).filter_map(|nth| index.positions(3).voxel(nth, shape)).collect();
    assert_eq!(rare, [[1, 18, 17], [19, 19, 19]]);
    assert!(index.positions(2).is_empty() && index.annotated().is_empty());
    for nth in 0..1000 {
        let [d, h, w] = index.positions(1).voxel(nth, shape).unwrap();
        assert_eq!(labels[(d * 20 + h) * 20 + w], 1);
    }
    assert_eq!(inspection.index_bytes(), Bytes(4096));
}

#[test]
fn ignored_voxels_are_neither_foreground_nor_annotated() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1, "ignore": 2}));
    let mut labels = vec![2; 512];
    labels[3] = 1;
    labels[4] = 0;
    raw.case("a", 1, &grid([8, 8, 8], [1.0; 3]), &labels);
    let inspection = inspect(&raw.open());
    assert_eq!(inspection.problems, []);
    let index = &inspection.foreground[0];
    assert_eq!(index.present().collect::<Vec<u8>>(), [1]);
    let annotated: Vec<[usize; 3]> = (0..2).filter_map(|nth| index.annotated().voxel(nth, [8; 3])).collect();
    assert_eq!((index.annotated().len(), annotated), (2, vec![[0, 0, 3], [0, 0, 4]]));
    let case = &inspection.fingerprint.unwrap().cases[0];
    assert_eq!(case.label_voxels, [1, 1, 510]);
}

fn config() -> InspectConfig {
    InspectConfig { threads: 2, seed: 9 }
}

fn load(folder: &std::path::Path, dataset: &Dataset) -> Option<Inspection> {
    Inspection::load_if_current(folder, dataset, config(), &Budget::new(Bytes::mib(1))).unwrap()
}

fn saved(dataset: &Dataset) -> (tempfile::TempDir, Inspection) {
    let folder = tempfile::tempdir().unwrap();
    let inspection = Inspection::run(dataset, config(), &Budget::new(Bytes::mib(64)), &|_, _| ()).unwrap();
    inspection.save(folder.path(), dataset).unwrap();
    (folder, inspection)
}

#[test]
fn a_saved_inspection_is_loaded_bitwise_while_nothing_changes() {
    let (_data, dataset) = support::phantom(4);
    let (folder, inspection) = saved(&dataset);
    let back = load(folder.path(), &dataset).unwrap();
    assert_eq!(back.fingerprint, inspection.fingerprint);
    assert_eq!(back.problems, inspection.problems);
    assert_eq!(back.problems.len(), 1, "the outlier");
    for (ours, theirs) in back.foreground.iter().zip(&inspection.foreground) {
        let voxels = |index: &plimsoll_data::ForegroundIndex| {
            let positions = index.positions(1);
            (0..positions.len()).map(|nth| positions.voxel(nth, [40; 3])).collect::<Vec<_>>()
        };
        assert_eq!(voxels(ours), voxels(theirs));
    }
    let names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    // nnU-Net's names are at the top.
    let text = fs::read(folder.path().join("dataset_fingerprint.json")).unwrap();
    let json: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["spacings"].as_array().unwrap().len(), 4);
    assert!(json["foreground_intensity_properties_per_channel"]["0"]["percentile_99_5"].is_f64());
}

#[test]
fn a_power_failure_while_saving_leaves_an_inspection_that_is_whole_or_outdated() {
    let (_data, dataset) = support::phantom(4);
    let budget = Budget::new(Bytes::mib(64));
    let before = InspectConfig { seed: 8, ..config() };
    let folder = tempfile::tempdir().unwrap();
    Inspection::run(&dataset, before, &budget, &|_, _| ()).unwrap().save(folder.path(), &dataset).unwrap();
    let initial = state_of(folder.path()).unwrap();
    let inspection = Inspection::run(&dataset, config(), &budget, &|_, _| ()).unwrap();
    let (saved, operations) = record(folder.path(), || inspection.save(folder.path(), &dataset));
    saved.unwrap();
    let mut loaded = 0;
    for state in crash_states(&initial, &operations) {
        let folder = tempfile::tempdir().unwrap();
        lay_out(&state, folder.path()).unwrap();
        if let Some(back) = load(folder.path(), &dataset) {
            assert_eq!(back.fingerprint, inspection.fingerprint);
            loaded += 1;
        }
    }
    assert!(loaded > 0, "at least once it was all done");
}

#[test]
fn an_inspection_is_loaded_whole_or_not_at_all_whichever_operation_fails() {
    let (_data, dataset) = support::phantom(4);
    let (folder, inspection) = saved(&dataset);
    for kind in [FaultKind::Eio, FaultKind::Short] {
        for number in 1.. {
            let (back, reached) =
                inject(folder.path(), Fault { number, kind }, || load(folder.path(), &dataset));
            assert_eq!(back.is_some(), kind == FaultKind::Short || !reached, "{kind:?} at {number}");
            assert!(back.is_none_or(|back| back.fingerprint == inspection.fingerprint));
            if !reached {
                assert!(number > 4, "it opens two files and reads them");
                break;
            }
        }
    }
}

#[test]
fn a_saved_inspection_is_outdated_once_anything_changes() {
    let (data, dataset) = support::phantom(4);
    assert!(load(data.path(), &dataset).is_none(), "nothing was saved");
    let (folder, _) = saved(&dataset);
    let mut other = dataset.clone();
    other.channels[0].normalisation = Normalisation::Ct;
    assert!(load(folder.path(), &other).is_none(), "another normalisation");
    let mut other = dataset.clone();
    other.cases.pop();
    assert!(load(folder.path(), &other).is_none(), "one case fewer");
    let seed = InspectConfig { seed: 10, ..config() };
    let budget = Budget::new(Bytes::mib(1));
    assert!(Inspection::load_if_current(folder.path(), &dataset, seed, &budget).unwrap().is_none());
    assert!(load(folder.path(), &dataset).is_some());

    let index = folder.path().join("foreground_index.bin");
    let mut bytes = fs::read(&index).unwrap();
    bytes[10] ^= 1;
    fs::write(&index, &bytes).unwrap();
    assert!(load(folder.path(), &dataset).is_none(), "a changed index");
    bytes[10] ^= 1;
    fs::write(&index, &bytes).unwrap();
    assert!(load(folder.path(), &dataset).is_some());
    fs::write(&index, &bytes[..bytes.len() - 4]).unwrap();
    assert!(load(folder.path(), &dataset).is_none(), "a short index");
    fs::write(&index, &bytes).unwrap();

    let label = dataset.cases[0].label.as_ref().unwrap();
    let bytes = fs::read(label).unwrap();
    fs::remove_file(label).unwrap();
    assert!(load(folder.path(), &dataset).is_none(), "a missing file");
    fs::write(label, &bytes).unwrap();
    assert!(load(folder.path(), &dataset).is_none(), "the same bytes, but written later");
    fs::write(folder.path().join("inspection.jsonl"), "{}\n").unwrap();
    assert!(load(folder.path(), &dataset).is_none(), "damaged lines");
}

#[test]
fn an_inspection_without_a_valid_case_can_be_saved() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1}));
    raw.case("a", 1, &grid([2, 2, 2], [1.0; 3]), &[7; 8]);
    let dataset = raw.open();
    let (folder, inspection) = saved(&dataset);
    assert!(inspection.fingerprint.is_none() && inspection.has_errors());
    let back = load(folder.path(), &dataset).unwrap();
    assert_eq!((back.fingerprint, back.problems), (None, inspection.problems));
}

#[test]
fn spacings_are_those_of_the_canonical_axes() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1}));
    let canonical = grid([3, 4, 5], [3.0, 2.0, 1.0]);
    let stored = Reorientation::new([1, 2, 0], [true, false, true]).unwrap().geometry(&canonical);
    assert_eq!(stored.shape(), [4, 5, 3]);
    raw.case("a", 1, &stored, &[1; 60]);
    let fingerprint = inspect(&raw.open()).fingerprint.unwrap();
    assert_eq!(fingerprint.spacings[0], Spacing([3.0, 2.0, 1.0]));
    assert_eq!(fingerprint.cases[0].shape(), [3, 4, 5]);
    assert_eq!(fingerprint.cases[0].stored_bytes, Bytes(120));
}

#[test]
fn a_saved_inspection_with_places_beyond_its_images_is_not_believed() {
    let (_data, dataset) = support::phantom(4);
    let (folder, _) = saved(&dataset);
    let index = folder.path().join("foreground_index.bin");
    let positions = fs::read(&index).unwrap();
    // Whoever makes such a file gives it the checksum as well.
    let sound = fs::read(folder.path().join("inspection.jsonl")).unwrap();
    let loaded = |positions: &[u8], change: &dyn Fn(&mut SavedLines)| {
        fs::write(folder.path().join("inspection.jsonl"), &sound).unwrap();
        let mut lines = SavedLines::read(folder.path());
        lines.head["index_hash"] = plimsoll_memory::Digest::compute(positions).to_string().into();
        change(&mut lines);
        lines.write();
        fs::write(&index, positions).unwrap();
        load(folder.path(), &dataset).is_some()
    };
    assert!(loaded(&positions, &|_| ()));
    let beyond = [&u32::MAX.to_le_bytes()[..], &positions[4..]].concat();
    assert!(!loaded(&beyond, &|_| ()), "a position");
    let of_case = |change: &dyn Fn(&mut Value)| {
        loaded(&positions, &|lines: &mut SavedLines| change(&mut lines.cases[0]))
    };
    assert!(!of_case(&|line| line["case"]["nonzero_box"]["start"][0] = u64::MAX.into()), "a box");
    assert!(!of_case(&|line| line["case"]["channels"] = Value::Array(Vec::new())), "no channel");
    assert!(!of_case(&|line| line["case"]["id"] = "../elsewhere".into()), "another case");
    assert!(!of_case(&|line| line["index"][1] = u64::MAX.into()), "more positions than there are");
    assert!(!loaded(&positions, &|lines| lines.files[0]["bytes"] = 1.into()), "another file");
    assert!(!loaded(&positions, &|lines| lines.cases.push(lines.cases[0].clone())), "one case more");
    assert!(!loaded(&positions, &|lines| drop(lines.cases.pop())), "one case fewer");
}

#[test]
fn the_least_budget_inspects_any_number_of_cases_and_loads_what_was_found() {
    for count in [1usize, 2, 7, 60, 300, 2000] {
        let raw = Raw::new(&["CT"], json!({"background": 0, "organ": 1}));
        raw.case("c0000", 1, &grid([6, 7, 8], [1.0; 3]), &support::block([6, 7, 8]));
        for number in 1..count {
            let id = format!("c{number:04}");
            fs::hard_link(raw.image("c0000", 0), raw.image(&id, 0)).unwrap();
            fs::hard_link(raw.label("c0000"), raw.label(&id)).unwrap();
        }
        let dataset = raw.open();
        let (folder, inspection) = saved(&dataset);
        let least = inspection.least_bytes(&dataset);
        for threads in [1, 2] {
            let config = InspectConfig { threads, ..config() };
            let again = Inspection::run(&dataset, config, &Budget::new(least), &|_, _| ()).unwrap();
            assert_eq!(again.fingerprint, inspection.fingerprint);
            assert_eq!(again.least_bytes(&dataset), least, "{count} cases, {threads} threads");
        }
        let budget = Budget::new(least);
        let loaded =
            Inspection::load_if_current(folder.path(), &dataset, config(), &budget).unwrap().unwrap();
        assert_eq!(loaded.fingerprint, inspection.fingerprint);
        assert_eq!(loaded.least_bytes(&dataset), least, "{count} cases");
        // Lines are read one at a time, so that a case takes a kilobyte or two beside its index.
        let reading = budget.peak() - loaded.index_bytes();
        assert!(reading <= Bytes((192 << 10) + 2048 * count as u64), "{count} cases: {reading}");
        // It is the least but for one reservation of the reader.
        let less = Budget::new(least - Bytes(65 << 10));
        let fits = |budget: &Budget| {
            Inspection::load_if_current(folder.path(), &dataset, config(), budget).is_ok()
                && Inspection::run(&dataset, config(), budget, &|_, _| ()).is_ok()
        };
        assert!(!fits(&less), "{count} cases fit {}", less.limit());
    }
}
