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

use corpus::{Heap, TARGETS, heap_of};
use plimsoll_memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The longest input.
const MOST: usize = 32 << 10;

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % bound.max(1) as u64) as usize
    }

    /// Changes bytes in one of a few ways.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        // What lengths and counts are wrong with.
        const EDGES: [&[u8]; 8] = [
            b"\0",
            b"\xff",
            b"\x7f",
            b"\0\0",
            b"\xff\xff",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\x7f",
            b"999999999",
        ];
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(64)).min(bytes.len());
        match self.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
            2 => {
                let edge = EDGES[self.below(EDGES.len())];
                let end = (at + edge.len()).min(bytes.len());
                drop(bytes.splice(at..end, edge.iter().copied()));
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            5 => {
                let from = self.below(other.len());
                let piece = &other[from..(from + self.below(256)).min(other.len())];
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
            _ => bytes.truncate(self.below(bytes.len() * 8)),
        }
        bytes.truncate(MOST);
    }
}

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
    let (mut draws, mut tries) = (Draws(seed), 0u64);
    let until = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds"));
    // Tables and folders that are made once are made before heap is counted.
    inputs.iter().for_each(|input| body(input));
    let kept = format!("mutate-{name}.bin");
    while Instant::now() < until {
        let mut bytes = inputs[draws.below(inputs.len())].clone();
        let other = &inputs[draws.below(inputs.len())];
        for _ in 0..=draws.below(6) {
            draws.change(&mut bytes, other);
        }
        // It is there if this try ends the process.
        std::fs::write(&kept, &bytes).expect("a file for the input");
        let Heap { peak, most } = heap_of(body, &bytes);
        assert!(peak <= most, "{} bytes of input took {peak} of heap; {most} are the most", bytes.len());
        tries += 1;
    }
    drop(std::fs::remove_file(&kept));
    println!("{name}: {tries} inputs");
}
