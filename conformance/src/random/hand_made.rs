//! Programs made by hand, right and wrong, and what a backend makes of them: an error or a plan that runs.

use plimsoll_graph::ops::{
    Accumulate, BoundaryL1, BoxExtreme, ClDice, Component, CompositeLoss, Conv, Counted, CrossEntropy,
    CrossErosion, DistanceLoss, DistanceTerm, DownsampleLabels, Ema, Extreme, Focal, FocalTversky,
    GeneralizedDice, GradNorm, HardCounts, Join, Loss, MeanDifference, MeanPool, NormUse, OneHot,
    OverlapSums, PredictedDistance, Probabilities, RATES, Sgd, SkeletonStep, SoftDice, SoftRecall,
    SurfaceForm, Tversky, Union, WeightedBce, WeightedSum,
};
use plimsoll_graph::{
    Array, DType, GraphError, Kind, Op, Program, Role, Shape, TensorId, Window, differentiate,
};
use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_plan::{Backend, Engine, EngineError, HostSlice, HostSliceMut, Options, ProgramId, plan};

use super::bytes::damaged;
use super::programs::{Random, set};

/// Arenas of this many bytes are not run any more.
const MOST_BYTES: usize = 64 << 20;
/// Nor programs with more operations: some of the definitions take a hundred times as long.
const MOST_FLOPS: u64 = 5_000_000;

/// A set of programs that is right.
pub fn valid(random: &mut Random) -> Vec<Program> {
    match random.below(3) {
        0 => set(random),
        _ => vec![losses(random).unwrap()],
    }
}

/// Two convolutions, the losses of its logits, and a step.
fn losses(random: &mut Random) -> Result<Program, GraphError> {
    let mut p = Program::new("losses");
    let extent = [[4, 5, 6], [1, 7, 9], [2, 3, 17]][random.below(3)];
    let image = p.input("image", Shape::volume(2, 2, extent), Kind::Volume);
    let labels = p.input("labels", Shape::volume(2, 1, extent), Kind::Labels);
    let first = p.parameter("first", Shape(vec![5, 2, 1, 3, 3]), Kind::Weights);
    let conv = Conv::new(Window::same([1, 3, 3], [1; 3]), false, DType::F32);
    let map = p.push_one(conv, &[image, first])?;
    let weights = p.parameter("weights", Shape(vec![3, 5, 1, 1, 1]), Kind::Weights);
    let bias = p.parameter("bias", Shape(vec![3]), Kind::Channels);
    let logits = p.push_one(Conv::new(Window::point(), true, DType::F32), &[map, weights, bias])?;
    let ignore = [None, Some(2), Some(0)][random.below(3)];
    let mut all = Vec::new();
    for _ in 0..1 + random.below(3) {
        let loss = match random.below(4) {
            0 => composite(&mut p, random, logits, labels, ignore)?,
            1 | 2 => soft(&mut p, random, logits, labels, ignore)?,
            _ => shape(&mut p, random, logits, labels, ignore)?,
        };
        all.push(loss);
    }
    let together = p.push_one(Join, &all)?;
    p.mark_output(together, "losses");
    let loss = p.push_one(WeightedSum { weights: vec![0.5; all.len()] }, &all)?;
    p.mark_output(loss, "loss");
    let counts = p.push_one(HardCounts { ignore }, &[logits, labels])?;
    p.mark_output(counts, "counts");
    let gradients = differentiate(&mut p, loss, 1.0, &[first, weights, bias])?;
    let mut sums = Vec::new();
    for (parameter, gradient) in [first, weights, bias].into_iter().zip(gradients) {
        let info = p.tensor(parameter).clone();
        let sum = p.state(format!("{}/gradient", info.name), info.shape, info.kind);
        if let Some(gradient) = gradient {
            p.push(Accumulate, &[sum, gradient])?;
        }
        sums.push(sum);
    }
    let norm = p.push_one(GradNorm { loss: true }, &[&[loss], &sums[..]].concat())?;
    let rates = p.input("rates", Shape(vec![RATES]), Kind::Table);
    for (parameter, sum) in [first, weights, bias].into_iter().zip(sums) {
        let info = p.tensor(parameter).clone();
        let momentum = p.state(format!("{}/momentum", info.name), info.shape, info.kind);
        let sgd =
            Sgd { momentum: 0.9, weight_decay: 0.1, rate_factor: 0.5, norm: NormUse::Clip(1.0), clear: true };
        p.push(sgd, &[parameter, sum, momentum, rates, norm])?;
        let info = p.tensor(parameter).clone();
        let average = p.state(format!("{}/average", info.name), info.shape, info.kind);
        p.push(Ema { decay: 0.9, guarded: true }, &[average, parameter, norm])?;
    }
    Ok(p)
}

