//! What all fuzz targets share: the body is the corpus's, and its heap is bounded.

pub use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: plimsoll_memory::CountingAllocator = plimsoll_memory::CountingAllocator;

/// Runs a body of the corpus, within what inputs of this length may take.
pub fn run(body: fn(&[u8]), bytes: &[u8]) {
    let corpus::Heap { peak, most } = corpus::heap_of(body, bytes);
    assert!(peak <= most, "{} bytes of input took {peak} of heap; {most} are the most", bytes.len());
}

/// A fuzz target whose body is the corpus's function of that name.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        $crate::fuzz_target!(|bytes: &[u8]| $crate::run(corpus::$name, bytes));
    };
}
