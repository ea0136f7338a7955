//! The memory to open a weight file, by the length of its header. It is the only test of its process, so that no other
//! allocates meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufWriter, Write};

use plimsoll_memory::{CountingAllocator, heap_use};
use plimsoll_nn::weights::SafetensorsFile;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_header_taken_apart_takes_at_most_eight_times_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    // Empty tensors with the shortest names are the most entries that a header can have.
    let entry = |i: usize| format!("\"{i:05}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let count = 60_000;
    let length = count * (entry(0).len() + 1) + 1;
    let mut file = BufWriter::new(File::create(&path).unwrap());
    file.write_all(&(length as u64).to_le_bytes()).unwrap();
    for i in 0..count {
        write!(file, "{}{}", if i == 0 { '{' } else { ',' }, entry(i)).unwrap();
    }
    file.write_all(b"}").unwrap();
    drop(file);
    let before = heap_use().now;
    let opened = SafetensorsFile::open(&path).unwrap();
    assert_eq!(opened.tensors().count(), count);
    let taken = heap_use().peak - before;
    assert!(taken.0 as usize <= (8 + 1) * length, "{taken} for a header of {length} bytes");
}
