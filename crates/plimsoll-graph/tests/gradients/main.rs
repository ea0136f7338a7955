//! Gradients against finite differences of the f64 definitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod losses;
mod tokens;

use std::collections::HashMap;

use plimsoll_graph::ops::{
    Activation, Add, AvgPool, BoundaryL1, BoxExtreme, ClDice, Component, CompositeLoss, Conv, ConvTranspose,
    Counted, CrossEntropy, CrossErosion, DistanceLoss, DistanceTerm, DownsampleLabels, Dropout, Extreme,
    Focal, FocalTversky, Gate, GeneralizedDice, GlobalMean, LeakyRelu, Loss, MaxPool, MeanDifference,
    MeanPool, NOISE, NormStats, Normalise, OneHot, Over, OverlapSums, PredictedDistance, Probabilities,
    Sigmoid, SkeletonStep, SoftDice, SoftRecall, Subpixel, SurfaceForm, Tversky, Union, Upsample2,
    UpsampleAligned, VolumeWeight, WeightedBce, WeightedSum, ZeroClass,
};
use plimsoll_graph::{
    Array, DType, GraphError, Kind, Op, Program, Role, Shape, TensorId, TensorInfo, Window, differentiate,
    interpret,
};

type Values = HashMap<String, Array>;

/// Numbers that look random and are the same everywhere.
fn noise(seed: usize, i: usize) -> f64 {
    let x = ((seed * 7919 + i * 104_729) as f64 * 0.618_033_988_7).fract();
    2.0 * x - 1.0
}

fn values_for(program: &Program, classes: usize) -> Values {
    let mut values = Values::new();
    for id in program.ids() {
        let tensor = program.tensor(id);
        if tensor.role != Role::Intermediate && tensor.role != Role::Output {
            let array = Array::from_fn(tensor.shape.clone(), |i| match tensor.kind {
                Kind::Labels => ((noise(1, i) + 1.0) / 2.0 * classes as f64).floor(),
                Kind::Channels => 1.0 + 0.3 * noise(id.index(), i),
                // The numbers above repeat almost, which a least neighbour would trip over.
                _ if tensor.name == "logits" => noise(id.index(), i) + (i as f64).sqrt().sin(),
                _ => noise(id.index(), i),
            });
            values.insert(tensor.name.clone(), array);
        }
    }
    values
}

/// Compares the gradients of `loss` by every parameter, and by the image, with central differences.
fn check(mut program: Program, loss: TensorId, classes: usize) {
    let mut wanted: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let is_image = |id: &TensorId| {
        let tensor = program.tensor(*id);
        tensor.kind == Kind::Volume && tensor.name != "distances"
    };
    wanted.extend(program.with_role(Role::Input).filter(is_image));
    let forward = program.clone();
    let gradients = differentiate(&mut program, loss, 0.5, &wanted).unwrap();
    program.validate().unwrap();
    let values = values_for(&program, classes);
    let run = interpret(&program, &values).unwrap();
    let value = |values: &Values| interpret(&forward, values).unwrap()[loss.index()].data[0];
    let step = 1e-5;
    for (id, gradient) in wanted.iter().zip(gradients) {
        let gradient = &run[gradient.unwrap().index()];
        let name = &program.tensor(*id).name;
        let count = gradient.data.len();
        let mut scale = 0.0f64;
        let mut worst = 0.0f64;
        for place in (0..count).step_by((count / 12).max(1)) {
            let mut shifted = values.clone();
            shifted.get_mut(name).unwrap().data[place] += step;
            let up = value(&shifted);
            shifted.get_mut(name).unwrap().data[place] -= 2.0 * step;
            let expected = 0.5 * (up - value(&shifted)) / (2.0 * step);
            scale = scale.max(expected.abs());
            worst = worst.max((gradient.data[place] - expected).abs());
        }
        assert!(scale > 1e-7, "{name}: the check sees no gradient");
        assert!(worst <= 2e-5 * scale + 1e-9, "{name}: off by {worst:e} of {scale:e}");
    }
}

/// The loss of logits.
fn loss_of(p: &mut Program, loss: Loss, logits: TensorId, labels: TensorId) -> Result<TensorId, GraphError> {
    let sums = p.push_one(loss.stats(), &[logits, labels])?;
    Ok(p.push(CompositeLoss { loss }, &[sums])?[0])
}

