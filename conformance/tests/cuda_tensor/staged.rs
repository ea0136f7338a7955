//! Maps that are normalised and activated where convolutions stage them.

use conformance::{Case, compare, expected, run};
use plimsoll_graph::ops::{
    Conv, ConvTranspose, ConvWeightGrad, LeakyRelu, LeakyReluGrad, NormStats, Normalise, NormaliseGrad, Over,
};
use plimsoll_graph::{DType, Kind, Program, Shape, TensorId, Window};
use plimsoll_plan::Options;

use crate::EVERY;
use crate::layers::volume;
use conformance::emulator::Blocks;

/// A convolution of maps that are normalised and activated first, some with scale and shift, with all gradients.
pub(crate) fn normalised(
    window: Window,
    batch: usize,
    extent: [usize; 3],
    channels: &[usize],
    outputs: usize,
    stored: DType,
) -> Case {
    let mut program = Program::new("normalised");
    let mut of_norms = Vec::new();
    let mut sources = Vec::new();
    for (i, channels) in channels.iter().copied().enumerate() {
        let y = volume(&mut program, &format!("y{i}"), Shape::volume(batch, channels, extent), stored);
        let over = if i == 0 { Over::Instance } else { Over::Group(2) };
        let mut operands = vec![y, program.push_one(NormStats { over, epsilon: 1e-5 }, &[y]).unwrap()];
        if i == 0 {
            for name in ["scale", "shift"] {
                operands.push(program.input(name, Shape(vec![channels]), Kind::Channels));
            }
        }
        let u = program.push_one(Normalise { affine: i == 0 }, &operands).unwrap();
        sources.push(program.push_one(LeakyRelu { slope: 0.1 }, &[u]).unwrap());
        of_norms.push((over, u, operands));
    }
    let [kd, kh, kw] = window.kernel;
    let shape = Shape(vec![outputs, channels.iter().sum(), kd, kh, kw]);
    let weights = program.input("weights", shape, Kind::Weights);
    let operands: Vec<TensorId> = sources.iter().copied().chain([weights]).collect();
    let y = program.push_one(Conv::new(window, false, stored), &operands).unwrap();
    program.mark_output(y, "y");
    let output = window.output(extent).unwrap();
    let dy = volume(&mut program, "dy", Shape::volume(batch, outputs, output), stored);
    let operands: Vec<TensorId> = sources.iter().copied().chain([dy]).collect();
    let dw = program.push_one(ConvWeightGrad { window, groups: 1 }, &operands).unwrap();
    program.mark_output(dw, "dw");
    let mut first_channel = 0;
    for (i, (over, u, operands)) in of_norms.into_iter().enumerate() {
        let channels = channels[i];
        let (output, dtype) = (extent, stored);
        let back = ConvTranspose { window, groups: 1, first_channel, channels, output, bias: false, dtype };
        let dz = program.push_one(back, &[dy, weights]).unwrap();
        let du = program.push_one(LeakyReluGrad { slope: 0.1 }, &[dz, u]).unwrap();
        let operands: Vec<TensorId> = [du].into_iter().chain(operands).collect();
        let dx = program.push(NormaliseGrad { over, affine: i == 0 }, &operands).unwrap()[0];
        program.mark_output(dx, format!("dx{i}"));
        first_channel += channels;
    }
    Case { depth: 2.0, ..Case::new(format!("normalised {channels:?}, {window:?}"), program, 1) }
}

/// A transposed convolution of a map that is normalised and activated first, and the gradient of its weights, of which the map is the "result".
fn upsampled(window: Window, extent: [usize; 3], [channels, outputs]: [usize; 2], stored: DType) -> Case {
    let mut program = Program::new("upsampled");
    let y = volume(&mut program, "y", Shape::volume(2, channels, extent), stored);
    let statistics = program.push_one(NormStats { over: Over::Instance, epsilon: 1e-5 }, &[y]).unwrap();
    let [scale, shift] =
        ["scale", "shift"].map(|name| program.input(name, Shape(vec![channels]), Kind::Channels));
    let u = program.push_one(Normalise { affine: true }, &[y, statistics, scale, shift]).unwrap();
    let z = program.push_one(LeakyRelu { slope: 0.01 }, &[u]).unwrap();
    let [kd, kh, kw] = window.kernel;
    let weights = program.input("weights", Shape(vec![channels, outputs, kd, kh, kw]), Kind::Weights);
    let bias = program.input("bias", Shape(vec![outputs]), Kind::Channels);
    let output = window.transposed_output(extent).unwrap();
    let (first_channel, dtype) = (0, stored);
    let up = ConvTranspose { window, groups: 1, first_channel, channels: outputs, output, bias: true, dtype };
    let x = program.push_one(up, &[z, weights, bias]).unwrap();
    program.mark_output(x, "x");
    let dx = volume(&mut program, "dx", Shape::volume(2, outputs, output), stored);
    let dw = program.push_one(ConvWeightGrad { window, groups: 1 }, &[dx, z]).unwrap();
    program.mark_output(dw, "dw");
    Case { depth: 2.0, ..Case::new(format!("upsampled {channels}→{outputs}, {window:?}"), program, 1) }
}

#[test]
fn maps_are_normalised_and_activated_where_they_are_staged_with_the_same_bits() {
    for cores in EVERY {
        let stored = cores.stored;
        let cases = [
            normalised(Window::same([3; 3], [1; 3]), 2, [5, 9, 11], &[24], 20, stored),
            normalised(Window::same([1, 3, 3], [1, 2, 2]), 2, [2, 9, 9], &[16, 8], 8, stored),
            normalised(Window::point(), 1, [3, 4, 9], &[40, 16], 17, stored),
            upsampled(Window::blocks([2; 3]), [3, 5, 6], [24, 16], stored),
            upsampled(Window::new([3; 3], [1, 2, 2], [1; 3]), [3, 4, 5], [40, 9], stored),
        ];
        for case in &cases {
            let (found, counts) = cores.tally(case);
            compare(case, &expected(case), &found, cores.tolerance());
            assert!(!counts.contains_key(&format!("normalise_{stored}")), "{}: {counts:?}", case.name);
            let shuffled = cores.backend(cores.emulator(Blocks::Shuffled(2)));
            let shuffled = run(&*shuffled, case, Options::default());
            assert!(found == shuffled, "{}: the order of blocks changes bits", case.name);
            let options = Options { inline: false, ..Options::default() };
            let separate = run(&*cores.backend(cores.emulator(Blocks::Ascending)), case, options);
            assert!(found == separate, "{}: stored", case.name);
        }
    }
}

/// A map is stored if its channels are not a whole number of pieces.
#[test]
fn maps_of_odd_channels_are_normalised_first() {
    for cores in EVERY {
        let case = normalised(Window::same([3; 3], [1; 3]), 1, [3, 5, 6], &[17], 8, cores.stored);
        let (found, counts) = cores.tally(&case);
        compare(&case, &expected(&case), &found, cores.tolerance());
        assert!(counts.contains_key(&format!("normalise_{}", cores.stored)), "{counts:?}");
    }
}
