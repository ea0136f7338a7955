//! Programs that are not well formed are refused, however they were built; so are gradients that would be wrong.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_graph::ops::{
    Accumulate, Add, CompositeLoss, Conv, ConvTranspose, Fill, HardCounts, LeakyRelu, Loss, NormStats,
    Normalise, OneHot, Over, OverlapSums, Probabilities, SoftDice, SoftRecall, WeightedSum,
};
use plimsoll_graph::{
    Array, DType, GraphError, Kind, Program, Role, Shape, TensorId, TensorInfo, Window, differentiate,
    interpret,
};

fn volume(p: &mut Program, name: &str) -> TensorId {
    p.input(name, Shape::volume(1, 2, [2, 3, 4]), Kind::Volume)
}

fn no_gradient(p: &mut Program, of: TensorId, by: TensorId) {
    let error = differentiate(p, of, 1.0, &[by]).unwrap_err();
    assert!(matches!(error, GraphError::NoGradient { .. }), "{error}");
}

#[test]
fn one_value_has_no_statistics_and_groups_must_divide_channels() {
    let mut p = Program::new("one");
    let x = p.input("x", Shape::volume(2, 3, [1; 3]), Kind::Volume);
    let sample = p.input("sample", Shape::volume(1, 3, [1; 3]), Kind::Volume);
    let mut said = |over, of| match p.push_one(NormStats { over, epsilon: 1e-5 }, &[of]) {
        Ok(_) => String::from("nothing"),
        Err(error) => error.to_string(),
    };
    assert!(said(Over::Instance, x).contains("one voxel has no variance"));
    assert!(said(Over::Group(3), x).contains("one voxel of one channel has no variance"));
    assert!(said(Over::Batch, sample).contains("one voxel of one sample has no variance"));
    assert_eq!(said(Over::Group(1), sample), "nothing");
    assert_eq!(said(Over::Batch, x), "nothing");
    for groups in [0, 2, 6, usize::MAX] {
        let said = said(Over::Group(groups), x);
        assert!(said.contains("groups is") && said.contains("must divide the 3 channels"), "{said}");
    }
}

#[test]
fn a_normalisation_by_foreign_statistics_has_no_gradient() {
    for given in [false, true] {
        let mut p = Program::new("foreign");
        let (x, other) = (volume(&mut p, "x"), volume(&mut p, "other"));
        let statistics = match given {
            true => p.input("statistics", Shape(vec![1, 2, 2]), Kind::Statistics),
            false => p.push_one(NormStats::instance(1e-5), &[other]).unwrap(),
        };
        let u = p.push_one(Normalise { affine: false }, &[x, statistics]).unwrap();
        no_gradient(&mut p, u, x);
    }
    let mut p = Program::new("own");
    let x = volume(&mut p, "x");
    let statistics = p.push_one(NormStats::instance(1e-5), &[x]).unwrap();
    let u = p.push_one(Normalise { affine: false }, &[x, statistics]).unwrap();
    assert!(differentiate(&mut p, u, 1.0, &[x]).is_err(), "the seed of a gradient is a table");
}

#[test]
fn a_loss_of_foreign_sums_has_no_gradient() {
    let mut p = Program::new("foreign");
    let logits = volume(&mut p, "logits");
    let labels = p.input("labels", Shape::volume(1, 1, [2, 3, 4]), Kind::Labels);
    let own = Loss::default();
    // Sums of squared probabilities look alike, but are others.
    let other = Loss::dice_ce(SoftDice { squared: true, ..SoftDice::default() }, 1.0);
    let sums = p.push_one(other.stats(), &[logits, labels]).unwrap();
    let loss = p.push_one(CompositeLoss { loss: own.clone() }, &[sums]).unwrap();
    no_gradient(&mut p, loss, logits);
    // Sums of the right op that went through another one.
    let sums = p.push_one(own.stats(), &[logits, labels]).unwrap();
    let halved = p.push_one(WeightedSum { weights: vec![0.5] }, &[sums]).unwrap();
    let loss = p.push_one(CompositeLoss { loss: own }, &[halved]).unwrap();
    no_gradient(&mut p, loss, logits);
}

