//! Threads and instruction sets.
//!
//! [`Pool`] runs tasks on a fixed number of threads, [`Level`] names the instruction sets that kernels are compiled for, and
//! [`Parts`] lets threads write disjoint parts of one slice. Work is divided by shape, never by the number of threads, so the
//! results have the same bits on any number of them. [`each`] and [`pairs`] keep
//! arrays of loops in registers.
//! [`catch_panic`] turns the panic of a decoder into an error.

mod arrays;
mod guard;
mod level;
mod parts;
mod pool;
mod prefetch;
mod share;
mod threads;
mod widest;

pub use arrays::{Pairs, each, each_index, pairs};
pub use guard::{Panicked, catch_panic};
pub use level::Level;
pub use parts::Parts;
pub use pool::{LaunchTasks, MOST_THREADS, Pool, STACK_BYTES, TaskLog, barrier_seconds};
pub use prefetch::{LINE, prefetch};
pub use share::Phase;
pub use threads::default_threads;
pub use widest::{Loop, widest};
