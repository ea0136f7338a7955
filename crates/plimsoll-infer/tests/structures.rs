//! Features of structures: see `oracles/structure_features.py`.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_infer::{InferError, Measured, Structure, features_bytes, structure_features, write_features};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, LabelTable, VolumeWriter};
use serde_json::Value;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/structure_features").join(name)
}

fn named(labels: impl IntoIterator<Item = u16>) -> LabelTable {
    LabelTable { labels: labels.into_iter().map(|label| (label, format!("label {label}"))).collect() }
}

fn features(
    labels: &Path,
    image: &Path,
    names: &LabelTable,
    limit: Bytes,
) -> Result<Vec<Structure>, InferError> {
    let budget = Budget::new(limit);
    let found = structure_features(&Measured { labels, image, names }, &budget, &AtomicBool::new(false));
    assert_eq!(budget.used(), Bytes::ZERO);
    assert!(budget.peak() <= limit);
    found
}

/// A table as columns of cells for each row.
fn table(structures: &[Structure]) -> Vec<Vec<(String, String)>> {
    let mut text = Vec::new();
    write_features(structures, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(String::from).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines.map(|cells| names.iter().cloned().zip(cells).collect()).collect()
}

/// The column of each feature of PyRadiomics.
const FEATURES: [(&str, &str); 33] = [
    ("VoxelVolume", "voxel_volume_mm3"),
    ("MeshVolume", "mesh_volume_mm3"),
    ("SurfaceArea", "surface_area_mm2"),
    ("SurfaceVolumeRatio", "surface_volume_ratio_per_mm"),
    ("Sphericity", "sphericity"),
    ("Maximum3DDiameter", "maximum_3d_diameter_mm"),
    ("Maximum2DDiameterSlice", "maximum_2d_diameter_slice_mm"),
    ("Maximum2DDiameterColumn", "maximum_2d_diameter_column_mm"),
    ("Maximum2DDiameterRow", "maximum_2d_diameter_row_mm"),
    ("MajorAxisLength", "major_axis_length_mm"),
    ("MinorAxisLength", "minor_axis_length_mm"),
    ("LeastAxisLength", "least_axis_length_mm"),
    ("Elongation", "elongation"),
    ("Flatness", "flatness"),
    ("Mean", "mean"),
    ("Median", "median"),
    ("Minimum", "minimum"),
    ("Maximum", "maximum"),
    ("Range", "range"),
    ("10Percentile", "percentile_10"),
    ("90Percentile", "percentile_90"),
    ("InterquartileRange", "interquartile_range"),
    ("StandardDeviation", "standard_deviation"),
    ("Variance", "variance"),
    ("Skewness", "skewness"),
    ("Kurtosis", "kurtosis"),
    ("MeanAbsoluteDeviation", "mean_absolute_deviation"),
    ("RobustMeanAbsoluteDeviation", "robust_mean_absolute_deviation"),
    ("RootMeanSquared", "root_mean_squared"),
    ("Energy", "energy"),
    ("TotalEnergy", "total_energy_mm3"),
    ("Entropy", "entropy_bits"),
    ("Uniformity", "uniformity"),
];

#[test]
fn features_are_those_of_pyradiomics() {
    /// Relative, and absolute for features that are 0.
    const CLOSE: f64 = 1e-9;
    let expected: Value = serde_json::from_slice(&std::fs::read(oracle("features.json")).unwrap()).unwrap();
    let names = named(1..=10);
    let found = features(&oracle("labels.nii.gz"), &oracle("image.nii.gz"), &names, Bytes::mib(64)).unwrap();
    let mut most: f64 = 0.0;
    for (row, structure) in table(&found).iter().zip(&found) {
        let expected = &expected[structure.label.to_string()];
        for (feature, column) in FEATURES {
            let (_, cell) = row.iter().find(|(name, _)| name == column).unwrap();
            let at = format!("{feature} of {}", structure.name);
            let Some(number) = expected[feature].as_f64() else {
                assert!(cell.is_empty(), "{at}: {cell}");
                continue;
            };
            let found: f64 = cell.parse().unwrap_or_else(|_| panic!("{at}: `{cell}`, not {number}"));
            let difference = (found - number).abs() / number.abs().max(1.0);
            most = most.max(difference);
            assert!(difference < CLOSE, "{at}: {found}, not {number}");
        }
    }
    println!("largest relative difference: {most:.1e}");
}

#[test]
fn features_do_not_depend_on_the_memory_limit_and_hold_what_is_planned() {
    let (labels, image, names) = (oracle("labels.nii.gz"), oracle("image.nii.gz"), named(1..=10));
    let planned = features_bytes([22, 34, 40], 10);
    let found = features(&labels, &image, &names, planned).unwrap();
    assert_eq!(found, features(&labels, &image, &names, Bytes::mib(512)).unwrap());
    let too_low = features(&labels, &image, &names, Bytes(planned.0 / 4));
    assert!(matches!(too_low, Err(InferError::OverBudget(_) | InferError::Memory(_))), "{too_low:?}");
}

/// A grid with voxels of 0.5 × 1 × 2 mm.
fn grid(shape: [usize; 3]) -> Geometry {
    let mut rows = [[0.0; 4]; 3];
    [2.0, 1.0, 0.5].into_iter().enumerate().for_each(|(axis, length)| rows[axis][2 - axis] = length);
    Geometry::new(shape, Affine(rows)).unwrap()
}

/// Writes an image and labels of a shape.
fn written(folder: &Path, shape: [usize; 3], labels: &[u8], values: &[f32]) -> [PathBuf; 2] {
    let geometry = grid(shape);
    let [to_labels, to_image] = ["labels.nii.gz", "image.nii.gz"].map(|name| folder.join(name));
    let mut writer = VolumeWriter::create(&to_labels, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
    let mut writer = VolumeWriter::create(&to_image, &geometry, 1, ElementType::F32, None).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
    [to_labels, to_image]
}

#[test]
fn structures_without_voxels_or_with_other_than_numbers_have_empty_cells() {
    let dir = tempfile::tempdir().unwrap();
    let [labels, image] =
        written(dir.path(), [1, 2, 3], &[1, 1, 2, 0, 0, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN]);
    let found = features(&labels, &image, &named([1, 2, 3, 300]), Bytes::mib(16)).unwrap();
    let voxels: Vec<u64> = found.iter().map(|structure| structure.voxels).collect();
    assert_eq!(voxels, [2, 2, 0, 0]);
    let [pair, no_number, none, ..] = &found[..] else { panic!("{found:?}") };
    // The only plane of an image is not its border; the ends of rows are.
    assert!(pair.shape.is_some_and(|shape| shape.is_cut));
    assert_eq!(pair.intensities.map(|of| [of.mean, of.order.median, of.variance]), Some([1.5, 1.5, 0.25]));
    assert!(no_number.shape.is_some() && no_number.intensities.is_none());
    assert!(none.shape.is_none() && none.intensities.is_none());
    let rows = table(&found);
    assert!(rows[2][4..].iter().all(|(_, cell)| cell.is_empty()), "{:?}", rows[2]);
    assert!(rows[1][18..].iter().all(|(_, cell)| cell.is_empty()), "{:?}", rows[1]);
}

#[test]
fn labels_of_another_grid_and_images_of_several_channels_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [labels, _] = written(dir.path(), [1, 2, 3], &[1; 6], &[0.0; 6]);
    let other = features(&labels, &oracle("image.nii.gz"), &named([1]), Bytes::mib(16)).unwrap_err();
    assert!(matches!(other, InferError::OtherGrid { .. }), "{other}");
    let channels = dir.path().join("two.nii.gz");
    let mut writer = VolumeWriter::create(&channels, &grid([1, 2, 3]), 2, ElementType::F32, None).unwrap();
    writer.write_planes(&[0; 2 * 6 * size_of::<f32>()]).unwrap();
    writer.finish().unwrap();
    let several = features(&labels, &channels, &named([1]), Bytes::mib(16)).unwrap_err();
    assert!(matches!(several, InferError::SeveralChannels { channels: 2, .. }), "{several}");
    let stopped = structure_features(
        &Measured { labels: &labels, image: &dir.path().join("image.nii.gz"), names: &named([1]) },
        &Budget::new(Bytes::mib(16)),
        &AtomicBool::new(true),
    );
    assert!(matches!(stopped, Err(InferError::Interrupted { .. })), "{stopped:?}");
}