#[test]
fn a_recall_of_a_predicted_part_has_no_gradient() {
    let mut p = Program::new("recall");
    let logits = volume(&mut p, "logits");
    let labels = p.input("labels", Shape::volume(1, 1, [2, 3, 4]), Kind::Labels);
    let x = p.push_one(Probabilities, &[logits]).unwrap();
    let t = p.push_one(OneHot { foreground: 1, ignore: None }, &[labels]).unwrap();
    let recall = SoftRecall { batch: false, smooth_numerator: 0.0, smooth_denominator: 0.0 };
    let mut of = |s, p_| {
        let sums = p.push_one(OverlapSums { by_channel: true }, &[s, p_]).unwrap();
        p.push_one(recall, &[sums]).unwrap()
    };
    let (sound, predicted) = (of(t, x), of(x, x));
    differentiate(&mut p.clone(), sound, 1.0, &[logits]).unwrap();
    no_gradient(&mut p, predicted, logits);
}

#[test]
fn a_transposed_convolution_of_some_channels_has_no_gradient() {
    let mut p = Program::new("part");
    let x = volume(&mut p, "x");
    let weights = p.parameter("w", Shape(vec![2, 5, 1, 1, 1]), Kind::Weights);
    let up = ConvTranspose {
        window: Window::point(),
        groups: 1,
        first_channel: 1,
        channels: 3,
        output: [2, 3, 4],
        bias: false,
        dtype: DType::F32,
    };
    let up = p.push_one(up, &[x, weights]).unwrap();
    no_gradient(&mut p, up, x);
}

/// A sound program: a convolution, an activation, an update of a state.
fn sound() -> Program {
    let mut p = Program::new("sound");
    let x = volume(&mut p, "x");
    let w = p.parameter("w", Shape(vec![2, 2, 1, 1, 1]), Kind::Weights);
    let state = p.state("state", Shape(vec![1]), Kind::Table);
    let y = p.push_one(Conv::new(Window::point(), false, DType::F32), &[x, w]).unwrap();
    let z = p.push_one(LeakyRelu { slope: 0.1 }, &[y]).unwrap();
    let one = p.push_one(Fill { value: 1.0, shape: Shape(vec![1]) }, &[]).unwrap();
    p.push(Accumulate, &[state, one]).unwrap();
    p.mark_output(z, "z");
    p.validate().unwrap();
    p
}

