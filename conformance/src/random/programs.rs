//! Random programs, and sets of them that share parameters and states.

use std::collections::HashMap;

use plimsoll_graph::ops::{
    Accumulate, AdamW, Add, CompositeLoss, Conv, ConvTranspose, Dropout, HardCounts, LeakyRelu, Loss, NOISE,
    NormStats, NormUse, Normalise, RATES,
};
use plimsoll_graph::{Array, DType, Kind, Node, Op, Program, Role, Shape, TensorId, Window, differentiate};

/// Knuth's MMIX generator.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// One of some; none if there are none.
    pub fn one_of<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())].clone())
    }
}

const FINE: [usize; 3] = [2, 4, 6];
const COARSE: [usize; 3] = [1, 2, 3];

const ADAMW: AdamW = AdamW {
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-6,
    weight_decay: 0.1,
    coupled: false,
    rate_factor: 1.0,
    norm: NormUse::Unread,
    clear: true,
};

/// Some programs of a training: the same network in all of them.
pub fn set(random: &mut Random) -> Vec<Program> {
    let network = random.clone();
    random.below(2);
    let gradients = gradients(&mut network.clone());
    match random.below(5) {
        0 => vec![gradients],
        1 => vec![validate(&mut network.clone()), gradients],
        2 => vec![gradients.clone(), update(&gradients), validate(&mut network.clone())],
        3 => vec![update(&gradients), gradients],
        _ => vec![step(&gradients), validate(&mut network.clone())],
    }
}

/// A network that no one would train: convolutions over one or two maps, strided and transposed ones, normalisations,
/// sums, activations, dropout, in any order over any maps. Its logits.
fn network(program: &mut Program, random: &mut Random) -> TensorId {
    let dtype = if random.below(2) == 0 { DType::F32 } else { DType::Bf16 };
    let image = program.input("image", Shape::volume(1, 1, FINE), Kind::Volume);
    let noise = program.input("noise", Shape(vec![NOISE]), Kind::Table);
    let mut maps = vec![conv(program, random, &[image], [1; 3], dtype)];
    for layer in 0..3 + random.below(8) {
        let map = maps[random.below(maps.len())];
        let alike = |program: &Program, same: fn(&Shape) -> Shape, random: &mut Random| {
            let wanted = same(program.shape(map));
            let alike: Vec<TensorId> =
                maps.iter().copied().filter(|id| same(program.shape(*id)) == wanted).collect();
            alike[random.below(alike.len())]
        };
        let is_fine = program.shape(map).spatial() == FINE;
        let made = match random.below(9) {
            0 | 1 => conv(program, random, &[map], [1; 3], dtype),
            2 => {
                let other = alike(program, |shape| Shape(shape.spatial().to_vec()), random);
                conv(program, random, &[map, other], [1; 3], dtype)
            }
            3 if is_fine => conv(program, random, &[map], [2; 3], dtype),
            3 => up(program, map, dtype),
            4 => {
                let other = alike(program, Shape::clone, random);
                program.push_one(Add, &[map, other]).unwrap()
            }
            5 => program.push_one(LeakyRelu { slope: 0.1 }, &[map]).unwrap(),
            6 => program
                .push_one(Dropout { p: 0.3, layer: layer as u32, whole_channels: false }, &[map, noise])
                .unwrap(),
            _ => normalised(program, random, map),
        };
        maps.push(made);
    }
    let last = maps[maps.len() - 1];
    let last = if program.shape(last).spatial() == FINE { last } else { up(program, last, dtype) };
    let weights = weights(program, 2, &[last], [1; 3]);
    program.push_one(Conv::new(Window::point(), false, DType::F32), &[last, weights]).unwrap()
}

fn labels(program: &mut Program) -> TensorId {
    program.input("labels", Shape::volume(1, 1, FINE), Kind::Labels)
}

fn gradients(random: &mut Random) -> Program {
    let mut program = Program::new("gradients");
    let logits = network(&mut program, random);
    let labels = labels(&mut program);
    let loss = Loss::default();
    let sums = program.push_one(loss.stats(), &[logits, labels]).unwrap();
    let loss = program.push(CompositeLoss { loss }, &[sums]).unwrap()[0];
    program.mark_output(loss, "loss");
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let gradients = differentiate(&mut program, loss, 1.0, &parameters).unwrap();
    for (parameter, gradient) in parameters.into_iter().zip(gradients) {
        let Some(gradient) = gradient else { continue };
        let info = program.tensor(parameter).clone();
        let sum = program.state(format!("{}/gradient", info.name), info.shape, info.kind);
        program.push(Accumulate, &[sum, gradient]).unwrap();
    }
    program
}

