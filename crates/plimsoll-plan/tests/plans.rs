//! Whatever the planner makes of a program, the verifier accepts; what is damaged afterwards, it rejects.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_graph::ops::{
    Accumulate, Add, CompositeLoss, Conv, ConvTranspose, LeakyRelu, Load, Loss, NormAct, NormStats,
};
use plimsoll_graph::{
    DType, Kind, Node, Program, Role, Shape, Side, TensorId, TensorInfo, Window, differentiate,
};
use plimsoll_plan::explain::spans;
use plimsoll_plan::recompute::Release;
use plimsoll_plan::{Block, Layout, Options, Plan, Planner, Unsupported, verify::verify};
use proptest::prelude::*;

/// A backend on paper.
struct Paper;

impl Layout for Paper {
    fn bytes(&self, tensor: &TensorInfo) -> usize {
        tensor.shape.count() * tensor.dtype.bytes()
    }

    fn scratch(&self, program: &Program, node: &Node) -> usize {
        program.shape(node.outputs[0]).count() / 3
    }

    fn alignment(&self) -> usize {
        64
    }

    fn supports(&self, _: &Program, _: &Node) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

const FINE: [usize; 3] = [4, 6, 8];
const COARSE: [usize; 3] = [2, 3, 4];

/// A network that no one would train: convolutions over one or two maps, strided and transposed ones, normalisations,
/// sums, activations, in any order over any maps; with a loss, its gradients, and their accumulation.
fn program(random: &mut Random) -> Program {
    let precision = if random.below(2) == 0 { DType::F32 } else { DType::Bf16 };
    let mut program = Program::new("random", precision);
    let image = program.input("image", Shape::volume(1, 1, FINE), Kind::Image);
    let labels = program.input("labels", Shape::volume(1, 1, FINE), Kind::Labels);
    let mut maps = vec![conv(&mut program, random, &[image], [1; 3])];
    for _ in 0..4 + random.below(16) {
        let map = maps[random.below(maps.len())];
        let alike = |program: &Program, same: fn(&Shape) -> Shape, random: &mut Random| {
            let wanted = same(program.shape(map));
            let alike: Vec<TensorId> =
                maps.iter().copied().filter(|id| same(program.shape(*id)) == wanted).collect();
            alike[random.below(alike.len())]
        };
        let is_fine = program.shape(map).spatial() == FINE;
        let made = match random.below(8) {
            0 | 1 => conv(&mut program, random, &[map], [1; 3]),
            2 => {
                let spatial = |shape: &Shape| Shape(shape.spatial().to_vec());
                let other = alike(&program, spatial, random);
                conv(&mut program, random, &[map, other], [1; 3])
            }
            3 if is_fine => conv(&mut program, random, &[map], [2; 3]),
            3 => up(&mut program, map),
            4 => {
                let other = alike(&program, Shape::clone, random);
                program.push_one(Add, &[map, other]).unwrap()
            }
            5 => program.push_one(LeakyRelu { slope: 0.1 }, &[map]).unwrap(),
            _ => normalised(&mut program, random, map),
        };
        maps.push(made);
    }
    let last = maps[maps.len() - 1];
    let last = if program.shape(last).spatial() == FINE { last } else { up(&mut program, last) };
    let weights = weights(&mut program, 2, &[last], [1; 3], Side::Image);
    let logits =
        program.push_one(Conv::new(Window::point(), 1, false, Side::Image), &[last, weights]).unwrap();
    let terms = Loss::default();
    let sums = program.push_one(terms.stats(), &[logits, labels]).unwrap();
    let loss = program.push(CompositeLoss { loss: terms }, &[sums, logits, labels]).unwrap()[0];
    program.mark_output(loss, "loss");
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let gradients = differentiate(&mut program, loss, 1.0, &parameters).unwrap();
    for (parameter, gradient) in parameters.into_iter().zip(gradients) {
        let Some(gradient) = gradient else { continue };
        let info = program.tensor(parameter).clone();
        let sum = program.state(format!("{}/grad", info.name), info.shape, info.kind);
        program.push(Accumulate, &[sum, gradient]).unwrap();
    }
    program
}

fn weights(
    program: &mut Program,
    out: usize,
    sources: &[TensorId],
    kernel: [usize; 3],
    to: Side,
) -> TensorId {
    let channels: Vec<usize> = sources.iter().map(|id| program.shape(*id).channels()).collect();
    let from = program.tensor(sources[0]).kind.side().unwrap();
    let [d, h, w] = kernel;
    let shape = Shape(vec![out, channels.iter().sum(), d, h, w]);
    let name = format!("weights {}", program.tensors.len());
    program.parameter(name, shape, Kind::Weights { sources: channels, from, to })
}

fn conv(program: &mut Program, random: &mut Random, sources: &[TensorId], stride: [usize; 3]) -> TensorId {
    let out = [3, 16, 20][random.below(3)];
    let weights = weights(program, out, sources, [3; 3], Side::Features);
    let operands = [sources, &[weights]].concat();
    let window = Window::same([3; 3], stride);
    program.push_one(Conv::new(window, sources.len(), false, Side::Features), &operands).unwrap()
}

fn up(program: &mut Program, map: TensorId) -> TensorId {
    assert_eq!(program.shape(map).spatial(), COARSE);
    let kind = Kind::Weights { sources: vec![16], from: Side::Features, to: Side::Features };
    let shape = Shape(vec![program.shape(map).channels(), 16, 2, 2, 2]);
    let weights = program.parameter(format!("weights {}", program.tensors.len()), shape, kind);
    let up = ConvTranspose {
        window: Window::blocks([2; 3]),
        groups: 1,
        load: Load::Plain,
        first_channel: 0,
        channels: 16,
        output: FINE,
        to: Side::Features,
        bias: false,
        accumulate: false,
    };
    program.push_one(up, &[map, weights]).unwrap()
}

fn normalised(program: &mut Program, random: &mut Random, map: TensorId) -> TensorId {
    let statistics = program.push_one(NormStats { epsilon: 1e-5 }, &[map]).unwrap();
    let affine = random.below(2) == 0;
    let mut operands = vec![map, statistics];
    if affine {
        let (channels, n) = (program.shape(map).channels(), program.tensors.len());
        operands.push(program.parameter(format!("scale {n}"), Shape(vec![channels]), Kind::Channels));
        operands.push(program.parameter(format!("shift {n}"), Shape(vec![channels]), Kind::Channels));
    }
    program.push_one(NormAct { slope: 0.01, affine }, &operands).unwrap()
}

/// Two tensors that are held at one time, in two places, each read after the other is written.
fn held_together(plan: &Plan, random: &mut Random) -> Option<(usize, usize)> {
    let program = &plan.programs[0];
    let spans = spans(&program.program);
    let with_span: Vec<usize> = (0..spans.len()).filter(|i| spans[*i].is_some()).collect();
    let pairs: Vec<(usize, usize)> = with_span
        .iter()
        .flat_map(|a| with_span.iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| {
            let (Some(first), Some(second)) = (spans[*a], spans[*b]) else { return false };
            a != b && first.start.max(second.start) < first.end.min(second.end)
        })
        .collect();
    (!pairs.is_empty()).then(|| pairs[random.below(pairs.len())])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_verifier_accepts_what_is_planned_and_rejects_what_is_damaged(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = [program(random)];
        for (fold, reuse) in [(true, true), (false, true), (true, false)] {
            let options = Options { fold, reuse, budget: None };
            let planner = Planner::new(&given, &Paper, options).unwrap();
            let kept = planner.plan(None).unwrap();
            prop_assert_eq!(kept.programs[0].recompute_flops_fraction, 0.0);
            let all = planner.searches()[0].recomputation().releases();
            for share in [3, 10, 40] {
                let some: Vec<Release> = all.iter().copied().filter(|_| random.below(share) == 0).collect();
                // Planning verifies.
                let Some(plan) = planner.plan_with(&[some]).unwrap() else { continue };
                prop_assert!(plan.arena_bytes >= plan.lower_bound_bytes);
                for _ in 0..3 {
                    let Some((a, b)) = held_together(&plan, random) else { continue };
                    let mut damaged = plan.programs[0].clone();
                    let offset = damaged.places[b].unwrap().offset;
                    damaged.places[a] = damaged.places[a].map(|block| Block { offset, ..block });
                    prop_assert!(verify(&given[0], &damaged, &Paper).is_err(), "{a} on {b}");
                }
                if let Some(copy) = plan.programs[0].copies.first() {
                    let mut damaged = plan.programs[0].clone();
                    damaged.copies[0] = given[0].ids().find(|id| id != copy).unwrap();
                    let is_run = damaged.program.nodes.iter().any(|node| {
                        node.outputs.contains(&TensorId((damaged.program.tensors.len() - damaged.copies.len()) as u32))
                    });
                    prop_assert!(!is_run || verify(&given[0], &damaged, &Paper).is_err());
                }
            }
        }
    }

    #[test]
    fn a_budget_is_met_or_the_least_is_given(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = [program(random)];
        let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
        let (most, least) = (planner.plan(None).unwrap(), planner.plan(Some(0)).unwrap());
        prop_assert!(least.arena_bytes <= most.arena_bytes);
        for part in 0..4 {
            let budget = least.arena_bytes + (most.arena_bytes - least.arena_bytes) * part / 4;
            let plan = planner.plan(Some(budget)).unwrap();
            prop_assert!(plan.arena_bytes <= budget, "{} of {budget}", plan.arena_bytes);
            prop_assert!(plan == planner.plan(Some(budget)).unwrap());
        }
        let curve = planner.searches()[0].curve();
        for pair in curve.windows(2) {
            prop_assert!(pair[1].lower_bound < pair[0].lower_bound && pair[1].seconds >= pair[0].seconds);
        }
    }
}

#[test]
fn programs_without_nodes_and_releases_of_nothing_are_no_trouble() {
    let mut program = Program::new("empty", DType::F32);
    program.input("image", Shape::volume(1, 1, FINE), Kind::Image);
    let given = [program];
    let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
    assert!(planner.plan(Some(0)).is_ok());
    let nothing = Release { after: 3, tensor: TensorId(99) };
    assert!(planner.plan_with(&[vec![nothing]]).unwrap().is_none());
}
