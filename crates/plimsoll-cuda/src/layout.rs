//! The layout of tensors in the arena. All decisions about it are made here.
//!
//! Volumes are channels last, `[N, D, H, W, C]`: adjacent threads read adjacent channels, the channels of a voxel are
//! one stretch for the sums of convolutions, and few channels (images, logits) need no padding. Weights are `[kd, kh,
//! kw, I, O]`: the outputs of one input and tap are adjacent. All other tensors are stored in their logical order.
//! There are no gaps.

use std::ops::Range;

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

/// Elements that are stored one after the other, by their places in the logical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The position of the first.
    pub(crate) place: usize,
    /// From one to the next.
    pub(crate) stride: usize,
    /// The number of elements.
    pub(crate) count: usize,
}

/// The stored axes of a tensor, slowest first: extents, and what a step along each is in the logical order. Axes that can be walked as one
/// are one, so that a tensor which is stored in its logical order has a single axis, the last.
struct StoredAxes {
    axes: [(usize, usize); 5],
    /// The number of axes, from the first on.
    count: usize,
}

impl StoredAxes {
    fn new(tensor: &TensorInfo) -> StoredAxes {
        let mut merged = StoredAxes { axes: [(1, 1); 5], count: 1 };
        if !matches!(tensor.kind, Kind::Volume | Kind::Weights) {
            merged.axes[0] = (tensor.shape.count(), 1);
            return merged;
        }
        let extent = |axis: usize| tensor.shape.dim(axis);
        for axis in axes(tensor.kind).into_iter().filter(|axis| extent(*axis) != 1) {
            let (extent, stride) = (extent(axis), (axis + 1..5).map(extent).product::<usize>());
            let slower = &mut merged.axes[merged.count - 1];
            if slower.0 == 1 || slower.1 == stride * extent {
                *slower = (slower.0 * extent, stride);
            } else {
                merged.axes[merged.count] = (extent, stride);
                merged.count += 1;
            }
        }
        merged
    }
}

/// Returns the runs of a stretch of a tensor's elements, in the order in which they are stored.
pub(crate) fn runs(tensor: &TensorInfo, stored: Range<usize>) -> impl Iterator<Item = Run> + use<> {
    let StoredAxes { axes, count } = StoredAxes::new(tensor);
    let (extent, stride) = axes[count - 1];
    let mut at = stored.start;
    std::iter::from_fn(move || {
        let left = stored.end.checked_sub(at).filter(|left| *left > 0)?;
        let inner = at % extent;
        let (mut rest, mut place) = (at / extent, inner * stride);
        for (extent, stride) in axes[..count - 1].iter().rev() {
            place += rest % extent * stride;
            rest /= extent;
        }
        let count = left.min(extent - inner);
        at += count;
        Some(Run { place, stride, count })
    })
}

/// Returns the stored stretch of a tensor that contains `count` elements from `first` on in the logical order: it has
/// no others if they are of one channel of a sample or stored in their logical order.
pub(crate) fn stored_span(tensor: &TensorInfo, first: usize, count: usize) -> Range<usize> {
    let all = tensor.shape.count();
    let end = first.saturating_add(count).min(all);
    if first >= end {
        return 0..0;
    }
    match StoredAxes::new(tensor).count {
        1 => first..end,
        _ if tensor.kind == Kind::Volume => {
            let channels = tensor.shape.dim(1);
            let voxels: usize = (2..5).map(|axis| tensor.shape.dim(axis)).product();
            // Of the first and the last: the channel, counted over all samples.
            let [from, to] = [first / voxels, (end - 1) / voxels];
            if from == to {
                let at =
                    |place: usize| (from / channels * voxels + place % voxels) * channels + from % channels;
                return at(first)..at(end - 1) + 1;
            }
            let sample = channels * voxels;
            from / channels * sample..(to / channels + 1) * sample
        }
        _ => 0..all,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::{DType, Role, Shape};

    use super::*;

    fn tensor(kind: Kind, shape: &[usize]) -> TensorInfo {
        let (shape, role) = (Shape(shape.to_vec()), Role::Input);
        TensorInfo { name: "tensor".into(), shape, dtype: DType::F32, role, kind }
    }

    fn places_of(info: &TensorInfo, stored: Range<usize>) -> Vec<usize> {
        runs(info, stored).flat_map(|run| (run.place..).step_by(run.stride).take(run.count)).collect()
    }

    fn places(kind: Kind, shape: &[usize]) -> Vec<usize> {
        let info = tensor(kind, shape);
        places_of(&info, 0..info.shape.count())
    }

    #[test]
    fn channels_come_last_in_volumes_and_outputs_in_weights() {
        assert_eq!(places(Kind::Volume, &[1, 2, 1, 1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(places(Kind::Volume, &[2, 2, 1, 2, 1]), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(places(Kind::Weights, &[2, 3, 1, 1, 1]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(places(Kind::Weights, &[2, 1, 1, 1, 2]), [0, 2, 1, 3]);
        assert_eq!(places(Kind::Table, &[2, 3]), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_stored_as_it_is_counted_is_one_run() {
        for (kind, shape) in [
            (Kind::Volume, &[2usize, 1, 4, 5, 6][..]),
            (Kind::Volume, &[3, 7, 1, 1, 1]),
            (Kind::Labels, &[2, 1, 4, 5, 6]),
            (Kind::Volume, &[1; 5]),
        ] {
            let info = tensor(kind, shape);
            let count = info.shape.count();
            let all = Run { place: 0, stride: 1, count };
            assert_eq!(runs(&info, 0..count).collect::<Vec<_>>(), [all], "{kind:?} {shape:?}");
        }
    }

    /// By brute force over all stretches of some shapes.
    #[test]
    fn every_stretch_is_within_its_span_and_pieces_are_parts_of_the_whole() {
        for (kind, shape) in [
            (Kind::Volume, &[2usize, 3, 2, 1, 4][..]),
            (Kind::Volume, &[2, 1, 2, 3, 1]),
            (Kind::Weights, &[2, 3, 1, 2, 1]),
            (Kind::Table, &[3, 4]),
        ] {
            let info = tensor(kind, shape);
            let all = info.shape.count();
            let stored = places_of(&info, 0..all);
            for first in 0..all {
                for end in first..=all {
                    assert_eq!(places_of(&info, first..end), stored[first..end]);
                    let span = stored_span(&info, first, end - first);
                    let found = &stored[span.clone()];
                    assert!((first..end).all(|place| found.contains(&place)), "{kind:?} {first}..{end}");
                    let is_row = kind == Kind::Volume && first / 8 == (end.max(1) - 1) / 8 && shape[1] == 3;
                    let voxels = end - first;
                    assert!(!is_row || voxels == 0 || span.len() == (voxels - 1) * 3 + 1);
                }
            }
        }
    }
}
