//! Operations against PIL, torchvision and OpenCV.

use crate::common::{compare, extent, image, numbers, reference};
use plimsoll_image::process::affine::{AffineChange, Interpolation, pull};
use plimsoll_image::process::clahe::Clahe;
use plimsoll_image::process::jitter::ColourChange;
use plimsoll_image::process::resize::{self, Filter, Weights};
use plimsoll_image::process::{crop, flip, gaussian, lab, tensor};
use plimsoll_image::{Extent, Raster};
use serde_json::Value;

fn raster(extent: Extent, channels: usize, samples: &[u8]) -> Raster<'_> {
    Raster { extent, channels, samples }
}

fn filter(value: &Value) -> Filter {
    serde_json::from_value(value.clone()).unwrap()
}

fn resized(from: Raster<'_>, to: Extent, filter: Filter) -> Vec<u8> {
    let lengths = |from, to| resize::lengths(from, to, filter);
    let (a, b) = (lengths(from.extent.height, to.height), lengths(from.extent.width, to.width));
    let (mut weights, mut spans) = (vec![0; a.0.max(b.0)], vec![[0; 2]; a.1.max(b.1)]);
    let mut weights = Weights::within(&mut weights, &mut spans);
    let mut between = vec![0; from.extent.height * to.width * from.channels];
    let mut out = vec![0; to.pixels() * from.channels];
    let narrowed = resize::columns(from, to.width, filter, &mut weights, &mut between);
    resize::rows(narrowed, to.height, filter, &mut weights, &mut out);
    out
}

#[test]
fn resizing_gives_the_bytes_of_pil() {
    for case in reference()["resize"].as_array().unwrap() {
        let (from, to) = (extent(&case["from"]), extent(&case["to"]));
        let out = resized(raster(from, 3, &image(from, 3)), to, filter(&case["filter"]));
        let difference = compare(&out, &case["out"]);
        assert!(difference.none, "{from:?} to {to:?}, {}: {difference:?}", case["filter"]);
    }
}

#[test]
fn labels_are_resized_to_labels_that_are_there() {
    let from = Extent { height: 3, width: 2 };
    let mut out = vec![0; 4 * 3];
    resize::resize_nearest(raster(from, 1, &[1, 2, 3, 4, 5, 6]), Extent { height: 4, width: 3 }, &mut out);
    // PIL: numpy.asarray(Image.fromarray(array).resize((3, 4), Image.NEAREST))
    assert_eq!(out, [1, 2, 2, 3, 4, 4, 3, 4, 4, 5, 6, 6]);
}

#[test]
fn clahe_gives_the_bytes_of_opencv() {
    for case in reference()["clahe"].as_array().unwrap() {
        let from = extent(&case["from"]);
        let tiles = numbers(&case["tiles"]);
        let clahe =
            Clahe { clip: case["clip"].as_f64().unwrap(), tiles: [tiles[0] as usize, tiles[1] as usize] };
        let mut samples = image(from, 3);
        let mut tables = vec![0; clahe.table_length()];
        // The third channel, as the first of pixels of which only one sample is left.
        samples = samples.into_iter().skip(2).step_by(3).collect();
        clahe.apply(from, 1, &mut samples, &mut tables);
        let difference = compare(&samples, &case["out"]);
        assert!(difference.none, "{clahe:?} of {from:?}: {difference:?}");
    }
}