/// Asserts that a program is refused, by the interpreter too, with words.
fn refused(what: &str, words: &str, change: impl Fn(&mut Program)) {
    let mut p = sound();
    change(&mut p);
    let error = match p.validate() {
        Ok(()) => String::from("nothing"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(words), "{what}: {error}");
    assert!(interpret(&p, &Default::default()).is_err());
}

#[test]
fn programs_made_by_hand_are_checked() {
    const NOWHERE: TensorId = TensorId(99);
    refused("an operand that is not there", "`%99`", |p| p.nodes[0].inputs[0] = NOWHERE);
    refused("a result that is not there", "%99", |p| p.nodes[0].outputs[0] = NOWHERE);
    refused("a missing operand", "operands", |p| p.nodes[1].inputs.clear());
    refused("a missing result", "produces 1 results", |p| p.nodes[1].outputs.clear());
    refused("a result too many", "produces 1 results", |p| p.nodes[1].outputs.push(TensorId(5)));
    refused("a result of another shape", "produces", |p| p.tensors[3].shape = Shape::volume(1, 2, [2, 3, 5]));
    refused("a result of another dtype", "produces", |p| p.tensors[3].dtype = DType::Bf16);
    refused("a result of another kind", "produces", |p| {
        let like = p.tensors[0].shape.clone();
        p.tensors[3] = TensorInfo { kind: Kind::Weights, shape: like, ..p.tensors[3].clone() };
    });
    refused("an update of something else", "its operand 0", |p| p.nodes[3].outputs[0] = TensorId(1));
    refused("an update of what a node makes", "updates what is no parameter or state", |p| {
        p.nodes[3].inputs[0] = TensorId(5);
        p.nodes[3].outputs[0] = TensorId(5);
    });
    refused("an update of what is read as well", "updates what is no parameter or state of its own", |p| {
        p.nodes[3].inputs[1] = TensorId(2);
    });
    refused("a read before the write", "reads what was not yet written", |p| p.nodes.swap(0, 1));
    refused("an intermediate that no node makes", "reads what was not yet written", |p| {
        p.nodes.remove(0);
    });
    refused("a value that is written twice", "writes a second time", |p| {
        let node = p.nodes[1].clone();
        p.nodes.push(node);
    });
    refused("an input that is written", "writes a second time", |p| p.nodes[1].outputs[0] = TensorId(0));
    refused("an output that no node makes", "it is an output that no node makes", |p| {
        p.declare(TensorInfo { name: "lost".into(), role: Role::Output, ..p.tensors[0].clone() });
    });
    refused("a name that stands for two tensors", "another tensor has this name", |p| {
        p.tensors[1].name = "x".into();
    });
    refused("an output called like an input", "another tensor has this name", |p| {
        p.tensors[4].name = "x".into()
    });
    refused("a volume of f64", "there is no", |p| p.tensors[0].dtype = DType::F64);
    refused("weights of three axes", "there is no", |p| p.tensors[1].shape = Shape(vec![2, 2, 1]));
}

#[test]
fn absurd_shapes_are_refused() {
    for extents in [
        vec![1, 2, 0, 3, 4],
        vec![1, 2, usize::MAX, 3, 4],
        vec![usize::MAX; 5],
        vec![1 << 20; 5],
        vec![1, 1, 1 << 20, 1 << 20, 1 << 20],
    ] {
        refused(&format!("{extents:?}"), "invalid tensor", |p| p.tensors[0].shape = Shape(extents.clone()));
    }
    let mut p = Program::new("absurd");
    let x = volume(&mut p, "x");
    let large = p.input("large", Shape::volume(1, 2, [1 << 12; 3]), Kind::Volume);
    let w = p.input("w", Shape(vec![2, 2, 1, 1, 1]), Kind::Weights);
    let labels = p.input("labels", Shape::volume(1, 1, [2, 3, 4]), Kind::Labels);
    let conv = |window| Conv::new(window, false, DType::F32);
    let window = Window::new;
    let windows = [
        window([0; 3], [1; 3], [0; 3]),
        window([1; 3], [0; 3], [0; 3]),
        window([1; 3], [1; 3], [usize::MAX; 3]),
        window([1; 3], [1; 3], [usize::MAX / 2; 3]),
        window([1; 3], [1; 3], [1 << 30; 3]),
        window([usize::MAX; 3], [1; 3], [0; 3]),
        window([1; 3], [usize::MAX; 3], [usize::MAX; 3]),
    ];
    for window in windows {
        assert!(p.push(conv(window), &[x, w]).is_err(), "{window:?}");
        for (first_channel, channels, output, groups) in [
            (0, 2, [2, 3, 4], 1),
            (usize::MAX, 2, [2, 3, 4], 1),
            (1, usize::MAX, [2, 3, 4], 1),
            (0, 2, [usize::MAX; 3], 1),
            (0, 2, [2, 3, 4], usize::MAX),
            (0, 2, [2, 3, 4], 0),
        ] {
            let up = ConvTranspose {
                window,
                groups,
                first_channel,
                channels,
                output,
                bias: false,
                dtype: DType::F32,
            };
            assert!(p.push(up.clone(), &[x, w]).is_err(), "{up:?}");
        }
    }
    for groups in [0, 3, usize::MAX] {
        assert!(p.push(conv(Window::point()).grouped(groups), &[x, w]).is_err());
    }
    // The result would be larger than any memory.
    let padded = window([1; 3], [1; 3], [1 << 18; 3]);
    assert!(p.push(conv(padded), &[large, w]).is_err());
    for foreground in [0, usize::MAX, 1 << 40] {
        assert!(p.push(OneHot { foreground, ignore: None }, &[labels]).is_err(), "{foreground}");
    }
    assert!(p.push(Fill { value: 0.0, shape: Shape(vec![usize::MAX, usize::MAX]) }, &[]).is_err());
    assert!(p.push(Fill { value: 0.0, shape: Shape(vec![0]) }, &[]).is_err());
    assert_eq!(p.nodes.len(), 0);
}

#[test]
fn counts_are_f64() {
    let mut p = Program::new("counts");
    let logits = volume(&mut p, "logits");
    let labels = p.input("labels", Shape::volume(1, 1, [2, 3, 4]), Kind::Labels);
    let counts = p.push_one(HardCounts { ignore: None }, &[logits, labels]).unwrap();
    assert_eq!(p.tensor(counts).dtype, DType::F64);
    assert!(p.push(Add, &[labels, labels]).is_err());
}

#[test]
fn a_value_of_another_shape_is_refused() {
    let p = sound();
    let mut values: std::collections::HashMap<String, Array> =
        [0, 1, 2].map(|at| (p.tensors[at].name.clone(), Array::zeros(p.tensors[at].shape.clone()))).into();
    interpret(&p, &values).unwrap();
    values.insert("x".into(), Array::zeros(Shape::volume(1, 2, [2, 3, 5])));
    assert!(matches!(interpret(&p, &values), Err(GraphError::MissingValue { .. })));
}
