//! Patches against SciPy, and invariances.

use std::path::{Path, PathBuf};

use crate::support::{grid, hash, numbers, oracle, shape, three, write_image};
use plimsoll_data::{
    Case, CaseSource, ChannelFile, Intensity, PatchError, Reading, Recipe, Scratch, SpatialChange,
    TargetGrid, VolumeCache, pull,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VoxelMap};
use proptest::prelude::*;

fn case(image: &Path, channels: usize, label: Option<&Path>) -> Case {
    let images = (0..channels).map(|index| ChannelFile { path: image.into(), index }).collect();
    Case { id: "a".into(), images, label: label.map(PathBuf::from), reading: Reading::default() }
}

/// A cache that is too small for any volume, or large enough for all.
fn cache(bytes: Bytes) -> VolumeCache {
    VolumeCache::new(Budget::new(bytes))
}

fn scratch(bytes: Bytes) -> Scratch {
    Scratch::new(&Budget::new(Bytes::mib(16)), bytes).unwrap()
}

/// One channel and its labels of a patch.
fn pulled(
    recipe: &Recipe,
    case: &Case,
    intensity: Intensity,
    cache: &VolumeCache,
    bytes: Bytes,
) -> (Vec<f32>, Vec<u8>) {
    let mut source = CaseSource::open(case, &[intensity], true, cache).unwrap();
    let voxels = recipe.patch().iter().product();
    let (mut image, mut labels) = (vec![f32::NAN; voxels], vec![99; voxels]);
    pull(recipe, &mut source, &mut image, Some(&mut labels), &mut scratch(bytes)).unwrap();
    (image, labels)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn patches_match_nibabel_and_scipy_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let (path, label) = (folder.path().join("image.nii.gz"), folder.path().join("label.nii.gz"));
    for example in oracle("data_pulls.json").as_array().unwrap() {
        let name = &example["name"];
        let rows: Vec<[f64; 4]> = example["affine"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| numbers(row).try_into().unwrap())
            .collect();
        let stored = Geometry::new(shape(&example["shape"]), Affine(rows.try_into().unwrap())).unwrap();
        let count = stored.voxel_count() as u64;
        let image: Vec<f32> = (0..count).map(|i| hash(i) as f32 / 1000.0 - 500.0).collect();
        write_image(&path, &stored, 1, ElementType::F32, &image);
        let labels: Vec<f32> = (0..count).map(|i| ((hash(i) >> 10) % 5) as f32).collect();
        write_image(&label, &stored, 1, ElementType::U8, &labels);

        let spacing = Spacing(three(&example["target"]));
        let target = TargetGrid::new(&stored, spacing);
        assert_eq!(target.shape(), shape(&example["grid"]), "{name}");
        let change = SpatialChange {
            radians: three(&example["angles"]),
            factors: three(&example["factors"]),
            mirrored: three(&example["mirrored"]).map(|mirrored| mirrored == 1.0),
            ..SpatialChange::NONE
        };
        let start = three(&example["start"]).map(|at| at as i64);
        let recipe = Recipe::new(0, &target, start, shape(&example["patch"]), spacing, &change);
        let intensity = Intensity { clip: Some((-400.0, 400.0)), shift: 20.0, scale: 0.01 };
        let case = case(&path, 1, Some(&label));
        let (ours, our_labels) = pulled(&recipe, &case, intensity, &cache(Bytes::ZERO), Scratch::DEFAULT);
        let close = numbers(&example["close"]);
        let theirs = numbers(&example["image"]).into_iter().zip(numbers(&example["labels"]));
        let mut compared = 0;
        for (((ours, our_label), (value, label)), close) in
            ours.iter().zip(&our_labels).zip(theirs).zip(close)
        {
            if close == 0.0 {
                // Less than a ten-thousandth of the range, which is from -4.2 to 3.8.
                assert!((f64::from(*ours) - value).abs() < 5e-4, "{name}: {ours} against {value}");
                assert_eq!(f64::from(*our_label), label, "{name}");
                compared += 1;
            }
        }
        assert!(compared > ours.len() / 2, "{name}: {compared} of {}", ours.len());
    }
}