fn weights(p: &mut Program, name: &str, out: usize, sources: &[usize], k: [usize; 3]) -> TensorId {
    let [kd, kh, kw] = k;
    let shape = Shape(vec![out, sources.iter().sum(), kd, kh, kw]);
    p.parameter(name, shape, Kind::Weights)
}

fn norm_act(p: &mut Program, y: TensorId, name: &str) -> Result<TensorId, GraphError> {
    let channels = Shape(vec![p.shape(y).channels()]);
    let scale = p.parameter(format!("{name}.weight"), channels.clone(), Kind::Channels);
    let shift = p.parameter(format!("{name}.bias"), channels, Kind::Channels);
    let statistics = p.push_one(NormStats::instance(1e-5), &[y])?;
    let u = p.push_one(Normalise { affine: true }, &[y, statistics, scale, shift])?;
    p.push_one(LeakyRelu { slope: 0.01 }, &[u])
}

/// A U-Net of two levels with deep supervision: every way that gradients take through one.
fn small_unet(loss: &Loss) -> Result<(Program, TensorId), GraphError> {
    let mut p = Program::new("unet");
    let classes = 3;
    let image = p.input("image", Shape::volume(2, 2, [4, 4, 6]), Kind::Volume);
    let labels = p.input("labels", Shape::volume(2, 1, [4, 4, 6]), Kind::Labels);
    let w0 = weights(&mut p, "w0", 3, &[2], [3, 3, 3]);
    let y0 = p.push_one(Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32), &[image, w0])?;
    let z0 = norm_act(&mut p, y0, "n0")?;
    let w1 = weights(&mut p, "w1", 4, &[3], [1, 3, 3]);
    let window = Window::same([1, 3, 3], [1, 2, 2]);
    let y1 = p.push_one(Conv::new(window, false, DType::F32), &[z0, w1])?;
    let noise = p.input("noise", Shape(vec![NOISE]), Kind::Table);
    let y1 = p.push_one(Dropout { p: 0.2, layer: 1, whole_channels: false }, &[y1, noise])?;
    let z1 = norm_act(&mut p, y1, "n1")?;
    let w2 = weights(&mut p, "up", 4, &[3], [1, 2, 2]);
    let b2 = p.parameter("up.bias", Shape(vec![3]), Kind::Channels);
    let up = ConvTranspose {
        window: Window::blocks([1, 2, 2]),
        groups: 1,
        first_channel: 0,
        channels: 3,
        output: [4, 4, 6],
        dtype: DType::F32,
        bias: true,
    };
    let up = p.push_one(up, &[z1, w2, b2])?;
    let w3 = weights(&mut p, "w3", 3, &[3, 3], [3, 1, 3]);
    let y3 = p.push_one(Conv::new(Window::same([3, 1, 3], [1; 3]), false, DType::F32), &[up, z0, w3])?;
    let z3 = norm_act(&mut p, y3, "n3")?;
    let mut losses = Vec::new();
    for (name, features, output) in [("head", z3, None), ("deep", z1, Some([4, 2, 3]))] {
        let channels = p.shape(features).channels();
        let w = weights(&mut p, name, classes, &[channels], [1; 3]);
        let b = p.parameter(format!("{name}.bias"), Shape(vec![classes]), Kind::Channels);
        let logits = p.push_one(Conv::new(Window::point(), true, DType::F32), &[features, w, b])?;
        let target = match output {
            Some(output) => p.push_one(DownsampleLabels { output }, &[labels])?,
            None => labels,
        };
        let sums = p.push_one(loss.stats(), &[logits, target])?;
        losses.push(p.push(CompositeLoss { loss: loss.clone() }, &[sums])?[0]);
    }
    let loss = p.push_one(WeightedSum { weights: vec![0.7, 0.3] }, &losses)?;
    Ok((p, loss))
}

