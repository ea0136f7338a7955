//! Convolutions of all directions.

use plimsoll_graph::ops::{ChannelSum, Conv, ConvTranspose, ConvWeightGrad, GradNorm, Over};
use plimsoll_graph::{DType, Window};

use super::{CHANNELS, EXTENTS, Writer};
use crate::Case;

/// Kernel, stride, padding along each axis.
pub(super) fn windows() -> Vec<Window> {
    let window = Window::new;
    vec![
        Window::same([3; 3], [1; 3]),
        Window::same([3; 3], [2; 3]),
        Window::same([1, 3, 3], [1, 2, 2]),
        Window::same([3, 3, 1], [1, 1, 1]),
        Window::point(),
        window([1; 3], [2; 3], [0; 3]),
        Window::blocks([2; 3]),
        Window::blocks([1, 2, 2]),
        window([2, 3, 4], [1, 2, 3], [1, 0, 2]),
        Window::same([5; 3], [1; 3]),
        window([1, 7, 7], [1, 2, 2], [0, 3, 3]),
        Window::same([3; 3], [2, 1, 2]),
        window([1; 3], [1, 2, 2], [0; 3]),
        Window::same([1, 3, 3], [1; 3]),
        Window::same([1, 5, 5], [1, 2, 1]),
        Window::same([7; 3], [2; 3]),
    ]
}

/// Extents that kernels cut into pieces along every axis, with something left over.
const LARGE: &[[usize; 3]] = &[[5, 37, 23], [11, 19, 18]];

/// Convolutions between features: forward, both gradients, one or two sources, with and without normalising loads.
pub fn convolutions(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, window) in windows().into_iter().enumerate() {
        let large = if i < 3 { LARGE } else { &[] };
        // (A map of one voxel has no variance to be normalised by.)
        for (j, extent) in EXTENTS.iter().chain(&[[1; 3]]).chain(large).copied().enumerate() {
            // Not every pair with every other: the channels walk along.
            let (channels, outputs) = CHANNELS[(i + j) % CHANNELS.len()];
            let maps = Maps { batch: 1 + (i + j) % 2, extent, channels, outputs };
            cases.extend(convolution(precision, window, maps, (i + j) % 3 == 0 && extent != [1; 3]));
        }
    }
    cases
}

/// Dilated convolutions: forward, both gradients, from images and between features, with dilations up to beyond the extent.
pub fn dilated(precision: DType) -> Vec<Case> {
    let windows = [
        Window::dilated([3; 3], [2; 3]),
        Window::dilated([3; 3], [4, 2, 3]),
        Window::dilated([3, 3, 1], [3, 1, 5]),
        Window::dilated([1, 3, 3], [7, 2, 16]),
        Window::dilated([3; 3], [16; 3]),
        Window::dilated([5, 3, 5], [1, 5, 2]),
        // Without padding, and with more of it than keeps the extent.
        Window { padding: [0; 3], ..Window::dilated([3, 2, 2], [2, 2, 3]) },
        Window { padding: [4, 0, 5], ..Window::dilated([2, 2, 3], [2, 3, 2]) },
    ];
    let mut cases = Vec::new();
    for (i, window) in windows.into_iter().enumerate() {
        for (j, extent) in EXTENTS.iter().chain(&[[17, 5, 40]]).copied().enumerate() {
            if window.output(extent).is_none() {
                continue;
            }
            let (channels, outputs) = CHANNELS[(i + j) % CHANNELS.len()];
            let maps = Maps { batch: 1 + (i + j) % 2, extent, channels, outputs };
            cases.extend(convolution(precision, window, maps, (i + j) % 3 == 0));
        }
    }
    for (channels, out, dilation) in [(1, 5, [16; 3]), (3, 33, [2, 3, 1])] {
        let (window, extent) = (Window::dilated([3; 3], dilation), [17, 19, 21]);
        let mut w = Writer::new(precision);
        let image = w.image("image", 2, channels, extent);
        let weights = w.weights(out, channels, window.kernel);
        w.result(Conv::new(window, false, precision), &[image, weights]);
        let dy = w.features("dy", 2, out, extent);
        w.result(ConvWeightGrad { window, groups: 1 }, &[image, dy]);
        cases.push(w.maps(format!("dilated image {channels}→{out}, {dilation:?}, {precision:?}")));
    }
    cases
}

