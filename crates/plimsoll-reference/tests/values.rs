//! The reference backend computes the values of the definitions over an arena, to the bit, whatever the plan recomputes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use conformance::engine;
use plimsoll_graph::ops::{
    Accumulate, AdamW, CompositeLoss, Conv, HardCounts, LeakyRelu, Loss, NormStats, NormUse, Normalise,
};
use plimsoll_graph::{Array, DType, Kind, Program, Role, Shape, TensorId, Window, differentiate, interpret};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{
    Backend, Engine, EngineError, HostSlice, HostSliceMut, Options, Planner, ProgramId, plan,
};
use plimsoll_reference::ReferenceBackend;

const SPATIAL: [usize; 3] = [4, 6, 5];
const LAYERS: usize = 4;

/// A net of a few layers; its logits.
fn net(program: &mut Program) -> TensorId {
    let mut map = program.input("image", Shape::volume(2, 1, SPATIAL), Kind::Volume);
    for layer in 0..LAYERS {
        let channels = program.shape(map).channels();
        let shape = Shape(vec![4, channels, 3, 3, 3]);
        let weights = program.parameter(format!("{layer}/weights"), shape, Kind::Weights);
        let scale = program.parameter(format!("{layer}/scale"), Shape(vec![4]), Kind::Channels);
        let shift = program.parameter(format!("{layer}/shift"), Shape(vec![4]), Kind::Channels);
        let conv = Conv::new(Window::same([3; 3], [1; 3]), false, DType::Bf16);
        let y = program.push_one(conv, &[map, weights]).unwrap();
        let statistics = program.push_one(NormStats::instance(1e-5), &[y]).unwrap();
        let y = program.push_one(Normalise { affine: true }, &[y, statistics, scale, shift]).unwrap();
        map = program.push_one(LeakyRelu { slope: 0.01 }, &[y]).unwrap();
    }
    let weights = program.parameter("head/weights", Shape(vec![3, 4, 1, 1, 1]), Kind::Weights);
    let bias = program.parameter("head/bias", Shape(vec![3]), Kind::Channels);
    program.push_one(Conv::new(Window::point(), true, DType::F32), &[map, weights, bias]).unwrap()
}

fn labels(program: &mut Program) -> TensorId {
    program.input("labels", Shape::volume(2, 1, SPATIAL), Kind::Labels)
}

/// Adds the gradients of a loss to states.
fn gradients() -> Program {
    let mut program = Program::new("gradients");
    let logits = net(&mut program);
    let labels = labels(&mut program);
    let loss = Loss::default();
    let sums = program.push_one(loss.stats(), &[logits, labels]).unwrap();
    let loss = program.push(CompositeLoss { loss }, &[sums]).unwrap()[0];
    program.mark_output(loss, "loss");
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let gradients = differentiate(&mut program, loss, 1.0, &parameters).unwrap();
    for (parameter, gradient) in parameters.into_iter().zip(gradients) {
        let info = program.tensor(parameter).clone();
        let sum = program.state(format!("{}/gradient", info.name), info.shape, info.kind);
        program.push(Accumulate, &[sum, gradient.unwrap()]).unwrap();
    }
    program
}

fn update(gradients: &Program) -> Program {
    let mut program = Program::new("update");
    let rates = program.input("rates", Shape(vec![4]), Kind::Table);
    let adamw = AdamW {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        coupled: false,
        rate_factor: 1.0,
        norm: NormUse::Unread,
        clear: true,
    };
    for id in gradients.with_role(Role::Parameter) {
        let info = gradients.tensor(id).clone();
        let parameter = program.parameter(&info.name, info.shape.clone(), info.kind);
        let mut operands = vec![parameter];
        for state in ["gradient", "first", "second"] {
            let name = format!("{}/{state}", info.name);
            operands.push(program.state(name, info.shape.clone(), info.kind));
        }
        operands.push(rates);
        program.push(adamw, &operands).unwrap();
    }
    program
}

fn validate() -> Program {
    let mut program = Program::new("validate");
    let logits = net(&mut program);
    let labels = labels(&mut program);
    let counts = program.push_one(HardCounts { ignore: None }, &[logits, labels]).unwrap();
    program.mark_output(counts, "counts");
    program
}

fn step() -> [Program; 3] {
    let gradients = gradients();
    let update = update(&gradients);
    [gradients, update, validate()]
}

