//! The distribution of patches.

use std::sync::Arc;

use crate::support::{Raw, grid, inspect, write_image};
use plimsoll_data::{
    Augmentation, Fold, Inspection, Mode, Oversampling, PatchGrid, Recipe, Sampler, SamplerConfig,
    SamplerError, TargetSpacing,
};
use plimsoll_volume::{ElementType, Spacing, VoxelMap};
use serde_json::json;

const PATCH: [usize; 3] = [8, 8, 8];

fn config(patch: [usize; 3], augmentation: Augmentation) -> SamplerConfig {
    SamplerConfig {
        augmentation,
        ..SamplerConfig::new(PatchGrid { patch, spacing: Spacing([1.0; 3]).into() }, 2)
    }
}

/// Three cases: one with a single voxel of each of two classes, one without foreground, a small one.
fn inspected() -> (Raw, Arc<Inspection>) {
    let raw = Raw::new(&["CT"], json!({"background": 0, "a": 1, "b": 2}));
    let geometry = grid([32, 32, 32], [1.0; 3]);
    let mut labels = vec![0; 32 * 32 * 32];
    labels[(20 * 32 + 21) * 32 + 22] = 1;
    labels[(2 * 32 + 30) * 32 + 16] = 2;
    raw.case("a", 1, &geometry, &labels);
    raw.case("b", 1, &geometry, &vec![0; 32 * 32 * 32]);
    raw.case("c", 1, &grid([32, 5, 32], [1.0; 3]), &vec![0; 32 * 5 * 32]);
    let inspection = Arc::new(inspect(&raw.open()));
    (raw, inspection)
}

fn fold(train: &[&str], val: &[&str]) -> Fold {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_string()).collect();
    Fold { train: owned(train), val: owned(val) }
}

/// The start of an unrotated patch in the stored image.
fn start(recipe: &Recipe) -> [i64; 3] {
    recipe.map().apply([0.0; 3]).map(|at| at.round() as i64)
}

fn recipes(sampler: &Sampler, count: u64) -> impl Iterator<Item = Recipe> {
    (0..count).map(|n| sampler.recipe(Mode::Training, 7, n / 2, n % 2))
}

#[test]
fn the_last_of_two_patches_is_centred_on_foreground_with_classes_drawn_uniformly() {
    let (_raw, inspection) = inspected();
    let sampler =
        Sampler::new(inspection, &fold(&["a"], &["a"]), config(PATCH, Augmentation::none())).unwrap();
    let count = 6000;
    // The patches whose centre, voxel 4 of 8, is the voxel; they begin within the image, but may end behind it.
    let mut on = [0; 2];
    for recipe in recipes(&sampler, count) {
        match start(&recipe) {
            [16, 17, 18] => on[0] += 1,
            [0, 26, 12] => on[1] += 1,
            _ => {}
        }
    }
    // Of half of them a half each, within five standard deviations; a patch lies at the first by chance once in 15 000.
    for found in on {
        let half = count as f64 / 2.0;
        assert!((f64::from(found) - half / 2.0).abs() < 5.0 * (half / 4.0).sqrt(), "{on:?}");
    }
    assert!(on[0] + on[1] >= 3000 && on[0] + on[1] < 3010, "the last of each batch: {on:?}");
}

#[test]
fn patches_are_centred_on_regions_drawn_uniformly_with_each_voxel_of_one_as_likely() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "a": 1, "b": 2}));
    let voxels = [[10, 11, 12], [14, 20, 15], [20, 12, 18], [22, 22, 22]];
    let mut labels = vec![0; 32 * 32 * 32];
    for (place, [d, h, w]) in voxels.into_iter().enumerate() {
        labels[(d * 32 + h) * 32 + w] = if place == 3 { 2 } else { 1 };
    }
    raw.case("a", 1, &grid([32, 32, 32], [1.0; 3]), &labels);
    let inspection = Arc::new(inspect(&raw.open()));
    let always = SamplerConfig { oversample_foreground: 1.0, ..config(PATCH, Augmentation::none()) };
    let sampler = Sampler::new(inspection, &fold(&["a"], &["a"]), always).unwrap();
    // The second region is part of the first.
    let sampler = sampler.on_regions(vec![vec![1, 2], vec![2]]);
    let mut on = [0u32; 4];
    for recipe in recipes(&sampler, 8000) {
        let centre = start(&recipe).map(|at| usize::try_from(at + 4).unwrap());
        on[voxels.iter().position(|voxel| *voxel == centre).unwrap()] += 1;
    }
    // Of the first region's half a quarter each, and the second region's half; within five standard deviations.
    for (found, expected) in on.into_iter().zip([1000, 1000, 1000, 5000]) {
        assert!(found.abs_diff(expected) < 220, "{on:?}");
    }
}

