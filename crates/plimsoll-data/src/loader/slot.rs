//! The buffers of a batch.

use plimsoll_memory::{Budget, Bytes, Mapped};

use crate::Mode;
use crate::loader::{LoaderError, Targets};

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Patches.
    pub batch_size: usize,
    /// Channels of each.
    pub channels: usize,
    /// Voxels of each along (depth, height, width).
    pub patch: [usize; 3],
}

impl BatchShape {
    /// Voxels of a patch; saturates at `usize::MAX`, for which no buffer can be allocated.
    pub(crate) fn voxels(&self) -> usize {
        self.patch.iter().fold(1, |product: usize, size| product.saturating_mul(*size))
    }

    fn labels(&self) -> usize {
        self.voxels().saturating_mul(self.batch_size)
    }

    fn values(&self) -> usize {
        self.labels().saturating_mul(self.channels)
    }
}

/// Images and labels of a batch.
#[derive(Debug)]
pub struct BatchBuffer {
    shape: BatchShape,
    pub(crate) images: Mapped<f32>,
    pub(crate) labels: Mapped<u8>,
    /// In the order of [`Targets::maps`].
    pub(crate) targets: Vec<Mapped<f32>>,
    pub(crate) cases: Vec<usize>,
}

impl BatchBuffer {
    /// The bytes that the buffers reserve.
    pub(crate) fn bytes(shape: BatchShape, mode: Mode, targets: &Targets) -> Result<Bytes, LoaderError> {
        let patches = Mapped::<f32>::bytes(shape.values())? + Mapped::<u8>::bytes(shape.labels())?;
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
            images: Mapped::zeroed(budget, "batches", shape.values())?,
            labels: Mapped::zeroed(budget, "batches", shape.labels())?,
            targets: targets.buffers(mode, shape.batch_size, budget)?,
            cases: vec![0; shape.batch_size],
        })
    }

    /// The shape.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Normalised intensities, `[patch][channel][depth][height][width]`.
    pub fn images(&self) -> &[f32] {
        &self.images
    }

    /// Labels, `[patch][depth][height][width]`.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// A target map, by its index in [`Targets::maps`]: `[patch][foreground class][depth][height][width]`. Its contents
    /// are stale unless the step needs the map.
    pub fn target(&self, map: usize) -> &[f32] {
        self.targets.get(map).map_or(&[], |values| values)
    }

    /// The case of each patch, by its index in the fingerprint's list.
    pub fn cases(&self) -> &[usize] {
        &self.cases
    }
}
