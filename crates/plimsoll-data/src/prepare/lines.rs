//! Lines of a volume along one of its axes: the coefficients of splines through them, and weighted sums of their voxels.
//!
//! A volume is seen as `[before][along][behind]`: voxels along the axis stand `behind` numbers apart.

use std::ops::Range;

use crate::Interpolation;
use crate::prepare::rule::ResizeRule;

/// The pole of the cubic B-spline's prefilter (Unser 1999).
const POLE: f32 = -0.267_949_2;

/// Samples on both sides beyond those that a result touches directly, where a line is cut. What the cut changes falls by the pole with
/// each: to 7·10⁻¹⁰ of the jump at the cut.
const MARGIN: i64 = 16;

/// The reach of the four taps of a cubic beyond the first and the last voxel.
const BEYOND: i64 = 2;

/// Lines that are filtered together where the voxels of each are next to each other: each waits for its own last result.
const TOGETHER: usize = 8;

/// Samples along an axis from one up to another, which may lie beyond the image, where its outermost voxel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Span {
    /// The samples of the `count` voxels of the result from `start` on, along an axis.
    pub(crate) fn new(rule: &ResizeRule, axis: usize, start: usize, count: usize) -> Span {
        let (first, last, voxels) = (start, start + count - 1, rule.from[axis] as i64);
        let floor = |index: usize| rule.source(axis, index).floor() as i64;
        match rule.along[axis] {
            None => Span { from: first as i64, to: last as i64 + 1 },
            Some(Interpolation::Nearest) => {
                let nearest = |index: usize| rule.nearest(axis, index) as i64;
                Span { from: nearest(first), to: nearest(last) + 1 }
            }
            Some(Interpolation::Linear) => {
                Span { from: floor(first).clamp(0, voxels - 1), to: (floor(last) + 2).clamp(1, voxels) }
            }
            Some(Interpolation::Cubic) => Span {
                from: (floor(first) - 1 - MARGIN).max(-BEYOND),
                to: (floor(last) + 3 + MARGIN).min(voxels + BEYOND),
            },
        }
    }

    /// The number of samples.
    pub(crate) fn count(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// The first sample within an image of `voxels` voxels along the axis, and the end of these samples.
    pub(crate) fn inside(&self, voxels: usize) -> (usize, usize) {
        (self.from.max(0) as usize, self.to.min(voxels as i64) as usize)
    }
}

/// The source of one voxel of a result: weighted neighbours along a line.
pub(crate) struct Tap {
    /// The first sample of the span.
    first: usize,
    weights: [f32; 4],
}

/// The taps of consecutive voxels of a result.
pub(crate) struct Taps {
    taps: Vec<Tap>,
    /// The number of weights of each tap that are used.
    weights: usize,
}

/// Returns the taps of the voxels `voxels` of the result along an axis, within a span of samples.
pub(crate) fn taps(rule: &ResizeRule, axis: usize, voxels: Range<usize>, span: Span) -> Taps {
    let last = (rule.from[axis] - 1) as f64;
    let place = |at: i64| (at - span.from) as usize;
    let tap = |index: usize| match rule.along[axis] {
        None => Tap { first: place(index as i64), weights: [1.0, 0.0, 0.0, 0.0] },
        Some(Interpolation::Nearest) => {
            Tap { first: place(rule.nearest(axis, index) as i64), weights: [1.0, 0.0, 0.0, 0.0] }
        }
        Some(Interpolation::Linear) => {
            let at = rule.source(axis, index).clamp(0.0, last);
            // The lower of the last two samples where the upper one would be beyond the last: it then has no weight.
            let lower = (at.floor() as i64).min(span.to - 2).max(span.from);
            let share = (at - lower as f64) as f32;
            Tap { first: place(lower), weights: [1.0 - share, share, 0.0, 0.0] }
        }
        Some(Interpolation::Cubic) => {
            let at = rule.source(axis, index);
            let lower = at.floor();
            Tap { first: place(lower as i64 - 1), weights: cubic(at - lower) }
        }
    };
    let weights = match rule.along[axis] {
        None | Some(Interpolation::Nearest) => 1,
        Some(Interpolation::Linear) => 2.min(span.count()),
        Some(Interpolation::Cubic) => 4,
    };
    Taps { taps: voxels.map(tap).collect(), weights }
}

