//! Sums of windows against their definition: the weighted mean of all windows over a voxel, in f64.

use super::*;
use plimsoll_memory::Bytes;

/// A number for each output and voxel of a window that nothing else explains.
fn logit(start: [i64; 3], output: usize, at: [usize; 3]) -> f32 {
    let [a, b, c] = [0, 1, 2].map(|axis| (start[axis] * 31 + at[axis] as i64) as f32);
    let output = output as f32;
    (a * 0.7 + output).sin() + (b * 1.3 + 2.0 * output).cos() + (c * 0.9 - output).sin()
}

fn voxels(shape: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, width] = shape;
    (0..depth * height * width).map(move |i| [i / (height * width), i / width % height, i % width])
}

fn output_of(request: &WindowRequest, start: [i64; 3]) -> Vec<f32> {
    let outputs = 0..request.outputs;
    outputs.flat_map(|output| voxels(request.window).map(move |at| logit(start, output, at))).collect()
}

/// The starts of windows along an axis by MONAI's rule: a whole number of voxels apart, the last one ending with the padded image.
fn starts(request: &WindowRequest, axis: usize) -> Vec<i64> {
    let (image, window) = (request.image[axis], request.window[axis]);
    let interval = ((window as f64 * (1.0 - request.overlap[axis])) as usize).max(1);
    let padded = image.max(window);
    let mut starts: Vec<usize> = (0..padded).step_by(interval).map(|at| at.min(padded - window)).collect();
    starts.dedup();
    let before = (padded - image) / 2;
    starts.into_iter().map(|start| start as i64 - before as i64).collect()
}

/// MONAI's importance of a voxel of a window.
fn importance(request: &WindowRequest, at: [usize; 3]) -> f64 {
    let Some(scales) = request.sigma_scale else { return 1.0 };
    let along = |axis: usize| {
        let (extent, sigma) = (request.window[axis] as f64, request.window[axis] as f64 * scales[axis]);
        (-(at[axis] as f64 - (extent - 1.0) / 2.0).powi(2) / (2.0 * sigma * sigma)).exp()
    };
    (along(0) * along(1) * along(2)).max(1e-3)
}

/// The mean of each output at each voxel.
fn means(request: &WindowRequest) -> Vec<f64> {
    let [_, height, width] = request.image;
    let count: usize = request.image.iter().product();
    let (mut sums, mut totals) = (vec![0.0; request.outputs * count], vec![0.0; count]);
    for d in starts(request, 0) {
        for h in starts(request, 1) {
            for w in starts(request, 2) {
                for at in voxels(request.window) {
                    let place = [d + at[0] as i64, h + at[1] as i64, w + at[2] as i64];
                    if (0..3).any(|axis| place[axis] < 0 || place[axis] >= request.image[axis] as i64) {
                        continue;
                    }
                    let [d_at, h_at, w_at] = place.map(|at| at as usize);
                    let voxel = (d_at * height + h_at) * width + w_at;
                    let weight = importance(request, at);
                    totals[voxel] += weight;
                    for output in 0..request.outputs {
                        sums[output * count + voxel] += weight * f64::from(logit([d, h, w], output, at));
                    }
                }
            }
        }
    }
    sums.iter().enumerate().map(|(number, sum)| sum / totals[number % count]).collect()
}

struct Summed {
    labels: Vec<u8>,
    logits: Vec<f32>,
    strips: usize,
    windows: Vec<[i64; 3]>,
}

/// Sums all windows, a few at a time.
fn summed(request: &WindowRequest, budget: &Budget) -> Summed {
    let mut sums = WindowSums::new(request, budget).unwrap();
    let voxels: usize = request.image.iter().product();
    let mut labels = vec![9; voxels * sums.label_bytes()];
    let mut logits = vec![f32::NAN; if request.logits { voxels * request.outputs } else { 0 }];
    let mut windows = Vec::new();
    loop {
        let some: Vec<[i64; 3]> = sums.starts(3).collect();
        for start in &some {
            sums.add(&output_of(request, *start), &mut |slice| {
                assert!(slice.write_labels(request.image, &mut labels));
                assert_eq!(slice.write_logits(request.image, &mut logits), request.logits);
            })
            .unwrap();
        }
        windows.extend_from_slice(&some);
        if some.is_empty() {
            break;
        }
    }
    assert_eq!(windows.len(), sums.windows());
    assert!(matches!(sums.add(&[], &mut |_| {}), Err(WindowError::Finished { .. })));
    Summed { labels, logits, strips: sums.strips(), windows }
}

fn request(image: [usize; 3], window: [usize; 3]) -> WindowRequest {
    WindowRequest {
        image,
        window,
        overlap: [0.25, 0.5, 0.3],
        sigma_scale: None,
        outputs: 3,
        logits: true,
        storage: RingStorage::F32,
        threads: 2,
    }
}

