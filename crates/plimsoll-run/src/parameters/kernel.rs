//! Weights of a convolution that are adapted to a shorter kernel, or to more image channels.

use std::path::Path;

use plimsoll_graph::Shape;
use plimsoll_nn::weights::{WeightError, WeightFile};

/// Weights of a convolution `[O, I, D, H, W]` for a kernel that is shorter along some axes, or for more image channels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdaptedKernel {
    /// The shape in the file.
    pub(super) stored: Shape,
    /// The number of channels that the weights of one are repeated over, divided by it; 1 if they are not.
    pub(super) repeated: usize,
    /// The kernel of the parameter: along each axis as in the file, or one voxel.
    pub(super) kernel: [usize; 3],
}

/// The kernel of weights `[O, I, D, H, W]`; `None` for tensors with fewer axes.
pub(super) fn kernel_of(shape: &Shape) -> Option<[usize; 3]> {
    match shape.0[..] {
        [_, _, depth, height, width] => Some([depth, height, width]),
        _ => None,
    }
}

impl AdaptedKernel {
    /// The shape of the parameter.
    pub(super) fn target(&self) -> Shape {
        let [depth, height, width] = self.kernel;
        Shape(vec![self.stored.dim(0), self.stored.dim(1) * self.repeated, depth, height, width])
    }

    /// Reads the weights, one kernel after the other: first divided for the channels, then as means over one axis after the other. nnU-Net
    /// computes in this order, so that roundings agree.
    pub(super) fn read(
        &self,
        file: &mut WeightFile,
        path: &Path,
        name: &str,
        values: &mut [f32],
    ) -> Result<(), WeightError> {
        let from = self.stored.spatial();
        let count = from.iter().product::<usize>();
        let mut kernel = Vec::with_capacity(count);
        let (mut next, mut is_in_order) = (0, true);
        // The kernels of the channels of an output follow each other.
        let mut places = values.chunks_exact_mut(self.kernel.iter().product::<usize>().max(1));
        file.each_run(name, &self.stored, &mut |first, run| {
            is_in_order &= first == next;
            next = first + run.len();
            for weight in run {
                kernel.push(weight / self.repeated as f32);
                if kernel.len() == count {
                    shorten(&mut kernel, from, self.kernel);
                    for place in places.by_ref().take(self.repeated) {
                        place.copy_from_slice(&kernel);
                    }
                    kernel.clear();
                }
            }
        })?;
        match is_in_order {
            true => Ok(()),
            false => Err(WeightError::Format {
                path: path.into(),
                why: format!("`{name}` is not contiguous; save its `contiguous()` copy"),
            }),
        }
    }
}

/// Replaces a kernel by its means over the axes along which the other one has one voxel, the first axis first.
fn shorten(kernel: &mut Vec<f32>, from: [usize; 3], to: [usize; 3]) {
    let mut extents = from;
    for axis in 0..3 {
        if extents[axis] == to[axis] {
            continue;
        }
        let (along, inner) = (extents[axis], extents[axis + 1..].iter().product::<usize>());
        let outer = kernel.len() / (along * inner);
        for place in 0..outer * inner {
            let first = place / inner * along * inner + place % inner;
            let sum = (0..along).fold(0.0, |sum, step| sum + kernel[first + step * inner]);
            // Means come before all weights that are still to be read.
            kernel[place] = sum / along as f32;
        }
        kernel.truncate(outer * inner);
        extents[axis] = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_shortened_by_means_over_axes() {
        let kernel: Vec<f32> = (0..27).map(|place| place as f32).collect();
        for (to, expected) in [
            ([1, 3, 3], (9..18).map(|place| place as f32).collect::<Vec<_>>()),
            ([3, 1, 3], vec![3.0, 4.0, 5.0, 12.0, 13.0, 14.0, 21.0, 22.0, 23.0]),
            ([3, 3, 1], (0..9).map(|row| (3 * row + 1) as f32).collect()),
            ([3, 1, 1], vec![4.0, 13.0, 22.0]),
            ([1, 1, 1], vec![13.0]),
        ] {
            let mut shortened = kernel.clone();
            shorten(&mut shortened, [3; 3], to);
            assert_eq!(shortened, expected, "{to:?}");
        }
    }
}