/// The cubic B-spline at the four coefficients around a place that is `t` behind the second.
fn cubic(t: f64) -> [f32; 4] {
    let near = |t: f64| 2.0 / 3.0 - t * t + t * t * t / 2.0;
    let far = |t: f64| (1.0 - t).powi(3) / 6.0;
    [far(t), near(t), near(1.0 - t), far(1.0 - t)].map(|weight| weight as f32)
}

/// Replaces samples by the coefficients of the cubic B-spline through them, along the middle of three extents. Before the first
/// sample and behind the last, they are taken to go on.
pub(crate) fn prefilter(values: &mut [f32], [_, along, behind]: [usize; 3]) {
    if along == 0 || behind == 0 {
        return;
    }
    if behind > 1 {
        values.chunks_exact_mut(along * behind).for_each(|volume| filter_planes(volume, behind));
        return;
    }
    let mut lines = values.chunks_exact_mut(along * TOGETHER);
    for group in &mut lines {
        filter_lines::<TOGETHER>(group, along);
    }
    lines.into_remainder().chunks_exact_mut(along).for_each(|line| filter_lines::<1>(line, along));
}

/// (1 − z)(1 − 1/z), the factor that keeps constants.
const GAIN: f32 = 6.0;

/// The limit of the causal filter for a constant 1.
const SETTLED: f32 = 1.0 / (1.0 - POLE);

/// The anticausal filter's value at the last of the samples, where the causal one is at `causal` and the samples go on as `value`.
fn turn(causal: f32, value: f32) -> f32 {
    let settled = value * SETTLED;
    -POLE * (settled * SETTLED + (causal - settled) / (1.0 - POLE * POLE))
}

/// Lines of `along` samples, several next to each other in memory.
fn filter_lines<const LINES: usize>(lines: &mut [f32], along: usize) {
    let mut state = [0.0f32; LINES];
    let mut value = [0.0f32; LINES];
    for (line, (state, value)) in state.iter_mut().zip(&mut value).enumerate() {
        *state = lines[line * along] * SETTLED;
        *value = lines[line * along + along - 1];
    }
    for at in 0..along {
        for (line, state) in state.iter_mut().enumerate() {
            let sample = &mut lines[line * along + at];
            *state = *sample + POLE * *state;
            *sample = *state;
        }
    }
    for (line, (state, value)) in state.iter_mut().zip(value).enumerate() {
        *state = turn(*state, value);
        lines[line * along + along - 1] = GAIN * *state;
    }
    for at in (0..along - 1).rev() {
        for (line, state) in state.iter_mut().enumerate() {
            let sample = &mut lines[line * along + at];
            *state = POLE * (*state - *sample);
            *sample = GAIN * *state;
        }
    }
}

/// Lines that run across planes of `behind` numbers: whole planes are combined.
fn filter_planes(volume: &mut [f32], behind: usize) {
    let planes = volume.len() / behind;
    let last = (planes - 1) * behind;
    // The last plane is needed as it was once the causal filter has replaced it: from its result and the one before.
    for value in &mut volume[..behind] {
        // x + z · x / (1 − z) is x / (1 − z).
        *value *= SETTLED;
    }
    for plane in 1..planes {
        let (done, rest) = volume.split_at_mut(plane * behind);
        let before = &done[(plane - 1) * behind..];
        for (value, before) in rest[..behind].iter_mut().zip(before) {
            *value += POLE * before;
        }
    }
    let (done, ends) = volume.split_at_mut(last);
    let before = done.len().checked_sub(behind).map(|from| &done[from..]);
    for (at, end) in ends.iter_mut().enumerate() {
        let sample = match before {
            Some(before) => *end - POLE * before[at],
            None => *end / SETTLED,
        };
        *end = turn(*end, sample);
    }
    for plane in (0..planes - 1).rev() {
        let (rest, done) = volume.split_at_mut((plane + 1) * behind);
        for (value, later) in rest[plane * behind..].iter_mut().zip(&mut done[..behind]) {
            *value = POLE * (*later - *value);
            *later *= GAIN;
        }
    }
    volume[..behind].iter_mut().for_each(|value| *value *= GAIN);
}

