//! The buffers of a batch.

use plimsoll_memory::{Budget, Bytes, Mapped};

use crate::Mode;
use crate::loader::{LoaderError, Targets};

/// The shape of a sample: a patch of a volume with a label for each voxel, or an image with one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShape {
    /// Channels.
    pub channels: usize,
    /// Voxels along (depth, height, width); an image is one voxel deep.
    pub patch: [usize; 3],
    /// Labels along (depth, height, width): as voxels, or 1, 1, 1 where a whole image has one.
    pub labels: [usize; 3],
    /// Outputs of the network, where targets are soft: shares of classes, several labels or thresholds; else 0.
    pub soft: usize,
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Samples.
    pub batch_size: usize,
    /// The shape of each sample.
    pub sample: SampleShape,
}

/// The product of some extents; saturates at `usize::MAX`, for which no buffer can be allocated.
fn product(extents: &[usize]) -> usize {
    extents.iter().fold(1, |product: usize, size| product.saturating_mul(*size))
}

impl SampleShape {
    /// A patch with a label for each voxel.
    pub fn patch(channels: usize, patch: [usize; 3]) -> SampleShape {
        SampleShape { channels, patch, labels: patch, soft: 0 }
    }

    /// Values of all channels.
    pub(crate) fn values(&self) -> usize {
        product(&self.patch).saturating_mul(self.channels)
    }

    /// Labels.
    pub(crate) fn label_count(&self) -> usize {
        product(&self.labels)
    }
}

/// Images and labels of a batch.
#[derive(Debug)]
pub struct BatchBuffer {
    shape: BatchShape,
    pub(crate) images: Mapped<f32>,
    pub(crate) labels: Mapped<u8>,
    pub(crate) shifts: Mapped<f32>,
    /// In the order of [`Targets::maps`].
    pub(crate) targets: Vec<Mapped<f32>>,
    pub(crate) cases: Vec<usize>,
}

impl BatchBuffer {
    /// The bytes that the buffers reserve.
    pub(crate) fn bytes(shape: BatchShape, mode: Mode, targets: &Targets) -> Result<Bytes, LoaderError> {
        let patches = Mapped::<f32>::bytes(shape.sample.values().saturating_mul(shape.batch_size))?
            + Mapped::<u8>::bytes(shape.sample.label_count().saturating_mul(shape.batch_size))?
            + Mapped::<f32>::bytes(shape.sample.soft.saturating_mul(shape.batch_size))?;
        Ok(patches + targets.bytes(mode, shape.batch_size)?)
    }

    pub(crate) fn new(
        shape: BatchShape,
        mode: Mode,
        targets: &Targets,
        budget: &Budget,
    ) -> Result<BatchBuffer, LoaderError> {
        Ok(BatchBuffer {
            shape,
            images: Mapped::zeroed(
                budget,
                "batches",
                shape.sample.values().saturating_mul(shape.batch_size),
            )?,
            labels: Mapped::zeroed(
                budget,
                "batches",
                shape.sample.label_count().saturating_mul(shape.batch_size),
            )?,
            shifts: Mapped::zeroed(budget, "batches", shape.sample.soft.saturating_mul(shape.batch_size))?,
            targets: targets.buffers(mode, shape.batch_size, budget)?,
            cases: vec![0; shape.batch_size],
        })
    }

    /// The shape.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Normalised intensities, `[sample][channel][depth][height][width]`.
    pub fn images(&self) -> &[f32] {
        &self.images
    }

    /// Labels, `[sample][depth][height][width]` of [`SampleShape::labels`].
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The target of the label minus the soft target, `[sample][output]` of [`SampleShape::soft`].
    pub fn shifts(&self) -> &[f32] {
        &self.shifts
    }

    /// A target map, by its index in [`Targets::maps`]: `[sample][foreground class][depth][height][width]`. Its contents
    /// are stale unless the step needs the map.
    pub fn target(&self, map: usize) -> &[f32] {
        self.targets.get(map).map_or(&[], |values| values)
    }

    /// The case of each sample, by its index in the data set's list.
    pub fn cases(&self) -> &[usize] {
        &self.cases
    }
}