/// Images along each of whose axes planes pass, some of them smaller than a window, with both kinds of weights.
fn requests() -> Vec<WindowRequest> {
    let mut all = Vec::new();
    for (image, window) in [
        ([11, 12, 13], [4, 5, 6]),
        ([4, 30, 9], [7, 4, 4]),
        ([20, 5, 40], [20, 8, 5]),
        ([1, 17, 16], [1, 6, 16]),
        ([3, 3, 3], [8, 8, 8]),
    ] {
        let constant = request(image, window);
        all.push(constant);
        all.push(WindowRequest { sigma_scale: Some([0.125, 0.25, 0.2]), ..constant });
    }
    all
}

#[test]
fn labels_and_logits_are_those_of_all_windows_over_a_voxel() {
    for request in requests() {
        let found = summed(&request, &Budget::new(Bytes::mib(16)));
        let (expected, count) = (means(&request), found.labels.len());
        assert_eq!(found.strips, 1);
        for (logit, expected) in found.logits.iter().zip(&expected) {
            assert!((f64::from(*logit) - expected).abs() < 1e-5, "{request:?}: {logit} is not {expected}");
        }
        let at = |output: usize, voxel: usize| found.logits[output * count + voxel];
        for (voxel, label) in found.labels.iter().enumerate() {
            let largest = (0..request.outputs).map(|output| at(output, voxel)).fold(f32::MIN, f32::max);
            assert_eq!(at(usize::from(*label), voxel), largest);
        }
        let mut expected: Vec<[i64; 3]> = Vec::new();
        for d in starts(&request, 0) {
            for h in starts(&request, 1) {
                expected.extend(starts(&request, 2).into_iter().map(|w| [d, h, w]));
            }
        }
        assert_eq!(found.windows.first(), expected.first());
        let mut windows = found.windows;
        windows.sort_unstable();
        assert_eq!(windows, expected);
    }
}

#[test]
fn strips_are_chosen_for_a_low_limit_and_have_the_bits_of_whole_planes() {
    let request = WindowRequest { logits: false, outputs: 9, ..request([12, 40, 50], [8, 12, 10]) };
    let budget = Budget::new(Bytes::mib(16));
    let whole = summed(&request, &budget);
    assert_eq!(budget.used(), Bytes::ZERO);
    let low = Budget::new(Bytes(budget.peak().0 * 2 / 3));
    let strips = summed(&request, &low);
    assert!(strips.strips > 1 && low.peak() <= low.limit(), "{} strips", strips.strips);
    assert_eq!(strips.labels, whole.labels);
    let none = WindowSums::new(&request, &Budget::new(Bytes(budget.peak().0 / 16)));
    assert!(matches!(none.err(), Some(WindowError::OverBudget(_))));
}

#[test]
fn many_classes_have_labels_of_two_bytes() {
    let request = WindowRequest { outputs: 300, logits: false, ..request([3, 4, 5], [3, 4, 5]) };
    let mut sums = WindowSums::new(&request, &Budget::new(Bytes::mib(4))).unwrap();
    assert_eq!(sums.label_bytes(), 2);
    let mut labels = vec![0; 2 * 60];
    let mut logits = vec![0.0; 300 * 60];
    logits[299 * 60..].fill(1.0);
    sums.add(&logits, &mut |slice| assert!(slice.write_labels(request.image, &mut labels))).unwrap();
    assert!(labels.as_chunks::<2>().0.iter().all(|label| u16::from_ne_bytes(*label) == 299));
}

#[test]
fn outputs_that_cannot_be_summed_and_requests_out_of_bounds_are_refused() {
    let budget = Budget::new(Bytes::mib(4));
    let good = request([6, 6, 6], [4, 4, 4]);
    let mut output = output_of(&good, [0; 3]);
    output[7] = f32::NAN;
    let mut sums = WindowSums::new(&good, &budget).unwrap();
    assert!(matches!(sums.add(&output[1..], &mut |_| {}), Err(WindowError::Length { expected: 192, .. })));
    assert!(matches!(sums.add(&output, &mut |_| {}), Err(WindowError::NotFinite { start: [0, 0, 0], .. })));
    let refused = |request: WindowRequest| WindowSums::new(&request, &budget).err().unwrap();
    assert!(matches!(
        refused(WindowRequest { overlap: [0.0, 1.0, 0.0], ..good }),
        WindowError::Overlap { .. }
    ));
    assert!(matches!(refused(WindowRequest { window: [4, 0, 4], ..good }), WindowError::Window { .. }));
    assert!(matches!(refused(WindowRequest { image: [0, 4, 4], ..good }), WindowError::Image(_)));
    assert!(matches!(refused(WindowRequest { outputs: 0, ..good }), WindowError::Outputs { outputs: 0 }));
    let scale = Some([0.1, f64::NAN, 0.1]);
    assert!(matches!(refused(WindowRequest { sigma_scale: scale, ..good }), WindowError::SigmaScale { .. }));
}
