//! The confusion matrix of two label maps, and the bounding box of each class.

use std::path::Path;
use std::sync::Arc;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{Content, Geometry, LabelValues, VolumeFile, VoxelBox};

use crate::{MetricError, Overlap};

/// The tolerance between the corners of two grids, in millimetres.
const TOLERANCE: f64 = 1e-3;

/// The number of voxels of each pair of classes, and the bounding box of each class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    /// `[reference][prediction]`
    counts: Box<[[u64; 256]; 256]>,
    /// First voxel and one past the last, of prediction and reference together; empty if the first is not below the
    /// last.
    bounds: Box<[[[usize; 3]; 2]; 256]>,
    /// The label of the reference whose voxels are not counted.
    ignore: Option<u8>,
}

impl Default for Confusion {
    fn default() -> Confusion {
        Confusion {
            counts: Box::new([[0; 256]; 256]),
            bounds: Box::new([[[usize::MAX; 3], [0; 3]]; 256]),
            ignore: None,
        }
    }
}

impl Confusion {
    /// An empty matrix that leaves out voxels whose reference label is `ignore`, as nnU-Net's evaluation does.
    pub fn ignoring(ignore: Option<u8>) -> Confusion {
        Confusion { ignore, ..Confusion::default() }
    }

    /// The label of references whose voxels are not counted.
    pub(crate) fn ignored(&self) -> Option<u8> {
        self.ignore
    }

    /// Returns the number of counted voxels.
    pub fn voxels(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Counts the plane at depth `z`; rows have `width` voxels.
    pub fn add_plane(&mut self, z: usize, width: usize, reference: &[u8], prediction: &[u8]) {
        let rows = reference.chunks(width.max(1)).zip(prediction.chunks(width.max(1)));
        for (y, (reference, prediction)) in rows.enumerate() {
            let mut rest = reference.iter().zip(prediction).enumerate();
            let Some((_, mut pair)) = rest.next() else { continue };
            // Label maps have long runs of equal pairs, so counting by run is cheap.
            let mut start = 0;
            for (x, here) in rest {
                if here != pair {
                    self.add_run(*pair.0, *pair.1, [z, y], [start, x]);
                    (start, pair) = (x, here);
                }
            }
            self.add_run(*pair.0, *pair.1, [z, y], [start, reference.len().min(prediction.len())]);
        }
    }

    fn add_run(&mut self, reference: u8, prediction: u8, [z, y]: [usize; 2], [start, end]: [usize; 2]) {
        if self.ignore == Some(reference) {
            return;
        }
        self.counts[usize::from(reference)][usize::from(prediction)] += (end - start) as u64;
        for class in [reference, prediction] {
            let [first, last] = &mut self.bounds[usize::from(class)];
            for (axis, (from, to)) in [(z, z + 1), (y, y + 1), (start, end)].into_iter().enumerate() {
                first[axis] = first[axis].min(from);
                last[axis] = last[axis].max(to);
            }
        }
    }

    /// Returns the labels of counted voxels, in either map.
    pub fn labels(&self) -> impl Iterator<Item = u8> {
        let counted = |label: u8| self.bounds[usize::from(label)][0] != [usize::MAX; 3];
        (0..=u8::MAX).filter(move |label| counted(*label))
    }

    /// The overlap of one class, or of several taken as one.
    pub fn overlap(&self, classes: &[u8]) -> Overlap {
        let classes = || classes.iter().map(|class| usize::from(*class));
        let of_row = |row: &[u64; 256]| classes().map(|class| row[class]).sum::<u64>();
        let true_positives = classes().map(|class| of_row(&self.counts[class])).sum::<u64>();
        let reference: u64 = classes().flat_map(|class| self.counts[class]).sum();
        let predicted: u64 = self.counts.iter().map(of_row).sum();
        let all = self.voxels();
        Overlap {
            true_positives,
            false_positives: predicted - true_positives,
            false_negatives: reference - true_positives,
            true_negatives: all + true_positives - predicted - reference,
        }
    }

    /// The bounding box of classes in prediction and reference together; `None` if they are in neither.
    pub fn bounds(&self, classes: &[u8]) -> Option<VoxelBox> {
        let [mut first, mut last] = [[usize::MAX; 3], [0; 3]];
        for [from, to] in classes.iter().map(|class| self.bounds[usize::from(*class)]) {
            first = std::array::from_fn(|axis| first[axis].min(from[axis]));
            last = std::array::from_fn(|axis| last[axis].max(to[axis]));
        }
        let found = VoxelBox::between(first, last);
        (!found.is_empty()).then_some(found)
    }
}

/// A prediction and its reference, on the same grid.
pub struct CaseFiles {
    prediction: VolumeFile,
    reference: VolumeFile,
    /// The class that each value of the reference denotes, or `None` if values are the numbers of classes.
    reference_values: Option<Arc<LabelValues>>,
    /// The label of the reference, as a class, whose voxels no score counts.
    ignore: Option<u8>,
    /// The same of the prediction.
    prediction_values: Option<Arc<LabelValues>>,
    /// The decoded labels of both, in this order, if they are held.
    held: Option<[Mapped<u8>; 2]>,
    /// The unit of lengths in millimetres, if it is not the one that headers state.
    unit: Option<f64>,
}

impl CaseFiles {
    /// Opens both files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or the grids differ.
    pub fn open(prediction: &Path, reference: &Path) -> Result<CaseFiles, MetricError> {
        let open = |path: &Path, on| VolumeFile::open_as(path, Content::Segments { on });
        let differ = |one: &VolumeFile, other: &VolumeFile| {
            one.geometry().difference(other.geometry(), TOLERANCE).is_some()
        };
        // Either of them may have a part of the grid of the other.
        let mut expected = open(reference, None)?;
        let mut found = open(prediction, Some(*expected.geometry()))?;
        if expected.segments().is_some() && differ(&expected, &found) {
            expected = open(reference, Some(*found.geometry()))?;
        }
        // Or each a part of the grid of an image.
        if expected.segments().is_some()
            && found.segments().is_some()
            && differ(&expected, &found)
            && let Some(both) = expected.geometry().union(found.geometry())
        {
            expected = open(reference, Some(both))?;
            found = open(prediction, Some(both))?;
        }
        if let (Some(of_prediction), Some(of_reference)) =
            (found.frame_of_reference(), expected.frame_of_reference())
            && of_prediction != of_reference
        {
            return Err(MetricError::FrameOfReference {
                prediction: prediction.into(),
                reference: reference.into(),
                found: of_prediction.into(),
                expected: of_reference.into(),
            });
        }
        let files = CaseFiles {
            prediction: found,
            reference: expected,
            reference_values: None,
            ignore: None,
            prediction_values: None,
            held: None,
            unit: None,
        };
        match files.geometry().difference(files.prediction.geometry(), TOLERANCE) {
            None => Ok(files),
            Some(difference) => Err(MetricError::Geometry {
                prediction: prediction.into(),
                reference: reference.into(),
                difference,
            }),
        }
    }

