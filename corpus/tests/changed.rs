//! Readers of what arrives from the network take inputs that are changed at random, the same in each run, without a panic or too much heap.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use corpus::{Changes, Heap, TARGETS, heap_of};
use plimsoll_memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Inputs of a target.
const TRIES: usize = 4000;

/// One test alone, since all heap of the process counts.
#[test]
fn changed_inputs_of_the_server_neither_panic_nor_take_more_heap_than_their_size_allows() {
    let of_server = TARGETS.into_iter().filter(|(target, _)| target.starts_with("serve_"));
    let mut targets = 0;
    for (target, body) in of_server {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        let mut seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
        seeds.sort();
        let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| std::fs::read(seed).unwrap()).collect();
        seeds.iter().for_each(|seed| body(seed));
        let mut changes = Changes::new(1);
        for number in 0..TRIES {
            let bytes = changes.input(&seeds);
            let Heap { peak, most } = heap_of(body, &bytes);
            assert!(
                peak <= most,
                "{target} {number}: {} bytes took {peak}, but may take {most}",
                bytes.len()
            );
        }
        targets += 1;
    }
    assert_eq!(targets, 3);
}