#[test]
fn lab_is_within_one_level_of_opencv_and_its_lightness_equal() {
    let reference = &reference()["lab"];
    let mut samples = image(Extent { height: 120, width: 150 }, 3);
    lab::from_rgb(&mut samples);
    let to = compare(&samples, &reference["of_rgb"]);
    assert!(to.most <= 1 && to.share < 0.001, "{to:?}");
    let expected = numbers(&reference["of_rgb"]["samples"]);
    for (at, expected) in (0..samples.len()).step_by(7).zip(expected).filter(|(at, _)| at % 3 == 0) {
        assert_eq!(f64::from(samples[at]), expected);
    }
    lab::to_rgb(&mut samples);
    let back = compare(&samples, &reference["back"]);
    assert!(back.most <= 1 && back.share < 0.02, "{back:?}");
    let mut anything = image(Extent { height: 90, width: 110 }, 3);
    lab::to_rgb(&mut anything);
    let of_anything = compare(&anything, &reference["of_anything"]);
    assert!(of_anything.most <= 1 && of_anything.share < 0.02, "{of_anything:?}");
    println!("to Lab {to:?}, back {back:?}, of anything {of_anything:?}");
}

#[test]
fn clahe_of_colours_is_within_two_levels_of_opencv() {
    let from = Extent { height: 299, width: 224 };
    let mut samples = image(from, 3);
    let clahe = Clahe { clip: 2.5, tiles: [8, 8] };
    lab::from_rgb(&mut samples);
    clahe.apply(from, 3, &mut samples, &mut vec![0; clahe.table_length()]);
    lab::to_rgb(&mut samples);
    let difference = compare(&samples, &reference()["lab"]["clahe"]);
    assert!(difference.most <= 2 && difference.share < 0.02, "{difference:?}");
    println!("{difference:?}");
}

#[test]
fn blur_and_ben_graham_give_the_bytes_of_opencv() {
    for case in reference()["graham"].as_array().unwrap() {
        let from = extent(&case["from"]);
        let samples = image(from, 3);
        let kernel = gaussian::opencv_kernel(case["sigma"].as_f64().unwrap());
        assert_eq!(kernel.iter().sum::<u32>(), 256);
        let mut row = vec![0; from.width * 3];
        let mut out = vec![0; samples.len()];
        gaussian::opencv_blur(raster(from, 3, &samples), &kernel, &mut row, &mut out);
        let difference = compare(&out, &case["blurred"]);
        assert!(difference.none, "{from:?}: {difference:?}");
        gaussian::ben_graham(raster(from, 3, &samples), &kernel, &mut row, &mut out);
        let difference = compare(&out, &case["out"]);
        assert!(difference.none, "{from:?}: {difference:?}");
    }
}

#[test]
fn the_exposed_part_is_that_of_opencv() {
    let (inner, outer) = (Extent { height: 70, width: 80 }, Extent { height: 86, width: 103 });
    let samples = image(inner, 3);
    let mut padded = vec![0; outer.pixels() * 3];
    for row in 0..inner.height {
        padded[((row + 11) * outer.width + 3) * 3..][..inner.width * 3]
            .copy_from_slice(&samples[row * inner.width * 3..][..inner.width * 3]);
    }
    let part = crop::exposed(raster(outer, 3, &padded), 7);
    let found = [part.start[0], part.start[1], part.extent.height, part.extent.width];
    let expected = numbers(&reference()["crop"]);
    assert_eq!(found.map(|number| number as f64).to_vec(), expected);
    let mut out = vec![0; part.extent.pixels() * 3];
    crop::crop(raster(outer, 3, &padded), part, &mut out);
    let at = |row: usize, column: usize| ((row + found[0]) * outer.width + column + found[1]) * 3;
    assert_eq!(out[(5 * found[3] + 7) * 3..][..3], padded[at(5, 7)..][..3]);
    // Nothing exposed: nothing is cropped.
    let dark = vec![3; 12];
    let whole = crop::exposed(raster(Extent::square(2), 3, &dark), 7);
    assert_eq!((whole.start, whole.extent), ([0; 2], Extent::square(2)));
}

#[test]
fn a_disc_is_masked_symmetrically() {
    let mut samples = vec![200; 25];
    crop::mask_disc(Extent::square(5), 1, 1.0, 0, &mut samples);
    // Centres within 2.5 pixels of the centre: all but the corners.
    let outside: Vec<usize> = (0..25).filter(|at| samples[*at] == 0).collect();
    assert_eq!(outside, [0, 4, 20, 24]);
}

