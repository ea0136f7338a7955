//! The places of windows, and the weights of their voxels.

use std::borrow::Cow;
use std::ops::Range;

use plimsoll_models::WindowLayout;

use crate::options::WindowWeights;

/// The starts of windows along one axis, computed when they are asked for: a hostile header can make them more than memory
/// holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starts {
    count: usize,
    /// Voxels between two windows.
    stride: f64,
    /// The start of the last window.
    last: usize,
}

impl Starts {
    /// Places windows over an axis of `image` voxels, which is at least as long as a window: evenly, at most the share `step` of a
    /// window apart, but at least a voxel, the last one ending with the image. This is nnU-Net's
    /// `compute_steps_for_sliding_window`.
    pub fn new(image: usize, window: usize, step: f64) -> Starts {
        let room = image.saturating_sub(window);
        // Windows less than a voxel apart would stand in the same place.
        let step = (window as f64 * step).max(1.0);
        // The cast saturates, and so does the sum.
        let count = ((room as f64 / step).ceil() as usize).saturating_add(1);
        let stride = if count > 1 { room as f64 / (count - 1) as f64 } else { 0.0 };
        Starts { count, stride, last: room }
    }

    /// Places windows over an axis so that each overlaps a share of the one before, rounded down to whole voxels, with a distance of a voxel at
    /// least. The last one ends with the image, however near the one before is. This is MONAI's `dense_patch_slices`.
    pub fn fixed(image: usize, window: usize, overlap: f64) -> Starts {
        Starts::apart(image, window, ((window as f64 * (1.0 - overlap)) as usize).max(1))
    }

    /// Places windows over an axis so that those inside of their margins follow each other without a gap. The last one ends with the image.
    pub fn interior(image: usize, window: usize, margin: usize) -> Starts {
        Starts::apart(image, window, window.saturating_sub(2 * margin).max(1))
    }

    /// Places windows `stride` voxels apart, at least one.
    fn apart(image: usize, window: usize, stride: usize) -> Starts {
        let room = image.saturating_sub(window);
        Starts { count: room.div_ceil(stride).saturating_add(1), stride: stride as f64, last: room }
    }

    /// The number of windows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the start of the window of this number, which is below the count.
    pub fn at(&self, number: usize) -> usize {
        ((self.stride * number as f64).round_ties_even() as usize).min(self.last)
    }

    /// The numbers of the windows of an extent that have any of some voxels.
    pub(crate) fn touching(&self, voxels: &Range<usize>, window: usize) -> Range<usize> {
        if voxels.is_empty() {
            return 0..0;
        }
        // Starts follow each other, so the first ones end before these voxels, and the last ones begin behind them.
        let from = self.first(|start| start.saturating_add(window) > voxels.start);
        from..self.first(|start| start >= voxels.end).max(from)
    }

    /// The number of the first window at whose start something is so, if it is so from some window on; else the count.
    fn first(&self, is_so: impl Fn(usize) -> bool) -> usize {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            match is_so(self.at(middle)) {
                true => to = middle,
                false => from = middle + 1,
            }
        }
        from
    }

    /// All starts, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let starts = *self;
        (0..starts.count).map(move |number| starts.at(number))
    }
}

/// The weights of voxels along each axis of a window: a Gaussian around its middle with σ an eighth of its extent, as
/// nnU-Net's `compute_gaussian`. A voxel's weight is the product of three; none is zero.
pub fn gaussian(window: [usize; 3]) -> [Vec<f32>; 3] {
    window.map(|extent| {
        let (middle, sigma) = ((extent / 2) as f64, extent as f64 / 8.0);
        (0..extent).map(|i| (-0.5 * ((i as f64 - middle) / sigma).powi(2)).exp() as f32).collect()
    })
}

/// The weight of each voxel of a window: the product of the weights along each axis, but at least `least`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weights {
    pub(crate) along: [Vec<f32>; 3],
    pub(crate) least: f32,
    /// Voxels at each face inside of the image that do not count, where the weight is a product.
    pub(crate) margin: usize,
}

impl Weights {
    /// Returns `true` if the weight of a voxel is the product of those along each axis.
    pub(crate) fn is_product(&self) -> bool {
        self.least == 0.0
    }

    /// Returns the weight of a voxel of a window.
    #[inline(always)]
    pub(crate) fn at(&self, [d, h, w]: [usize; 3]) -> f32 {
        let [along, down, across] = &self.along;
        (along[d] * down[h] * across[w]).max(self.least)
    }

    /// Returns the weights of windows of an extent: the model's own, or else the requested ones.
    pub(crate) fn new(windows: WindowLayout, window: [usize; 3], asked: WindowWeights) -> Weights {
        match windows {
            WindowLayout::Even if asked == WindowWeights::Constant => Weights::constant(window),
            WindowLayout::Whole { .. } => Weights::constant(window),
            WindowLayout::Even => Weights { along: gaussian(window), least: 0.0, margin: 0 },
            WindowLayout::Fixed { sigma_scale: None, .. } => Weights::constant(window),
            WindowLayout::Fixed { sigma_scale: Some(share), .. } => Weights::symmetric(window, [share; 3]),
            WindowLayout::Interior { margin, .. } => Weights::interior(window, margin),
        }
    }

    /// One, but 0 in a margin at each face inside of the image.
    fn interior(window: [usize; 3], margin: usize) -> Weights {
        Weights { margin, ..Weights::constant(window) }
    }