/// A convolution, a normalisation, and a head, whose logits a loss reads.
fn normalised(over: Over, affine: bool) -> (Program, TensorId) {
    let (mut p, extent) = (Program::new("normalised"), [2, 3, 4]);
    let image = p.input("image", Shape::volume(3, 1, extent), Kind::Volume);
    let labels = p.input("labels", Shape::volume(3, 1, extent), Kind::Labels);
    let w = weights(&mut p, "w", 4, &[1], [3; 3]);
    let y = p.push_one(Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32), &[image, w]).unwrap();
    let mut operands = vec![y, p.push_one(NormStats { over, epsilon: 0.1 }, &[y]).unwrap()];
    if affine {
        operands.extend(["scale", "shift"].map(|name| p.parameter(name, Shape(vec![4]), Kind::Channels)));
    }
    let u = p.push_one(Normalise { affine }, &operands).unwrap();
    let z = p.push_one(LeakyRelu { slope: 0.3 }, &[u]).unwrap();
    let w = weights(&mut p, "head", 2, &[4], [1; 3]);
    let logits = p.push_one(Conv::new(Window::point(), false, DType::F32), &[z, w]).unwrap();
    let sums = p.push_one(Loss::default().stats(), &[logits, labels]).unwrap();
    let loss = p.push(CompositeLoss { loss: Loss::default() }, &[sums]).unwrap()[0];
    (p, loss)
}

#[test]
fn normalisations_over_channels_groups_of_them_and_the_batch() {
    for over in [Over::Instance, Over::Group(1), Over::Group(2), Over::Group(4), Over::Batch] {
        for affine in [false, true] {
            let (program, loss) = normalised(over, affine);
            check(program, loss, 2);
        }
    }
}

#[test]
fn groups_of_one_channel_are_instances_and_so_is_a_batch_of_one_sample() {
    let values = |over, batch| {
        let mut p = Program::new("statistics");
        let y = p.input("y", Shape::volume(batch, 3, [2, 3, 4]), Kind::Volume);
        let statistics = p.push_one(NormStats { over, epsilon: 1e-5 }, &[y]).unwrap();
        let values = values_for(&p, 0);
        interpret(&p, &values).unwrap()[statistics.index()].data.clone()
    };
    assert_eq!(values(Over::Group(3), 2), values(Over::Instance, 2));
    assert_eq!(values(Over::Batch, 1), values(Over::Instance, 1));
    // The mean of all channels equals the mean of the channels' means.
    let [one, each] = [Over::Group(1), Over::Instance].map(|over| values(over, 1));
    assert!((one[0] - (each[0] + each[2] + each[4]) / 3.0).abs() < 1e-12);
    assert_eq!(one[..2], one[4..]);
}

/// A map that is resampled between a convolution and a head.
fn resampled(op: &Op, channels: usize, extent: [usize; 3]) -> (Program, TensorId) {
    let mut p = Program::new("resampled");
    let image = p.input("image", Shape::volume(2, 1, extent), Kind::Volume);
    let w = weights(&mut p, "w", channels, &[1], [3; 3]);
    let y = p.push_one(Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32), &[image, w]).unwrap();
    let mut operands = vec![y];
    if let Op::Dropout(_) = op {
        operands.push(p.input("noise", Shape(vec![NOISE]), Kind::Table));
    }
    let y = p.push_one(op.clone(), &operands).unwrap();
    let (channels, extent) = (p.shape(y).channels(), p.shape(y).spatial());
    let labels = p.input("labels", Shape::volume(2, 1, extent), Kind::Labels);
    let w = weights(&mut p, "head", 2, &[channels], [1; 3]);
    let logits = p.push_one(Conv::new(Window::point(), false, DType::F32), &[y, w]).unwrap();
    let sums = p.push_one(Loss::default().stats(), &[logits, labels]).unwrap();
    let loss = p.push(CompositeLoss { loss: Loss::default() }, &[sums]).unwrap()[0];
    (p, loss)
}

#[test]
fn means_over_windows_interpolation_channels_to_voxels_and_dropped_channels() {
    let ops: [(Op, [usize; 3]); 8] = [
        (AvgPool { window: [2; 3] }.into(), [4, 4, 6]),
        (AvgPool { window: [1, 2, 3] }.into(), [2, 5, 8]),
        (Upsample2 { axes: [true; 3] }.into(), [2, 3, 4]),
        (Upsample2 { axes: [false, true, false] }.into(), [2, 3, 4]),
        (Upsample2 { axes: [false, true, true] }.into(), [1, 4, 3]),
        (Subpixel { axes: [true; 3] }.into(), [2, 3, 2]),
        (Subpixel { axes: [false, true, true] }.into(), [1, 3, 4]),
        (Dropout { p: 0.4, layer: 3, whole_channels: true }.into(), [2, 3, 4]),
    ];
    for (op, extent) in ops {
        let (program, loss) = resampled(&op, 8, extent);
        check(program, loss, 2);
    }
}

