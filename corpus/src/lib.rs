//! What readers of files do with any bytes at all.
//!
//! Each function takes the bytes of a file (a data set's description, a volume, weights, …), gives them to the code that reads
//! such files, and uses what comes out. It may be refused with an error; it must not panic, give a path outside of a data
//! set's folder, or take more heap than [`most_heap`]. The fuzz targets of `fuzz/` call these functions; the test of this crate
//! tries the inputs in `seeds/` on them: small real files, and whatever once was a fault.

mod data;
mod folder;
mod runs;
mod volumes;
mod weights;

use plimsoll_memory::{Bytes, forget_heap_peak, heap_use};

pub use data::{dataset, fingerprint, splits};
pub use runs::{events, lock, metrics, settings, specification};
pub use volumes::{nifti, nifti_gz, nifti_pair};
pub use weights::{pytorch, safetensors};

/// What reads the bytes of a file.
pub type Body = fn(&[u8]);

/// All bodies, by the names of their fuzz targets and of the folders of their inputs.
pub const TARGETS: [(&str, Body); 13] = [
    ("dataset", dataset),
    ("events", events),
    ("fingerprint", fingerprint),
    ("lock", lock),
    ("metrics", metrics),
    ("nifti", nifti),
    ("nifti_gz", nifti_gz),
    ("nifti_pair", nifti_pair),
    ("pytorch", pytorch),
    ("safetensors", safetensors),
    ("settings", settings),
    ("specification", specification),
    ("splits", splits),
];

/// Heap that any input may take: buffers of a fixed size, and networks that fit small images.
const FIXED: u64 = 1 << 20;

/// The most heap that an input of so many bytes may take at a time: four times its size, rounded up to a power of two, but at
/// least a mebibyte.
pub fn most_heap(length: usize) -> Bytes {
    Bytes((length as u64).next_power_of_two().saturating_mul(4).max(FIXED))
}

/// Runs a body, and tells the most heap that it had at a time. The program must have installed
/// [`CountingAllocator`](plimsoll_memory::CountingAllocator), and do nothing else meanwhile.
pub fn heap_of(body: Body, bytes: &[u8]) -> Bytes {
    let before = heap_use().now;
    forget_heap_peak();
    body(bytes);
    heap_use().peak - before
}
