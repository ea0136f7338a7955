//! The volume and the mean intensity of each label, as TotalSegmentator's `statistics.py` has them. One plane of the image and one of the
//! labels are held at a time.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{LabelTable, VolumeFile};
use serde::Serialize;

use crate::error::InferError;
use crate::labels::label_maps::{go_on, plane_of};

/// A label that is this near to a face of the image, in voxels, is taken for one that is cut off.
const BORDER: usize = 3;

/// Digits behind the point of an intensity.
const UNIT: f64 = 1e5;

/// The statistics of a label; both are 0 if no voxel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LabelStatistics {
    /// In mm³: voxels, by the product of the spacings that the header states.
    pub volume: f64,
    /// The mean over its voxels, of whole numbers of 16 bits that intensities are cut to, towards 0; rounded to five digits.
    pub intensity: f64,
}

/// The statistics of a label so far.
#[derive(Clone, Copy, Default)]
struct Sums {
    voxels: u64,
    sum: i64,
    touches_border: bool,
}

/// Measures the labels that have names, in their order. Without `incomplete`, labels within three voxels of the border are 0 in both: they
/// may go on out of the image.
///
/// # Errors
/// Returns an error if a file cannot be read, the two are of different shapes, the budget has no room, or `stop` is set.
pub fn label_statistics(
    labels: &Path,
    image: &Path,
    names: &LabelTable,
    incomplete: bool,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<Vec<(String, LabelStatistics)>, InferError> {
    let (mut labels_file, mut image_file) = (VolumeFile::open_labels(labels)?, VolumeFile::open(image)?);
    labels_file.decode(budget)?;
    image_file.decode(budget)?;
    let shape = image_file.geometry().shape();
    if labels_file.geometry().shape() != shape {
        let found = labels_file.geometry().shape();
        return Err(InferError::OtherShape { path: labels.into(), found, expected: shape });
    }
    let [depth, height, width] = shape;
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let mut values = Mapped::<f32>::zeroed(budget, "a plane of an image", height * width)?;
    let mut all = [Sums::default(); 256];
    let is_near = |at: usize, length: usize| at < BORDER || at + BORDER >= length;
    for d in 0..depth {
        go_on(labels, stop)?;
        labels_file.region_labels(0, plane_of(d, [height, width]), &mut plane)?;
        image_file.region_f32(0, plane_of(d, [height, width]), &mut values)?;
        for (place, (label, value)) in plane.iter().zip(values.iter()).enumerate() {
            let sums = &mut all[usize::from(*label)];
            sums.voxels += 1;
            sums.sum += i64::from(*value as i16);
            let (h, w) = (place / width, place % width);
            sums.touches_border |= is_near(d, depth) || is_near(h, height) || is_near(w, width);
        }
    }
    // Spacings are of single precision in NIfTI's header, and so is their product there.
    let [d, h, w] = image_file.stated_spacing().0.map(|length| length as f32);
    let voxel = f64::from(w * h * d);
    let of_label = |(value, name): &(u16, String)| {
        // A value that a map of so many bits cannot hold has no voxels in it.
        let sums = all.get(usize::from(*value)).copied().unwrap_or_default();
        let found = match sums.voxels > 0 && (incomplete || !sums.touches_border) {
            false => LabelStatistics::default(),
            true => LabelStatistics {
                volume: sums.voxels as f64 * voxel,
                intensity: (sums.sum as f64 / sums.voxels as f64 * UNIT).round_ties_even() / UNIT,
            },
        };
        (name.clone(), found)
    };
    Ok(names.labels.iter().map(of_label).collect())
}
