//! Limits on this process's memory, and an account of who holds it.
//!
//! * [`limits()`](fn@limits) reads how much the machine, its control groups and its resource limits leave to this
//!   process.
//! * [`Budget`] is the limit: code that allocates in proportion to the data reserves first, under a name.
//! * [`Mapped`] is a buffer of whole pages that is returned to the system when it is dropped, so that the resident size
//!   follows.
//! * [`CountingAllocator`] counts every heap byte of the process; [`resident()`](fn@resident) reads the resident size
//!   that the system reports.
//! * [`Overhead`] is the memory of a process beside its reservations.
//! * [`Pressure`] is the share of time in which tasks wait for memory.
//!
//! [`host`] identifies the machine and its processor, [`process_time`] and [`major_faults`] count its work, [`fnv1a`] and [`Digest`] hash bytes the same way on every machine. Nothing here depends on
//! what the memory is used for.

mod allocator;
mod budget;
mod bytes;
#[cfg(not(any(target_os = "macos", windows)))]
mod cgroup;
mod digest;
mod effort;
mod hash;
pub mod host;
mod limit;
mod limits;
mod mapped;
mod mappings;
mod overhead;
mod pressure;
mod process;
mod resident;

pub use allocator::{
    CountingAllocator, HeapUse, Watch, forget_heap_peak, heap_use, keep_resident_small, watch_this_thread,
    watched_allocations,
};
pub use budget::{Budget, HolderUse, OverBudget, Reservation};
pub use bytes::{Bytes, ParseBytesError};
pub use digest::{Digest, Digester};
pub use effort::{major_faults, moved_bytes, process_time, thread_time};
pub use hash::{Fnv1a, fnv1a};
pub use limit::{Limit, System, Unread};
pub use limits::{Limits, limits, shortfall};
pub use mapped::{MapError, Mapped};
pub use mappings::{MappedFiles, mapped_data, mapped_files};
pub use overhead::{Overhead, messages};
pub use pressure::{CgroupUse, Pressure, oom_kills};
pub use resident::{Resident, forget_resident_peak, resident, resident_anonymous};