fn composite(
    p: &mut Program,
    random: &mut Random,
    logits: TensorId,
    labels: TensorId,
    ignore: Option<u8>,
) -> Result<TensorId, GraphError> {
    let all = [
        Component::SoftDice(SoftDice::default()),
        Component::LogCoshDice(SoftDice { squared: true, ..SoftDice::default() }),
        Component::GeneralizedDice(GeneralizedDice::default()),
        Component::Tversky(Tversky { alpha: 0.3, beta: 0.7, ..Tversky::default() }),
        Component::FocalTversky(FocalTversky::default()),
        Component::CrossEntropy(CrossEntropy {
            class_weights: vec![0.2, 1.0, 3.0],
            ..CrossEntropy::default()
        }),
        Component::WeightedBce(WeightedBce::default()),
        Component::Focal(Focal { alpha: Some(0.25), ..Focal::default() }),
    ];
    let components = (0..1 + random.below(3)).filter_map(|_| random.one_of(&all)).collect();
    let loss = Loss { ignore, ..Loss::new(components) };
    let sums = p.push_one(loss.stats(), &[logits, labels])?;
    Ok(p.push(CompositeLoss { loss }, &[sums])?[0])
}

fn skeleton(p: &mut Program, mut x: TensorId, erosion: &Op, union: Union) -> Result<TensorId, GraphError> {
    let mut skeleton = None;
    for _ in 0..2 {
        let eroded = p.push_one(erosion.clone(), &[x])?;
        let step = SkeletonStep { first: skeleton.is_none(), union };
        let operands: Vec<TensorId> = [x, eroded].into_iter().chain(skeleton).collect();
        skeleton = Some(p.push_one(step, &operands)?);
        x = eroded;
    }
    Ok(skeleton.unwrap_or(x))
}

fn soft(
    p: &mut Program,
    random: &mut Random,
    logits: TensorId,
    labels: TensorId,
    ignore: Option<u8>,
) -> Result<TensorId, GraphError> {
    let x = p.push_one(Probabilities, &[logits])?;
    let x = p.push_one(Counted { ignore }, &[x, labels])?;
    let t = p.push_one(OneHot { foreground: 2, ignore }, &[labels])?;
    let extreme = [Extreme::Min, Extreme::Max][random.below(2)];
    let cube = BoxExtreme { radius: 1 + random.below(2), extreme };
    let erosion: Op = if random.below(2) == 0 { CrossErosion.into() } else { cube.into() };
    let union = [Union::Probabilistic, Union::Maximum][random.below(2)];
    let threshold = [None, Some(0.9)][random.below(2)];
    let difference = MeanDifference { threshold, classes: 3, ignore };
    match random.below(4) {
        0 => {
            let (of_x, of_t) = (skeleton(p, x, &erosion, union)?, skeleton(p, t, &erosion, union)?);
            let sums = OverlapSums { by_channel: false };
            let precision = p.push_one(sums, &[of_x, t])?;
            let sensitivity = p.push_one(sums, &[of_t, x])?;
            let of = ClDice { smooth_numerator: 0.5, smooth_denominator: 1.0, smooth: 1e-3 };
            p.push_one(of, &[precision, sensitivity])
        }
        1 => {
            let (of_x, of_t) = (skeleton(p, x, &erosion, union)?, skeleton(p, t, &erosion, union)?);
            Ok(p.push(difference, &[of_x, of_t, labels])?[0])
        }
        2 => {
            let (of_x, of_t) = (p.push_one(cube, &[x])?, p.push_one(cube, &[t])?);
            Ok(p.push(difference, &[of_x, of_t, labels])?[0])
        }
        _ => {
            let sums = p.push_one(OverlapSums { by_channel: true }, &[t, x])?;
            let batch = random.below(2) == 0;
            p.push_one(SoftRecall { batch, smooth_numerator: 0.1, smooth_denominator: 0.2 }, &[sums])
        }
    }
}

fn shape(
    p: &mut Program,
    random: &mut Random,
    logits: TensorId,
    labels: TensorId,
    ignore: Option<u8>,
) -> Result<TensorId, GraphError> {
    let mut operands = vec![p.push_one(Probabilities, &[logits])?, labels];
    if random.below(2) == 0 {
        let output = p.shape(logits).spatial().map(|extent| extent.div_ceil(2));
        operands[0] = p.push_one(MeanPool { output }, &operands[..1])?;
        operands[1] = p.push_one(DownsampleLabels { output }, &[labels])?;
    }
    let term = match random.below(5) {
        0 => return Ok(p.push(BoundaryL1 { ignore }, &operands)?[0]),
        1 => DistanceTerm::Boundary,
        2 => DistanceTerm::Hausdorff { alpha: 1.3, log: true },
        3 => DistanceTerm::Surface { tolerance: 1.5, form: SurfaceForm::Symmetric },
        _ => DistanceTerm::Surface { tolerance: 1.5, form: SurfaceForm::AsPublished },
    };
    let shape = p.shape(operands[0]).clone();
    operands.push(p.input(format!("distances {}", p.tensors.len()), shape, Kind::Volume));
    if term.uses_prediction() {
        let op = PredictedDistance { spacing: [2.0, 1.0, 0.7], signed: term.is_signed(), ignore };
        operands.push(p.push_one(op, &operands[..2])?);
    }
    Ok(p.push(DistanceLoss { term, ignore }, &operands)?[0])
}

