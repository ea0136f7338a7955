//! A synthetic data set of vessel trees in noise, for trials without real images.
//!
//! Vessels are brighter than their surroundings, but the background varies by as much, so that no threshold segments
//! them; a small network does. Cases differ in shape, spacing, orientation and stored type, and one has voxels five
//! times as large as the others, like the outliers of real data sets.

mod scene;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic;
use plimsoll_volume::{
    Affine, ElementType, Geometry, GeometryError, Reorientation, Spacing, VolumeError, VolumeWriter,
};

use crate::Splits;
use plimsoll_random::{Draws, Purpose};
use scene::Scene;

/// The spacing of the outlier, in millimetres: as of a low-magnification scan among high-magnification ones.
const OUTLIER_SPACING: f64 = 4.97e-3;

/// The parameters of a phantom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhantomConfig {
    /// Cases with images in `imagesTr` and label maps in `labelsTr`.
    pub cases: usize,
    /// Cases with images in `imagesTs` and label maps in `labelsTs`.
    pub test_cases: usize,
    /// The smallest and the largest number of voxels along an axis.
    pub size: [usize; 2],
    /// Gives one training case, the first to train in fold 0, far larger voxels than the others. Requires at
    /// least three cases, so that it remains an outlier.
    pub outlier: bool,
    /// The same seed gives the same files.
    pub seed: u64,
}

impl Default for PhantomConfig {
    fn default() -> PhantomConfig {
        PhantomConfig { cases: 8, test_cases: 2, size: [64, 96], outlier: true, seed: 1 }
    }
}

/// Why no data set was written.
#[derive(Debug, thiserror::Error)]
pub enum PhantomError {
    /// A setting is out of range.
    #[error("`{setting}` of the phantom is {found}, but must be {expected}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The valid range.
        expected: &'static str,
    },
    /// The operating system reported an error.
    #[error("cannot {action} {path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// An image cannot be written.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The grid of a case is invalid.
    #[error("{0}")]
    Geometry(#[from] GeometryError),
}

impl PhantomError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PhantomError::Volume(problem) => problem.remedy(),
            PhantomError::Geometry(problem) => problem.remedy(),
            PhantomError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free space on the disk, or write somewhere else".into())
            }
            PhantomError::Io { .. } | PhantomError::Setting { .. } => None,
        }
    }
}

/// Writes a data set in nnU-Net's raw layout into `folder`, which is created if necessary. `dataset.json` is written
/// last, so that a folder that has one is complete. Holds one plane in memory at a time.
///
/// # Errors
/// If a setting is out of range, or the disk fails.
pub fn write(folder: impl AsRef<Path>, config: &PhantomConfig) -> Result<(), PhantomError> {
    let folder = folder.as_ref();
    config.check()?;
    let outlier = config.outlier();
    for (count, images, labels) in
        [(config.cases, "imagesTr", "labelsTr"), (config.test_cases, "imagesTs", "labelsTs")]
    {
        for path in [folder.join(images), folder.join(labels)].iter().filter(|_| count > 0) {
            let failed = |source| PhantomError::Io { path: path.clone(), action: "create", source };
            plimsoll_disk::create_dir_all(path).map_err(failed)?;
        }
        for number in 0..count {
            let is_test = images == "imagesTs";
            let id = if is_test { format!("vessel_test_{number:03}") } else { training_id(number) };
            let is_outlier = !is_test && outlier.as_ref() == Some(&id);
            // Test cases use case numbers beyond the largest number of training cases.
            let case = if is_test { u32::MAX - number as u32 } else { number as u32 };
            let sketch = Sketch::draw(config, case, is_outlier)?;
            let image = folder.join(images).join(format!("{id}_0000.nii.gz"));
            sketch.write(&image, &folder.join(labels).join(format!("{id}.nii.gz")))?;
        }
    }
    let description = serde_json::json!({
        "name": "Vessels",
        "description": "Synthetic: trees of bright tubes in noise on an uneven background",
        "channel_names": {"0": "microscopy"},
        "labels": {"background": 0, "vessel": 1},
        "numTraining": config.cases,
        "file_ending": ".nii.gz",
    });
    let path = folder.join("dataset.json");
    atomic::write(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, &description)?;
        file.write_all(b"\n")
    })
    .map_err(|source| PhantomError::Io { path, action: "write", source })
}

