//! The table of features: a row for each structure.

use std::io::{self, Write};

use super::{Intensities, Shape, Structure};

/// The columns, and the feature of PyRadiomics that each is. Empty cells are undefined.
const COLUMNS: [&str; 39] = [
    "structure",
    "label",
    "voxels",
    "reaches_image_border",
    "voxel_volume_mm3",
    "mesh_volume_mm3",
    "surface_area_mm2",
    "surface_volume_ratio_per_mm",
    "sphericity",
    "maximum_3d_diameter_mm",
    "maximum_2d_diameter_slice_mm",
    "maximum_2d_diameter_column_mm",
    "maximum_2d_diameter_row_mm",
    "major_axis_length_mm",
    "minor_axis_length_mm",
    "least_axis_length_mm",
    "elongation",
    "flatness",
    "mean",
    "median",
    "minimum",
    "maximum",
    "range",
    "percentile_10",
    "percentile_25",
    "percentile_75",
    "percentile_90",
    "interquartile_range",
    "standard_deviation",
    "variance",
    "skewness",
    "kurtosis",
    "mean_absolute_deviation",
    "robust_mean_absolute_deviation",
    "root_mean_squared",
    "energy",
    "total_energy_mm3",
    "entropy_bits",
    "uniformity",
];

/// The columns of numbers: shape, then intensities.
const OF_SHAPE: usize = 14;
const OF_INTENSITIES: usize = 21;

/// Writes structures as a table in CSV (RFC 4180) with a row for each, its columns named with their units. Intensities have the unit of the image.
/// Numbers are the shortest decimals that are read as the same numbers.
///
/// # Errors
/// Returns an error if writing fails.
pub fn write_features(structures: &[Structure], to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{}", COLUMNS.join(","))?;
    for structure in structures {
        let Structure { name, label, voxels, shape, intensities } = structure;
        let is_cut = shape.as_ref().is_some_and(|shape| shape.is_cut);
        write!(to, "{},{label},{voxels},{is_cut}", quoted(name))?;
        let of_shape = shape.as_ref().map_or([None; OF_SHAPE], numbers_of_shape);
        let of_intensities = intensities.as_ref().map_or([None; OF_INTENSITIES], numbers_of_intensities);
        for number in of_shape.into_iter().chain(of_intensities) {
            match number {
                Some(number) => write!(to, ",{number}")?,
                None => write!(to, ",")?,
            }
        }
        writeln!(to)?;
    }
    Ok(())
}

/// A name as a cell.
fn quoted(name: &str) -> String {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.into(),
    }
}

fn numbers_of_shape(shape: &Shape) -> [Option<f64>; OF_SHAPE] {
    let Shape { voxel_volume, surface, diameters, axes, .. } = *shape;
    [
        Some(voxel_volume),
        Some(surface.volume),
        Some(surface.area),
        Some(shape.surface_volume_ratio()),
        Some(shape.sphericity()),
        Some(diameters.all),
        Some(diameters.slice),
        Some(diameters.column),
        Some(diameters.row),
        Some(axes[0]),
        Some(axes[1]),
        Some(axes[2]),
        shape.elongation(),
        shape.flatness(),
    ]
}

fn numbers_of_intensities(of: &Intensities) -> [Option<f64>; OF_INTENSITIES] {
    [
        Some(of.mean),
        Some(of.order.median),
        Some(of.minimum),
        Some(of.maximum),
        Some(of.maximum - of.minimum),
        Some(of.order.tenth),
        Some(of.order.first_quartile),
        Some(of.order.third_quartile),
        Some(of.order.ninetieth),
        Some(of.order.third_quartile - of.order.first_quartile),
        Some(of.variance.sqrt()),
        Some(of.variance),
        Some(of.skewness),
        Some(of.kurtosis),
        Some(of.mean_absolute_deviation),
        Some(of.robust_mean_absolute_deviation),
        Some(of.root_mean_square),
        Some(of.energy),
        Some(of.total_energy),
        of.histogram.map(|histogram| histogram.entropy),
        of.histogram.map(|histogram| histogram.uniformity),
    ]
}