/// Values of an op on numbers 0, 1, 2, … of a shape.
fn values_on_counts(op: &Op, shape: Shape) -> Vec<f64> {
    let count = Array::from_fn(shape.clone(), |i| i as f64);
    let info =
        TensorInfo { name: "x".into(), shape, dtype: DType::F32, role: Role::Input, kind: Kind::Volume };
    let result = op.rule().infer(&[&info]).unwrap()[0].shape.clone();
    op.rule().evaluate(&[&count], &[result]).remove(0).data
}

/// `torch.nn.AvgPool3d`, `torch.nn.Upsample(scale_factor=2, mode="trilinear")` and MONAI's `pixelshuffle` with its padding and pooling, on
/// `torch.arange(n).reshape(shape)`.
#[test]
fn resampled_maps_are_those_of_pytorch() {
    let pool = AvgPool { window: [1, 2, 2] }.into();
    assert_eq!(values_on_counts(&pool, Shape::volume(1, 1, [1, 3, 5])), [3.0, 5.0]);
    let up = Upsample2 { axes: [false, false, true] }.into();
    assert_eq!(values_on_counts(&up, Shape::volume(1, 1, [1, 1, 3])), [0.0, 0.25, 0.75, 1.25, 1.75, 2.0]);
    let up = Upsample2 { axes: [false, true, true] }.into();
    let of_four = values_on_counts(&up, Shape::volume(1, 1, [1, 2, 2]));
    assert_eq!(of_four[..8], [0.0, 0.25, 0.75, 1.0, 0.5, 0.75, 1.25, 1.5]);
    // With align_corners=True: 2 · 4 / 9, 2 · 5 / 9 and so on, and the corners are fixed.
    let up = UpsampleAligned { axes: [false, false, true] }.into();
    let of_three = values_on_counts(&up, Shape::volume(1, 1, [1, 1, 3]));
    assert!(
        of_three
            .iter()
            .zip([0.0, 0.4, 0.8, 1.2, 1.6, 2.0])
            .all(|(found, expected)| (found - expected).abs() < 1e-12)
    );
    let up = UpsampleAligned { axes: [true, true, false] }.into();
    let of_four = values_on_counts(&up, Shape::volume(1, 1, [2, 2, 1]));
    assert!(
        (of_four[1] - 1.0 / 3.0).abs() < 1e-12
            && (of_four[4] - 2.0 / 3.0).abs() < 1e-12
            && of_four[15] == 3.0
    );
    let subpixel = Subpixel { axes: [false, true, true] }.into();
    let of_eight = values_on_counts(&subpixel, Shape::volume(1, 4, [1, 1, 2]));
    // The shuffled rows are 0 2 1 3 and 4 6 5 7, before the means over two places along both.
    assert_eq!(of_eight, [0.0, 0.5, 0.75, 1.0, 1.0, 3.0, 3.5, 4.0]);
}

#[test]
fn a_unet_with_deep_supervision() {
    let (program, loss) = small_unet(&Loss::default()).unwrap();
    check(program, loss, 3);
}

#[test]
fn a_unet_with_batch_dice_without_background_squared_and_a_label_ignored() {
    let dice = SoftDice {
        weight: 0.6,
        batch: true,
        include_background: false,
        squared: true,
        ..SoftDice::default()
    };
    let loss = Loss { ignore: Some(1), ..Loss::dice_ce(dice, 1.3) };
    let (program, loss) = small_unet(&loss).unwrap();
    check(program, loss, 3);
}