/// Fills `to`, `[before][taps][behind]`, with the weighted sums of each tap over `from`, `[before][along][behind]`.
pub(crate) fn combine(
    from: &[f32],
    to: &mut [f32],
    [_, along, behind]: [usize; 3],
    Taps { taps, weights }: &Taps,
) {
    let volumes = from.chunks_exact((along * behind).max(1));
    for (from, to) in volumes.zip(to.chunks_exact_mut((taps.len() * behind).max(1))) {
        for (tap, to) in taps.iter().zip(to.chunks_exact_mut(behind.max(1))) {
            let from = &from[tap.first * behind..];
            let [a, b, c, d] = tap.weights;
            match (*weights, behind) {
                (1, _) => to.copy_from_slice(&from[..behind]),
                (2, _) => {
                    let (first, second) = from.split_at(behind);
                    for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
                        *to = a * first + b * second;
                    }
                }
                (_, 1) => {
                    if let ([first, second, third, fourth, ..], [to]) = (from, to) {
                        *to = (a * first + b * second) + (c * third + d * fourth);
                    }
                }
                _ => {
                    let (first, from) = from.split_at(behind);
                    let (second, from) = from.split_at(behind);
                    let (third, fourth) = from.split_at(behind);
                    let pairs = first.iter().zip(second).zip(third.iter().zip(fourth));
                    for (to, ((first, second), (third, fourth))) in to.iter_mut().zip(pairs) {
                        *to = (a * first + b * second) + (c * third + d * fourth);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spline_goes_through_its_samples_and_keeps_constants() {
        let sample = |at: usize| (at as f32 * 1.7).sin() * 3.0 + (at % 5) as f32;
        for (along, behind) in [(1, 1), (2, 1), (40, 1), (1, 3), (2, 3), (40, 3)] {
            // More lines than are filtered together.
            let before = 11;
            let samples: Vec<f32> = (0..before * along * behind).map(sample).collect();
            let mut coefficients = samples.clone();
            prefilter(&mut coefficients, [before, along, behind]);
            for (at, value) in samples.iter().enumerate() {
                let (start, place) = (at / (along * behind) * along * behind, at / behind % along);
                if place == 0 || place + 1 == along {
                    continue;
                }
                let at = |place: usize| coefficients[start + place * behind + at % behind];
                let found = (at(place - 1) + 4.0 * at(place) + at(place + 1)) / 6.0;
                assert!((found - value).abs() < 1e-5, "{found} for {value}");
            }
            let mut constant = vec![2.5; samples.len()];
            prefilter(&mut constant, [before, along, behind]);
            assert!(constant.iter().all(|value| (value - 2.5).abs() < 1e-6), "{constant:?}");
        }
    }

    #[test]
    fn lines_are_the_same_whichever_way_they_lie() {
        let samples: Vec<f32> = (0..30).map(|at| (at as f32).cos() * 10.0).collect();
        let (mut in_line, mut across) =
            (samples.clone(), samples.iter().flat_map(|value| [*value; 2]).collect::<Vec<_>>());
        prefilter(&mut in_line, [1, 30, 1]);
        prefilter(&mut across, [1, 30, 2]);
        for (one, other) in in_line.iter().zip(across.chunks_exact(2)) {
            assert!((one - other[0]).abs() < 1e-5 && (one - other[1]).abs() < 1e-5);
        }
    }
}
