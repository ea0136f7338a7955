//! Streams against sums over the whole volume.

use super::*;
use crate::labels::slices::slice_axes;
use crate::options::WindowWeights;
use crate::summing::mirror::mirror;
use crate::summing::rows::Strips;
use crate::summing::summands::{Summands, head_of};
use crate::summing::windows::gaussian;
use crate::summing::workers;
use plimsoll_models::{Answers, WindowLayout};
use plimsoll_plan::HostView;
use plimsoll_volume::{Affine, Geometry, Reorientation, Spacing};
use proptest::prelude::*;

/// A number for each class and voxel of a window that nothing else explains.
fn logit(start: [usize; 3], class: usize, at: [usize; 3]) -> f32 {
    let [a, b, c] = [0, 1, 2].map(|axis| (start[axis] * 31 + at[axis]) as f32);
    (a * 0.7 + class as f32).sin() + (b * 1.3 + 2.0 * class as f32).cos() + (c * 0.9 - class as f32).sin()
}

fn voxels(shape: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, width] = shape;
    (0..depth * height * width).map(move |i| [i / (height * width), i / width % height, i % width])
}

/// Sums over the whole volume, in f64, by the definition: the weighted mean of all windows that cover a voxel.
fn whole(rows: &Rows, weights: &[Vec<f32>; 3]) -> Vec<[f64; 2]> {
    let grid = rows.shape.grid;
    let mut sums = vec![[0.0; 2]; grid.iter().product()];
    let mut total = vec![0.0; sums.len()];
    for start in (0..rows.count()).flat_map(|row| rows.row(row)) {
        for at in voxels(rows.shape.window) {
            let place = [0, 1, 2].map(|axis| start[axis] + at[axis]);
            let voxel = (place[0] * grid[1] + place[1]) * grid[2] + place[2];
            let weight: f64 = (0..3).map(|axis| f64::from(weights[axis][at[axis]])).product();
            total[voxel] += weight;
            for (class, sum) in sums[voxel].iter_mut().enumerate() {
                *sum += weight * f64::from(logit(start, class, at));
            }
        }
    }
    sums.iter().zip(total).map(|(sum, weight)| sum.map(|sum| sum / weight)).collect()
}

/// The form in which logits are given: a view of f32 or bf16, or a function that copies them.
#[derive(Clone, Copy, Debug)]
enum Given {
    F32,
    Bf16,
    Copied,
}

/// A traversal of an image.
#[derive(Clone, Copy)]
struct Traversal<'a> {
    grid: &'a TargetGrid,
    stored: &'a Geometry,
    whole: &'a Rows,
    strips: Option<Strips>,
    weights: &'a Weights,
    mirrored: [bool; 3],
    summing: &'a Summing,
    given: Given,
}

