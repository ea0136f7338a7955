//! Pipelines: numbers, memory, recipes, the cache.

use super::common;

use common::{file, numbers, reference};
use plimsoll_data::pictures::{
    Augmentation, Blurring, Erasing, Largest, Pipeline, PipelineSettings, PreparedCache, Recipe, Scale,
    Scratch, SettingError, Step,
};
use plimsoll_image::process::affine::{AffineChange, Interpolation};
use plimsoll_image::process::jitter::ColourChange;
use plimsoll_image::process::resize::Filter;
use plimsoll_image::process::tensor::Filling;
use plimsoll_image::{DecodeOptions, Extent, ImageError, ImageFile, SampleRange};
use plimsoll_memory::{Budget, Bytes};

const STEPS: [Step; 4] = [
    Step::CircleCrop { tolerance: 7 },
    Step::Clahe { clip: 2.5, tiles: [8, 8] },
    Step::Resize { height: 40, width: 32, filter: Filter::Lanczos },
    Step::BenGraham { sigma: 4.0 },
];

fn largest(names: &[&str]) -> Largest {
    let mut largest = Largest::default();
    for name in names {
        largest.include(&ImageFile::open(file(name), &DecodeOptions::default()).unwrap()).unwrap();
    }
    largest
}

fn pipeline(steps: &[Step], names: &[&str]) -> Pipeline {
    let decode = DecodeOptions { range_16_bit: Some(SampleRange::FULL), ..DecodeOptions::default() };
    let settings = PipelineSettings { steps: steps.into(), decode, ..PipelineSettings::default() };
    Pipeline::new(settings, largest(names)).unwrap()
}

fn load(pipeline: &Pipeline, name: &str, recipe: &Recipe) -> Vec<f32> {
    let budget = Budget::new(pipeline.scratch_bytes().unwrap());
    let mut scratch = Scratch::new(pipeline, &budget).unwrap();
    let mut out = vec![0.0; pipeline.output_length()];
    pipeline.load(&file(name), recipe, &mut scratch, &mut out).unwrap();
    out
}

#[test]
fn a_whole_pipeline_has_the_bits_of_torchvision() {
    let settings = PipelineSettings {
        steps: vec![Step::Resize { height: 24, width: 32, filter: Filter::Bicubic }],
        interpolation: Interpolation::Bilinear,
        ..PipelineSettings::default()
    };
    let pipeline = Pipeline::new(settings, largest(&["rgb.png"])).unwrap();
    let recipe = Recipe {
        affine: Some(AffineChange { degrees: 12.0, shift: [1, -2], scale: 1.1, shear: [3.0, 0.0] }),
        mirrored_columns: true,
        mirrored_rows: true,
        colours: [
            Some(ColourChange::Contrast(0.8)),
            Some(ColourChange::Hue(0.1)),
            None,
            Some(ColourChange::Brightness(1.2)),
        ],
        ..Recipe::NONE
    };
    let found: Vec<f64> =
        load(&pipeline, "rgb.png", &recipe).iter().map(|value| f64::from(value.to_bits())).collect();
    assert_eq!(found, numbers(&reference()["pipeline"]));
}

#[test]
fn a_pipeline_needs_what_it_says_before_anything_runs() {
    let names = ["rgb.png", "large_progressive.jpg", "deflate.tif", "rgb16.png"];
    let pipeline = pipeline(&STEPS, &names);
    let bytes = pipeline.scratch_bytes().unwrap();
    let budget = Budget::new(bytes);
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    assert_eq!(budget.used(), bytes);
    let mut out = vec![0.0; pipeline.output_length()];
    for name in names {
        pipeline.load(&file(name), &Recipe::NONE, &mut scratch, &mut out).unwrap();
        assert!(out.iter().all(|value| value.is_finite()));
        assert!(out.iter().any(|value| *value != out[0]), "{name} came out constant");
    }
    drop(scratch);
    assert_eq!(budget.used(), Bytes::ZERO);
    assert!(Scratch::new(&pipeline, &Budget::new(Bytes(bytes.0 - 1))).is_err());
}

