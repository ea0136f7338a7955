//! Tries a reader on inputs that are changed at random, where there is no libFuzzer:
//!
//! ```sh
//! cargo run --release -p corpus --example mutate -- dicom 300
//! ```
//!
//! tries `dicom` for 300 seconds. It begins with the inputs in `seeds/`, changes bits and bytes, repeats, removes and exchanges pieces, and
//! ends with an input that panics or takes too much heap in `mutate-TARGET.bin`.
#![allow(clippy::panic, clippy::expect_used, reason = "a tool for tests fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use corpus::{Changes, Heap, TARGETS, heap_of};
use plimsoll_memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds, ..] = arguments.as_slice() else { panic!("name a target and seconds") };
    let (_, body) = TARGETS.into_iter().find(|(target, _)| target == name).expect("a target");
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut inputs: Vec<_> =
        std::fs::read_dir(seeds).expect("seeds").flatten().map(|seed| seed.path()).collect();
    inputs.sort();
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|path| std::fs::read(path).expect("a seed")).collect();
    let seed = arguments.get(2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (mut changes, mut tries) = (Changes::new(seed), 0u64);
    let until = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds"));
    // Tables and folders that are made once are made before heap is counted.
    inputs.iter().for_each(|input| body(input));
    let kept = format!("mutate-{name}.bin");
    while Instant::now() < until {
        let bytes = changes.input(&inputs);
        // It is there if this try ends the process.
        std::fs::write(&kept, &bytes).expect("a file for the input");
        let Heap { peak, most } = heap_of(body, &bytes);
        assert!(peak <= most, "{} bytes of input took {peak} of heap; {most} are the most", bytes.len());
        tries += 1;
    }
    drop(std::fs::remove_file(&kept));
    println!("{name}: {tries} inputs");
}