    /// The same, with the classes that values of the reference and of the prediction have; `None` if values are the numbers of classes.
    ///
    /// # Errors
    /// Returns an error if classes of a file follow from names of segments alone, and none are given.
    pub fn with_values(
        self,
        reference_values: Option<Arc<LabelValues>>,
        prediction_values: Option<Arc<LabelValues>>,
    ) -> Result<CaseFiles, MetricError> {
        self.reference.expect_values(reference_values.as_deref())?;
        self.prediction.expect_values(prediction_values.as_deref())?;
        Ok(CaseFiles { reference_values, prediction_values, ..self })
    }

    /// Leaves voxels whose reference label is `ignore` out of every score.
    pub fn with_ignored(self, ignore: Option<u8>) -> CaseFiles {
        CaseFiles { ignore, ..self }
    }

    /// The label of the reference whose voxels no score counts.
    pub(crate) fn ignore(&self) -> Option<u8> {
        self.ignore
    }

    /// The same, with what lengths in headers are in, in millimetres, whatever headers say.
    pub fn with_unit(self, unit: Option<f64>) -> CaseFiles {
        CaseFiles { unit, ..self }
    }

    /// From one voxel to the next along (depth, height, width), in millimetres.
    pub(crate) fn spacing(&self) -> [f64; 3] {
        let scale = self.unit.map_or(1.0, |unit| unit / self.reference.millimetres_per_unit());
        self.geometry().spacing().0.map(|length| length * scale)
    }

    /// Replaces what was read of the prediction and of the reference by classes.
    fn replace(
        &self,
        region: VoxelBox,
        prediction: &mut [u8],
        reference: &mut [u8],
    ) -> Result<(), MetricError> {
        if let Some(values) = &self.prediction_values {
            values.replace(self.prediction.path(), region, prediction)?;
        }
        match &self.reference_values {
            Some(values) => Ok(values.replace(self.reference.path(), region, reference)?),
            None => Ok(()),
        }
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        self.reference.geometry()
    }