#[test]
fn with_random_oversampling_any_patch_of_a_batch_may_be_on_the_foreground() {
    let (_raw, inspection) = inspected();
    let usual = config(PATCH, Augmentation::none());
    let sampler = |config| Sampler::new(Arc::clone(&inspection), &fold(&["a"], &["a"]), config).unwrap();
    let random = SamplerConfig { oversampling: Oversampling::Random, ..usual };
    // A batch of one is drawn so in either way.
    for (config, batch) in [(random, 2), (SamplerConfig { batch_size: 1, ..usual }, 1)] {
        let sampler = sampler(config);
        let mut on = vec![0; batch as usize];
        for n in 0..1500 * batch {
            let recipe = sampler.recipe(Mode::Training, 7, n / batch, n % batch);
            on[(n % batch) as usize] += i32::from(matches!(start(&recipe), [16, 17, 18] | [0, 26, 12]));
        }
        // Five standard deviations.
        assert!(on.iter().all(|on| (on - 495).abs() < 91), "{on:?}");
    }
}

#[test]
fn the_share_on_the_foreground_can_be_chosen() {
    let (_raw, inspection) = inspected();
    for (share, expected) in [(0.0, 0), (1.0, 500)] {
        let config = SamplerConfig { oversample_foreground: share, ..config(PATCH, Augmentation::none()) };
        let sampler = Sampler::new(Arc::clone(&inspection), &fold(&["a"], &["a"]), config).unwrap();
        let on = recipes(&sampler, 500)
            .filter(|recipe| matches!(start(recipe), [16, 17, 18] | [0, 26, 12]))
            .count();
        assert_eq!(on, expected);
    }
}

#[test]
fn patches_reach_every_position_inside_and_none_outside() {
    let (_raw, inspection) = inspected();
    let sampler =
        Sampler::new(inspection, &fold(&["b"], &["b"]), config(PATCH, Augmentation::none())).unwrap();
    let mut seen = [[0u32; 25]; 3];
    for recipe in recipes(&sampler, 5000) {
        for (axis, at) in start(&recipe).into_iter().enumerate() {
            seen[axis][usize::try_from(at).unwrap()] += 1;
        }
    }
    // Five standard deviations of a count with mean 200.
    assert!(seen.iter().flatten().all(|count| count.abs_diff(200) < 70), "{seen:?}");
}

#[test]
fn a_patch_that_does_not_fit_is_centred() {
    let (_raw, inspection) = inspected();
    let sampler =
        Sampler::new(inspection, &fold(&["c"], &["c"]), config(PATCH, Augmentation::none())).unwrap();
    assert!(recipes(&sampler, 200).all(|recipe| start(&recipe)[1] == -1));
}

