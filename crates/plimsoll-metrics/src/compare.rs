//! Which class met which, over two label maps.

use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{VolumeFile, VoxelBox};

use crate::{MetricError, Overlap};

/// Grids whose corners are further apart than this, in millimetres, are not the same.
const TOLERANCE: f64 = 1e-3;

/// How many voxels have each pair of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    /// `[reference][prediction]`
    counts: Box<[[u64; 256]; 256]>,
}

impl Default for Confusion {
    fn default() -> Confusion {
        Confusion { counts: Box::new([[0; 256]; 256]) }
    }
}

impl Confusion {
    /// Counts some voxels.
    pub fn add(&mut self, reference: &[u8], prediction: &[u8]) {
        for (reference, prediction) in reference.iter().zip(prediction) {
            self.counts[usize::from(*reference)][usize::from(*prediction)] += 1;
        }
    }

    /// The overlap of one class.
    pub fn overlap(&self, class: u8) -> Overlap {
        let class = usize::from(class);
        let true_positives = self.counts[class][class];
        let reference: u64 = self.counts[class].iter().sum();
        let predicted: u64 = self.counts.iter().map(|row| row[class]).sum();
        let all: u64 = self.counts.iter().flatten().sum();
        Overlap {
            true_positives,
            false_positives: predicted - true_positives,
            false_negatives: reference - true_positives,
            true_negatives: all + true_positives - predicted - reference,
        }
    }
}

/// Compares two label maps on the same grid, a plane of each at a time.
///
/// # Errors
/// If a file cannot be read or holds other than whole numbers from 0 to 255, or the grids differ.
pub fn compare(prediction: &Path, reference: &Path, budget: &Budget) -> Result<Confusion, MetricError> {
    let (mut predicted, mut expected) = (VolumeFile::open(prediction)?, VolumeFile::open(reference)?);
    let geometry = *expected.geometry();
    if let Some(difference) = geometry.difference(predicted.geometry(), TOLERANCE) {
        return Err(MetricError::Geometry {
            prediction: prediction.into(),
            reference: reference.into(),
            difference,
        });
    }
    let [depth, height, width] = geometry.shape();
    let plane = height * width;
    let mut planes = Mapped::<u8>::zeroed(budget, "evaluation", 2 * plane)?;
    let (first, second) = planes.split_at_mut(plane);
    let mut confusion = Confusion::default();
    for d in 0..depth {
        let region = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
        predicted.region_labels(0, region, first)?;
        expected.region_labels(0, region, second)?;
        confusion.add(second, first);
    }
    Ok(confusion)
}
