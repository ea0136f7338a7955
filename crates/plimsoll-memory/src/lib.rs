//! What memory there is, and who holds it.
//!
//! * [`limits()`](fn@limits) reads what the machine, its control groups and its resource limits leave to this process.
//! * [`Budget`] is the line: whoever allocates by the size of the data reserves first, under a name.
//! * [`Mapped`] is a buffer of whole pages that goes back to the system when it is dropped, so that the resident size follows.
//! * [`CountingAllocator`] counts every heap byte of the process; [`resident()`](fn@resident) says what the system sees.
//!
//! Nothing here knows what the memory is for.

mod allocator;
mod budget;
mod bytes;
mod cgroup;
mod limits;
mod mapped;
mod resident;

pub use allocator::{
    CountingAllocator, HeapUse, Watch, heap_use, keep_resident_small, watch_this_thread, watched_allocations,
};
pub use budget::{Budget, HolderUse, OverBudget, Reservation};
pub use bytes::{Bytes, ParseBytesError};
pub use limits::{Limit, Limits, System, limits, shortfall};
pub use mapped::{MapError, Mapped};
pub use resident::{Resident, resident};