/// The labels and probabilities of all stored voxels, passed through along a stored axis in strips, from logits that nothing else explains.
fn streamed(traversal: Traversal<'_>) -> (Vec<u8>, Vec<u32>) {
    let Traversal { grid, stored, whole, strips, weights, mirrored, summing, given } = traversal;
    let (window, threads) = (whole.shape.window, summing.pool.threads());
    let budget = Budget::new(Bytes(1 << 26));
    let answers = Answers::Classes(2);
    let wanted = Wanted::new(&answers, true);
    let [height, width] = [stored.shape()[1], stored.shape()[2]];
    let mut labels = vec![9; stored.voxel_count()];
    let mut probabilities = vec![0; 2 * labels.len()];
    for rows in whole.parts(grid, strips) {
        let mut stream = Stream::new(grid, &rows, wanted, weights, summing, &budget).unwrap();
        assert_eq!(budget.used(), Stream::bytes(grid, &rows, wanted, weights, summing).unwrap());
        let mut rooms: Vec<Room<()>> = (0..threads).map(|_| Room::new(window, &budget).unwrap()).collect();
        let [_, row_axis, column_axis] = slice_axes(rows.slices);
        let mut slice = 0;
        for row in 0..rows.count() {
            for start in rows.row(row) {
                let mut logits = Vec::new();
                for class in 0..2 {
                    logits.extend(voxels(window).map(|at| logit(start, class, at)));
                }
                // What a network says of a mirrored window is mirrored too.
                let mut said = vec![0.0; logits.len()];
                mirror(&logits, &mut said, window, mirrored);
                let halves: Vec<u16> = said.iter().map(|said| (said.to_bits() >> 16) as u16).collect();
                let read = |from: usize, to: &mut [f32]| {
                    to.copy_from_slice(&said[from..][..to.len()]);
                    Ok(())
                };
                let logits = match given {
                    Given::F32 => LogitsOf::Here(HostView::F32(&said)),
                    Given::Bf16 => LogitsOf::Here(HostView::Bf16(&halves)),
                    Given::Copied => LogitsOf::Read(&read),
                };
                assert_eq!(stream.add(start, mirrored, &mut rooms, logits), Ok(true));
            }
            let taken = stream.finish_row(&rows, row, None, |of_slice, of_classes| {
                let columns = rows.part.shape[column_axis];
                for (number, label) in of_slice.iter().enumerate() {
                    let mut voxel = rows.part.start;
                    voxel[rows.slices] += slice;
                    voxel[row_axis] += number / columns;
                    voxel[column_axis] += number % columns;
                    let at = (voxel[0] * height + voxel[1]) * width + voxel[2];
                    assert_eq!(labels[at], 9, "a voxel was decided twice");
                    labels[at] = *label;
                    for class in 0..2 {
                        let of_row = &of_classes[(number / columns) * 2 * columns..];
                        probabilities[2 * at + class] = of_row[class * columns + number % columns].to_bits();
                    }
                }
                slice += 1;
                Ok::<(), EngineError>(())
            });
            taken.unwrap();
        }
        assert_eq!(slice, rows.part.shape[rows.slices]);
    }
    assert!(!labels.contains(&9));
    (labels, probabilities)
}

/// A head whose sums are no larger than what it reads.
const HEAD: [[f32; 2]; 2] = [[0.7, -0.3], [0.25, 0.5]];
const BIAS: [f32; 2] = [0.1, -0.2];

/// Two logits, or two features of a head.
fn summands(has_head: bool) -> Summands {
    let budget = Budget::new(Bytes::mib(1));
    let head = || head_of(&[&HEAD[0], &HEAD[1]], &BIAS, &budget);
    if has_head { Summands::Features(Arc::new(head())) } else { Summands::Logits(2) }
}

fn given() -> impl Strategy<Value = Given> {
    prop::sample::select(vec![Given::F32, Given::Bf16, Given::Copied])
}

/// The spacing of images in the canonical orientation.
const SPACING: [f64; 3] = [1.5, 1.0, 0.8];

/// A stored image, and windows over it at another spacing.
#[derive(Debug)]
struct Image {
    stored: Geometry,
    spacing: [f64; 3],
    window: [usize; 3],
    step: f64,
    mirrored: [bool; 3],
}

prop_compose! {
    fn image()(
        shape in prop::array::uniform3(1usize..14),
        window in prop::array::uniform3(1usize..7),
        order in Just([0usize, 1, 2]).prop_shuffle(),
        flip: [bool; 3],
        spacing in prop::array::uniform3(0.6..2.0f64),
        step in 0.2..=1.0f64,
        mirrored: [bool; 3],
    ) -> Image {
        let canonical = Geometry::new(shape, Affine::from_spacing(Spacing(SPACING))).unwrap();
        let stored = Reorientation::new(order, flip).unwrap().geometry(&canonical);
        Image { stored, spacing, window, step, mirrored }
    }
}