/// Every component, with options that its defaults leave out.
fn components() -> Vec<Component> {
    let dice = SoftDice { class_weights: vec![0.5, 1.0, 2.0], ..SoftDice::default() };
    let without_background = SoftDice { include_background: false, squared: true, ..SoftDice::default() };
    let tversky = Tversky { alpha: 0.3, beta: 0.7, ..Tversky::default() };
    let bce = WeightedBce { pos_weight: 2.8, ..WeightedBce::default() };
    let sigmoid = Activation::Sigmoid;
    let focal = Focal { alpha: Some(0.25), class_weights: vec![1.0, 0.5, 2.0], ..Focal::default() };
    vec![
        Component::SoftDice(dice.clone()),
        Component::SoftDice(SoftDice { batch: true, squared: true, ..dice.clone() }),
        Component::LogCoshDice(without_background),
        Component::GeneralizedDice(GeneralizedDice::default()),
        Component::GeneralizedDice(GeneralizedDice {
            batch: true,
            include_background: false,
            volume_weight: VolumeWeight::Simple,
            ..GeneralizedDice::default()
        }),
        Component::Tversky(tversky.clone()),
        Component::Tversky(Tversky { batch: true, include_background: false, ..tversky }),
        Component::FocalTversky(FocalTversky::default()),
        Component::FocalTversky(FocalTversky {
            gamma: 0.5,
            include_background: false,
            ..FocalTversky::default()
        }),
        Component::CrossEntropy(CrossEntropy {
            class_weights: vec![0.2, 1.0, 3.0],
            ..CrossEntropy::default()
        }),
        Component::CrossEntropy(CrossEntropy {
            class_weights: vec![0.2, 1.0, 3.0],
            label_smoothing: 0.2,
            ..CrossEntropy::default()
        }),
        Component::CrossEntropy(CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() }),
        Component::WeightedBce(bce.clone()),
        Component::WeightedBce(WeightedBce { activation: sigmoid, include_background: true, ..bce.clone() }),
        Component::WeightedBce(WeightedBce { class_weights: vec![0.2, 1.0, 3.0], ..bce }),
        Component::Focal(focal.clone()),
        Component::Focal(Focal { gamma: 1.5, alpha: None, include_background: false, ..focal.clone() }),
        Component::Focal(Focal { activation: sigmoid, ..focal.clone() }),
        Component::Focal(Focal { activation: sigmoid, gamma: 0.7, include_background: false, ..focal }),
    ]
}

#[test]
fn every_component_with_deep_supervision_with_and_without_a_label_ignored() {
    for (i, component) in components().into_iter().enumerate() {
        let loss = Loss { ignore: (i % 2 == 1).then_some(2), ..Loss::new(vec![component]) };
        let (program, loss) = small_unet(&loss).unwrap();
        check(program, loss, 3);
    }
}

#[test]
fn all_components_together() {
    let loss = Loss { ignore: Some(0), ..Loss::new(components()) };
    let (program, loss) = small_unet(&loss).unwrap();
    check(program, loss, 3);
}

#[test]
fn a_residual_block_with_odd_extents() {
    let build = || -> Result<(Program, TensorId), GraphError> {
        let mut p = Program::new("residual");
        let image = p.input("image", Shape::volume(1, 1, [5, 3, 7]), Kind::Volume);
        let labels = p.input("labels", Shape::volume(1, 1, [3, 2, 4]), Kind::Labels);
        let w0 = weights(&mut p, "w0", 3, &[1], [3, 3, 3]);
        let window = Window::same([3; 3], [2; 3]);
        let x = p.push_one(Conv::new(window, false, DType::F32), &[image, w0])?;
        let w1 = weights(&mut p, "w1", 3, &[3], [3, 3, 3]);
        let y = p.push_one(Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32), &[x, w1])?;
        let sum = p.push_one(Add, &[y, x])?;
        let z = p.push_one(LeakyRelu { slope: 0.1 }, &[sum])?;
        let w2 = weights(&mut p, "head", 2, &[3], [1; 3]);
        let logits = p.push_one(Conv::new(Window::point(), false, DType::F32), &[z, w2])?;
        let loss = loss_of(&mut p, Loss::default(), logits, labels)?;
        Ok((p, loss))
    };
    let (program, loss) = build().unwrap();
    check(program, loss, 2);
}

