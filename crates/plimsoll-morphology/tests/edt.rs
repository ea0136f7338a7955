//! The distance transform against brute force, SciPy and the `edt` package.

use crate::common::{Random, oracle, oracle_f32, place, random_mask, random_shape};
use plimsoll_morphology::{
    Distance, EdtOptions, Label, MorphologyError, NO_FEATURE, Voxels, edt, edt_of_voxels, edt_with_features,
    scratch_bytes, scratch_bytes_with_features,
};

const ALL: [Distance; 3] = [Distance::ToBackground, Distance::ToOtherLabel, Distance::Signed];

fn transform<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    spacing: [f64; 3],
    distance: Distance,
    threads: usize,
) -> Vec<f32> {
    let options = EdtOptions { distance, squared: false };
    // Scratch and output need not be zeroed.
    let mut scratch = vec![0xA5; scratch_bytes(shape, &options, threads)];
    let mut out = vec![f32::NAN; mask.len()];
    edt(mask, shape, spacing, &options, &mut out, &mut scratch, threads).unwrap();
    out
}

fn transform_with_features<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    spacing: [f64; 3],
    distance: Distance,
    threads: usize,
) -> (Vec<f32>, Vec<u32>) {
    let options = EdtOptions { distance, squared: false };
    let mut scratch = vec![0xA5; scratch_bytes_with_features(shape, &options, threads)];
    let mut out = vec![f32::NAN; mask.len()];
    let mut features = vec![7; mask.len()];
    edt_with_features(mask, shape, spacing, &options, &mut out, &mut features, &mut scratch, threads)
        .unwrap();
    (out, features)
}

fn between(a: usize, b: usize, shape: [usize; 3], spacing: [f64; 3]) -> f64 {
    let (a, b) = (place(a, shape), place(b, shape));
    (0..3).map(|axis| (a[axis].abs_diff(b[axis]) as f64 * spacing[axis]).powi(2)).sum::<f64>().sqrt()
}

/// Returns `true` if a distance from voxel `a` may be measured to voxel `b`.
fn is_other(mask: &[u8], a: usize, b: usize, distance: Distance) -> bool {
    match distance {
        Distance::ToBackground => mask[a] != 0 && mask[b] == 0,
        Distance::ToOtherLabel => mask[a] != 0 && mask[a] != mask[b],
        Distance::Signed => (mask[a] == 0) != (mask[b] == 0),
    }
}

fn brute_force(mask: &[u8], shape: [usize; 3], spacing: [f64; 3], distance: Distance) -> Vec<f64> {
    (0..mask.len())
        .map(|a| {
            if distance != Distance::Signed && mask[a] == 0 {
                return 0.0;
            }
            let sign = if distance == Distance::Signed && mask[a] != 0 { -1.0 } else { 1.0 };
            let others = (0..mask.len()).filter(|b| is_other(mask, a, *b, distance));
            sign * others.map(|b| between(a, b, shape, spacing)).fold(f64::INFINITY, f64::min)
        })
        .collect()
}

fn close(a: f32, b: f64) -> bool {
    f64::from(a) == b || (f64::from(a) - b).abs() <= 1e-4
}

#[test]
fn agrees_with_brute_force_on_a_thousand_random_anisotropic_masks() {
    let mut random = Random(1);
    for case in 0..1000 {
        let shape = random_shape(&mut random, 11);
        let spacing = [0; 3].map(|_| 0.1 + 5.0 * random.unit());
        let labels = [2, 4, 40][random.below(3)];
        let mask = random_mask(&mut random, shape, labels);
        let distance = ALL[random.below(3)];
        let expected = brute_force(&mask, shape, spacing, distance);
        let found = transform(&mask, shape, spacing, distance, 1 + random.below(3));
        for at in 0..mask.len() {
            assert!(
                close(found[at], expected[at]),
                "case {case}, {distance:?}, voxel {at} of {shape:?}: {} is not {}",
                found[at],
                expected[at]
            );
        }
    }
}

#[test]
fn is_exact_where_voxels_are_cubes_of_one_millimetre() {
    let mut random = Random(2);
    for _ in 0..100 {
        let shape = random_shape(&mut random, 40).map(|n| n.min(3000 / 40));
        let shape = [shape[0].min(6), shape[1].min(9), shape[2]];
        let mask = random_mask(&mut random, shape, 3);
        for distance in ALL {
            let expected = brute_force(&mask, shape, [1.0; 3], distance);
            let found = transform(&mask, shape, [1.0; 3], distance, 1);
            assert!(found.iter().zip(expected).all(|(a, b)| *a == b as f32), "{distance:?} {shape:?}");
        }
    }
}