fn summing(has_head: bool, in_halves: bool, threads: usize) -> Summing {
    Summing {
        summands: summands(has_head),
        storage: if in_halves { RingStorage::F16 } else { RingStorage::F32 },
        looks: 1,
        pool: Arc::new(workers::start(threads)),
        on_device: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn planes_of_labels_are_those_of_logits_summed_over_the_whole_volume(
        Image { stored, spacing, window, step, mirrored } in image(),
        threads in 1usize..4,
        (in_halves, given, has_head, is_constant) in (any::<bool>(), given(), any::<bool>(), any::<bool>()),
        slices in 0usize..3,
    ) {
        let grid = TargetGrid::new(&stored, Spacing(spacing));
        let rows = Rows::new(&grid, window, step, slices);
        let asked = if is_constant { WindowWeights::Constant } else { WindowWeights::Gaussian };
        let all = Weights::new(WindowLayout::Even, window, asked);
        let weights = all.along.clone();
        let summing = summing(has_head, in_halves, threads);
        let traversal = Traversal {
            grid: &grid, stored: &stored, whole: &rows, strips: None, weights: &all, mirrored, summing: &summing, given,
        };
        let (labels, _) = streamed(traversal);
        let whole = whole(&rows, &weights);
        for (voxel, label) in voxels(stored.shape()).zip(labels) {
            // Linear interpolation between the eight voxels around, within the image.
            let at = grid.index_of(voxel);
            let mut sums = [0.0; 2];
            for corner in voxels([2; 3]) {
                let mut weight = 1.0;
                let mut place = [0; 3];
                for axis in 0..3 {
                    let at = at[axis].clamp(0.0, (grid.shape()[axis] - 1) as f64);
                    let share = at - at.floor();
                    weight *= if corner[axis] == 1 { share } else { 1.0 - share };
                    let inside = (at.floor() as usize + corner[axis]).min(grid.shape()[axis] - 1);
                    place[axis] = rows.lead[axis] + inside;
                }
                let extent = rows.shape.grid;
                let index = (place[0] * extent[1] + place[1]) * extent[2] + place[2];
                for (sum, logit) in sums.iter_mut().zip(whole[index]) {
                    *sum += weight * logit;
                }
            }
            if has_head {
                sums = [0, 1].map(|class| {
                    let [one, other] = HEAD[class].map(f64::from);
                    one * sums[0] + other * sums[1] + f64::from(BIAS[class])
                });
            }
            // Rounding may decide otherwise where both classes are as likely: of means up to 3, halves keep 11 bits with each window, and
            // upper halves of logits 8.
            let unclear = match given {
                Given::Bf16 => 6e-2,
                _ if in_halves => 3e-2,
                _ => 1e-4,
            };
            if (sums[0] - sums[1]).abs() > unclear {
                prop_assert_eq!(label, u8::from(sums[1] > sums[0]), "{:?}: {:?}", voxel, sums);
            }
        }
    }

    #[test]
    fn strips_have_the_bits_of_whole_planes(
        Image { stored, spacing, window, step, mirrored } in image(),
        (threads, in_halves, given, has_head) in (1usize..4, any::<bool>(), given(), any::<bool>()),
        (slices, second, size) in (0usize..3, 1usize..3, 1usize..9),
        least in prop::sample::select(vec![0.0f32, 0.05]),
    ) {
        // Of every other case, nothing has to be interpolated.
        let spacing = if size % 2 == 0 { SPACING } else { spacing };
        let grid = TargetGrid::new(&stored, Spacing(spacing));
        let rows = Rows::new(&grid, window, step, slices);
        let weights = Weights { along: gaussian(window), least, margin: 0 };
        let summing = summing(has_head, in_halves, threads);
        let whole = Traversal {
            grid: &grid, stored: &stored, whole: &rows, strips: None, weights: &weights, mirrored, summing: &summing, given,
        };
        let of = |strips| streamed(Traversal { strips, ..whole });
        let whole = of(None);
        let axis = slice_axes(slices)[second];
        prop_assert!(of(Some(Strips { axis, size })) == whole, "in strips of {} along {}", size, axis);
        // Those that a plan may choose: their windows are those that were counted, and none holds more than was counted.
        for strips in rows.possible_strips(&grid) {
            let choice = rows.choice(&grid, strips);
            let parts: Vec<Rows> = rows.parts(&grid, Some(choice.strips)).collect();
            prop_assert_eq!(parts.len(), choice.count);
            prop_assert_eq!(parts.iter().map(Rows::windows).sum::<usize>(), choice.windows);
            let widest = rows.widest(&choice, 0).shape.plane();
            prop_assert_eq!(parts.iter().map(|rows| rows.shape.plane()).max(), Some(widest));
        }
    }
}
