//! Features of the structures in a label map: their shape, and the intensities of an image inside them, with the numbers of PyRadiomics.
//!
//! Both files are read plane by plane, several times. What is held grows with the number of structures, and for [diameters](extents) with the
//! faces of one structure's box; [`features_bytes`] is the most. Formulas are of the documentation of PyRadiomics 3.0.1, most of which the
//! Image Biomarker Standardisation Initiative defines too (Zwanenburg et al., Radiology 2020).

mod axes;
mod census;
mod cubes;
mod extents;
mod first_order;
mod hull;
mod levels;
mod mesh;
mod passes;
mod runs;
mod surfaces;
mod table;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{LabelTable, VolumeFile};

pub use self::first_order::{Histogram, Intensities, Order};
pub use self::mesh::Surface;
use self::passes::{Files, Pass};
pub use self::surfaces::Diameters;
pub use self::table::write_features;
use crate::error::InferError;

/// The label map and the image that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The label map.
    pub labels: &'a Path,
    /// An image of one channel on the same grid.
    pub image: &'a Path,
    /// The structures, by their labels.
    pub names: &'a LabelTable,
}

/// A structure of a label map.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// The name of its label.
    pub name: String,
    /// Its label.
    pub label: u16,
    /// The number of its voxels.
    pub voxels: u64,
    /// Its shape; `None` without voxels.
    pub shape: Option<Shape>,
    /// The intensities inside it; `None` without voxels, or if one of them is not a finite number.
    pub intensities: Option<Intensities>,
}

/// The shape of a structure. Lengths are in mm by the spacing that the header of the image states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its voxels reach a face of the image, so that it may continue outside.
    pub is_cut: bool,
    /// The volume of its voxels in mm³.
    pub voxel_volume: f64,
    /// Its surface mesh.
    pub surface: Surface,
    /// The largest distances between points of its surface.
    pub diameters: Diameters,
    /// The lengths of the axes of an ellipsoid with the same second moments, the longest first: four times the root of an eigenvalue of the
    /// covariance of voxel centres.
    pub axes: [f64; 3],
}

impl Shape {
    /// The surface area divided by the volume of the mesh, in 1/mm.
    pub fn surface_volume_ratio(&self) -> f64 {
        self.surface.area / self.surface.volume
    }

    /// The area of a sphere of the mesh's volume divided by the area of the mesh.
    pub fn sphericity(&self) -> f64 {
        let Surface { area, volume } = self.surface;
        (36.0 * std::f64::consts::PI * volume * volume).cbrt() / area
    }

    /// The second axis divided by the first; `None` for a single voxel.
    pub fn elongation(&self) -> Option<f64> {
        self.of_first(self.axes[1])
    }

    /// The third axis divided by the first; `None` for a single voxel.
    pub fn flatness(&self) -> Option<f64> {
        self.of_first(self.axes[2])
    }

    fn of_first(&self, axis: f64) -> Option<f64> {
        (self.axes[0] > 0.0).then(|| axis / self.axes[0])
    }
}

/// The most memory that [`structure_features`] reserves for an image of a shape (depth, height, width) and a number of structures, besides
/// what decoding a picture takes.
pub fn features_bytes(shape: [usize; 3], structures: usize) -> Bytes {
    /// Buffers end with whole pages.
    const PAGES: u64 = 64 << 10;
    let of_structures = (census::BYTES + first_order::BYTES) * structures as u64;
    let of_image = passes::bytes(shape).saturating_add(surfaces::bytes(shape));
    Bytes(of_image.saturating_add(of_structures + PAGES)) + VolumeFile::OPEN_BYTES + VolumeFile::OPEN_BYTES
}

/// Measures the structures of a label map, in the order of their names.
///
/// Numbers do not depend on the memory limit. Intensities are read in single precision and summed in double.
///
/// # Errors
/// Returns an error if a file cannot be read, the two do not lie on one grid, the image has several channels, the budget has no room, or
/// `stop` is set.
pub fn structure_features(
    of: &Measured<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<Vec<Structure>, InferError> {
    let mut files = Files::open(of, budget)?;
    let count = of.names.labels.len();
    let mut pass = Pass { files: &mut files, stop };
    let censuses = census::take(&mut pass, count, budget)?;
    let intensities = first_order::measure(&mut pass, &censuses, budget)?;
    let surfaces = surfaces::measure(&mut pass, &censuses, budget)?;
    let (shape, spacing) = (files.shape(), files.spacing());
    let voxel = spacing.iter().product::<f64>();
    let all = of.names.labels.iter().zip(censuses.iter()).zip(surfaces.into_iter().zip(intensities));
    let structures = all.map(|(((label, name), census), (found, intensities))| Structure {
        name: name.clone(),
        label: *label,
        voxels: census.voxels,
        shape: found.map(|(surface, diameters)| Shape {
            is_cut: census.reaches_face(shape),
            voxel_volume: census.voxels as f64 * voxel,
            surface,
            diameters,
            axes: axes::lengths(&census.moments, spacing),
        }),
        intensities,
    });
    Ok(structures.collect())
}
