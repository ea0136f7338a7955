//! Resident memory as the system counts it.
//!
//! The counters of `/proc/self/status` belong to the whole process, and the kernel may reclaim a page at any time. So this program
//! has one test, which nothing else runs beside, and it counts the pages of its own buffers one by one: a page counts if it is
//! present or swapped out.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use plimsoll_memory::{Budget, Bytes, Mapped, mapped_files, resident, resident_anonymous};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Pages that the counters of a process may lag behind: the kernel batches 64 for each thread or processor.
const LAG: Bytes = Bytes::mib(4);

/// The pages of an address range: allocated before a measurement, since an allocation could be mapped into the range.
struct Pages {
    pagemap: File,
    start: u64,
    entries: Vec<u8>,
}

/// Bytes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangeMemory {
    present: Bytes,
    swapped: Bytes,
}

impl RangeMemory {
    const NONE: RangeMemory = RangeMemory { present: Bytes::ZERO, swapped: Bytes::ZERO };

    fn total(self) -> Bytes {
        self.present + self.swapped
    }
}

impl Pages {
    /// The pages that lie whole within `bytes`.
    fn new(bytes: &[u8]) -> Pages {
        let address = bytes.as_ptr() as u64;
        let start = address.next_multiple_of(PAGE);
        let count = (address + bytes.len() as u64 - start) / PAGE;
        Pages {
            pagemap: File::open("/proc/self/pagemap").unwrap(),
            start,
            entries: vec![0; count as usize * 8],
        }
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.entries.len() as u64 / 8 * PAGE)
    }

    /// Reads an entry of 64 bits for each page: bit 63 is set if the page is present, bit 62 if it is swapped out.
    fn held(&mut self) -> RangeMemory {
        self.pagemap.read_exact_at(&mut self.entries, self.start / PAGE * 8).unwrap();
        let (entries, _) = self.entries.as_chunks();
        let count = |bit: u32| {
            let set = entries.iter().filter(|entry| u64::from_ne_bytes(**entry) >> bit & 1 == 1).count();
            Bytes(set as u64 * PAGE)
        };
        RangeMemory { present: count(63), swapped: count(62) }
    }
}

#[test]
fn resident_memory_is_counted_and_returned() {
    a_mapped_buffer_is_resident_from_its_first_write_until_it_is_dropped();
    a_buffer_on_the_heap_is_resident_and_belongs_to_no_file();
}

fn a_mapped_buffer_is_resident_from_its_first_write_until_it_is_dropped() {
    let budget = Budget::new(Bytes::mib(128));
    let mut buffer = Mapped::<f32>::zeroed(&budget, "test", (64 * MIB / 4) as usize).unwrap();
    let mut pages = Pages::new(bytemuck::cast_slice(&buffer));
    assert_eq!(pages.bytes(), Bytes::mib(64), "the buffer begins at a page");
    assert_eq!(pages.held(), RangeMemory::NONE, "nothing was written yet");

    buffer.fill(1.0);
    assert_eq!(pages.held().total(), Bytes::mib(64));
    assert_eq!(budget.used(), Bytes::mib(64));

    drop(buffer);
    assert_eq!(pages.held(), RangeMemory::NONE, "the mapping is gone");
    assert_eq!(budget.used(), Bytes::ZERO);
}

fn a_buffer_on_the_heap_is_resident_and_belongs_to_no_file() {
    let files = mapped_files().unwrap();
    let buffer = std::hint::black_box(vec![1u8; (64 * MIB) as usize]);
    let mut pages = Pages::new(&buffer);
    // Pages may be swapped out between two readings, but none comes back, as nobody touches them.
    let before = pages.held();
    let (anonymous, all) = (resident_anonymous().unwrap(), resident().unwrap());
    let after = pages.held();
    assert!(before.total() >= Bytes::mib(64).saturating_sub(Bytes(2 * PAGE)), "{before:?}");
    assert!(anonymous + LAG >= after.present, "{anonymous} of which the buffer is {after:?}");
    assert!(all.now + LAG >= anonymous, "{all:?}, of no file {anonymous}");
    assert!(all.peak + LAG >= before.present && all.peak <= all.address_space, "{all:?}, {before:?}");
    assert_eq!(mapped_files().unwrap().mapped, files.mapped, "{} bytes are no file", buffer.len());
}
