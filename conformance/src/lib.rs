//! One suite of op tests that every backend must pass.
//!
//! A [`Case`] is a small program with outputs. [`check`] plans it, runs it on a backend and compares every output, parameter
//! and state with the f64 definitions of the ops. [`Case::places`] puts the same ops between other ops, where
//! backends lay tensors out and reuse their places as they like, and [`Case::large`] takes numbers that are large and off zero.
//!
//! [`engine`], [`engine_for`], [`write()`] and [`read`] make engines and move numbers in and out; tests of other crates use them
//! too.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test suite fails by panicking")]

pub mod cases;
#[cfg(feature = "emulator")]
pub mod emulator;
mod guards;
mod harness;
mod interior;
mod parts;
pub mod random;
mod stretches;

use std::collections::{BTreeMap, HashMap};

use plimsoll_graph::{Array, Kind, Program, Role, TensorId, interpret};
use plimsoll_plan::{Backend, Engine, Options, ProgramId};

pub use guards::check_guards;
pub use harness::{engine, engine_for, read, write};
pub use parts::{Part, check_parts, parts};
pub use stretches::check_stretches;

/// A program to be checked.
#[derive(Clone, Debug)]
pub struct Case {
    /// The subject of the case.
    pub name: String,
    /// The program; its outputs are compared.
    pub program: Program,
    /// Classes of labels.
    pub classes: usize,
    /// The numbers of its volumes.
    pub numbers: Numbers,
    /// `true` if large numbers far from zero leave it as well conditioned as small ones around zero.
    pub may_be_large: bool,
    /// The factor by which its results may exceed the tolerance of one op, since many ops follow one another.
    pub depth: f64,
    /// `true` if all its volumes may be those of [`Dropout`](plimsoll_graph::ops::Dropout), which backends keep in the
    /// layout of convolutions.
    pub between_convolutions: bool,
}

/// The distribution of the numbers of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// In (−1, 1), seven bits after the point.
    Small,
    /// Whole numbers in (−50, 150).
    Large,
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

/// The prefix of the names of inputs that are zero.
pub(crate) const ZEROS: &str = "zeros";

impl Case {
    /// A case of small numbers.
    pub fn new(name: impl Into<String>, program: Program, classes: usize) -> Case {
        Case {
            name: name.into(),
            program,
            classes,
            numbers: Numbers::Small,
            may_be_large: true,
            depth: 1.0,
            between_convolutions: false,
        }
    }

    /// The case itself, and the same ops between other ops: with the same results.
    pub fn places(&self) -> Vec<Case> {
        let mut places = vec![self.clone(), interior::between(self, interior::Neighbour::LeakyRelu)];
        if self.between_convolutions {
            places.push(interior::between(self, interior::Neighbour::Dropout));
        }
        places
    }

    /// The case on large numbers, where it may be run on them.
    pub fn large(&self) -> Option<Case> {
        let name = format!("{}, large numbers", self.name);
        self.may_be_large.then(|| Case { name, numbers: Numbers::Large, ..self.clone() })
    }
}

/// A value for every input, parameter and state, exactly representable as f32 and, where volumes are stored so, as bf16.
pub fn values(case: &Case) -> HashMap<String, Array> {
    let program = &case.program;
    let given = program.ids().filter(|id| {
        let role = program.tensor(*id).role;
        role == Role::Input || role.is_persistent()
    });
    // A case has the same numbers between other ops, whose own inputs are zero.
    let mut seed = 0;
    let given = given.map(|id| {
        let tensor = program.tensor(id);
        seed += usize::from(!tensor.name.starts_with(ZEROS));
        let array = Array::from_fn(tensor.shape.clone(), |i| {
            let x = noise(seed, i);
            let value = match tensor.kind {
                _ if tensor.name.starts_with(ZEROS) => 0.0,
                Kind::Labels => return ((x + 1.0) / 2.0 * case.classes as f64).floor(),
                // Whole numbers of sixteen bits.
                Kind::Table if tensor.name == NOISE => return ((x + 1.0) * 32767.0).floor(),
                Kind::Channels => 1.0 + x / 2.0,
                // Moments and norms are positive.
                Kind::Statistics | Kind::Table => 0.75 + x / 4.0,
                _ if tensor.role == Role::State => 0.75 + x / 4.0,
                Kind::Volume if case.numbers == Numbers::Large => return (50.0 + 100.0 * x).round(),
                _ => x,
            };
            // Seven bits of mantissa: exact in every precision.
            (value * 128.0).round() / 128.0
        });
        (tensor.name.clone(), array)
    });
    given.collect()
}

