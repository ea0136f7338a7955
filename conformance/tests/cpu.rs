//! The CPU backend against the definitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use conformance::{
    Case, Part, cases, check, check_parts, check_stretches, engine_for, expected, parts, read, run, values,
    write,
};
use plimsoll_cpu::{CpuBackend, CpuOptions, Level};
use plimsoll_graph::ops::{Add, Conv, ConvTranspose, NormStats, Normalise};
use plimsoll_graph::{DType, Kind, Op, Program, Shape, Window};
use plimsoll_plan::{Backend, Options, PlanError, plan};

/// The tolerance of f32 relative to the largest element of a result, for sums of a few thousand.
const F32: f64 = 5e-6;
/// The tolerance of eight bits of mantissa, rounded a few times in a row.
const BF16: f64 = 1.5e-2;

fn backend(threads: usize, level: Level, poison: bool) -> CpuBackend {
    CpuBackend::new(CpuOptions { level, poison, ..CpuOptions::new(threads) }).unwrap()
}

fn backends() -> Vec<CpuBackend> {
    Level::available().map(|level| backend(2, level, true)).collect()
}

/// Checks a case in f32, and in bf16 where it can be stored so: the definitions make the same of both.
fn check_both(backends: &[CpuBackend], single: &Case, half: Option<&Case>) {
    let Some((best, lesser)) = backends.split_last() else { return };
    for large in [false, true] {
        let numbers = |case: &Case| if large { case.large() } else { Some(case.clone()) };
        let Some(of_single) = numbers(single) else { continue };
        let expected = expected(&of_single);
        for (case, tolerance) in [(Some(of_single), F32), (half.and_then(numbers), BF16)] {
            let Some(case) = case else { continue };
            let places = case.places();
            places.iter().for_each(|place| check(best, place, &expected, tolerance));
            if !large {
                let ends = places.iter().take(1).chain(places.last());
                ends.for_each(|place| {
                    lesser.iter().for_each(|level| check(level, place, &expected, tolerance))
                });
            }
        }
    }
}

fn check_all(of: fn(DType) -> Vec<Case>) {
    let backends = backends();
    for (single, half) in of(DType::F32).iter().zip(&of(DType::Bf16)) {
        check_both(&backends, single, Some(half));
    }
}

#[test]
fn convolutions_agree_with_the_definitions_in_f32_and_bf16() {
    check_all(cases::all_convolutions);
}

#[test]
fn maps_and_heads_agree_with_the_definitions_in_f32_and_bf16() {
    check_all(cases::all_of_maps);
}

#[test]
fn gates_positions_and_attention_agree_with_the_definitions_in_f32_and_bf16() {
    check_all(cases::attention_networks);
}

#[test]
fn all_other_ops_agree_with_the_definitions() {
    let backends = backends();
    cases::all_others().iter().for_each(|case| check_both(&backends, case, None));
}

#[test]
fn long_sums_agree_with_the_definitions() {
    let backend = backend(2, Level::detect(), true);
    cases::long_sums().iter().for_each(|case| check(&backend, case, &expected(case), F32));
}

#[test]
fn tensors_and_programs_in_stretches_are_those_of_the_whole() {
    let backend = backend(2, Level::detect(), true);
    for precision in [DType::F32, DType::Bf16] {
        cases::all_convolutions(precision).iter().for_each(|case| check_stretches(&backend, case));
        cases::networks(precision).iter().for_each(|case| check_stretches(&backend, case));
    }
}

#[test]
fn a_step_whose_numbers_went_wrong_leaves_everything_as_it_was() {
    backends().iter().for_each(|backend| conformance::check_guards(backend));
}

