//! Labels by the mean of several models' probabilities, plane by plane.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::Answers;
use plimsoll_volume::{ElementType, VolumeFile, VolumeWriter};

use crate::error::InferError;
use crate::labels::npz_reader::ProbabilityReader;
use crate::labels::wanted::Wanted;

/// A probability from which a voxel is in a region.
const LIKELY: f32 = 0.5;

/// A case of which several models have said how likely each answer is.
#[derive(Clone, Copy, Debug)]
pub struct EnsembleRequest<'a> {
    /// Its name.
    pub case: &'a str,
    /// The probabilities of each model, in NumPy's `.npz`: `probabilities`, `[output][depth][height][width]` in f32.
    pub probabilities: &'a [PathBuf],
    /// The meaning of the outputs.
    pub answers: &'a Answers,
    /// An image on the grid of the case, whose geometry and header the labels get.
    pub image: &'a Path,
    /// The file of labels, which is replaced if it exists.
    pub labels: &'a Path,
}

/// Writes the labels that the mean of several models' probabilities says: of classes the one with the largest mean, the first of equals,
/// and of regions those above a half, later ones over earlier ones. Holds one plane of all outputs.
///
/// # Errors
/// Returns an error if there is no file of probabilities, one cannot be read or is of another image, the budget has no room, the disk refuses, or `stop` is
/// set; then nothing is written.
pub fn label_by_mean(
    request: &EnsembleRequest<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let outputs = request.answers.outputs();
    if request.probabilities.is_empty() {
        return Err(InferError::Unreadable { case: request.case.into() });
    }
    let image = VolumeFile::open(request.image)?;
    let geometry = *image.geometry();
    let [depth, height, width] = geometry.shape();
    let wanted = Wanted::new(request.answers, false);
    let plane = height * width;
    let mut sums = Mapped::<f32>::zeroed(budget, "probabilities", plane.saturating_mul(outputs))?;
    let mut labels = Mapped::<u8>::zeroed(budget, "labels", plane.saturating_mul(wanted.label_bytes()))?;
    let open = |path: &PathBuf| ProbabilityReader::open(path, outputs, geometry.shape(), budget);
    let mut readers: Vec<ProbabilityReader> =
        request.probabilities.iter().map(open).collect::<Result<_, _>>()?;
    let element = if wanted.label_bytes() == 1 { ElementType::U8 } else { ElementType::U16 };
    let writer = VolumeWriter::create(request.labels, &geometry, 1, element, image.header());
    let mut writer = writer.map_err(InferError::Write)?;
    let count = readers.len() as f32;
    for _ in 0..depth {
        if stop.load(Ordering::Relaxed) {
            return Err(InferError::Interrupted { case: request.case.into() });
        }
        sums.fill(0.0);
        readers.iter_mut().try_for_each(|reader| reader.add_plane(&mut sums))?;
        sums.iter_mut().for_each(|sum| *sum /= count);
        for (voxel, label) in labels.chunks_exact_mut(wanted.label_bytes()).enumerate() {
            let value = decide(request.answers, |output| sums[output * plane + voxel]);
            label.copy_from_slice(&value.to_ne_bytes()[low_bytes(label.len())]);
        }
        writer.write_planes(&labels).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}

/// Returns the positions of the lowest bytes of a number of 16 bits, in this machine's order.
fn low_bytes(count: usize) -> std::ops::Range<usize> {
    if cfg!(target_endian = "little") { 0..count } else { 2 - count..2 }
}

/// Returns the label of a voxel with these probabilities.
fn decide(answers: &Answers, probability: impl Fn(usize) -> f32) -> u16 {
    match answers {
        Answers::Classes(classes) => {
            let larger =
                |best: usize, class: usize| if probability(class) > probability(best) { class } else { best };
            (1..*classes).fold(0, larger) as u16
        }
        Answers::Regions(values) => {
            let likely = values.iter().enumerate().rfind(|(region, _)| probability(*region) > LIKELY);
            likely.map_or(0, |(_, value)| *value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_classes_and_the_last_of_likely_regions_are_taken() {
        let of = |answers: Answers, probabilities: &[f32]| decide(&answers, |output| probabilities[output]);
        assert_eq!(of(Answers::Classes(3), &[0.25, 0.5, 0.25]), 1);
        assert_eq!(of(Answers::Classes(3), &[0.4, 0.4, 0.2]), 0);
        assert_eq!(of(Answers::Regions(vec![7, 2, 5]), &[0.9, 0.8, 0.5]), 2);
        assert_eq!(of(Answers::Regions(vec![7, 2, 5]), &[0.1, 0.2, 0.3]), 0);
    }
}