/// Plans a case, writes its values and runs it.
pub fn start(backend: &dyn Backend, case: &Case, options: Options) -> (Box<dyn Engine>, ProgramId) {
    let program = &case.program;
    let mut engine = engine_for(backend, std::slice::from_ref(program), options)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let id = engine.plan().find(&program.name).unwrap();
    for (name, array) in values(case) {
        write(&mut *engine, id, program.find(&name).unwrap(), &array.data);
    }
    engine.run(id).unwrap();
    (engine, id)
}

/// Runs a case and returns every output, parameter and state afterwards, by name.
pub fn run(backend: &dyn Backend, case: &Case, options: Options) -> BTreeMap<String, Vec<f64>> {
    let (engine, program) = start(backend, case, options);
    let name = |id: TensorId| case.program.tensor(id).name.clone();
    results(&case.program).map(|id| (name(id), read(&*engine, program, id))).collect()
}

fn results(program: &Program) -> impl Iterator<Item = TensorId> + '_ {
    program.ids().filter(|id| {
        let role = program.tensor(*id).role;
        role == Role::Output || role.is_persistent()
    })
}

/// Returns the result of a case by the definitions: every output, parameter and state, by name.
pub fn expected(case: &Case) -> BTreeMap<String, Vec<f64>> {
    let mut arrays = interpret(&case.program, &values(case)).unwrap();
    let name = |id: TensorId| case.program.tensor(id).name.clone();
    results(&case.program).map(|id| (name(id), std::mem::take(&mut arrays[id.index()].data))).collect()
}

/// Runs a case on a backend and compares it with what the definitions make of it: no element of a result may be off by more than
/// `tolerance` times the largest of them, times the case's depth.
///
/// # Panics
/// Panics if a result is not within the tolerance.
pub fn check(backend: &dyn Backend, case: &Case, expected: &BTreeMap<String, Vec<f64>>, tolerance: f64) {
    let found = run(backend, case, Options::default());
    let of = Case { name: format!("{} on {}", case.name, backend.identity()), ..case.clone() };
    compare(&of, expected, &found, tolerance);
}

/// Compares what a backend has made of a case with what the definitions make of it, as [`check`] does.
///
/// # Panics
/// Panics if a result is not within the tolerance.
pub fn compare(
    case: &Case,
    expected: &BTreeMap<String, Vec<f64>>,
    found: &BTreeMap<String, Vec<f64>>,
    tolerance: f64,
) {
    for (name, expected) in expected {
        let what = || format!("{}: `{name}`", case.name);
        assert_close(what, expected, &found[name], tolerance * case.depth);
    }
}

/// Compares numbers, relative to the largest of them.
pub(crate) fn assert_close(what: impl Fn() -> String, expected: &[f64], found: &[f64], tolerance: f64) {
    assert_eq!(expected.len(), found.len(), "{}", what());
    let finite = expected.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let scale = finite.fold(1e-3, f64::max);
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        // Infinite distances are equal.
        let error = if expected == found { 0.0 } else { (expected - found).abs() / scale };
        assert!(
            error <= tolerance,
            "{}[{i}] is {found}, not {expected}: off by {error:.1e} of {scale:.1e}",
            what()
        );
    }
}