#[test]
fn features_are_voxels_of_another_label_at_the_distance() {
    let mut random = Random(3);
    for case in 0..300 {
        let shape = random_shape(&mut random, 12);
        let shape = [shape[0], shape[1], if case % 3 == 0 { 30 + shape[2] } else { shape[2] }];
        let spacing = [0; 3].map(|_| 0.1 + 5.0 * random.unit());
        let labels = [2, 4, 40][random.below(3)];
        let mask = random_mask(&mut random, shape, labels);
        for distance in ALL {
            let (found, features) = transform_with_features(&mask, shape, spacing, distance, 2);
            assert_eq!(found, transform(&mask, shape, spacing, distance, 1));
            for at in 0..mask.len() {
                let feature = features[at];
                if found[at].is_infinite() {
                    assert_eq!(feature, NO_FEATURE);
                } else if found[at] == 0.0 {
                    assert_eq!(feature as usize, at);
                } else {
                    assert!(is_other(&mask, at, feature as usize, distance), "case {case} {distance:?}");
                    let away = between(at, feature as usize, shape, spacing);
                    assert!(close(found[at].abs(), away), "case {case} {distance:?}");
                }
            }
        }
    }
}

/// Every second voxel of a volume that is mirrored along its width, in 64 bits.
struct Mirrored {
    labels: Vec<u64>,
    shape: [usize; 3],
}

impl Voxels for Mirrored {
    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn read(&self, [z, y, x]: [usize; 3], labels: &mut [u32]) {
        let [_, height, width] = self.shape;
        assert!(x + labels.len() <= width);
        let row = (z * height + y) * width;
        for (at, label) in labels.iter_mut().enumerate() {
            *label = self.labels[2 * (row + width - 1 - (x + at))] as u32;
        }
    }
}

#[test]
fn a_mask_of_any_layout_gives_the_bits_of_its_copy() {
    let mut random = Random(11);
    for case in 0..200 {
        let shape = random_shape(&mut random, 12);
        let shape = [shape[0], shape[1], if case % 2 == 0 { 130 * shape[2] / 12 + 1 } else { shape[2] }];
        let mask = random_mask(&mut random, shape, [2, 4, 40][case % 3]);
        let rows = mask.chunks(shape[2]).flat_map(|row| row.iter().rev());
        let labels = rows.flat_map(|label| [u64::from(*label), u64::MAX]).collect();
        let mirrored = Mirrored { labels, shape };
        for distance in ALL {
            let options = EdtOptions { distance, squared: false };
            let (expected, places) = transform_with_features(&mask, shape, [2.5, 0.7, 0.9], distance, 2);
            let mut scratch = vec![0xA5; scratch_bytes_with_features(shape, &options, 2)];
            let (mut out, mut features) = (vec![f32::NAN; mask.len()], vec![7; mask.len()]);
            let spacing = [2.5, 0.7, 0.9];
            edt_of_voxels(&mirrored, spacing, &options, &mut out, Some(&mut features), &mut scratch, 2)
                .unwrap();
            assert_eq!((&out, &features), (&expected, &places), "case {case}, {distance:?}");
            edt_of_voxels(&mirrored, spacing, &options, &mut out, None, &mut scratch, 1).unwrap();
            assert_eq!(out, expected, "case {case}, {distance:?}");
        }
    }
}

/// The output and the input are not counted.
#[test]
fn label_maps_of_256_voxels_along_each_axis_take_less_than_a_mebibyte_of_scratch() {
    for distance in ALL {
        let options = EdtOptions { distance, squared: false };
        assert!(scratch_bytes([256; 3], &options, 2) <= 900 << 10, "{distance:?}");
    }
}

