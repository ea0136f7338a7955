//! Augmented patches against those that nnU-Net's own data loader and transforms make of the same case.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Raw, grid, hash, inspect, oracle, shape, write_image};
use plimsoll_data::{
    Augmentation, CaseSource, Fold, ImageInterpolation, Intensity, Mode, PatchGrid, Recipe, Sampler,
    SamplerConfig, Scratch, VolumeCache, pull,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, Spacing};
use serde_json::{Value, json};

const SHAPE: [usize; 3] = [40, 44, 48];

/// The case of `oracles/augmentation.py`.
fn case() -> Raw {
    let raw = Raw::new(&["noNorm"], json!({"background": 0, "ball": 1, "box": 2}));
    let geometry = grid(SHAPE, [1.0; 3]);
    let (mut image, mut labels) = (Vec::new(), Vec::new());
    for i in 0..SHAPE.iter().product::<usize>() {
        let [d, h, w] = [i / (44 * 48), i / 48 % 44, i % 48].map(|at| at as f64);
        let noise = hash(i as u64) as f64 / f64::from(1 << 20);
        image.push((1.5 + (0.31 * d).sin() + (0.23 * h).cos() * (0.27 * w).sin() + noise) as f32);
        let is_ball = (d - 14.0).powi(2) + (h - 16.0).powi(2) + (w - 30.0).powi(2) < 64.0;
        let is_box = d >= 30.0 && h >= 32.0 && w < 10.0;
        labels.push(if is_box { 2 } else { u8::from(is_ball) });
    }
    raw.case("a", 1, &geometry, &labels);
    write_image(&raw.image("a", 0), &geometry, 1, ElementType::F32, &image);
    raw
}

/// Values by name, one for each patch that has it.
type Noted = BTreeMap<String, Vec<f64>>;

fn note(noted: &mut Noted, name: &str, value: f64) {
    noted.entry(name.into()).or_default().push(value);
}

/// Notes the parameters drawn for a patch.
fn note_recipe(noted: &mut Noted, recipe: &Recipe, is_flat: bool) {
    let rows = recipe.map().rows();
    let [a, b, c] = rows.map(|[depth, height, width, _]| [depth, height, width]);
    let determinant = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0]);
    let scale = if is_flat { determinant.abs().sqrt() } else { determinant.abs().cbrt() };
    if (scale - 1.0).abs() > 1e-5 {
        note(noted, "scale", scale);
    }
    let is_turned = a[1].abs() + a[2].abs() + b[2].abs() > 1e-5;
    if is_flat {
        assert_eq!([a[1], a[2], b[0], c[0]], [0.0; 4], "a flat patch stays in its plane");
    } else if is_turned {
        // Rotations of up to 30° about each axis leave the signs of the diagonal to mirroring.
        let trace = (a[0].abs() + b[1].abs() + c[2].abs()) / scale;
        note(noted, "angle", ((trace - 1.0) / 2.0).clamp(-1.0, 1.0).acos().to_degrees());
    }
    let change = recipe.intensity_change();
    let channel = change.channels[0];
    let numbers = [
        ("noise", change.noise.map(f64::from)),
        ("blur", channel.blur.map(|[d, h, w]| (d + h + w) / 3.0)),
        ("brightness", channel.brightness.map(f64::from)),
        ("contrast", channel.contrast.map(f64::from)),
        ("low_resolution", channel.low_resolution.map(|[_, _, width]| width)),
        ("low_resolution_of_depth", channel.low_resolution.map(|[depth, _, _]| depth)),
        ("inverted_gamma", channel.inverted_gamma.map(f64::from)),
        ("gamma", channel.gamma.map(f64::from)),
    ];
    for (name, number) in numbers {
        number.into_iter().for_each(|number| note(noted, name, number));
    }
}