/// Inputs, outputs and groups: depthwise ones, those of ResNeXt, and odd ones.
const GROUPS: [[usize; 3]; 14] = [
    [33, 33, 33],
    [34, 34, 17],
    [20, 20, 5],
    [128, 128, 32],
    [24, 24, 3],
    [64, 64, 4],
    [64, 64, 2],
    [15, 30, 15],
    [30, 15, 15],
    [6, 4, 2],
    [36, 60, 3],
    [66, 33, 3],
    [48, 96, 3],
    [14, 14, 2],
];

/// Convolutions within groups of channels: forward, transposed, both gradients.
pub fn grouped(precision: DType) -> Vec<Case> {
    let window = Window::new;
    let windows = [
        Window::same([3; 3], [1; 3]),
        Window::same([1, 3, 3], [1, 2, 2]),
        Window::point(),
        Window::same([3; 3], [2, 1, 2]),
        window([1, 7, 7], [1, 2, 2], [0, 3, 3]),
        Window::blocks([1, 2, 2]),
    ];
    let mut cases = Vec::new();
    for (i, [channels, out, groups]) in GROUPS.into_iter().enumerate() {
        for j in 0..3 {
            let window = windows[(i + j) % windows.len()];
            let extent = if j == 0 { [1, 23, 37] } else { EXTENTS[(i + j) % EXTENTS.len()] };
            let Some(output) = window.output(extent) else { continue };
            let batch = 1 + (i + j) % 2;
            let mut w = Writer::new(precision);
            let y = w.features("y", batch, channels, extent);
            let x = if j == 1 { w.norm_act(y, i % 2 == 0) } else { y };
            let weights = w.weights(out, channels / groups, window.kernel);
            let bias = w.channels("bias", out);
            w.result(Conv::new(window, true, precision).grouped(groups), &[x, weights, bias]);
            let dy = w.features("dy", batch, out, output);
            let grad = ConvWeightGrad { window, groups };
            let dw = w.push(grad, &[x, dy])[0];
            // The norm sees what lies between the groups, too.
            w.result(GradNorm { loss: false }, &[dw]);
            w.program.mark_output(dw, "dw");
            let back = ConvTranspose {
                window,
                groups,
                first_channel: 0,
                channels,
                output: extent,
                dtype: precision,
                bias: j == 1,
            };
            let mut operands = vec![dy, weights];
            operands.extend((j == 1).then(|| w.channels("bias of the transpose", channels)));
            let known = (j == 2).then(|| w.features("known", batch, channels, extent));
            w.transpose(back, &operands, known);
            let name =
                format!("{groups} groups {channels}→{out} of {batch}×{extent:?}, {window:?}, {precision:?}");
            cases.push(w.maps(name));
        }
    }
    for (channels, out, groups) in [(3, 33, 3), (4, 34, 2), (6, 12, 3)] {
        let (window, extent) = (Window::same([3; 3], [1, 2, 1]), [3, 17, 5]);
        let mut w = Writer::new(precision);
        let image = w.image("image", 2, channels, extent);
        let weights = w.weights(out, channels / groups, window.kernel);
        w.result(Conv::new(window, false, precision).grouped(groups), &[image, weights]);
        let dy = w.features("dy", 2, out, window.output(extent).unwrap_or_default());
        let grad = ConvWeightGrad { window, groups };
        let dw = w.push(grad, &[image, dy])[0];
        w.result(GradNorm { loss: false }, &[dw]);
        w.program.mark_output(dw, "dw");
        cases.push(w.maps(format!("{groups} groups of an image {channels}→{out}, {precision:?}")));
    }
    cases
}