#[test]
fn small_structures_in_a_wide_volume_are_exact_whether_rows_are_shared_among_threads_or_not() {
    let shape = [20, 7, 600];
    let mut random = Random(6);
    for distance in [Distance::ToBackground, Distance::ToOtherLabel] {
        let mut mask = vec![0; shape.iter().product()];
        for label in [1, 1, 2, 3] {
            let start = shape.map(|n| random.below(n - 6));
            for (at, voxel) in mask.iter_mut().enumerate() {
                let place = place(at, shape);
                if (0..3).all(|axis| (start[axis]..start[axis] + 6).contains(&place[axis])) {
                    *voxel = label;
                }
            }
        }
        let expected = brute_force(&mask, shape, [1.0; 3], distance);
        // With eight threads a unit of work is one tile of a row, not all of it.
        for threads in [1, 8] {
            let found = transform(&mask, shape, [1.0; 3], distance, threads);
            assert!(
                found.iter().zip(&expected).all(|(a, b)| *a == *b as f32),
                "{distance:?}, {threads} threads"
            );
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let shape = [23, 61, 75];
    let mut random = Random(4);
    for labels in [2, 5, 200] {
        let mask = random_mask(&mut random, shape, labels);
        for distance in ALL {
            let one = transform_with_features(&mask, shape, [2.5, 0.7, 0.7], distance, 1);
            for threads in [2, 3, 8] {
                let many = transform_with_features(&mask, shape, [2.5, 0.7, 0.7], distance, threads);
                assert!(one.0.iter().zip(&many.0).all(|(a, b)| a.to_bits() == b.to_bits()));
                assert_eq!(one.1, many.1);
            }
        }
    }
}

#[test]
fn without_sites_distances_are_infinite_and_there_is_no_feature() {
    for shape in [[4, 5, 70], [1, 6, 7], [1, 1, 9], [1, 1, 1], [9, 1, 1], [1, 9, 1]] {
        let full = vec![true; shape.iter().product()];
        let empty = vec![false; full.len()];
        for distance in ALL {
            let (found, features) = transform_with_features(&full, shape, [1.0; 3], distance, 2);
            let expected = if distance == Distance::Signed { f32::NEG_INFINITY } else { f32::INFINITY };
            assert!(found.iter().all(|value| *value == expected), "{shape:?} {distance:?}");
            assert!(features.iter().all(|feature| *feature == NO_FEATURE));
            let (found, features) = transform_with_features(&empty, shape, [1.0; 3], distance, 2);
            if distance == Distance::Signed {
                assert!(found.iter().all(|value| *value == f32::INFINITY));
                assert!(features.iter().all(|feature| *feature == NO_FEATURE));
            } else {
                assert!(found.iter().all(|value| *value == 0.0));
                assert!(features.iter().enumerate().all(|(at, feature)| at == *feature as usize));
            }
        }
    }
}

/// Boxes, so that labels touch in places, fill pieces of rows, or leave slices with one label.
#[test]
fn distances_to_other_labels_are_those_of_each_label_as_a_mask() {
    let mut random = Random(9);
    for case in 0..60 {
        let shape = [1 + random.below(24), 1 + random.below(60), 1 + random.below(140)];
        let mask = random_mask(&mut random, shape, [3, 7, 40][case % 3]);
        let found = transform(&mask, shape, [1.0; 3], Distance::ToOtherLabel, 1 + case % 3);
        let mut labels = mask.clone();
        labels.sort_unstable();
        labels.dedup();
        for label in labels.into_iter().filter(|label| *label != 0) {
            let alone: Vec<bool> = mask.iter().map(|other| *other == label).collect();
            let expected = transform(&alone, shape, [1.0; 3], Distance::ToBackground, 1);
            let of_label = (0..mask.len()).filter(|at| alone[*at]);
            for at in of_label {
                assert_eq!(found[at], expected[at], "case {case}, label {label}, voxel {at} of {shape:?}");
            }
        }
        assert!((0..mask.len()).all(|at| mask[at] != 0 || found[at] == 0.0));
    }
}

#[test]
fn a_single_site_is_measured_to_from_everywhere() {
    let (shape, spacing) = ([40, 70, 90], [3.0, 0.5, 0.25]);
    let site = (11 * 70 + 60) * 90 + 33;
    let mut mask = vec![1u16; shape.iter().product()];
    mask[site] = 0;
    let (found, features) = transform_with_features(&mask, shape, spacing, Distance::ToBackground, 3);
    assert!(features.iter().all(|feature| *feature as usize == site));
    assert!((0..mask.len()).all(|at| close(found[at], between(at, site, shape, spacing))));
}

#[test]
fn a_long_row_is_exact() {
    let mut mask = vec![true; 20_000_000];
    mask[0] = false;
    mask[17_000_003] = false;
    let found = transform(&mask, [1, 1, 20_000_000], [1.0; 3], Distance::ToBackground, 1);
    assert_eq!(found[17_000_010], 7.0);
    assert_eq!(found[16_999_998], 5.0);
    assert_eq!(found[1000], 1000.0);
}

#[test]
fn squared_distances_are_the_squares_of_distances() {
    let mut random = Random(5);
    let shape = [7, 20, 40];
    let mask = random_mask(&mut random, shape, 3);
    for (spacing, square) in [([1.0; 3], 1.0), ([0.5; 3], 0.25)] {
        let options = EdtOptions { distance: Distance::ToBackground, squared: true };
        let mut scratch = vec![0; scratch_bytes(shape, &options, 2)];
        let mut out = vec![0.0; mask.len()];
        edt(&mask, shape, spacing, &options, &mut out, &mut scratch, 2).unwrap();
        let steps = transform(&mask, shape, [1.0; 3], Distance::ToBackground, 1);
        assert!(out.iter().zip(steps).all(|(a, b)| *a == (b * b).round() * square));
    }
}

/// Every fifth value of three transforms of one mask, from `oracles/morphology.py`.
#[test]
fn agrees_with_scipy_and_the_edt_package() {
    let (shape, spacing) = ([28, 44, 52], [2.5, 0.8, 0.8]);
    let mask = oracle("edt_mask.u8");
    for (name, distance) in [
        ("edt_scipy.f32", Distance::ToBackground),
        ("edt_labels.f32", Distance::ToOtherLabel),
        ("edt_signed.f32", Distance::Signed),
    ] {
        let found = transform(&mask, shape, spacing, distance, 2);
        let expected = oracle_f32(name);
        assert_eq!(expected.len(), found.len().div_ceil(5));
        for (at, expected) in expected.iter().enumerate() {
            assert!(close(found[5 * at], f64::from(*expected)), "{name} voxel {}", 5 * at);
        }
    }
}

#[test]
fn scratch_is_a_small_part_of_the_volume() {
    for (shape, threads) in
        [([256, 256, 256], 2), ([72, 136, 136], 2), ([1, 2048, 2048], 8), ([16, 512, 512], 8)]
    {
        let voxels: usize = shape.iter().product();
        for distance in ALL {
            let options = EdtOptions { distance, squared: false };
            let bytes = scratch_bytes_with_features(shape, &options, threads);
            assert!(bytes <= 8 * voxels, "{bytes} for {shape:?}");
        }
        let options = EdtOptions::default();
        let plain = scratch_bytes(shape, &options, threads);
        assert!(plain <= 3 * voxels, "{plain} for {shape:?}");
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_numbers() {
    let options = EdtOptions::default();
    let shape = [2, 3, 4];
    let mut scratch = vec![0; scratch_bytes(shape, &options, 1)];
    let mut out = vec![0.0; 24];
    let mask = [1u8; 24];
    let error = edt(&mask[1..], shape, [1.0; 3], &options, &mut out, &mut scratch, 1).unwrap_err();
    assert_eq!(error.to_string(), "the mask has 23 elements, but the shape [2, 3, 4] has 24 voxels");
    let error = edt(&mask, shape, [1.0; 3], &options, &mut out[1..], &mut scratch, 1).unwrap_err();
    assert!(matches!(error, MorphologyError::Length { found: 23, needed: 24, .. }));
    let error = edt(&mask, shape, [1.0; 3], &options, &mut out, &mut scratch[1..], 1).unwrap_err();
    assert!(matches!(error, MorphologyError::Scratch { .. }) && error.remedy().is_some());
    let error = edt(&mask, shape, [1.0; 3], &options, &mut out, &mut scratch, 0).unwrap_err();
    assert!(matches!(error, MorphologyError::NoThreads));
    for step in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-30, 1e30] {
        let error = edt(&mask, shape, [1.0, step, 1.0], &options, &mut out, &mut scratch, 1).unwrap_err();
        assert!(matches!(error, MorphologyError::Spacing { .. }), "{step}");
    }
    let huge = [usize::MAX, 2, 2];
    let error = edt(&mask, huge, [1.0; 3], &options, &mut out, &mut scratch, 1).unwrap_err();
    assert!(matches!(error, MorphologyError::TooLarge { .. }));
    assert_eq!(scratch_bytes(huge, &options, 1), 0);
    edt(&mask[..0], [0, 3, 4], [1.0; 3], &options, &mut [], &mut [], 1).unwrap();
}
