//! How tensors lie in the arena. All that decides it is here.
//!
//! Volumes are channels last, `[N, D, H, W, C]`: threads side by side have channels side by side, the channels of a voxel are one
//! stretch for the sums of convolutions, and few channels (images, logits) need no padding. Weights are `[kd, kh, kw, I, O]`: the
//! outputs of one input and tap side by side. Everything else lies in its logical order. There are no gaps.

use plimsoll_graph::{Kind, TensorInfo};

/// The order of the axes of a kind in memory, slowest first.
fn axes(kind: Kind) -> [usize; 5] {
    match kind {
        Kind::Volume => [0, 2, 3, 4, 1],
        Kind::Weights => [2, 3, 4, 1, 0],
        Kind::Labels | Kind::Channels | Kind::Statistics | Kind::Table => [0, 1, 2, 3, 4],
    }
}

/// Bytes of a tensor.
pub(crate) fn bytes(tensor: &TensorInfo) -> usize {
    tensor.shape.count().saturating_mul(tensor.dtype.bytes())
}

/// The places in the logical order of a tensor's elements, in the order in which they are stored.
pub(crate) struct Places {
    /// Of the stored axes.
    extents: [usize; 5],
    /// What a step along a stored axis is in the logical order.
    strides: [usize; 5],
    at: [usize; 5],
    place: usize,
    remaining: usize,
}

impl Places {
    pub(crate) fn of(tensor: &TensorInfo) -> Places {
        let count = tensor.shape.count();
        let axes = axes(tensor.kind);
        let (extents, strides) = match tensor.kind {
            Kind::Volume | Kind::Weights => {
                let extent = |axis: usize| tensor.shape.dim(axis);
                (axes.map(extent), axes.map(|axis| (axis + 1..5).map(extent).product()))
            }
            // Of any number of axes, in their order.
            _ => ([1, 1, 1, 1, count], [0, 0, 0, 0, 1]),
        };
        Places { extents, strides, at: [0; 5], place: 0, remaining: count }
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.remaining = self.remaining.checked_sub(1)?;
        let place = self.place;
        for axis in (0..5).rev() {
            self.at[axis] += 1;
            self.place += self.strides[axis];
            if self.at[axis] < self.extents[axis] {
                break;
            }
            self.place -= self.strides[axis] * self.extents[axis];
            self.at[axis] = 0;
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::{DType, Role, Shape};

    use super::*;

    fn places(kind: Kind, shape: &[usize]) -> Vec<usize> {
        let info = TensorInfo {
            name: "tensor".into(),
            shape: Shape(shape.to_vec()),
            dtype: DType::F32,
            role: Role::Input,
            kind,
        };
        Places::of(&info).collect()
    }

    #[test]
    fn channels_come_last_in_volumes_and_outputs_in_weights() {
        assert_eq!(places(Kind::Volume, &[1, 2, 1, 1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(places(Kind::Volume, &[2, 2, 1, 2, 1]), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(places(Kind::Weights, &[2, 3, 1, 1, 1]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(places(Kind::Weights, &[2, 1, 1, 1, 2]), [0, 2, 1, 3]);
        assert_eq!(places(Kind::Table, &[2, 3]), [0, 1, 2, 3, 4, 5]);
    }
}