#[test]
fn an_image_is_the_same_after_any_other() {
    let pipeline = pipeline(&STEPS, &["rgb.png", "large_progressive.jpg"]);
    let augmentation = everything();
    let recipe = augmentation.recipe(1, 2, 3, 8, pipeline.extent());
    let alone = load(&pipeline, "rgb.png", &recipe);
    let budget = Budget::new(pipeline.scratch_bytes().unwrap());
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    let mut out = vec![0.0; pipeline.output_length()];
    for seed in 0..3 {
        let other = augmentation.recipe(seed, 0, 0, 8, pipeline.extent());
        pipeline.load(&file("large_progressive.jpg"), &other, &mut scratch, &mut out).unwrap();
    }
    pipeline.load(&file("rgb.png"), &recipe, &mut scratch, &mut out).unwrap();
    assert_eq!(out, alone);
}

#[test]
fn the_cache_changes_nothing_but_the_time_and_keeps_to_its_limit() {
    let pipeline = pipeline(&STEPS, &["rgb.png", "plain.tif", "alpha.png"]);
    let names = ["rgb.png", "plain.tif", "alpha.png"];
    let recipe = everything().recipe(5, 6, 7, 8, pipeline.extent());
    let each = pipeline.output_length() as u64;
    // Room for two images.
    let list = Budget::new(Bytes(600));
    let cache = PreparedCache::new(Budget::new(Bytes(2 * each + 600)), 3, &list).unwrap();
    let budget = Budget::new(pipeline.scratch_bytes().unwrap());
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    for round in 0..2 {
        for (case, name) in names.into_iter().enumerate() {
            let mut out = vec![0.0; pipeline.output_length()];
            pipeline.load_cached(case, &file(name), &cache, &recipe, &mut scratch, &mut out).unwrap();
            assert_eq!(out, load(&pipeline, name, &recipe), "{name}, round {round}");
        }
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.kept), (2, 4, 2));
    assert!(statistics.now <= Bytes(2 * each + 600));
    assert!(PreparedCache::new(Budget::new(Bytes(2 * each)), 3, &Budget::new(Bytes(10))).is_err());
}

#[test]
fn an_image_that_grew_since_it_was_listed_is_refused_and_so_is_a_wrong_buffer() {
    let pipeline = pipeline(&STEPS, &["rgb.png"]);
    let budget = Budget::new(pipeline.scratch_bytes().unwrap());
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    let mut out = vec![0.0; pipeline.output_length()];
    let path = file("large_progressive.jpg");
    let error = pipeline.load(&path, &Recipe::NONE, &mut scratch, &mut out).unwrap_err();
    assert!(matches!(error, ImageError::LargerThanPlanned { height: 600, width: 800, .. }), "{error}");
    let error = pipeline.load(&file("rgb.png"), &Recipe::NONE, &mut scratch, &mut out[1..]).unwrap_err();
    assert!(matches!(error, ImageError::Length { .. }), "{error}");
}

fn everything() -> Augmentation {
    Augmentation {
        degrees: 25.0,
        shift: [0.1, 0.2],
        scale: [0.8, 1.2],
        shear: [5.0, 2.0],
        flip_horizontal: 0.5,
        flip_vertical: 0.25,
        brightness: 0.2,
        contrast: 0.3,
        saturation: 0.4,
        hue: 0.1,
        blur: Blurring { probability: 0.5, sigma: [0.1, 2.0] },
        erase: Erasing { probability: 0.5, noise: true, ..Erasing::default() },
        mixup: 0.2,
    }
}

