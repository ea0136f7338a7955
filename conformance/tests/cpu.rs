//! The CPU backend against the definitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::{Backend, Case, cases, check, run};
use plimsoll_cpu::{CpuEngine, CpuLayout, CpuOptions, Level};
use plimsoll_graph::DType;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Engine, Options, Plan, plan};

fn with_backend<R>(threads: usize, level: Level, poison: bool, use_it: impl FnOnce(&Backend<'_>) -> R) -> R {
    let options = CpuOptions { threads, level, poison };
    let engine = |plan: Plan| -> Box<dyn Engine> {
        let budget = Budget::new(Bytes::gib(1));
        let bytes = Bytes::of(plan.arena_bytes.next_multiple_of(4096));
        let reservation = budget.reserve("arena", bytes).unwrap();
        Box::new(CpuEngine::new(plan, reservation, options).unwrap())
    };
    use_it(&Backend { layout: &CpuLayout::new(threads), engine: &engine })
}

fn levels() -> Vec<Level> {
    [Level::Portable, Level::Avx2, Level::Avx512]
        .into_iter()
        .filter(|level| *level <= Level::detect())
        .collect()
}

fn check_all(cases: &[Case], tolerance: f64) {
    for level in levels() {
        with_backend(2, level, true, |backend| {
            for case in cases {
                check(backend, case, tolerance);
            }
        });
    }
}

#[test]
fn f32_agrees_with_the_definitions() {
    check_all(&cases::all(DType::F32), 5e-6);
}

#[test]
fn bf16_agrees_to_its_eight_bits() {
    check_all(&cases::all(DType::Bf16), 1.5e-2);
}

#[test]
fn heads_are_folded() {
    for case in cases::heads(DType::F32) {
        let plan = plan(std::slice::from_ref(&case.program), &CpuLayout::new(2), Options::default()).unwrap();
        let names: Vec<&str> =
            plan.programs[0].program.nodes.iter().map(|node| node.op.rule().name()).collect();
        assert!(names.contains(&"head_stats") && names.contains(&"head_grad"), "{}: {names:?}", case.name);
        assert!(
            !names.contains(&"conv") && !names.contains(&"composite_loss_grad"),
            "{}: {names:?}",
            case.name
        );
    }
}

#[test]
fn the_bits_depend_on_neither_threads_nor_places_nor_poison_nor_folding() {
    for precision in [DType::F32, DType::Bf16] {
        for case in cases::all(precision) {
            let bits = |threads, poison, options| {
                with_backend(threads, Level::detect(), poison, |backend| run(backend, &case, options))
                    .into_iter()
                    .map(|(name, values)| (name, values.into_iter().map(f32::to_bits).collect::<Vec<_>>()))
                    .collect::<Vec<_>>()
            };
            let first = bits(1, false, Options::default());
            assert_eq!(first, bits(3, true, Options::default()), "{}: threads", case.name);
            let apart = Options { reuse: false, ..Options::default() };
            assert_eq!(first, bits(2, false, apart), "{}: places", case.name);
            let kept = Options { fold: false, ..Options::default() };
            assert_eq!(first, bits(2, true, kept), "{}: folding", case.name);
        }
    }
}
