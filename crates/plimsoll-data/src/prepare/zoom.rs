//! Windows of zoomed images.

use plimsoll_volume::VoxelBox;

use crate::patch::zoom::{Tap, Zoom};
use crate::prepare::PrepareError;
use crate::prepare::window::{Part, ReadRegion};

impl Zoom {
    /// Fills a part of a window `[d][h][w]` of shape `window` with zoomed voxels; `read` fills a region of the stored image. What does
    /// not fit the memory is divided.
    ///
    /// # Errors
    /// If `read` fails, or the memory is too small for one voxel.
    pub(crate) fn pull(
        &self,
        part: Part,
        out: &mut [f32],
        window: [usize; 3],
        memory: &mut [f32],
        read: &mut ReadRegion<'_>,
    ) -> Result<(), PrepareError> {
        let spans =
            [0, 1, 2].map(|axis| self.axes[axis].span(part.of_grid.start[axis], part.of_grid.shape[axis]));
        let mut region = VoxelBox::whole([0; 3]);
        for (axis, stored) in self.reorientation().source_axis().into_iter().enumerate() {
            let [first, end] = spans[axis];
            let from = if self.reorientation().flip()[axis] { self.axes[axis].from - end } else { first };
            region.start[stored] = self.covered().start[stored] + from;
            region.shape[stored] = end - first;
        }
        let needed = region.voxel_count();
        let Some(values) = needed.and_then(|needed| memory.get_mut(..needed)) else {
            // The smallest part has eight source voxels.
            let Some(halves) = part.halves() else {
                return Err(PrepareError::Zoom { room: memory.len() });
            };
            return halves.into_iter().try_for_each(|half| self.pull(half, &mut *out, window, memory, read));
        };
        read(region, values)?;
        let [_, rows, columns] = region.shape;
        let strides = [rows * columns, columns, 1];
        let taps = [0, 1, 2].map(|axis| {
            let stride = strides[self.reorientation().source_axis()[axis]];
            let [first, end] = spans[axis];
            let offset = |voxel: usize| {
                let place = if self.reorientation().flip()[axis] { end - 1 - voxel } else { voxel - first };
                place * stride
            };
            let start = part.of_grid.start[axis];
            let tap = |zoomed: usize| {
                let tap = self.axes[axis].tap(start + zoomed);
                Tap { voxels: tap.voxels.map(offset), ..tap }
            };
            (0..part.of_grid.shape[axis]).map(tap).collect::<Vec<Tap>>()
        });
        let [d, h, w] = part.in_window;
        for (plane, of_plane) in taps[0].iter().enumerate() {
            for (row, of_row) in taps[1].iter().enumerate() {
                let line = &mut out[((d + plane) * window[1] + h + row) * window[2] + w..][..taps[2].len()];
                for (value, of_column) in line.iter_mut().zip(&taps[2]) {
                    let zoomed = zoomed(values, [of_plane, of_row, of_column]);
                    *value = if self.is_cut { zoomed.trunc() as f32 } else { zoomed as f32 };
                }
            }
        }
        Ok(())
    }
}

/// The sum over eight voxels in the order of SciPy's, whose first axis is that from left to right: in another order, what is whole in
/// one might be a little less in the other, which cutting makes a difference of one.
fn zoomed(values: &[f32], [plane, row, column]: [&Tap; 3]) -> f64 {
    let mut sum = 0.0;
    for x in 0..2 {
        for y in 0..2 {
            for z in 0..2 {
                let value = f64::from(values[column.voxels[x] + row.voxels[y] + plane.voxels[z]]);
                sum += value * column.weights[x] * row.weights[y] * plane.weights[z];
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use plimsoll_volume::{Reorientation, Spacing};

    use super::*;

    #[derive(serde::Deserialize)]
    struct Zoomed {
        shape: [usize; 3],
        spacing: [f64; 3],
        target: [f64; 3],
        image: Vec<f32>,
        zoomed_shape: [usize; 3],
        zoomed: Vec<f32>,
        back: Vec<f32>,
    }

    /// The numbers of `oracles/zoom.py`.
    fn zoomed_by_scipy() -> Vec<Zoomed> {
        serde_json::from_str(include_str!("../../../../oracles/zoom.json")).unwrap()
    }

    #[test]
    fn zoomed_images_are_those_of_scipy_bit_for_bit_in_whatever_pieces_they_are_pulled() {
        for case in zoomed_by_scipy() {
            let whole = VoxelBox::whole(case.shape);
            let zoom = Zoom::new(whole, Reorientation::IDENTITY, Spacing(case.spacing), Spacing(case.target));
            assert_eq!(zoom.shape(), case.zoomed_shape);
            let [_, height, width] = case.shape;
            let mut read = |region: VoxelBox, values: &mut [f32]| {
                let mut values = values.iter_mut();
                for d in 0..region.shape[0] {
                    for h in 0..region.shape[1] {
                        for w in 0..region.shape[2] {
                            let [z, y, x] = [d + region.start[0], h + region.start[1], w + region.start[2]];
                            *values.next().unwrap() = case.image[(z * height + y) * width + x];
                        }
                    }
                }
                Ok(())
            };
            for room in [8, 100, 100_000] {
                let mut out = vec![0.0; case.zoomed.len()];
                let part = Part { of_grid: VoxelBox::whole(zoom.shape()), in_window: [0; 3] };
                zoom.pull(part, &mut out, zoom.shape(), &mut vec![0.0; room], &mut read).unwrap();
                assert_eq!(out, case.zoomed);
            }
            let part = Part { of_grid: VoxelBox::whole(zoom.shape()), in_window: [0; 3] };
            let too_small =
                zoom.pull(part, &mut vec![0.0; case.zoomed.len()], zoom.shape(), &mut [0.0; 7], &mut read);
            assert!(matches!(too_small, Err(PrepareError::Zoom { room: 7 })));
        }
    }

    #[test]
    fn labels_go_back_as_in_scipy() {
        for case in zoomed_by_scipy() {
            let zoom = Zoom::new(
                VoxelBox::whole(case.shape),
                Reorientation::IDENTITY,
                Spacing(case.spacing),
                Spacing(case.target),
            );
            let [_, zoomed_height, zoomed_width] = zoom.shape();
            let [_, height, width] = case.shape;
            for (index, expected) in case.back.iter().enumerate() {
                let voxel = [index / (height * width), index / width % height, index % width];
                let [d, h, w] = [0, 1, 2].map(|axis| zoom.axes[axis].nearest(voxel[axis]));
                let label = case.zoomed[(d * zoomed_height + h) * zoomed_width + w].rem_euclid(117.0);
                assert_eq!(label, *expected, "{voxel:?}");
            }
        }
    }
}