    /// Decodes compressed files, which would otherwise be decompressed from the start for each region, if `budget` has
    /// room.
    pub(crate) fn hold(&mut self, budget: &Budget) -> Result<(), MetricError> {
        self.decode(budget)?;
        let files = [&mut self.prediction, &mut self.reference];
        if files.iter().all(|file| file.is_random_access()) {
            return Ok(());
        }
        let whole = VoxelBox::whole(files[0].geometry().shape());
        let room = || Mapped::<u8>::zeroed(budget, "label maps", whole.voxel_count()?).ok();
        let Some(mut held) = room().zip(room()).map(<[_; 2]>::from) else { return Ok(()) };
        for (file, labels) in files.into_iter().zip(&mut held) {
            file.region_labels(0, whole, labels)?;
        }
        let [prediction, reference] = &mut held;
        self.replace(whole, prediction, reference)?;
        self.held = Some(held);
        Ok(())
    }

    /// Decodes pictures, of which no region can be read before.
    fn decode(&mut self, budget: &Budget) -> Result<(), MetricError> {
        self.prediction.decode(budget)?;
        Ok(self.reference.decode(budget)?)
    }

    /// Frees the held labels. Returns whether there were any.
    pub(crate) fn let_go(&mut self) -> bool {
        self.held.take().is_some()
    }

    /// Reads a region of the prediction and of the reference.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read there or holds values other than whole numbers from 0 to 255.
    pub fn read(
        &mut self,
        region: VoxelBox,
        prediction: &mut [u8],
        reference: &mut [u8],
    ) -> Result<(), MetricError> {
        if let Some(held) = &self.held {
            let shape = self.geometry().shape();
            copy_region(&held[0], shape, region, prediction);
            copy_region(&held[1], shape, region, reference);
            return Ok(());
        }
        self.prediction.region_labels(0, region, prediction)?;
        self.reference.region_labels(0, region, reference)?;
        self.replace(region, prediction, reference)
    }
}

/// Copies a region of one plane from labels of `shape`.
pub(crate) fn copy_region(labels: &[u8], shape: [usize; 3], region: VoxelBox, to: &mut [u8]) {
    let [_, height, width] = shape;
    let [z, y, x] = region.start;
    for (row, to) in to.chunks_mut(region.shape[2].max(1)).enumerate() {
        to.copy_from_slice(&labels[(z * height + y + row) * width + x..][..to.len()]);
    }
}

/// Compares two label maps, a plane of each at a time. Voxels whose reference label is ignored are not counted.
///
/// # Errors
/// Returns an error if a file cannot be read or holds values other than whole numbers from 0 to 255, or there is no memory for two
/// planes.
pub fn compare(files: &mut CaseFiles, budget: &Budget) -> Result<Confusion, MetricError> {
    files.decode(budget)?;
    let [depth, height, width] = files.geometry().shape();
    let plane = height * width;
    let mut planes = Mapped::<u8>::zeroed(budget, "evaluation", 2 * plane)?;
    let (prediction, reference) = planes.split_at_mut(plane);
    let mut confusion = Confusion::ignoring(files.ignore);
    for z in 0..depth {
        files.read(VoxelBox { start: [z, 0, 0], shape: [1, height, width] }, prediction, reference)?;
        confusion.add_plane(z, width, reference, prediction);
    }
    Ok(confusion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_voxel_is_counted_once_and_lies_in_the_box_of_its_class() {
        let reference = [0, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0];
        let prediction = [0, 1, 2, 2, 0, 0, 0, 0, 0, 0, 1, 0];
        let mut confusion = Confusion::default();
        confusion.add_plane(3, 6, &reference, &prediction);
        let one = confusion.overlap(&[1]);
        assert_eq!((one.true_positives, one.false_positives, one.false_negatives), (1, 1, 1));
        assert_eq!(one.true_negatives, 9);
        assert_eq!(confusion.bounds(&[1]), Some(VoxelBox { start: [3, 0, 1], shape: [1, 2, 4] }));
        assert_eq!(confusion.bounds(&[2]), Some(VoxelBox { start: [3, 0, 2], shape: [1, 1, 3] }));
        assert_eq!(confusion.bounds(&[7]), None);
        assert_eq!(confusion.labels().collect::<Vec<_>>(), [0, 1, 2]);
        let both = confusion.overlap(&[1, 2]);
        assert_eq!((both.true_positives, both.false_positives, both.false_negatives), (3, 1, 1));
        assert_eq!(confusion.bounds(&[1, 2, 7]), Some(VoxelBox { start: [3, 0, 1], shape: [1, 2, 4] }));
    }
}