#[test]
fn every_op_is_in_a_case() {
    let all = cases::all(DType::F32);
    let found: BTreeSet<&str> =
        all.iter().flat_map(|case| &case.program.nodes).map(|node| node.op.variant()).collect();
    let missing: Vec<&&str> = Op::VARIANTS.iter().filter(|variant| !found.contains(**variant)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn heads_are_fused() {
    let backend = backend(2, Level::detect(), false);
    for case in cases::heads(DType::F32) {
        let plan = plan(std::slice::from_ref(&case.program), &backend, Options::default()).unwrap();
        let names: Vec<&str> = plan.lowered[0].nodes.iter().map(|node| &node.name[..]).collect();
        assert!(names.contains(&"head_stats") && names.contains(&"head_grad"), "{}: {names:?}", case.name);
        assert!(
            !names.contains(&"conv") && !names.contains(&"composite_loss_grad"),
            "{}: {names:?}",
            case.name
        );
    }
}

/// The kinds of kernels of this backend that replace several ops, with these ops.
const FUSED: &[(&str, &[&str])] = &[
    ("norm_act", &["normalise", "leaky_relu"]),
    ("norm_act_grad", &["normalise", "leaky_relu_grad", "normalise_grad"]),
    ("norm_act_grad", &["normalise_grad", "add"]),
    ("norm_act_grad", &["normalise", "leaky_relu_grad", "normalise_grad", "add"]),
    ("residual_act", &["normalise", "add", "leaky_relu"]),
    ("residual_act_grad", &["normalise", "add", "leaky_relu_grad", "normalise_grad"]),
    ("residual_act_grad", &["normalise", "leaky_relu", "add", "leaky_relu_grad", "normalise_grad"]),
    ("avg_pool_grad", &["avg_pool_grad", "add"]),
    ("upsample2", &["upsample2", "add"]),
    ("global_mean", &["normalise", "global_mean"]),
    ("gate", &["normalise", "gate"]),
    ("gate_grad", &["normalise", "gate_grad"]),
    ("gate_sum", &["normalise", "gate", "add", "leaky_relu"]),
    ("gate_sum", &["gate", "global_mean_grad", "add"]),
    ("conv", &["conv", "add"]),
    ("conv", &["normalise", "leaky_relu", "conv", "add"]),
    ("conv", &["normalise", "conv"]),
    ("conv", &["normalise", "leaky_relu", "conv"]),
    ("conv_transpose", &["normalise", "leaky_relu", "conv_transpose"]),
    ("conv_transpose", &["conv_transpose", "add"]),
    ("conv_transpose", &["normalise", "leaky_relu", "conv_transpose", "add"]),
    ("conv_weight_grad", &["normalise", "leaky_relu", "conv_weight_grad"]),
    ("box_extreme_grad", &["box_extreme_grad", "add"]),
    ("cross_erosion_grad", &["cross_erosion_grad", "add"]),
    ("head_stats", &["conv", "softmax_stats"]),
    ("head_stats", &["normalise", "leaky_relu", "conv", "softmax_stats"]),
    ("head_counts", &["conv", "hard_counts"]),
    ("head_grad", &["conv", "composite_loss_grad", "conv_weight_grad", "conv_transpose"]),
    (
        "head_grad",
        &["conv", "composite_loss_grad", "conv_weight_grad", "conv_transpose", "channel_sum", "add"],
    ),
];

#[test]
fn what_is_fused_is_the_composition_of_what_it_covers() {
    let backend = backend(2, Level::detect(), false);
    let mut seen = BTreeSet::new();
    for (precision, tolerance) in [(DType::F32, F32), (DType::Bf16, BF16)] {
        for case in cases::all(precision) {
            let of_case = parts(&backend, &case);
            if !of_case.is_empty() {
                // A part's operands are whatever the program made of them, such as gradients that nearly cancel.
                check_parts(&backend, &case, 2.0 * tolerance);
            }
            seen.extend(of_case);
        }
    }
    let part = |(name, ops): &(&str, &[&'static str])| (name.to_string(), ops.iter().copied().collect());
    let known: BTreeSet<Part> = FUSED.iter().map(part).collect();
    let missing: Vec<&Part> = known.difference(&seen).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
    let kinds: BTreeSet<&str> = FUSED.iter().map(|(name, _)| *name).collect();
    let new: Vec<&Part> = seen.iter().filter(|(name, _)| !kinds.contains(name.as_str())).collect();
    assert!(new.is_empty(), "{new:?} are not in the list");
}

/// Checks that the choices of a plan change no bit of a case: at its first place all of them, at its last those that
/// results inside a program may depend on.
fn check_bits(precision: DType) {
    for case in cases::all(precision) {
        let mut places = case.places();
        let (first, last) = (places.swap_remove(0), places.pop());
        for (case, is_first) in [(Some(first), true), (last, false)] {
            let Some(case) = case else { continue };
            let bits = |threads, poison, options| {
                let found = run(&backend(threads, Level::detect(), poison), &case, options);
                found
                    .into_iter()
                    .map(|(name, values)| (name, values.into_iter().map(f64::to_bits).collect::<Vec<_>>()))
                    .collect::<Vec<_>>()
            };
            let expected = bits(1, false, Options::default());
            // The least memory: values are recomputed wherever that frees some.
            let small = Options { budget: Some(0), ..Options::default() };
            assert_eq!(expected, bits(2, true, small), "{}: recomputation", case.name);
            let stored = Options { inline: false, ..Options::default() };
            assert_eq!(expected, bits(3, true, stored), "{}: fusion", case.name);
            if is_first {
                assert_eq!(expected, bits(3, true, Options::default()), "{}: threads", case.name);
                assert_eq!(expected, bits(64, false, Options::default()), "{}: many threads", case.name);
                let apart = Options { reuse: false, ..Options::default() };
                assert_eq!(expected, bits(2, false, apart), "{}: places", case.name);
            }
        }
    }
}

#[test]
fn the_bits_in_f32_depend_on_neither_threads_nor_places_nor_recomputation_nor_fusion() {
    check_bits(DType::F32);
}

#[test]
fn the_bits_in_bf16_depend_on_neither_threads_nor_places_nor_recomputation_nor_fusion() {
    check_bits(DType::Bf16);
}

/// A program with one convolution of four channels to four, of an image or of what an addition makes of two.
fn convolution(name: &str, of_sum: bool) -> Program {
    let mut p = Program::new(name);
    let shape = Shape::volume(1, 4, [2, 3, 5]);
    let (a, b) = (p.input("a", shape.clone(), Kind::Volume), p.input("b", shape, Kind::Volume));
    let weights = p.parameter("weights", Shape(vec![4, 4, 3, 3, 3]), Kind::Weights);
    let x = match of_sum {
        true => {
            let statistics = p.push_one(NormStats::instance(1e-5), &[b]).unwrap();
            let b = p.push_one(Normalise { affine: false }, &[b, statistics]).unwrap();
            p.push_one(Add, &[a, b]).unwrap()
        }
        false => a,
    };
    let conv = Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32);
    let y = p.push_one(conv, &[x, weights]).unwrap();
    p.mark_output(y, "y");
    p
}

#[test]
fn programs_that_share_weights_agree_on_their_layout() {
    let backend = backend(2, Level::detect(), true);
    let programs = [convolution("of an image", false), convolution("of a map", true)];
    let mut engine = engine_for(&backend, &programs, Options::default()).unwrap();
    for program in &programs {
        let case = Case::new(&program.name[..], program.clone(), 0);
        let id = engine.plan().find(&program.name).unwrap();
        for (name, array) in values(&case) {
            write(&mut *engine, id, program.find(&name).unwrap(), &array.data);
        }
        engine.run(id).unwrap();
        let found = read(&*engine, id, program.find("y").unwrap());
        let expected = &expected(&case)["y"];
        let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{}: {worst:e}", program.name);
    }
}

#[test]
fn channels_of_several_sources_at_once_are_refused() {
    let mut p = Program::new("several");
    let [a, b] = ["a", "b"].map(|name| p.input(name, Shape::volume(1, 17, [2, 3, 5]), Kind::Volume));
    let dy = p.input("dy", Shape::volume(1, 8, [2, 3, 5]), Kind::Volume);
    let weights = p.parameter("weights", Shape(vec![8, 34, 1, 1, 1]), Kind::Weights);
    let y = p.push_one(Conv::new(Window::point(), false, DType::F32), &[a, b, weights]).unwrap();
    let back = ConvTranspose {
        window: Window::point(),
        groups: 1,
        first_channel: 0,
        channels: 34,
        output: [2, 3, 5],
        bias: false,
        dtype: DType::F32,
    };
    let dx = p.push_one(back, &[dy, weights]).unwrap();
    p.mark_output(y, "y");
    p.mark_output(dx, "dx");
    let error = plan(&[p], &backend(1, Level::detect(), false), Options::default()).unwrap_err();
    assert!(matches!(error, PlanError::Unsupported(_)), "{error}");
}

#[test]
fn rates_are_measured_once_and_change_predictions_only() {
    let backend = backend(2, Level::detect(), false);
    let programs: Vec<Program> = cases::networks(DType::F32).into_iter().take(1).map(|c| c.program).collect();
    let memory = 64 << 20;
    let rates = backend.measure(None, &programs, memory).unwrap().unwrap();
    assert!(rates.are_sound() && !rates.kernels.is_empty(), "{rates:?}");
    assert_eq!(backend.measure(Some(&rates), &programs, memory).unwrap(), None);
    let nominal = backend.lower(&programs, true).unwrap();
    let measured = backend.with_rates(Some(rates)).lower(&programs, true).unwrap();
    assert!(nominal[0].agrees_with(&measured[0]));
    assert_ne!(nominal, measured);
}