/// Updates all parameters that have a gradient in another program.
fn add_updates(program: &mut Program, gradients: &Program) {
    let rates = program.input("rates", Shape(vec![RATES]), Kind::Table);
    for id in gradients.with_role(Role::Parameter) {
        let info = gradients.tensor(id).clone();
        if gradients.find(&format!("{}/gradient", info.name)).is_none() {
            continue;
        }
        let mut operands = vec![program.parameter(&info.name, info.shape.clone(), info.kind)];
        for state in ["gradient", "first", "second"] {
            operands.push(program.state(format!("{}/{state}", info.name), info.shape.clone(), info.kind));
        }
        operands.push(rates);
        program.push(ADAMW, &operands).unwrap();
    }
}

fn update(gradients: &Program) -> Program {
    let mut program = Program::new("update");
    add_updates(&mut program, gradients);
    program
}

/// Gradients and update in one, each parameter updated as soon as nobody needs its old value: from then on, what was made of
/// it cannot be recomputed.
fn step(gradients: &Program) -> Program {
    let mut program = Program { name: "step".into(), ..gradients.clone() };
    add_updates(&mut program, gradients);
    let (updates, mut nodes): (Vec<Node>, Vec<Node>) =
        program.nodes.drain(..).partition(|node| matches!(node.op, Op::AdamW(_)));
    for update in updates {
        let touches = |node: &Node| node.inputs.iter().any(|id| update.inputs.contains(id));
        let after = nodes.iter().rposition(touches).map_or(0, |last| last + 1);
        nodes.insert(after, update);
    }
    program.nodes = nodes;
    program.validate().unwrap();
    program
}

fn validate(random: &mut Random) -> Program {
    let mut program = Program::new("validate");
    let logits = network(&mut program, random);
    let labels = labels(&mut program);
    let counts = program.push_one(HardCounts { ignore: None }, &[logits, labels]).unwrap();
    program.mark_output(counts, "counts");
    program
}

fn weights(program: &mut Program, out: usize, sources: &[TensorId], kernel: [usize; 3]) -> TensorId {
    let channels = sources.iter().map(|id| program.shape(*id).channels()).sum();
    let [d, h, w] = kernel;
    let name = format!("weights {}", program.tensors.len());
    program.parameter(name, Shape(vec![out, channels, d, h, w]), Kind::Weights)
}

fn conv(
    program: &mut Program,
    random: &mut Random,
    sources: &[TensorId],
    stride: [usize; 3],
    dtype: DType,
) -> TensorId {
    let out = 1 + random.below(4);
    let weights = weights(program, out, sources, [3; 3]);
    let mut operands = [sources, &[weights]].concat();
    let bias = random.below(3) == 0;
    if bias {
        let name = format!("bias {}", program.tensors.len());
        operands.push(program.parameter(name, Shape(vec![out]), Kind::Channels));
    }
    program.push_one(Conv::new(Window::same([3; 3], stride), bias, dtype), &operands).unwrap()
}

fn up(program: &mut Program, map: TensorId, dtype: DType) -> TensorId {
    assert_eq!(program.shape(map).spatial(), COARSE);
    let shape = Shape(vec![program.shape(map).channels(), 2, 2, 2, 2]);
    let weights = program.parameter(format!("weights {}", program.tensors.len()), shape, Kind::Weights);
    let up = ConvTranspose {
        window: Window::blocks([2; 3]),
        groups: 1,
        first_channel: 0,
        channels: 2,
        output: FINE,
        bias: false,
        dtype,
    };
    program.push_one(up, &[map, weights]).unwrap()
}

fn normalised(program: &mut Program, random: &mut Random, map: TensorId) -> TensorId {
    let statistics = program.push_one(NormStats::instance(1e-5), &[map]).unwrap();
    let affine = random.below(2) == 0;
    let mut operands = vec![map, statistics];
    if affine {
        let (channels, n) = (program.shape(map).channels(), program.tensors.len());
        operands.push(program.parameter(format!("scale {n}"), Shape(vec![channels]), Kind::Channels));
        operands.push(program.parameter(format!("shift {n}"), Shape(vec![channels]), Kind::Channels));
    }
    let y = program.push_one(Normalise { affine }, &operands).unwrap();
    program.push_one(LeakyRelu { slope: 0.01 }, &[y]).unwrap()
}

/// Some value for an input, parameter or state.
pub fn value(name: &str, shape: &Shape, kind: Kind) -> Array {
    let seed = name.bytes().fold(1, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut random = Random(seed);
    Array::from_fn(shape.clone(), |_| {
        let number = random.below(1 << 20) as f64 / f64::from(1 << 20);
        match kind {
            Kind::Labels => (number * 2.0).floor(),
            Kind::Table => (number * 100.0).floor() / 64.0 + 1.0,
            _ if name.ends_with("second") => number + 0.1,
            _ => number - 0.5,
        }
    })
}

/// Values of all that a program is given, for those that are not known yet.
pub fn complete(program: &Program, values: &mut HashMap<String, Array>) {
    for tensor in &program.tensors {
        if tensor.role == Role::Input || tensor.role.is_persistent() {
            let new = || value(&tensor.name, &tensor.shape, tensor.kind);
            values.entry(tensor.name.clone()).or_insert_with(new);
        }
    }
}