/// Depthwise convolutions, as MedNeXt has them: with stride 1, and between stages with stride 2, down and up.
pub fn depthwise(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    let flat = |kernel: usize| [1, kernel, kernel];
    for (i, (channels, window, extent)) in [
        (32, Window::same([3; 3], [1; 3]), [5, 19, 37]),
        (17, Window::same([3; 3], [2; 3]), [6, 9, 31]),
        (33, Window::same([5; 3], [1; 3]), [4, 7, 29]),
        (5, Window::same([5; 3], [2; 3]), [5, 8, 17]),
        (16, Window::same([7; 3], [1; 3]), [3, 4, 5]),
        (20, Window::same(flat(5), [1, 2, 2]), [1, 23, 18]),
        (48, Window::same(flat(3), [1; 3]), [1, 33, 20]),
    ]
    .into_iter()
    .enumerate()
    {
        let groups = channels;
        let Some(coarse) = window.output(extent) else { continue };
        let mut w = Writer::new(precision);
        let y = w.features("y", 2, channels, extent);
        let x = if i % 2 == 1 { w.norm_act(y, true) } else { y };
        let weights = w.weights(channels, 1, window.kernel);
        w.result(Conv::new(window, false, precision).grouped(groups), &[x, weights]);
        let dy = w.features("dy", 2, channels, coarse);
        w.result(ConvWeightGrad { window, groups }, &[x, dy]);
        // The gradient of the source, and the least extent, to which a decoder upsamples.
        for output in [Some(extent), window.transposed_output(coarse)].into_iter().flatten() {
            let back = ConvTranspose {
                window,
                groups,
                first_channel: 0,
                channels,
                output,
                dtype: precision,
                bias: false,
            };
            w.result(back, &[dy, weights]);
        }
        cases.push(w.maps(format!("depthwise {channels} of {extent:?}, {window:?}, {precision:?}")));
    }
    cases
}

/// Convolutions three wide, to results of widths that tiles of a row fill, do not fill, or run over.
pub fn convolutions_of_rows(precision: DType) -> Vec<Case> {
    let window = |kernel, padding| Window::new(kernel, [1; 3], padding);
    let windows = [
        Window::same([3; 3], [1; 3]),
        Window::same([1, 3, 3], [1; 3]),
        window([1, 1, 3], [0; 3]),
        window([2, 1, 3], [1, 0, 2]),
    ];
    let mut cases = Vec::new();
    for (i, width) in [1, 2, 3, 4, 5, 6, 7, 17, 30].into_iter().enumerate() {
        for (j, window) in windows.into_iter().enumerate() {
            let (channels, outputs) = [(1, 33), (33, 3), (15, 15), (3, 1)][(i + j) % 4];
            let maps = Maps { batch: 1, extent: [2, 9, width], channels, outputs };
            cases.extend(convolution(precision, window, maps, i % 2 == 0));
        }
    }
    // More chunks than tasks are wanted, and several blocks on either side.
    let maps = Maps { batch: 2, extent: [5, 23, 17], channels: 17, outputs: 33 };
    cases.extend(convolution(precision, windows[0], maps, true));
    // Rows of more tiles than a chunk has, and more blocks of the source than are summed at once.
    let maps = Maps { batch: 1, extent: [3, 5, 67], channels: 81, outputs: 17 };
    cases.extend(convolution(precision, windows[0], maps, true));
    cases
}

/// The maps of a convolution.
struct Maps {
    batch: usize,
    extent: [usize; 3],
    /// The channels of the first source.
    channels: usize,
    /// The channels of the result.
    outputs: usize,
}

/// A case of one convolution, with a second source or without; `None` if the window does not fit.
fn convolution(precision: DType, window: Window, maps: Maps, two: bool) -> Option<Case> {
    let Maps { batch, extent, channels, outputs: out } = maps;
    let output = window.output(extent)?;
    let mut w = Writer::new(precision);
    let mut sources = vec![w.features("a", batch, channels, extent)];
    let mut widths = vec![channels];
    if two {
        let b = w.features("b", batch, 5, extent);
        sources.push(match out % 3 {
            0 => w.normalise(b, Over::Instance, true).0,
            _ => w.norm_act(b, out % 2 == 1),
        });
        widths.push(5);
    }
    let weights = w.weights(out, widths.iter().sum(), window.kernel);
    let bias = w.channels("bias", out);
    let mut operands = sources.clone();
    operands.extend([weights, bias]);
    w.result(Conv::new(window, true, precision), &operands);
    let dy = w.features("dy", batch, out, output);
    sources.push(dy);
    let grad = ConvWeightGrad { window, groups: 1 };
    w.result(grad, &sources);
    let mut first_channel = 0;
    for (source, channels) in widths.iter().enumerate() {
        let known = (source == 0).then(|| w.features("known", batch, *channels, extent));
        let back = ConvTranspose {
            window,
            groups: 1,
            first_channel,
            channels: *channels,
            output: extent,
            dtype: precision,
            bias: false,
        };
        w.transpose(back, &[dy, weights], known);
        first_channel += channels;
    }
    let name = format!("convolution {channels}→{out} of {batch}×{extent:?}, {window:?}, {precision:?}");
    Some(w.maps(name))
}