/// A stored image with labels in some orientation and an uneven spacing.
fn made(folder: &Path, ending: &str, shape: [usize; 3]) -> (Geometry, Case) {
    let affine = Affine([[0.0, -1.1, 0.0, 5.0], [0.0, 0.0, 0.9, 1.0], [2.3, 0.0, 0.0, -7.0]]);
    let stored = Geometry::new(shape, affine).unwrap();
    let (path, label) = (folder.join(format!("image{ending}")), folder.join(format!("label{ending}")));
    let count = stored.voxel_count() as u64;
    let image: Vec<f32> = (0..count).map(|i| (hash(i) >> 7) as f32 - 3000.0).collect();
    write_image(&path, &stored, 1, ElementType::I16, &image);
    let labels: Vec<f32> = (0..count).map(|i| ((hash(i) >> 9) % 3) as f32).collect();
    write_image(&label, &stored, 1, ElementType::U8, &labels);
    (stored, case(&path, 1, Some(&label)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_patch_does_not_depend_on_how_it_is_tiled_nor_on_where_voxels_come_from(
        radians in prop::array::uniform3(-0.6..0.6f64),
        factor in 0.5..2.0f64,
        turned: bool,
        mirrored: [bool; 3],
        start in prop::array::uniform3(-6i64..14),
        patch in prop::array::uniform3(1usize..24),
        spacing in prop::array::uniform3(0.6..3.0f64),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let spacing = Spacing(spacing);
        let mut results = Vec::new();
        for ending in [".nii", ".nii.gz"] {
            let (stored, case) = made(folder.path(), ending, [14, 21, 19]);
            let target = TargetGrid::new(&stored, spacing);
            let radians = if turned { radians } else { [0.0; 3] };
            let change = SpatialChange { radians, factors: [factor; 3], mirrored, ..SpatialChange::NONE };
            let recipe = Recipe::new(0, &target, start, patch, spacing, &change);
            let intensity = Intensity { clip: Some((-2000.0, 3000.0)), shift: 100.0, scale: 0.003 };
            for room in [Bytes::ZERO, Bytes::mib(1)] {
                for bytes in [Scratch::DEFAULT, Bytes(4096)] {
                    let (image, labels) = pulled(&recipe, &case, intensity, &cache(room), bytes);
                    results.push((bits(&image), labels));
                }
            }
        }
        for other in &results[1..] {
            prop_assert!(other == &results[0]);
        }
    }
}

#[test]
fn a_cropped_patch_has_exactly_the_stored_voxels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.nii");
    let stored = grid([4, 5, 6], [3.0, 0.7, 0.9]);
    let mut image: Vec<f32> = (0..120).map(|i| hash(i) as f32 * 1e-3).collect();
    // Values that arithmetic would not preserve.
    for (i, odd) in [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 2.0].into_iter().enumerate() {
        image[i * 31] = odd;
    }
    write_image(&path, &stored, 1, ElementType::F32, &image);
    let target = TargetGrid::new(&stored, stored.spacing());
    let mut source =
        CaseSource::open(&case(&path, 1, None), &[Intensity::UNCHANGED], false, &cache(Bytes::ZERO)).unwrap();
    let recipe = Recipe::window(0, &target, [0; 3], [4, 5, 6]);
    assert_eq!(recipe.map(), VoxelMap::IDENTITY);
    let mut out = vec![0.0; 120];
    pull(&recipe, &mut source, &mut out, None, &mut scratch(Scratch::DEFAULT)).unwrap();
    assert_eq!(bits(&out), bits(&image));
}

#[test]
fn outside_of_the_image_intensities_are_zero_and_labels_background() {
    let folder = tempfile::tempdir().unwrap();
    let (path, label) = (folder.path().join("image.nii.gz"), folder.path().join("label.nii.gz"));
    let stored = grid([4, 4, 4], [1.0; 3]);
    write_image(&path, &stored, 1, ElementType::I16, &[500.0; 64]);
    write_image(&label, &stored, 1, ElementType::U8, &[2.0; 64]);
    let target = TargetGrid::new(&stored, stored.spacing());
    let recipe = Recipe::window(0, &target, [-1, 0, 2], [6, 4, 4]);
    let intensity = Intensity { clip: None, shift: 400.0, scale: 0.5 };
    let case = case(&path, 1, Some(&label));
    let (image, labels) = pulled(&recipe, &case, intensity, &cache(Bytes::mib(1)), Scratch::DEFAULT);
    for (at, (value, label)) in image.iter().zip(&labels).enumerate() {
        let inside = (1..5).contains(&(at / 16)) && at % 4 < 2;
        assert_eq!((*value, *label), if inside { (50.0, 2) } else { (0.0, 0) }, "{at}");
    }
}

#[test]
fn channels_of_one_file_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii.gz");
    let stored = grid([3, 3, 3], [1.0; 3]);
    let voxels: Vec<f32> = (0..81).map(|i| (i / 27) as f32 + 1.0).collect();
    write_image(&path, &stored, 3, ElementType::U8, &voxels);
    let case = case(&path, 3, None);
    let of = |scale| Intensity { clip: None, shift: 0.0, scale };
    let target = TargetGrid::new(&stored, stored.spacing());
    for room in [Bytes::ZERO, Bytes::mib(1)] {
        let mut source =
            CaseSource::open(&case, &[of(1.0), of(10.0), of(100.0)], false, &cache(room)).unwrap();
        let mut out = vec![0.0; 24];
        let recipe = Recipe::window(0, &target, [0; 3], [2; 3]);
        pull(&recipe, &mut source, &mut out, None, &mut scratch(Bytes(4096))).unwrap();
        assert_eq!(out, [[1.0; 8], [20.0; 8], [300.0; 8]].concat());
    }
}

