//! Patches that are zoomed out: the voxels of the scaled patch that a voxel of the network's patch is made of.
//!
//! Interpolation follows PyTorch's kernels for processors bit by bit, because a coarse segmentation is scaled back and cut at exactly one half.

/// The most by which a patch is zoomed out.
pub(crate) const MOST_ZOOM: f64 = 4.0;
/// The factor of each step of zooming out.
pub(crate) const ZOOM_STEP: f64 = 1.5;

/// The extents of a patch that is zoomed out, in voxels of the image.
pub(crate) fn scaled(patch: [usize; 3], zoom: f64) -> [usize; 3] {
    patch.map(|extent| (extent as f64 * zoom).round_ties_even() as usize)
}

/// The first voxel of a patch around a centre.
pub(crate) fn start(centre: [usize; 3], extents: [usize; 3]) -> [i64; 3] {
    std::array::from_fn(|axis| centre[axis] as i64 - (extents[axis] / 2) as i64)
}

/// The width of the windows in which thin prompts are dilated before they are averaged: twice the zoom less one, rounded to an odd number.
pub(crate) fn dilation(zoom: f64) -> usize {
    let width = 2.0 * zoom - 1.0;
    let (above, below) = (width.ceil() as usize, width.floor() as usize);
    match (above % 2, below % 2) {
        (1, _) => above,
        (_, 1) => below,
        _ => width as usize + 1,
    }
}

/// The two voxels between which one is interpolated along an axis, and their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tap {
    pub(crate) voxels: [usize; 2],
    weights: [f32; 2],
}

impl Tap {
    /// The taps of all `output` voxels from `input` ones, with aligned borders.
    pub(crate) fn all(input: usize, output: usize) -> Vec<Tap> {
        let ratio = input as f32 / output as f32;
        let tap = |place: usize| {
            if input == output {
                return Tap { voxels: [place; 2], weights: [1.0, 0.0] };
            }
            let source = (ratio * (place as f32 + 0.5) - 0.5).max(0.0);
            let first = (source as usize).min(input - 1);
            let upper = (source - first as f32).clamp(0.0, 1.0);
            Tap { voxels: [first, (first + 1).min(input - 1)], weights: [1.0 - upper, upper] }
        };
        (0..output).map(tap).collect()
    }

    fn mix(self, [first, second]: [f32; 2]) -> f32 {
        self.weights[0].mul_add(first, self.weights[1] * second)
    }
}

/// The value between eight voxels: along the width first, then height, then depth.
pub(crate) fn trilinear(taps: [Tap; 3], value: impl Fn([usize; 3]) -> f32) -> f32 {
    let [depth, height, width] = taps;
    depth.mix(
        depth
            .voxels
            .map(|d| height.mix(height.voxels.map(|h| width.mix(width.voxels.map(|w| value([d, h, w])))))),
    )
}

/// The voxel of `input` ones that the nearest neighbour of a voxel of `output` ones is.
pub(crate) fn nearest(input: usize, output: usize, place: usize) -> usize {
    if input == output {
        return place;
    }
    let ratio = input as f32 / output as f32;
    ((place as f32 * ratio) as usize).min(input - 1)
}

/// The voxels of `input` ones whose mean a voxel of `output` ones is: the first one, and the one past the last.
pub(crate) fn window(input: usize, output: usize, place: usize) -> [usize; 2] {
    [place * input / output, ((place + 1) * input).div_ceil(output)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_dilation_are_odd() {
        // (zoom, width): at 1.5 the width would be 2, at 2.25 3.5, at 3.375 5.75.
        for (zoom, width) in [(1.0, 1), (1.2, 1), (1.5, 3), (2.25, 3), (3.375, 5), (4.0, 7)] {
            assert_eq!(dilation(zoom), width, "{zoom}");
        }
    }

    #[test]
    fn windows_of_means_cover_all_voxels_in_order() {
        for (input, output) in [(9, 4), (8, 4), (7, 7), (13, 5)] {
            let windows: Vec<_> = (0..output).map(|place| window(input, output, place)).collect();
            assert_eq!((windows[0][0], windows[output - 1][1]), (0, input));
            assert!(windows.windows(2).all(|pair| pair[1][0] <= pair[0][1] && pair[0][0] < pair[1][0]));
        }
    }
}
