//! Where windows stand, and how much each voxel of one counts.

/// The starts of windows along each axis of an image that is at least as large as a window: as far apart as `1 − overlap`
/// of a window at most, evenly, the last one ending with the image. As nnU-Net's `compute_steps_for_sliding_window`.
pub fn window_starts(image: [usize; 3], window: [usize; 3], overlap: f64) -> [Vec<usize>; 3] {
    [0, 1, 2].map(|axis| {
        let room = image[axis].saturating_sub(window[axis]);
        let step = window[axis] as f64 * (1.0 - overlap);
        let count = (room as f64 / step).ceil() as usize + 1;
        let stride = if count > 1 { room as f64 / (count - 1) as f64 } else { 0.0 };
        (0..count).map(|i| (stride * i as f64).round_ties_even() as usize).collect()
    })
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

    #[test]
    fn windows_stand_where_nnunet_puts_them() {
        // From compute_steps_for_sliding_window((110, 64, 200), (64, 64, 64), 0.5).
        let starts = window_starts([110, 64, 200], [64; 3], 0.5);
        assert_eq!(starts, [vec![0, 23, 46], vec![0], vec![0, 27, 54, 82, 109, 136]]);
    }

    #[test]
    fn every_voxel_is_in_a_window_and_has_a_weight() {
        for extent in 5..60 {
            for window in 3..=extent {
                let [starts, ..] = window_starts([extent, 1, 1], [window, 1, 1], 0.5);
                assert_eq!((starts[0], starts[starts.len() - 1] + window), (0, extent));
                assert!(starts.windows(2).all(|pair| pair[1] - pair[0] <= window.div_ceil(2) + 1));
            }
        }
        let [weights, ..] = gaussian([64, 1, 1]);
        assert_eq!(weights[32], 1.0);
        assert!(weights.iter().all(|weight| *weight > 1e-5));
        assert_eq!(weights[31], weights[33]);
    }
}