    /// The weights along an axis of the window that begins at `start`, of windows over `extent` voxels. Those of a margin at the ends of the axis
    /// count, as no other window has them further inside.
    pub(crate) fn of_window(&self, axis: usize, start: usize, extent: usize) -> Cow<'_, [f32]> {
        let along = &self.along[axis];
        if self.margin == 0 {
            return along.into();
        }
        let mut own = along.clone();
        let (length, margin) = (own.len(), self.margin.min(own.len()));
        if start > 0 {
            own[..margin].fill(0.0);
        }
        if start + length < extent {
            own[length - margin..].fill(0.0);
        }
        own.into()
    }

    /// The same weight for all voxels.
    pub(crate) fn constant(window: [usize; 3]) -> Weights {
        Weights { along: window.map(|extent| vec![1.0; extent]), least: 0.0, margin: 0 }
    }

    /// A Gaussian around the middle, with σ as a share of the extent along each axis, as MONAI's `compute_importance_map`.
    pub(crate) fn symmetric(window: [usize; 3], scales: [f64; 3]) -> Weights {
        let along = [0, 1, 2].map(|axis| {
            let extent = window[axis];
            let (middle, sigma) =
                (extent.saturating_sub(1) as f32 / 2.0, (extent as f64 * scales[axis]) as f32);
            let weight = |i: usize| ((i as f32 - middle).powi(2) / (-2.0 * sigma * sigma)).exp();
            (0..extent).map(weight).collect()
        });
        Weights { along, least: LEAST_WEIGHT, margin: 0 }
    }
}

/// The value to which MONAI's `compute_importance_map` raises smaller weights of a Gaussian.
const LEAST_WEIGHT: f32 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_monai_stand_where_it_puts_them() {
        // monai.data.utils.dense_patch_slices((110, …), (64, …), (48, …)), of an overlap of 0.25.
        let fixed = |image, window, overlap| Starts::fixed(image, window, overlap).iter().collect::<Vec<_>>();
        assert_eq!(fixed(110, 64, 0.25), [0, 46]);
        assert_eq!(fixed(200, 64, 0.25), [0, 48, 96, 136]);
        assert_eq!(fixed(64, 64, 0.25), [0]);
        assert_eq!(fixed(12, 10, 0.99), [0, 1, 2]);
        // 10 · (1 − 0.8) is a little less than 2.
        assert_eq!(fixed(13, 10, 0.8), [0, 1, 2, 3]);
    }

    #[test]
    fn weights_of_monai_are_symmetric_and_a_thousandth_at_least() {
        // monai.data.utils.compute_importance_map((4, 6, 8), "gaussian", 0.25)[:, 2, 3] and its least.
        let windows = WindowLayout::Fixed { overlap: [0.5; 3], sigma_scale: Some(0.125) };
        let weights = Weights::new(windows, [4, 6, 8], WindowWeights::Gaussian);
        assert_eq!(weights.least, 1e-3);
        let [depth, ..] = &weights.along;
        assert_eq!(depth[0], depth[3]);
        assert!((depth[1] - (-0.5f32).exp()).abs() < 1e-6, "half a voxel from the middle, σ half a voxel");
        let fixed = WindowLayout::Fixed { overlap: [0.5; 3], sigma_scale: None };
        for (windows, asked) in
            [(fixed, WindowWeights::Gaussian), (WindowLayout::Even, WindowWeights::Constant)]
        {
            let constant = Weights::new(windows, [2, 3, 4], asked);
            assert_eq!((constant.along[2].as_slice(), constant.least), (&[1.0; 4][..], 0.0));
        }
    }

    fn starts(image: usize, window: usize, step: f64) -> Vec<usize> {
        Starts::new(image, window, step).iter().collect()
    }

    #[test]
    fn windows_stand_where_nnunet_puts_them() {
        // From compute_steps_for_sliding_window((110, 64, 200), (64, 64, 64), 0.5).
        assert_eq!(starts(110, 64, 0.5), [0, 23, 46]);
        assert_eq!(starts(64, 64, 0.5), [0]);
        assert_eq!(starts(200, 64, 0.5), [0, 27, 54, 82, 109, 136]);
        // From ((224,), (160,), 0.2): two whole steps, as 0.2 itself is rounded up and 1 − 0.8 would be rounded down.
        assert_eq!(starts(224, 160, 0.2), [0, 32, 64]);
        assert_eq!(starts(110, 64, 1.0), [0, 46]);
    }

    #[test]
    fn every_voxel_is_in_a_window_and_has_a_weight() {
        for extent in 5..60 {
            for window in 3..=extent {
                let starts = starts(extent, window, 0.5);
                assert_eq!((starts[0], starts[starts.len() - 1] + window), (0, extent));
                assert!(starts.windows(2).all(|pair| pair[1] - pair[0] <= window.div_ceil(2) + 1));
            }
        }
        let [weights, ..] = gaussian([64, 1, 1]);
        assert_eq!(weights[32], 1.0);
        assert!(weights.iter().all(|weight| *weight > 1e-5));
        assert_eq!(weights[31], weights[33]);
    }

    #[test]
    fn no_two_windows_stand_in_the_same_place_however_small_the_step() {
        for step in [0.1, 0.01, f64::EPSILON] {
            let starts = starts(40, 8, step);
            assert!(starts.windows(2).all(|pair| pair[1] > pair[0]), "{step}: {starts:?}");
            assert_eq!(starts.last(), Some(&32));
        }
    }

    #[test]
    fn windows_over_the_longest_axis_are_counted_without_being_kept() {
        let starts = Starts::new(usize::MAX, 64, 0.5);
        assert!(starts.count() > 1 << 58);
        assert_eq!((starts.at(0), starts.at(1)), (0, 32));
    }
}