#[test]
fn patches_stay_where_the_image_is_not_zero() {
    let raw = Raw::new(&["MR"], json!({"background": 0, "a": 1}));
    let geometry = grid([24, 24, 24], [1.0; 3]);
    raw.case("a", 1, &geometry, &vec![0; 24 * 24 * 24]);
    let inside = |at: usize| (10..20).contains(&(at / 576)) && (3..24).contains(&(at % 24));
    let voxels: Vec<f32> = (0..24 * 24 * 24).map(|at| f32::from(u8::from(inside(at))) * 5.0).collect();
    write_image(&raw.image("a", 0), &geometry, 1, ElementType::U8, &voxels);
    let inspection = Arc::new(inspect(&raw.open()));
    let sampler =
        Sampler::new(inspection, &fold(&["a"], &["a"]), config(PATCH, Augmentation::none())).unwrap();
    let mut starts = [[i64::MAX, i64::MIN]; 3];
    for recipe in recipes(&sampler, 1000) {
        for (axis, at) in start(&recipe).into_iter().enumerate() {
            starts[axis] = [starts[axis][0].min(at), starts[axis][1].max(at)];
        }
    }
    assert_eq!(starts, [[10, 12], [0, 16], [3, 16]]);
}

#[test]
fn cases_of_the_fold_are_drawn_uniformly() {
    let (_raw, inspection) = inspected();
    let fold = fold(&["a", "c"], &["b"]);
    let sampler = Sampler::new(inspection, &fold, config(PATCH, Augmentation::default())).unwrap();
    let mut counts = [0u32; 3];
    recipes(&sampler, 4000).for_each(|recipe| counts[recipe.case()] += 1);
    assert_eq!((counts[1], counts[0] + counts[2]), (0, 4000));
    assert!(counts[0].abs_diff(2000) < 160, "{counts:?}");
    assert!((0..50).all(|n| sampler.recipe(Mode::Validation, 7, n, 0).case() == 1));
}

#[test]
fn a_recipe_depends_on_seed_step_and_sample_alone() {
    let (_raw, inspection) = inspected();
    let new = || {
        let config = config(PATCH, Augmentation::default());
        Sampler::new(Arc::clone(&inspection), &fold(&["a", "b"], &["c"]), config).unwrap()
    };
    let (first, second) = (new(), new());
    let forwards: Vec<Recipe> = recipes(&first, 100).collect();
    let mut backwards: Vec<Recipe> =
        (0..100).rev().map(|n| second.recipe(Mode::Training, 7, n / 2, n % 2)).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert!(forwards.windows(2).all(|pair| pair[0] != pair[1]));
    assert_ne!(forwards[0], first.recipe(Mode::Training, 8, 0, 0));
}

#[test]
fn validation_patches_are_not_augmented() {
    let (_raw, inspection) = inspected();
    let config = config(PATCH, Augmentation::default());
    let sampler = Sampler::new(inspection, &fold(&["b"], &["a"]), config).unwrap();
    let mut on_foreground = 0;
    for step in 0..600 {
        let recipe = sampler.recipe(Mode::Validation, 7, step, 1);
        assert_eq!(recipe.map(), VoxelMap::translation(start(&recipe).map(|at| at as f64)));
        assert!(recipe.intensity_change().noise.is_none() && recipe.intensity_change().channels.is_empty());
        on_foreground += u32::from(matches!(start(&recipe), [16, 17, 18] | [0, 26, 12]));
    }
    assert!((300..304).contains(&on_foreground), "as often as in training: {on_foreground}");
}

#[test]
fn with_ignored_voxels_patches_are_centred_on_annotated_ones() {
    let raw = Raw::new(&["CT"], json!({"background": 0, "a": 1, "ignore": 2}));
    let mut labels = vec![2; 32 * 32 * 32];
    labels[(20 * 32 + 21) * 32 + 22] = 1;
    labels[(10 * 32 + 11) * 32 + 12] = 0;
    raw.case("a", 1, &grid([32, 32, 32], [1.0; 3]), &labels);
    let inspection = Arc::new(inspect(&raw.open()));
    let sampler =
        Sampler::new(inspection, &fold(&["a"], &["a"]), config(PATCH, Augmentation::none())).unwrap();
    let mut counts = [0; 2];
    for recipe in recipes(&sampler, 900) {
        match start(&recipe) {
            [16, 17, 18] => counts[0] += 1,
            [6, 7, 8] => counts[1] += 1,
            other => panic!("{other:?} is on no annotated voxel"),
        }
    }
    // A half on the foreground; of the rest half on either voxel.
    assert!((counts[1] - 225i32).abs() < 53, "{counts:?}");
}

