//! Steps of training with all components of soft morphology, of two heads, with a label ignored.

use conformance::{engine, noise};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::ops::DownsampleLabels;
use plimsoll_graph::{DType, Kind, Program, Role};
use plimsoll_nn::{DynUNet, Objective, Optimizer, Training, names};
use plimsoll_plan::{HostSlice, HostSliceMut, Options, Planner, ProgramId};

const PATCH: [usize; 3] = [8, 16, 16];
const BATCH: usize = 2;
const IGNORED: u8 = 3;
/// Training comes before validation.
const STEP: ProgramId = ProgramId::new(0);

fn training() -> Training {
    let mut net = DynUNet::new(1, 3, &[4, 6, 8], &[[3; 3]; 3], &[[1; 3], [1, 2, 2], [2; 3]]);
    net.shape.deep_supervision = 1;
    let loss = r#"{"components": [
        {"name": "soft_dice", "weight": 0.5, "include_background": false},
        {"name": "cldice", "weight": 0.2, "iterations": 3},
        {"name": "morph_skeleton", "weight": 0.5},
        {"name": "toploss_simple", "weight": 0.5},
        {"name": "skeleton_recall", "weight": 0.3}
    ], "ignore": 3}"#;
    Training {
        net: net.into(),
        loss: serde_json::from_str::<Objective>(loss).unwrap(),
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: PATCH,
        spacing: [1.0; 3],
        batch: BATCH,
        shards: 1,
        micro_batch: BATCH,
        precision: DType::F32,
    }
}

/// Two tubes, a border and some voxels that do not count.
fn label(i: usize) -> u8 {
    let [depth, height, width] = PATCH;
    let (d, h, w) = (i / (height * width) % depth, i / width % height, i % width);
    match (d, h, w) {
        _ if w == 15 => IGNORED,
        _ if h.abs_diff(w) <= 1 => 1,
        _ if h.abs_diff(15 - w) <= 1 && d < 5 => 2,
        _ => 0,
    }
}

/// The whole class takes the place of its tube, at any extent.
fn tube(extent: [usize; 3], i: usize) -> f32 {
    let count: usize = extent.iter().product();
    let [_, height, width] = extent;
    let (sample, class, at) = (i / count / 2, i / count % 2 + 1, i % count);
    let at = [at / (height * width), at / width % height, at % width];
    let near = |axis: usize| DownsampleLabels::source(at[axis], extent[axis], PATCH[axis]);
    let fine = ((sample * PATCH[0] + near(0)) * PATCH[1] + near(1)) * PATCH[2] + near(2);
    f32::from(u8::from(usize::from(label(fine)) == class))
}

/// Losses of some steps, then the loss of validation.
fn losses(threads: usize, least: bool) -> Vec<f32> {
    let training = training();
    let programs = training.programs().unwrap();
    let targets = programs.targets;
    let all: Vec<Program> = programs.gradients.into_iter().chain([programs.validate]).collect();
    assert_eq!(all.len(), 2);
    let backend = CpuBackend::new(CpuOptions::new(threads)).unwrap();
    let planner = Planner::new(&all, &backend, Options::default()).unwrap();
    let mut engine = engine(&backend, planner.plan(least.then_some(0)).unwrap());
    let step = &all[0];
    for id in step.with_role(Role::Parameter) {
        let values = training.net.initial_values(step.tensor(id), u64::from(id.0));
        engine.write(STEP, id, HostSlice::F32(&values)).unwrap();
    }
    let mut losses = Vec::new();
    for at in 0..9 {
        let id = ProgramId::new(usize::from(at == 8));
        let program = &all[id.index()];
        for input in program.with_role(Role::Input) {
            let tensor = program.tensor(input);
            let count = tensor.shape.count();
            let values: Vec<f32> = match tensor.name.as_str() {
                names::IMAGE => {
                    (0..count).map(|i| f32::from(label(i) % IGNORED) + noise(5, i) as f32).collect()
                }
                names::RATES => Optimizer::adamw().rates(1e-2, at + 1, 1.0).to_vec(),
                _ => (0..count).map(|i| tube(tensor.shape.spatial(), i)).collect(),
            };
            let labels: Vec<u8> = (0..count).map(label).collect();
            let written = match tensor.kind {
                Kind::Labels => engine.write(id, input, HostSlice::U8(&labels)),
                _ => engine.write(id, input, HostSlice::F32(&values)),
            };
            written.unwrap();
        }
        assert!(targets.iter().all(|target| program.find(&target.name).is_some() || id != STEP));
        engine.run(id).unwrap();
        let mut loss = [0.0];
        let read = engine.read(id, program.find(names::LOSS).unwrap(), HostSliceMut::F32(&mut loss));
        read.unwrap();
        losses.push(loss[0]);
    }
    losses
}

#[test]
fn a_network_learns_and_the_bits_depend_on_neither_threads_nor_memory() {
    let found = losses(1, false);
    assert!(found.iter().all(|loss| loss.is_finite()), "{found:?}");
    assert!(found[7] < 0.9 * found[0], "{found:?}");
    assert_eq!(found, losses(3, false), "threads");
    assert_eq!(found, losses(1, true), "memory");
}

#[test]
fn each_component_has_a_part_and_each_head_its_skeleton() {
    let objective = training().loss;
    let names: Vec<&str> = objective.components.iter().map(|term| term.name()).collect();
    assert_eq!(names, ["soft_dice", "cldice", "morph_skeleton", "toploss_simple", "skeleton_recall"]);
    assert_eq!(objective.parts(&objective.validation()).len(), 5);
    let training = training();
    let programs = training.programs().unwrap();
    let extents: Vec<[usize; 3]> = programs.targets.iter().map(|target| target.extent).collect();
    assert_eq!(extents, [[8, 16, 16], [8, 8, 8]]);
}
