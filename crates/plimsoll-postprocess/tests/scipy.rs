//! Steps come to what scipy.ndimage comes to: `oracles/postprocessing.py` has run it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use plimsoll_memory::{Budget, Bytes};
use plimsoll_postprocess::{Step, VoxelGrid, process};
use plimsoll_volume::Spacing;
use serde::Deserialize;

#[derive(Deserialize)]
struct Oracle {
    steps: Vec<Step>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    shape: [usize; 3],
    spacing: [f64; 3],
    before: String,
    after: Vec<String>,
}

fn labels(digits: &str) -> Vec<u16> {
    digits.bytes().map(|digit| u16::from(digit - b'0')).collect()
}

#[test]
fn every_step_on_every_map_is_scipys_with_one_thread_and_with_three() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracles/postprocessing.json"));
    let oracle: Oracle = serde_json::from_str(&text.unwrap()).unwrap();
    let budget = Budget::new(Bytes::mib(64));
    assert!(oracle.cases.len() == 4 && oracle.steps.len() == 12);
    for case in &oracle.cases {
        assert_eq!(case.after.len(), oracle.steps.len());
        for (step, after) in oracle.steps.iter().zip(&case.after) {
            let (before, expected) = (labels(&case.before), labels(after));
            for threads in [1, 3] {
                let mut found = before.clone();
                let grid = VoxelGrid { shape: case.shape, spacing: Spacing(case.spacing) };
                let changed =
                    process(std::slice::from_ref(step), &mut found, grid, &budget, threads).unwrap();
                assert_eq!(found, expected, "{step} on {:?}", case.shape);
                let differ = before.iter().zip(&expected).filter(|(before, after)| before != after).count();
                assert_eq!(changed, differ as u64, "{step}");
            }
        }
    }
    assert_eq!(budget.used(), Bytes::ZERO);
}
