//! The kernels for GPUs against the definitions, on an emulator of PTX: every read of what was not written or is not declared, and
//! every race, is an error there, and blocks and warps run in an order that can be shuffled.
//!
//! An emulator is slow, so of the cases that the CPU is checked on those are taken that need few operations, and beyond them the
//! smallest of each kind of convolution; see [`chosen`].
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod emulator;

use std::collections::{BTreeMap, BTreeSet};

use conformance::random::{self, Random, changed, options, valid};
use conformance::{Case, cases, engine_for, expected, read, run, write};
use emulator::{Blocks, backend};
use plimsoll_cuda::{CudaBackend, WITH_KERNELS, has_kernels};
use plimsoll_graph::ops::{Add, Gelu};
use plimsoll_graph::{DType, Kind, Op, Program, Shape};
use plimsoll_plan::{Options, PlanError, ProgramId, plan};

/// As of the CPU, `tests/cpu.rs`.
const F32: f64 = 5e-6;
const BF16: f64 = 1.5e-2;

/// The ops that have no kernel yet. Programs with them are refused.
const WITHOUT_KERNELS: &[&str] = &[
    "BoundaryL1",
    "BoundaryL1Grad",
    "BoxExtreme",
    "BoxExtremeGrad",
    "ClDice",
    "ClDiceGrad",
    "Counted",
    "CrossErosion",
    "CrossErosionGrad",
    "DistanceLoss",
    "DistanceLossGrad",
    "Gelu",
    "GeluGrad",
    "MeanDifference",
    "MeanDifferenceGrad",
    "MeanPool",
    "MeanPoolGrad",
    "OneHot",
    "OverlapSums",
    "OverlapSumsGrad",
    "PredictedDistance",
    "Probabilities",
    "ProbabilitiesGrad",
    "RunningFactors",
    "SkeletonStep",
    "SkeletonStepGrad",
    "SoftRecall",
    "SoftRecallGrad",
    "SpaceToDepth",
    "SpaceToDepthGrad",
    "TokenNorm",
    "TokenNormGrad",
    "WindowAttention",
    "WindowAttentionGrad",
];

/// Cases with no more floating-point operations than this are all taken.
const FEW_FLOPS: u64 = 3_000_000;

/// What a kernel may do otherwise than in other cases: an op with its window and whether it has groups, and with one source or more.
fn features(program: &Program) -> BTreeSet<String> {
    let feature = |node: &plimsoll_graph::Node| match &node.op {
        Op::Conv(op) => {
            format!("conv {:?} {} {}", op.window, op.groups > 1, op.sources(node.inputs.len()) > 1)
        }
        Op::ConvTranspose(op) => {
            format!("transpose {:?} {} {}", op.window, op.groups > 1, op.first_channel > 0)
        }
        Op::ConvWeightGrad(op) => {
            format!("weights {:?} {} {}", op.window, op.groups > 1, node.inputs.len() > 2)
        }
        Op::CompositeLoss(op) => {
            let names: Vec<&str> = op.loss.components.iter().map(|component| component.name()).collect();
            format!("loss {names:?}")
        }
        Op::NormStats(op) => format!("statistics {:?}", std::mem::discriminant(&op.over)),
        op => op.variant().to_string(),
    };
    program.nodes.iter().map(feature).collect()
}

/// Which of some cases are run, by their places: those with few operations, and the one with the fewest of each feature that is in none
/// of those.
fn chosen(cases: &[Case]) -> Vec<usize> {
    let mut by_cost: Vec<usize> =
        (0..cases.len()).filter(|place| has_kernels(&cases[*place].program)).collect();
    by_cost.sort_by_key(|place| cases[*place].program.flops());
    let mut seen = BTreeSet::new();
    by_cost.retain(|place| {
        let program = &cases[*place].program;
        let known = seen.len();
        seen.extend(features(program));
        let is_new = seen.len() > known;
        is_new || program.flops() <= FEW_FLOPS
    });
    by_cost.sort_unstable();
    by_cost
}

