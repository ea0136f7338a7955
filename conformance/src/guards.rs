//! Steps whose numbers went wrong: on every backend they leave everything as it was.

use plimsoll_graph::ops::{AdamW, Ema, GradNorm, NormUse, RATES, RunningUpdate, Sgd};
use plimsoll_graph::{Kind, Program, Role, Shape, TensorId};
use plimsoll_plan::{Backend, Options, ProgramId};

use crate::{engine_for, noise, read, write};

/// More elements than one task of a kernel takes.
const COUNT: usize = 40_000;

const ONLY: ProgramId = ProgramId::new(0);

/// The inputs of a step, and their effect.
struct Step {
    /// At some place of the second gradient.
    gradient: f64,
    loss: f64,
    /// `true` if the norm is then NaN; it is infinite otherwise.
    is_nan: bool,
}

/// Runs updates of all kinds whose gradients or loss are NaN, infinite or too large, and then one that is sound. Refused ones must
/// leave parameters, moments and averages as they are to the bit, clear the gradients that are to be cleared, and say so by their
/// norm.
///
/// # Panics
/// Panics if an update differs from that.
pub fn check_guards(backend: &dyn Backend) {
    for norm_use in [NormUse::Guard, NormUse::Clip(12.0)] {
        check_guard(backend, norm_use);
    }
}

fn check_guard(backend: &dyn Backend, norm_use: NormUse) {
    let program = updates(norm_use);
    let mut engine = engine_for(backend, std::slice::from_ref(&program), Options::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let id = |name: &str| program.find(name).unwrap();
    let persistent: Vec<TensorId> =
        program.ids().filter(|id| program.tensor(*id).role.is_persistent()).collect();
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    let refused = [
        (nan, 1.0, true),
        (infinity, 1.0, false),
        (-infinity, 1.0, false),
        // Its square is more than f32 holds.
        (1e20, 1.0, false),
        (0.5, nan, true),
        (0.5, infinity, true),
        (0.5, -infinity, true),
        (infinity, nan, true),
    ];
    for (gradient, loss, is_nan) in refused {
        let step = Step { gradient, loss, is_nan };
        write(&mut *engine, ONLY, id("statistics"), &vec![0.5; 2 * COUNT]);
        write(&mut *engine, ONLY, id("variance"), &vec![0.5; COUNT]);
        for tensor in &persistent {
            let values: Vec<f64> = (0..program.shape(*tensor).count())
                .map(|i| 1.0 + noise(tensor.index(), i) as f32 as f64 / 2.0)
                .collect();
            write(&mut *engine, ONLY, *tensor, &values);
        }
        let mut gradients = [vec![0.25; COUNT], vec![0.5; COUNT]];
        gradients[1][COUNT - 7] = step.gradient;
        write(&mut *engine, ONLY, id("kept gradient"), &gradients[0]);
        write(&mut *engine, ONLY, id("gradient"), &gradients[1]);
        write(&mut *engine, ONLY, id("loss"), &[step.loss]);
        write(&mut *engine, ONLY, id("rates"), &[0.1, 0.5, 0.5, 1.0]);
        let bits = |engine: &dyn plimsoll_plan::Engine, tensor: TensorId| -> Vec<u64> {
            read(engine, ONLY, tensor).into_iter().map(f64::to_bits).collect()
        };
        let before: Vec<Vec<u64>> = persistent.iter().map(|tensor| bits(&*engine, *tensor)).collect();
        engine.run(ONLY).unwrap();
        let norm = read(&*engine, ONLY, id("norm"))[0];
        let what =
            format!("a gradient of {gradient}, a loss of {loss}, {norm_use:?}, {}", backend.identity());
        assert!(if step.is_nan { norm.is_nan() } else { norm == infinity }, "{what}: the norm is {norm}");
        for (tensor, before) in persistent.iter().zip(before) {
            let name = &program.tensor(*tensor).name;
            let after = bits(&*engine, *tensor);
            match name.as_str() {
                "gradient" => assert!(after.iter().all(|bits| *bits == 0), "{what}: `{name}` is not cleared"),
                _ => assert!(before == after, "{what}: `{name}` has changed"),
            }
        }
    }
    // The same updates do something where the numbers are sound.
    write(&mut *engine, ONLY, id("gradient"), &vec![0.5; COUNT]);
    write(&mut *engine, ONLY, id("kept gradient"), &vec![0.25; COUNT]);
    write(&mut *engine, ONLY, id("loss"), &[1.0]);
    write(&mut *engine, ONLY, id("statistics"), &vec![0.25; 2 * COUNT]);
    write(&mut *engine, ONLY, id("variance"), &vec![0.25; COUNT]);
    write(&mut *engine, ONLY, id("rates"), &[0.1, 0.5, 0.5, 1.0]);
    let states = || persistent.iter().filter(|tensor| !program.tensor(**tensor).name.ends_with("gradient"));
    let before: Vec<Vec<f64>> = states().map(|tensor| read(&*engine, ONLY, *tensor)).collect();
    engine.run(ONLY).unwrap();
    for (tensor, before) in states().zip(before) {
        let name = &program.tensor(*tensor).name;
        assert!(read(&*engine, ONLY, *tensor) != before, "{}: `{name}` is as it was", backend.identity());
    }
}

/// Both optimizers, of gradients that are cleared and that are not, with averages of the parameters, and running statistics.
fn updates(norm: NormUse) -> Program {
    let mut program = Program::new("updates");
    let shape = Shape(vec![COUNT]);
    let loss = program.input("loss", Shape(vec![1]), Kind::Table);
    let rates = program.input("rates", Shape(vec![RATES]), Kind::Table);
    let kept = program.input("kept gradient", shape.clone(), Kind::Channels);
    let cleared = program.state("gradient", shape.clone(), Kind::Channels);
    let taken = program.push_one(GradNorm { loss: true }, &[loss, kept, cleared]).unwrap();
    program.mark_output(taken, "norm");
    let mut state = |role: Role, name: &str| match role {
        Role::Parameter => program.parameter(name, shape.clone(), Kind::Channels),
        _ => program.state(name, shape.clone(), Kind::Channels),
    };
    let [p0, p1] = ["p0", "p1"].map(|name| state(Role::Parameter, name));
    let [m0, v0, m1, a0, a1] = ["m0", "v0", "m1", "a0", "a1"].map(|name| state(Role::State, name));
    let (beta1, beta2, epsilon, weight_decay, rate_factor) = (0.9, 0.999, 1e-8, 0.01, 1.0);
    let adamw =
        AdamW { beta1, beta2, epsilon, weight_decay, coupled: false, rate_factor, norm, clear: false };
    program.push(adamw, &[p0, kept, m0, v0, rates, taken]).unwrap();
    let sgd = Sgd { momentum: 0.9, weight_decay, rate_factor, norm, clear: true };
    program.push(sgd, &[p1, cleared, m1, rates, taken]).unwrap();
    for (average, parameter) in [(a0, p0), (a1, p1)] {
        program.push(Ema { decay: 0.9, guarded: true }, &[average, parameter, taken]).unwrap();
    }
    let [mean, variance] = ["running mean", "running variance"]
        .map(|name| program.parameter(name, shape.clone(), Kind::Channels));
    let batches = program.parameter("batches", Shape(vec![1]), Kind::Table);
    let statistics = program.input("statistics", Shape(vec![1, COUNT, 2]), Kind::Statistics);
    let of_batch = program.input("variance", shape, Kind::Channels);
    let running = RunningUpdate { momentum: 0.1, guarded: true };
    program.push(running, &[mean, variance, batches, statistics, of_batch, taken]).unwrap();
    program
}
