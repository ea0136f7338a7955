//! Pointers into the arena, in programs so small that an interpreter that checks every access runs them in seconds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::{Case, cases, expected, read, start, values, write};
use plimsoll_cpu::{CpuBackend, CpuOptions, Level};
use plimsoll_graph::DType;
use plimsoll_plan::{Engine, Options};

/// Runs a case twice on two threads, with its values written and its results read in between, and compares the results.
fn run_twice(case: &Case) {
    let options = CpuOptions { level: Level::Portable, poison: true, ..CpuOptions::new(2) };
    let backend = CpuBackend::new(options).unwrap();
    let (mut engine, id) = start(&backend, case, Options::default());
    let expected = expected(case);
    let results = |engine: &dyn Engine| -> Vec<Vec<f64>> {
        expected.keys().map(|name| read(engine, id, case.program.find(name).unwrap())).collect()
    };
    let first = results(&*engine);
    for (name, array) in values(case) {
        write(&mut *engine, id, case.program.find(&name).unwrap(), &array.data);
    }
    engine.run(id).unwrap();
    assert_eq!(results(&*engine), first, "{}", case.name);
    for (found, expected) in first.iter().zip(expected.values()) {
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4));
    }
}

#[test]
fn a_program_uses_its_arena_again_after_numbers_were_written_and_read() {
    // Copies and updates by one thread, and kernels with several tasks.
    let kinds =
        [cases::zero_classes(), cases::running(), cases::gates(DType::F32), cases::losses(DType::F32)];
    let elements =
        |case: &&Case| -> usize { case.program.ids().map(|id| case.program.tensor(id).shape.count()).sum() };
    // The smallest of each kind takes an interpreter seconds, the first of some minutes.
    let chosen = |cases: &Vec<Case>| -> Option<Case> {
        let case = if cfg!(miri) { cases.iter().min_by_key(elements) } else { cases.first() };
        case.cloned()
    };
    kinds.iter().filter_map(chosen).for_each(|case| run_twice(&case));
}