/// Changes programs: ids, attributes, shapes, types, kinds, roles, names, order, operands; mostly to something wrong.
pub fn changed(programs: &[Program], random: &mut Random) -> Option<Vec<Program>> {
    let mut programs = programs.to_vec();
    let at = random.below(programs.len());
    let program = &mut programs[at];
    let (a, b) = (random.below(program.nodes.len()), random.below(program.nodes.len()));
    match random.below(6) {
        0 => program.nodes.swap(a, b),
        1 => program.nodes[a].op = program.nodes[b].op.clone(),
        2 => {
            let extent = [1, 2, 3, 16, 17, 33][random.below(6)];
            widen(program, random, extent);
        }
        _ => {
            let file = serde_json::to_value(&programs).ok()?;
            return damaged(&file, random);
        }
    }
    Some(programs)
}

/// Gives one extent of all tensors another value wherever it stands, which may well be right.
fn widen(program: &mut Program, random: &mut Random, to: usize) {
    let tensor = random.below(program.tensors.len());
    let shape = &program.tensors[tensor].shape.0;
    let Some(from) = random.one_of(shape) else { return };
    for tensor in &mut program.tensors {
        for extent in &mut tensor.shape.0 {
            if *extent == from {
                *extent = to;
            }
        }
    }
}

/// Plans programs, and runs what can be run. Says whether it was run; an engine that refuses to is a fault.
pub fn run(
    programs: &[Program],
    backend: &dyn Backend,
    options: Options,
    random: &mut Random,
) -> Result<bool, EngineError> {
    let Ok(plan) = plan(programs, backend, options) else { return Ok(false) };
    let flops = plan.lowered.iter().fold(0, |sum: u64, lowered| sum.saturating_add(lowered.flops()));
    if plan.arena_bytes >= MOST_BYTES || flops > MOST_FLOPS {
        return Ok(false);
    }
    let bytes = Mapped::<u8>::bytes(plan.arena_bytes)?;
    let arena =
        Budget::new(Bytes::gib(1)).reserve("arena", bytes).map_err(plimsoll_memory::MapError::from)?;
    let ids: Vec<ProgramId> = plan.ids().collect();
    let mut engine = backend.engine(plan, arena)?;
    for id in ids.iter().chain(&ids) {
        give(&mut *engine, *id, random)?;
        engine.run(*id)?;
        take(&*engine, *id)?;
    }
    Ok(true)
}

/// Writes all inputs, parameters and states: mostly numbers, and labels of classes that there are.
fn give(engine: &mut dyn Engine, id: ProgramId, random: &mut Random) -> Result<(), EngineError> {
    let program = engine.plan().program(id).clone();
    let odd = [f32::NAN, f32::INFINITY, -1e30, 1e30, 3e9][random.below(5)];
    let oddness = [usize::MAX, usize::MAX, 7][random.below(3)];
    for tensor in program.ids() {
        let info = program.tensor(tensor);
        if info.role != Role::Input && !info.role.is_persistent() {
            continue;
        }
        let mut number = |_: usize| match random.below(oddness) {
            0 => f64::from(odd),
            _ => random.below(1000) as f64 / 500.0 - 1.0,
        };
        let values = Array::from_fn(info.shape.clone(), &mut number).data;
        match info.dtype {
            DType::U8 => {
                let labels: Vec<u8> = values.iter().map(|x| (x.abs() * 3.0) as u8).collect();
                engine.write(id, tensor, HostSlice::U8(&labels))?;
            }
            DType::F64 => engine.write(id, tensor, HostSlice::F64(&values))?,
            DType::F32 | DType::Bf16 | DType::F16 => {
                let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
                engine.write(id, tensor, HostSlice::F32(&values))?;
            }
        }
    }
    Ok(())
}

/// Reads all tensors that have a place.
fn take(engine: &dyn Engine, id: ProgramId) -> Result<(), EngineError> {
    let (program, schedule) = (engine.plan().program(id), engine.plan().schedule(id));
    for tensor in program.ids().filter(|tensor| schedule.place(*tensor).is_some()) {
        let info = program.tensor(tensor);
        let count = info.shape.count();
        match info.dtype {
            DType::U8 => engine.read(id, tensor, HostSliceMut::U8(&mut vec![0; count]))?,
            DType::F64 => engine.read(id, tensor, HostSliceMut::F64(&mut vec![0.0; count]))?,
            DType::F32 | DType::Bf16 | DType::F16 => {
                engine.read(id, tensor, HostSliceMut::F32(&mut vec![0.0; count]))?;
            }
        }
    }
    Ok(())
}

/// Options of a planner.
pub fn options(random: &mut Random) -> Options {
    let budget = [None, None, Some(0), Some(20_000), Some(usize::MAX)][random.below(5)];
    Options { inline: random.below(2) == 0, reuse: random.below(4) > 0, budget }
}