#[test]
fn affine_changes_give_the_bytes_of_torchvision() {
    for case in reference()["affine"].as_array().unwrap() {
        let from = extent(&case["from"]);
        let (shift, shear) = (numbers(&case["shift"]), numbers(&case["shear"]));
        let change = AffineChange {
            degrees: case["degrees"].as_f64().unwrap(),
            shift: [shift[0] as i64, shift[1] as i64],
            scale: case["scale"].as_f64().unwrap(),
            shear: [shear[0], shear[1]],
        };
        let interpolation: Interpolation = serde_json::from_value(case["interpolation"].clone()).unwrap();
        let samples = image(from, 3);
        let mut out = vec![0; samples.len()];
        pull(raster(from, 3, &samples), &change, interpolation, &[9, 8, 7], &mut out);
        let difference = compare(&out, &case["out"]);
        assert!(difference.none, "{change:?} {interpolation:?} of {from:?}: {difference:?}");
    }
}

#[test]
fn changes_of_colours_give_the_bytes_of_torchvision() {
    for case in reference()["colour"].as_array().unwrap() {
        let factor = case["factor"].as_f64().unwrap();
        let change = match case["kind"].as_str().unwrap() {
            "brightness" => ColourChange::Brightness(factor),
            "contrast" => ColourChange::Contrast(factor),
            "saturation" => ColourChange::Saturation(factor),
            "hue" => ColourChange::Hue(factor),
            other => panic!("{other}"),
        };
        let mut samples = image(extent(&case["from"]), 3);
        change.apply(3, &mut samples);
        let difference = compare(&samples, &case["out"]);
        assert!(difference.none, "{change:?}: {difference:?}");
    }
}

#[test]
fn blur_is_within_a_level_of_torchvision() {
    for case in reference()["blur"].as_array().unwrap() {
        let from = extent(&case["from"]);
        let samples = image(from, 3);
        let mut out = vec![0; samples.len()];
        let mut kernel = vec![0.0; case["size"].as_u64().unwrap() as usize];
        let sigma = case["sigma"].as_f64().unwrap();
        let mut row = vec![0.0; from.width * 3];
        gaussian::torchvision_blur(raster(from, 3, &samples), sigma, &mut kernel, &mut row, &mut out);
        let difference = compare(&out, &case["out"]);
        assert!(difference.most <= 1 && difference.share < 0.01, "{sigma}: {difference:?}");
    }
}

#[test]
fn normalised_numbers_have_the_bits_of_torchvision() {
    let reference = &reference()["normalised"];
    let from = extent(&reference["from"]);
    let samples = image(from, 3);
    let mut out = vec![0.0; samples.len()];
    tensor::normalise(raster(from, 3, &samples), &tensor::IMAGENET, &mut out);
    let found: Vec<f64> = out.iter().step_by(7).map(|value| f64::from(value.to_bits())).collect();
    assert_eq!(found, numbers(&reference["bits"]));
}

#[test]
fn flips_are_their_own_inverses_and_exchange_what_they_say() {
    let extent = Extent { height: 3, width: 2 };
    let samples: Vec<u8> = (0..18).collect();
    let mut flipped = samples.clone();
    flip::horizontally(extent, 3, &mut flipped);
    assert_eq!(flipped[..6], [3, 4, 5, 0, 1, 2]);
    flip::horizontally(extent, 3, &mut flipped);
    assert_eq!(flipped, samples);
    flip::vertically(extent, 3, &mut flipped);
    assert_eq!(flipped[..6], samples[12..]);
    assert_eq!(flipped[6..12], samples[6..12]);
}

#[test]
fn mixing_weighs_both_samples() {
    let mut own = [1.0, 0.0];
    tensor::mix(&mut own, &[0.0, 4.0], 0.25);
    assert_eq!(own, [0.25, 3.0]);
}
