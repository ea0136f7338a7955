//! The heap for reading a JSON file of a model is reserved, also for texts that take far more memory than bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use plimsoll_memory::{Budget, Bytes, CountingAllocator, forget_heap_peak, heap_use};
use plimsoll_models::nnunet::read_postprocessing;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The heap for paths and messages, which no reservation includes.
const BESIDE: Bytes = Bytes(64 << 10);
/// About the bytes of a text.
const LENGTH: usize = 1 << 20;

/// One test, since all heap of the process counts.
#[test]
fn what_reading_json_takes_is_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postprocessing.json");
    let deep = |count: usize| format!("{}0{}", r#"{"":"#.repeat(count), "}".repeat(count));
    let lists = |count: usize| format!("{}0{}", "[".repeat(count), "]".repeat(count));
    let parts = ["0".into(), lists(1), lists(100), deep(1), deep(2), deep(100), r#"{"":"","a":[]}"#.into()];
    for part in parts {
        let parts = vec![&part[..]; LENGTH / (part.len() + 1)];
        // Whole, and cut off, where all is there at the last byte.
        let whole = format!("[{}]", parts.join(","));
        for text in [&whole[..], &whole[..whole.len() - 1]] {
            std::fs::write(&path, text).unwrap();
            let budget = Budget::new(Bytes::mib(512));
            let before = heap_use().now;
            forget_heap_peak();
            let error = read_postprocessing(&path, &budget).unwrap_err();
            let taken = heap_use().peak - before;
            let start = &part[..part.len().min(12)];
            println!(
                "{start}…: {} took {taken}, reserved {}; {error}",
                Bytes(text.len() as u64),
                budget.peak()
            );
            assert!(taken <= budget.peak() + BESIDE, "{start}: took {taken}, reserved {}", budget.peak());
            assert_eq!(budget.used(), Bytes::ZERO);
        }
    }
}