#[test]
fn anisotropic_patches_are_rotated_in_their_plane_only() {
    let (_raw, inspection) = inspected();
    let always = Augmentation { p_rotation: 1.0, p_scaling: 1.0, p_mirror: 0.0, ..Augmentation::none() };
    let sampler =
        Sampler::new(Arc::clone(&inspection), &fold(&["a"], &["a"]), config([2, 12, 12], always)).unwrap();
    let mut reversed = false;
    for recipe in recipes(&sampler, 200) {
        let rows = recipe.map().rows();
        assert_eq!(rows[0][..3], [1.0, 0.0, 0.0]);
        assert_eq!([rows[1][0], rows[2][0]], [0.0; 2]);
        reversed |= rows[1][1] < -0.5;
    }
    assert!(reversed, "by up to 180°");
    let sampler = Sampler::new(inspection, &fold(&["a"], &["a"]), config(PATCH, always)).unwrap();
    for recipe in recipes(&sampler, 200) {
        let rows = recipe.map().rows();
        assert!(rows[0][1] != 0.0 && rows[0][2] != 0.0);
        // Within ±30° about each axis, and scaled by 0.7 to 1.4.
        assert!((0..3).all(|axis| rows[axis][axis] > 0.7 * 0.6 && rows[axis][axis] <= 1.4));
    }
}

#[test]
fn augmentations_have_the_specified_frequency_and_strength() {
    let (_raw, inspection) = inspected();
    let config = config(PATCH, Augmentation::default());
    let sampler = Sampler::new(inspection, &fold(&["a"], &["a"]), config).unwrap();
    let count = 8000;
    let mut seen = [0; 9];
    let mut gammas = Vec::new();
    for recipe in recipes(&sampler, count) {
        let rows = recipe.map().rows();
        let linear = [0, 1, 2].map(|row| [rows[row][0], rows[row][1], rows[row][2]]);
        let determinant = determinant(linear);
        let scale = determinant.abs().cbrt();
        seen[0] += usize::from((scale - 1.0).abs() > 1e-4);
        assert!((0.7 - 1e-3..=1.4 + 1e-3).contains(&scale));
        let turned = linear.iter().flatten().filter(|entry| entry.abs() > 1e-4).count() > 3;
        seen[1] += usize::from(turned);
        seen[2] += usize::from(determinant < 0.0);
        if !turned {
            seen[3] += usize::from(linear[0][0] < 0.0);
        }
        let change = recipe.intensity_change();
        seen[4] += usize::from(change.noise.is_some());
        assert!(change.noise.is_none_or(|deviation| (0.0..=0.1).contains(&deviation)));
        let channel = change.channels[0];
        seen[5] += usize::from(channel.brightness.is_some());
        seen[6] += usize::from(channel.contrast.is_some());
        seen[7] += usize::from(channel.inverted_gamma.is_some());
        seen[8] += usize::from(channel.gamma.is_some());
        assert!(channel.brightness.is_none_or(|factor| (0.75..=1.25).contains(&factor)));
        gammas.extend(channel.gamma);
    }
    let expected = [0.2, 0.2, 0.5, 0.8 * 0.5, 0.1, 0.15, 0.15, 0.1, 0.3];
    for (what, (seen, p)) in seen.iter().zip(expected).enumerate() {
        let mean = count as f64 * p;
        assert!((*seen as f64 - mean).abs() < 5.0 * (mean * (1.0 - p)).sqrt(), "{what}: {seen} of {mean}");
    }
    let below = gammas.iter().filter(|gamma| **gamma < 1.0).count() as f64 / gammas.len() as f64;
    assert!((below - 0.5).abs() < 0.06, "as often below 1 as above: {below}");
    assert!(gammas.iter().all(|gamma| (0.7..=1.5).contains(gamma)));
}