#[test]
fn patches_that_cannot_be_pulled_are_errors_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (stored, case) = made(folder.path(), ".nii.gz", [5, 6, 7]);
    let target = TargetGrid::new(&stored, stored.canonical().0.spacing());
    let recipe = Recipe::window(0, &target, [0; 3], [2; 3]);
    let no_cache = cache(Bytes::ZERO);
    let open = |with_label| CaseSource::open(&case, &[Intensity::UNCHANGED], with_label, &no_cache).unwrap();
    let mut out = vec![0.0; 8];
    let mut labels = vec![0; 8];
    let error =
        pull(&recipe, &mut open(true), &mut out[..7], None, &mut scratch(Scratch::DEFAULT)).unwrap_err();
    assert!(matches!(error, PatchError::BufferLength { expected: 8, found: 7 }));
    let error = pull(&recipe, &mut open(false), &mut out, Some(&mut labels), &mut scratch(Scratch::DEFAULT));
    assert!(matches!(error, Err(PatchError::NoLabel)));
    let error = pull(&recipe, &mut open(true), &mut out, None, &mut scratch(Bytes::ZERO)).unwrap_err();
    assert!(matches!(&error, PatchError::ScratchTooSmall { needed: Bytes(4), found: Bytes::ZERO, path }
        if path.ends_with("image.nii.gz")));
    assert!(error.remedy().unwrap().contains("8.0 MiB"));

    let other = TargetGrid::new(&grid([5, 6, 8], [1.0; 3]), Spacing([1.0; 3]));
    let recipe = Recipe::window(0, &other, [0; 3], [2; 3]);
    let error = pull(&recipe, &mut open(true), &mut out, None, &mut scratch(Scratch::DEFAULT)).unwrap_err();
    assert!(error.to_string().contains("image.nii.gz has shape [5, 6, 7], but had [5, 6, 8]"), "{error}");

    let bytes = std::fs::read(&case.images[0].path).unwrap();
    std::fs::write(&case.images[0].path, &bytes[..bytes.len() / 2]).unwrap();
    let recipe = Recipe::window(0, &target, [3, 0, 0], [2; 3]);
    let error = pull(&recipe, &mut open(true), &mut out, None, &mut scratch(Scratch::DEFAULT)).unwrap_err();
    assert!(error.to_string().contains("image.nii.gz is damaged") && error.remedy().is_some(), "{error}");
}

#[test]
fn rounding_a_map_moves_no_voxel_by_a_ten_thousandth() {
    let stored = grid([300, 512, 512], [0.83, 0.71, 0.37]);
    let spacing = Spacing([1.1, 0.77, 0.77]);
    let target = TargetGrid::new(&stored, spacing);
    let patch = [160, 256, 512];
    let change = SpatialChange {
        radians: [0.5, -0.4, 0.3],
        factors: [1.37; 3],
        mirrored: [true; 3],
        ..SpatialChange::NONE
    };
    let recipe = Recipe::new(0, &target, [13, -7, 100], patch, spacing, &change);
    let centre = patch.map(|voxels| (voxels as f64 - 1.0) / 2.0);
    let exact = VoxelMap::new([
        [-1.0, 0.0, 0.0, 2.0 * centre[0]],
        [0.0, -1.0, 0.0, 2.0 * centre[1]],
        [0.0, 0.0, -1.0, 2.0 * centre[2]],
    ])
    .then(&VoxelMap::scale([1.37; 3], centre))
    .then(&VoxelMap::rotation([0.5, -0.4, 0.3], spacing, centre))
    .then(&target.window([13, -7, 100]));
    for corner in 0..8 {
        let at: [f64; 3] =
            std::array::from_fn(|axis| if corner >> axis & 1 == 1 { patch[axis] as f64 - 1.0 } else { 0.0 });
        let (ours, theirs) = (recipe.map().apply(at), exact.apply(at));
        assert!((0..3).all(|axis| (ours[axis] - theirs[axis]).abs() < 1e-4), "{ours:?} {theirs:?}");
    }
}
