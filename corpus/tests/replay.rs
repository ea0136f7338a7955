//! Each input that was kept is read without a panic, and with no more heap than an input of its size may take.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use corpus::{Heap, TARGETS, heap_of};
use plimsoll_memory::{CountingAllocator, heap_use};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The most bytes of a target's inputs together: they are in everybody's checkout.
const MOST_BYTES: usize = 128 << 10;

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// One test alone, since all heap of the process counts.
#[test]
fn inputs_that_were_kept_neither_panic_nor_take_more_heap_than_their_size_allows() {
    for (target, body) in TARGETS {
        let paths = inputs(target);
        assert!(!paths.is_empty(), "{target} has no inputs");
        let mut kept = 0;
        for path in paths {
            let bytes = std::fs::read(&path).unwrap();
            kept += bytes.len();
            // What is made once, such as a folder, is made before anything is counted.
            body(&bytes);
            let Heap { peak, most } = heap_of(body, &bytes);
            assert!(
                peak <= most,
                "{}: {} bytes took {peak}, but may take {most}",
                path.display(),
                bytes.len()
            );
            // The thread of the test harness allocates at times, a leak leaks each time.
            let leaks = || {
                let before = heap_use().now;
                body(&bytes);
                heap_use().now > before
            };
            assert!(!(0..5).all(|_| leaks()), "{}: some of it is never freed", path.display());
        }
        assert!(kept <= MOST_BYTES, "inputs of {target} have {kept} bytes; {MOST_BYTES} are the most");
    }
}