fn determinant([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

#[test]
fn invalid_settings_are_errors() {
    let (_raw, inspection) = inspected();
    let good = config(PATCH, Augmentation::default());
    let error = |fold: &Fold, config| {
        let error = Sampler::new(Arc::clone(&inspection), fold, config).err().unwrap();
        (error.to_string(), error)
    };
    let whole = fold(&["a"], &["b"]);
    let (text, found) = error(&fold(&["a", "x"], &["b"]), good);
    assert!(text.contains("case x of the fold is not among") && found.remedy().is_some());
    let (text, found) = error(&fold(&["a"], &[]), good);
    assert!(text == "the fold has no val cases" && found.remedy().unwrap().contains("`all`"));
    assert!(error(&whole, config([8, 0, 8], Augmentation::none())).0.contains("[8, 0, 8]"));
    assert!(error(&whole, config([usize::MAX; 3], Augmentation::none())).0.contains("cannot have the shape"));
    let spacing = PatchGrid { patch: PATCH, spacing: Spacing([1.0, -1.0, 1.0]).into() };
    assert!(error(&whole, SamplerConfig { grid: spacing, ..good }).0.contains("a spacing is -1 mm"));
    assert!(error(&whole, SamplerConfig { oversample_foreground: 1.5, ..good }).0.contains("is 1.5"));
    let odd = Augmentation { scaling: [1.4, 0.7], ..Augmentation::default() };
    let (text, found) = error(&whole, config(PATCH, odd));
    assert!(text.starts_with("`scaling` of the augmentation is [1.4, 0.7]") && found.remedy().is_some());
    assert!(matches!(found, SamplerError::Augmentation(_)));
    let odd = Augmentation { p_gamma: f64::NAN, ..Augmentation::default() };
    assert!(error(&whole, config(PATCH, odd)).0.contains("`p_gamma` of the augmentation is NaN"));
}

#[test]
fn settings_are_read_by_name_and_unknown_ones_refused() {
    let read = |text: &str| serde_json::from_str::<Augmentation>(text);
    assert_eq!(read("{}").unwrap(), Augmentation::default());
    assert_eq!(read(r#"{"scaling": [0.9, 1.1]}"#).unwrap().scaling, [0.9, 1.1]);
    assert!(read(r#"{"p_blur": 0.5}"#).unwrap_err().to_string().contains("unknown field `p_blur`"));
    let config = config(PATCH, Augmentation::default());
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<SamplerConfig>(&text).unwrap(), config);
    let short = r#"{"grid": {"patch": [8, 8, 8], "spacing": [1.0, 1.0, 1.0]}, "batch_size": 2}"#;
    assert_eq!(serde_json::from_str::<SamplerConfig>(short).unwrap(), config);
}

#[test]
fn slices_are_whole_slices_of_the_case_and_those_of_the_foreground_are_oversampled() {
    let (_raw, inspection) = inspected();
    let always = Augmentation { p_rotation: 1.0, p_scaling: 1.0, p_mirror: 1.0, ..Augmentation::none() };
    // In the plane at half the resolution; across, every stored slice is one.
    let grid = PatchGrid { patch: [1, 6, 6], spacing: TargetSpacing::InPlane([2.0, 2.0]) };
    let config = SamplerConfig { augmentation: always, ..SamplerConfig::new(grid, 2) };
    let sampler = Sampler::new(inspection, &fold(&["a"], &["a"]), config).unwrap();
    let (count, mut on) = (3000, [0; 32]);
    for recipe in recipes(&sampler, count) {
        let [across, ..] = recipe.map().rows();
        assert_eq!(across[..3], [1.0, 0.0, 0.0], "no rotation out of the plane, no mirroring across slices");
        assert!(across[3].fract() == 0.0, "a slice that was stored");
        on[across[3] as usize] += 1;
    }
    // A half on the slices of the two voxels, of either class as often; the others on any slice.
    let (half, all) = (count as f64 / 2.0, count as f64 / 2.0 / 32.0);
    for slice in [2, 20] {
        assert!((f64::from(on[slice]) - half / 2.0 - all).abs() < 120.0, "{on:?}");
    }
    assert!((0..32).filter(|slice| ![2, 20].contains(slice)).all(|slice| (15..=80).contains(&on[slice])));
}
