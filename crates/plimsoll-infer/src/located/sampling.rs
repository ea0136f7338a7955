//! The nearest voxels of a box of an image, on a grid of any extent.

use plimsoll_data::ChannelFile;
use plimsoll_memory::Budget;
use plimsoll_volume::{Geometry, Reorientation, VolumeError, VolumeFile, VoxelBox};

/// The nearest of `input` voxels to a voxel of a grid of `output` over the same length, computed in f32 as `nearest-exact` of
/// `torch.nn.functional.interpolate` does.
pub(super) fn nearest(at: usize, input: usize, output: usize) -> usize {
    let scale = input as f32 / output as f32;
    (((at as f32 + 0.5) * scale).floor() as usize).min(input.saturating_sub(1))
}

/// The axes of a network, from left to right, from back to front and from bottom to top, and the axes of a stored image.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkAxes {
    /// The stored axis of each.
    stored: [usize; 3],
    /// `true` where the two run in opposite directions.
    flip: [bool; 3],
    /// The extent of the image along each.
    shape: [usize; 3],
}

impl NetworkAxes {
    pub(super) fn new(geometry: &Geometry) -> NetworkAxes {
        let (canonical, turned): (Geometry, Reorientation) = geometry.canonical();
        let reversed = |[d, h, w]: [usize; 3]| [w, h, d];
        let [d, h, w] = turned.flip();
        NetworkAxes {
            stored: reversed(turned.source_axis()),
            flip: [w, h, d],
            shape: reversed(canonical.shape()),
        }
    }

    /// The extent of the image along the axes of the network.
    pub(super) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The stored box of a box along the axes of the network.
    pub(super) fn stored_box(&self, within: &VoxelBox) -> VoxelBox {
        let mut found = *within;
        for axis in 0..3 {
            let (start, shape) = (within.start[axis], within.shape[axis]);
            let start = if self.flip[axis] { self.shape[axis] - start - shape } else { start };
            (found.start[self.stored[axis]], found.shape[self.stored[axis]]) = (start, shape);
        }
        found
    }

    /// The axis of the network that is a stored axis.
    fn of_stored(&self, stored: usize) -> usize {
        self.stored.iter().position(|axis| *axis == stored).unwrap_or(stored)
    }

    /// The stored index of each voxel of a grid of `extent` over a box, along an axis of the network.
    fn stored_indices(&self, within: &VoxelBox, extent: usize, axis: usize) -> Vec<usize> {
        let (start, length) = (within.start[axis], within.shape[axis]);
        let index = |at: usize| {
            let at = start + nearest(at, length, extent);
            if self.flip[axis] { self.shape[axis] - 1 - at } else { at }
        };
        (0..extent).map(index).collect()
    }

    /// The voxel of a grid of `extent` over a box that each stored voxel of the box is nearest to, along a stored axis.
    pub(super) fn grid_indices(&self, within: &VoxelBox, extent: [usize; 3], stored: usize) -> Vec<usize> {
        let axis = self.of_stored(stored);
        let length = within.shape[axis];
        let index = |at: usize| {
            let at = if self.flip[axis] { length - 1 - at } else { at };
            nearest(at, extent[axis], length)
        };
        (0..length).map(index).collect()
    }

    /// The distance in a grid of an extent, along the axes of the network with the last one fastest, between neighbours along a stored axis.
    pub(super) fn step(&self, extent: [usize; 3], stored: usize) -> usize {
        match self.of_stored(stored) {
            0 => extent[1] * extent[2],
            1 => extent[2],
            _ => 1,
        }
    }
}

/// An image that is sampled.
pub(super) struct Sampler<'a> {
    pub(super) channel: &'a ChannelFile,
    pub(super) axes: NetworkAxes,
    /// The memory of a plane and of decoding.
    pub(super) budget: &'a Budget,
}

impl Sampler<'_> {
    /// Fills a grid with the nearest voxels of a box. `plane` has room for a stored plane. What is no number becomes 0, and what is infinite the
    /// largest number.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or there is no room to decode it.
    pub(super) fn fill(
        &self,
        within: &VoxelBox,
        extent: [usize; 3],
        plane: &mut [f32],
        grid: &mut [f32],
    ) -> Result<(), VolumeError> {
        let mut file = VolumeFile::open(&self.channel.path)?;
        file.decode(self.budget)?;
        let width = file.geometry().shape()[2];
        let indices = |stored: usize| {
            let axis = self.axes.of_stored(stored);
            self.axes.stored_indices(within, extent[axis], axis)
        };
        let [planes, rows, columns] = [0, 1, 2].map(indices);
        let [deep, high, wide] = [0, 1, 2].map(|stored| self.axes.step(extent, stored));
        file.for_each_plane_f32::<VolumeError>(self.channel.index, self.budget, plane, |depth, plane| {
            for (at, _) in planes.iter().enumerate().filter(|(_, stored)| **stored == depth) {
                for (row, stored) in rows.iter().enumerate() {
                    let from = &plane[stored * width..][..width];
                    let first = at * deep + row * high;
                    for (column, stored) in columns.iter().enumerate() {
                        grid[first + column * wide] = finite(from[*stored]);
                    }
                }
            }
            Ok(())
        })
    }
}

/// `torch.nan_to_num`.
fn finite(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(f32::MIN, f32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::Affine;

    /// `F.interpolate(torch.arange(n)[None, None].float(), m, mode="nearest-exact")` of PyTorch 2.15.
    #[test]
    fn nearest_voxels_are_those_of_pytorch() {
        let all = |input, output| (0..output).map(|at| nearest(at, input, output)).collect::<Vec<_>>();
        assert_eq!(all(5, 8), [0, 0, 1, 2, 2, 3, 4, 4]);
        assert_eq!(all(8, 5), [0, 2, 4, 5, 7]);
        assert_eq!(all(1, 3), [0, 0, 0]);
    }

    #[test]
    fn boxes_are_stored_where_images_run_backwards() {
        // Stored from front to back, from bottom to top, from right to left.
        let affine = Affine([[0.0, 0.0, -1.0, 9.0], [-1.0, 0.0, 0.0, 9.0], [0.0, 1.0, 0.0, 0.0]]);
        let axes = NetworkAxes::new(&Geometry::new([4, 5, 6], affine).unwrap());
        assert_eq!((axes.shape(), axes.stored, axes.flip), ([6, 4, 5], [2, 0, 1], [true, true, false]));
        let within = VoxelBox { start: [1, 0, 2], shape: [2, 3, 3] };
        assert_eq!(axes.stored_box(&within), VoxelBox { start: [1, 2, 3], shape: [3, 3, 2] });
        assert_eq!(axes.grid_indices(&within, [4, 6, 3], 2), [3, 1]);
        assert_eq!([0, 1, 2].map(|stored| axes.step([4, 6, 3], stored)), [3, 1, 18]);
    }
}
