//! The kernels for GPUs against the definitions, on an emulator of PTX: every read of what was not written or is not declared, and
//! every race, is an error there, and blocks and warps run in an order that can be shuffled.
//!
//! An emulator is slow, so of the cases that the CPU is checked on those are taken that need few operations, and beyond them the
//! smallest of each kind of convolution; see [`chosen`].
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conformance::emulator::{Blocks, Emulator, KERNELS, LOCAL, Samples, backend};
use conformance::random::{self, Random, changed, options, valid};
use conformance::{Case, cases, check_stretches, engine_for, expected, read, run, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_cuda::{Architecture, CudaBackend, DeviceSource, RecordingRoom};
use plimsoll_graph::ops::{
    Add, Conv, ConvTranspose, ConvWeightGrad, Join, PredictedDistance, RegionCounts, Regions,
};
use plimsoll_graph::{DType, Kind, Op, Program, Shape, Window};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{
    Backend, DeviceMemory, DriverUse, HostSlice, HostSliceMut, Options, PlanError, ProgramId, open_engine,
    plan,
};

/// The tolerances of the CPU, `tests/cpu.rs`.
const F32: f64 = 5e-6;
const BF16: f64 = 1.5e-2;

/// Three bits more than bf16 has, and about six roundings of 2⁻¹¹: some results are close to zero but for those.
const F16: f64 = 3e-3;

/// The tolerance of sums of products of tf32, which has as many bits as f16.
const TF32: f64 = F16;

/// Cases with no more floating-point operations than this are all taken.
const FEW_FLOPS: u64 = 1_200_000;

/// The same of losses that see shapes and of other ops that do not depend on how features are stored: their cost is counted by voxels, a
/// few dozen operations each, most of which are comparisons.
const FEW_FLOPS_OF_OTHERS: u64 = 5_000_000;

/// The same of cases that are run between other nodes, which change no number: small ones are enough.
const FEW_FLOPS_BETWEEN: u64 = 300_000;

/// Returns the features by which kernels take different paths: each op with its window and groups, and with one source
/// or several; attention with and without a bias, and with many channels.
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
        Op::WindowAttention(op) => {
            // Many channels of a head are made by several threads.
            let of_head = program.shape(node.inputs[0]).channels() / 3 / op.heads;
            format!("attention {} {}", op.padded_bias, of_head > 16)
        }
        Op::NormStats(op) => format!("statistics {:?}", std::mem::discriminant(&op.over)),
        op => op.variant().to_string(),
    };
    program.nodes.iter().map(feature).collect()
}