#[test]
fn a_squeeze_and_excitation_of_max_pooled_voxels() {
    for ceil in [false, true] {
        let build = || -> Result<(Program, TensorId), GraphError> {
            let mut p = Program::new("squeeze");
            let image = p.input("image", Shape::volume(2, 2, [3, 8, 5]), Kind::Volume);
            let labels = p.input("labels", Shape::volume(2, 1, [1; 3]), Kind::Labels);
            let w0 = weights(&mut p, "w0", 4, &[2], [1; 3]);
            let x = p.push_one(Conv::new(Window::point(), false, DType::F32), &[image, w0])?;
            let padding = if ceil { [0; 3] } else { [0, 1, 1] };
            let window = Window::new([1, 3, 3], [1, 2, 2], padding);
            let x = p.push_one(MaxPool { window, ceil }, &[x])?;
            let mean = p.push_one(GlobalMean, &[x])?;
            let w1 = weights(&mut p, "w1", 4, &[4], [1; 3]);
            let bias = p.parameter("bias", Shape(vec![4]), Kind::Channels);
            let s = p.push_one(Conv::new(Window::point(), true, DType::F32), &[mean, w1, bias])?;
            let s = p.push_one(Sigmoid, &[s])?;
            let gated = p.push_one(Gate, &[x, s])?;
            let sum = p.push_one(Add, &[gated, x])?;
            let z = p.push_one(LeakyRelu { slope: 0.0 }, &[sum])?;
            let mean = p.push_one(GlobalMean, &[z])?;
            let w2 = weights(&mut p, "head", 3, &[4], [1; 3]);
            let logits = p.push_one(Conv::new(Window::point(), false, DType::F32), &[mean, w2])?;
            let loss = Loss::new(vec![Component::CrossEntropy(CrossEntropy::default())]);
            let loss = loss_of(&mut p, loss, logits, labels)?;
            Ok((p, loss))
        };
        let (program, loss) = build().unwrap();
        check(program, loss, 3);
    }
}

#[test]
fn convolutions_in_groups_there_and_back() {
    let build = || -> Result<(Program, TensorId), GraphError> {
        let mut p = Program::new("groups");
        let image = p.input("image", Shape::volume(1, 2, [4, 3, 6]), Kind::Volume);
        let labels = p.input("labels", Shape::volume(1, 1, [4, 3, 6]), Kind::Labels);
        let grouped =
            |p: &mut Program, x, name: &str, [channels, out, groups]: [usize; 3], window: Window| {
                let [d, h, w] = window.kernel;
                let weights = p.parameter(name, Shape(vec![out, channels / groups, d, h, w]), Kind::Weights);
                p.push_one(Conv::new(window, false, DType::F32).grouped(groups), &[x, weights])
            };
        let x = grouped(&mut p, image, "of the image", [2, 4, 2], Window::same([3; 3], [1; 3]))?;
        let y = grouped(&mut p, x, "depthwise", [4, 4, 4], Window::same([1, 3, 3], [1; 3]))?;
        let z = grouped(&mut p, y, "strided", [4, 6, 2], Window::same([3, 1, 3], [2, 1, 1]))?;
        let weights = p.parameter("up", Shape(vec![6, 3, 2, 1, 1]), Kind::Weights);
        let bias = p.parameter("up.bias", Shape(vec![9]), Kind::Channels);
        let up = ConvTranspose {
            window: Window::blocks([2, 1, 1]),
            groups: 3,
            first_channel: 0,
            channels: 9,
            output: [4, 3, 6],
            dtype: DType::F32,
            bias: true,
        };
        let up = p.push_one(up, &[z, weights, bias])?;
        let head = self::weights(&mut p, "head", 2, &[9], [1; 3]);
        let logits = p.push_one(Conv::new(Window::point(), false, DType::F32), &[up, head])?;
        let loss = loss_of(&mut p, Loss::default(), logits, labels)?;
        Ok((p, loss))
    };
    let (program, loss) = build().unwrap();
    check(program, loss, 2);
}

#[test]
fn what_does_not_fit_is_refused_with_the_shapes() {
    let mut p = Program::new("bad");
    let image = p.input("image", Shape::volume(1, 2, [4, 4, 4]), Kind::Volume);
    let w = weights(&mut p, "w", 3, &[1], [3, 3, 3]);
    let conv = Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32);
    assert!(matches!(p.push(conv.clone(), &[image, w]), Err(GraphError::Shape { .. })));
    assert!(matches!(p.push(conv, &[image]), Err(GraphError::OperandCount { .. })));
    let two = weights(&mut p, "two", 3, &[2], [3, 3, 3]);
    let grouped = Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32).grouped(2);
    assert_eq!(
        p.push(grouped, &[image, two]).unwrap_err().to_string(),
        "conv: groups is 2, but must divide the inputs [2] and the 3 outputs, and be 1 with several sources"
    );
    let other = p.input("other", Shape::volume(1, 2, [4, 4, 5]), Kind::Volume);
    let error = p.push(Add, &[image, other]).unwrap_err();
    assert_eq!(error.to_string(), "add: the second operand has shape [1×2×4×4×5], but [1×2×4×4×4] is needed");
}