/// Notes the values of a patch.
fn note_patch(noted: &mut Noted, image: &[f32], labels: &[u8], width: usize) {
    let count = image.len() as f64;
    let mean = image.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let squares = image.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
    let steps = image
        .chunks_exact(width)
        .flat_map(|row| row.windows(2))
        .map(|pair| f64::from((pair[1] - pair[0]).abs()));
    let share = |label: u8| labels.iter().filter(|found| **found == label).count() as f64 / count;
    let extreme = |of: fn(f32, f32) -> f32| f64::from(image.iter().copied().reduce(of).unwrap());
    for (name, value) in [
        ("mean", mean),
        ("deviation", (squares / count).sqrt()),
        ("least", extreme(f32::min)),
        ("greatest", extreme(f32::max)),
        ("step", steps.sum::<f64>() / (count - count / width as f64)),
        ("label_1", share(1)),
        ("label_2", share(2)),
    ] {
        note(noted, name, value);
    }
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
}

/// Means of as many values as nnU-Net's that differ by less than five standard errors, and deviations by less than an eighth.
fn assert_alike(name: &str, ours: &[f64], theirs: &Value, their_count: f64) {
    let (mean, deviation) = mean_and_deviation(ours);
    let (their_mean, their_deviation) =
        (theirs["mean"].as_f64().unwrap(), theirs["deviation"].as_f64().unwrap());
    let error = (deviation.powi(2) / ours.len() as f64 + their_deviation.powi(2) / their_count).sqrt();
    println!(
        "{name}: {mean:.4} ± {deviation:.4} against {their_mean:.4} ± {their_deviation:.4}, error {error:.4}"
    );
    assert!(
        (mean - their_mean).abs() <= 5.0 * error + 1e-9,
        "{name}: mean {mean} against {their_mean} ± {error}"
    );
    assert!(
        (deviation - their_deviation).abs() <= 0.125 * their_deviation + 1e-9,
        "{name}: deviation {deviation} against {their_deviation}"
    );
}

/// Compares so many patches with nnU-Net's 2,000 of one shape.
fn compare(example: &Value, count: u64) {
    let raw = case();
    let dataset = raw.open();
    let inspection = Arc::new(inspect(&dataset));
    let patch = shape(&example["patch"]);
    let is_flat = patch[0] == 6;
    let config = SamplerConfig::new(PatchGrid { patch, spacing: Spacing([1.0; 3]).into() }, 2);
    let fold = Fold { train: vec!["a".into()], val: vec!["a".into()] };
    let sampler = Sampler::new(inspection, &fold, config).unwrap();
    let cache = VolumeCache::new(Budget::new(Bytes::mib(4)));
    let mut source = CaseSource::open(&dataset.cases[0], &[Intensity::UNCHANGED], true, &cache).unwrap();
    let mut scratch = Scratch::new(&Budget::new(Bytes::mib(9)), Scratch::DEFAULT).unwrap();
    let voxels = patch.iter().product();
    let (mut image, mut labels) = (vec![0.0; voxels], vec![0; voxels]);
    let (mut drawn, mut found) = (Noted::new(), Noted::new());
    for n in 0..count {
        let recipe = sampler.recipe(Mode::Training, 1, n / 2, n % 2);
        note_recipe(&mut drawn, &recipe, is_flat);
        pull(&recipe, &mut source, &mut image, Some(&mut labels), &mut scratch).unwrap();
        note_patch(&mut found, &image, &labels, patch[2]);
    }
    let theirs = example["patches"].as_f64().unwrap();
    for (name, ours) in &drawn {
        let example = &example["drawn"][name];
        let their_rate = example["rate"].as_f64().unwrap();
        let rate = ours.len() as f64 / count as f64;
        let error = (their_rate * (1.0 - their_rate) * (1.0 / count as f64 + 1.0 / theirs)).sqrt();
        assert!(
            (rate - their_rate).abs() < 5.0 * error,
            "{name}: rate {rate} against {their_rate} ± {error}"
        );
        assert_alike(name, ours, example, their_rate * theirs);
        let (low, high) = (example["least"].as_f64().unwrap(), example["greatest"].as_f64().unwrap());
        let (least, greatest) =
            (ours.iter().copied().fold(f64::MAX, f64::min), ours.iter().copied().fold(f64::MIN, f64::max));
        let near = 0.15 * (high - low) + 1e-9;
        assert!(
            (least - low).abs() < near && (greatest - high).abs() < near,
            "{name}: {least} to {greatest}"
        );
    }
    let mirrors = |name: &&String| name.starts_with("mirror");
    let their_names = example["drawn"].as_object().unwrap().keys();
    assert!(
        their_names
            .filter(|name| !(mirrors(name) || is_flat && *name == "angle"))
            .all(|name| drawn.contains_key(name))
    );
    for (name, ours) in &found {
        assert_alike(name, ours, &example["statistics"][name], theirs);
    }
}