fn bits(found: &BTreeMap<String, Vec<f64>>) -> BTreeMap<&str, Vec<u64>> {
    found.iter().map(|(name, values)| (&name[..], values.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Checks a case: its numbers with blocks in ascending order, and the same bits in another.
fn check(case: &Case, expected: &BTreeMap<String, Vec<f64>>, tolerance: f64) {
    let found = run(&backend(Blocks::Ascending), case, Options::default());
    conformance::compare(case, expected, &found, tolerance);
    let shuffled = run(&backend(Blocks::Shuffled(7)), case, Options::default());
    assert!(bits(&found) == bits(&shuffled), "{}: the order of blocks changes bits", case.name);
}

fn check_all(of: fn(DType) -> Vec<Case>) {
    let (single, half) = (of(DType::F32), of(DType::Bf16));
    for place in chosen(&single) {
        let (single, half) = (&single[place], half.get(place));
        let expected = expected(single);
        check(single, &expected, F32);
        if let Some(half) = half {
            check(half, &expected, BF16);
        }
        if let Some(large) = single.large().filter(|large| large.program.flops() <= FEW_FLOPS) {
            let found = run(&backend(Blocks::Ascending), &large, Options::default());
            conformance::compare(&large, &conformance::expected(&large), &found, F32);
        }
    }
}

#[test]
fn convolutions_agree_with_the_definitions_in_f32_and_bf16() {
    check_all(cases::all_convolutions);
}

#[test]
fn maps_and_losses_agree_with_the_definitions_in_f32_and_bf16() {
    check_all(cases::all_of_maps);
}

#[test]
fn all_other_ops_agree_with_the_definitions() {
    check_all(|precision| if precision == DType::F32 { cases::all_others() } else { Vec::new() });
}

#[test]
fn long_sums_agree_with_the_definitions() {
    cases::long_sums().iter().for_each(|case| check(case, &expected(case), F32));
}

#[test]
fn a_step_whose_numbers_went_wrong_leaves_everything_as_it_was() {
    conformance::check_guards(&backend(Blocks::Ascending));
}

#[test]
fn the_bits_depend_on_neither_places_nor_recomputation() {
    for precision in [DType::F32, DType::Bf16] {
        let all = cases::networks(precision);
        for place in chosen(&all) {
            let case = &all[place];
            let of = |options| run(&backend(Blocks::Ascending), case, options);
            let first = of(Options::default());
            let apart = of(Options { reuse: false, ..Options::default() });
            assert!(bits(&first) == bits(&apart), "{}: places", case.name);
            let small = of(Options { budget: Some(0), ..Options::default() });
            assert!(bits(&first) == bits(&small), "{}: recomputation", case.name);
        }
    }
}

#[test]
fn bf16_is_rounded_to_the_nearest_and_ties_to_even() {
    // A step of bf16 at 1 is 2⁻⁷; its largest number is (2 − 2⁻⁷) · 2¹²⁷.
    let step = |of: f32| of / 128.0;
    let largest = f32::from_bits(0x7f7f_0000);
    let sums = [
        (1.0, step(0.5), 1.0),
        (1.0 + step(1.0), step(0.5), 1.0 + step(2.0)),
        (-1.0, -step(0.5), -1.0),
        (1.0, step(0.5) * (1.0 + step(1.0)), 1.0 + step(1.0)),
        (1.0, step(0.25), 1.0),
        (largest, largest, f32::INFINITY),
        (f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY),
        (f32::NAN, 1.0, f32::NAN),
        (f32::INFINITY, f32::NEG_INFINITY, f32::NAN),
    ];
    let mut program = Program::new("sums");
    let [a, b] = ["a", "b"].map(|name| {
        let id = program.input(name, Shape::volume(1, sums.len(), [1; 3]), Kind::Volume);
        program.tensors[id.index()].dtype = DType::Bf16;
        id
    });
    let y = program.push_one(Add, &[a, b]).unwrap();
    program.mark_output(y, "y");
    let backend = backend(Blocks::Ascending);
    let mut engine = engine_for(&backend, &[program], Options::default()).unwrap();
    write(&mut *engine, ProgramId::new(0), a, &sums.map(|(a, _, _)| f64::from(a)));
    write(&mut *engine, ProgramId::new(0), b, &sums.map(|(_, b, _)| f64::from(b)));
    engine.run(ProgramId::new(0)).unwrap();
    for (found, (a, b, expected)) in read(&*engine, ProgramId::new(0), y).into_iter().zip(sums) {
        let expected = f64::from(expected);
        assert!(found == expected || (found.is_nan() && expected.is_nan()), "{a} + {b} is {found}");
    }
}

#[test]
fn a_program_that_was_put_together_by_hand_is_an_error_or_runs() {
    let mut ran = 0;
    for seed in 0..300 {
        let random = &mut Random(seed);
        let backend = backend(Blocks::Shuffled(seed));
        let programs = valid(random);
        ran += usize::from(random::run(&programs, &backend, options(random), random).unwrap());
        for _ in 0..5 {
            let Some(changed) = changed(&programs, random) else { continue };
            ran += usize::from(random::run(&changed, &backend, options(random), random).unwrap());
        }
    }
    assert!(ran > 100, "only {ran} were run");
}

#[test]
fn an_op_has_kernels_or_is_listed_as_having_none() {
    let (with, without): (BTreeSet<&str>, BTreeSet<&str>) =
        (WITH_KERNELS.iter().copied().collect(), WITHOUT_KERNELS.iter().copied().collect());
    assert_eq!(with.intersection(&without).collect::<Vec<_>>(), Vec::<&&str>::new());
    let all: BTreeSet<&str> = Op::VARIANTS.iter().copied().collect();
    assert_eq!(with.union(&without).copied().collect::<BTreeSet<&str>>(), all);
}

#[test]
fn every_op_with_kernels_is_in_a_case_that_is_run() {
    let all = cases::all(DType::F32);
    let nodes = chosen(&all).into_iter().flat_map(|place| &all[place].program.nodes);
    let found: BTreeSet<&str> = nodes.map(|node| node.op.variant()).collect();
    let missing: Vec<&&str> = WITH_KERNELS.iter().filter(|variant| !found.contains(**variant)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_node_without_kernels_is_refused_by_name() {
    let mut program = Program::new("activated");
    let x = program.input("x", Shape::volume(1, 2, [2, 2, 2]), Kind::Volume);
    let y = program.push_one(Gelu, &[x]).unwrap();
    program.mark_output(y, "y");
    let backend: CudaBackend = backend(Blocks::Ascending);
    let error = plan(&[program], &backend, Options::default()).unwrap_err();
    assert!(matches!(&error, PlanError::Unsupported(unsupported) if unsupported.op == "gelu"), "{error}");
}
