//! Recomputing values instead of storing them changes no bit, and a search for such plans meets its budget.

use std::collections::BTreeMap;

use conformance::{engine, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions, Level};
use plimsoll_graph::ops::Noise;
use plimsoll_graph::{DType, Kind, Program, Role};
use plimsoll_nn::{DynUNet, Network, Objective, Optimizer, PlainConvUNet, Training, names};
use plimsoll_plan::recompute::Release;
use plimsoll_plan::{HostSlice, HostSliceMut, Options, Planner, ProgramId, VerifiedPlan, plan};

const THREADS: usize = 2;
/// Random sets of values to recompute. Few are possible where a step updates its parameters: nothing that read them can be
/// computed again afterwards.
const MOST_SETS: usize = 200;
/// The least number of these sets that must be possible.
const LEAST_TRIED: usize = 8;
/// Plans are of one program.
const ONLY: ProgramId = ProgramId::new(0);

/// With an arena that is poisoned wherever nothing is to be read.
fn backend() -> CpuBackend {
    CpuBackend::new(CpuOptions { level: Level::detect(), poison: true, ..CpuOptions::new(THREADS) }).unwrap()
}

fn small_net() -> Network {
    let mut net = PlainConvUNet::new(1, 3, &[16, 24, 32], &[[3; 3]; 3], &[[1; 3], [2; 3], [2; 3]]);
    net.shape.dropout = 0.2;
    net.into()
}

fn gradient_program(net: Network, patch: [usize; 3], precision: DType, accumulation: usize) -> Program {
    let training = Training {
        net,
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch,
        batch: 2,
        shards: 1,
        micro_batch: 2 / accumulation,
        precision,
    };
    training.programs().unwrap().gradients.swap_remove(0)
}

/// Runs a program twice in a poisoned arena; every parameter, state and output afterwards, by name.
fn bits(program: &Program, plan: VerifiedPlan) -> BTreeMap<String, Vec<u32>> {
    let mut engine = engine(&backend(), plan);
    for run in 0..2 {
        for id in program.ids() {
            let tensor = program.tensor(id);
            let count = tensor.shape.count();
            match (tensor.role, &tensor.kind) {
                (Role::Input, Kind::Labels) => {
                    let labels: Vec<u8> = (0..count).map(|i| (1.5 + 1.5 * noise(1, i)) as u8).collect();
                    engine.write(ONLY, id, HostSlice::U8(&labels)).unwrap();
                }
                (Role::Input, Kind::Table) if tensor.name == names::NOISE => {
                    engine.write(ONLY, id, HostSlice::F32(&Noise::for_step(5, run, 0).to_table())).unwrap();
                }
                (Role::Input, Kind::Table) => {
                    engine.write(ONLY, id, HostSlice::F32(&Optimizer::adamw().rates(1e-3, 10, 1.0))).unwrap();
                }
                (role, _) if role == Role::Input || (role.is_persistent() && run == 0) => {
                    let scale = if role == Role::State { 0.0 } else { 0.2 };
                    let seed = id.index();
                    let values: Vec<f32> =
                        (0..count).map(|i| (scale * noise(seed, i)) as f32 + 0.01).collect();
                    engine.write(ONLY, id, HostSlice::F32(&values)).unwrap();
                }
                _ => {}
            }
        }
        engine.run(ONLY).unwrap();
    }
    let results = program.ids().filter(|id| {
        let role = program.tensor(*id).role;
        role == Role::Output || role.is_persistent()
    });
    results
        .map(|id| {
            let tensor = program.tensor(id);
            let mut values = vec![0.0; tensor.shape.count()];
            engine.read(ONLY, id, HostSliceMut::F32(&mut values)).unwrap();
            assert!(values.iter().all(|x| x.is_finite()), "{}", tensor.name);
            (tensor.name.clone(), values.into_iter().map(f32::to_bits).collect())
        })
        .collect()
}