#[test]
fn cubic_patches_have_the_rates_ranges_and_statistics_of_nnu_nets() {
    compare(&oracle("augmentation.json")[0], 2000);
}

#[test]
fn flat_patches_have_the_rates_ranges_and_statistics_of_nnu_nets() {
    compare(&oracle("augmentation.json")[1], 2000);
}

#[test]
fn deformed_and_sheared_patches_do_not_depend_on_how_they_are_tiled_and_stay_near_those_that_are_not() {
    let raw = case();
    let dataset = raw.open();
    let inspection = Arc::new(inspect(&dataset));
    let always = |interpolation, elastic| Augmentation {
        p_rotation: 1.0,
        p_shear: 1.0,
        p_elastic: elastic,
        elastic_magnitude: [0.5, 2.0],
        p_bias_field: 1.0,
        interpolation,
        ..Augmentation::none()
    };
    let fold = Fold { train: vec!["a".into()], val: vec!["a".into()] };
    let cache = VolumeCache::new(Budget::new(Bytes::mib(4)));
    let mut source = CaseSource::open(&dataset.cases[0], &[Intensity::UNCHANGED], true, &cache).unwrap();
    for patch in [[20, 18, 22], [5, 24, 24]] {
        let mut patches = Vec::new();
        let voxels = patch.iter().product();
        for (interpolation, elastic) in [
            (ImageInterpolation::Linear, 0.0),
            (ImageInterpolation::Linear, 1.0),
            (ImageInterpolation::Cubic, 0.0),
            (ImageInterpolation::Cubic, 1.0),
        ] {
            let grid = PatchGrid { patch, spacing: Spacing([1.0; 3]).into() };
            let config =
                SamplerConfig { augmentation: always(interpolation, elastic), ..SamplerConfig::new(grid, 2) };
            let sampler = Sampler::new(Arc::clone(&inspection), &fold, config).unwrap();
            let mut pulled = |scratch: Bytes| {
                let mut scratch = Scratch::new(&Budget::new(Bytes::mib(9)), scratch).unwrap();
                let (mut image, mut labels) = (vec![0.0f32; voxels], vec![9; voxels]);
                let recipe = sampler.recipe(Mode::Training, 3, 4, 0);
                pull(&recipe, &mut source, &mut image, Some(&mut labels), &mut scratch).unwrap();
                assert!(recipe.intensity_change().bias_field.is_some());
                (image, labels)
            };
            let whole = pulled(Scratch::DEFAULT);
            assert_eq!(whole, pulled(Bytes(8 << 10)), "{patch:?} {interpolation:?} {elastic}");
            patches.push(whole.0);
        }
        // The case is smooth but for its noise.
        let apart = |one: &[f32], other: &[f32]| {
            one.iter().zip(other).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / one.len() as f64
        };
        let by_elastic = apart(&patches[0], &patches[1]);
        assert!(by_elastic > 0.02 && by_elastic < 0.6, "{by_elastic}");
        let by_interpolation = apart(&patches[1], &patches[3]);
        assert!(by_interpolation > 0.001 && by_interpolation < 0.15, "{by_interpolation}");
    }
}