/// Returns the cases that are run, by their places: those with few operations, and for each feature that none of these
/// has, the case with the fewest operations.
fn chosen(cases: &[Case], few_flops: u64) -> Vec<usize> {
    let mut by_cost: Vec<usize> = (0..cases.len()).collect();
    by_cost.sort_by_key(|place| cases[*place].program.flops());
    let mut seen = BTreeSet::new();
    by_cost.retain(|place| {
        let program = &cases[*place].program;
        let known = seen.len();
        seen.extend(features(program));
        let is_new = seen.len() > known;
        is_new || program.flops() <= few_flops
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

fn is_conv(case: &Case) -> bool {
    case.program.nodes.iter().any(|node| node.op.variant().starts_with("Conv"))
}

fn check_all(of: fn(DType) -> Vec<Case>, few_flops: u64) {
    let single = of(DType::F32);
    let halves = [(of(DType::Bf16), BF16, &[(7, 0)][..]), (of(DType::F16), F16, &[(7, 0), (7, 5)])];
    for place in chosen(&single, few_flops) {
        let single = &single[place];
        let expected = expected(single);
        check(single, &expected, F32);
        if is_conv(single) {
            let emulator = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Shuffled(9));
            let rounding = emulator.backend().with_tf32_products().unwrap();
            conformance::compare(single, &expected, &run(&*rounding, single, Options::default()), TF32);
        }
        for (all, tolerance, others) in &halves {
            let Some(half) = all.get(place) else { continue };
            check(half, &expected, *tolerance);
            // Without tensor cores in bf16; with those of Volta and Turing in f16.
            if is_conv(half) {
                for (major, minor) in *others {
                    let architecture = Architecture::new(*major, *minor).unwrap();
                    let other = Emulator::new(architecture, Blocks::Shuffled(5)).backend();
                    let found = run(&other, half, Options::default());
                    conformance::compare(half, &expected, &found, *tolerance);
                }
            }
        }
        if let Some(large) = single.large().filter(|large| large.program.flops() <= few_flops) {
            let found = run(&backend(Blocks::Ascending), &large, Options::default());
            conformance::compare(&large, &conformance::expected(&large), &found, F32);
        }
    }
}

#[test]
fn convolutions_agree_with_the_definitions_however_features_are_stored() {
    check_all(cases::all_convolutions, FEW_FLOPS);
}

#[test]
fn maps_and_losses_agree_with_the_definitions_however_features_are_stored() {
    check_all(cases::all_of_maps, FEW_FLOPS);
}

#[test]
fn gates_positions_and_attention_agree_with_the_definitions_however_features_are_stored() {
    check_all(cases::attention_networks, FEW_FLOPS);
}

#[test]
fn all_other_ops_agree_with_the_definitions() {
    let of = |precision| if precision == DType::F32 { cases::all_others() } else { Vec::new() };
    check_all(of, FEW_FLOPS_OF_OTHERS);
}

#[test]
fn long_sums_agree_with_the_definitions() {
    cases::long_sums().iter().for_each(|case| check(case, &expected(case), F32));
}

/// Between other nodes, where results take the places of operands that nobody reads again.
#[test]
fn ops_agree_with_the_definitions_in_the_midst_of_a_program() {
    for all in [cases::all_of_maps, cases::attention_networks]
        .map(|of| of(DType::F32))
        .into_iter()
        .chain([cases::all_others()])
    {
        for case in all.iter().filter(|case| case.program.flops() <= FEW_FLOPS_BETWEEN) {
            for place in &case.places()[1..] {
                let found = run(&backend(Blocks::Ascending), place, Options::default());
                conformance::compare(place, &expected(place), &found, F32);
            }
        }
    }
}

#[test]
fn a_step_whose_numbers_went_wrong_leaves_everything_as_it_was() {
    conformance::check_guards(&backend(Blocks::Ascending));
}

#[test]
fn the_bits_depend_on_neither_places_nor_recomputation() {
    for precision in [DType::F32, DType::Bf16, DType::F16] {
        let all = cases::networks(precision);
        for place in chosen(&all, FEW_FLOPS) {
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
fn tensors_and_programs_in_stretches_are_those_of_the_whole() {
    for precision in [DType::F32, DType::F16] {
        let all = cases::networks(precision);
        for place in chosen(&all, FEW_FLOPS) {
            check_stretches(&backend(Blocks::Ascending), &all[place]);
        }
    }
}

#[test]
fn parts_of_a_tensor_are_those_of_the_whole_however_much_is_copied_at_once() {
    // 78 KiB of f32, more than is copied at once where nothing was reserved for it.
    let shape = Shape::volume(2, 5, [10, 8, 25]);
    let mut program = Program::new("sums");
    let [a, b] = ["a", "b"].map(|name| program.input(name, shape.clone(), Kind::Volume));
    let y = program.push_one(Add, &[a, b]).unwrap();
    program.mark_output(y, "y");
    let only = ProgramId::new(0);
    let mut engine = engine_for(&backend(Blocks::Ascending), &[program], Options::default()).unwrap();
    let count = shape.count();
    let values: Vec<f64> = (0..count).map(|place| place as f64).collect();
    write(&mut *engine, only, a, &values);
    write(&mut *engine, only, b, &vec![0.5; count]);
    engine.run(only).unwrap();
    let part = |first: usize, count: usize| {
        let mut found = vec![f32::NAN; count];
        engine.read_from(only, y, first, HostSliceMut::F32(&mut found)).unwrap();
        found
    };
    let expected = |first: usize, count: usize| -> Vec<f32> {
        (first..first + count).map(|place| place as f32 + 0.5).collect()
    };
    // All; a row; a plane of a channel; over two channels; over two samples; the last one; none.
    for (first, count) in
        [(0, count), (2025, 25), (6200, 200), (1990, 20), (9000, 2000), (count - 1, 1), (7, 0)]
    {
        assert!(part(first, count) == expected(first, count), "{count} from {first} on");
    }
    assert!(engine.read_from(only, y, count, HostSliceMut::F32(&mut [0.0])).is_err());
}

/// Several runs at once share the kernels of a card, and each engine counts its own arena.
#[test]
fn parts_of_a_card_share_its_kernels_and_keep_to_its_limit() {
    let mut program = Program::new("sum");
    let [a, b] = ["a", "b"].map(|name| program.input(name, Shape::volume(1, 1, [64; 3]), Kind::Volume));
    let y = program.push_one(Add, &[a, b]).unwrap();
    program.mark_output(y, "y");
    let card = Arc::new(Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending));
    let free = || card.memory().unwrap().free;
    let all = free();
    // Room for two arenas of three tensors of 1 MiB, each in pieces of 2 MiB.
    let (host, recordings) = (Bytes::ZERO, Bytes::ZERO);
    let ranks = Bytes::ZERO;
    let driver = DriverUse { context: KERNELS, recordings, ranks, host, is_measured: true };
    let limit = KERNELS + Bytes::mib(8);
    let whole = CudaBackend::new(card.clone()).within(DeviceMemory::new(limit, driver).unwrap());
    let part = whole.shared_by(2).unwrap();
    let open = || {
        let plan = plan(std::slice::from_ref(&program), &*part, Options::default()).unwrap();
        open_engine(&*part, plan, &Budget::new(Bytes::mib(64))).unwrap()
    };
    let engines =
        std::thread::scope(|scope| [scope.spawn(open), scope.spawn(open)].map(|one| one.join().unwrap()));
    for engine in &engines {
        assert_eq!(engine.device_bytes(), Some(Bytes::mib(4)));
    }
    assert_eq!(Bytes::from_len(all - free()), limit);
    drop(engines);
    assert_eq!(Bytes::from_len(all - free()), KERNELS);
    assert_eq!(open().device_bytes(), Some(Bytes::mib(4)));
}

/// Threads of kernels have local memory from the first launch of a process on.
#[test]
fn what_a_card_allocates_with_a_first_launch_is_used_once() {
    let mut program = Program::new("sum");
    let [a, b] = ["a", "b"].map(|name| program.input(name, Shape::volume(1, 1, [64; 3]), Kind::Volume));
    let y = program.push_one(Add, &[a, b]).unwrap();
    program.mark_output(y, "y");
    let card = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending)
        .recording(RecordingRoom { recordings: 0, launches: 0 });
    let card = Arc::new(card);
    let backend = CudaBackend::new(card.clone());
    let all = card.memory().unwrap().free;
    let mut engines =
        [(); 2].map(|()| engine_for(&backend, std::slice::from_ref(&program), Options::default()).unwrap());
    let arena = engines[0].device_bytes().unwrap();
    for engine in &mut engines {
        for id in [a, b] {
            engine.write(ProgramId::new(0), id, HostSlice::F32(&vec![1.0; 64 * 64 * 64])).unwrap();
        }
        (0..2).for_each(|_| engine.run(ProgramId::new(0)).unwrap());
    }
    assert_eq!(engines.each_ref().map(|engine| engine.device_bytes()), [Some(arena + LOCAL), Some(arena)]);
    assert_eq!(Bytes::from_len(all - card.memory().unwrap().free), KERNELS + LOCAL + arena + arena);
}

/// Checks sums of numbers that are stored as some type.
fn check_sums<const N: usize>(dtype: DType, sums: [(f32, f32, f32); N]) {
    let mut program = Program::new("sums");
    let [a, b] = ["a", "b"].map(|name| {
        let id = program.input(name, Shape::volume(1, sums.len(), [1; 3]), Kind::Volume);
        program.tensors[id.index()].dtype = dtype;
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
        assert!(
            found == expected || (found.is_nan() && expected.is_nan()),
            "{a} + {b} is {found} as {dtype}"
        );
    }
}

#[test]
fn halves_are_rounded_to_the_nearest_and_ties_to_even() {
    // A step of bf16 at 1 is 2⁻⁷, one of f16 2⁻¹⁰.
    for (dtype, step) in [(DType::Bf16, 1.0 / 128.0), (DType::F16, 1.0 / 1024.0)] {
        let step = |of: f32| of * step;
        let sums = [
            (1.0, step(0.5), 1.0),
            (1.0 + step(1.0), step(0.5), 1.0 + step(2.0)),
            (-1.0, -step(0.5), -1.0),
            (1.0, step(0.5) * (1.0 + step(1.0)), 1.0 + step(1.0)),
            (1.0, step(0.25), 1.0),
            (f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY),
            (f32::NAN, 1.0, f32::NAN),
            (f32::INFINITY, f32::NEG_INFINITY, f32::NAN),
        ];
        check_sums(dtype, sums);
    }
    // The largest numbers are (2 − 2⁻⁷) · 2¹²⁷ and (2 − 2⁻¹⁰) · 2¹⁵, half a step of which is 16.
    let largest = f32::from_bits(0x7f7f_0000);
    check_sums(DType::Bf16, [(largest, largest, f32::INFINITY)]);
    let least = 2.0_f32.powi(-24);
    let sums = [
        (65504.0, 15.0, 65504.0),
        (65504.0, 16.0, f32::INFINITY),
        (-65504.0, -65504.0, f32::NEG_INFINITY),
        // Numbers below 2⁻¹⁴, whose step is 2⁻²⁴.
        (least, least, 2.0 * least),
        (2.0_f32.powi(-14), -least, 1023.0 * least),
    ];
    check_sums(DType::F16, sums);
}

#[test]
fn bf16_and_f16_at_once_are_refused_by_name() {
    let mut program = Program::new("mixed");
    let [x, dy] = [("x", DType::Bf16), ("dy", DType::F16)].map(|(name, dtype)| {
        let id = program.input(name, Shape::volume(1, 8, [4; 3]), Kind::Volume);
        program.tensors[id.index()].dtype = dtype;
        id
    });
    let dw = ConvWeightGrad { window: Window::same([3; 3], [1; 3]), groups: 1 };
    let dw = program.push_one(dw, &[x, dy]).unwrap();
    program.mark_output(dw, "dw");
    let refused = plan(&[program], &backend(Blocks::Ascending), Options::default()).err().unwrap();
    assert!(
        refused.to_string().contains("conv_weight_grad: elements of bf16 and of f16 at once"),
        "{refused}"
    );
}

#[test]
fn features_stored_as_f16_are_refused_by_processors_with_a_way_out() {
    let cpu = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let case = &cases::networks(DType::F16)[0];
    let refused = plan(std::slice::from_ref(&case.program), &cpu, Options::default()).err().unwrap();
    assert!(refused.to_string().contains("has no kernels for features that are stored as f16"), "{refused}");
    assert!(refused.remedy().unwrap().contains("‹precision=bf16›"), "{refused}");
}

/// The case has a class with a few voxels, one with none, and one that is everywhere; the distances are computed by
/// brute force in whole numbers.
#[test]
fn distances_in_whole_voxels_are_exact() {
    let extent = [6, 11, 40];
    let [_, height, width] = extent;
    let voxels: usize = extent.iter().product();
    let is_inside = |class: usize, voxel: usize| match class {
        0 => voxel % 977 == 5,
        class => class == 2,
    };
    let at = |voxel: usize| [voxel / (height * width), voxel / width % height, voxel % width];
    let nearest = |class: usize, from: usize| {
        let inside = is_inside(class, from);
        let others = (0..voxels).filter(|to| is_inside(class, *to) != inside);
        let squares = others.map(|to| (0..3).map(|axis| at(from)[axis].abs_diff(at(to)[axis]).pow(2)).sum());
        let distance = squares.min().map_or(f64::INFINITY, |square: usize| f64::from((square as f32).sqrt()));
        if inside { -distance } else { distance }
    };
    for signed in [false, true] {
        let mut program = Program::new("distances");
        let p = program.input("p", Shape::volume(1, 3, extent), Kind::Volume);
        let labels = program.input("labels", Shape::volume(1, 1, extent), Kind::Labels);
        let op = PredictedDistance { spacing: [1.0; 3], signed, ignore: None };
        let y = program.push_one(op, &[p, labels]).unwrap();
        program.mark_output(y, "y");
        let backend = backend(Blocks::Shuffled(3));
        let mut engine = engine_for(&backend, &[program], Options::default()).unwrap();
        let elements = (0..3).flat_map(|class| (0..voxels).map(move |voxel| (class, voxel)));
        let values: Vec<f64> = elements
            .clone()
            .map(|(class, voxel)| if is_inside(class, voxel) { 0.75 } else { 0.25 })
            .collect();
        write(&mut *engine, ProgramId::new(0), p, &values);
        write(&mut *engine, ProgramId::new(0), labels, &vec![0.0; voxels]);
        engine.run(ProgramId::new(0)).unwrap();
        for ((class, voxel), found) in elements.zip(read(&*engine, ProgramId::new(0), y)) {
            let expected = nearest(class, voxel);
            let expected = if signed { expected } else { expected.max(0.0) };
            assert!(found == expected, "class {class}, voxel {voxel}: {found} is not {expected}");
        }
    }
}

#[test]
fn a_program_that_was_put_together_by_hand_is_an_error_or_runs() {
    let mut ran = 0;
    for seed in 0..120 {
        let random = &mut Random(seed);
        let backend = backend(Blocks::Shuffled(seed));
        let programs = valid(random);
        ran += usize::from(random::run(&programs, &backend, options(random), random).unwrap());
        for _ in 0..5 {
            let Some(changed) = changed(&programs, random) else { continue };
            ran += usize::from(random::run(&changed, &backend, options(random), random).unwrap());
        }
    }
    assert!(ran > 40, "only {ran} were run");
}

#[test]
fn every_op_is_in_a_case_that_is_run() {
    let mut all = cases::all_convolutions(DType::F32);
    all.extend(cases::all_of_maps(DType::F32));
    all.extend(cases::attention_networks(DType::F32));
    all.extend(cases::all_others());
    let nodes = chosen(&all, FEW_FLOPS).into_iter().flat_map(|place| &all[place].program.nodes);
    let found: BTreeSet<&str> = nodes.map(|node| node.op.variant()).collect();
    let missing: Vec<&str> =
        Op::VARIANTS.iter().copied().filter(|variant| !found.contains(variant)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn a_node_beyond_the_limits_of_its_kernels_is_refused_by_name() {
    let mut program = Program::new("joined");
    let table = program.input("table", Shape(vec![1]), Kind::Table);
    let y = program.push_one(Join, &[table; 33]).unwrap();
    program.mark_output(y, "y");
    let error = plan(&[program], &backend(Blocks::Ascending), Options::default()).unwrap_err();
    let PlanError::Unsupported(unsupported) = &error else { panic!("{error}") };
    assert_eq!((unsupported.op, &unsupported.why[..]), ("join", "33 tables, of at most 32"));
}

/// A convolution of some taps and 32 channels; of 5³ taps it has 16 TFLOP, which a T4 multiplies and adds for 4 s in f32.
fn long_convolution(taps: usize, stored: DType) -> Program {
    let mut program = Program::new("long");
    let x = program.input("x", Shape::volume(1, 32, [400; 3]), Kind::Volume);
    let weights = program.input("w", Shape(vec![32, 32, taps, taps, taps]), Kind::Weights);
    let conv = Conv::new(Window::same([taps; 3], [1; 3]), false, stored);
    let y = program.push_one(conv, &[x, weights]).unwrap();
    program.mark_output(y, "y");
    program
}

/// The predicted seconds of its plan on a T4 whose watchdog lets launches of this length be.
fn planned_seconds(program: Program, watchdog: Option<f64>) -> Result<f64, PlanError> {
    let card = Emulator::new(Architecture::new(7, 5).unwrap(), Blocks::Ascending);
    let card = match watchdog {
        Some(seconds) => card.with_watchdog(seconds),
        None => card,
    };
    let plan = plan(&[program], &card.backend(), Options::default())?;
    Ok(plan.ids().map(|id| plan.schedule(id).predicted_seconds).sum())
}

#[test]
fn a_plan_whose_launches_a_displays_watchdog_might_end_counts_their_parts() {
    let whole = planned_seconds(long_convolution(5, DType::F32), None).unwrap();
    let divided = planned_seconds(long_convolution(5, DType::F32), Some(0.5)).unwrap();
    assert!(whole > 2.0, "{whole}");
    // Each part has a start of some microseconds.
    let parts = whole / 0.5;
    let added = divided - whole;
    assert!(added > (parts - 1.0) * 1e-6 && added < parts * 1e-4, "{added} s for {parts} parts");
}

#[test]
fn a_launch_that_cannot_be_divided_for_a_displays_watchdog_is_refused_with_a_way_out() {
    assert!(planned_seconds(long_convolution(3, DType::F16), None).is_ok());
    let error = planned_seconds(long_convolution(3, DType::F16), Some(0.02)).unwrap_err();
    let PlanError::Unsupported(unsupported) = &error else { panic!("{error}") };
    assert_eq!(unsupported.op, "conv");
    for said in
        ["cannot be divided", "watchdog of this GPU's display allows 0.02 s", "‹precision›", "‹patch_size›"]
    {
        assert!(unsupported.why.contains(said), "{error}");
    }
    // Blocks of a launch that is as short as can be take longer than this.
    let error = planned_seconds(long_convolution(5, DType::F32), Some(1e-9)).unwrap_err();
    assert!(matches!(error, PlanError::Unsupported(_)), "{error}");
}

/// A convolution, its gradient by the map, and its gradient by weights, each of a few blocks for each multiprocessor of a T4.
fn plain_convolutions() -> Case {
    let mut program = Program::new("plain");
    let (map, result) = (Shape::volume(1, 4, [2, 50, 256]), Shape::volume(1, 16, [2, 50, 256]));
    let window = Window::same([1, 3, 3], [1; 3]);
    let x = program.input("x", map, Kind::Volume);
    let dy = program.input("dy", result, Kind::Volume);
    let weights = program.input("w", Shape(vec![16, 4, 1, 3, 3]), Kind::Weights);
    let conv = program.push_one(Conv::new(window, false, DType::F32), &[x, weights]).unwrap();
    program.mark_output(conv, "y");
    let dw = program.push_one(ConvWeightGrad { window, groups: 1 }, &[x, dy]).unwrap();
    program.mark_output(dw, "dw");
    let back = ConvTranspose {
        window,
        groups: 1,
        first_channel: 0,
        channels: 4,
        output: [2, 50, 256],
        bias: false,
        dtype: DType::F32,
    };
    let dx = program.push_one(back, &[dy, weights]).unwrap();
    program.mark_output(dx, "dx");
    Case::new("plain convolutions", program, 4)
}

#[test]
fn launches_that_are_divided_for_a_displays_watchdog_have_the_same_bits() {
    let case = plain_convolutions();
    let run_on = |watchdog: Option<f64>| {
        let samples = Samples::default();
        let card = Emulator::new(Architecture::new(7, 5).unwrap(), Blocks::Shuffled(3)).sampled(&samples);
        let card = match watchdog {
            Some(seconds) => card.with_watchdog(seconds),
            None => card,
        };
        let found = run(&card.backend(), &case, Options::default());
        let mut launches = BTreeMap::<String, usize>::new();
        for sample in samples.lock().unwrap().iter() {
            *launches.entry(sample.kernel.clone()).or_default() += 1;
        }
        (found, launches)
    };
    let (whole, once) = run_on(None);
    let (divided, often) = run_on(Some(5.5e-6));
    assert!(bits(&whole) == bits(&divided));
    for kernel in ["conv_f32_f32", "conv_transpose_f32_f32", "conv_weight_grad_f32_f32"] {
        assert_eq!(once[kernel], 1, "{once:?}");
        assert!(often[kernel] > 1, "{kernel}: {often:?}");
    }
}

#[test]
fn a_loss_of_more_regions_than_kernels_take_is_refused_with_a_way_out() {
    let plan_of = |count: u8| {
        let sets = (0..count).map(|region| vec![1 + region, 1 + (region + 1) % count]).collect();
        let mut program = Program::new("counts");
        let shape = Shape::volume(1, count.into(), [2; 3]);
        let logits = program.input("logits", shape, Kind::Volume);
        let labels = program.input("labels", Shape::volume(1, 1, [2; 3]), Kind::Labels);
        let regions = Regions { labels: usize::from(count) + 1, sets };
        let y = program.push_one(RegionCounts { regions, ignore: None }, &[logits, labels]).unwrap();
        program.mark_output(y, "y");
        plan(&[program], &backend(Blocks::Ascending), Options::default())
    };
    assert!(plan_of(64).is_ok());
    let error = plan_of(65).unwrap_err();
    let PlanError::Unsupported(unsupported) = &error else { panic!("{error}") };
    assert_eq!(unsupported.op, "region_counts");
    assert!(unsupported.why.contains("65 regions, of at most 64: ‹device=cpu›"), "{error}");
}
