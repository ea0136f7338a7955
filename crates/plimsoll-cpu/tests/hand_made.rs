//! A program that was put together by hand, however wrong, is an error or a plan that runs; nothing that safe code can say makes
//! the kernels leave their buffers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::random::{Random, changed, options, run, valid};
use plimsoll_cpu::{CpuBackend, CpuOptions, Level, Products};
use plimsoll_plan::EngineError;
use proptest::prelude::*;

/// A backend with any number of threads and any instruction set that this machine has.
fn backend(random: &mut Random) -> CpuBackend {
    let levels: Vec<Level> = Level::ALL.iter().map(|level| (*level).min(Level::detect())).collect();
    let threads = 1 + random.below(3);
    let products = [Products::F32, Products::Bf16][random.below(2)];
    CpuBackend::new(CpuOptions { threads, level: levels[random.below(levels.len())], products, poison: true })
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_program_is_an_error_or_runs(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let backend = backend(random);
        let programs = valid(random);
        prop_assert!(run(&programs, &backend, options(random), random).unwrap());
        for _ in 0..20 {
            let Some(changed) = changed(&programs, random) else { continue };
            run(&changed, &backend, options(random), random).unwrap();
        }
    }
}

#[test]
fn options_that_the_machine_lacks_are_errors() {
    let refused = |options| matches!(CpuBackend::new(options), Err(EngineError::Options { .. }));
    let sound = CpuOptions { level: Level::detect(), ..CpuOptions::new(2) };
    assert!(!refused(sound));
    for threads in [0, 100_000, usize::MAX] {
        assert!(refused(CpuOptions { threads, ..sound }));
    }
    for level in Level::ALL.iter().copied() {
        assert_eq!(refused(CpuOptions { level, ..sound }), level > Level::detect());
    }
}