#[test]
fn gradients_have_the_same_bits_whatever_is_recomputed() {
    let backend = backend();
    for (precision, accumulation) in [(DType::F32, 2), (DType::Bf16, 2), (DType::F32, 1)] {
        let given = [gradient_program(small_net(), [16, 16, 24], precision, accumulation)];
        let apart = Options { reuse: false, ..Options::default() };
        let expected = bits(&given[0], plan(&given, &backend, apart).unwrap());
        let planner = Planner::new(&given, &backend, Options::default()).unwrap();
        assert!(bits(&given[0], planner.plan(None).unwrap()) == expected, "kept");
        let least = planner.plan(Some(0)).unwrap();
        assert!(least.schedules[0].recompute_flops_fraction > 0.0);
        assert!(bits(&given[0], least) == expected, "the least");
        let sparing = planner.sparing_plan(None, 0.1).unwrap();
        assert!(sparing.schedules[0].recompute_flops_fraction > 0.0);
        assert!(bits(&given[0], sparing) == expected, "sparing");
        let all = planner.searches()[0].recomputation().releases();
        let mut tried = 0;
        for seed in 0..MOST_SETS {
            // Between half of all values and a few.
            let is_in = |i: usize| noise(100 + seed, i) > [0.0, 0.6, 0.9, 0.98][seed % 4];
            let some: Vec<Release> = (0..all.len()).filter(|i| is_in(*i)).map(|i| all[i]).collect();
            let Some(plan) = planner.plan_with(&[some]).unwrap() else { continue };
            if plan.schedules[0].copies.is_empty() {
                continue;
            }
            assert!(bits(&given[0], plan) == expected, "{precision:?}, set {seed}");
            tried += 1;
            if tried == LEAST_TRIED {
                break;
            }
        }
        assert!(tried >= LEAST_TRIED, "{precision:?}, {accumulation} micro-batches: {tried} sets");
    }
}

#[test]
fn a_search_meets_its_budget_near_the_lower_bound_and_less_memory_never_is_faster() {
    let backend = backend();
    let strides = [[1; 3], [2; 3], [2; 3], [2; 3], [2; 3]];
    let net = DynUNet::new(1, 2, &[32, 64, 128, 256, 320], &[[3; 3]; 5], &strides);
    // Planned, not run.
    let given = [gradient_program(net.into(), [96; 3], DType::Bf16, 2)];
    let planner = Planner::new(&given, &backend, Options::default()).unwrap();
    let most = planner.plan(None).unwrap();
    let least = planner.plan(Some(0)).unwrap();
    assert!(least.arena_bytes < most.arena_bytes);
    let mut before = f64::INFINITY;
    for part in 0..=10 {
        let budget = least.arena_bytes + (most.arena_bytes - least.arena_bytes) * part / 10;
        let plan = planner.plan(Some(budget)).unwrap();
        assert!(plan.arena_bytes <= budget);
        let room = (plan.arena_bytes - plan.persistent_bytes()) as f64;
        let bound = (plan.lower_bound_bytes - plan.persistent_bytes()) as f64;
        assert!(room <= 1.005 * bound, "{room} over {bound}");
        let seconds = plan.schedules[0].predicted_seconds;
        assert!(seconds <= 1.001 * before, "{seconds} after {before}");
        before = seconds;
    }
    assert_eq!(planner.plan(Some(most.arena_bytes)).unwrap(), most);
    // A twentieth of the time saves a good part of the memory.
    let sparing = planner.sparing_plan(None, 0.05).unwrap();
    let seconds = |plan: &VerifiedPlan| plan.schedules[0].predicted_seconds;
    assert!(seconds(&sparing) <= 1.05 * seconds(&most));
    assert!(
        sparing.arena_bytes < most.arena_bytes * 9 / 10,
        "{} of {}",
        sparing.arena_bytes,
        most.arena_bytes
    );
    let curve = planner.curve().unwrap();
    for pair in curve.windows(2) {
        assert!(pair[1].arena_bytes < pair[0].arena_bytes);
        assert!(pair[1].predicted_seconds >= pair[0].predicted_seconds);
    }
}