#[test]
fn recipes_depend_on_seed_step_and_sample_alone_and_stay_within_their_ranges() {
    let extent = Extent { height: 100, width: 200 };
    let augmentation = everything();
    augmentation.check().unwrap();
    let recipe = |seed, step, sample| augmentation.recipe(seed, step, sample, 8, extent);
    assert_eq!(recipe(1, 2, 3), recipe(1, 2, 3));
    for other in [recipe(2, 2, 3), recipe(1, 3, 3), recipe(1, 2, 4)] {
        assert_ne!(recipe(1, 2, 3), other);
    }
    let recipes: Vec<Recipe> = (0..2000).map(|step| recipe(0, step, 0)).collect();
    let share = |holds: &dyn Fn(&Recipe) -> bool| {
        recipes.iter().filter(|recipe| holds(recipe)).count() as f64 / 2000.0
    };
    // Five standard deviations of a share of 2000.
    for (found, expected) in [
        (share(&|recipe| recipe.mirrored_columns), 0.5),
        (share(&|recipe| recipe.mirrored_rows), 0.25),
        (share(&|recipe| recipe.blur.is_some()), 0.5),
        (share(&|recipe| matches!(recipe.colours[0], Some(ColourChange::Hue(_)))), 0.25),
    ] {
        assert!((found - expected).abs() < 0.056, "{found}, {expected}");
    }
    for recipe in &recipes {
        let AffineChange { degrees, shift, scale, shear } = recipe.affine.unwrap();
        assert!(degrees.abs() <= 25.0 && shift[0].abs() <= 20 && shift[1].abs() <= 20);
        assert!((0.8..=1.2).contains(&scale) && shear[0].abs() <= 5.0 && shear[1].abs() <= 2.0);
        for change in recipe.colours.iter().flatten() {
            assert!(match change {
                ColourChange::Brightness(factor) => (0.8..=1.2).contains(factor),
                ColourChange::Contrast(factor) => (0.7..=1.3).contains(factor),
                ColourChange::Saturation(factor) => (0.6..=1.4).contains(factor),
                ColourChange::Hue(factor) => factor.abs() <= 0.1,
            });
        }
        if let Some(erasure) = recipe.erasure {
            assert!(
                erasure.start[0] + erasure.extent.height <= 100
                    && erasure.start[1] + erasure.extent.width <= 200
            );
            let share = erasure.extent.pixels() as f64 / 20_000.0;
            assert!((0.015..0.34).contains(&share), "{share}");
        }
        let mixing = recipe.mixing.unwrap();
        assert!(mixing.partner < 8 && (0.0..=1.0).contains(&mixing.share));
    }
    assert_eq!(Augmentation::default().recipe(1, 2, 3, 8, extent), Recipe::NONE);
}

#[test]
fn only_the_rectangle_is_erased() {
    let steps = [Step::Resize { height: 24, width: 32, filter: Filter::Bilinear }];
    let pipeline = pipeline(&steps, &["rgb.png"]);
    let plain = load(&pipeline, "rgb.png", &Recipe::NONE);
    for filling in [Filling::Value(0.0), Filling::Noise { seed: 1, step: 2, sample: 3 }] {
        let erasure = plimsoll_image::process::tensor::Erasure {
            start: [3, 4],
            extent: Extent { height: 5, width: 6 },
            filling,
        };
        let erased = load(&pipeline, "rgb.png", &Recipe { erasure: Some(erasure), ..Recipe::NONE });
        for (at, (plain, erased)) in plain.iter().zip(&erased).enumerate() {
            let (row, column) = (at / 32 % 24, at % 32);
            let inside = (3..8).contains(&row) && (4..10).contains(&column);
            match filling {
                Filling::Value(value) if inside => assert_eq!(*erased, value),
                _ => assert_eq!(inside, plain != erased, "{at}"),
            }
        }
    }
}

