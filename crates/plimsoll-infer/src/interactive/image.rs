//! The image as the network sees it.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

use crate::interactive::error::InteractiveError;

/// An image whose intensities have a mean of 0 and a standard deviation of 1 over the box around its voxels that are not zero.
pub(crate) struct NormalisedImage {
    shape: [usize; 3],
    voxels: Mapped<f32>,
}

impl NormalisedImage {
    /// The bytes of an image.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(shape: [usize; 3]) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(shape.iter().fold(1, |count, extent| count.saturating_mul(*extent)))
    }

    /// Reads an image `[depth][height][width]` and normalises it.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, the image cannot be read, or its intensities cannot be normalised.
    pub(crate) fn read(
        shape: [usize; 3],
        read: &mut dyn FnMut(&mut [f32]) -> Result<(), InteractiveError>,
        budget: &Budget,
    ) -> Result<NormalisedImage, InteractiveError> {
        let count = shape.iter().product();
        let mut image = NormalisedImage { shape, voxels: Mapped::zeroed(budget, "image", count)? };
        read(&mut image.voxels)?;
        image.normalise()?;
        Ok(image)
    }

    /// Depth, height, width.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn normalise(&mut self) -> Result<(), InteractiveError> {
        let [_, height, width] = self.shape;
        if let Some(place) = self.voxels.iter().position(|value| !value.is_finite()) {
            let voxel = [place / (height * width), place / width % height, place % width];
            return Err(InteractiveError::ImageNotFinite { voxel });
        }
        let within = self.nonzero().ok_or(InteractiveError::EmptyImage)?;
        let count = within.shape.iter().product::<usize>() as f64;
        let mean = self.sum(within, |value| value) / count;
        // As PyTorch does, of a sample: divided by one less.
        let deviation = (self.sum(within, |value| (value - mean).powi(2)) / (count - 1.0)).sqrt() as f32;
        if !(deviation.is_finite() && deviation > 0.0) {
            return Err(InteractiveError::ConstantImage);
        }
        let mean = mean as f32;
        self.voxels.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
        Ok(())
    }

    /// The box around all voxels that are not zero.
    fn nonzero(&self) -> Option<VoxelBox> {
        let [_, height, width] = self.shape;
        let (mut first, mut end) = (self.shape, [0; 3]);
        for (number, row) in self.voxels.chunks_exact(width).enumerate() {
            let Some(from) = row.iter().position(|value| *value != 0.0) else { continue };
            let to = row.iter().rposition(|value| *value != 0.0).map_or(from, |last| last + 1);
            let (depth, height) = (number / height, number % height);
            first = [first[0].min(depth), first[1].min(height), first[2].min(from)];
            end = [end[0].max(depth + 1), end[1].max(height + 1), end[2].max(to)];
        }
        (end[0] > 0).then(|| VoxelBox::between(first, end))
    }

    /// A sum over a box, row by row.
    fn sum(&self, within: VoxelBox, of: impl Fn(f64) -> f64) -> f64 {
        let VoxelBox { start, shape } = within;
        let row = |depth: usize, height: usize| {
            let first = (depth * self.shape[1] + height) * self.shape[2] + start[2];
            self.voxels[first..first + shape[2]].iter().map(|value| of(f64::from(*value))).sum::<f64>()
        };
        let rows = (start[0]..start[0] + shape[0])
            .flat_map(|depth| (start[1]..start[1] + shape[1]).map(move |height| (depth, height)));
        rows.map(|(depth, height)| row(depth, height)).sum()
    }

    /// A voxel; 0 outside of the image.
    pub(crate) fn get(&self, at: [i64; 3]) -> f32 {
        let inside = |axis: usize| usize::try_from(at[axis]).ok().filter(|at| *at < self.shape[axis]);
        match (inside(0), inside(1), inside(2)) {
            (Some(depth), Some(height), Some(width)) => {
                self.voxels[(depth * self.shape[1] + height) * self.shape[2] + width]
            }
            _ => 0.0,
        }
    }

    /// Copies a row that begins with the voxel `at`, with 0 outside of the image.
    pub(crate) fn row(&self, at: [i64; 3], row: &mut [f32]) {
        row.fill(0.0);
        let inside = |axis: usize| usize::try_from(at[axis]).ok().filter(|at| *at < self.shape[axis]);
        let (Some(depth), Some(height)) = (inside(0), inside(1)) else { return };
        let voxels = &self.voxels[(depth * self.shape[1] + height) * self.shape[2]..][..self.shape[2]];
        let (to, from) = (usize::try_from(-at[2]).unwrap_or(0), usize::try_from(at[2]).unwrap_or(0));
        let to = row.iter_mut().skip(to);
        to.zip(voxels.iter().skip(from)).for_each(|(to, voxel)| *to = *voxel);
    }
}
