//! Presets plan as nnU-Net's planners do (`oracles/presets.py`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_data::{CaseFingerprint, Fingerprint, Labels, TargetSpacing};
use plimsoll_memory::{Bytes, Digest};
use plimsoll_run::{Configuration, PlannedImages, Preset, PresetPlan};
use plimsoll_volume::{Affine, Geometry, Spacing, VoxelBox};
use serde::Deserialize;

/// A data set, and what nnU-Net planned for it.
#[derive(Deserialize)]
struct Planned {
    name: String,
    labels: usize,
    /// Cases that are alike, their shape and their spacing.
    cases: Vec<(usize, [usize; 3], [f64; 3])>,
    presets: BTreeMap<String, BTreeMap<String, Expected>>,
}

/// A configuration; of slices without the depth.
#[derive(Deserialize)]
struct Expected {
    spacing: Vec<f64>,
    patch_size: Vec<usize>,
    batch_size: usize,
    features: Vec<usize>,
    strides: Vec<Vec<usize>>,
    kernels: Vec<Vec<usize>>,
    encoder: Vec<usize>,
    decoder: Vec<usize>,
    batch_dice: bool,
}

impl Planned {
    /// The fingerprint with axes in an order.
    fn fingerprint(&self, order: [usize; 3]) -> Fingerprint {
        let case = |shape: [usize; 3], spacing: [f64; 3]| {
            let shape = order.map(|axis| shape[axis]);
            let affine = Affine::from_spacing(Spacing(order.map(|axis| spacing[axis])));
            CaseFingerprint {
                id: String::new(),
                geometry: Geometry::new(shape, affine).unwrap(),
                nonzero_box: VoxelBox { start: [0; 3], shape },
                element_types: Vec::new(),
                stored_bytes: Bytes::ZERO,
                label_bytes: Bytes::ZERO,
                decoding_bytes: Bytes::ZERO,
                channels: Vec::new(),
                mask_voxels: None,
                label_voxels: Vec::new(),
                content: Digest(0),
            }
        };
        let cases = self.cases.iter();
        let cases = cases.flat_map(|(count, shape, spacing)| vec![case(*shape, *spacing); *count]).collect();
        Fingerprint::new(cases, BTreeMap::new()).unwrap()
    }

    fn labels(&self) -> Labels {
        let values = (0..self.labels as u64).map(|value| match value {
            0 => ("background".into(), 0),
            value => (format!("label {value}"), value),
        });
        Labels::from_values(Path::new("dataset.json"), &values.collect()).unwrap()
    }
}

/// Checks that two plans are equal. Spacings may differ by rounding.
fn compare(place: &str, plan: &PresetPlan, expected: &Expected) {
    let axes = 3 - expected.patch_size.len();
    let cut = |lists: &[[usize; 3]]| lists.iter().map(|list| list[axes..].to_vec()).collect::<Vec<_>>();
    let lengths = plan.spacing.lengths();
    assert_eq!(lengths.len(), expected.spacing.len(), "{place}");
    let near = |(own, other): (&f64, &f64)| (own - other).abs() <= 1e-12 * other;
    assert!(lengths.iter().zip(&expected.spacing).all(near), "{place}: {lengths:?} {:?}", expected.spacing);
    assert_eq!(plan.patch_size[axes..], expected.patch_size[..], "{place}");
    assert_eq!(plan.batch_size, expected.batch_size, "{place}");
    assert_eq!(plan.features, expected.features, "{place}");
    assert_eq!(cut(&plan.strides), expected.strides, "{place}");
    assert_eq!(cut(&plan.kernels), expected.kernels, "{place}");
    assert_eq!(plan.encoder, expected.encoder, "{place}");
    assert_eq!(plan.decoder, expected.decoder, "{place}");
    assert_eq!(plan.batch_dice, expected.batch_dice, "{place}");
    assert!(lengths.len() == 3 || plan.patch_size[0] == 1, "{place}");
}

#[test]
fn presets_plan_what_the_planners_of_nnu_net_plan() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/presets.json");
    let all: Vec<Planned> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut count = 0;
    for planned in &all {
        let (fingerprint, labels) = (planned.fingerprint([0, 1, 2]), planned.labels());
        let Spacing(target) = fingerprint.target_spacing;
        // nnU-Net exchanges axes so that slices lie across the coarsest.
        let coarsest = (1..3).fold(0, |best, axis| if target[axis] > target[best] { axis } else { best });
        let others: Vec<usize> = (0..3).filter(|axis| *axis != coarsest).collect();
        let exchanged = planned.fingerprint([coarsest, others[0], others[1]]);
        let Spacing([_, height, width]) = exchanged.target_spacing;
        let volumes = PlannedImages::new(&fingerprint, fingerprint.target_spacing.into(), &labels);
        let slices = PlannedImages::new(&exchanged, TargetSpacing::InPlane([height, width]), &labels);
        for preset in Preset::ALL {
            let expected = &planned.presets[preset.as_str()];
            let low = preset.low_resolution(&volumes);
            let place = |of: &str| format!("{}, {preset}, {of}", planned.name);
            assert_eq!(low.is_some(), expected.contains_key("3d_lowres"), "{}", place("3d_lowres"));
            for (of, expected) in expected {
                let plan = match of.as_str() {
                    "2d" => preset.plan(&slices),
                    "3d_fullres" => preset.plan(&volumes),
                    _ => low.clone().unwrap(),
                };
                assert_eq!(plan.configuration.to_string(), *of);
                compare(&place(of), &plan, expected);
                count += 1;
            }
        }
    }
    assert!(all.len() >= 18 && count > 160, "{count}");
}

#[test]
fn a_patch_of_a_large_preset_has_more_than_128_voxels_along_each_axis() {
    let images = PlannedImages {
        spacing: Spacing([1.0; 3]).into(),
        median_shape: [512.0; 3],
        voxels: 1e10,
        cases: 100,
        labels: 3,
    };
    assert_eq!(Preset::ResencL.plan(&images).patch_size, [192; 3]);
    assert_eq!(Preset::ResencL.plan(&images).configuration, Configuration::FullResolution);
}

#[test]
fn the_ignored_label_counts_among_the_labels_of_the_data_set() {
    let planned = Planned {
        name: "one".into(),
        labels: 2,
        cases: vec![(1, [20, 30, 40], [1.0; 3])],
        presets: BTreeMap::new(),
    };
    let spacing = TargetSpacing::from(Spacing([1.0; 3]));
    let count = |labels: &Labels| PlannedImages::new(&planned.fingerprint([0, 1, 2]), spacing, labels).labels;
    assert_eq!(count(&planned.labels()), 2);
    let values =
        [("background", 0), ("ball", 1), ("ignore", 2)].map(|(name, value)| (name.to_string(), value));
    let ignoring = Labels::from_values(Path::new("dataset.json"), &values.into()).unwrap();
    assert_eq!((count(&ignoring), ignoring.classes()), (3, 2));
}

#[test]
fn names_are_read_as_they_are_written() {
    for preset in Preset::ALL {
        assert_eq!(preset.to_string().parse(), Ok(*preset));
        assert_eq!(serde_json::to_value(preset).unwrap(), preset.as_str());
    }
    let error = "resenc-s".parse::<Preset>().unwrap_err().to_string();
    assert_eq!(error, "unknown preset `resenc-s`; known: nnunet, resenc-m, resenc-l, resenc-xl");
}