fn training_id(number: usize) -> String {
    format!("vessel_{number:03}")
}

impl PhantomConfig {
    /// The case with large voxels, if there is one.
    fn outlier(&self) -> Option<String> {
        let ids: Vec<String> = (0..self.cases).map(training_id).collect();
        let splits = Splits::make(&ids).ok().filter(|_| self.outlier && self.cases >= 3)?;
        splits.folds.first()?.train.first().cloned()
    }

    fn check(&self) -> Result<(), PhantomError> {
        let wrong = |setting, found, expected| Err(PhantomError::Setting { setting, found, expected });
        if !(1..=10_000).contains(&self.cases) {
            return wrong("cases", self.cases.to_string(), "from 1 to 10000");
        }
        if self.test_cases > 10_000 {
            return wrong("test_cases", self.test_cases.to_string(), "at most 10000");
        }
        let [least, most] = self.size;
        if !(16 <= least && least <= most && most <= 1024) {
            return wrong("size", format!("{least} to {most}"), "from 16 to 1024 voxels, the smaller first");
        }
        Ok(())
    }
}

/// Drawn before the first voxel: the grid and the scene.
struct Sketch {
    geometry: Geometry,
    element_type: ElementType,
    scene: Scene,
    seed: u64,
    case: u32,
}

impl Sketch {
    fn draw(config: &PhantomConfig, case: u32, is_outlier: bool) -> Result<Sketch, PhantomError> {
        let mut draws = Draws::new(config.seed, Purpose::Phantom, case, 0, 0);
        let [least, most] = config.size;
        let shape = [0; 3].map(|_| least + draws.below(most - least + 1));
        let in_plane = draws.between([0.8e-3, 1.2e-3]);
        let spacing = if is_outlier {
            Spacing([OUTLIER_SPACING; 3])
        } else {
            Spacing([in_plane * draws.between([1.0, 1.4]), in_plane, in_plane])
        };
        let mut affine = Affine::from_spacing(spacing);
        for row in &mut affine.0 {
            row[3] = draws.between([-1.0, 1.0]);
        }
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let order = orders[draws.below(orders.len())];
        let flip = [0; 3].map(|_| draws.chance(0.5));
        // Each order is a permutation of the axes.
        let turned = Reorientation::new(order, flip).unwrap_or(Reorientation::IDENTITY);
        let geometry = turned.geometry(&Geometry::new(shape, affine)?);
        let element_type = if draws.chance(0.5) { ElementType::I16 } else { ElementType::F32 };
        let scene = Scene::draw(geometry.shape(), geometry.spacing(), &mut draws);
        Ok(Sketch { geometry, element_type, scene, seed: config.seed, case })
    }

    fn write(&self, image: &Path, label: &Path) -> Result<(), PhantomError> {
        let [depth, height, width] = self.geometry.shape();
        let mut images = VolumeWriter::create(image, &self.geometry, 1, self.element_type, None)?;
        let mut labels = VolumeWriter::create(label, &self.geometry, 1, ElementType::U8, None)?;
        let mut plane = vec![0.0; height * width];
        let mut mask = vec![0; height * width];
        let mut bytes = Vec::with_capacity(height * width * self.element_type.size());
        for d in 0..depth {
            // One stream per plane, after the stream that the sketch was drawn from.
            let mut noise = Draws::new(self.seed, Purpose::Phantom, self.case, d as u64 + 1, 0);
            self.scene.render(d, &mut noise, &mut plane, &mut mask);
            bytes.clear();
            for value in &plane {
                match self.element_type {
                    ElementType::I16 => bytes.extend((value.round() as i16).to_ne_bytes()),
                    _ => bytes.extend(value.to_ne_bytes()),
                }
            }
            images.write_planes(&bytes)?;
            labels.write_planes(&mask)?;
        }
        images.finish()?;
        labels.finish()?;
        Ok(())
    }
}
