//! Where windows stand, and how much each voxel of one counts.

/// The starts of windows along one axis, computed when they are asked for: a hostile header can make them more than memory
/// holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starts {
    count: usize,
    /// Voxels between two windows.
    stride: f64,
}

impl Starts {
    /// Of windows over an axis of `image` voxels, which is at least as long as a window: as far apart as the share `step` of a
    /// window at most, but a voxel at least, evenly, the last one ending with the image. As nnU-Net's
    /// `compute_steps_for_sliding_window`.
    pub fn new(image: usize, window: usize, step: f64) -> Starts {
        let room = image.saturating_sub(window);
        // Windows less than a voxel apart would stand in the same place.
        let step = (window as f64 * step).max(1.0);
        // The cast saturates, and so does the sum.
        let count = ((room as f64 / step).ceil() as usize).saturating_add(1);
        let stride = if count > 1 { room as f64 / (count - 1) as f64 } else { 0.0 };
        Starts { count, stride }
    }

    /// How many windows there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the window of this number, below the count, starts.
    pub fn at(&self, number: usize) -> usize {
        (self.stride * number as f64).round_ties_even() as usize
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

#[cfg(test)]
mod tests {
    use super::*;

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
