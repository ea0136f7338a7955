//! Maps whose right answers are known by construction, and files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_postprocess::{
    ChoiceTargets, Chosen, LabelMap, LabelSet, LeastSize, Neighbours, Pair, PostprocessError, Postprocessing,
    Step, VoxelGrid, choose, process, process_file,
};
use plimsoll_volume::{Affine, ElementType, Geometry, LabelValues, Spacing, VolumeWriter};

const SHAPE: [usize; 3] = [20, 24, 28];

fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

fn label_set(labels: &[u16]) -> LabelSet {
    LabelSet::try_from(labels.iter().copied().collect::<BTreeSet<u16>>()).unwrap()
}

/// Voxels of a box get a label.
fn set(map: &mut [u16], start: [usize; 3], size: usize, label: u16) {
    for d in start[0]..start[0] + size {
        for h in start[1]..start[1] + size {
            for w in start[2]..start[2] + size {
                map[(d * SHAPE[1] + h) * SHAPE[2] + w] = label;
            }
        }
    }
}

fn empty() -> Vec<u16> {
    vec![0; SHAPE.iter().product()]
}

/// Writes labels as voxels of a type, 2 × 1 × 1 mm.
fn write(path: &Path, map: &[u16], element: ElementType) {
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([2.0, 1.0, 1.0]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, element, None).unwrap();
    for label in map.chunks(SHAPE[1] * SHAPE[2]) {
        let bytes: Vec<u8> = match element {
            ElementType::U8 => label.iter().map(|label| *label as u8).collect(),
            ElementType::U16 => label.iter().flat_map(|label| label.to_ne_bytes()).collect(),
            ElementType::F32 => label.iter().flat_map(|label| f32::from(*label).to_ne_bytes()).collect(),
            other => panic!("{other}"),
        };
        writer.write_planes(&bytes).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_hole_is_filled_around_what_is_in_it_and_a_cup_is_not() {
    let mut map = empty();
    set(&mut map, [2, 2, 2], 9, 1);
    set(&mut map, [4, 4, 4], 5, 0);
    // A tumour in the hole, which stays.
    set(&mut map, [5, 5, 5], 2, 2);
    // A cup that is open on one side.
    set(&mut map, [10, 12, 12], 7, 3);
    set(&mut map, [12, 14, 14], 5, 0);
    let mut expected = map.clone();
    set(&mut expected, [4, 4, 4], 5, 1);
    set(&mut expected, [5, 5, 5], 2, 2);
    let step = Step::FillHoles { labels: label_set(&[1, 3]) };
    let changed =
        process(&[step], &mut map, VoxelGrid { shape: SHAPE, spacing: Spacing([1.0; 3]) }, &budget(), 2)
            .unwrap();
    assert!(map == expected);
    assert_eq!(changed, 5 * 5 * 5 - 8);
}

#[test]
fn components_of_the_same_size_are_all_kept_and_labels_that_are_not_named_stay() {
    let mut map = empty();
    set(&mut map, [0, 0, 0], 3, 1);
    set(&mut map, [10, 10, 10], 3, 1);
    set(&mut map, [16, 16, 16], 2, 1);
    set(&mut map, [5, 5, 5], 1, 2);
    let mut expected = map.clone();
    set(&mut expected, [16, 16, 16], 2, 0);
    let step =
        Step::KeepLargest { labels: label_set(&[1]), together: false, neighbours: Neighbours::Corners };
    process(&[step], &mut map, VoxelGrid { shape: SHAPE, spacing: Spacing([1.0; 3]) }, &budget(), 1).unwrap();
    assert!(map == expected);
}

#[test]
fn a_size_in_mm3_is_of_the_files_own_voxels_and_the_type_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a.nii.gz"), dir.path().join("b.nii.gz"));
    let mut map = empty();
    set(&mut map, [0, 0, 0], 2, 300);
    set(&mut map, [10, 10, 10], 3, 300);
    // 8 and 27 voxels of 2 mm³: 16 and 54 mm³.
    let mut expected = map.clone();
    set(&mut expected, [0, 0, 0], 2, 0);
    for element in [ElementType::U16, ElementType::F32] {
        write(&from, &map, element);
        for (mm3, kept) in [(16.0, &map), (16.1, &expected)] {
            let least = LeastSize::Mm3(mm3);
            let step = Step::DropSmall {
                labels: label_set(&[300]),
                together: false,
                neighbours: Neighbours::Faces,
                least,
            };
            process_file(&from, &to, &[step], None, &budget(), 1).unwrap();
            let found = LabelMap::read(&to, &budget()).unwrap();
            assert!(found.labels() == &kept[..], "{mm3} mm³ of {element}");
        }
    }
    // The same header in micrometres: 16 and 54 · 10⁻⁹ mm³.
    for (mm3, kept) in [(16e-9, &map), (16.1e-9, &expected)] {
        let least = LeastSize::Mm3(mm3);
        let step = Step::DropSmall {
            labels: label_set(&[300]),
            together: false,
            neighbours: Neighbours::Faces,
            least,
        };
        process_file(&from, &to, &[step], Some(1e-3), &budget(), 1).unwrap();
        assert!(LabelMap::read(&to, &budget()).unwrap().labels() == &kept[..], "{mm3} mm³");
    }
}

#[test]
fn what_is_no_label_is_told_with_its_voxel_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a.nii.gz"), dir.path().join("b.nii.gz"));
    let geometry = Geometry::new([1, 2, 3], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(&from, &geometry, 1, ElementType::F32, None).unwrap();
    let values = [0.0f32, 1.0, 2.0, 3.0, 2.5, 0.0];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
    let error = process_file(&from, &to, &[], None, &budget(), 1).unwrap_err();
    assert!(error.to_string().contains("voxel [0, 1, 1] is 2.5"), "{error}");
    assert!(!to.exists());
    write(&from, &empty(), ElementType::U8);
    let error = process_file(&from, &to, &[], None, &Budget::new(Bytes(4096)), 1).unwrap_err();
    assert!(error.to_string().contains("a.nii.gz: labels needs"), "{error}");
    let remedy = error.remedy().unwrap();
    assert!(remedy.starts_with("raise ‹ram› by at least ") && remedy.ends_with(" MiB"), "{remedy}");
    assert!(!to.exists());
}

#[test]
fn steps_are_read_as_they_were_written_and_impossible_ones_are_told_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.toml");
    let text = "[[steps]]\nstep = \"keep_largest\"\nlabels = [2, 1]\ntogether = true\n\n[[steps]]\nstep = \"drop_small\"\nlabels = [3]\n\
                min_mm3 = 12.5\nneighbours = \"faces\"\n\n[[steps]]\nstep = \"close\"\nlabels = [1]\nradius_mm = 2.0\n";
    std::fs::write(&path, text).unwrap();
    let read = Postprocessing::read(&path).unwrap();
    assert_eq!(read.steps.len(), 3);
    assert_eq!(read.steps[0].to_string(), "keep the largest component of 1, 2 together");
    read.write(&path).unwrap();
    assert_eq!(Postprocessing::read(&path).unwrap(), read);
    let json = dir.path().join("steps.json");
    std::fs::write(&json, serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(Postprocessing::read(&json).unwrap(), read);
    for (wrong, said) in [
        ("step = \"keep_largest\"\nlabels = []", "is empty"),
        ("step = \"keep_largest\"\nlabels = [0]", "background"),
        ("step = \"fill_holes\"\nlabels = [1]\ntogether = true", "together"),
        ("step = \"drop_small\"\nlabels = [1]", "one of `min_voxels` and `min_mm3`"),
        ("step = \"drop_small\"\nlabels = [1]\nmin_mm3 = -1.0", "not a volume"),
        ("step = \"drop_small\"\nlabels = [1]\nmin_voxels = 0", "drops nothing"),
        ("step = \"close\"\nlabels = [1]\nradius_mm = 1e9", "`radius_mm` 1000000000"),
        ("step = \"melt\"\nlabels = [1]", "melt"),
    ] {
        std::fs::write(&path, format!("\n[[steps]]\n{wrong}\n")).unwrap();
        let error = Postprocessing::read(&path).unwrap_err().to_string();
        assert!(error.contains("steps.toml, line ") && error.contains(said), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
    std::fs::write(&path, "").unwrap();
    let error = Postprocessing::read(&path).unwrap_err().to_string();
    assert!(error.contains("steps"), "{error}");
    // What was chosen may be nothing.
    let chosen = Some(Chosen { cases: 1, folds: vec!["0".into()], labels: vec![] });
    let none = Postprocessing { chosen, steps: vec![] };
    none.write(&path).unwrap();
    assert_eq!(Postprocessing::read(&path).unwrap(), none);
}

/// Three cases: label 1 has a blob too many, label 2 is truly in two pieces beside crumbs, label 3 has a hole, label 4 is right as it is.
fn cases(folder: &Path) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for case in 0..3 {
        let mut truth = empty();
        set(&mut truth, [1, 1, 1], 6, 1);
        set(&mut truth, [1, 10, 1 + case], 5, 2);
        set(&mut truth, [1, 10, 15], 4, 2);
        set(&mut truth, [10, 1, 1], 7, 3);
        set(&mut truth, [10, 12, 12], 2, 4);
        set(&mut truth, [10, 17, 17], 2, 4);
        let mut found = truth.clone();
        // As large as the half of what is right, so that no size that is tried tells it apart.
        set(&mut found, [12, 10, 1], 5, 1);
        set(&mut found, [8, 20, 20 + case], 1, 2);
        set(&mut found, [12, 3, 3], 3, 0);
        let file = |name: &str| -> PathBuf { folder.join(format!("{name}_{case}.nii.gz")) };
        write(&file("truth"), &truth, ElementType::U8);
        write(&file("found"), &found, ElementType::U8);
        pairs.push(Pair {
            prediction: file("found"),
            reference: file("truth"),
            reference_values: None,
            millimetres_per_unit: None,
        });
    }
    pairs
}

#[test]
fn values_of_references_that_stand_for_labels_choose_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut pairs = cases(dir.path());
    let targets = ChoiceTargets::Labels(BTreeSet::from([1, 2, 3, 4]));
    let choose = |pairs: &[Pair]| choose(pairs, &targets, None, &budget(), 1, &mut |_, _| ());
    let expected = choose(&pairs).unwrap();
    let values = Arc::new(LabelValues::new([(0, 0), (50, 1), (100, 2), (150, 3), (200, 4)]));
    for pair in &mut pairs {
        let map = LabelMap::read(&pair.reference, &budget()).unwrap();
        let path = pair.reference.with_extension("").with_extension("nii");
        write(&path, &map.labels().iter().map(|label| label * 50).collect::<Vec<u16>>(), ElementType::U8);
        pair.reference = path;
        pair.reference_values = Some(Arc::clone(&values));
    }
    assert_eq!(choose(&pairs).unwrap(), expected);
    pairs[0].reference_values = Some(Arc::new(LabelValues::new([(0, 0), (50, 1)])));
    let error = format!("{:?}", choose(&pairs).unwrap_err());
    assert!(error.contains("UnknownLabel") && error.contains("value: 100"), "{error}");
}

#[test]
fn steps_are_chosen_that_raise_the_dice_of_a_label_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = cases(dir.path());
    let mut told = Vec::new();
    let choice =
        choose(&pairs, &ChoiceTargets::Labels((0..=5).collect()), None, &budget(), 2, &mut |done, of| {
            told.push((done, of))
        })
        .unwrap();
    assert_eq!(told, (1..=12).map(|done| (done, 12)).collect::<Vec<_>>());
    let named: Vec<(&str, Vec<u16>)> = choice
        .steps
        .iter()
        .map(|step| match step {
            Step::KeepLargest { labels, together: false, .. } => ("largest", labels.iter().collect()),
            Step::DropSmall { labels, .. } => ("small", labels.iter().collect()),
            Step::FillHoles { labels } => ("holes", labels.iter().collect()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(named, [("small", vec![2]), ("largest", vec![1]), ("holes", vec![3])]);
    let gains: Vec<(f64, f64)> =
        choice.labels[..4].iter().map(|gain| (gain.dice_before.unwrap(), gain.dice_after.unwrap())).collect();
    // 2 · 216 / (216 + 216 + 125), 2 · 189 / (2 · 189 + 1), 2 · 316 / (2 · 343 − 27)
    let before = [432.0 / 557.0, 378.0 / 379.0, 632.0 / 659.0, 1.0];
    for ((found, after), expected) in gains.iter().zip(before) {
        assert!((found - expected).abs() < 1e-12 && *after == 1.0, "{gains:?}");
    }
    // A label that is nowhere has no Dice.
    assert_eq!((choice.labels[4].dice_before, choice.labels[4].dice_after), (None, None));
    let same = choose(&pairs, &ChoiceTargets::Labels((1..=5).collect()), None, &budget(), 1, &mut |_, _| {})
        .unwrap();
    assert_eq!(same, choice);
}

#[test]
fn holes_that_only_helped_since_another_label_took_them_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let (prediction, reference) = (dir.path().join("found.nii.gz"), dir.path().join("truth.nii.gz"));
    let mut truth = empty();
    // A shell of 2 within a shell of 1, both hollow as they should be; filled at once, 1 takes the inner of 2.
    set(&mut truth, [1, 1, 1], 15, 1);
    set(&mut truth, [2, 2, 2], 13, 0);
    set(&mut truth, [4, 4, 4], 9, 2);
    set(&mut truth, [5, 5, 5], 7, 0);
    set(&mut truth, [1, 17, 1], 5, 2);
    let mut found = truth.clone();
    // The hole that makes filling 2 look good.
    set(&mut found, [3, 19, 3], 1, 0);
    write(&reference, &truth, ElementType::U8);
    write(&prediction, &found, ElementType::U8);
    let pairs = [Pair { prediction, reference, reference_values: None, millimetres_per_unit: None }];
    let choice =
        choose(&pairs, &ChoiceTargets::Labels((1..=2).collect()), None, &budget(), 1, &mut |done, of| {
            assert!(done <= of)
        });
    let choice = choice.unwrap();
    assert!(choice.steps.is_empty(), "{:?}", choice.steps);
    assert!(choice.labels.iter().all(|gain| gain.dice_before == gain.dice_after), "{:?}", choice.labels);
    // Voxels that nobody knows count neither way.
    set(&mut truth, [3, 19, 3], 1, 3);
    write(&pairs[0].reference, &truth, ElementType::U8);
    let choice =
        choose(&pairs, &ChoiceTargets::Labels((1..=2).collect()), Some(3), &budget(), 1, &mut |_, _| {})
            .unwrap();
    assert_eq!(choice.labels[1].dice_before, Some(1.0));
}

#[test]
fn there_is_nothing_to_choose_from_without_cases_and_other_grids_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let targets = ChoiceTargets::Labels([1].into());
    assert!(matches!(
        choose(&[], &targets, None, &budget(), 1, &mut |_, _| {}),
        Err(PostprocessError::Nothing { missing: "cases" })
    ));
    let mut pairs = cases(dir.path());
    let geometry = Geometry::new([2, 2, 2], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(&pairs[1].prediction, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&[0; 8]).unwrap();
    writer.finish().unwrap();
    pairs.truncate(2);
    let error = choose(&pairs, &targets, None, &budget(), 1, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("found_1.nii.gz does not lie on the grid of"), "{error}");
}

#[test]
fn steps_of_a_region_are_chosen_that_harm_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let pairs: Vec<Pair> = (0..3)
        .map(|case| {
            let mut truth = empty();
            set(&mut truth, [2, 2, 2], 8, 1);
            set(&mut truth, [4, 4, 4], 4, 2);
            // The second region is in two places, of which neither may be dropped.
            set(&mut truth, [14, 16, 18], 4, 1);
            set(&mut truth, [15, 17, 19], 2, 2);
            let mut found = truth.clone();
            // A speck of the outer region alone, and one of the inner.
            set(&mut found, [2, 20, 2 + case], 1, 1);
            set(&mut found, [17, 2, 2 + case], 1, 2);
            let file = |name: &str| dir.path().join(format!("{name}_{case}.nii.gz"));
            write(&file("truth"), &truth, ElementType::U8);
            write(&file("found"), &found, ElementType::U8);
            Pair {
                prediction: file("found"),
                reference: file("truth"),
                reference_values: None,
                millimetres_per_unit: None,
            }
        })
        .collect();
    let targets = ChoiceTargets::Regions(vec![[1, 2].into(), [2].into()]);
    let choice = choose(&pairs, &targets, None, &budget(), 1, &mut |done, of| assert!(done <= of)).unwrap();
    let [Step::DropSmall { labels, together: true, .. }] = &choice.steps[..] else {
        panic!("{:?}", choice.steps)
    };
    assert_eq!(labels.iter().collect::<Vec<_>>(), [1, 2]);
    // 512 + 64 voxels and two specks; 64 + 8 and one.
    let expected = [1152.0 / 1154.0, 144.0 / 145.0];
    for (gain, expected) in choice.labels.iter().zip(expected) {
        assert!((gain.dice_before.unwrap() - expected).abs() < 1e-12, "{gain:?}");
        assert_eq!(gain.dice_after, Some(1.0));
    }
    assert_eq!(choice.labels.iter().map(|gain| gain.label).collect::<Vec<_>>(), [1, 2]);
}