fn value(name: &str, place: usize) -> f64 {
    let mixed = name.bytes().fold(place as u64 + 1, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (mixed >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

/// Writes all inputs of a program, and the parameters and states that `values` does not know yet.
fn give(engine: &mut dyn Engine, id: ProgramId, values: &mut HashMap<String, Array>) {
    let program = engine.plan().program(id).clone();
    for tensor in program.ids() {
        let info = program.tensor(tensor);
        let is_new = info.role.is_persistent() && !values.contains_key(&info.name);
        if info.role != Role::Input && !is_new {
            continue;
        }
        let array = Array::from_fn(info.shape.clone(), |place| match info.kind {
            Kind::Labels => ((value(&info.name, place) + 0.5) * 3.0).floor(),
            Kind::Table => 0.1,
            _ if info.role == Role::State => value(&info.name, place).abs(),
            _ => value(&info.name, place),
        });
        if info.dtype == DType::U8 {
            let labels: Vec<u8> = array.data.iter().map(|label| *label as u8).collect();
            engine.write(id, tensor, HostSlice::U8(&labels)).unwrap();
        } else {
            engine.write(id, tensor, HostSlice::F64(&array.data)).unwrap();
        }
        values.insert(info.name.clone(), array);
    }
}

/// Runs each program twice, and compares what it leaves with what the definitions say.
fn agrees(programs: &[Program], options: Options) -> usize {
    let backend = ReferenceBackend::new().poisoned();
    let plan = plan(programs, &backend, options).unwrap();
    let arena = plan.arena_bytes;
    let mut engine = engine(&backend, plan);
    let mut values = HashMap::new();
    for _ in 0..2 {
        for id in engine.plan().ids().collect::<Vec<ProgramId>>() {
            give(&mut *engine, id, &mut values);
            let program = engine.plan().program(id).clone();
            let expected = interpret(&program, &values).unwrap();
            engine.run(id).unwrap();
            for (tensor, expected) in program.ids().zip(expected) {
                let info = program.tensor(tensor);
                if !info.role.is_persistent() && info.role != Role::Output {
                    continue;
                }
                let mut found = vec![0.0; expected.data.len()];
                engine.read(id, tensor, HostSliceMut::F64(&mut found)).unwrap();
                assert_eq!(found, expected.data, "{} of {}", info.name, program.name);
                values.insert(info.name.clone(), expected);
            }
        }
    }
    assert!(engine.used_bytes() <= arena);
    arena
}

#[test]
fn a_step_whose_numbers_went_wrong_leaves_everything_as_it_was() {
    conformance::check_guards(&ReferenceBackend::new());
}

#[test]
fn a_step_gives_the_values_of_its_definitions_with_and_without_a_budget() {
    let programs = step();
    let most = agrees(&programs, Options::default());
    let apart = agrees(&programs, Options { reuse: false, ..Options::default() });
    let least = agrees(&programs, Options { budget: Some(0), ..Options::default() });
    assert!(least < most && most < apart, "{least} {most} {apart}");
    agrees(&programs, Options { budget: Some(least.midpoint(most)), ..Options::default() });
}

#[test]
fn the_least_plan_recomputes() {
    let (programs, backend) = (step(), ReferenceBackend::new());
    let planner = Planner::new(&programs, &backend, Options::default()).unwrap();
    let plan = planner.plan(Some(0)).unwrap();
    assert!(!plan.schedules[0].copies.is_empty());
    assert!(plan.schedules[0].recompute_flops_fraction > 0.0);
}

#[test]
fn host_values_are_converted_and_wrong_ones_are_errors() {
    let (programs, backend) = (step(), ReferenceBackend::new());
    let mut engine = engine(&backend, plan(&programs, &backend, Options::default()).unwrap());
    let id = engine.plan().find("gradients").unwrap();
    let program = engine.plan().program(id).clone();
    let (bias, labels) = (program.find("head/bias").unwrap(), program.find("labels").unwrap());
    engine.write(id, bias, HostSlice::F32(&[0.1, 0.2, 0.3])).unwrap();
    let mut wide = [0.0; 3];
    engine.read(id, bias, HostSliceMut::F64(&mut wide)).unwrap();
    assert_eq!(wide, [0.1f32, 0.2, 0.3].map(f64::from));
    let mut narrow = [0.0; 3];
    engine.read(id, bias, HostSliceMut::F32(&mut narrow)).unwrap();
    assert_eq!(narrow, [0.1, 0.2, 0.3]);

    let is_values = |result| matches!(result, Err(EngineError::Values { .. }));
    assert!(is_values(engine.write(id, bias, HostSlice::F32(&[0.1; 4]))));
    assert!(is_values(engine.write(id, bias, HostSlice::U8(&[1; 3]))));
    assert!(is_values(engine.write(id, labels, HostSlice::F32(&[0.0; 240]))));
    let unknown = engine.write(id, TensorId(u32::MAX), HostSlice::F32(&[0.0]));
    assert!(matches!(unknown, Err(EngineError::Internal(_))));
    assert!(is_values(engine.read(id, bias, HostSliceMut::F64(&mut [0.0; 2]))));
    engine.write(id, labels, HostSlice::U8(&[2; 240])).unwrap();
    let mut read = [0; 240];
    engine.read(id, labels, HostSliceMut::U8(&mut read)).unwrap();
    assert_eq!(read, [2; 240]);
}

#[test]
fn an_arena_beyond_its_reservation_and_a_program_of_another_plan_are_errors() {
    let (programs, backend) = (step(), ReferenceBackend::new());
    let planned = || plan(&programs, &backend, Options::default()).unwrap();
    let small = Budget::new(Bytes::mib(64)).reserve("arena", Bytes::from_len(4096)).unwrap();
    assert!(matches!(backend.engine(planned(), small), Err(EngineError::Arena(_))));

    let mut of_one = engine(&backend, plan(&programs[..1], &backend, Options::default()).unwrap());
    let other = planned().find("validate").unwrap();
    assert!(of_one.run(other).is_err());
    assert!(of_one.least_times(other).is_empty());
    assert!(of_one.write(other, TensorId(0), HostSlice::F32(&[])).is_err());
}

#[test]
fn times_are_those_of_the_launches() {
    let (programs, backend) = (step(), ReferenceBackend::new());
    let mut engine = engine(&backend, plan(&programs, &backend, Options::default()).unwrap());
    let id = engine.plan().find("validate").unwrap();
    assert!(engine.least_times(id).iter().all(|time| time.seconds == f64::INFINITY));
    engine.run(id).unwrap();
    let launches = engine.plan().schedule(id).launches.len();
    assert_eq!(engine.least_times(id).len(), launches);
    assert!(engine.least_times(id).iter().all(|time| time.seconds.is_finite()));
    assert_eq!(engine.times().iter().map(|time| time.runs).sum::<u64>(), launches as u64);
    let convs = engine.times().into_iter().find(|time| time.op == "conv").unwrap();
    assert_eq!(convs.runs, LAYERS as u64 + 1);
}
