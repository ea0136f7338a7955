//! One suite of op tests that every backend must pass.
//!
//! A [`Case`] is a small program with outputs. [`check`] plans it, runs it on a backend and compares every output, parameter
//! and state with the f64 definitions of the ops.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test suite fails by panicking")]

pub mod cases;

use std::collections::{BTreeMap, HashMap};

use plimsoll_graph::{Array, Kind, Program, Role, TensorId, interpret};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, Layout, Options, Plan, plan};

/// A program to be checked.
pub struct Case {
    /// What it is about.
    pub name: String,
    /// The program; its outputs are compared.
    pub program: Program,
    /// Classes of labels.
    pub classes: usize,
}

/// A backend under test.
pub struct Backend<'a> {
    /// What it takes.
    pub layout: &'a dyn Layout,
    /// Makes an engine for a plan.
    pub engine: &'a dyn Fn(Plan) -> Box<dyn Engine>,
}

/// Numbers in (−1, 1) that look random and are the same everywhere.
pub fn noise(seed: usize, i: usize) -> f64 {
    let mut x = (seed as u64) << 32 ^ i as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// The name of the inputs that random choices are made of.
pub(crate) const NOISE: &str = "noise";

/// A value for every input, parameter and state, exactly representable as f32 (and as bf16 where features are stored so).
pub fn values(case: &Case) -> HashMap<String, Array> {
    let program = &case.program;
    let given = program.ids().filter(|id| {
        let role = program.tensor(*id).role;
        role == Role::Input || role.is_persistent()
    });
    given
        .map(|id| {
            let tensor = program.tensor(id);
            let array = Array::from_fn(tensor.shape.clone(), |i| {
                let x = noise(id.index() + 1, i);
                let value = match tensor.kind {
                    Kind::Labels => return ((x + 1.0) / 2.0 * case.classes as f64).floor(),
                    // Whole numbers of sixteen bits.
                    Kind::Table if tensor.name == NOISE => return ((x + 1.0) * 32767.0).floor(),
                    Kind::Channels => 1.0 + x / 2.0,
                    // Moments and norms are positive.
                    Kind::Statistics | Kind::Table => 0.75 + x / 4.0,
                    _ if tensor.role == Role::State => 0.75 + x / 4.0,
                    _ => x,
                };
                // Seven bits of mantissa: exact in every precision.
                (value * 128.0).round() / 128.0
            });
            (tensor.name.clone(), array)
        })
        .collect()
}

/// Runs a case and returns every output, parameter and state afterwards, by name.
pub fn run(backend: &Backend<'_>, case: &Case, options: Options) -> BTreeMap<String, Vec<f32>> {
    let program = &case.program;
    let plan = plan(std::slice::from_ref(program), backend.layout, options)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let mut engine = (backend.engine)(plan);
    for (name, array) in values(case) {
        let id = program.find(&name).unwrap();
        if program.tensor(id).kind == Kind::Labels {
            let labels: Vec<u8> = array.data.iter().map(|x| *x as u8).collect();
            engine.write(0, id, HostSlice::U8(&labels));
        } else {
            let numbers: Vec<f32> = array.data.iter().map(|x| *x as f32).collect();
            engine.write(0, id, HostSlice::F32(&numbers));
        }
    }
    engine.run(0);
    results(program)
        .map(|id| {
            let tensor = program.tensor(id);
            let count = tensor.shape.count();
            let mut numbers = vec![0.0; count];
            if tensor.kind == Kind::Labels {
                let mut labels = vec![0; count];
                engine.read(0, id, HostSliceMut::U8(&mut labels));
                numbers = labels.into_iter().map(f32::from).collect();
            } else {
                engine.read(0, id, HostSliceMut::F32(&mut numbers));
            }
            (tensor.name.clone(), numbers)
        })
        .collect()
}

fn results(program: &Program) -> impl Iterator<Item = TensorId> + '_ {
    program.ids().filter(|id| {
        let role = program.tensor(*id).role;
        role == Role::Output || role.is_persistent()
    })
}

/// Runs a case on a backend and compares it with the definitions: no element of a result may be off by more than `tolerance`
/// times the largest of them.
///
/// # Panics
/// If it is not within the tolerance.
pub fn check(backend: &Backend<'_>, case: &Case, tolerance: f64) {
    let expected = interpret(&case.program, &values(case)).unwrap();
    let found = run(backend, case, Options::default());
    for id in results(&case.program) {
        let name = &case.program.tensor(id).name;
        let (expected, found) = (&expected[id.index()].data, &found[name]);
        let scale = expected.iter().fold(1e-3, |scale: f64, x| scale.max(x.abs()));
        for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
            let error = (expected - f64::from(*found)).abs() / scale;
            assert!(
                error <= tolerance,
                "{}: `{name}`[{i}] is {found}, not {expected}: off by {error:.1e} of {scale:.1e}",
                case.name
            );
        }
    }
}