#[test]
fn grey_pipelines_have_one_channel() {
    let settings = PipelineSettings {
        channels: 1,
        steps: vec![
            Step::Clahe { clip: 2.0, tiles: [2, 2] },
            Step::Resize { height: 10, width: 12, filter: Filter::Bilinear },
        ],
        ..PipelineSettings::default()
    };
    let pipeline = Pipeline::new(settings, largest(&["grey.png", "rgb.png"])).unwrap();
    assert_eq!(load(&pipeline, "grey.png", &Recipe::NONE).len(), 120);
    // The colour image is the same in grey.
    assert_eq!(load(&pipeline, "grey.png", &Recipe::NONE), load(&pipeline, "rgb.png", &Recipe::NONE));
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let resize = Step::Resize { height: 8, width: 8, filter: Filter::Bilinear };
    let with = |change: &dyn Fn(&mut PipelineSettings)| {
        let mut settings = PipelineSettings::default();
        change(&mut settings);
        Pipeline::new(settings, Largest::default()).unwrap_err()
    };
    let cases: [(SettingError, &str); 8] = [
        (with(&|settings| settings.channels = 2), "`channels` is 2"),
        (with(&|settings| settings.steps.clear()), "no `resize`"),
        (with(&|settings| settings.steps.push(resize.clone())), "`resize` comes twice"),
        (with(&|settings| settings.steps.push(Step::CircleCrop { tolerance: 7 })), "after `resize`"),
        (with(&|settings| settings.steps.push(Step::Clahe { clip: 2.0, tiles: [0, 8] })), "`tiles` is 0"),
        (with(&|settings| settings.steps.push(Step::BenGraham { sigma: f64::NAN })), "`sigma` is NaN"),
        (with(&|settings| settings.steps.push(Step::MaskDisc { share: 1.5, fill: 0 })), "`share` is 1.5"),
        (with(&|settings| settings.blur_size = 4), "`blur_size` is 4"),
    ];
    for (error, says) in cases {
        assert!(error.to_string().contains(says), "{error}");
    }
    for (augmentation, says) in [
        (Augmentation { degrees: 200.0, ..Augmentation::default() }, "`degrees` is 200"),
        (Augmentation { scale: [1.2, 0.8], ..Augmentation::default() }, "`scale`"),
        (Augmentation { hue: 0.6, ..Augmentation::default() }, "`hue` is 0.6"),
        (Augmentation { flip_vertical: f64::NAN, ..Augmentation::default() }, "`flip_vertical` is NaN"),
        (Augmentation { mixup: -1.0, ..Augmentation::default() }, "`mixup` is -1"),
    ] {
        let error = augmentation.check().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn masks_go_where_their_images_go() {
    let with = |steps: Vec<Step>| PipelineSettings {
        channels: 1,
        steps,
        // So that the tensor times 255 is the image.
        normalisation: vec![Scale { mean: 0.0, deviation: 1.0 }],
        ..PipelineSettings::default()
    };
    let crop = Step::CircleCrop { tolerance: 20 };
    let same = Step::Resize { height: 40, width: 56, filter: Filter::Bilinear };
    let recipe = Recipe {
        affine: Some(AffineChange { degrees: 20.0, shift: [3, -2], ..AffineChange::NONE }),
        mirrored_columns: true,
        mirrored_rows: true,
        ..Recipe::NONE
    };
    let largest = largest(&["grey.png", "rgb.png"]);
    // The image is its own mask: labels are its samples, moved alike.
    let pipeline = Pipeline::new(with(vec![same.clone()]), largest).unwrap();
    let budget = Budget::new(Bytes::mib(8));
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    let (mut out, mut labels) = (vec![0.0; 40 * 56], vec![0; 40 * 56]);
    pipeline.load(&file("grey.png"), &recipe, &mut scratch, &mut out).unwrap();
    pipeline.load_mask(&file("grey.png"), &recipe, &mut scratch, &mut labels).unwrap();
    let found: Vec<u8> = out.iter().map(|value| (value * 255.0).round() as u8).collect();
    assert_eq!(found, labels);
    // Cropped: what is left of the image is on the same place.
    let budget = Budget::new(Bytes::mib(8));
    let pipeline = Pipeline::new(with(vec![crop, same]), largest).unwrap();
    let mut scratch = Scratch::new(&pipeline, &budget).unwrap();
    pipeline.load(&file("grey.png"), &Recipe::NONE, &mut scratch, &mut out).unwrap();
    pipeline.load_mask(&file("grey.png"), &Recipe::NONE, &mut scratch, &mut labels).unwrap();
    let near =
        out.iter().zip(&labels).filter(|(value, label)| (**value * 255.0 - f32::from(**label)).abs() < 64.0);
    assert!(near.count() > 40 * 56 * 9 / 10);
    // Masks of another size, and with colours, are refused.
    let error = pipeline.load_mask(&file("turned6.tif"), &recipe, &mut scratch, &mut labels).unwrap_err();
    assert!(matches!(error, ImageError::LabelSamples { channels: 3, .. }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small.png");
    image::GrayImage::new(3, 4).save(&small).unwrap();
    let error = pipeline.load_mask(&small, &recipe, &mut scratch, &mut labels).unwrap_err();
    assert!(
        matches!(error, ImageError::MaskExtent { found_height: 4, found_width: 3, height: 40, .. }),
        "{error}"
    );
}

#[test]
fn the_settings_in_the_documentation_are_settings() {
    let text = std::fs::read_to_string(common::oracles().join("../docs/classification.md")).unwrap();
    let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // Files of settings are known where settings of runs are.
    let blocks: Vec<&str> = blocks.filter(|block| !block.contains("[images]")).collect();
    let (pipeline, tables) = blocks.split_last().unwrap();
    assert_eq!(tables.len(), 6);
    for table in tables {
        toml::from_str::<plimsoll_data::pictures::TableSettings>(table).unwrap();
    }
    let settings: PipelineSettings = toml::from_str(pipeline).unwrap();
    assert_eq!(Pipeline::new(settings, Largest::default()).unwrap().extent(), Extent::square(299));
}