/// Transposed convolutions as U-Nets go up with them: kernel = stride, a normalising load, a bias; and their gradients.
pub fn transposed(precision: DType) -> Vec<Case> {
    let strides = [[2, 2, 2], [1, 2, 2], [1, 1, 2], [3, 1, 2]];
    let mut cases = Vec::new();
    for (i, stride) in strides.into_iter().enumerate() {
        for (j, extent) in EXTENTS.into_iter().enumerate() {
            let (out, channels) = CHANNELS[(i + j) % CHANNELS.len()];
            let window = Window::blocks(stride);
            let output = [0, 1, 2].map(|axis| extent[axis] * stride[axis]);
            let mut w = Writer::new(precision);
            let y = w.features("y", 2, channels, extent);
            let z = w.norm_act(y, i % 2 == 0);
            let weights = w.weights(channels, out, stride);
            let bias = w.channels("bias", out);
            let up = ConvTranspose {
                window,
                groups: 1,
                first_channel: 0,
                channels: out,
                output,
                dtype: precision,
                bias: true,
            };
            w.result(up, &[z, weights, bias]);
            let du = w.features("du", 2, out, output);
            w.result(Conv::new(window, false, precision), &[du, weights]);
            let grad = ConvWeightGrad { window, groups: 1 };
            w.result(grad, &[du, z]);
            w.result(ChannelSum, &[du]);
            let name = format!("transposed {channels}→{out} of {extent:?} by {stride:?}, {precision:?}");
            cases.push(w.maps(name));
        }
    }
    cases
}

/// Transposed convolutions whose windows overlap, or leave voxels out, as layers of their own: upsampling with a bias, and all
/// gradients, of maps that are normalised on the way and of such that are not.
pub fn upsampling(precision: DType) -> Vec<Case> {
    let window = Window::new;
    let windows = [
        window([3; 3], [2; 3], [1; 3]),
        window([4; 3], [2; 3], [1; 3]),
        window([1, 3, 3], [1, 2, 2], [0, 1, 1]),
        window([5, 3, 2], [3, 1, 2], [0, 1, 0]),
        window([2; 3], [3; 3], [0; 3]),
        window([3; 3], [1; 3], [1; 3]),
        Window::point(),
    ];
    let mut cases = Vec::new();
    for (i, window) in windows.into_iter().enumerate() {
        for (j, extent) in EXTENTS.into_iter().chain([[1; 3]]).enumerate() {
            let (channels, out) = CHANNELS[(i + 2 * j) % CHANNELS.len()];
            // The largest extent that leads to the same result has zeroes at its end.
            let Some(least) = window.transposed_output(extent) else { continue };
            let larger = [0, 1, 2].map(|axis| least[axis] + (window.stride[axis] - 1) * (j % 2));
            let output = if window.output(larger) == Some(extent) { larger } else { least };
            let mut w = Writer::new(precision);
            let x = w.features("x", 2, channels, extent);
            let normalised = j % 2 == 0 && extent != [1; 3];
            let x = if normalised { w.norm_act(x, j % 4 == 0) } else { x };
            let weights = w.weights(channels, out, window.kernel);
            let bias = i % 2 == 0 || window == Window::point();
            let up = ConvTranspose {
                window,
                groups: 1,
                first_channel: 0,
                channels: out,
                output,
                bias,
                dtype: precision,
            };
            let mut operands = vec![x, weights];
            operands.extend(bias.then(|| w.channels("bias", out)));
            let known = (j % 3 == 0).then(|| w.features("known", 2, out, output));
            w.transpose(up, &operands, known);
            let du = w.features("du", 2, out, output);
            w.result(Conv::new(window, false, precision), &[du, weights]);
            w.result(ConvWeightGrad { window, groups: 1 }, &[du, x]);
            let name =
                format!("upsampling {channels}→{out} of {extent:?} to {output:?}, {window:?}, {precision:?}");
            cases.push(w.maps(name));
        }
    }
    cases
}
